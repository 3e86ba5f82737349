"""Autoregressive and direct futures: who sees what, exact likelihoods, learning, saving."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.data.windows import TokenBatch
from genpolicy.errors import ConfigError
from genpolicy.networks import NetworkConfig
from genpolicy.policies.tokens import NetworkLearner
from genpolicy.sequence import PARADIGMS, Layout
from genpolicy.testing import check_learner, check_policy
from genpolicy_policy_baselines.autoregressive import AutoregressiveConfig, AutoregressiveLearner
from genpolicy_policy_baselines.causal import CausalTransformer
from genpolicy_policy_baselines.direct import DirectConfig, DirectLearner
from tests.small_datasets import CONNECT, solved_connect

SHAPES = [("sequence", "unified"), ("sequence", "typed"), ("board", "typed")]
TINY = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="board", head="typed", init_std=0.1)
WITH_ACTION = [name for name in PARADIGMS if name not in ("s-v", "sa-v")]


@pytest.fixture(scope="module")
def connect_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("left_to_right"))


def causal(paradigm: str, horizon: int, shape: tuple[str, str], **options: Any) -> tuple[Layout, CausalTransformer]:
    codes = {"num_books": 2, "num_codes": 3} if "k" in paradigm else {}
    layout = Layout(genpolicy.load_game(CONNECT), paradigm, horizon, num_value_bins=4, **codes)
    config = NetworkConfig(
        num_layers=2, width=16, num_heads=2, dropout=0.0, geometry=shape[0], head=shape[1], init_std=0.5, **options
    )
    network = CausalTransformer(layout, config, generator=torch.Generator().manual_seed(3))
    return layout, network.double()


def rows(layout: Layout, num: int, seed: int) -> torch.Tensor:
    """Random admitted ids."""
    weights = torch.from_numpy(layout.admitted).double()
    stream = torch.Generator().manual_seed(seed)
    return torch.multinomial(weights, num, replacement=True, generator=stream).T.contiguous()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("paradigm", WITH_ACTION)
def test_a_token_depends_on_all_before_it_and_on_nothing_after(paradigm: str, shape: tuple[str, str]) -> None:
    require_order(*causal(paradigm, 1 if paradigm == "s-a" else 2, shape))


@pytest.mark.parametrize("paradigm", ["s-avav", "s-avsav"])
def test_a_value_read_from_the_whole_board_depends_on_nothing_after_it(paradigm: str) -> None:
    layout, network = causal(paradigm, 2, ("board", "typed"), board_values=4)
    require_order(layout, network)
    tokens = rows(layout, 3, 2)
    where = torch.from_numpy(~layout.given).expand_as(tokens)
    by_logits = -network(tokens).log_prob(tokens).detach()[where]
    torch.testing.assert_close(network.token_nll(tokens, None, tokens, where).detach(), by_logits)


def require_order(layout: Layout, network: CausalTransformer) -> None:
    base = rows(layout, 1, 0)
    imagined = np.flatnonzero(~layout.given)
    before = network(base).dense()
    for at in range(layout.length):
        changed = base.clone()
        others = np.flatnonzero(layout.admitted[at])
        changed[0, at] = int(others[others != int(base[0, at])][0]) if len(others) > 1 else layout.mask
        moved = (network(changed).dense() - before).nan_to_num().abs().amax(dim=(0, 2)) > 1e-12
        for n in imagined:
            assert bool(moved[n]) == (at < n), (layout.paradigm, int(n), at)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_likelihood_of_all_futures_sums_to_one(shape: tuple[str, str]) -> None:
    """s-aa of two moves: every pair of the nine moves."""
    layout, network = causal("s-aa", 2, shape)
    moves = range(layout.move_offset, layout.value_offset)
    pairs = torch.tensor(list(itertools.product(moves, repeat=2)))
    tokens = rows(layout, 1, 1).repeat(len(pairs), 1)
    tokens[:, ~torch.from_numpy(layout.given)] = pairs
    where = torch.from_numpy(~layout.given).expand_as(tokens)
    nll = network.token_nll(tokens, None, tokens, where).detach().reshape(-1, 2).sum(1)
    # A unified head also gives probability to symbols that are not moves.
    if shape[1] == "typed":
        assert float((-nll).exp().sum()) == pytest.approx(1.0, abs=1e-12)
    else:
        assert float((-nll).exp().sum()) < 1.0
    by_logits = network(tokens).log_prob(tokens).detach()[where].reshape(-1, 2).sum(1)
    torch.testing.assert_close(-nll, by_logits, atol=1e-10, rtol=0)


def autoregressive(network: NetworkConfig = TINY, **options: Any) -> AutoregressiveLearner:
    return AutoregressiveLearner(genpolicy.load_game(CONNECT), AutoregressiveConfig(network=network, **options))


def direct(network: NetworkConfig = TINY, **options: Any) -> DirectLearner:
    return DirectLearner(genpolicy.load_game(CONNECT), DirectConfig(network=network, **options))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [autoregressive, direct])
def test_fits_32_records(make: Any, connect_data: Dataset) -> None:
    check_learner(lambda: make(horizon=2), connect_data, max_updates=500, lr=5e-3)


@pytest.mark.parametrize("make", [autoregressive, direct])
def test_keeps_the_laws_of_policies_and_survives_saving(make: Any, tmp_path: Path) -> None:
    learner: NetworkLearner = make(horizon=2)
    game = learner.game
    check_policy(learner.policy(), [game.parse(), game.play(game.parse(), 4), game.play(game.parse(), 0)])
    folder = learner.policy().save_pretrained(tmp_path / "policy")
    loaded = genpolicy.load_policy(folder)
    states = [game.parse(), game.play(game.parse(), 4)]
    ours, theirs = learner.policy().decide(states), loaded.decide(states)
    assert [(d.move, d.line, d.states) for d in ours] == [(d.move, d.line, d.states) for d in theirs]


def test_the_first_action_is_decided_by_the_first_call() -> None:
    policy = autoregressive(horizon=2).policy()
    game = policy.game
    modes = policy.modes()
    one, full = (modes[name].decide([game.parse()])[0] for name in ("one_call", "token by token"))
    assert one.move == full.move
    assert one.policy == full.policy
    assert one.stats["network_calls"] == 1
    assert full.stats["network_calls"] == policy.learner.layout.length - game.tokens.length


@pytest.mark.thorough
def test_draws_follow_the_model() -> None:
    """20,000 first moves drawn at temperature 1 against the marginal: chi-squared of 8 degrees, 0.1 % point."""
    policy = autoregressive(horizon=1).policy().with_options(temperature=1.0, batch_size=2000)
    game = policy.game
    state = game.parse()
    decisions = policy.decide([state] * 20_000)
    chances = decisions[0].policy
    assert chances is not None
    counts = np.bincount([d.move for d in decisions], minlength=len(game.moves))
    expected = np.array([chances[m] for m in range(len(game.moves))]) * len(decisions)
    assert float(((counts - expected) ** 2 / expected).sum()) < 26.1


def test_direct_trains_on_what_one_call_shows() -> None:
    """Its loss is the cross-entropy at the all-mask input, by hand."""
    learner = direct(horizon=2)
    layout = learner.layout
    tokens = rows(layout, 4, 2)
    given = torch.from_numpy(layout.given).expand_as(tokens)
    batch = TokenBatch(tokens=tokens, frozen=given, target=~given, indices=torch.arange(4))
    logits = learner.network(torch.where(given, tokens, layout.mask), torch.ones(4))
    expected = -logits.log_prob(tokens)[~given].sum() / 4
    loss, _ = learner.loss(batch, torch.Generator())
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("learner", "config"), [(AutoregressiveLearner, AutoregressiveConfig), (DirectLearner, DirectConfig)]
)
def test_a_paradigm_without_actions_is_refused(learner: Any, config: Any) -> None:
    with pytest.raises(ConfigError, match="imagines no action"):
        learner(genpolicy.load_game(CONNECT), config(paradigm="s-v", horizon=1, network=TINY))
