"""What games say to people: moves as they write them, why a game is over, which piece is to be saved."""

from __future__ import annotations

import random

import chess
import pytest

from genpolicy import load_game
from genpolicy.game import Files, View

CHECKS = ["5h6h", "5a4a", "6h4h", "4a5a", "4h5h", *["5a4a", "5h4h", "4a5a", "4h5h"] * 3]
"""A rook that gives check with every move."""


@pytest.mark.parametrize("spec", ["chess", "shogi", "connect:rows=3,cols=3,k=3,gravity=false", "connect"])
def test_every_legal_move_is_read_back_as_it_is_written(spec: str) -> None:
    game, rng = load_game(spec), random.Random(4)
    for _ in range(2):
        state = game.parse()
        for _ in range(80):
            legal = [int(move) for move in game.legal(state)]
            if not legal:
                break
            texts = [game.view.move_text(state, move) for move in legal]
            assert len(set(texts)) == len(legal)
            for move, text in zip(legal, texts, strict=True):
                assert game.move_from_text(state, text) == move, (game.format(state), text)
            state = game.play(state, rng.choice(legal))


def test_moves_are_written_as_books_print_them() -> None:
    shogi = load_game("shogi")
    state = shogi.parse("startpos moves 7g7f 3c3d 8h2b+")
    assert shogi.view.move_text(state, shogi.moves.index("3a2b")) == "△同　銀(31)"
    state = shogi.parse("4k4/9/9/9/9/9/9/9/4K4 b G 1")
    assert shogi.view.move_text(state, shogi.moves.index("G*5b")) == "▲５二金打"
    game = load_game("chess")
    state = game.parse("r3k3/1P6/8/8/8/8/8/R3K2R w KQq - 0 1")
    assert game.view.move_text(state, game.moves.index("b7a8q")) == "bxa8=Q+"
    assert game.view.move_text(state, game.moves.index("e1g1")) == "O-O"


def test_check_is_the_square_of_the_king_that_python_chess_names() -> None:
    game, rng = load_game("chess"), random.Random(8)
    seen = 0
    for _ in range(12):
        board, state = chess.Board(), game.parse()
        while not board.is_game_over() and board.ply() < 120:
            move = rng.choice(list(board.legal_moves))
            board.push(move)
            state = game.play(state, game.moves.index(move.uci()))
            place = game.view.check(state)
            king = board.king(board.turn)
            assert king is not None
            assert place == ((7 - king // 8) * 8 + king % 8 if board.is_check() else None)
            seen += place is not None
    assert seen > 10


def test_check_in_shogi_is_a_king_of_the_side_to_move() -> None:
    game = load_game("shogi")
    assert game.view.check(game.parse()) is None
    # Squares count from 9a along the ranks: 5a is 4, 5i is 76.
    assert game.view.check(game.parse("4k4/4G4/9/9/9/9/9/9/4K4 w - 1")) == 4
    assert game.view.check(game.parse("4k4/9/9/9/9/9/9/4g4/4K4 b - 1")) == 76


@pytest.mark.parametrize(
    ("spec", "start", "moves", "reason"),
    [
        ("shogi", "4k4/9/9/9/9/9/9/4R4/3K5 b - 1", CHECKS, "perpetual check"),
        ("shogi:declaration=none,max_plies=2", None, ["7g7f", "3c3d"], "2 plies without mate"),
        ("connect:rows=1,cols=3,k=2,gravity=true", None, ["a", "b", "c"], "the board is full"),
    ],
)
def test_endings(spec: str, start: str | None, moves: list[str], reason: str) -> None:
    game = load_game(spec)
    state = game.parse(start)
    for move in moves:
        if game.outcome(state) is not None:
            break
        state = game.play(state, game.moves.index(move))
    assert game.outcome(state) is not None
    assert game.view.ending(state) == reason


def test_a_game_that_says_nothing_has_words_all_the_same() -> None:
    game = load_game("connect:rows=3,cols=3,k=3,gravity=false")
    state = game.parse()
    view = View(game)
    assert view.move_text(state, 0) == game.moves[0]
    assert view.check(state) is None
    assert view.title == "Connect (rows=3, cols=3, k=3, gravity=false)"
    for move in ("a1", "b1", "a2", "b2", "a3"):
        state = game.play(state, game.moves.index(move))
    assert view.ending(state) == "by the rules"
    assert (Files().suffixes, Files().log_suffix) == ((), "")
