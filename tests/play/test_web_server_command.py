"""``genpolicy web`` as a user starts and ends it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")

from genpolicy.facets import gives_evaluation
from genpolicy.registry import load_game
from genpolicy_play.web.app import MEDIA, static_files
from genpolicy_play.web.catalog import found_policies
from genpolicy_play.web.middleware import host_of, is_loopback
from genpolicy_play.web.serving import listen, url_of

pytestmark = pytest.mark.usefixtures("warm_start")

COMMAND = (sys.executable, "-m", "genpolicy", "web")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def ended(
    *arguments: str, command: tuple[str, ...] = COMMAND, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=120, env=ENVIRONMENT, cwd=cwd, check=False
    )


@contextmanager
def started(*arguments: str, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A server, its address, and the lines that it printed before it."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        cwd=cwd,
    )
    try:
        assert process.stdout is not None
        printed: list[str] = []
        for line in process.stdout:
            if found := re.search(r"http://\S+", line):
                yield process, found.group(), printed
                break
            printed.append(line.rstrip("\n"))
        else:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_any_free_port_is_printed_and_a_signal_ends_a_running_search_quietly(number: signal.Signals) -> None:
    with started("--policy", "alphabeta", "--game", "chess", "--port", "0") as (process, url, printed):
        assert printed == ["  Chess: alphabeta"]
        assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*/", url)
        with urllib.request.urlopen(f"{url}api/offers", timeout=20) as answer:
            offer = json.load(answer)["policies"][0]
        assert offer["label"] == "alphabeta"
        host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        body = json.dumps({"game": "chess", "policy": offer["id"], "options": {"nodes": 200000}}).encode()
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            head = f"POST /api/decide HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.3)
            began = time.monotonic()
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
        assert time.monotonic() - began < 5  # tenths of a second where nothing else runs
        assert (process.returncode, out, err) == (0, "", "")


def test_without_a_policy_every_installed_game_has_players_and_says_how_to_add_one(tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine" / "policy").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "policy" / "config.yaml").write_text("policy: diffusion\n")
    with started("--port", "0", cwd=tmp_path) as (process, url, printed):
        assert "--policy runs/mine/policy" in printed[0]  # named, and not loaded unasked
        with urllib.request.urlopen(f"{url}api/offers", timeout=20) as answer:
            said = json.load(answer)
        assert {game["name"] for game in said["games"]} >= {"chess", "shogi", "connect"}
        for game in said["games"]:
            kinds = {policy["kind"] for policy in said["policies"] if policy["game"] == game["spec"]}
            judged = {"greedy", "alphabeta", "mcts"} if gives_evaluation(load_game(game["spec"])) else set()
            assert kinds - {"diffusion"} == {"random", *judged}  # and what is shipped, if anything
        assert said["notes"] == printed[:1]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 0
        assert err in ("", "genpolicy: networks run on cpu (--device)\n")  # which depends on what is shipped


def test_a_taken_port_is_one_message() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        process = ended("--port", port, "--policy", "random", "--game", "chess")
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.startswith(f"genpolicy: error: port {port} is taken")
    assert "--port 0" in process.stderr
    assert process.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "random"), ("random", "--game")),
        (("--policy", "no/such/folder"), ("no/such/folder",)),
        (("--policy", "randon", "--game", "chess"), ("randon", "random")),
        (("--policy", "random", "--game", "ches"), ("ches",)),
        (("--host", "no.such.host.invalid"), ("no.such.host.invalid",)),
        (("--port", "70000"), ("--port", "65535")),
    ],
)
def test_what_cannot_be_served_is_one_message(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    # A port that is free now, unless the test is about ports.
    process = ended(*(() if "--port" in arguments else ("--port", "0")), *arguments)
    assert process.returncode == 2
    assert process.stderr.startswith("genpolicy: error: ")
    assert process.stderr.count("\n") == 1
    for word in words:
        assert word in process.stderr


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['starlette'] = None; from genpolicy.cli import main; sys.exit(main())"
    process = ended("web", "--policy", "random", "--game", "chess", command=(sys.executable, "-c", code))
    assert process.returncode == 2
    assert "pip install 'genpolicy[web]'" in process.stderr
    assert process.stderr.count("\n") == 1


def test_an_open_address_warns_and_a_loopback_one_does_not() -> None:
    arguments = ("--policy", "random", "--game", "chess", "--port", "0")
    with started(*arguments, "--host", "0.0.0.0", "--allow-host", "board.example") as (process, url, _):
        assert url.startswith("http://localhost:")
        for host, status in (("board.example", 200), ("10.1.2.3:80", 200), ("evil.example", 403)):
            connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=20)
            connection.request("GET", "/api/offers", headers={"Host": host})
            assert connection.getresponse().status == status
            connection.close()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert "warning" in err
    assert "0.0.0.0" in err


def test_addresses() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("192.168.0.1")
    assert host_of("[::1]:80") == "::1"
    assert host_of("a b") is None
    with listen("127.0.0.1", 0) as bound:
        assert url_of(bound) == f"http://127.0.0.1:{bound.getsockname()[1]}/"


def test_the_page_is_whole_and_asks_nobody_else() -> None:
    files = static_files()
    assert "index.html" in files
    for name, path in files.items():
        assert path.suffix in MEDIA
        text = path.read_text() if path.suffix in (".html", ".js", ".css", ".svg") else ""
        # Every file that a file names is there, and none is on another computer.
        for link in re.findall(r"""(?:src|href)=["']([^"'#]+)["']|from ["']([^"']+)["']|url\(([^)]+)\)""", text):
            target = next(part for part in link if part).strip("\"'")
            if target.startswith("data:") or "${" in target:
                continue
            assert not re.match(r"\w+:|//", target), (name, target)
            assert target == "/" or Path(target).name in files, (name, target)
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", text), name


def test_found_policies_are_the_newest_first(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "deep/new")):
        folder = tmp_path / name / "policy"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("")
        os.utime(folder / "config.yaml", (number, number))
    assert list(found_policies(tmp_path)) == [tmp_path / "deep/new/policy", tmp_path / "old/policy"]
    assert list(found_policies(tmp_path / "nowhere")) == []


@pytest.mark.slow
def test_the_wheel_holds_the_page(tmp_path: Path) -> None:
    root = Path(str(resources.files("genpolicy"))).parent
    if not (root / "pyproject.toml").exists() or shutil.which("unzip") is None:
        pytest.skip("needs the sources and unzip")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(root)]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    names = subprocess.run(["unzip", "-Z1", str(wheel)], capture_output=True, text=True, check=True).stdout.split()
    for name in static_files():
        assert f"plugins/genpolicy_play/web/static/{name}" in names
