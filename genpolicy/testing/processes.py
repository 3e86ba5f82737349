"""The laws of discrete diffusion processes, by explicit matrices and full enumeration, and those of samplers.

Axes: S states of a token, K symbols, M states of a pair of tokens (S squared).
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.diffusion.process import Process, broadcast
from genpolicy.diffusion.samplers import Sampler, make_sampler, sample

MAX_SYMBOLS = 8
MAX_TIMESTEPS = 200
TOLERANCE = 1e-10  # float64 sums of a few hundred terms
SIGMAS = 5.0


def check_process(process: Process, *, num_draws: int = 20_000, seed: int = 0) -> None:
    """Check that a process keeps every law; a few seconds for 5 symbols and 20 timesteps.

    All rows of the marginal sum to 1; time 0 is the identity and time T the prior; noise has the frequencies of the
    marginal, keeps frozen tokens and admitted sets, and depends on its generator alone; the loss is not negative;
    samples end without noise. Of a Markov chain (``process.markov``): the marginal is the product of the one-step
    matrices, and the posterior is Bayes' rule for every pair of times; of another process with a posterior: it leads
    from the marginal at t to that at s for every pair of times. Of a process with a bound, which a Markov chain
    must have: it is not below the exact negative log-likelihood of the reverse chain, and ``elbo`` estimates it without
    bias, within admitted sets, too.

    Args:
        process: A small instance: at most 8 symbols and 200 timesteps.
        num_draws: Draws behind each frequency.
        seed: Seed of all draws.

    Raises:
        AssertionError: a law is broken; the message says which, where and by how much.
        ValueError: the instance is too large to enumerate.
    """
    if process.num_symbols > MAX_SYMBOLS or process.num_timesteps > MAX_TIMESTEPS:
        raise ValueError(
            f"check_process enumerates: give at most {MAX_SYMBOLS} symbols and {MAX_TIMESTEPS} timesteps, "
            f"got {process.num_symbols} and {process.num_timesteps}"
        )
    _check_marginals(process)
    if process.markov:
        _check_products(process)
        _check_posteriors(process)
    else:
        with contextlib.suppress(NotImplementedError):
            _check_paths(process)
    _check_reverse(process)
    _check_noise(process, num_draws, seed)
    _check_constraints(process, seed)
    _check_loss(process, seed)
    if process.markov or _has_bound(process):
        _check_bound(process)
        _check_elbo(process, num_draws, seed)
    _check_samples(process, num_draws, seed)


def _check_marginals(process: Process) -> None:
    symbols, identity = torch.arange(process.num_symbols), torch.eye(process.input_symbols, dtype=torch.float64)
    _law("marginal at time 0 is the identity", process, process.marginal(symbols, 0), identity[symbols])
    for t in range(1, process.num_timesteps + 1):
        table = process.marginal(symbols, t)
        _law(f"rows of the marginal at t={t} sum to 1", process, table.sum(1), torch.ones_like(table[:, 0]))
        _require(bool((table >= 0).all()), f"the marginal at t={t} has no negative entry", process)
    last, prior = process.marginal(symbols, process.num_timesteps), process.prior()
    leak = float(process.alpha[-1])
    is_near = bool(((last - prior).abs() <= leak + TOLERANCE).all())
    _require(is_near, f"marginal at t=T is the prior, but for alpha_T={leak}", process)


def _check_products(process: Process) -> None:
    symbols, product = torch.arange(process.num_symbols), torch.eye(process.input_symbols, dtype=torch.float64)
    for t in range(1, process.num_timesteps + 1):
        step = process.transition(t)
        _law(f"rows of the one-step matrix at t={t} sum to 1", process, step.sum(1), torch.ones_like(step[0]))
        _require(bool((step >= 0).all()), f"the one-step matrix at t={t} has no negative entry", process)
        product, marginal = product @ step, process.marginal(symbols, t)
        _law(f"marginal at t={t} is the product of one-step matrices", process, marginal, product[symbols])


def _check_posteriors(process: Process) -> None:
    num, steps = process.input_symbols, process.num_timesteps
    matrices = [process.transition(t) for t in range(1, steps + 1)]
    upto = list(itertools.accumulate(matrices, torch.matmul, initial=torch.eye(num, dtype=torch.float64)))
    xt, x0 = torch.arange(num)[:, None], torch.arange(process.num_symbols)[None, :]
    grid_t, grid_0 = broadcast(xt, x0)
    for s in range(steps):
        between = torch.eye(num, dtype=torch.float64)
        for t in range(s + 1, steps + 1):
            between = between @ matrices[t - 1]
            joint = between.T[:, None, :] * upto[s][: process.num_symbols][None, :, :]  # [x_t, x_0, x_s]
            evidence = joint.sum(-1, keepdim=True)
            possible = evidence[..., 0] > 1e-300
            ours = process.posterior(grid_t, grid_0, t, s)
            expected = joint / evidence.clamp(min=1e-300)
            _law(f"posterior at t={t}, s={s} is Bayes' rule", process, ours[possible], expected[possible])
            _law(f"posterior at t={t}, s={s} sums to 1", process, ours.sum(-1), torch.ones_like(ours[..., 0]))


def _check_paths(process: Process) -> None:
    x0 = torch.arange(process.num_symbols)
    xt, grid_0 = broadcast(torch.arange(process.input_symbols), x0[:, None])
    for t in range(1, process.num_timesteps + 1):
        chance = process.marginal(x0, t)[..., None]  # [x_0, x_t, 1]
        for s in range(t):
            led = (chance * process.posterior(xt, grid_0, t, s)).sum(1)
            _law(f"posterior leads from the marginal at t={t} to that at s={s}", process, led, process.marginal(x0, s))


def _check_reverse(process: Process) -> None:
    states, last = _pairs(process), process.num_timesteps
    logits = _Toy(process)(states, states)
    for t, s in {(last, 0), (last, last - 1), (1, 0), ((last + 1) // 2, 0)}:
        table = process.reverse(logits, states, t, s)
        where = f"reverse kernel from t={t} to s={s}"
        _law(f"{where} sums to 1", process, table.sum(-1), torch.ones_like(table[..., 0]))
        _require(bool((table >= 0).all()), f"{where} has no negative entry", process)
        if s == 0:
            noise = process.undecided(states)
            ended = table[..., process.num_symbols :].sum(-1)[noise]
            _law(f"{where} leaves no token outside the symbols", process, ended, torch.zeros_like(ended))
            clean = process.clean_logits(TypedLogits.of(logits), states, t).dense().exp()
            _law(f"{where} is the clean prediction", process, table[..., : process.num_symbols][noise], clean[noise])


def _check_noise(process: Process, num_draws: int, seed: int) -> None:
    x0 = torch.arange(process.num_symbols).expand(num_draws, -1)
    last = process.num_timesteps
    for t in sorted({1, (last + 1) // 2, last}):
        drawn = process.noise(x0, t, generator=_stream(seed))
        again = process.noise(x0, t, generator=_stream(seed))
        _require(bool(torch.equal(drawn, again)), f"noise at t={t} is the same for the same generator", process)
        expected = process.marginal(x0[0], t)
        _frequencies(process, f"noise at t={t}", drawn, expected)
    one, other = ([_stream(seed + i) for i in order] for order in ((0, 1, 2), (9, 1, 8)))
    same = torch.equal(*(process.noise(x0[:3], last, generator=streams)[1] for streams in (one, other)))
    _require(same, "noise of a row depends on its own generator alone", process)


def _check_constraints(process: Process, seed: int) -> None:
    num, last = process.num_symbols, process.num_timesteps
    frozen = torch.rand(64, 6, generator=_stream(seed + 1)) < 0.5
    admitted = torch.eye(num, dtype=torch.bool)[torch.arange(6) % num] | torch.eye(num, dtype=torch.bool)[0]
    inside = torch.cat([admitted, torch.ones(6, process.input_symbols - num, dtype=torch.bool)], dim=1)
    x0 = torch.where(torch.rand(64, 6, generator=_stream(seed + 2)) < 0.5, torch.arange(6) % num, 0)
    for t in sorted({1, (last + 1) // 2, last}):
        xt = process.noise(x0, t, frozen=frozen, admitted=admitted, generator=_stream(seed))
        _require(bool((xt == x0)[frozen].all()), f"noise at t={t} leaves frozen tokens as they are", process)
        kept = inside.expand(64, -1, -1).gather(-1, xt[..., None]).all()
        _require(bool(kept), f"noise at t={t} draws admitted symbols alone", process)
        table = process.marginal(x0, t, admitted=admitted)
        _law(f"marginal at t={t} within admitted sets sums to 1", process, table.sum(-1), torch.ones(64, 6).double())
        outside = table.masked_fill(inside, 0.0)
        _law(f"marginal at t={t} has nothing outside admitted sets", process, outside, torch.zeros_like(outside))
    unlabelled = process.noise(torch.full_like(x0, process.mask), 1, generator=_stream(seed))
    whole = process.noise(x0, last, generator=_stream(seed)) if float(process.alpha[-1]) == 0 else unlabelled
    _require(bool(torch.equal(unlabelled, whole)), "an unlabelled token is pure noise at every time", process)
    for bad in (0, last + 1, -1):
        try:
            process.noise(x0, bad, generator=_stream(seed))
        except ValueError:
            continue
        raise AssertionError(f"{_name(process)}: noise at t={bad} must be a ValueError")


def _check_bound(process: Process) -> None:
    states, model = _pairs(process), _Toy(process)
    num, prior = process.num_symbols, process.prior()
    mass = torch.outer(prior, prior).flatten()  # p(x_T) of the pair, then p(x_{t-1}) and so on
    x0 = torch.tensor(list(itertools.product(range(num), repeat=2)))
    bound = process.prior_term(x0).sum(1)
    logits = model(states, states)
    for t in range(process.num_timesteps, 0, -1):
        kernel = process.reverse(logits, states, t, t - 1)
        mass = torch.einsum("m,mi,mj->ij", mass, kernel[:, 0], kernel[:, 1]).flatten()
        for i, target in enumerate(x0):
            bound[i] += _term(process, logits, states, target, t)
    _law("the reverse chain's p(x_0) sums to 1", process, mass.sum(), torch.ones(()).double())
    nll = -mass.reshape(process.input_symbols, -1)[x0[:, 0], x0[:, 1]].log()
    worst = int((bound - nll).argmin())
    detail = f"{float(bound[worst])} < {float(nll[worst])} at {x0[worst].tolist()}"
    _require(bool((bound >= nll - TOLERANCE).all()), f"bound not below the exact -log p(x_0): {detail}", process)


def _term(
    process: Process, logits: Tensor, states: Tensor, target: Tensor, t: int, admitted: Tensor | None = None
) -> Tensor:
    """The expectation over x_t of the bound's term at t for one pair x_0."""
    q = process.marginal(target, t, admitted=admitted)
    chance = q[0, states[:, 0]] * q[1, states[:, 1]]
    possible = chance > 0
    x0 = target.expand(int(possible.sum()), -1)
    terms = process.elbo_term(logits[possible], states[possible], x0, t, admitted=admitted).sum(1)
    _require(bool((terms >= -TOLERANCE).all()), f"the bound's term at t={t} is not negative", process)
    return (chance[possible] * terms).sum()


