"""Clients that send half a request, or none: they cost neither the server's answers nor its log."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")

from genpolicy_play.web import connections
from genpolicy_play.web.middleware import host_of
from tests.play.web_server import TIC_TAC_TOE, Client, serving

pytestmark = pytest.mark.usefixtures("warm_start")

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "


@pytest.fixture
def client() -> Iterator[Client]:
    with serving(["random"], [TIC_TAC_TOE]) as made:
        yield made


def connect(client: Client) -> socket.socket:
    return socket.create_connection((client.host, client.port), timeout=20)


def is_closed(connection: socket.socket) -> bool:
    """Waits until the other side closes."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", HALF])
def test_headers_have_a_time(client: Client, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.3)
    with connect(client) as connection:
        connection.sendall(sent)
        assert is_closed(connection)


def test_the_time_is_not_prolonged_by_single_bytes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.5)
    with connect(client) as connection:
        connection.setblocking(False)
        for _ in range(300):
            try:
                connection.send(b"E")
                assert connection.recv(1) == b""
                break
            except BlockingIOError:
                time.sleep(0.05)
            except ConnectionError:
                break
        else:
            pytest.fail("the connection still stands")


def test_the_headers_of_a_second_request_have_a_time_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(client) as connection:
        connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = b""
        while b"}" not in answer:
            answer += connection.recv(4096)
        monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.3)
        connection.sendall(HALF)
        assert is_closed(connection)


def test_half_requests_push_each_other_out(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    with ExitStack() as held:
        half = []
        for _ in range(20):
            half.append(held.enter_context(connect(client)))
            half[-1].sendall(HALF)
        assert all(is_closed(connection) for connection in half[:12])
        assert client.get("/api/offers").status == 200
        half[-1].sendall(b"x\r\n\r\n")
        assert b"200" in half[-1].recv(64)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of open files")
@pytest.mark.thorough
def test_few_file_handles_make_the_server_neither_deaf_nor_loud() -> None:
    code = (
        "import resource, sys; _, hard = resource.getrlimit(resource.RLIMIT_NOFILE);"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard));"
        "from genpolicy.cli import main; main(['web', '--policy', 'random', '--game', 'connect', '--port', '0'])"
    )
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if "http://" in line)
        port = int(line.split("http://")[1].split("/")[0].rpartition(":")[2])
        with ExitStack() as held:
            for _ in range(150):
                half = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
                half.sendall(HALF)
            whole = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            whole.sendall(b"GET /api/offers HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b" 200 " in whole.recv(4096)
    finally:
        server.terminate()
        _, said = server.communicate(timeout=30)
    assert said.count("\n") < 20, said[:2000]


def test_the_limit_leaves_handles_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, limit in ((1 << 20, 512), (1024, 480), (128, 32), (64, 8), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections.max_connections() == limit


@pytest.mark.parametrize("header", ["localhost\t", "local\thost", "localhost\n", " localhost"])
def test_blanks_are_no_part_of_a_host(header: str) -> None:
    assert host_of(header) is None
