"""Names of openings: every line is legal, transpositions share a name, and a game keeps its last one."""

from __future__ import annotations

import pytest

pytest.importorskip("chess", reason="needs the extra [chess]")

import chess

from genpolicy import load_game
from genpolicy_chess.openings import _LINES, longest, opening, table

GAME = load_game("chess")


def ids(moves: str) -> list[int]:
    state, played = GAME.parse(), []
    for san in moves.split():
        played.append(GAME.move_from_text(state, san))
        state = GAME.play(state, played[-1])
    return played


def test_every_line_has_its_name_and_no_position_has_two() -> None:
    lines = [line.partition(": ")[::2] for line in _LINES.strip().splitlines()]
    assert 100 <= len(lines) <= 180
    positions: dict[str, str] = {}
    for moves, name in lines:
        board = chess.Board()
        for san in moves.split():
            assert board.san(board.push_san(san) and board.pop()) == san
            board.push_san(san)
        assert positions.setdefault(board.epd(), name) == name, moves
        assert opening(ids(moves)) == GAME.view.opening(ids(moves)) == name
    assert positions == table()
    assert longest() == max(len(moves.split()) for moves, _ in lines)


@pytest.mark.parametrize(
    ("moves", "name"),
    [
        ("e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Be7", "Ruy Lopez, Closed"),
        ("e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 d3 h6", "Ruy Lopez, Morphy Defence"),  # out of the table: the last name
        ("Nf3 Nc6 e4 e5", "King's Knight Opening, Normal Variation"),  # by another order
        ("c4 e6 d4 Nf6 Nc3 Bb4", "Nimzo-Indian Defence"),
        ("e3", None),
        ("", None),
    ],
)
def test_a_game_has_the_name_of_its_last_named_position(moves: str, name: str | None) -> None:
    assert opening(ids(moves)) == name


def test_a_game_without_a_table_names_none() -> None:
    assert load_game("connect").view.opening([0, 1]) is None
