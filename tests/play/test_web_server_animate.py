"""``/api/animate``: the steps of a dream as a GIF, by the code of ``genpolicy show`` behind the guards of decisions."""

from __future__ import annotations

import base64
import io
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")
pytest.importorskip("resvg_py", reason="needs the extra [show]")
pytest.importorskip("PIL", reason="needs the extra [show]")

from genpolicy_play.show.raster import BETWEEN, FADE_MS, gif
from genpolicy_play.web.deciding import GIF_FRAME_MS, GIF_WIDTH
from genpolicy_play.web.queue import Job, TookTooLong
from tests.play.web_policies import STEPS, TTT, save
from tests.play.web_server import Client, Reply, serving, wait_until

NUM_STEPS = STEPS[TTT]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = save(tmp_path_factory.mktemp("gif") / "a dreamer", TTT, NUM_STEPS)
    with serving([folder, "random"], [TTT]) as started:
        yield started


def animate(client: Client, label: str = "a dreamer", **fields: Any) -> Reply:
    body = {"game": TTT, "moves": ["b2"], "policy": client.policy(TTT, label), "seed": 3, **fields}
    return client.post("/api/animate", body)


def image(reply: Reply) -> Any:
    assert reply.status == 200, reply.body
    (line,) = reply.lines
    from PIL import Image

    return Image.open(io.BytesIO(base64.b64decode(line["gif"])))


def test_each_step_is_a_picture_and_the_last_one_is_held(client: Client) -> None:
    read = image(reply := animate(client))
    assert read.size[0] == GIF_WIDTH
    assert read.n_frames == NUM_STEPS + BETWEEN * (NUM_STEPS - 1)
    durations = []
    for frame in range(read.n_frames):
        read.seek(frame)
        durations.append(read.info["duration"])
    assert durations[0] == GIF_FRAME_MS
    assert durations[1] == FADE_MS
    assert durations[-1] == 6 * GIF_FRAME_MS
    decided = client.decide(TTT, "a dreamer", ["b2"], seed=3).lines[-1]["decision"]["move"]
    assert reply.lines[0]["name"] == f"a-dreamer-{decided}.gif"


def test_the_same_seed_gives_the_same_bytes_and_the_theme_another_picture(client: Client) -> None:
    few = {"options": {"num_steps": 2}}
    first, again, dark = animate(client, **few).body, animate(client, **few).body, animate(client, dark=True, **few)
    assert first == again
    assert dark.body != first
    assert image(dark).convert("RGB").getpixel((2, 2)) < (80, 80, 80)


def test_a_long_dream_has_a_limited_number_of_pictures(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genpolicy_play.web.deciding.GIF_PICTURES", 3)
    assert image(animate(client)).n_frames == 3 + BETWEEN * 2


def test_a_policy_that_does_not_dream_is_refused_in_words(client: Client) -> None:
    reply = animate(client, "random")
    assert reply.status == 400
    assert reply.error == "random does not imagine by steps, so there is nothing to animate"


def test_drawing_has_the_time_of_a_decision(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing: list[bool] = []

    def late(told: list[Any], most: int) -> list[Any]:
        drawing.append(True)
        return told[:most]

    def check(self: Job) -> None:
        if drawing:
            raise TookTooLong

    monkeypatch.setattr("genpolicy_play.web.deciding.evenly", late)
    monkeypatch.setattr(Job, "check", check)
    reply = animate(client)
    assert reply.status == 504
    assert reply.error == "a dreamer took more than 60 seconds and was stopped; choose fewer steps"


def test_a_picture_that_is_drawn_keeps_nobody_waiting_for_the_policy(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing, go = threading.Event(), threading.Event()

    def slow(*args: Any) -> bytes:
        drawing.set()
        assert go.wait(60)
        return gif(*args)

    monkeypatch.setattr("genpolicy_play.web.deciding.gif", slow)
    with ThreadPoolExecutor(2) as pool:
        animated = pool.submit(animate, client)
        try:
            assert drawing.wait(60)
            asked = pool.submit(client.decide, TTT, "a dreamer")
            assert asked.result(30).status == 200
        finally:
            go.set()
        assert image(animated.result(60)).n_frames > 1
    assert wait_until(lambda: client.queue.num_busy == 0)


def test_a_search_among_candidates_names_what_has_steps() -> None:
    with serving(["tic-tac-toe"], [TTT]) as searching:
        reply = animate(searching, "tic-tac-toe")
        assert reply.error is not None
        assert reply.error.endswith("so there is nothing to animate; its steps are there with candidates=0")
        assert animate(searching, "tic-tac-toe", options={"candidates": 0}).status == 200


def test_without_the_libraries_the_extra_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    reply = animate(client)
    assert reply.status == 400
    assert "pip install 'genpolicy[show]'" in reply.error


def test_it_is_behind_the_guards_of_decisions(client: Client) -> None:
    assert animate(client, dream=True).status == 400  # a field of decisions alone
    assert animate(client, moves=["b2", "b2"]).status == 400
    assert animate(client, dark=1).status == 400
    body = b'{"game": "x"}'
    assert client.post("/api/animate", body, {"Origin": "http://elsewhere"}).status == 403
    assert client.post("/api/animate", body, {"Content-Type": "text/plain"}).status == 415
    assert client.get("/api/animate").status == 405
