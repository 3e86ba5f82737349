"""What is trained and reported: weights, reductions, frozen and unlabelled tokens, admitted sets, bad input."""

import math
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from genpolicy import registry
from genpolicy.diffusion import Absorbing, LogitGroup, Multinomial, Process, TypedLogits
from genpolicy.diffusion.making import make_process
from genpolicy.diffusion.random import beta_quantile
from genpolicy.errors import ConfigError, RegistryError


@dataclass
class Windows:
    tokens: Tensor
    frozen: Tensor
    target: Tensor


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def windows(num_rows: int, num_tokens: int, num_symbols: int = 5, seed: int = 0) -> Windows:
    tokens = torch.randint(num_symbols, (num_rows, num_tokens), generator=stream(seed))
    frozen = torch.zeros(num_rows, num_tokens).bool()
    return Windows(tokens, frozen, ~frozen)


class Recorder(nn.Module):
    """Says the same everywhere and keeps what it was asked."""

    def __init__(self, num_tokens: int, num_symbols: int) -> None:
        super().__init__()
        values = torch.randn(num_tokens, num_symbols, generator=stream(9), dtype=torch.float64)
        self.logits = nn.Parameter(values)
        self.seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, tokens: Tensor, t: Tensor) -> Tensor:
        self.seen.append((tokens, t))
        return self.logits.expand(len(tokens), -1, -1)


class Sparse(Recorder):
    """Computes the cross-entropy only where it is asked for."""

    def token_nll(
        self, tokens: Tensor, t: Tensor, targets: Tensor, where: Tensor, admitted: Tensor | None = None
    ) -> Tensor:
        self.seen.append((tokens, t))
        assert where.any()
        rows, places = where.nonzero(as_tuple=True)
        logits = self.logits if admitted is None else self.logits.masked_fill(~admitted, -torch.inf)
        return -logits.log_softmax(-1)[places, targets[rows, places]]


def by_hand(process: Process, model: Recorder, batch: Windows, scale: float = 1.0) -> Tensor:
    """The loss from the noised tokens that the model saw, in plain loops."""
    xt, t = model.seen[-1]
    log_f = model.logits.log_softmax(-1)
    rows, counts = [], []
    for b in range(len(xt)):
        terms = [
            -log_f[n, batch.tokens[b, n]]
            for n in range(xt.shape[1])
            if xt[b, n] == process.mask and bool(batch.target[b, n])
        ]
        total = sum(terms, torch.zeros(()).double())
        rows.append(scale * float(process.weight(int(t[b]))) * total)
        counts.append(len(terms))
    if process.reduction == "sum":
        return torch.stack(rows).mean()
    if process.reduction == "mean":
        return torch.stack([row / max(count, 1) for row, count in zip(rows, counts, strict=True)]).mean()
    return torch.stack(rows).sum() / sum(counts)


@pytest.mark.parametrize("weighting", ["constant", "reciprocal", "linear", "elbo"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "batch"])
def test_losses_by_hand(weighting: str, reduction: str) -> None:
    batch = windows(6, 4)
    batch.frozen[:, 0] = True
    batch.target = ~batch.frozen
    batch.target[2, 3] = False  # labelled, noised, not trained
    process = Absorbing(5, 20, "cosine_maskgit", weighting=weighting, reduction=reduction)
    scale = 20.0 if (weighting, reduction) == ("linear", "batch") else 1.0
    dense, sparse = Recorder(4, 5), Sparse(4, 5)
    loss = process.loss(dense, batch, stream(1))
    torch.testing.assert_close(loss, by_hand(process, dense, batch, scale), rtol=0, atol=1e-12)
    torch.testing.assert_close(process.loss(sparse, batch, stream(1)), loss, rtol=0, atol=1e-12)
    loss.backward()
    assert bool((dense.logits.grad != 0).any())
    assert dense.logits.grad is not None
    assert bool((dense.logits.grad[0] == 0).all())


