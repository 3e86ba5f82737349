"""What a search in the imagination judged, as the terminal, `show` and the page say it."""

from __future__ import annotations

from typing import Any

import pytest

import genpolicy
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Variation
from genpolicy_play.terminal import explain
from genpolicy_play.web.deciding import candidate_line


@pytest.fixture(scope="module")
def chess() -> Game[Any]:
    return genpolicy.load_game("chess")


def variation(game: Game[Any], moves: str, value: float, states: tuple[str | None, ...]) -> Variation:
    return Variation(tuple(game.moves.index(move) for move in moves.split()), value, states=states)


def test_the_page_gets_the_imagined_board_of_each_candidate(chess: Game[Any]) -> None:
    start = chess.parse()
    after = chess.format(chess.play(start, chess.moves.index("e2e4")))
    shown = candidate_line(chess, start, variation(chess, "e2e4 e7e5", 0.1, (after,)), flip=False)
    assert shown["caption"] == "e4: 55%, then e5"
    assert shown["svg"].startswith("<svg")
    assert shown["text"] == after
    unreadable = candidate_line(chess, start, variation(chess, "e2e4 e2e4", 0.1, (None,)), flip=True)
    assert unreadable["svg"] is None
    assert [move["legal"] for move in unreadable["line"]] == [True, False]


def test_the_terminal_tells_draws_and_plies_left(chess: Game[Any]) -> None:
    move = chess.moves.index("e2e4")
    decision = Decision(move, line=(move,), value=0.3, wdl=(0.5, 0.3, 0.2), stats={"plies_left": 33.6})
    assert explain(chess, chess.parse(), decision) == [
        "value for the player to move: +0.30 (from -1 to 1)",
        "for the player to move: 50% win, 30% draw, 20% loss",
        "expects the end in 34 plies",
    ]


def test_the_terminal_names_each_candidate(chess: Game[Any]) -> None:
    start = chess.parse()
    lines = (variation(chess, "e2e4 e7e5", 0.1, ()), variation(chess, "d2d4 d2d4", -0.2, ()))
    decision = Decision(chess.moves.index("e2e4"), line=lines[0].line, value=0.1, variations=lines)
    assert explain(chess, start, decision)[-2:] == [
        "judges: 55% after e2e4 e7e5",
        "judges: 40% after d2d4 d2d4 (illegal)",
    ]
