"""Alpha-beta on shogi: mates for both colours, the fourth repetition, and a table that forgets no history."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("cshogi")

import genpolicy
from genpolicy_alphabeta.search import AlphaBeta
from tests.search.search_models import valued

GAME = genpolicy.load_game("shogi")


@pytest.mark.parametrize(
    ("sfen", "mates"),
    [
        ("4k4/9/4P4/9/9/9/9/9/4K4 b G 1", {"G*5b"}),  # gold at the head
        ("4k4/9/9/9/9/9/4p4/9/4K4 w g 1", {"G*5h"}),
    ],
)
def test_mate_in_one(sfen: str, mates: set[str]) -> None:
    state = GAME.parse(sfen)
    for depth in (1, 3):
        found = AlphaBeta(GAME, depth=depth).search(state)
        assert GAME.moves[found.move] in mates
        assert (found.text, found.value, found.exact) == ("mate:1", 1.0, True)


def test_forcing_moves_take_or_promote_and_nothing_is_left_out_in_check() -> None:
    rng = random.Random(2)
    state = GAME.parse()
    for _ in range(120):
        legal = GAME.legal(state).tolist()
        forcing = GAME.hints.forcing(state)
        assert (forcing is None) == state.in_check
        if forcing is not None:
            assert set(forcing.tolist()) <= set(legal)
            assert len(forcing) or GAME.hints.is_quiet(state)
        state = GAME.play(state, rng.choice(legal))
        if GAME.outcome(state) is not None:
            break


def test_the_table_changes_nothing_whatever_the_past() -> None:
    rng = random.Random(3)
    for number in range(5):
        state = GAME.parse("4k4/9/9/9/9/9/9/9/4K2R1 b - 1")
        for _ in range(rng.randint(8, 13)):
            moves = GAME.legal(state).tolist()
            back = [m for m in moves if len(state.moves) > 1 and _undoes(GAME.moves[state.moves[-2]], GAME.moves[m])]
            after = GAME.play(state, rng.choice(back or moves))
            if GAME.outcome(after) is None:
                state = after

        def anything(position: Any, salt: str = str(number)) -> float:
            return random.Random(repr(GAME.key(position)) + salt).uniform(-1, 1)

        with_table, without = (
            AlphaBeta(GAME, depth=3, table=table, evaluator=valued(anything)).search(state) for table in (True, False)
        )
        assert with_table.score == without.score, (GAME.format(state), state.moves)


def test_positions_of_one_transposition_key_end_alike() -> None:
    """The same position with many pasts: where the trees of results differ, the keys must."""
    rng = random.Random(5)
    pasts: dict[Any, list[Any]] = {}
    for _ in range(250):
        state = GAME.parse("k8/9/p8/P8/9/9/9/9/8K b - 1")
        for _ in range(rng.choice([10, 11, 12, 13])):
            kings = [m for m in GAME.legal(state).tolist() if GAME.moves[m][2:] in ("1i", "2i", "9a", "8a", "1h")]
            after = GAME.play(state, rng.choice(kings))
            if GAME.outcome(after) is None:
                state = after
        pasts.setdefault(GAME.key(state), []).append(state)
    num_unlike = num_shared = 0
    for alike in pasts.values():
        for plies in (1, 2):
            groups: dict[Any, set[Any]] = {}
            for state in alike:
                groups.setdefault(GAME.hints.transposition_key(state, plies), set()).add(_ends(state, plies))
            assert all(len(trees) == 1 for trees in groups.values())
            num_unlike += len(set().union(*groups.values())) > 1
            num_shared += len(alike) > len(groups)
    assert num_unlike > 0
    assert num_shared > 0


def _ends(state: Any, plies: int) -> tuple[Any, ...]:
    result = GAME.outcome(state)
    if result is not None or plies == 0:
        return (result,)
    return tuple(_ends(GAME.play(state, move), plies - 1) for move in GAME.legal(state).tolist())


def _undoes(before: str, move: str) -> bool:
    return move == before[2:4] + before[:2]
