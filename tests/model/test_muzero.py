"""MuZero's learner and policy: gradients, absorbing states, transforms, the laws of learners, policies and models."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genpolicy import load_game, load_policy
from genpolicy.data.records import Dataset
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.game import Game
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.value_heads import two_hot
from genpolicy.policies.thinking import Answer, Limits
from genpolicy.testing.policies import check_learner, check_policy
from genpolicy.testing.search import check_search_model
from genpolicy_common.labelled import LabelledPosition
from genpolicy_evaluation.boards import measure_boards
from genpolicy_policy_model.config import MuZeroConfig
from genpolicy_policy_model.episodes import EpisodeBatch
from genpolicy_policy_model.muzero import MuZeroLearner
from genpolicy_policy_model.policy import MuZeroPolicy
from genpolicy_policy_model.transforms import scaled, unscaled
from tests.small_datasets import CONNECT, solved_connect

GAME: Game[Any] = load_game(CONNECT)
SMALL = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 8}


def config(**changed: Any) -> MuZeroConfig:
    network = NetworkConfig(**{**SMALL, **changed.pop("network", {})})
    given = {"latent": "vector", "latent_width": 32, "dynamics_layers": 1, "unroll": 3, "source": "walks", **changed}
    return MuZeroConfig(network=network, **given)


def learner_of(seed: int = 0, game: Game[Any] = GAME, **changed: Any) -> MuZeroLearner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MuZeroLearner(game, config(**changed))


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("solved"), horizon=1, every=3)


def batch_of(learner: MuZeroLearner, data: Dataset, num: int = 64) -> EpisodeBatch:
    batch = learner.windows(data, "train", seed=1).batch(np.arange(0, 4 * num, 4), 0)
    assert isinstance(batch, EpisodeBatch)
    return batch


def states() -> list[Any]:
    made = [GAME.parse()]
    for move in (4, 0, 8, 2):
        made.append(GAME.play(made[-1], move))
    return made


# Values that may be large.


def test_the_transform_has_its_published_numbers_and_an_exact_inverse() -> None:
    x = torch.tensor([1.0, 100.0, -1.0], dtype=torch.float64)
    expected = [2**0.5 - 1 + 0.001, 101**0.5 - 1 + 0.1, 1 - 2**0.5 - 0.001]
    torch.testing.assert_close(scaled(x), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    assert float(scaled(x)[1]) == pytest.approx(9.149875621, abs=1e-9)
    wide = torch.linspace(-1e4, 1e4, 20_001, dtype=torch.float64)
    torch.testing.assert_close(unscaled(scaled(wide)), wide, rtol=0, atol=1e-9)


def test_two_hot_targets_have_the_transformed_value_as_their_mean() -> None:
    learner = learner_of(value="categorical", transform=True, support=[-2.0, 2.0, 21])
    head, values = learner.network.value, torch.linspace(-1, 1, 41)
    targets = learner.network.targets(head, values)
    assert int((targets > 0).sum(-1).max()) == 2
    torch.testing.assert_close(targets, two_hot(scaled(values), head.support))
    logits = targets.clamp(min=1e-30).log()
    torch.testing.assert_close(learner.network.mean(head, logits), values, atol=1e-5, rtol=0)


# The loss.


@pytest.mark.parametrize("latent", ["vector", "squares"])
def test_the_last_move_reaches_the_representation_with_two_to_the_minus_k(solved: Dataset, latent: str) -> None:
    """All labels but the last are taken away; without the halving the gradient is 2^K as large."""
    learner = learner_of(latent=latent)
    batch = batch_of(learner, solved)
    value, policy = torch.full_like(batch.value, torch.nan), torch.zeros_like(batch.policy)
    value[:, -1], policy[:, -1] = batch.value[:, -1], batch.policy[:, -1]
    nothing = torch.full_like(batch.reward, torch.nan)
    only_last = dataclasses.replace(batch, value=value, policy=policy, reward=nothing)
    weight = learner.network.trunk.embedding.symbol.weight
    loss, _ = learner.loss(only_last, torch.Generator())
    (mine,) = torch.autograd.grad(loss, weight)
    network = learner.network
    plain = network.represent(batch.states[:, 0])
    for k in range(3):
        plain = network.step(plain, batch.moves[:, k])
    ce = -(policy[:, -1] * network.policy(plain).log_softmax(-1)).sum(-1).mean()
    ce = ce + network.value.losses(network.value(plain), network.targets(network.value, value[:, -1])).mean()
    (whole,) = torch.autograd.grad(ce / 3, weight)
    assert float(whole.abs().max()) > 1e-6
    torch.testing.assert_close(mine, whole / 2**3, rtol=1e-3, atol=1e-9)


def test_post_norm_blocks_are_drawn_as_deepnorms() -> None:
    network = learner_of(
        latent="squares", dynamics_layers=2, network={"norm": "post", "width": 64, "num_layers": 3}
    ).network
    parts: list[tuple[Any, int]] = [(network.trunk.blocks, 3), (network.dynamics.blocks, 2)]
    for blocks, layers in parts:
        for block in blocks:  # Xavier's rule times (8 layers)^-1/4; 4,096 draws, whose spread is known to 1.1 %
            expected = (8 * layers) ** -0.25 * (2 / (64 + 64)) ** 0.5
            assert block.attention.out.weight.std().item() == pytest.approx(expected, rel=0.06)


def test_the_loss_is_the_sum_over_the_moves(solved: Dataset) -> None:
    """Row by row and move by move, with labels that are not known left out."""
    learner = learner_of(value_weight=0.5, reward_weight=2.0, end_weight=3.0)
    batch, network = batch_of(learner, solved, 24), learner.network
    expected = 0.0
    with torch.no_grad():
        for row in range(24):
            latent = network.represent(batch.states[row : row + 1, 0])
            for k in range(4):
                weight = 1.0 if k == 0 else 1 / 3
                terms = 0.0
                if k:
                    latent = network.step(latent, batch.moves[row : row + 1, k - 1])
                    reward = batch.reward[row, k - 1 : k]
                    if not reward.isnan():
                        logits = network.reward(latent).log_softmax(-1)
                        terms -= 2 * float(logits[0, [0, 1, 2][int(1 - reward)]])
                        if batch.live[row, k - 1]:
                            assert network.end is not None
                            chance = float(network.end(latent).sigmoid())
                            terms -= 3 * float(np.log(1 - chance if batch.live[row, k] else chance))
                target = batch.policy[row, k]
                if batch.live[row, k] and target.sum() > 0:
                    terms -= float((target * network.policy(latent)[0].log_softmax(-1)).sum())
                if not batch.value[row, k].isnan():
                    logits = network.value(latent).log_softmax(-1)
                    terms -= 0.5 * float(logits[0, int(1 - batch.value[row, k])])
                expected += weight * terms
    loss, parts = learner.loss(batch, torch.Generator())
    assert float(loss.detach()) == pytest.approx(expected / 24, rel=1e-4)
    assert set(parts) == {"policy", "value", "reward", "end"}


def test_states_after_the_end_carry_no_policy_loss(solved: Dataset) -> None:
    learner = learner_of()
    batch = batch_of(learner, solved, 256)
    assert float(batch.policy[~batch.live].abs().sum()) == 0
    over = ~batch.live[:, 1] & ~batch.reward[:, 0].isnan()
    assert int(over.sum()) > 10
    rows = batch.rows(over.nonzero()[:, 0])
    rows = dataclasses.replace(rows, policy=rows.policy * torch.tensor([0.0, 1.0, 1.0, 1.0])[None, :, None])
    loss, parts = learner.loss(rows, torch.Generator())
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(parts["policy"]) == 0
    head = learner.network.by_latent
    assert head is not None
    assert all(p.grad is None or float(p.grad.abs().max()) == 0 for p in head.parameters())
    assert any(p.grad is not None and float(p.grad.abs().max()) > 0 for p in learner.network.value.parameters())


def test_consistency_compares_own_positions_and_moves_no_true_latent(solved: Dataset) -> None:
    plain, held = learner_of(), learner_of(consistency=1.0)
    held.network.load_state_dict(plain.network.state_dict())
    batch = batch_of(plain, solved)
    without, _ = plain.loss(batch, torch.Generator())
    loss, parts = held.loss(batch, torch.Generator())
    assert 0 < float(parts["ahead"]) < 2
    torch.testing.assert_close(loss - without, parts["ahead"])
    assert not any(name.startswith("ahead") for name in held.network.state_dict())
    masked = dataclasses.replace(batch, states=batch.states.clone())
    masked.states[:, 1] = held.layout.pad  # after one move the other player is to move: not compared
    torch.testing.assert_close(held.loss(masked, torch.Generator())[0], loss)


@pytest.mark.parametrize("consistency", [0.0, 1.0])
def test_a_run_may_begin_with_a_policy_whose_training_had_another_consistency(consistency: float) -> None:
    source, learner = learner_of(consistency=1.0 - consistency), learner_of(1, consistency=consistency)
    learner.take_weights(source)
    taken = learner.network.state_dict()
    assert all(torch.equal(taken[name], each) for name, each in source.network.state_dict().items())


# The laws of learners, policies and models.


@pytest.mark.slow
@pytest.mark.parametrize("latent", ["vector", "squares"])
def test_laws_of_learners(solved: Dataset, latent: str) -> None:
    check_learner(lambda: learner_of(latent=latent, unroll=2), solved)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("changed", [{}, {"latent": "squares"}, {"side": "own", "end_head": False}], ids=str)
@pytest.mark.parametrize("mode", ["prior", "one_step"])
def test_laws_of_policies_and_models(changed: dict[str, Any], mode: str) -> None:
    policy = MuZeroPolicy(learner_of(**changed), mode=mode)
    check_policy(policy, states(), max_plies=4)
    model = policy.search_model()
    assert model is not None
    check_search_model(model, states(), max_nodes=30)
    nodes = model.root(states())
    for row, state in enumerate(states()):
        assert nodes.choices[row].ids.tolist() == GAME.legal(state).tolist()
        priors = nodes.choices[row].priors
        assert priors is not None
        assert float(priors.sum()) == pytest.approx(1.0)


def test_one_step_plays_the_move_with_the_best_reward_and_value() -> None:
    policy = MuZeroPolicy(learner_of(3), mode="one_step")
    model = policy.search_model()
    assert model is not None
    for state, decision in zip(states(), policy.decide(states()), strict=True):
        root = model.root([state])
        worth = {}
        for move in GAME.legal(state).tolist():
            after = model.expand(root.embeddings, [move])
            worth[move] = after.rewards[0] + after.discounts[0] * after.values[0]
        assert worth[decision.move] == pytest.approx(max(worth.values()), abs=1e-6)
        assert decision.value == pytest.approx(max(worth.values()), abs=1e-6)


def test_a_search_takes_the_model_of_a_folder_and_its_options(tmp_path: Path) -> None:
    folder = learner_of().policy().save_pretrained(tmp_path / "policy")
    search = load_policy(f"mcts:{folder}?simulations=12")
    decision = search.decide([GAME.parse()])[0]
    assert decision.stats["simulations"] == 12
    assert decision.line
    assert decision.states == ()  # it knows no positions, so none of them may be counted as wrong
    assert all(each.states == () for each in decision.variations)
    with pytest.raises(ValueError, match="imagines no board after a move"):
        measure_boards(search, [LabelledPosition(GAME.parse(), (), frozenset(), 9, "")], name="search")
    answers: list[Answer] = []
    thinker = search.thinker()
    assert thinker is not None
    thinker.think(GAME.parse(), Limits(), answers.append)
    assert answers[-1].imagined
    assert answers[-1].states == ()
    assert decision.stats["network_calls"] >= 3
    beyond = load_policy(f"mcts:{folder}?simulations=12&terminal=false&top=5&leaves=1").decide([GAME.parse()])[0]
    assert beyond.stats["network_calls"] == 13  # the root, and a leaf for each simulation
    for of_rules in ("model=rules", "value=even", "prior=uniform&model=rules"):
        rules = load_policy(f"mcts:{folder}?simulations=12&{of_rules}").decide([GAME.parse()])[0]
        assert any(text is not None for text in rules.states)
    for option in ("prior=uniform", "value=even"):
        with pytest.raises(ValueError, match="model=latent with prior= or value=, which judge positions of the rules"):
            load_policy(f"mcts:{folder}?model=latent&{option}")


# Bad input.


@pytest.mark.parametrize("name", ["policy", "value", "reward", "end"])
def test_a_head_that_gives_nan_is_named(name: str) -> None:
    learner = learner_of()
    head = {"policy": learner.network.by_latent}.get(name) or getattr(learner.network, name)
    with torch.no_grad():
        head.out.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=f"the network's {name} head gives numbers that are not finite"):
        MuZeroPolicy(learner, mode="one_step").decide([GAME.parse()])


def test_a_policy_of_another_game_is_named(tmp_path: Path) -> None:
    folder = learner_of().policy().save_pretrained(tmp_path / "policy")
    with pytest.raises(CheckpointError, match="this policy plays 'connect:rows=3"):
        load_policy(f"mcts:{folder}?simulations=2", game="connect:rows=4,cols=4,k=3,gravity=false")


def test_an_option_of_a_folder_without_a_value_is_named(tmp_path: Path) -> None:
    folder = learner_of().policy().save_pretrained(tmp_path / "policy")
    file = folder / "config.yaml"
    file.write_text(file.read_text().replace("top: 64", "top: null"))
    with pytest.raises(CheckpointError, match=r"config\.yaml: play\.top has no value"):
        load_policy(folder)


def test_an_end_that_was_not_learnt_cannot_be_asked_for() -> None:
    learner = learner_of(end_head=False)
    assert learner.policy().own_options()["terminal"] is False
    with pytest.raises(ValueError, match=r"terminal=true: .*end_head=false"):
        MuZeroPolicy(learner, terminal=True)
    model = learner.policy().search_model()
    assert model is not None
    with pytest.raises(ValueError, match=r"terminal=true: .*end_head=false"):
        model.with_options(terminal=True)
    assert model.with_options(top=5).top == 5


def test_walks_are_as_long_as_unroll_in_the_split_that_is_trained_on(solved: Dataset) -> None:
    learner = learner_of(unroll=3)
    learner.trained_split = "test"
    lengths = {split: learner.windows(solved, split, seed=0).batch(np.arange(2), 0) for split in ("test", "train")}
    assert {split: batch.moves.shape[1] for split, batch in lengths.items()} == {"test": 3, "train": 1}


def test_more_moves_than_the_games_have_names_the_learners_option(solved: Dataset) -> None:
    with pytest.raises(ConfigError, match=r"learner\.unroll=20: no run of moves in split 'train'"):
        learner_of(unroll=20).windows(solved, "train", seed=0)
    with pytest.raises(ConfigError, match=r"^learner.value_target must be one of label, result"):
        learner_of(value_target="mix:2").windows(solved, "train", seed=0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"latent": "square"}, "latent must be one of squares, vector.*Did you mean"),
        ({"unroll": 0}, "unroll must be at least 1"),
        ({"support": [1.0, -1.0, 5]}, "support is"),
        ({"support": [-math.inf, math.inf, 5]}, "support is"),
        ({"support": [-1.0, 1.0, 5.5]}, "support is"),
        ({"support": [0.5, 1.0, 5], "value": "categorical"}, "support must hold all values from -1 to 1"),
        ({"support": [0.0, 0.1, 5], "value": "categorical", "transform": True}, r"all values from -0\.4152 to 0\.4152"),
        ({"network": {"move_symbols": True}}, "move_symbols reads positions"),
        ({"transform": True}, "value=categorical"),
        ({"value_weight": -1.0}, "value_weight must be at least 0"),
        ({"network": {"dropout": 0.1}}, "dropout=0"),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**changed)


def test_gumbel_search_takes_the_model_too(tmp_path: Path) -> None:
    folder = learner_of().policy().save_pretrained(tmp_path / "policy")
    decision = load_policy(f"mcts:{folder}?simulations=8&root=gumbel").decide([GAME.parse()])[0]
    assert decision.policy is not None
    assert sum(decision.policy.values()) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="leaves"):
        load_policy(f"mcts:{folder}?simulations=8&root=gumbel&leaves=4")