def test_loss_has_the_expected_mean(vectors: dict[str, Any], toy: Any) -> None:
    """Over many rows the trained loss is the mean over t of the enumerated one."""
    expected = vectors["vlb_absorbing"]["values"]["linear"]
    many = Windows(
        torch.tensor([[1, 3]]).expand(40_000, 2), torch.zeros(40_000, 2).bool(), torch.ones(40_000, 2).bool()
    )
    for weighting, value in (
        ("constant", expected["loss_mean_t_constant"]),
        ("linear", expected["loss_mean_t_linear"]),
        ("reciprocal", expected["elbo"] / 20),
    ):
        loss = Absorbing(5, 20, "linear", weighting=weighting).loss(toy, many, stream())
        assert float(loss) == pytest.approx(value, rel=0.02)  # 40,000 draws of spread below 1.5 times the mean


def test_elbo_has_the_expected_mean(vectors: dict[str, Any], toy: Any) -> None:
    many = Windows(
        torch.tensor([[1, 3]]).expand(40_000, 2), torch.zeros(40_000, 2).bool(), torch.ones(40_000, 2).bool()
    )
    multinomial = vectors["vlb_multinomial"]["values"]["linear"]
    for process, value in (
        (Absorbing(5, 20, "linear", weighting="constant"), vectors["vlb_absorbing"]["values"]["linear"]["elbo"]),
        (Multinomial(5, 20, "linear", prediction_type="leave_one_out"), multinomial["plugin"]["elbo"]),
        (Multinomial(5, 20, "linear"), multinomial["mixture"]["elbo"]),
    ):
        got = process.elbo(toy, many, stream())
        assert got.shape == (40_000,)
        assert float(got.mean()) == pytest.approx(value, abs=5 * float(got.std()) / 200)


@pytest.mark.parametrize("make", [Recorder, Sparse])
def test_the_bound_of_absorbing_is_of_the_chain_that_draws_admitted_symbols_alone(make: type[Recorder]) -> None:
    nothing = torch.zeros(20_000, 2).bool()
    many = Windows(torch.tensor([0, 2]).expand(20_000, 2), nothing, ~nothing)
    admitted = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]]).bool()
    model = make(2, 4)
    model.logits.data.zero_()
    got = Absorbing(4, 10).elbo(model, many, stream(), admitted=admitted).detach()
    assert float(got.mean()) == pytest.approx(2 * math.log(2), abs=5 * float(got.std()) / 20_000**0.5)


def test_elbo_of_a_schedule_that_ends_above_0_counts_the_prior() -> None:
    batch = windows(2000, 3)
    process, model = Absorbing(5, 20, "cosine_hoogeboom"), Recorder(3, 5)
    alpha_last = float(process.alpha[-1])
    assert 7e-5 < alpha_last < 8e-5
    term = process.prior_term(batch.tokens)
    torch.testing.assert_close(term, torch.full_like(term, alpha_last * torch.tensor(5.0).double().log()))
    none = Windows(batch.tokens, batch.frozen, batch.frozen)
    assert bool((process.elbo(model, none, stream()) == 0).all())


@pytest.mark.parametrize("process", [Absorbing(5, 20), Multinomial(5, 20)], ids=lambda p: p.kind)
def test_frozen_and_unlabelled_tokens(process: Process) -> None:
    batch = windows(500, 6)
    batch.frozen[:, :2] = True
    batch.tokens[:, 4:] = process.mask  # the line was cut here
    batch.target = torch.ones_like(batch.frozen)  # even were a caller to ask for them
    model = Recorder(6, 5)
    for loss in (process.loss(model, batch, stream()), process.elbo(model, batch, stream()).sum()):
        assert bool(torch.isfinite(loss))
        (gradient,) = torch.autograd.grad(loss, model.logits)
        assert (gradient != 0).any(1).tolist() == [False, False, True, True, False, False]
    for xt, _ in model.seen:
        assert torch.equal(xt[:, :2], batch.tokens[:, :2])
        if process.kind == "absorbing":
            assert bool((xt[:, 4:] == 5).all())
        else:
            share = torch.nn.functional.one_hot(xt[:, 4:], 5).double().mean((0, 1))
            torch.testing.assert_close(share, torch.full((5,), 0.2).double(), rtol=0, atol=0.07)
    early = process.marginal(torch.tensor([process.mask]), 1)
    torch.testing.assert_close(early, process.marginal(torch.tensor([process.mask]), 20))


