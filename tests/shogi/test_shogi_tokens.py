"""The 96 tokens: exact round trips, both views, tight admitted sets, and refusal of rows that are not a position."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.shogi.naive_shogi import Position
from tests.shogi.shogi_positions import GAME, random_states, reference, turned

TOKENS = GAME.tokens
STATES = random_states(3000, seed=31)
TEXTS = [position["sfen"] for position in reference()["positions"]]


def slow_names(sfen: str) -> list[str]:
    """The code of a position, square by square, from its text."""
    position = Position(sfen)
    names = [position.squares.get((file, rank), ".") for rank in range(1, 10) for file in range(9, 0, -1)]
    names = [name if name == "." or name.isupper() else name.lower() for name in names]
    names.append("black" if position.side == 0 else "white")
    return names + [str(position.hands[side].get(letter, 0)) for side in (0, 1) for letter in "PLNSGBR"]


def symbols(row: Any) -> list[str]:
    return [TOKENS.symbols[i] for i in row]


def test_shape_and_places() -> None:
    assert TOKENS.length == 96
    assert len(TOKENS.symbols) == 50
    assert TOKENS.rows[:81].tolist() == [i // 9 for i in range(81)]
    assert TOKENS.cols[:81].tolist() == [i % 9 for i in range(81)]
    assert (TOKENS.rows[81:] == -1).all()
    assert TOKENS.hands.tolist() == [-1] * 82 + list(range(14))


def test_code_of_the_initial_position_by_hand() -> None:
    row = symbols(TOKENS.encode([GAME.parse()])[0])
    assert row[:9] == list("lnsgkgsnl")
    assert row[9:18] == list(".r.....b.")
    assert row[63:72] == list(".B.....R.")
    assert row[72:81] == list("LNSGKGSNL")
    assert row[81:] == ["black"] + ["0"] * 14


def test_a_slow_second_code_agrees_in_both_views() -> None:
    texts = TEXTS + [GAME.format(state) for state in STATES[::5]]
    states = [GAME.parse(text) for text in texts]
    for viewer in (0, 1):
        rows = TOKENS.encode(states, [viewer] * len(states))
        for text, row in zip(texts, rows, strict=True):
            assert symbols(row) == slow_names(turned(text) if viewer else text), (text, viewer)


def test_exact_round_trips() -> None:
    for state in [*STATES[::4], *map(GAME.parse, TEXTS)]:
        for viewer in (0, 1):
            row = TOKENS.encode([state], [viewer])[0]
            seen = TOKENS.decode(row, viewer)
            assert GAME.format(seen) == GAME.format(state)
            assert seen.keys[-1] == state.keys[-1]
            assert np.array_equal(GAME.legal(seen), GAME.legal(state))


def test_a_batch_with_mixed_viewers_is_its_rows() -> None:
    states = STATES[:500]
    viewers = np.random.default_rng(0).integers(2, size=500)
    rows = TOKENS.encode(states, viewers)
    for state, viewer, row in zip(states, viewers.tolist(), rows, strict=True):
        assert np.array_equal(row, TOKENS.encode([state], [viewer])[0])
    assert np.array_equal(TOKENS.encode(states), TOKENS.encode(states, np.zeros(500, int)))
    assert TOKENS.encode([]).shape == (0, 96)


def test_symbols_in_the_movers_view_do_not_depend_on_the_colour() -> None:
    # All distinct values of every hand count, up to the eighteen pawns.
    for count in range(19):
        black = GAME.parse(f"4k4/9/9/9/9/9/9/9/4K4 b {f'{count}P' if count else '-'} 1".replace(" 1P", " P"))
        row = TOKENS.encode([black], [0])[0]
        assert symbols(row)[82] == str(count)
        white = GAME.parse(turned(GAME.format(black)))
        assert np.array_equal(TOKENS.encode([white], [1])[0], row)


def test_admitted_is_tight() -> None:
    """What a place admits stands there in some position, and what it does not, in none."""
    for place in range(81):
        file, rank = 9 - place % 9, place // 9 + 1
        for number, name in enumerate(TOKENS.symbols):
            if name in ("black", "white") or name.isdigit():
                assert not TOKENS.admitted[place, number]
                continue
            if name == ".":
                assert TOKENS.admitted[place, number]
                continue
            # The piece alone with a king far away (a lone king needs no other).
            squares = {(file, rank): name}
            if name not in "Kk":
                corner = next(
                    s
                    for s in [(1, 1), (9, 9), (1, 9), (9, 1)]
                    if s[0] != file and s[1] != rank and abs(s[0] - file) > 2
                )
                squares[corner] = "k" if name.isupper() else "K"
            rows = []
            for r in range(1, 10):
                rows.append("".join(squares.get((f, r), "1") for f in range(9, 0, -1)))
            text = "/".join(rows)
            while "11" in text:
                text = next(text.replace("1" * n, str(n)) for n in range(9, 1, -1) if "1" * n in text)
            try:
                GAME.parse(f"{text} {'w' if name.isupper() else 'b'} - 1")
                stands = True
            except ValueError as error:
                stands = "can never move again" not in str(error)
            assert TOKENS.admitted[place, number] == stands, (place, name)


def test_admitted_of_side_and_hands() -> None:
    names = np.array(TOKENS.symbols)
    assert set(names[TOKENS.admitted[81]]) == {"black", "white"}
    for slot, most in enumerate((18, 4, 4, 4, 4, 2, 2) * 2):
        assert names[TOKENS.admitted[82 + slot]].tolist() == [str(n) for n in range(most + 1)]


def changed(row: Any, **symbol_at: str) -> Any:
    row = row.copy()
    for place, name in symbol_at.items():
        row[int(place[1:])] = TOKENS.symbols.index(name)
    return row


START_ROW = TOKENS.encode([GAME.parse()])[0]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (START_ROW[:-1], "96 integer ids"),
        (START_ROW.astype(float), "96 integer ids"),
        (changed(START_ROW, p82="1"), "19 P"),
        (changed(START_ROW, p40="K"), "more than one king"),
        (changed(START_ROW, p4=".", p76="."), "no king"),
        (changed(START_ROW, p55=".", p45="P"), "two unpromoted pawns"),
        (changed(START_ROW, p0="P"), "token 0 .*admit 'P'"),
        (changed(START_ROW, p81="."), "token 81 .*admit '.'"),
        (changed(START_ROW, p87="3"), "token 87 .*admit '3'"),
        (np.full(96, -1), "token 0 .*id -1"),
        (np.full(96, 50), "token 0 .*id 50"),
    ],
)
def test_rows_that_are_no_position_are_refused(row: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TOKENS.decode(row)


def test_random_rows_are_decoded_or_refused() -> None:
    """Never a crash, and what is decoded is what the row says."""
    rng, decoded = random.Random(4), 0
    for _ in range(1500):
        row = TOKENS.encode([rng.choice(STATES)])[0]
        for _ in range(rng.choice((1, 1, 2, 96))):
            place = rng.randrange(96)
            row[place] = rng.choice(np.flatnonzero(TOKENS.admitted[place]).tolist())
        viewer = rng.randrange(2)
        try:
            state = TOKENS.decode(row, viewer)
        except ValueError:
            continue
        decoded += 1
        assert np.array_equal(TOKENS.encode([state], [viewer])[0], row)
        GAME.legal(state), GAME.outcome(state)
    assert decoded > 75


@pytest.mark.parametrize("viewers", [[0], [0, 2], [[0, 1]], [0, -1]])
def test_viewers_are_one_0_or_1_a_state(viewers: Any) -> None:
    with pytest.raises(ValueError, match="viewers must be 2 times 0 or 1"):
        TOKENS.encode(STATES[:2], viewers)
    with pytest.raises(ValueError, match="viewers must be"):
        TOKENS.decode(START_ROW, 2)
