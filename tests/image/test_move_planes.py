"""Cells of moves and planes of positions: AlphaZero's 73x8x8 for chess, dlshogi's 27x9x9 for shogi."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import genpolicy

CHESS, SHOGI = genpolicy.load_game("chess"), genpolicy.load_game("shogi")


def cell(game: Any, state: Any, move: str) -> tuple[int, int, int]:
    """(plane, row, column) of a move in a position."""
    grid = game.move_planes()
    found = int(grid.cells[game.moves.seen_by(np.array([game.moves.index(move)]), game.player(state))[0]])
    plane, row, column = np.unravel_index(found, grid.shape)
    return int(plane), int(row), int(column)


def positions(game: Any, seed: int, count: int = 400) -> list[Any]:
    rng, states, state = random.Random(seed), [], game.parse()
    while len(states) < count:
        states.append(state)
        legal = game.legal(state)
        state = game.parse() if len(legal) == 0 or len(states) % 120 == 0 else game.play(state, int(rng.choice(legal)))
    return [state for state in states if len(game.legal(state))]


# 1858 is what Leela Chess Zero counts for chess, 1496 dlshogi's own table of reachable labels.
@pytest.mark.parametrize(
    ("game", "shape", "reachable"), [(CHESS, (73, 8, 8), 1858), (SHOGI, (27, 9, 9), 1496)], ids=["chess", "shogi"]
)
def test_the_grid_has_as_many_cells_as_are_known(game: Any, shape: tuple[int, int, int], reachable: int) -> None:
    grid = game.move_planes()
    assert grid.shape == shape
    assert grid.cells.shape == (len(game.moves),)
    assert len(np.unique(grid.cells[grid.cells >= 0])) == reachable
    assert grid.cells.max() < np.prod(shape)


@pytest.mark.parametrize("game", [CHESS, SHOGI], ids=["chess", "shogi"])
def test_legal_moves_of_a_position_never_share_a_cell(game: Any) -> None:
    grid = game.move_planes()
    for state in positions(game, seed=1):
        cells = grid.cells[game.moves.seen_by(game.legal(state), game.player(state))]
        assert cells.min() >= 0
        assert len(set(cells.tolist())) == len(cells), game.format(state)


def test_chess_cells_are_those_of_alphazero() -> None:
    """Source square, then 8 directions clockwise x 7 distances, 8 jumps clockwise, underpromotions N, B, R."""
    start = CHESS.parse()
    assert cell(CHESS, start, "e2e4") == (1, 6, 4)  # ahead, two squares, from row 6 (rank 2), the e-file
    assert cell(CHESS, start, "g1f3") == (56 + 7, 7, 6)  # two ahead, one left: the last jump clockwise
    after = CHESS.play(start, CHESS.moves.index("e2e4"))
    assert cell(CHESS, after, "e7e5") == (1, 6, 4)  # as its mover sees it
    # Ranks are flipped and files are not, so Black's king's knight goes to the left too.
    assert cell(CHESS, after, "g8f6") == (63, 7, 6)
    promotion = CHESS.parse("3n3k/4P3/8/8/8/8/8/K7 w - - 0 1")
    assert cell(CHESS, promotion, "e7e8q") == (0, 1, 4)
    assert cell(CHESS, promotion, "e7d8n") == (64, 1, 4)
    assert cell(CHESS, promotion, "e7e8b") == (68, 1, 4)
    assert cell(CHESS, promotion, "e7e8r") == (71, 1, 4)
    assert cell(CHESS, promotion, "a1b2") == (7, 7, 0)  # ahead and right, one square


def test_chess_planes_show_pieces_rights_and_counters() -> None:
    start = CHESS.parse()
    black = CHESS.parse("rnbqkbnr/pppp1ppp/8/8/3Pp3/8/PPP1PPPP/RNBQKBNR b Kq d3 7 3")
    image = CHESS.planes([start, black])
    assert image.shape == (2, 18, 8, 8)
    np.testing.assert_array_equal(image[0, :12].sum((1, 2)), [8, 2, 2, 2, 1, 1] * 2)
    np.testing.assert_array_equal(image[0, 0, 6], np.ones(8))  # the mover's pawns on its second row from below
    np.testing.assert_array_equal(image[1, 12:16, 0, 0], [0, 1, 1, 0])  # Black's long, White's short
    assert np.argwhere(image[1, 16]).tolist() == [[2, 3]]  # d3, a rank 6 from Black's side
    np.testing.assert_allclose(image[1, 17], 0.07)
    mirrored = CHESS.symmetries[0].state(black)
    np.testing.assert_array_equal(CHESS.planes([mirrored])[0], image[1])


def test_a_shogi_cell_is_the_target_square_in_the_planes_of_the_position() -> None:
    """An own piece never stands on a move's target; drops go to empty squares."""
    for state in positions(SHOGI, seed=2, count=150):
        image = SHOGI.planes([state])[0]
        own, theirs = image[:14].sum(0), image[31:45].sum(0)
        for move in SHOGI.legal(state):
            plane, row, column = cell(SHOGI, state, SHOGI.moves[int(move)])
            assert own[row, column] == 0
            assert plane < 20 or theirs[row, column] == 0
    start = SHOGI.parse()
    assert cell(SHOGI, start, "7g7f") == (0, 5, 2)  # up, to rank f, the third file from the left
    assert cell(SHOGI, SHOGI.play(start, SHOGI.moves.index("7g7f")), "3c3d") == (0, 5, 2)


def test_a_game_without_planes_says_so() -> None:
    with pytest.raises(ValueError, match="no planes of moves"):
        genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false").move_planes()
