"""Many boards at once: who waits, who is stopped, what happens to slow and vanished clients and to our own bugs."""

from __future__ import annotations

import asyncio
import json
import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from genpolicy import load_game, load_policy
from genpolicy.control import Control
from genpolicy.errors import EngineError

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")

from genpolicy_play.web import app
from genpolicy_play.web import queue as decision_queue
from genpolicy_play.web.queue import Cancelled, DecisionQueue, Job
from genpolicy_play.web.requests import RequestError
from tests.play.engine_policies import save_diffusion
from tests.play.web_server import TIC_TAC_TOE, Client, serving, wait_until

LONG = {"nodes": 200_000}  # seconds of alpha-beta


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = save_diffusion(tmp_path_factory.mktemp("web") / "small", TIC_TAC_TOE)
    with serving([folder, "random?game=chess", "alphabeta?nodes=100&game=chess"], []) as made:
        yield made


# The queue by itself.


def test_jobs_of_one_key_run_one_after_another_and_in_order() -> None:
    made = DecisionQueue(4)
    begun, go_on = queue.SimpleQueue[int](), threading.Semaphore(0)

    def work(number: int) -> Callable[[Job], None]:
        def run(job: Job) -> None:
            begun.put(number)
            go_on.acquire(timeout=60)

        return run

    for number in range(10):
        made.submit("one", work(number))
    for number in range(10):
        assert begun.get(timeout=60) == number
        assert (made.num_running, made.num_busy) == (1, 10 - number)
        go_on.release()
    assert wait_until(lambda: made.num_busy == 0)
    made.close()


def test_jobs_of_different_keys_run_side_by_side() -> None:
    made = DecisionQueue(2)
    both = threading.Barrier(2, timeout=10)  # broken, if one waits for the other
    done: list[int] = []

    def run(job: Job) -> None:
        done.append(both.wait())

    made.submit("one", run)
    made.submit("other", run)
    assert wait_until(lambda: len(done) == 2)
    made.close()


def test_a_full_queue_says_when_to_come_again_and_a_job_can_be_taken_back() -> None:
    made = DecisionQueue(1, max_waiting=2)
    release = threading.Event()
    ran: list[str] = []
    made.submit("key", lambda job: ran.append("first") if release.wait(60) else None)
    assert wait_until(lambda: made.num_running == 1)
    second = made.submit("key", lambda job: ran.append("second"))
    made.submit("key", lambda job: ran.append("third"))
    with pytest.raises(RequestError) as refused:
        made.submit("key", lambda job: None)
    assert refused.value.status == 503
    assert 1 <= (refused.value.retry_after_s or 0) <= 60
    made.cancel(second)
    made.submit("key", lambda job: ran.append("fourth"))
    release.set()
    assert wait_until(lambda: made.num_busy == 0)
    assert ran == ["first", "third", "fourth"]
    made.close()


def test_a_bug_in_a_job_ends_no_thread(capsys: pytest.CaptureFixture[str]) -> None:
    made = DecisionQueue(1)
    ran: list[int] = []

    def broken(job: Job) -> None:
        raise ZeroDivisionError

    made.submit("key", broken)
    made.submit("key", lambda job: ran.append(1))
    assert wait_until(lambda: ran == [1])
    made.close()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_closing_stops_what_runs_and_takes_nothing_more() -> None:
    made = DecisionQueue(1)
    stopped = threading.Event()

    def run(job: Job) -> None:
        try:
            while True:
                job.check()
                time.sleep(0.001)
        except Cancelled:
            stopped.set()

    made.submit("key", run)
    assert wait_until(lambda: made.num_running == 1)
    made.close()
    assert stopped.wait(5)
    with pytest.raises(RequestError):
        made.submit("key", run)


def test_lines_that_nobody_fetches_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_PENDING_BYTES", 1000)
    loop = asyncio.new_event_loop()
    lines = app.Lines(loop)
    lines.put(b"x" * 600)
    with pytest.raises(Cancelled):
        lines.put(b"x" * 600)
    loop.close()
    with pytest.raises(Cancelled):  # the server has ended
        lines.put(None)


# Over HTTP.


def test_twenty_boards_play_to_the_end_without_an_error(client: Client) -> None:
    game = load_game(TIC_TAC_TOE)

    def play(number: int) -> int:
        rng = random.Random(number)
        moves: list[str] = []
        while True:
            said = client.position(TIC_TAC_TOE, moves)
            if said["outcome"] is not None:
                return len(moves)
            if len(moves) % 2 == number % 2:
                moves.append(rng.choice(said["legal"])["move"])
                continue
            reply = client.decide(TIC_TAC_TOE, "small", moves, dream=number % 3 == 0, options={"num_steps": 4})
            assert reply.status == 200, reply.body
            moves.append(reply.lines[-1]["decision"]["move"])

    with ThreadPoolExecutor(20) as pool:
        lengths = list(pool.map(play, range(20)))
    assert all(5 <= length <= 9 for length in lengths)
    assert len(game.moves) == 9
    assert wait_until(lambda: client.queue.num_busy == 0)