def _check_loss(process: Process, seed: int) -> None:
    toy, batch = _Toy(process), _pair_windows(process, 64)
    loss = process.loss(toy, batch, _stream(seed))
    is_good = bool(torch.isfinite(loss)) and float(loss) >= 0
    _require(is_good, f"loss is finite and not negative, got {float(loss)}", process)
    for nothing in _untrained(batch):
        zero = process.loss(toy, nothing, _stream(seed))
        _law("tokens that are frozen or no target carry no loss", process, zero, torch.zeros_like(zero))


def _check_elbo(process: Process, num_draws: int, seed: int) -> None:
    states, toy, batch = _pairs(process), _Toy(process), _pair_windows(process, num_draws)
    target = batch.tokens[0]
    narrow = torch.ones(2, process.num_symbols, dtype=torch.bool)
    narrow[0, -1] = narrow[1, 0] = process.num_symbols == 1
    for admitted, within in ((None, ""), (narrow, " within admitted sets")):
        exact = process.prior_term(target[None], admitted=admitted)[0].sum()
        for t in range(1, process.num_timesteps + 1):
            exact = exact + _term(process, toy(states, states), states, target, t, admitted)
        estimates = process.elbo(toy, batch, _stream(seed), admitted=admitted)
        error = float((estimates.mean() - exact).abs())
        # Low-discrepancy times make the mean surer than independent draws would, so this spread is an upper limit.
        allowed = SIGMAS * float(estimates.std()) / num_draws**0.5 + TOLERANCE
        law = f"elbo is unbiased{within}: {float(estimates.mean())} against {float(exact)} ± {allowed}"
        _require(error <= allowed, law, process)
    for nothing in _untrained(batch):
        none = process.elbo(toy, nothing, _stream(seed))
        _law("tokens that are frozen or no target carry no bound", process, none, torch.zeros_like(none))