def test_what_multinomial_trains_on() -> None:
    x0, xt = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0, 2, 2, 4]])
    redrawn = torch.tensor([[False, True, True, True]])
    expected = {"all": [True] * 4, "redrawn": [False, True, True, True], "corrupted": [False, True, False, True]}
    for trained_on, where in expected.items():
        process = Multinomial(5, 20, trained_on=trained_on)
        assert process.trained_tokens(xt, x0, redrawn)[0].tolist() == where
    assert Multinomial(5, 20).trained_on == "all"
    assert Multinomial(5, 20, prediction_type="leave_one_out").trained_on == "redrawn"


def test_cross_entropy_trains_the_prediction_it_is_said_to() -> None:
    """The exact optimum over one token with p(x_0) = (0.6, 0.3, 0.1), by counting what each loss sees."""
    prior, process, t = torch.tensor([0.6, 0.3, 0.1]).double(), Multinomial(3, 10), 5
    x0 = torch.multinomial(prior, 200_000, replacement=True, generator=stream())[:, None]
    xt, redrawn = process.corrupt(x0, t, frozen=None, admitted=None, generator=stream(1))
    seen = xt[:, 0] == 2
    everywhere = torch.bincount(x0[seen, 0], minlength=3).double()
    on_redrawn = torch.bincount(x0[seen & redrawn[:, 0], 0], minlength=3).double()
    likelihood = process.marginal(torch.arange(3), t)[:, 2]
    denoiser = prior * likelihood / (prior * likelihood).sum()
    # Nothing else is observed, so leaving the token out leaves the prior.
    torch.testing.assert_close(everywhere / everywhere.sum(), denoiser, rtol=0, atol=0.01)
    torch.testing.assert_close(on_redrawn / on_redrawn.sum(), prior, rtol=0, atol=0.01)


def test_times_are_spread_evenly_and_fairly() -> None:
    process = Absorbing(5, 20)
    times = process.sample_times(40, stream(), torch.device("cpu"))
    assert torch.bincount(times, minlength=21).tolist() == [0] + [2] * 20
    singles = torch.cat([process.sample_times(1, stream(i), torch.device("cpu")) for i in range(4000)])
    share = torch.bincount(singles, minlength=21)[1:] / 4000
    assert float((share - 0.05).abs().max()) < 5 * (0.05 * 0.95 / 4000) ** 0.5
    plain = Absorbing(5, 20, time_sampling="uniform").sample_times(4000, stream(), torch.device("cpu"))
    assert sorted(plain.unique().tolist()) == list(range(1, 21))


def test_times_of_beta_2_2_are_more_often_in_the_middle() -> None:
    """F(x) = 3x^2 - 2x^3; 2,000 evenly spread draws meet each of 20 shares to one draw."""
    unit = torch.linspace(0, 1, 101, dtype=torch.float64)
    x = beta_quantile(unit)
    torch.testing.assert_close(3 * x**2 - 2 * x**3, unit, rtol=0, atol=1e-12)
    times = Absorbing(5, 20, time_sampling="beta").sample_times(2000, stream(), torch.device("cpu"))
    edges = torch.arange(21).double() / 20
    shares = (3 * edges**2 - 2 * edges**3).diff()
    counts = torch.bincount(times, minlength=21)[1:]
    assert float((counts - 2000 * shares).abs().max()) <= 1
    # The bound that is reported takes its times evenly whatever is trained on.
    process, batch, model = Absorbing(5, 20, time_sampling="beta"), windows(40, 3), Recorder(3, 5)
    process.elbo(model, batch, stream())
    assert torch.bincount(model.seen[-1][1], minlength=21).tolist() == [0] + [2] * 20


def test_stratified_times_fall_one_in_each_part() -> None:
    times = Absorbing(5, 40, time_sampling="stratified").sample_times(40, stream(), torch.device("cpu"))
    assert times.tolist() == list(range(1, 41))


