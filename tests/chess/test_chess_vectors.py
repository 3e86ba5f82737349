"""Every row of ``vectors/chess-vectors.json``: facts made by running the published DiffuSearch and searchless_chess.

Its rows of puzzles are asked where puzzles are tested; Beam records are a format that nothing here reads.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genpolicy.sequence import Layout
from genpolicy.values import (
    bin_to_probability,
    centipawns_to_probability,
    probability_to_bin,
    probability_to_value,
    score_to_value,
    value_to_probability,
)

pytest.importorskip("chess")

from genpolicy_chess import ChessGame

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors" / "chess-vectors.json").read_text())
GAME = ChessGame()
NUM_BINS = 128
FIRST_MOVE_TOKEN, FIRST_VALUE_TOKEN = 32, 2000  # in DiffuSearch's vocabulary: 32 others, then moves, then values


def searchless_order() -> list[str]:
    """The same moves in the order of searchless_chess, which its indices below show.

    Sources by rank and then file; the squares a queen reaches in ascending order, then a knight's; then promotions,
    black's before white's, by file: straight ahead, to the left, to the right, each q r b n.
    """
    places = [(file, rank) for rank in range(8) for file in range(8)]

    def name(file: int, rank: int) -> str:
        return "abcdefgh"[file] + str(rank + 1)

    moves = []
    for file, rank in places:
        steps = [(f - file, r - rank) for f, r in places]
        queen = [d for d in steps if d != (0, 0) and (0 in d or abs(d[0]) == abs(d[1]))]
        knight = [d for d in steps if {abs(d[0]), abs(d[1])} == {1, 2}]
        moves += [name(file, rank) + name(file + right, rank + up) for right, up in [*queen, *knight]]
    for rank, to_rank in ((1, 0), (6, 7)):
        for file in range(8):
            ends = [to_file for to_file in (file, file - 1, file + 1) if 0 <= to_file < 8]
            moves += [name(file, rank) + name(end, to_rank) + piece for end in ends for piece in "qrbn"]
    return moves


def test_the_table_of_moves_is_the_published_one_in_its_order() -> None:
    tables, moves = FACTS["move_tables"], list(GAME.moves)
    assert len(moves) == tables["count"]
    assert hashlib.sha256("\n".join(moves).encode()).hexdigest() == tables["ds_sha256_of_newline_joined"]
    assert moves[:10] == tables["ds_first10"]
    assert [len(move) for move in moves].index(5) == tables["first_promotion_index"]


def test_the_other_published_table_has_the_same_moves_in_another_order() -> None:
    tables, order = FACTS["move_tables"], searchless_order()
    assert hashlib.sha256("\n".join(order).encode()).hexdigest() == tables["sc_sha256_of_newline_joined"]
    assert order[:10] == tables["sc_first10"]
    assert (set(order) == set(GAME.moves)) is tables["same_set"]
    assert (order == list(GAME.moves)) is tables["same_order"]


@pytest.mark.parametrize("row", FACTS["moves"], ids=lambda row: row["uci"])
def test_a_move_has_its_published_index(row: dict[str, Any]) -> None:
    index, layout = GAME.moves.index(row["uci"]), Layout(GAME, "s-avsav", 2)
    assert index == row["ds_action_index"] == row["ds_token_id"] - FIRST_MOVE_TOKEN
    assert GAME.moves[index] == row["uci"]
    # Their vocabulary and ours both count moves, then values, without a gap.
    assert layout.value_offset - layout.move_offset == FIRST_VALUE_TOKEN - FIRST_MOVE_TOKEN
    assert searchless_order()[row["sc_action_index"]] == row["uci"]


@pytest.mark.parametrize("row", FACTS["values"], ids=lambda row: str(row.get("cp", row.get("note"))))
def test_a_score_has_its_published_probability_and_bin(row: dict[str, Any]) -> None:
    probability = row["win_prob"]
    if "cp" in row:
        # The last digit of an exponential may differ between libraries; the smallest probability is 1 - 0.99...9.
        assert centipawns_to_probability(row["cp"]) == pytest.approx(probability, rel=1e-12, abs=1e-15)
        value = score_to_value(f"cp:{row['cp']}")
        assert value == pytest.approx(2 * probability - 1, abs=1e-15)
        assert probability_to_bin(centipawns_to_probability(row["cp"])) == row["sc_bin"]
        assert centipawns_to_probability(-row["cp"]) == pytest.approx(1 - probability, abs=1e-15)
    assert value_to_probability(probability_to_value(probability)) == pytest.approx(probability, abs=1e-15)
    assert probability_to_bin(probability) == row["sc_bin"]
    assert bin_to_probability(row["sc_bin"]) == row["bin_center"]  # a power of two below 1: exact
    assert row["ds_value_token_id"] == FIRST_VALUE_TOKEN + row["sc_bin"]
    assert row["ds_value_token"] == f"WIN[{row['sc_bin'] + 1}]"


def test_mates_have_the_ends_of_the_scale() -> None:
    by_note = {row["note"]: row for row in FACTS["values"] if "note" in row}
    for score, note in (("mate:0", "lost/mated"), ("mate:-3", "lost/mated"), ("mate:5", "mate for side to move")):
        assert value_to_probability(score_to_value(score)) == by_note[note]["win_prob"]


def test_bins_are_closed_on_the_right_and_cover_the_scale() -> None:
    """What the rows on an edge say, on every edge."""
    edges = [i / NUM_BINS for i in range(1, NUM_BINS)]
    assert [probability_to_bin(edge) for edge in edges] == list(range(NUM_BINS - 1))
    assert [probability_to_bin(float(np.nextafter(edge, 1))) for edge in edges] == list(range(1, NUM_BINS))
