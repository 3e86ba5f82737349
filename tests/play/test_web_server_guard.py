"""What the web board's server refuses: other hosts and origins, other files, large and broken bodies; and a fuzz."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")

from genpolicy_play.web.app import static_files
from genpolicy_play.web.middleware import Hosts, same_origin
from genpolicy_play.web.requests import MAX_BODY_BYTES, MAX_MOVES, MAX_TEXT, RequestError, read_object
from tests.play.web_server import TIC_TAC_TOE, Client, serving

JSON = {"Content-Type": "application/json"}
POST = "POST /api/position HTTP/1.1\r\nContent-Type: application/json\r\n"
LOOPBACK = ("localhost", "LOCALHOST:1", "127.0.0.1:9999", "[::1]:8000", "127.1.2.3", "localhost.")
SECRET = "what no client may see"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "static").mkdir()
    (folder / "static" / "index.html").write_text("<!doctype html><title>page</title>")
    (folder / "static" / "app.js").write_text("export {};")
    (folder / "static" / "notes.txt").write_text(SECRET)
    (folder / "static" / "deeper").mkdir()
    (folder / "static" / "deeper" / "more.js").write_text(SECRET)
    (folder / "secret.html").write_text(SECRET)
    with serving(["random"], ["chess", "shogi", TIC_TAC_TOE], files=static_files(folder / "static")) as made:
        yield made


def raw(client: Client, data: bytes, *, timeout_s: float = 20.0) -> bytes:
    """All that the server answers to some bytes."""
    with socket.create_connection((client.host, client.port), timeout=timeout_s) as connection:
        connection.sendall(data)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
            head, split, body = answer.partition(b"\r\n\r\n")
            if split and b"content-length:" in head.lower():
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                if len(body) >= length:
                    break
        return answer


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/", None), ("GET", "/nothing", None), ("GET", "/api/offers", None), ("POST", "/api/position", b"{")],
)
def test_every_answer_carries_the_headers(client: Client, method: str, path: str, body: bytes | None) -> None:
    headers = client.ask(method, path, body, JSON).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_a_decisions_stream_carries_them_too(client: Client) -> None:
    reply = client.decide("chess", "random")
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert "content-security-policy" in reply.headers


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.0.7",
        "",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "127.0.0.1/evil",
        "[::1",
        "2130706433x",
        "a b",
    ],
)
def test_another_host_name_is_refused(client: Client, host: str) -> None:
    for request in (
        f"GET /api/offers HTTP/1.1\r\nHost: {host}\r\n\r\n",
        f"{POST}Host: {host}\r\nContent-Length: 2\r\n\r\n{{}}",
    ):
        answer = raw(client, request.encode())
        assert answer.split()[1] in (b"403", b"400"), answer
        assert b"policies" not in answer.partition(b"\r\n\r\n")[2]


def test_a_request_without_a_host_or_with_two_is_refused(client: Client) -> None:
    assert b" 400 " in raw(client, b"GET /api/offers HTTP/1.0\r\n\r\n").partition(b"\r\n")[0]
    twice = b"GET /api/offers HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert b" 400 " in raw(client, twice).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:9999", "[::1]:8000", "127.1.2.3", "localhost."]
)
def test_loopback_names_are_taken_at_any_port(client: Client, host: str) -> None:
    assert client.get("/api/offers", Host=host).status == 200  # a tunnel may have another port


def test_hosts_of_an_open_address_are_addresses_and_own_names_only() -> None:
    hosts = Hosts("0.0.0.0", ["Board.example"])
    for good in ("192.168.0.7:8000", "[fe80::1]:8000", "localhost", f"{socket.gethostname()}:8000", "board.example"):
        assert hosts.allow(good), good
    assert not hosts.allow("evil.example:8000")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://localhost:1", "x", ""])
def test_a_post_of_another_origin_is_refused(client: Client, origin: str) -> None:
    reply = client.post("/api/position", {"game": "chess"}, {"Origin": origin})
    assert reply.status == 403
    assert "origin" in reply.error


def test_a_post_of_the_pages_own_origin_is_taken(client: Client) -> None:
    own = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/position", {"game": "chess"}, own).status == 200
    assert client.post("/api/position", {"game": "chess"}, {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert same_origin("http://[::1]:80", "[::1]")
    assert not same_origin("http://[::1]:81", "[::1]")


def test_a_form_of_another_page_cannot_post(client: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        reply = client.ask("POST", "/api/position", b'{"game": "chess"}', {"Content-Type": kind} if kind else {})
        assert reply.status == 415, kind
    assert (
        client.post("/api/position", {"game": "chess"}, {"Content-Type": "application/json; charset=utf-8"}).status
        == 200
    )


@pytest.mark.parametrize(
    "path",
    [
        "/static/../secret.html",
        "/static/..%2fsecret.html",
        "/static/%2e%2e/secret.html",
        "/static/%2e%2e%2fsecret.html",
        "/static/..%5csecret.html",
        "/static//secret.html",
        "/static/deeper/more.js",
        "/static/deeper%2fmore.js",
        "/static/notes.txt",
        "/static/app.js%00.html",
        "/static/",
        "/static",
        "/static/.",
        "/static/..",
        "//etc/passwd",
        "/secret.html",
        "/%2fetc/passwd",
        "/static/%c0%ae%c0%ae/secret.html",
        "/../../etc/passwd",
    ],
)
def test_no_other_file_can_be_reached(client: Client, path: str) -> None:
    answer = raw(client, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.split()[1] in (b"404", b"400", b"307"), answer
    assert SECRET.encode() not in answer
    assert b"root:" not in answer


def test_the_pages_own_files_are_served_by_kind(client: Client) -> None:
    assert client.get("/").headers["content-type"].startswith("text/html")
    assert client.get("/static/app.js").headers["content-type"].startswith("text/javascript")
    assert client.ask("HEAD", "/").body == b""
    for method in ("POST", "PUT", "DELETE"):
        assert client.ask(method, "/", b"{}", JSON).status == 405
    assert client.get("/api/position").status == 405


def test_policies_and_games_are_reached_by_what_was_offered_only(client: Client, tmp_path: Path) -> None:
    offered = client.policy("chess", "random")
    for policy in (offered, f"{offered} "):
        assert client.post("/api/decide", {"game": "chess", "policy": policy}).status == 200
    for policy in ("p99", "random", "engine:/bin/sh", "runs/demo", str(tmp_path), "../..", f"{offered}0"):
        reply = client.post("/api/decide", {"game": "chess", "policy": policy})
        assert reply.status == 400
        assert "not offered" in reply.error
    for game in ("connect", "chess:x=1", "Chess", "connect:rows=26,cols=26,k=5,gravity=false", "/etc/passwd"):
        reply = client.post("/api/position", {"game": game})
        assert reply.status == 400
        assert "not offered" in reply.error
    other = client.policy("shogi", "random")
    assert "plays shogi" in client.post("/api/decide", {"game": "chess", "policy": other}).error


def test_bodies_are_limited_with_and_without_a_length(client: Client) -> None:
    large = b'{"game": "chess", "start": "' + b"x" * MAX_BODY_BYTES + b'"}'
    assert client.post("/api/position", large).status == 413
    # Declared and not sent: refused before a byte of it came.
    head = f"{POST}Host: localhost\r\n"
    answer = raw(client, f"{head}Content-Length: 99999999999\r\n\r\n".encode())
    assert answer.split()[1] == b"413"
    # Sent in chunks, without a length: refused at the limit, and not read to the end.
    with socket.create_connection((client.host, client.port), timeout=20) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        sent, chunk = 0, b"4000\r\n" + b"[" * 0x4000 + b"\r\n"
        try:
            while sent < 100 * MAX_BODY_BYTES:
                connection.sendall(chunk)
                sent += 0x4000
        except OSError:
            assert sent < 100 * MAX_BODY_BYTES
        connection.settimeout(10)
        try:
            assert b" 413 " in connection.recv(4096)
        except ConnectionResetError:
            assert sent < 100 * MAX_BODY_BYTES
    assert client.position("chess")["player"] == 0


def test_moves_and_texts_are_limited(client: Client) -> None:
    shuffle = ["g1f3", "g8f6", "f3g1", "f6g8"] * (MAX_MOVES // 4)
    assert len(client.position("chess", shuffle)["moves"]) == MAX_MOVES
    reply = client.post("/api/position", {"game": "chess", "moves": [*shuffle, "e2e4"]})
    assert reply.status == 400
    assert "2,000" in reply.error
    assert "characters" in client.post("/api/position", {"game": "chess", "start": "8/" * MAX_TEXT}).error
    assert "characters" in client.post("/api/position", {"game": "chess", "moves": ["e" * 40]}).error


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "object"),
        (b"null", "object"),
        (b'"text"', "object"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"game": "chess", "seed": NaN}', "NaN"),
        (b'{"game": "chess", "seed": -Infinity}', "Infinity"),
        (b'{"game": "chess", "seed": 1e999}', "too large"),
        (b'{"game": "chess", "seed": ' + b"9" * 5000 + b"}", "too long"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "deeply"),
        (b"[" * 30000, "deeply"),
        *[(b'{"game": ' + b"[" * depth + b"]" * depth + b"}", "deeply") for depth in (20, 800, 900, 950, 980, 1000)],
        (b'{"gmae": "chess"}', "'game'"),
        (b"{}", "missing"),
        (b'{"game": 3}', "text"),
        (b'{"game": "chess", "moves": "e2e4"}', "list"),
        (b'{"game": "chess", "moves": [1]}', "moves[0]"),
        (b'{"game": "chess", "moves": [["e2e4"]]}', "moves[0]"),
        (b'{"game": "chess", "moves": ["e2e5"]}', "e2e5"),
        (b'{"game": "chess", "moves": ["e2e4", "e2e4"]}', "move 2"),
        (b'{"game": "chess", "start": "8/8/8/8/8/8/8/8 w - - 0 1"}', "king"),
        (b'{"game": "chess", "start": "\\ud800"}', "printable"),
        (b'{"game": "chess", "start": "a\\u0000b"}', "printable"),
        (b'{"game": "chess", "flip": 1}', "flip"),
        (b'{"game": "shogi", "start": "startpos moves 7g7f 7g7f"}', "7g7f"),
    ],
)
def test_nonsense_is_told_in_words(client: Client, body: bytes, word: str) -> None:
    for path in ("/api/position", "/api/decide", "/api/export", "/api/import"):
        reply = client.post(path, body)
        assert reply.status == 400, reply.body
        if path == "/api/position" and b"seed" not in body:
            assert word in reply.error
        assert reply.error


def test_what_is_quoted_back_is_no_markup(client: Client) -> None:
    evil = "<script>alert(1)</script>"
    reply = client.post("/api/position", {"game": "chess", "start": evil})
    # JSON and nosniff: a browser never takes it for a page.
    assert reply.headers["content-type"] == "application/json"
    assert evil in reply.error
    for fields in ({"game": evil}, {"game": "chess", "policy": evil}, {"game": "chess", evil: 1}):
        assert client.post("/api/decide", fields).status == 400


def test_read_object_keeps_what_is_right() -> None:
    assert read_object(b'{"a": [1, 2.5, "x", null, true]}') == {"a": [1, 2.5, "x", None, True]}
    assert read_object(b'{"a": [[[[[[[]]]]]]]}') == {"a": [[[[[[[]]]]]]]}
    with pytest.raises(RequestError, match="deeply"):
        read_object(b'{"a": [[[[[[[[[]]]]]]]]]}')
    with pytest.raises(RequestError, match="NaN"):
        read_object(b'{"a": NaN}')


def _mutated(rng: random.Random, value: Any) -> Any:
    """A value with something in it changed for something else."""
    others: list[Any] = [
        None, True, False, 0, -1, 10**30, 1.5, -0.0, 1e308, "", "x" * 500, "\u0000", "😀", "../../etc/passwd", [], {},
        [[[[]]]], {"a": {"a": {}}}, "e2e4", ["e2e4"], "p1", "<b>", "%n%s", 2**63, "NaN", [None], {"num_steps": None},
    ]  # fmt: skip
    if rng.random() < 0.25:
        return rng.choice(others)
    if isinstance(value, dict) and value:
        changed = dict(value)
        key = rng.choice(list(changed))
        roll = rng.random()
        if roll < 0.15:
            del changed[key]
        elif roll < 0.25:
            changed[rng.choice(["", "x", key.upper(), "__proto__"])] = rng.choice(others)
        else:
            changed[key] = _mutated(rng, changed[key])
        return changed
    if isinstance(value, list) and value:
        return [_mutated(rng, each) if rng.random() < 0.5 else each for each in value]
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        return value[:at] + chr(rng.randrange(1, 0x2000)) + value[at + rng.randrange(2) :]
    return rng.choice(others)


@pytest.mark.parametrize("number", [400, pytest.param(2000, marks=pytest.mark.thorough)])
def test_random_bodies_find_no_failure(client: Client, number: int) -> None:
    rng = random.Random(11)
    chess, shogi = (client.policy(game, "random") for game in ("chess", "shogi"))
    seeds: list[tuple[str, dict[str, Any]]] = [
        ("position", {"game": "chess", "start": None, "moves": ["e2e4", "e7e5"], "flip": True, "typed": "Nf3"}),
        ("position", {"game": "shogi", "start": "4k4/9/9/9/9/9/9/9/4K4 w Gg 1", "moves": ["G*5e"]}),
        ("position", {"game": TIC_TAC_TOE, "start": "XO./.X./... O", "moves": ["a1"]}),
        ("decide", {"game": "chess", "policy": chess, "moves": ["e2e4"], "options": {}, "dream": True, "seed": 3}),
        ("decide", {"game": "shogi", "policy": shogi, "options": {"temperature": 1}, "seed": None, "flip": False}),
        ("export", {"game": "chess", "moves": ["e2e4"], "format": ".pgn", "players": ["a", "b"], "result": 1}),
        ("export", {"game": "shogi", "moves": ["7g7f"], "format": ".kif", "players": ["先", "後"], "result": None}),
    ]
    statuses: dict[int, int] = {}
    for _ in range(number):
        path, body = rng.choice(seeds)
        changed: Any = body
        for _ in range(rng.randrange(3)):
            changed = _mutated(rng, changed)
        data = json.dumps(changed).encode()
        if rng.random() < 0.15:  # broken as text
            cut = bytearray(data)
            for _ in range(rng.randrange(1, 6)):
                cut[rng.randrange(len(cut))] = rng.randrange(256)
            data = bytes(cut[: rng.randrange(1, len(cut) + 1)])
        reply = client.post(f"/api/{path}", data)
        statuses[reply.status] = statuses.get(reply.status, 0) + 1
        assert reply.status in (200, 400), (reply.status, data, reply.body)
        if reply.status == 400:
            assert 0 < len(reply.error) < 20_000
        elif path == "decide":
            assert "decision" in reply.lines[-1], data
    assert statuses[200] > number // 10
    assert statuses[400] > number * 2 // 5