def test_each_position_has_its_own_noise() -> None:
    admitted = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]]).bool()
    process, x0 = Multinomial(5, 10), torch.tensor([[1, 2, 4]])
    table = process.marginal(x0, 5, admitted=admitted)[0]
    alpha = float(process.alpha[5])
    expected = torch.zeros(3, 5).double()
    expected[0, :2], expected[1, 2:], expected[2, 4] = (1 - alpha) / 2, (1 - alpha) / 3, 1 - alpha
    expected[torch.arange(3), x0[0]] += alpha
    torch.testing.assert_close(table, expected, rtol=0, atol=1e-12)
    # The posterior is Bayes' rule within the position's own symbols.
    small, xt = Multinomial(3, 10), torch.tensor([[0, 3, 4]])
    within = process.posterior(xt, x0, 5, 2, admitted=admitted)[0, 1, 2:]
    torch.testing.assert_close(within, small.posterior(torch.tensor(1), torch.tensor(0), 5, 2), rtol=0, atol=1e-12)
    assert bool((process.posterior(xt, x0, 5, 2, admitted=admitted)[0][~admitted] == 0).all())


@pytest.mark.parametrize(
    "process",
    [Multinomial(7, 10), Multinomial(7, 10, prediction_type="leave_one_out"), Absorbing(7, 10)],
    ids=["denoiser", "leave_one_out", "absorbing"],
)
def test_bounds_by_groups_and_by_one_table_agree(process: Process) -> None:
    admitted = torch.zeros(4, 7).bool()
    admitted[[0, 2], :3], admitted[[1, 3], 3:] = True, True
    logits = torch.randn(5, 4, 7, generator=stream(), dtype=torch.float64)
    groups = []
    for places, symbols in (([0, 2], [0, 1, 2]), ([1, 3], [3, 4, 5, 6])):
        p, k = torch.tensor(places), torch.tensor(symbols)
        groups.append(LogitGroup(p, k, logits[:, p][:, :, k]))
    typed = TypedLogits(tuple(groups), 4, 7)
    x0 = torch.tensor([[0, 3, 1, 6]]).expand(5, -1)
    t = torch.tensor([1, 3, 5, 9, 10])
    xt = process.noise(x0, t, admitted=admitted, generator=stream(3))
    dense = process.elbo_term(logits, xt, x0, t, admitted=admitted)
    torch.testing.assert_close(process.elbo_term(typed, xt, x0, t, admitted=admitted), dense, rtol=0, atol=1e-12)
    table = process.reverse(logits, xt, t, t - 1, admitted=admitted)
    torch.testing.assert_close(process.reverse(typed, xt, t, t - 1, admitted=admitted), table, rtol=0, atol=1e-12)
    posterior = process.posterior(xt, x0, t, t - 1, admitted=admitted)
    by_table = (torch.xlogy(posterior, posterior) - torch.xlogy(posterior, table)).sum(-1)
    torch.testing.assert_close(dense, by_table, rtol=0, atol=1e-10)


def test_processes_describe_themselves() -> None:
    made = Multinomial(7, 13, "cosine_squared", prediction_type="leave_one_out", weighting="elbo", reduction="mean")
    config = made.config()
    assert config.pop("kind") == "multinomial"
    assert Multinomial(**config).config() == made.config()
    assert Absorbing(num_symbols=5, num_timesteps=20, schedule="cosine_maskgit").input_symbols == 6
    assert Multinomial(num_symbols=5, num_timesteps=20, schedule="cosine_maskgit").input_symbols == 5


