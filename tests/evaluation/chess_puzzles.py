"""Puzzles that several test modules ask about."""

from __future__ import annotations

from typing import Any

from genpolicy.game import Game, Puzzle

HEADER = "PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags"
QUEEN_UP = "6k1/8/6K1/8/8/8/5Q2/8 b - - 0 1"
QUEEN_E7 = "6k1/4Q3/6K1/8/8/8/8/8 b - - 0 1"
SCHOLAR = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/8/PPPP1PPP/RNBQK1NR w KQkq - 2 3"
SCHOLAR_MOVES = "d1h5 g7g6 h5f3 g8f6"


def puzzle(game: Game[Any], fen: str, moves: str, **facts: Any) -> Puzzle:
    ids = tuple(game.moves.index(move) for move in moves.split())
    return Puzzle(name="p", where="file:1", start=fen, setup=ids[:1], solution=ids[1:], **facts)