def test_side_by_side_requests_of_one_policy_do_not_disturb_each_other(client: Client) -> None:
    def ask(seed: int) -> Any:
        options = {"num_steps": 1 + seed % 8}
        return client.decide(TIC_TAC_TOE, "small", ["b2"], seed=seed, options=options).lines[-1]["decision"]["line"]

    alone = [ask(seed) for seed in range(16)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(16))) == alone


def test_the_loop_answers_while_a_search_runs_and_a_client_that_goes_ends_it(client: Client) -> None:
    body = json.dumps({"game": "chess", "policy": client.policy("chess", "alphabeta"), "options": LONG}).encode()
    head = (
        f"POST /api/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with socket.create_connection((client.host, client.port), timeout=10) as connection:
        connection.sendall(f"{head}\r\n\r\n".encode() + body)
        assert wait_until(lambda: client.queue.num_running == 1)
        began = time.monotonic()
        assert client.get("/api/offers").status == 200
        assert client.decide("chess", "random").status == 200
        assert client.position("chess", ["e2e4"])["player"] == 1
        assert time.monotonic() - began < 6  # milliseconds, but the machine may have other work
        assert wait_until(lambda: client.queue.num_busy == 1)
    # The connection is closed now; what is left of the search would take seconds.
    began = time.monotonic()
    assert wait_until(lambda: client.queue.num_busy == 0)
    assert time.monotonic() - began < 5
    (line,) = client.decide("chess", "alphabeta").lines  # and the policy is whole
    assert "decision" in line


def test_a_full_queue_is_503_with_a_time_to_come_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.queue, "max_waiting", 1)
    release, holding = threading.Event(), threading.Event()
    offer = client.catalog.policies[client.policy("chess", "random")]

    def hold(job: Job) -> None:
        holding.set()
        release.wait(60)

    client.queue.submit(id(offer.policy), hold)
    try:
        assert holding.wait(20)
        client.queue.submit(id(offer.policy), hold)
        reply = client.decide("chess", "random")
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "wait" in reply.error
        assert client.position("chess")["player"] == 0  # only decisions wait
    finally:
        release.set()
    assert wait_until(lambda: client.queue.num_busy == 0)
    assert client.decide("chess", "random").status == 200


def test_a_decision_that_takes_too_long_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_queue, "MAX_SECONDS", 0.2)
    began = time.monotonic()
    reply = client.decide("chess", "alphabeta", options=LONG)
    assert reply.status == 504
    assert "fewer" in reply.error
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    ("raised", "status", "word"),
    [(EngineError("it died"), 502, "it died"), (ZeroDivisionError("ours"), 500, "terminal")],
)
def test_failures_behind_the_server_are_told_without_a_trace(
    client: Client, monkeypatch: pytest.MonkeyPatch, raised: Exception, status: int, word: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise raised

    policy = client.catalog.policies[client.policy("chess", "random")].policy
    with monkeypatch.context() as patch:
        patch.setattr(policy, "dream", fail)
        reply = client.decide("chess", "random")
    assert reply.status == status
    assert word in reply.error
    assert "ours" not in reply.error
    assert client.decide("chess", "random").status == 200


def test_a_failure_in_the_middle_of_a_dream_is_its_last_line(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = client.catalog.policies[client.policy(TIC_TAC_TOE, "small")].policy
    dream = policy.dream

    def fail_later(state: Any, on_step: Any, **more: Any) -> Any:
        dream(state, on_step, **more)
        raise ValueError("after the steps")

    with monkeypatch.context() as patch:
        patch.setattr(policy, "dream", fail_later)
        reply = client.decide(TIC_TAC_TOE, "small", dream=True)
    assert reply.status == 200
    assert "step" in reply.lines[0]
    assert "after the steps" in reply.lines[-1]["error"]


def test_a_closed_page_file_is_404(client: Client, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("x")
    with serving(["random"], [TIC_TAC_TOE], files=app.static_files(tmp_path)) as other:
        assert other.get("/").status == 200
        (tmp_path / "index.html").unlink()
        assert other.get("/").status == 404


@pytest.mark.parametrize("spec", ["mcts:heuristic?simulations=500", "alphabeta?nodes=5000"])
def test_a_search_is_stopped_where_it_values_positions_and_is_whole_afterwards(spec: str) -> None:
    policy = load_policy(spec, game="connect")
    state = policy.game.parse()
    expected = policy.decide([state])[0]
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        policy.decide([state], control=Control(stop))
    policy.seed(0)
    again = policy.decide([state])[0]
    assert (again.move, again.value, again.line) == (expected.move, expected.value, expected.line)


def test_a_bug_is_answered_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(app, "position_of", broken)
    with serving(["random"], [TIC_TAC_TOE]) as client:
        reply = client.post("/api/position", {"game": TIC_TAC_TOE, "moves": []})
        assert (reply.status, reply.error) == (500, "the server failed; its terminal shows the error")
        assert "content-security-policy" in reply.headers
    assert "ZeroDivisionError" in capsys.readouterr().err
