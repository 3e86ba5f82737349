"""Which matrices of a learned model Muon moves: those between hidden layers, no table, autoencoder, head or bias."""

from __future__ import annotations

from typing import Any

import pytest

from genpolicy import load_game
from genpolicy.networks.config import NetworkConfig
from genpolicy.training.config import OptimConfig
from genpolicy.training.optim import make_optimizers
from genpolicy_policy_model.config import MuZeroConfig
from genpolicy_policy_model.learner import ModelLearner
from genpolicy_policy_model.muzero import MuZeroLearner
from genpolicy_policy_model.unizero import UniZeroLearner
from genpolicy_policy_model.unizero_config import UniZeroConfig
from genpolicy_policy_model.vq import VQLearner
from genpolicy_policy_model.vq_config import VQConfig
from tests.small_datasets import CONNECT

GAME = load_game(CONNECT)
BLOCK = ("attention.qkv", "attention.out", "mlp.inner", "mlp.out")


def network(**changed: Any) -> NetworkConfig:
    return NetworkConfig(geometry="board", head="typed", num_layers=1, width=16, num_heads=2, move_rank=8, **changed)


def layers(name: str, count: int = 2) -> set[str]:
    return {f"{name}.{part}.{i}.weight" for part in ("inner", "out") for i in range(count)}


LEARNERS = {
    "muzero": (
        lambda: MuZeroLearner(GAME, MuZeroConfig(network=network(bias="relative"), latent="squares", consistency=1.0)),
        {f"trunk.blocks.0.{part}.weight" for part in BLOCK}
        | {f"dynamics.blocks.{i}.{part}.weight" for i in range(2) for part in BLOCK}
        | {"dynamics.carried.weight"},
    ),
    "vq": (
        lambda: VQLearner(GAME, VQConfig(network=network(), plan="pure", agent_codes=4)),
        {f"trunk.blocks.0.{part}.weight" for part in BLOCK}
        | layers("dynamics")
        | layers("answered")
        | layers("planned"),
    ),
    "vq on squares": (
        lambda: VQLearner(GAME, VQConfig(network=network(), latent="squares")),
        {f"trunk.blocks.0.{part}.weight" for part in BLOCK}
        | {f"{name}.blocks.{i}.{part}.weight" for name in ("dynamics", "answered") for i in range(2) for part in BLOCK}
        | {"dynamics.carried.weight", "answered.carried.weight"}
        | {f"answered.{part}.{i}.weight" for part in ("by_place", "queries", "keys") for i in range(2)},
    ),
    "unizero": (
        lambda: UniZeroLearner(GAME, UniZeroConfig(network=network(), width=32, heads=2, layers=1)),
        {f"encoder.trunk.blocks.0.{part}.weight" for part in BLOCK}
        | {f"transformer.blocks.0.{part}.weight" for part in ("to_memory", "out", "inner", "outer")},
    ),
}


@pytest.mark.parametrize("kind", sorted(LEARNERS))
def test_muon_moves_the_matrices_between_hidden_layers(kind: str) -> None:
    make, expected = LEARNERS[kind]
    learner: ModelLearner = make()
    optimizers = make_optimizers(learner.param_groups(0.1), OptimConfig(name="muon"))
    moved = {id(p) for group in optimizers["muon"].param_groups for p in group["params"]}
    assert {name for name, p in learner.network.named_parameters() if id(p) in moved} == expected


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
@pytest.mark.parametrize("kind", sorted(LEARNERS))
def test_tables_of_its_attention_bias_learn_at_a_rate_of_their_own(kind: str, optimiser: str) -> None:
    learner: ModelLearner = LEARNERS[kind][0]()
    tables = {id(p) for name, p in learner.network.named_parameters() if name.endswith(("bias.space", "bias.time"))}
    optimizers = make_optimizers(learner.param_groups(0.1), OptimConfig(name=optimiser, lr=1e-3, bias_lr=8))
    groups = [group for each in optimizers.values() for group in each.param_groups]
    fast = [id(p) for group in groups for p in group["params"] if group["lr"] == pytest.approx(8e-3)]
    assert len(fast) == len(tables) > 0
    assert set(fast) == tables
    assert sum(len(group["params"]) for group in groups) == sum(p.requires_grad for p in learner.parameters())
