"""Pig: its rules, its exact solution, and searches that meet its dice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import genpolicy
from genpolicy.chance import drawn, probabilities, settled
from genpolicy.data.oracle import make_oracle
from genpolicy.game import Game
from genpolicy.search.model import Prior
from genpolicy.testing import check_game, check_search_model
from genpolicy_mcts.evaluators import Rollout
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.rules import RulesModel, even
from genpolicy_mcts.selection import MctsConfig
from genpolicy_pig import PigGame
from genpolicy_pig.oracle import PigOracle

PIGLET = "pig:goal=4,faces=2"  # heads counts 2: Piglet to 2, with every number doubled


@pytest.mark.parametrize("spec", ["pig:goal=20", PIGLET, "pig:goal=7,faces=3,bust=2", "pig:goal=1"])
def test_laws_of_the_game(spec: str) -> None:
    texts = ["0 3 4 B choose", "2 0 0 A roll"] if spec == "pig:goal=20" else []
    bad = ["0 0 0 C choose", "20 0 0 A choose", "0 0 26 A choose", "0 0 20 A roll", "00 0 0 A choose"]
    check_game(genpolicy.load_game(spec), num_games=4, texts=texts, bad_texts=bad if texts else [])


def test_rules_by_hand() -> None:
    game = PigGame(goal=20)
    state = game.parse()
    for move in ["roll", "5", "roll", "6", "hold", "roll", "4", "roll", "1", "roll", "6"]:
        state = game.play(state, game.move_from_text(state, move))
    # 11 held, 4 lost to the 1, and a 6 not held yet.
    assert game.format(state) == "11 0 6 A choose"
    assert [game.moves[move] for move in game.legal(state)] == ["roll", "hold"]
    state = game.play(game.play(state, 0), game.moves.index("3"))
    assert (game.outcome(state), game.player(state), len(game.legal(state))) == (1.0, 0, 0)
    with pytest.raises(ValueError, match=r"'hold' is illegal in '0 0 0 A choose'; legal: roll"):
        game.play(game.parse(), 1)


def test_piglets_probabilities() -> None:
    # Neller and Presser 2004: to 2 with a coin; (own score, other's, the turn's total) -> probability to win.
    game = genpolicy.load_game(PIGLET)
    oracle = PigOracle(game)
    known = {(0, 0, 0): 4 / 7, (0, 0, 1): 5 / 7, (0, 1, 0): 2 / 5, (0, 1, 1): 3 / 5, (1, 0, 0): 4 / 5, (1, 1, 0): 2 / 3}
    for (own, other, turn), expected in known.items():
        state = game.parse(f"{2 * own} {2 * other} {2 * turn} A choose")
        assert oracle.win_probability(state) == pytest.approx(expected, abs=1e-9)
        mirrored = game.parse(f"{2 * other} {2 * own} {2 * turn} B choose")
        assert oracle.win_probability(mirrored) == pytest.approx(expected, abs=1e-9)


def test_goal_20_and_its_equations() -> None:
    game = genpolicy.load_game("pig:goal=20")
    oracle = make_oracle("pig", game)
    assert isinstance(oracle, PigOracle)
    assert oracle.win_probability(game.parse()) == pytest.approx(0.615559, abs=1e-6)
    draw = random.Random(3)
    for _ in range(50):  # the equations, position by position, by the rules alone
        state = game.parse(f"{draw.randrange(20)} {draw.randrange(20)} 0 A choose")
        for _ in range(draw.randrange(6)):
            if game.outcome(state) is None:
                state = game.play(state, drawn(game, state, draw))
        if game.outcome(state) is not None:
            continue

        def worth(move: int, state: Any = state) -> float:
            after = game.play(state, move)
            won = oracle.win_probability(after)
            return won if game.player(after) == game.player(state) else 1 - won

        worths = [worth(move) for move in game.legal(state).tolist()]
        shares = probabilities(game, state)
        expected = max(worths) if shares is None else float(shares @ np.array(worths))
        assert oracle.win_probability(state) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("spec", "holds", "choices"), [("pig:goal=20,faces=3", 1320, 3800), ("pig:goal=20", 0, 3800)])
def test_where_holding_is_best(spec: str, holds: int, choices: int) -> None:
    """The equations at every position with a choice. With six faces and so small a goal rolling is always best."""
    game = PigGame(**dict(part.split("=") for part in spec.removeprefix("pig:").split(",")))
    oracle, found = PigOracle(game), 0
    for own in range(game.goal):
        for other in range(game.goal):
            for turn in range(1, game.goal - own):
                state = game.parse(f"{own} {other} {turn} A choose")
                thrown = [game.play(game.play(state, 0), face) for face in range(2, 2 + game.faces)]
                busted, *others = (oracle.win_probability(after) for after in thrown)
                roll = (1 - busted + sum(others)) / game.faces
                hold = 1 - oracle.win_probability(game.parse(f"{own + turn} {other} 0 B choose"))
                assert oracle.win_probability(state) == pytest.approx(max(roll, hold), abs=1e-9)
                found += hold > roll + 1e-9
    assert (found, game.goal * game.goal * (game.goal - 1) // 2) == (holds, choices)


def test_labels_end_before_the_die_falls() -> None:
    game = genpolicy.load_game("pig:goal=20")
    hold, rolling, over = make_oracle("pig", game).analyse(
        [game.parse("15 0 4 A choose"), game.parse("0 0 0 A roll"), game.parse("15 0 6 A choose")], 4, move_values=True
    )
    assert set(hold.move_values) == {0, 1}
    assert hold.moves[-1] == 0
    assert not hold.ended
    assert "chance decides" in (rolling.error or "")
    assert "the game is over" in (over.error or "")


def plain_value(game: Game[Any], visits: int) -> tuple[float, dict[int, int]]:
    (result,) = Mcts(RulesModel(game, even), MctsConfig(simulations=visits)).search([game.parse()])
    return result.value, result.visits


def test_search_of_piglet_finds_its_value() -> None:
    value, _ = plain_value(genpolicy.load_game(PIGLET), 20_000)
    assert value == pytest.approx(1 / 7, abs=0.02)


def test_visits_of_a_die_are_even() -> None:
    game = genpolicy.load_game("pig:goal=20")
    model = RulesModel(game, even)
    check_search_model(model, [game.parse(), game.parse("3 4 5 B choose"), game.parse("3 4 5 B roll")])
    tree = Mcts(model, MctsConfig(simulations=3000)).search([game.parse()])[0].tree
    dice = [node for node in range(len(tree)) if tree.chance[node] and tree.visits[node] > 50]
    assert len(dice) > 5
    for node in dice:
        drawn_visits = [tree.visits[child] for child in tree.children[node] or ()]
        assert all(abs(visits - (tree.visits[node] - 1) / 6) <= 1 for visits in drawn_visits)


@pytest.mark.parametrize("spec", [PIGLET, "pig:goal=20", "pig:goal=12,faces=3,bust=2"])
def test_a_die_is_worth_the_mean_of_its_outcomes(spec: str) -> None:
    """With exact values of all other positions, those of the dice are exact."""
    game = genpolicy.load_game(spec)
    oracle = PigOracle(game)

    def exact(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        return [None] * len(states), [2 * oracle.win_probability(state) - 1 for state in states]

    tree = Mcts(RulesModel(game, exact), MctsConfig(simulations=200)).search([game.parse()])[0].tree
    dice = [node for node in range(len(tree)) if tree.chance[node]]
    assert len(dice) > 5
    for node in dice:
        expected = 2 * oracle.win_probability(tree.embeddings[node]) - 1
        assert tree.values[node] == pytest.approx(expected, abs=1e-9)


def test_chance_is_not_evaluated() -> None:
    game = genpolicy.load_game("pig:goal=20")
    asked: list[Any] = []

    def evaluator(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        asked.extend(states)
        return even(states)

    Mcts(RulesModel(game, evaluator), MctsConfig(simulations=100)).search([game.parse(), game.parse("0 0 0 A roll")])
    assert asked
    assert all(game.chance(state) is None for state in asked)


def test_rollouts_throw_dice() -> None:
    game = genpolicy.load_game("pig:goal=12")
    _, values = Rollout(game, num_games=2000, seed=1)([game.parse("11 0 0 A choose")])
    # Five faces in six win; after a 1 the other has some chance.
    assert 0.6 < values[0] < 1


def test_same_seed_same_dice() -> None:
    game = genpolicy.load_game("pig")
    rolling = game.parse("0 0 0 A roll")
    throws = [[drawn(game, rolling, random.Random(f"{seed}")) for seed in range(20)] for _ in range(2)]
    assert throws[0] == throws[1]
    assert len(set(throws[0])) == 6
    state, moves = settled(game, rolling, random.Random(1))
    assert len(moves) == 1
    assert game.chance(state) is None


class Loaded(PigGame):
    """Dice whose probabilities are wrong."""

    shares: Any = None

    def chance(self, state: Any) -> Any:
        return None if super().chance(state) is None else self.shares


@pytest.mark.parametrize(
    "shares", [np.full(6, 0.2), np.full(5, 0.2), np.array([1.5, -0.5, 0, 0, 0, 0]), np.full(6, np.nan), np.empty(0)]
)
def test_probabilities_that_are_none_are_named(shares: Any) -> None:
    game = Loaded(goal=20)
    game.shares = shares
    with pytest.raises(ValueError, match=r"chance decides in '0 0 0 A roll' between 6 outcomes"):
        drawn(game, game.parse("0 0 0 A roll"), random.Random(0))
    with pytest.raises(ValueError, match="chance decides in"):
        Mcts(RulesModel(game, even), MctsConfig(simulations=4)).search([game.parse()])
    with pytest.raises(AssertionError, match=r"chance|argument"):
        check_game(game, num_games=1)


def test_a_game_that_hides_its_chance_breaks_a_law() -> None:
    game = PigGame(goal=20)
    game.has_chance = False
    with pytest.raises(AssertionError, match="has_chance"):
        check_game(game, num_games=1)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [("alphabeta?depth=2", "alpha-beta does not support chance"), ("solver", "k-in-a-row")],
)
def test_what_does_not_know_chance_refuses_it(spelling: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_oracle(spelling, genpolicy.load_game("pig")).analyse([genpolicy.load_game("pig").parse()], 1)


def test_the_search_that_the_refusal_names_plays() -> None:
    game = genpolicy.load_game("pig:goal=20")
    with pytest.raises(ValueError, match="does not support chance") as refusal:
        genpolicy.load_policy("alphabeta?depth=2", game=game).decide([game.parse()])
    named = next(word for word in str(refusal.value).split() if word.startswith("mcts:"))
    assert genpolicy.load_policy(named, game=game).with_options(simulations=4).decide([game.parse()])[0].move in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"goal": 0}, "goal must be a whole number from 1 to 1000"),
        ({"faces": 1}, "faces must be a whole number from 2"),
        ({"bust": 7}, "bust must be a whole number from 1 to 6"),
        ({"goal": "x"}, "goal must be a whole number"),
    ],
)
def test_a_bad_game_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PigGame(**arguments)


def test_a_goal_that_is_too_large_to_solve() -> None:
    with pytest.raises(ValueError, match="goals up to 200"):
        PigOracle(PigGame(goal=1000))
    with pytest.raises(ValueError, match="smaller goal"):
        next(PigGame(goal=1000).positions())
    with pytest.raises(ValueError, match="solves Pig"):
        PigOracle(genpolicy.load_game("connect"))
