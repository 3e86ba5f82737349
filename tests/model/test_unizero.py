"""UniZero: keys and values kept in a tree, the loss, the slow encoder, the laws of learners, policies and models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from genpolicy import load_game, load_policy
from genpolicy.control import FREE
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import CheckpointError, ConfigError, DatasetError
from genpolicy.game import Game
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.value_heads import ReadoutConfig
from genpolicy.testing.policies import check_learner, check_policy
from genpolicy.testing.search import check_search_model
from genpolicy_policy_model.config import MuZeroConfig
from genpolicy_policy_model.episodes import EpisodeBatch
from genpolicy_policy_model.muzero import MuZeroLearner
from genpolicy_policy_model.policy import MuZeroPolicy
from genpolicy_policy_model.unizero import UniZeroLearner
from genpolicy_policy_model.unizero_config import UniZeroConfig
from genpolicy_policy_model.unizero_network import faded, latent_losses, normalised
from genpolicy_policy_model.unizero_policy import TransformerDynamics, UniZeroPolicy
from genpolicy_policy_model.unizero_transformer import BEFORE_ALL, CausalTransformer, Node, gathered
from tests.small_datasets import CONNECT, solved_connect, write_dataset

GAME: Game[Any] = load_game(CONNECT)
SMALL = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 8}


def config(**changed: Any) -> UniZeroConfig:
    network = NetworkConfig(**{**SMALL, **changed.pop("network", {})})
    given = {"width": 32, "heads": 2, "unroll": 4, "context": 3, "source": "walks", **changed}
    return UniZeroConfig(network=network, readout=ReadoutConfig(pool="mean", inner=32), **given)


def learner_of(seed: int = 0, game: Game[Any] = GAME, **changed: Any) -> UniZeroLearner:
    """Small and random, with weights large enough for every token to matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learner = UniZeroLearner(game, config(**changed))
        for parameter in [*learner.network.transformer.parameters(), *learner.network.moves.parameters()]:
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.3)
        nn.init.normal_(learner.network.turn.weight)
        return learner


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("solved"), horizon=1, every=3)


def line_of(moves: tuple[int, ...]) -> list[Any]:
    states = [GAME.parse()]
    for move in moves:
        states.append(GAME.play(states[-1], move))
    return states


STATES = line_of((4, 0, 8, 2))


def batch_of(learner: UniZeroLearner | MuZeroLearner, data: Dataset, num: int = 64) -> EpisodeBatch:
    batch = learner.windows(data, "train", seed=1).batch(np.arange(0, 4 * num, 4), 0)
    assert isinstance(batch, EpisodeBatch)
    return batch


