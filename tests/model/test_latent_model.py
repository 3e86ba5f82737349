"""A learned model that is right about everything is searched as the rules are, visit for visit."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from genpolicy import load_game
from genpolicy.game import Game
from genpolicy.search.model import Prior
from genpolicy.testing.search import check_search_model
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.rules import RulesModel
from genpolicy_mcts.selection import MctsConfig
from genpolicy_policy_model.latent import LatentModel

TTT = "connect:rows=3,cols=3,k=3,gravity=false"


def noise(text: str, name: str) -> float:
    """A number in [0, 1) that depends on a text alone."""
    return int.from_bytes(hashlib.blake2b(f"{name} {text}".encode(), digest_size=4).digest(), "big") / 2**32


def judge(game: Any, state: Any) -> tuple[dict[int, float], float]:
    """Made-up priors of the legal moves and a made-up value for the player to move."""
    text = game.format(state)
    weights = {move: 0.05 + noise(text, str(move)) for move in game.legal(state).tolist()}
    total = sum(weights.values())
    return {move: weight / total for move, weight in weights.items()}, 1.6 * noise(text, "value") - 0.8


class OwnGame:
    """A game as one of its players meets it: a move and the opponent's true reply are one."""

    has_chance = False

    def __init__(self, game: Game[Any], me: int) -> None:
        self.game, self.me = game, me

    def legal(self, state: Any) -> NDArray[np.int64]:
        return self.game.legal(state)

    def format(self, state: Any) -> str:
        return self.game.format(state)

    def player(self, state: Any) -> int:
        return self.me

    def outcome(self, state: Any) -> float | None:
        outcome = self.game.outcome(state)
        return outcome if outcome is None or self.game.player(state) == self.me else -outcome

    def play(self, state: Any, move: int) -> Any:
        state = self.game.play(state, move)
        return state if self.game.outcome(state) is not None else self.game.play(state, reply(self.game, state))


def reply(game: Game[Any], state: Any) -> int:
    legal = game.legal(state).tolist()
    return int(legal[int(noise(game.format(state), "reply") * len(legal))])


class Perfect:
    """A tabular model: a latent is a position with the root's player, and every head is right."""

    def __init__(self, game: Game[Any], *, own: bool = False) -> None:
        self.game, self.own = game, own

    def represent(self, states: Sequence[Any]) -> list[tuple[Any, int]]:
        return [(state, self.game.player(state)) for state in states]

    def step(
        self, latents: Sequence[Any], moves: NDArray[np.int64]
    ) -> tuple[list[Any], NDArray[np.float64], NDArray[np.float64]]:
        game, after, rewards, ends = self.game, [], [], []
        for (state, viewer), move in zip(latents, moves.tolist(), strict=True):
            mover = game.player(state)
            state = game.play(state, int(game.moves.seen_by(np.array(move), viewer)))
            if self.own and game.outcome(state) is None:
                state = game.play(state, reply(game, state))
            outcome = game.outcome(state)
            after.append((state, viewer))
            ends.append(float(outcome is not None))
            rewards.append(0.0 if outcome is None else outcome if game.player(state) == mover else -outcome)
        return after, np.array(rewards), np.array(ends)

    def predict(self, latents: Sequence[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        policy = np.zeros((len(latents), len(self.game.moves)))
        values = np.zeros(len(latents))
        for row, (state, viewer) in enumerate(latents):
            if self.game.outcome(state) is None:
                priors, values[row] = judge(self.game, state)
                for move, prior in priors.items():
                    policy[row, int(self.game.moves.seen_by(np.array(move), viewer))] = prior
        return policy, values


def evaluator(game: Any) -> Any:
    def evaluate(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        rows = [judge(game, state) for state in states]
        return [priors for priors, _ in rows], [value for _, value in rows]

    return evaluate


def played(game: Game[Any], num: int) -> Any:
    """A position after some moves that depend on nothing."""
    state = game.parse()
    for _ in range(num):
        state = game.play(state, reply(game, state))
    return state


@pytest.mark.parametrize(
    ("spec", "plies", "simulations"), [(TTT, 0, 300), (TTT, 3, 300), ("chess", 4, 60), ("chess", 7, 60)]
)
def test_a_perfect_model_of_both_sides_is_the_rules(spec: str, plies: int, simulations: int) -> None:
    pytest.importorskip("chess")
    game: Game[Any] = load_game(spec)
    state = played(game, plies)
    config = MctsConfig(simulations=simulations, leaves=1)
    by_rules = Mcts(RulesModel(game, evaluator(game)), config).search([state])[0]
    learned = LatentModel(game, Perfect(game), top=len(game.moves))
    by_model = Mcts(learned, config).search([state])[0]
    assert by_model.visits == by_rules.visits
    assert by_model.line == by_rules.line
    assert by_model.value == pytest.approx(by_rules.value, abs=1e-9)
    assert max(by_model.visits.values()) > simulations / 10  # it does go down


@pytest.mark.parametrize("plies", [0, 1, 2, 3])
def test_a_perfect_model_of_ones_own_side_is_the_rules_with_the_reply(plies: int) -> None:
    game: Game[Any] = load_game(TTT)
    state = played(game, plies)
    own = OwnGame(game, game.player(state))
    config = MctsConfig(simulations=200, leaves=1)
    by_rules = Mcts(RulesModel(cast("Any", own), evaluator(own)), config).search([state])[0]
    by_model = Mcts(LatentModel(game, Perfect(game, own=True), alternates=False), config).search([state])[0]
    assert by_model.visits == by_rules.visits
    assert by_model.value == pytest.approx(by_rules.value, abs=1e-9)


def test_without_terminal_nodes_a_line_goes_on_beyond_the_end() -> None:
    """At the end the perfect model's policy is empty, so let it be even there."""
    game: Game[Any] = load_game(TTT)

    class Unaware(Perfect):
        def predict(self, latents: Sequence[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            policy, values = super().predict(latents)
            policy[policy.sum(1) == 0] = 1 / policy.shape[1]
            return policy, values

    state = played(game, 7)
    won = next(m for m in game.legal(state).tolist() if game.outcome(game.play(state, m)) is not None)
    for terminal, discount in ((True, 0.0), (False, -1.0)):
        model = LatentModel(game, Unaware(game), terminal=terminal)
        root = model.root([state])
        after = model.expand(root.embeddings, [won])
        assert after.discounts[0] == discount
        assert len(after.choices[0].ids) == (0 if terminal else 9)


def test_top_keeps_the_likeliest_moves_of_imagined_positions_only() -> None:
    game: Game[Any] = load_game(TTT)
    model = LatentModel(game, Perfect(game), top=3)
    root = model.root([game.parse()])
    assert len(root.choices[0].ids) == 9
    after = model.expand(root.embeddings, [4])
    priors, _ = judge(game, game.play(game.parse(), 4))
    best = sorted(sorted(priors, key=lambda move: -priors[move])[:3])
    assert after.choices[0].ids.tolist() == best
    total = sum(priors[move] for move in best)
    np.testing.assert_allclose(after.choices[0].priors, [priors[move] / total for move in best])


def test_a_perfect_model_passes_the_laws_of_search_models() -> None:
    game: Game[Any] = load_game(TTT)
    check_search_model(LatentModel(game, Perfect(game)), [played(game, n) for n in range(4)])
    with pytest.raises(ValueError, match="the game is over"):
        LatentModel(game, Perfect(game)).root([_finished(game)])


def _finished(game: Game[Any]) -> Any:
    state = game.parse()
    while game.outcome(state) is None:
        state = game.play(state, reply(game, state))
    return state
