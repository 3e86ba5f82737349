"""The static evaluation: symmetric, bounded, knows material; quiet means what it says."""

from __future__ import annotations

import random

import chess
import pytest

import genpolicy

GAME = genpolicy.load_game("chess")


def test_colours_are_alike_and_values_bounded() -> None:
    rng = random.Random(4)
    flip = GAME.symmetries[0].state
    for _ in range(20):
        state = GAME.parse()
        for _ in range(80):
            value = GAME.hints.evaluate(state)
            assert -1.0 <= value <= 1.0
            assert GAME.hints.evaluate(flip(state)) == value
            assert GAME.hints.is_quiet(flip(state)) == GAME.hints.is_quiet(state)
            if GAME.outcome(state) is not None:
                assert value == GAME.outcome(state)
                break
            state = GAME.play(state, int(rng.choice(GAME.legal(state))))


def test_more_material_is_worth_more_and_the_start_is_even() -> None:
    assert GAME.hints.evaluate(GAME.parse()) == 0.0
    fens = [f"4k3/pppp4/8/8/8/8/PPPP4/{rank} w - - 0 1" for rank in ("4K3", "N3K3", "R3K3", "Q3K3")]
    values = [GAME.hints.evaluate(GAME.parse(fen)) for fen in fens]
    assert values == sorted(values)
    assert values[0] < values[1] < values[3]
    behind = GAME.hints.evaluate(GAME.parse(fens[3].replace(" w ", " b ")))
    assert behind == -values[3]


@pytest.mark.parametrize(
    ("fen", "quiet"),
    [
        (chess.STARTING_FEN, True),
        ("4k3/8/8/8/8/8/4r3/4K3 w - - 0 1", False),  # in check
        ("4k3/8/8/3p4/8/8/8/3RK3 w - - 0 1", False),  # a pawn hangs
        ("4k3/8/2p5/3p4/8/8/8/3RK3 w - - 0 1", True),  # it is defended
        ("4k3/8/2p5/3n4/8/2N5/8/4K3 w - - 0 1", True),  # an even trade
        ("4k3/8/2p5/3r4/4P3/8/8/4K3 w - - 0 1", False),  # a pawn takes a defended rook
        ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", False),  # a pawn promotes
        ("n3k3/P7/1p6/8/8/8/8/4K3 w - - 0 1", True),  # it is blocked
        ("4k3/8/8/3p4/3K4/4p3/8/8 b - - 0 1", True),  # Black to move has nothing to take
        ("7k/8/3p4/4p3/4K3/8/8/8 w - - 0 1", True),  # the king may not take what is defended
    ],
)
def test_quiet(fen: str, quiet: bool) -> None:
    assert GAME.hints.is_quiet(GAME.parse(fen)) is quiet
