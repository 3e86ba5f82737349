"""Layout: every paradigm written out by hand, over a game of two squares and three moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from genpolicy import load_game
from genpolicy.encoding import table_fingerprint
from genpolicy.errors import ConfigError
from genpolicy.sequence import PARADIGMS, Layout


def tiny_game(symbols: tuple[str, ...] = (".", "X", "x")) -> Any:
    """Two squares that hold ``.`` or ``X`` and a side token that holds ``x``; moves a, b, c."""
    tokens = SimpleNamespace(
        symbols=symbols,
        length=3,
        admitted=np.array([[True, True, False], [True, True, False], [False, False, True]]),
        rows=np.array([0, 0, -1], np.int16),
        cols=np.array([0, 1, -1], np.int16),
        hands=np.array([-1, -1, 0], np.int16),
    )
    tokens.fingerprint = table_fingerprint(tokens)
    return SimpleNamespace(tokens=tokens, moves=load_game("connect:rows=1,cols=3,k=2").moves)


CODES: dict[str, Any] = {"num_books": 2, "num_codes": 3}

# The tokens of each paradigm: s, a, v or k, with the ply behind it. A state is three tokens long, a code two.
EXPECTED = {
    ("s-a", 1): "s0 s0 s0 | a0",
    ("s-v", 1): "s0 s0 s0 | v0",
    ("sa-v", 1): "s0 s0 s0 a0 | v0",
    ("s-aa", 3): "s0 s0 s0 | a0 a1 a2",
    ("s-asa", 1): "s0 s0 s0 | a0",
    ("s-asa", 3): "s0 s0 s0 | a0 s1 s1 s1 a1 s2 s2 s2 a2",
    ("s-ass", 3): "s0 s0 s0 | a0 s1 s1 s1 s2 s2 s2",
    ("s-avav", 3): "s0 s0 s0 | a0 v0 a1 v1 a2 v2",
    ("s-avsav", 2): "s0 s0 s0 | a0 v0 s1 s1 s1 a1 v1",
    ("s-aka", 1): "s0 s0 s0 | a0",
    ("s-aka", 3): "s0 s0 s0 | a0 k1 k1 a1 k2 k2 a2",
}
BEFORE_CODES = {
    "s-a": "312f52d2ebb1417e",
    "s-v": "be8650839c633207",
    "sa-v": "80668de18ea76497",
    "s-aa": "fa358fd0487a2d52",
    "s-asa": "83a21a29d55b25ca",
    "s-ass": "b6d2620082632473",
    "s-avav": "8443fca679d44851",
    "s-avsav": "7a5fa5fd23069067",
}


def test_every_paradigm_is_written_out_here() -> None:
    assert {paradigm for paradigm, _ in EXPECTED} == set(PARADIGMS)


@pytest.mark.parametrize(("paradigm", "horizon"), EXPECTED)
def test_tokens_of_a_paradigm(paradigm: str, horizon: int) -> None:
    layout = Layout(tiny_game(), paradigm, horizon, num_value_bins=4, **CODES)
    tokens = [f"{'savk'[kind]}{ply}" for kind, ply in zip(layout.kinds, layout.plies, strict=True)]
    tokens.insert(int(layout.given.sum()), "|")
    assert " ".join(tokens) == EXPECTED[paradigm, horizon]
    assert layout.given.tolist() == sorted(layout.given, reverse=True)  # what is given comes first
    assert layout.length == len(tokens) - 1
    slots = "".join(slot.kind[0].replace("c", "k") * (slot.stop - slot.start) for slot in layout.slots)
    assert slots == "".join(token[0] for token in tokens if token != "|")


def test_the_papers_layout() -> None:
    # DiffuSearch's S-ASA at horizon 4 over chess: 77 state tokens, four moves, three imagined states.
    chess = load_game("chess")
    layout = Layout(chess, "s-asa", 4)
    assert layout.length == 4 * 77 + 4
    assert [slot.kind for slot in layout.slots] == ["state", *["action", "state"] * 3, "action"]
    assert layout.first_action == 77
    assert layout.num_symbols == len(chess.tokens.symbols) + 1968 + 1


def test_places_on_the_board() -> None:
    layout = Layout(tiny_game(), "s-asa", 2)  # s s s | a s s s a
    assert layout.places.tolist() == [0, 1, 2, -1, 0, 1, 2, -1]
    assert layout.rows.tolist() == [0, 0, -1, -1, 0, 0, -1, -1]
    assert layout.cols.tolist() == [0, 1, -1, -1, 0, 1, -1, -1]
    assert layout.hands.tolist() == [-1, -1, 0, -1, -1, -1, 0, -1]


def test_symbols_and_what_each_token_admits() -> None:
    # 3 state symbols, 3 moves, 2 value bins, PAD: ids 0-2, 3-5, 6-7, 8; the mask is 9.
    layout = Layout(tiny_game(), "s-avsav", 2, num_value_bins=2)
    assert (layout.move_offset, layout.value_offset, layout.pad, layout.num_symbols, layout.mask) == (3, 6, 8, 9, 9)
    square, side, move, value = {0, 1}, {2}, {3, 4, 5}, {6, 7}
    expected = [square, square, side, move, value, square, square, side, move, value]
    assert [set(np.flatnonzero(row)) for row in layout.admitted] == expected
    with_pad = Layout(tiny_game(), "s-avsav", 2, num_value_bins=2, admit_pad=True)
    expected = [symbols | ({8} if i >= 3 else set()) for i, symbols in enumerate(expected)]
    assert [set(np.flatnonzero(row)) for row in with_pad.admitted] == expected


def test_groups_hold_the_same_as_the_table() -> None:
    layout = Layout(tiny_game(), "s-avsav", 2, num_value_bins=2, admit_pad=True)
    table = np.zeros_like(layout.admitted)
    for group in layout.groups:
        for position, row in zip(group.positions, group.admitted, strict=True):
            table[position, group.symbols[row]] = True
        assert group.symbols[-1] == layout.pad
    assert np.array_equal(table, layout.admitted)
    assert sorted(p for group in layout.groups for p in group.positions) == list(range(layout.length))


def test_code_symbols_and_what_each_token_admits() -> None:
    # 3 state symbols, 3 moves, then two codebooks of 3 codes: ids 6-8 and 9-11, PAD 12; the mask is 13.
    layout = Layout(tiny_game(), "s-aka", 2, num_value_bins=2, **CODES)
    ids = (layout.value_offset, layout.code_offset, layout.pad, layout.num_symbols, layout.mask)
    assert ids == (6, 6, 12, 13, 13)
    square, side, move = {0, 1}, {2}, {3, 4, 5}
    expected = [square, square, side, move, {6, 7, 8}, {9, 10, 11}, move]
    assert [set(np.flatnonzero(row)) for row in layout.admitted] == expected
    with_pad = Layout(tiny_game(), "s-aka", 2, admit_pad=True, **CODES)
    expected = [symbols | ({12} if i >= 3 else set()) for i, symbols in enumerate(expected)]
    assert [set(np.flatnonzero(row)) for row in with_pad.admitted] == expected
    assert layout.books.tolist() == [-1, -1, -1, -1, 0, 1, -1]
    assert layout.blocks.tolist() == [-1, -1, -1, 0, 1, 1, 2]


def test_codes_are_never_admitted_on_squares_or_as_moves() -> None:
    for horizon in (1, 2, 4):
        layout = Layout(load_game("chess"), "s-aka", horizon, num_books=2, num_codes=64, admit_pad=True)
        codes = layout.admitted[:, layout.code_offset : layout.pad]
        assert np.array_equal(codes.any(axis=1), layout.books >= 0)
        assert not layout.admitted[layout.books >= 0, : layout.code_offset].any()
    assert layout.length == 77 + 10  # rows.md, row 20: ten imagined tokens, where s-asa has 235


def test_without_values_there_are_no_value_symbols() -> None:
    layout = Layout(tiny_game(), "s-asa", 2, num_value_bins=128)
    assert (layout.num_value_bins, layout.num_symbols) == (0, 3 + 3 + 1)


@pytest.mark.parametrize(
    ("paradigm", "horizon", "first"), [("s-a", 1, 3), ("s-aa", 2, 3), ("s-asa", 4, 3), ("s-avav", 2, 3)]
)
def test_first_action(paradigm: str, horizon: int, first: int) -> None:
    assert Layout(tiny_game(), paradigm, horizon).first_action == first


@pytest.mark.parametrize("paradigm", ["s-v", "sa-v"])
def test_a_paradigm_without_imagined_action_says_so(paradigm: str) -> None:
    with pytest.raises(ConfigError, match="imagines no action"):
        _ = Layout(tiny_game(), paradigm, 1).first_action


@pytest.mark.parametrize(
    ("paradigm", "horizon", "squares"),
    [
        ("s-a", 1, [[0, 1, 2]]),
        ("s-asa", 2, [[0, 1, 2], [4, 5, 6]]),  # s s s a s s s a
        ("s-aa", 2, [[0, 1, 2], [0, 1, 2]]),  # no imagined state: every move is made in the root
        ("s-avsav", 2, [[0, 1, 2], [5, 6, 7]]),  # s s s a v s s s a v
        ("s-ass", 3, [[0, 1, 2]]),
        ("sa-v", 1, [[0, 1, 2]]),
        ("s-aka", 3, [[0, 1, 2]] * 3),  # codes have no squares: every move is made in the root
    ],
)
def test_the_state_that_each_move_is_made_in(paradigm: str, horizon: int, squares: list[list[int]]) -> None:
    assert Layout(tiny_game(), paradigm, horizon, **CODES).squares_of("action").tolist() == squares


def test_slots_by_kind_and_ply() -> None:
    layout = Layout(tiny_game(), "s-asa", 2)
    found = layout.slot("state", 1)
    assert found is not None
    assert (found.start, found.stop, found.given) == (4, 7, False)
    assert layout.slot("value", 0) is None
    assert layout.slot("state", 2) is None


@pytest.mark.parametrize(
    ("paradigm", "horizon", "reason"),
    [
        ("s-asas", 4, "'s-asas' does not exist; there are: s-a, "),
        ("s-asa", 0, "at least 1 ply, got 0"),
        ("s-a", 2, "set horizon=1, got 2"),
        ("s-aka", 2, "imagines codes, .* at least 1 codebook of 2 codes, got 0 of 0"),
    ],
)
def test_layouts_that_cannot_be(paradigm: str, horizon: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Layout(tiny_game(), paradigm, horizon)


def test_the_fingerprint_changes_with_the_meaning_of_ids() -> None:
    base = Layout(tiny_game(), "s-asa", 2)
    assert Layout(tiny_game(), "s-asa", 2).fingerprint == base.fingerprint
    others = [
        Layout(tiny_game(), "s-asa", 3),
        Layout(tiny_game(), "s-aa", 2),
        Layout(tiny_game(("_", "X", "x")), "s-asa", 2),
        Layout(load_game("connect:rows=1,cols=3,k=2"), "s-asa", 2),
        Layout(tiny_game(), "s-aka", 2, num_books=1, num_codes=6),
        Layout(tiny_game(), "s-aka", 2, num_books=2, num_codes=3),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 7


def test_fingerprints_are_those_of_folders_without_codes() -> None:
    """Printed by the commit before codes (5318672): a saved policy is held to its own."""
    found = {name: Layout(tiny_game(), name, 1, num_value_bins=4, **CODES).fingerprint for name in BEFORE_CODES}
    assert found == BEFORE_CODES