def _has_bound(process: Process) -> bool:
    xt = process.prior_sample(torch.zeros(1, 2).long(), torch.zeros(1, 2).bool(), generator=_stream(0))
    term = process.elbo_term(_Toy(process)(xt, xt), xt, torch.zeros_like(xt), process.num_timesteps)
    return not bool(term.isnan().any())


def _check_samples(process: Process, num_draws: int, seed: int) -> None:
    toy, last = _Toy(process), process.num_timesteps
    sampler = make_sampler("ancestral", process)
    start = torch.tensor([[process.num_symbols - 1, process.num_symbols - 1]])
    xt = process.prior_sample(start, torch.zeros_like(start).bool(), generator=_stream(seed))
    table = process.reverse(toy(xt, xt), xt, last, last // 2)[0]
    many, free = xt.expand(num_draws, -1), torch.zeros(num_draws, 2).bool()
    out = sampler.step(toy(many, many), last, last // 2, many, frozen=free, generator=_stream(seed))
    _frequencies(process, f"ancestral step from t={last} to s={last // 2}", out.prev_sample, table)

    for name in ("ancestral", "easy_first", "one_call"):
        check_sampler(make_sampler(name, process), seed=seed)


def check_sampler(sampler: Sampler, *, seed: int = 0) -> None:
    """Check that a sampler keeps every law on sequences of two tokens, with few network calls and with many.

    The same generators give the same sample, and a row does not depend on the others; frozen tokens never change; only
    admitted symbols are produced; no noise is left at time 0.

    Args:
        sampler: With a small process, e.g. ``make_sampler("mine", Absorbing(5, 20))``, and ``last`` within 0 and 1.
        seed: Seed of all draws.

    Raises:
        AssertionError: a law is broken; the message says which.
    """
    process, name = sampler.process, type(sampler).__name__
    toy, last = _Toy(process), process.num_timesteps
    tokens = torch.randint(process.num_symbols, (16, 2), generator=_stream(seed))
    frozen = torch.zeros(16, 2, dtype=torch.bool)
    frozen[::2, 0] = True  # in the other rows the order in which two tokens are decided matters
    begun = process.prior_sample(tokens, frozen, generator=_stream(seed))
    admitted = torch.ones(2, process.num_symbols, dtype=torch.bool)
    admitted[1, 1:] = process.num_symbols == 1
    begun_inside = process.prior_sample(tokens, frozen, admitted=admitted, generator=_stream(seed))
    for num in sorted({1, (last + 1) // 2, last}):

        def drawn(start: Tensor, rows: range, num: int = num, admitted: Tensor | None = None) -> Tensor:
            streams, fixed = [_stream(seed + row) for row in rows], frozen[rows.start : rows.stop]
            return sample(toy, process, sampler, start, fixed, admitted=admitted, generator=streams, num_steps=num)

        ends = drawn(begun, range(16))
        what = f"{name} with {num} calls"
        same = torch.equal(ends, drawn(begun, range(16)))
        _require(same, f"{what}: the same generators give the same sample", process)
        _require(bool((ends < process.num_symbols).all()), f"{what}: no noise state is left at time 0", process)
        _require(bool((ends == tokens)[frozen].all()), f"{what}: frozen tokens never change", process)
        alone = drawn(begun[5:6], range(5, 6))
        _require(torch.equal(alone[0], ends[5]), f"{what}: a row does not depend on the others", process)
        inside = drawn(begun_inside, range(16), admitted=admitted)
        _require(bool((inside[:, 1] == 0).all()), f"{what}: only admitted symbols are produced", process)


def _pair_windows(process: Process, num: int) -> TokenBatch:
    """The pair of the first and the last symbol, many times."""
    tokens = torch.tensor([0, process.num_symbols - 1]).expand(num, -1)
    nothing = torch.zeros_like(tokens).bool()
    return TokenBatch(tokens, nothing, ~nothing, torch.arange(num))


def _untrained(batch: TokenBatch) -> list[TokenBatch]:
    """Four rows of a batch, frozen throughout, and with no target."""
    some = batch.rows(torch.arange(4))
    return [replace(some, frozen=some.target), replace(some, target=some.frozen)]


@dataclass(frozen=True)
class _Toy:
    """A fixed prediction of two tokens, each from both; it is fitted to no process."""

    process: Process

    def __call__(self, tokens: Tensor, t: Tensor) -> Tensor:
        """[M, 2, K] logits; the same at all times."""
        first, second = tokens[:, 0, None, None].double(), tokens[:, 1, None, None].double()
        place, symbol = torch.arange(2.0).double()[:, None], torch.arange(self.process.num_symbols).double()
        return torch.sin(1.7 * symbol + 2.3 * place + 0.8 * first + 1.9 * second * (place + 1)) + 0.3 * symbol * place


def _pairs(process: Process) -> Tensor:
    return torch.tensor(list(itertools.product(range(process.input_symbols), repeat=2)))


def _stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _frequencies(process: Process, what: str, drawn: Tensor, expected: Tensor) -> None:
    num = drawn.shape[0]
    counts = torch.nn.functional.one_hot(drawn, process.input_symbols).sum(0).double()
    spread = SIGMAS * (num * expected * (1 - expected)).clamp(min=0).sqrt()
    # One count of grace: five standard deviations of a rare event are less than one event.
    grace = (expected > TOLERANCE).double()
    off = (counts - num * expected).abs() - spread - grace
    law = f"{what} has the frequencies of its probabilities: {(counts / num).tolist()} against {expected.tolist()}"
    _require(bool((off <= num * TOLERANCE).all()), law, process)


def _law(law: str, process: Process, got: Tensor, expected: Tensor) -> None:
    error = float((got - expected).abs().max()) if got.numel() else 0.0
    _require(error <= TOLERANCE, f"{law} (largest difference {error:.3g})", process)


def _require(holds: bool, law: str, process: Process) -> None:
    if not holds:
        raise AssertionError(f"{_name(process)}: broken law: {law}")


def _name(process: Process) -> str:
    config = ", ".join(f"{key}={value!r}" for key, value in process.config().items() if key != "kind")
    return f"{type(process).__name__}({config})"
