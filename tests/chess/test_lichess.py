"""What Lichess publishes with evaluations: scores from White's side, castling onto the rook, several variations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import genpolicy
from genpolicy.errors import SourceError
from genpolicy.game import Position

GAME = genpolicy.load_game("chess")
MATE_IN_ONE = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 12 40"
BLACK_TO_CASTLE = "r1bqk2r/ppp3pp/2nb1n2/3p4/3P4/2N2N2/PPP2PPP/R1BQKB1R b KQkq -"
AFTER_E4_FEN = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq -"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A table or JSON lines, by the name."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return path


def read_all(path: Path) -> tuple[list[Position], list[str]]:
    bad: list[SourceError] = []
    return list(GAME.files.open_positions(path, bad.append)), [str(error) for error in bad]


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_scores_are_turned_to_the_player_to_move(tmp_path: Path, name: str) -> None:
    search = {"depth": 30, "knodes": 900}
    rows = [
        {"fen": BLACK_TO_CASTLE, "line": "e8h8 f1d3", **search, "cp": -300, "mate": None},
        {"fen": BLACK_TO_CASTLE, "line": "a7a6", **search, "cp": 20, "mate": None},
        {"fen": AFTER_E4_FEN, "line": "e7e5", **search, "cp": 35, "mate": None},
        {"fen": AFTER_E4_FEN, "line": "c7c5", **search, "depth": 40, "cp": None, "mate": -2},
        {"fen": MATE_IN_ONE, "line": "a1a8", **search, "cp": None, "mate": 1},
    ]
    positions, _ = read_all(write(tmp_path / name, rows))
    assert [p.line for p in positions] == [("e8g8", "f1d3"), ("e7e5",), ("c7c5",), ("a1a8",)]
    assert [p.scores for p in positions] == [("cp:300",), ("cp:-35",), ("mate:2",), ("mate:1",)]


def test_evaluations_of_games_say_what_was_played(tmp_path: Path) -> None:
    rows = [
        {"fen": BLACK_TO_CASTLE, "cp": None, "mate": 3, "move": "e8h8"},
        {"fen": chess.STARTING_FEN, "cp": 20, "mate": None, "move": None},
    ]
    positions, _ = read_all(write(tmp_path / "a.parquet", rows))
    assert [(p.played, p.scores, p.line) for p in positions] == [("e8g8", ("mate:-3",), ()), (None, ("cp:20",), ())]


def test_the_deepest_search_of_a_line_is_its_label(tmp_path: Path) -> None:
    shallow = {"pvs": [{"cp": 500, "line": "a7a6"}], "knodes": 9, "depth": 5}
    deep = {"pvs": [{"cp": -300, "line": "e8h8 f1d3"}, {"cp": 20, "line": "a7a6"}], "knodes": 9, "depth": 30}
    lines = [
        {"fen": BLACK_TO_CASTLE, "evals": [shallow, deep]},
        {"fen": AFTER_E4_FEN, "evals": [{"depth": 3}]},
        {"fen": AFTER_E4_FEN, "evals": [{"pvs": [{"mate": 4, "line": "g7g5"}], "knodes": 1, "depth": 1}]},
    ]
    positions, bad = read_all(write(tmp_path / "a.jsonl", lines))
    assert [(p.line, p.scores) for p in positions] == [
        (("e8g8", "f1d3"), ("cp:300",)),
        (("g7g5",), ("mate:-4",)),
    ]
    assert len(bad) == 1
    assert "evals must be searches with depth, knodes and pvs" in bad[0]
