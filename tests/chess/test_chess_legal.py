"""Our legal moves against python-chess's."""

from __future__ import annotations

import random
from collections.abc import Iterator

import chess
import pytest

from genpolicy_chess.legal import legal_ids
from genpolicy_chess.moves import move_id
from genpolicy_chess.state import has_legal_move

# From the Chess Programming Wiki's page of perft results: castling, pins, checks, en passant, promotions; and captures
# en passant that would uncover a check along the rank and along a diagonal.
STARTS = (
    chess.STARTING_FEN,
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1",
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
    "8/8/8/K2pP2r/8/8/8/4k3 w - d6 0 2",
    "8/8/8/2KpP3/8/8/8/4k1b1 w - d6 0 2",
    "4k3/8/8/8/b2Pp3/8/8/4K2Q b - d3 0 1",
)


def games(seed: int, number: int) -> Iterator[chess.Board]:
    """Positions of random games."""
    rng = random.Random(seed)
    for game in range(number):
        board = chess.Board(STARTS[game % len(STARTS)])
        for _ in range(100):
            yield board.copy(stack=False)
            moves = list(board.legal_moves)
            if not moves:
                break
            board.push(rng.choice(moves))


def endings(seed: int, number: int) -> Iterator[chess.Board]:
    """Two kings, one of them near a corner, and up to five other pieces: many checks, mates and stalemates."""
    rng = random.Random(seed)
    while number:
        board = chess.Board(None)
        kinds = [chess.KING, chess.KING, *rng.choices(range(chess.PAWN, chess.KING), k=rng.randint(1, 5))]
        for place, kind in enumerate(kinds):
            square = rng.choice(chess.SQUARES) if place else rng.choice((chess.A1, chess.H8, chess.B1))
            board.set_piece_at(square, chess.Piece(kind, bool(place) if place < 2 else rng.random() < 0.7))
        board.turn = chess.BLACK
        for turned in (board, board.mirror()):
            if turned.is_valid():
                number -= 1
                yield turned


@pytest.mark.parametrize(("num_games", "num_endings"), [(16, 1200), pytest.param(40, 3000, marks=pytest.mark.thorough)])
def test_legal_moves_and_whether_there_is_one_are_those_of_python_chess(num_games: int, num_endings: int) -> None:
    ended = checks = 0
    for board in (*games(0, num_games), *endings(1, num_endings)):
        expected = sorted(map(move_id, board.legal_moves))
        assert legal_ids(board) == expected, board.fen()
        assert has_legal_move(board) == bool(expected), board.fen()
        ended += not expected
        checks += board.is_check()
    assert ended > 20
    assert checks > 120
