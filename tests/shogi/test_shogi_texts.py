"""Positions, moves and keys of shogi as texts: what is read, what is refused, what is the same."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest

from genpolicy.errors import IllegalMoveError
from tests.shogi.shogi_positions import GAME, random_game, random_states
from tests.shogi.shogi_texts import BAD_TEXTS, TEXTS

START = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_bad_text_is_a_value_error_that_quotes_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|illegal|is no") as caught:
        GAME.parse(text)
    assert repr(text) in str(caught.value)


def test_texts_in_the_forms_of_the_protocol() -> None:
    for text in (START, f"sfen {START}", "startpos", "position startpos", f"position sfen {START}", START[:-2]):
        assert GAME.format(GAME.parse(text)) == START
    state = GAME.parse("startpos moves 7g7f 3c3d")
    assert GAME.history(state) == (START, tuple(map(GAME.moves.index, ("7g7f", "3c3d"))))
    assert GAME.format(state) == "lnsgkgsnl/1r5b1/pppppp1pp/6p2/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL b - 1"
    assert GAME.parse(f"{START[:-1]}57 moves 7g7f").number == 58
    assert GAME.parse(f"{START[:-1]}0").number == 1
    assert GAME.format(GAME.parse("4k4/9/9/9/9/9/9/9/4K4 b p2PR 1")).split()[2] == "R2Pp"
    assert GAME.format(GAME.parse("  startpos \n")) == START


def test_thousands_of_damaged_texts_are_read_or_refused() -> None:
    """Never a crash: this process would be gone."""
    rng = random.Random(8)
    alphabet = "PLNSGBRKplnsgbrk+123456789/ bw-0*\x00ＰéX"
    starts = [GAME.format(state) for state in random_states(800, seed=9)[::8]] + TEXTS
    accepted = unquoted = 0
    for _ in range(6000):
        text = rng.choice(starts)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(text) + 1)
            kind = rng.random()
            if kind < 0.25:
                text = text[:at] + rng.choice(alphabet) + text[at + 1 :]
            elif kind < 0.35:
                text = text[:at] + rng.choice(alphabet) + text[at:]
            elif kind < 0.45:
                text = text[:at] + text[at + 1 :]
            else:  # two characters change places: often still a position
                other = rng.randrange(len(text) + 1)
                low, high = sorted((at, other))
                first, last = text[low : low + 1], text[high : high + 1]
                text = text[:low] + last + text[low + 1 : high] + first + text[high + 1 :]
        try:
            state = GAME.parse(text)
        except ValueError as error:
            unquoted += repr(text) not in str(error)
            continue
        accepted += 1
        assert GAME.format(GAME.parse(GAME.format(state))) == GAME.format(state)
        legal = GAME.legal(state)
        if len(legal):
            GAME.legal(GAME.play(state, int(rng.choice(legal))))
        GAME.outcome(state), GAME.hints.is_quiet(state), GAME.hints.evaluate(state)
    assert accepted > 300
    assert unquoted == 0


@pytest.mark.parametrize("thing", [None, 5, b"startpos", ["startpos"]])
def test_what_is_no_text_is_a_value_error(thing: Any) -> None:
    if thing is None:
        assert GAME.format(GAME.parse(thing)) == START
        return
    with pytest.raises(ValueError, match="is text"):
        GAME.parse(thing)


def test_states_are_not_changed_and_survive_pickling() -> None:
    states = random_game(random.Random(10), plies=60)
    texts = [GAME.format(state) for state in states]
    again = pickle.loads(pickle.dumps(states[-1]))
    assert again.keys == states[-1].keys
    assert again.moves == states[-1].moves
    assert np.array_equal(GAME.legal(again), GAME.legal(states[-1]))
    legal = GAME.legal(states[30])
    legal[:] = 0
    assert GAME.legal(states[30]).sum() > 0
    for state in states:
        for move in GAME.legal(state)[:3]:
            GAME.play(state, int(move))
    assert [GAME.format(state) for state in states] == texts


def test_keys_tell_positions_apart_as_texts_do() -> None:
    states = random_states(3000, seed=11)
    by_text: dict[str, bytes] = {}
    for state in states:
        assert by_text.setdefault(GAME.format(state), GAME.key(state)) == GAME.key(state)
    assert len(set(by_text.values())) == len(by_text)
    for state in states[::100]:
        assert GAME.key(GAME.parse(GAME.format(state))) == GAME.key(state)


def test_left_and_right_have_one_canonical_key() -> None:
    (flip,) = GAME.symmetries
    for state in random_states(300, seed=12)[::10]:
        copy = flip.state(state)
        assert GAME.canonical_key(copy) == GAME.canonical_key(state)
        assert flip.state(copy).keys == state.keys
        assert GAME.history(copy)[1] == tuple(flip.moves[list(state.moves)])
        assert sorted(flip.moves[GAME.legal(state)]) == GAME.legal(copy).tolist()


@pytest.mark.parametrize("move", [2.5, 2.0, "7g7f", None, (1,)])
def test_what_is_no_id_is_no_move(move) -> None:
    with pytest.raises(IllegalMoveError, match="a move is its id, a whole number"):
        GAME.play(GAME.parse(), move)


def test_ids_of_numpy_are_ids() -> None:
    state = GAME.parse()
    first = GAME.legal(state)[0]
    assert GAME.key(GAME.play(state, first)) == GAME.key(GAME.play(state, int(first)))
