"""Players that fail, judges, adjudication and the sequential test of a tournament."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from genpolicy.data.oracle import Line, Oracle
from genpolicy.errors import EngineError
from genpolicy.policies.base import Decision, Policy
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.match import GameResult, GameTask, Match
from genpolicy_arena.openings import Opening
from genpolicy_arena.sprt import SprtConfig
from genpolicy_arena.tournament import SprtWatch, TournamentConfig, run_tournament
from tests.evaluation.tournament_games import FOUR, TTT, config


class Scripted(Policy):
    """Plays the first legal move with a fixed value, but for what a test tells it."""

    kind: ClassVar[str] = "scripted"

    def __init__(self, game: Any, value: float | None = None, fail_at: int | None = None, how: str = "raise") -> None:
        self.game, self.value, self.fail_at, self.how = game, value, fail_at, how

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        decisions = []
        for state in states:
            plies = sum(bits.bit_count() for bits in state.stones)
            move = int(self.game.legal(state)[0])
            if self.fail_at is not None and plies >= self.fail_at:
                if self.how == "raise":
                    raise EngineError("the engine hangs")
                if self.how == "few":
                    return []
                taken = set(range(len(self.game.moves))) - set(self.game.legal(state).tolist())
                move = 99 if self.how == "outside" else min(taken)
            decisions.append(Decision(move, value=self.value))
        return decisions


def play(
    one: Policy, other: Policy, rules: Adjudication | None = None, judge: Oracle | None = None
) -> list[GameResult]:
    game = one.game
    empty, shifted = Opening(game.format(game.parse()), (), "empty"), Opening(game.format(game.parse()), (4,), "b2")
    tasks = [
        GameTask(0, 0, "0", "one", "other", empty),
        GameTask(1, 0, "0", "other", "one", empty),
        GameTask(2, 1, "1", "one", "other", shifted),
    ]
    results: list[GameResult] = []
    match = Match(game, {"one": one, "other": other}, rules or Adjudication(), judge, 0)
    match.play(tasks, results.append)
    return sorted(results, key=lambda each: each.number)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise", "other failed: EngineError: the engine hangs"),
        ("few", "other failed: RuntimeError: gave 0 decisions"),
        ("illegal", "other answered the illegal move 'a3'"),
        ("outside", "other answered the illegal move of id 99"),
    ],
)
def test_a_player_that_fails_loses_that_game_and_the_others_go_on(how: str, reason: str) -> None:
    results = play(Scripted(TTT), Scripted(TTT, fail_at=2, how=how))
    assert [each.ended for each in results] == ["forfeit"] * 3
    assert [each.result for each in results] == [1.0, -1.0, 1.0]  # other is second, first, second
    assert all(each.forfeit_by == "other" for each in results)
    assert all(each.reason.startswith(reason) for each in results)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "other answered no move: None"),
        (Decision(None), "other answered no move: None"),  # type: ignore[arg-type]
        (Decision("a1"), "other answered no move: 'a1'"),  # type: ignore[arg-type]
        (Decision(1.7), "other answered no move: 1.7"),  # type: ignore[arg-type]
        (Decision(10**30), "other answered the illegal move of id 1000"),
        (Decision(8, value=math.nan), r"other gave a value that is not a number in [-1, 1]: nan"),
        (Decision(8, value="x"), r"other gave a value that is not a number in [-1, 1]: 'x'"),  # type: ignore[arg-type]
        (Decision(8, value=1300.0), r"other gave a value that is not a number in [-1, 1]: 1300.0"),
    ],
    ids=str,
)
def test_a_malformed_decision_loses_that_game_and_the_others_go_on(answer: Any, reason: str) -> None:
    class Malformed(Scripted):
        def decide(self, states: Sequence[Any]) -> list[Decision]:
            return [answer if state.stones[0].bit_count() == 2 else one for state, one in self._pairs(states)]

        def _pairs(self, states: Sequence[Any]) -> list[tuple[Any, Decision]]:
            return list(zip(states, super().decide(states), strict=True))

    results = play(Scripted(TTT, 0.0), Malformed(TTT, 0.0), Adjudication(win=(0.9, 2), draw=(0.1, 8, 8)))
    assert [each.ended for each in results] == ["forfeit"] * 3
    assert [each.result for each in results] == [1.0, -1.0, 1.0]
    assert all(each.reason.startswith(reason) for each in results)


def test_numbers_of_other_libraries_are_moves_and_values() -> None:
    class Numpy(Scripted):
        def decide(self, states: Sequence[Any]) -> list[Decision]:
            return [
                Decision(np.int64(one.move), value=np.float32(-1))  # type: ignore[arg-type]
                for one in super().decide(states)
            ]

    assert [each.ended for each in play(Scripted(TTT), Numpy(TTT))] == ["rules"] * 3


def test_only_the_game_that_fails_is_lost() -> None:
    class FailsOnOne(Scripted):
        def decide(self, states: Sequence[Any]) -> list[Decision]:
            if any(TTT.format(state) == "X../... /...".replace(" ", "") + " O" for state in states):
                raise EngineError("cannot bear this one")
            return super().decide(states)

    results = play(Scripted(TTT), FailsOnOne(TTT))
    assert [each.ended for each in results] == ["forfeit", "rules", "rules"]


def test_agreed_values_end_games_and_one_sided_ones_do_not() -> None:
    rules = Adjudication(win=(0.9, 3))
    # Both say that player 0 wins, where one has player 0: as the movers' values that is + and -.
    sure = play(Scripted(TTT, 0.95), Scripted(TTT, -0.95), rules)
    assert (sure[0].ended, sure[0].result, len(sure[0].moves)) == ("adjudication", 1.0, 3)
    assert (sure[1].ended, sure[1].result) == ("adjudication", -1.0)
    assert [each.ended for each in play(Scripted(TTT, 0.95), Scripted(TTT, 0.95), rules)] == ["rules"] * 3
    assert [each.ended for each in play(Scripted(TTT, 0.95), Scripted(TTT, None), rules)] == ["rules"] * 3
    drawn = play(Scripted(TTT, 0.0), Scripted(TTT, 0.01), Adjudication(draw=(0.02, 2, 4)))
    assert [(each.ended, each.result, len(each.moves)) for each in drawn] == [("adjudication", 0.0, 4)] * 3


class Judge(Oracle):
    """Says the same of every position, for player 0."""

    def __init__(self, game: Any, centipawns: int) -> None:
        self.game, self.centipawns = game, centipawns
        self.asked: list[str] = []

    def describe(self) -> dict[str, Any]:
        return {}

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        self.asked += [self.game.format(state) for state in states]
        sign = [1 if self.game.player(state) == 0 else -1 for state in states]
        return [Line((0,), (f"cp:{self.centipawns * each}",)) for each in sign]


def test_a_judge_ends_games_beyond_its_mark_for_the_right_side() -> None:
    rules = Adjudication(judge="test", judge_every=2)
    won = play(Scripted(TTT), Scripted(TTT), rules, Judge(TTT, -1301))
    assert [(each.ended, each.result, len(each.moves)) for each in won] == [
        ("adjudication", -1.0, 2),
        ("adjudication", -1.0, 2),
        ("adjudication", -1.0, 3),
    ]
    calm = Judge(TTT, 1300)
    assert {each.ended for each in play(Scripted(TTT), Scripted(TTT), rules, calm)} == {"rules"}
    assert calm.asked
    limit = Adjudication(judge="test", judge_every=99, max_plies=4, at_limit="judge")
    assert {(each.ended, each.result) for each in play(Scripted(TTT), Scripted(TTT), limit, Judge(TTT, 2000))} == {
        ("adjudication", 1.0)
    }
    draw = play(Scripted(TTT), Scripted(TTT), limit, Judge(TTT, 100))
    assert {(each.ended, each.result, len(each.moves)) for each in draw} == {("limit", 0.0, 4)}


def test_scores_are_judged_by_kind() -> None:
    rules = Adjudication(judge="x")
    expected = {"mate:3": 1.0, "mate:-2": -1.0, "mate:0": -1.0, "cp:1301": 1.0, "cp:-1301": -1.0, "cp:1300": None}
    expected |= {"value:1": 1.0, "value:-1": -1.0, "value:0.99": 1.0, "value:-0.99": -1.0, "value:0.98": None}
    assert {text: rules.judged(text) for text in expected} == expected
    assert rules.judged(None) is None
    assert Adjudication(judge="x", judge_cp=300).judged("value:-0.51") == -1.0  # 300 centipawns have the value 0.502
    assert Adjudication(judge="x", judge_cp=10**6).judged("value:1") == 1.0


@pytest.mark.parametrize("more", [{"win": (1.5, 4)}, {"win": (0.9, 1)}, {"draw": (1.0, 3, 0)}, {"at_limit": "judge"}])
def test_rules_out_of_range_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|needs a judge"):
        Adjudication(**more)


def test_the_sequential_test_does_not_depend_on_the_order_in_which_games_end() -> None:
    settings = config(rounds=40, players={"a": "random", "b": "random?seed=1"}, sprt=SprtConfig(0, 200))
    random_order = random.Random(3)
    tasks = settings.tasks()
    results = []
    for task in tasks:
        won = random_order.random() < 0.85
        result = (1.0 if won else -1.0) if task.first == "a" else (-1.0 if won else 1.0)
        results.append(
            GameResult(
                task.number,
                task.round,
                task.pair,
                task.first,
                task.second,
                "",
                "",
                0,
                (),
                result,
                "rules",
                "",
                None,
                (0.0, 0.0),
                "",
            )
        )
    states = []
    for shuffled in (results, results[::-1], random_order.sample(results, len(results))):
        watch = SprtWatch(settings)
        for result in shuffled:
            watch.add(result)
        states.append(watch.state)
    assert states[0].verdict == "H1"
    assert states[0] == states[1] == states[2]
    assert sum(states[0].counts) < 40


def test_a_tournament_stops_when_its_test_is_decided_and_stays_decided(tmp_path: Path) -> None:
    players = {"mcts": "mcts:rollout?simulations=10", "random": "random"}
    settings = config(rounds=60, players=players, sprt=SprtConfig(0, 300), group_size=4)
    states = []
    for workers in (1, 2):
        outcome = run_tournament(settings, FOUR, tmp_path / str(workers), workers=workers)
        assert outcome.sprt is not None
        assert outcome.sprt.verdict == "H1"
        assert len(outcome.results) < outcome.num_planned == 120
        again = run_tournament(settings, FOUR, tmp_path / str(workers), workers=workers)
        assert (again.results, again.sprt) == (outcome.results, outcome.sprt)
        states.append(outcome.sprt)
    assert states[0] == states[1]


@pytest.mark.parametrize("paired", [True, False])
def test_a_test_that_counts_copies_of_a_game_says_so(tmp_path: Path, paired: bool) -> None:
    start = Opening(TTT.format(TTT.parse()), (), "start")
    others = [Opening(start.start, (move,), "move") for move in (1, 2, 3)]
    players = {"a": "mcts:uniform?simulations=8", "b": "mcts:uniform?simulations=9"}
    for openings, distinct in (([start] * 5, 1), ([start, *others], 4), ([start, *others, *others], 4)):
        settings = TournamentConfig(TTT.spec, players, openings, sprt=SprtConfig(0, 30), paired=paired)
        warnings = run_tournament(settings, TTT, tmp_path / f"{len(openings)}").warnings
        counted = (len(openings), "pairs of games") if paired else (2 * len(openings), "games")
        known = f"the test counted {counted[0]} {counted[1]}, {distinct if paired else 2 * distinct} of them distinct"
        assert [text.partition(":")[0] for text in warnings] == ([] if len(openings) == distinct else [known])