@pytest.mark.parametrize("kind", [Absorbing, Multinomial])
def test_bad_arguments(kind: type[Absorbing] | type[Multinomial]) -> None:
    with pytest.raises(ConfigError, match=r"'cosine'.*linear, quadratic, cubic, cosine_maskgit"):
        kind(5, 20, "cosine")
    with pytest.raises(ConfigError, match="weighting must be one of constant, reciprocal, linear, elbo; got 'lambda'"):
        kind(5, 20, weighting="lambda")
    with pytest.raises(ConfigError, match=r"reduction must be .* got 'avg'"):
        kind(5, 20, reduction="avg")
    with pytest.raises(ConfigError, match=r"time_sampling must be .* got 'even'"):
        kind(5, 20, time_sampling="even")
    with pytest.raises(ConfigError, match="num_timesteps must be from 1 to 4,000, got 0"):
        kind(5, 0)
    with pytest.raises(ConfigError, match="num_symbols must be at least 1"):
        kind(0, 20)
    process, x0 = kind(5, 20), torch.tensor([[0, 4]])
    for t in (0, 21, -1, torch.tensor([30]), 1.5, torch.tensor([0.5]), True):
        with pytest.raises(ValueError, match="t must be"):
            process.noise(x0, t)  # type: ignore[arg-type]
        if t is True or not (isinstance(t, int) and t == 0):
            with pytest.raises(ValueError, match="t must be"):
                process.marginal(x0, t)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="t must be"):
            process.weight(t)  # type: ignore[arg-type]
    for s in (5, 6):
        with pytest.raises(ValueError, match="s must be before t"):
            process.posterior(x0, x0, 5, s)
        with pytest.raises(ValueError, match="s must be before t"):
            process.reverse(torch.zeros(1, 2, 5), x0, 5, s)
    for s in (-1, 0.5):
        with pytest.raises(ValueError, match="s must be"):
            process.posterior(x0, x0, 5, s)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"token ids 0\.\.5, got 0\.\.7"):
        process.noise(torch.tensor([[0, 7]]), 3)
    with pytest.raises(ValueError, match="integer token ids"):
        process.marginal(torch.tensor([[0.0, 1.0]]), 3)


def test_bad_prediction_types() -> None:
    with pytest.raises(ConfigError, match="prediction_type must be one of denoiser, leave_one_out; got 'x0'"):
        Multinomial(5, 20, prediction_type="x0")
    with pytest.raises(ConfigError, match="trained_on must be one of all, redrawn, corrupted; got 'masked'"):
        Multinomial(5, 20, trained_on="masked")


@pytest.mark.parametrize("kind", [Absorbing, Multinomial])
def test_marginal_and_posterior_take_plain_numbers(kind: type[Absorbing] | type[Multinomial]) -> None:
    process = kind(num_symbols=5, num_timesteps=20, schedule="cosine_maskgit")
    two, three = torch.tensor([2]), torch.tensor([3])
    assert torch.equal(process.marginal(cast(Tensor, 3), 5), process.marginal(three, 5)[0])
    plain = process.posterior(cast(Tensor, 2), cast(Tensor, 3), 10, 5)
    assert torch.equal(plain, process.posterior(two, three, 10, 5)[0])


class Held(Absorbing):
    """Tokens stay clean longer; every other key is the base's."""

    kind = "held"

    def __init__(self, num_symbols: int, *, hold: float = 0.25, **rest: Any) -> None:
        super().__init__(num_symbols, **rest)
        self.alpha = self.alpha ** (1 - hold)


def test_a_process_that_passes_keys_on_takes_those_of_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("processes", "held")(Held)
    held = make_process({"kind": "held", "hold": 0.5, "num_timesteps": 7, "weighting": "constant"}, 5)
    assert (held.num_timesteps, held.weighting) == (7, "constant")
    keys = "kind, hold, num_timesteps, schedule, weighting, reduction, time_sampling"
    with pytest.raises(ConfigError, match=rf"'learner\.process\.rest' does not exist\. Keys here: {keys}$"):
        make_process({"kind": "held", "rest": 1}, 5)


def test_a_process_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(num_symbols: int, table: str = "a") -> Any:
        return {}[table]

    monkeypatch.setattr(registry, "_registered", {})
    registry.register("processes", "raising")(raising)
    with pytest.raises(RegistryError, match=r"process 'raising' cannot be made \(.*\): KeyError: 'a'"):
        make_process({"kind": "raising"}, 5)