# Keys and values in a tree.


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
@pytest.mark.parametrize("context", [1, 4, 20])
def test_a_random_tree_is_what_one_pass_over_each_of_its_lines_gives(
    dtype: torch.dtype, tolerance: float, context: int
) -> None:
    """Depth 12; nodes of all depths are expanded together, as leaves of several trees are."""
    generator = torch.Generator().manual_seed(context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = CausalTransformer(16, 2, 2, context).to(dtype)
        for block in model.blocks:
            for parameter in block.parameters():
                if parameter.ndim == 2:
                    nn.init.normal_(parameter, std=0.3)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, 16, generator=generator, dtype=dtype)

    roots = drawn(1, 5)  # two plies of context and the root: z a z a z
    out, own = model(roots, torch.tensor([[0, 0, 1, 1, 2]]))
    nodes = [Node(own.memory[0], (0, 0, 1, 1, 2), out[0, -1], None, False)]
    lines = [roots[0]]
    for _ in range(12):
        deepest = max(range(len(nodes)), key=lambda i: nodes[i].ply)
        picks = [deepest, *torch.randint(len(nodes), (4,), generator=generator).tolist()]
        chosen, tokens = [nodes[i] for i in picks], drawn(5, 2)
        plies = torch.tensor([[node.ply] for node in chosen])
        past = gathered(chosen, context)
        _, of_move = model(tokens[:, :1], plies, past)
        out, of_latent = model(tokens[:, 1:], plies + 1, past.then(of_move))
        memory = of_move.then(of_latent).memory
        for row, (i, parent) in enumerate(zip(picks, chosen, strict=True)):
            nodes.append(Node(memory[row], (parent.ply, parent.ply + 1), out[row, 0], parent, False))
            lines.append(torch.cat([lines[i], tokens[row]]))
    assert max(node.ply for node in nodes) == 14
    for node, line in zip(nodes, lines, strict=True):
        plies = torch.tensor([[min(i // 2, node.ply) for i in range(len(line))]])
        whole, _ = model(line[None], plies)
        torch.testing.assert_close(node.features, whole[0, -1], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("side", ["both", "own"])
@pytest.mark.parametrize("context", [1, 3])
def test_the_model_in_a_tree_is_the_network_over_the_line(side: str, context: int) -> None:
    """Policy, value, reward and end four plies below a root with history, against passes over the whole line."""
    learner = learner_of(side=side, context=context).double()
    network, dynamics = learner.network, TransformerDynamics(UniZeroPolicy(learner), FREE)
    states, played = (STATES[::2], (4, 8)) if side == "own" else (STATES, (4, 0, 8, 2))
    nodes = dynamics.represent([STATES[-1]])
    viewer = 0
    rows = learner.layout.tokenizer.encode(states, [viewer] * len(states)).astype(np.int64)
    latents = list(network.encoder(torch.from_numpy(rows)).detach())
    moves = list(played)
    for move in (1, 5, 3, 6):
        nodes, rewards, ends = dynamics.step(nodes, np.array([move]))
        moves.append(move)
        plies = torch.arange(len(latents) + 1)[None]
        tokens, at = network.interleaved(torch.stack([*latents, latents[0]])[None], torch.tensor([moves]), plies)
        with torch.no_grad():
            out, _ = network.transformer(tokens, at)
            latents.append(network.next_latent(out[0, -2]))
            assert network.end is not None
            expected = network.mean(network.reward, network.reward(out[:, -2:-1])), network.end(out[:, -2:-1]).sigmoid()
            tokens, at = network.interleaved(torch.stack(latents)[None], torch.tensor([moves]), plies)
            out, _ = network.transformer(tokens, at)
            logits, value = network.policy(out[:, -1]), network.mean(network.value, network.value(out[:, -1:]))
        np.testing.assert_allclose([rewards[0], ends[0]], [float(each) for each in expected], atol=1e-10)
        policy, values = dynamics.predict(nodes)
        np.testing.assert_allclose(policy, logits.softmax(-1), atol=1e-10)
        np.testing.assert_allclose(values, value, atol=1e-10)


def test_history_beyond_what_the_layers_reach_is_left_out_and_changes_nothing() -> None:
    """Two layers of two plies each reach two plies back."""
    learner = learner_of(context=2).double()
    dynamics = TransformerDynamics(UniZeroPolicy(learner), FREE)
    (short,) = dynamics.represent([STATES[-1]])
    assert len(short.plies) == 5  # z a z a z
    learner.config.layers = 4  # reads all four plies of history, with the same two layers
    (long,) = dynamics.represent([STATES[-1]])
    assert len(long.plies) == 9
    torch.testing.assert_close(short.features, long.features, atol=1e-10, rtol=0)


def test_a_row_ignores_padding_and_the_other_rows() -> None:
    dynamics = TransformerDynamics(UniZeroPolicy(learner_of().double()), FREE)
    together = dynamics.represent(STATES)
    assert [len(node.plies) for node in together] == [1, 3, 5, 7, 9]
    for state, node in zip(STATES, together, strict=True):
        (alone,) = dynamics.represent([state])
        assert alone.plies == node.plies
        torch.testing.assert_close(alone.features, node.features, atol=1e-10, rtol=0)
        torch.testing.assert_close(alone.memory, node.memory, atol=1e-10, rtol=0)


def test_scores_depend_on_the_distance_of_plies_alone() -> None:
    learner = learner_of().double()
    tokens = torch.randn(1, 7, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plies = torch.tensor([[0, 0, 1, 1, 2, 2, 3]])
    here, _ = learner.network.transformer(tokens, plies)
    later, _ = learner.network.transformer(tokens, plies + 40)
    torch.testing.assert_close(here, later, atol=1e-10, rtol=0)
    with_gap, _ = learner.network.transformer(tokens, plies + torch.tensor([[0, 0, 0, 0, 1, 1, 1]]))
    assert float((here - with_gap).abs().max().detach()) > 1e-3


def test_an_end_that_was_not_learnt_cannot_be_asked_for() -> None:
    model = learner_of(end_head=False).policy().search_model()
    assert model is not None
    with pytest.raises(ValueError, match=r"terminal=true: .*end_head=false"):
        model.with_options(terminal=True)


def test_memory_grows_with_the_nodes_and_not_with_their_depth() -> None:
    dynamics = TransformerDynamics(UniZeroPolicy(learner_of()), FREE)
    nodes = dynamics.represent([GAME.parse()])
    sizes = []
    for depth in range(40):
        nodes = dynamics.step(nodes, np.array([depth % 9]))[0]
        sizes.append(nodes[0].memory.untyped_storage().nbytes())
    layers, both, width, tokens, number = 2, 2, 32, 2, 4
    assert set(sizes) == {layers * both * width * tokens * number}
    assert gathered(nodes, 3).plies.shape == (1, 5)  # z a z a z of three plies


# What is trained.


def test_without_context_it_is_muzeros_heads_on_the_latent(solved: Dataset) -> None:
    learner = learner_of(context=1, norm="layer", value_weight=1.0)
    network = learner.network
    with torch.no_grad():
        for block in network.transformer.blocks:
            for linear in (block.out, block.outer):
                linear.weight.zero_()
                linear.bias.zero_()
        network.turn.weight.zero_()
    shape = NetworkConfig(**SMALL)
    muzero = MuZeroLearner(
        GAME,
        MuZeroConfig(network=shape, readout=network.config.readout, latent="vector", latent_width=32, source="walks"),
    )
    theirs = muzero.network
    assert theirs.by_latent is not None
    assert theirs.to_vector is not None
    pairs: list[tuple[nn.Module, nn.Module]] = [
        (theirs.trunk, network.encoder.trunk),
        (theirs.to_vector, network.encoder.to_latent),
        (theirs.by_latent, network.policy_head),
        (theirs.value, network.value),
    ]
    for to, of in pairs:
        to.load_state_dict(of.state_dict())
    mine, other = UniZeroPolicy(learner), MuZeroPolicy(muzero)
    for ours, its in zip(mine.decide(STATES), other.decide(STATES), strict=True):
        assert ours.policy == pytest.approx(its.policy, abs=1e-5)
        assert ours.value == pytest.approx(its.value, abs=1e-5)
    # Without context the same holds of every ply of a window, since all latents of training are true ones.
    batch = batch_of(learner, solved)
    _, parts = learner.loss(batch, torch.Generator())
    with torch.no_grad():
        latent = theirs.represent(batch.states.flatten(0, 1))
        policy = -(batch.policy.flatten(0, 1) * theirs.policy(latent).log_softmax(-1)).sum(-1).mean()
        value = theirs.value.losses(theirs.value(latent), theirs.targets(theirs.value, batch.value.flatten())).mean()
    torch.testing.assert_close(parts["policy"], policy, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(parts["value"], value, atol=1e-4, rtol=1e-4)


def test_the_loss_is_the_mean_over_rows_and_plies(solved: Dataset) -> None:
    """Row by row and ply by ply, with labels that are not known left out."""
    learner = learner_of(value_weight=0.5, reward_weight=2.0, end_weight=3.0, entropy=0.1, latent_weight=7.0)
    batch, network, b, k = batch_of(learner, solved, 16), learner.network, 16, 4
    expected = 0.0
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.mul_(1.1)
        for row in range(b):
            latents = network.encoder(batch.states[row])
            tokens, at = network.interleaved(latents[None], batch.moves[row : row + 1], torch.arange(k + 1)[None])
            out = network.transformer(tokens, at)[0][0]
            for ply in range(k + 1):
                logs, target = network.policy(out[2 * ply][None])[0].log_softmax(-1), batch.policy[row, ply]
                terms = -float((target * logs).sum())
                terms += 0.1 * float((logs.exp() * logs).sum()) * float(target.sum() > 0)
                if not batch.value[row, ply].isnan():
                    of_value = network.value(out[2 * ply][None, None]).log_softmax(-1)
                    terms -= 0.5 * float(of_value[0, int(1 - batch.value[row, ply])])
                expected += terms / (b * (k + 1))
                if ply == k or batch.reward[row, ply].isnan():
                    continue
                after = out[2 * ply + 1]
                of_reward = network.reward(after[None, None]).log_softmax(-1)
                terms = -2 * float(of_reward[0, int(1 - batch.reward[row, ply])])
                if batch.live[row, ply]:
                    assert network.end is not None
                    chance = float(network.end(after[None, None]).sigmoid())
                    terms -= 3 * math.log(1 - chance if batch.live[row, ply + 1] else chance)
                own, true = network.next_latent(after), learner.target(batch.states[row, ply + 1 : ply + 2])[0]
                terms += 7 * float((true * (true / own).log()).sum()) / 4  # a mean over 32 / 8 groups
                expected += terms / (b * k)
    loss, parts = learner.loss(batch, torch.Generator())
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    assert set(parts) == {"policy", "value", "reward", "end", "latent", "entropy"}


def test_the_slow_encoder_has_no_gradient_and_follows_the_fast_one(solved: Dataset, tmp_path: Path) -> None:
    learner = learner_of(target_decay=0.75)
    loss, _ = learner.loss(batch_of(learner, solved), torch.Generator())
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in learner.target.parameters())
    assert any(float(p.grad.abs().max()) > 0 for p in learner.network.encoder.parameters() if p.grad is not None)
    trained = {id(p) for group in learner.param_groups(0.1) for p in group["params"]}
    assert not trained & {id(parameter) for parameter in learner.target.parameters()}
    before = learner.target.to_latent.weight.clone()
    with torch.no_grad():
        learner.network.encoder.to_latent.weight.add_(1.0)
    learner.after_update(1)
    torch.testing.assert_close(learner.target.to_latent.weight, before + 0.25)
    assert not any(name.startswith("target") for name in learner.network.state_dict())
    fresh = learner_of(1)
    fresh.take_weights(learner)
    torch.testing.assert_close(fresh.target.to_latent.weight, learner.network.encoder.to_latent.weight)


def test_latents_are_normalised_and_compared_as_said() -> None:
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    simnorm = normalised(x, "simnorm")
    torch.testing.assert_close(simnorm.view(5, 4, 8).sum(-1), torch.ones(5, 4, dtype=torch.float64))
    other = normalised(x.flip(0), "simnorm")
    kl = (other * (other / simnorm).log()).view(5, 4, 8).sum(-1).mean(-1)
    torch.testing.assert_close(latent_losses(simnorm, other, "simnorm"), kl)
    assert float(latent_losses(simnorm, simnorm, "simnorm").abs().max()) < 1e-12
    layer = normalised(x, "layer")
    assert float(layer.mean(-1).abs().max()) < 1e-12
    torch.testing.assert_close(latent_losses(layer, x, "layer"), (layer - x).square().mean(-1))


# Boards that fade.


def test_only_what_changed_in_the_last_plies_is_shown() -> None:
    states = line_of((4, 0, 8, 2, 6))
    rows = torch.from_numpy(GAME.tokens.encode(states).astype(np.int64))
    shown = faded(rows[None], 2, 99)[0][:, :9]
    seen = [[place for place in range(9) if int(row[place]) != 99] for row in shown]
    assert seen == [[], [4], [0, 4], [0, 8], [2, 8], [2, 6]]
    assert bool((shown[shown != 99] > 0).all())  # a stone, never an empty square


def test_a_faded_game_reads_the_same_in_play_as_in_training(tmp_path: Path) -> None:
    records, moves = [], (4, 0, 8, 2, 6, 7, 5)
    for ply, (state, move) in enumerate(zip(line_of(moves), moves, strict=False)):
        text = GAME.moves[move]
        records.append(
            Record(
                state=GAME.format(state),
                game_id="game",
                ply=ply,
                line=text,
                ended=False,
                played=text,
                result=1.0,
                split="train",
            )
        )
    data = write_dataset(tmp_path / "games", GAME.spec, records)
    changed = {"source": "games", "fade": 2, "value_target": "result", "context": 4, "targets": "played"}
    learner = learner_of(**changed).double()
    windows = learner.windows(data, "train", seed=0)
    assert len(windows) == 1
    batch = windows.batch(np.array([0]), 0)
    assert isinstance(batch, EpisodeBatch)
    network, dynamics = learner.network, TransformerDynamics(UniZeroPolicy(learner), FREE)
    states = faded(batch.states, 2, learner.layout.mask)
    with torch.no_grad():
        latents = network.encoder(states.flatten(0, 1))[None]
        out, _ = network.transformer(*network.interleaved(latents, batch.moves, torch.arange(5)[None]))
    for ply, node in enumerate(dynamics.represent(line_of(moves)[:5])):
        torch.testing.assert_close(node.features, out[0, 2 * ply], atol=1e-10, rtol=0)
    with pytest.raises(DatasetError, match="no game of split 'train' begins at"):
        learner.windows(write_dataset(tmp_path / "late", GAME.spec, records[1:]), "train", seed=0)


def test_a_context_of_one_ply_sees_no_history_and_a_longer_one_does() -> None:
    one, other = line_of((4, 0, 8, 2))[-1], line_of((8, 2, 4, 0))[-1]
    assert one == other
    for context, same in ((1, True), (2, False)):
        (a, b) = TransformerDynamics(UniZeroPolicy(learner_of(context=context)), FREE).represent([one, other])
        assert torch.allclose(a.features, b.features, atol=1e-6) is same


# The laws of learners, policies and models.


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["simnorm", "layer"])
def test_laws_of_learners(solved: Dataset, norm: str) -> None:
    check_learner(lambda: learner_of(norm=norm, unroll=3), solved)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("changed", [{}, {"side": "own", "end_head": False}, {"source": "games", "fade": 2}], ids=str)
@pytest.mark.parametrize("mode", ["prior", "one_step"])
def test_laws_of_policies_and_models(changed: dict[str, Any], mode: str) -> None:
    policy = UniZeroPolicy(learner_of(**changed), mode=mode)
    check_policy(policy, STATES, max_plies=4)
    model = policy.search_model()
    assert model is not None
    check_search_model(model, STATES, max_nodes=30)
    nodes = model.root(STATES)
    assert [nodes.choices[row].ids.tolist() for row in range(5)] == [GAME.legal(s).tolist() for s in STATES]


def test_moves_of_a_game_that_mirrors_them_are_seen_by_the_model_and_played_by_the_root() -> None:
    """In chess Black sees the board turned round; the context may begin with the other side to move."""
    pytest.importorskip("chess")
    chess: Game[Any] = load_game("chess")
    states = [chess.parse()]
    for text in ("e2e4", "c7c5", "g1f3"):
        states.append(chess.play(states[-1], chess.moves.index(text)))
    learner = learner_of(game=chess, context=2, layers=1).double()
    dynamics = TransformerDynamics(UniZeroPolicy(learner), FREE)
    (node,) = dynamics.represent([states[-1]])
    assert node.flipped  # Black is to move, and the context begins one ply before, with White
    policy, _ = dynamics.predict([node])
    logits = learner.network.policy(node.features[None]).softmax(-1)[0].detach().numpy()
    white = chess.moves.index("d7d5")
    assert policy[0, chess.moves.seen_by(np.array(white), 1)] == pytest.approx(logits[white])


def test_a_search_takes_the_model_of_a_folder(tmp_path: Path) -> None:
    folder = learner_of().policy().save_pretrained(tmp_path / "policy")
    decision = load_policy(f"mcts:{folder}?simulations=12").decide([STATES[2]])[0]
    assert decision.stats["simulations"] == 12
    assert decision.stats["network_calls"] >= 3
    gumbel = load_policy(f"mcts:{folder}?simulations=8&root=gumbel").decide([STATES[2]])[0]
    assert gumbel.policy is not None
    assert load_policy(str(folder)).options()


# Bad input.


@pytest.mark.parametrize("name", ["policy", "value", "reward", "end"])
def test_a_head_that_gives_nan_is_named(name: str) -> None:
    learner = learner_of()
    head = learner.network.policy_head if name == "policy" else getattr(learner.network, name)
    with torch.no_grad():
        head.out.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=f"the network's {name} head gives numbers that are not finite"):
        UniZeroPolicy(learner, mode="one_step").decide([GAME.parse()])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"context": 5}, r"context=5 is longer than learner\.unroll=4: .*set context=4 at most"),
        ({"context": 0}, "context must be at least 1"),
        ({"norm": "simnrom"}, "norm must be one of simnorm, layer.*Did you mean"),
        ({"width": 36}, "multiple of twice the heads .* groups of 8"),
        ({"width": 30, "norm": "layer", "heads": 4}, "multiple of twice the heads"),
        ({"target_decay": 1.0}, r"target_decay lies in \[0, 1\)"),
        ({"fade": 4, "source": "games"}, "fade is at least 0 and below"),
        ({"fade": 2}, "take learner.source=games"),
        ({"latent_weight": -1.0}, "latent_weight must be at least 0"),
        ({"network": {"dropout": 0.1}}, "dropout=0"),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**changed)


def test_a_game_without_history_is_noted(solved: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(GAME), "past", Game.past)
    with pytest.warns(UserWarning, match="keeps no history: .*as with context=1"):
        learner_of().windows(solved, "train", seed=0)
    (node,) = TransformerDynamics(UniZeroPolicy(learner_of()), FREE).represent([STATES[-1]])
    assert len(node.plies) == 1


def test_padding_is_before_all_plies() -> None:
    deep, root = learner_of(), TransformerDynamics(UniZeroPolicy(learner_of()), FREE)
    nodes = root.represent([STATES[0], STATES[4]])
    assert gathered(nodes, deep.config.context).plies.tolist() == [[BEFORE_ALL] * 4 + [0], [2, 2, 3, 3, 4]]


def test_weights_of_another_meaning_are_refused() -> None:
    source = learner_of(value="categorical")
    others: list[dict[str, Any]] = [{"heads": 4}, {"norm": "layer"}, {"support": [-2.0, 2.0, 51]}, {"transform": True}]
    for changed in others:
        with pytest.raises(CheckpointError, match=rf"differ in learner\.{next(iter(changed))}"):
            learner_of(value="categorical", **changed).take_weights(source)
    with pytest.raises(CheckpointError, match=r"differ in learner\.value.*set learner\.value=wdl"):
        learner_of(value="categorical", support=[-1.0, 1.0, 3]).take_weights(learner_of(value="wdl"))
    learner_of(support=[-2.0, 2.0, 51]).take_weights(learner_of())  # win, draw and loss have no such bins
