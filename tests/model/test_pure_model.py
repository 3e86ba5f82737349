"""Codes of own moves: with one code a move their search is that over moves, and what is learned of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from genpolicy import load_policy
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError
from genpolicy.testing.policies import check_learner, check_policy
from genpolicy.testing.search import check_search_model
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.selection import MctsConfig
from genpolicy_policy_model.code_model import Acted
from genpolicy_policy_model.pure_model import PureModel
from genpolicy_policy_model.vq import VQLearner, transitions
from genpolicy_policy_model.vq_policy import VQPolicy
from tests.model.test_code_model import GAME, PerfectCodes, perfect
from tests.model.test_latent_model import played
from tests.model.test_vq import batch_of, config, learner_of, states
from tests.small_datasets import solved_connect


class PerfectPlans(PerfectCodes):
    """A code of an own move is the number of that move, and 9, so that no code can be taken for a move."""

    def choose(self, latents: Sequence[Any], codes: NDArray[np.int64]) -> Acted:
        assert codes.min() >= 9
        return self.act(latents, codes - 9)

    def plan(self, latents: Sequence[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        policy, values = self.predict(latents)
        return np.concatenate([np.zeros_like(policy), policy], axis=1), values


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("solved"), horizon=1, every=3)


@pytest.mark.parametrize("chance", ["neutral", "adversarial", "cooperative"])
@pytest.mark.parametrize("plies", [0, 3])
def test_one_code_a_move_is_the_search_over_moves(plies: int, chance: Any) -> None:
    state, config = played(GAME, plies), MctsConfig(simulations=250, leaves=1, chance=chance)
    hybrid = Mcts(perfect(), config).search([state])[0]
    pure = Mcts(PureModel(GAME, PerfectPlans(), least=0.0), config).search([state])[0]
    assert pure.visits == hybrid.visits
    assert pure.tree.visits == hybrid.tree.visits
    assert pure.value == pytest.approx(hybrid.value, abs=1e-12)


def pure_of(seed: int = 0, **changed: Any) -> VQLearner:
    return learner_of(seed, **{"plan": "pure", "agent_codes": len(GAME.moves), **changed})


def identical(learner: VQLearner) -> None:
    """Give the codes of own moves the weights of the moves, and each move the code of its number."""
    network = learner.network
    assert network.planned is not None
    assert network.plan is not None
    assert network.by_latent is not None
    network.planned.load_state_dict(network.dynamics.state_dict())
    network.plan.load_state_dict(network.by_latent.state_dict())


def test_one_code_a_move_plays_and_learns_as_the_network_over_moves(
    solved: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights for codes as for moves: the same searches, and the same losses."""
    pure, hybrid = pure_of().eval(), learner_of().eval()
    hybrid.network.load_state_dict(pure.network.state_dict(), strict=False)
    identical(pure)
    found = []
    for learner in (pure, hybrid):
        model = VQPolicy(learner).search_model()
        assert model is not None
        found.append(Mcts(model, MctsConfig(simulations=30, chance="adversarial")).search(states()[:2]))
    assert isinstance(VQPolicy(pure).search_model(), PureModel)
    for one, other in zip(*found, strict=True):
        assert one.tree.visits == other.tree.visits
        assert one.value == pytest.approx(other.value, abs=1e-6)
    batch = batch_of(pure, solved)
    assert pure.network.move_codes is not None
    monkeypatch.setattr(pure.network.move_codes, "codes", lambda _, moves: moves)
    own = pure._own_codes(batch, torch.Generator().manual_seed(0))
    assert own is not None
    torch.testing.assert_close(own.policy, batch.policy)
    coded, codes = transitions(batch, pure.layout.mask), torch.zeros((*batch.moves.shape, 1), dtype=torch.int64)
    loss, _ = pure._model_loss(batch, codes, coded, own._replace(codes=batch.moves))
    torch.testing.assert_close(loss, hybrid._model_loss(batch, codes, coded)[0])


def test_moves_that_share_a_code_share_its_probability(solved: Dataset) -> None:
    learner = pure_of(agent_codes=2)
    batch = batch_of(learner, solved)
    own = learner._own_codes(batch, torch.Generator().manual_seed(0))
    assert own is not None
    torch.testing.assert_close(own.policy.sum(-1), batch.policy.sum(-1))
    assert own.policy.shape == (*batch.policy.shape[:2], 2)
    assert 0 <= int(own.codes.min()) <= int(own.codes.max()) < 2
    loss, parts = learner.loss(batch, torch.Generator().manual_seed(0))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(parts["moves"]) > 0
    assert learner.network.plan is not None
    for read in (learner.network.plan, learner.network.planned, learner.network.dynamics):
        assert read is not None  # moves are read at the root, codes below it
        assert any(p.grad is not None and bool(p.grad.any()) for p in read.parameters())


def test_settled_codes_of_moves_stay_as_they_are(solved: Dataset) -> None:
    learner, generator = pure_of(settle=0.5, agent_codes=4), torch.Generator().manual_seed(0)
    batch = batch_of(learner, solved)
    own = learner.network.move_codes
    assert own is not None
    for progress, moves in ((0.0, True), (0.5, False)):
        learner.at(progress)
        before = {name: value.clone() for name, value in own.state_dict().items()}
        learner.zero_grad()
        learner.loss(batch, generator)[0].backward()  # type: ignore[no-untyped-call]
        assert any(p.grad is not None for p in own.parameters()) == moves
        assert any(not torch.equal(before[name], value) for name, value in own.state_dict().items()) == moves


@pytest.mark.slow
def test_laws_of_learners(solved: Dataset) -> None:
    check_learner(functools.partial(pure_of, agent_codes=4), solved)


def test_laws_of_policies_and_models(tmp_path: Path) -> None:
    policy = VQPolicy(pure_of(agent_codes=4, num_books=2), mode="one_step")
    check_policy(policy, states()[:2], max_plies=2)
    model = policy.search_model()
    assert model is not None
    check_search_model(model, states()[:2], max_nodes=20)
    folder = policy.save_pretrained(tmp_path / "policy")
    assert load_policy(f"mcts:{folder}?simulations=6").decide([GAME.parse()])[0].move in GAME.legal(GAME.parse())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"plan": "pure"}, r"plan=pure .*set learner\.agent_codes to 2 at least"),
        ({"plan": "pure", "agent_codes": 4, "side": "both"}, "side=own; got agent_codes=4 and side=both"),
        ({"agent_codes": 4}, r"agent_codes=4 with plan=hybrid.*plan=pure, or agent_codes=0"),
        ({"plan": "puer"}, "plan must be one of hybrid, pure.*Did you mean"),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**changed)
