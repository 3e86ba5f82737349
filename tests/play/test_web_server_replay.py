"""What it costs to replay a client's game, and that nobody else waits for a long one."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from genpolicy import load_game

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")

from genpolicy_play.web import positions
from genpolicy_play.web.positions import Replay, ReplayCache
from genpolicy_play.web.requests import RequestError
from tests.play.web_server import Client, serving

START = "r3k3/8/8/2n5/8/3N4/8/4K2R w - - 0 1"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(["random?game=chess"], []) as made:
        yield made


def long_game(seed: int, num_moves: int) -> list[str]:
    """Knights and rooks to and fro at random: a game as long as one likes, as far as moves are left."""
    game, generator = load_game("chess"), random.Random(seed)
    state, moves = game.parse(START), list[str]()
    while len(moves) < num_moves:
        quiet = [m for m in game.legal(state) if game.legal(game.play(state, int(m))).size]
        move = int(generator.choice(quiet))
        state = game.play(state, move)
        moves.append(game.moves[move])
    return moves


@pytest.fixture(scope="module")
def game_of_600() -> list[str]:
    return long_game(1, 600)


def test_a_long_game_is_replayed_once(monkeypatch: pytest.MonkeyPatch, game_of_600: list[str]) -> None:
    game = load_game("chess")
    replays, moves = ReplayCache(game), game_of_600
    # Each way to the same position, all at once or move by move, tells the same.
    slow = ReplayCache(game)
    for end in range(0, 131):
        one = slow.replay(START, moves[:end])
        other = ReplayCache(game).replay(START, moves[:end])
        assert (one.moves, one.labels, one.last, game.format(one.state)) == (
            other.moves,
            other.labels,
            other.last,
            game.format(other.state),
        )
    assert replays.num_new(START, moves) == 600
    replays.replay(START, moves)
    played: list[int] = []
    original = game.view.move_text

    def text(self: object, state: object, move: int) -> str:
        played.append(move)
        return original(state, move)

    monkeypatch.setattr(type(game.view), "move_text", text)
    for end in (600, 590, 450, 321, 64, 63, 1, 0):
        played.clear()
        expected = replays.num_new(START, moves[:end])
        found = replays.replay(START, moves[:end])
        assert len(found.moves) == end
        assert len(played) == expected < positions.KEPT_EVERY
    changed = [*moves[:500], "a1a1"]
    with pytest.raises(RequestError, match="move 501"):
        replays.replay(START, changed)


def test_nobody_waits_for_all_long_games(
    client: Client, game_of_600: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"game": "chess", "start": START, "moves": game_of_600}
    begun, go_on = queue.SimpleQueue[int](), threading.Event()
    original = ReplayCache.replay

    def replay(self: ReplayCache, start: str | None, moves: Sequence[str]) -> Replay:
        if len(moves) == len(game_of_600):
            begun.put(len(moves))
            assert go_on.wait(60)
        return original(self, start, moves)

    def ask(number: int) -> int:
        # A different number of the first move makes each a game of its own.
        return client.post("/api/position", {**body, "start": START.replace("0 1", f"0 {number}")}).status

    monkeypatch.setattr(ReplayCache, "replay", replay)
    with ThreadPoolExecutor(8) as pool:
        long = [pool.submit(ask, number) for number in range(2, 10)]
        try:
            begun.get(timeout=60)
            # They take turns, so threads are left for others while one of them is replayed.
            for _ in range(20):
                assert client.position("chess", ["e2e4"])["player"] == 1
            assert begun.empty(), "two long games are replayed at once"
        finally:
            go_on.set()
        assert [each.result() for each in long] == [200] * 8
