"""The laws of Gaussian diffusion over embeddings, by moments and by quadrature.

Axes: G points of a grid of z, K symbols, E numbers of an embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from genpolicy_policy_baselines.gaussian_embedding import GaussianEmbedding
from genpolicy_policy_baselines.gaussian_formulas import alpha_sigma, ancestral_step

TOLERANCE = 1e-9
SIGMAS = 5.0
GRID_END, GRID_POINTS = 9.0, 1801


def check_gaussian(process: GaussianEmbedding, *, num_draws: int = 20_000, seed: int = 0) -> None:
    """Check that a Gaussian process keeps every law; a few seconds.

    Its schedule rises and preserves variance; the posterior is that of the joint Gaussian; noise has the moments of the
    marginal, leaves unlabelled tokens no trace of data, and depends on its generator alone; the T-step weight is the
    divergence of the two reverse kernels; with two symbols in one dimension the bound is not below the exact
    -log p(x_0) of the reverse chain (by quadrature) and its estimate is unbiased.

    Args:
        process: An instance in float64; the bound is checked where it has two symbols of width 1, at most 8 steps and
            no step or embedding narrower than the grid (gamma_min -4 has none; VDM's -13.3 has).
        num_draws: Draws behind each moment.
        seed: Of all draws.

    Raises:
        AssertionError: a law is broken; the message says which and by how much.
        ValueError: not in float64.
    """
    if process.embeddings().dtype != torch.float64:
        raise ValueError("check_gaussian compares float64 numbers: call process.double() first")
    with torch.no_grad():
        _check_schedule(process)
        _check_posterior(process, seed)
        _check_noise(process, num_draws, seed)
        _check_weight(process, seed)
        if (process.num_symbols, process.width) == (2, 1) and process.num_timesteps <= 8 and is_resolved(process):
            _check_bound(process, num_draws, seed)


def is_resolved(process: GaussianEmbedding) -> bool:
    """Whether sums over the grid are integrals: an error of exp(-2 (pi std / spacing)^2), 1e-8 where they are equal."""
    times = torch.arange(process.num_timesteps + 1, dtype=torch.float64) / process.num_timesteps
    gamma = process.gamma(times)
    narrowest = min(float(ancestral_step(gamma[:-1], gamma[1:]).std.min()), float(alpha_sigma(gamma[0])[1]))
    return narrowest >= 2 * GRID_END / (GRID_POINTS - 1)


def _check_schedule(process: GaussianEmbedding) -> None:
    t = torch.linspace(0, 1, 201, dtype=torch.float64)
    gamma = process.gamma(t)
    _require(bool((gamma[1:] > gamma[:-1]).all()), "gamma rises with t")
    ends = torch.tensor([process.gamma_min, process.gamma_max], dtype=torch.float64)
    _close("gamma's ends", gamma[[0, -1]], ends)
    x0 = torch.arange(process.num_symbols)
    for time in (0.0, 0.5, 1.0):
        mean, std = process.marginal(x0, torch.tensor(time, dtype=torch.float64))
        total = (mean**2).mean(-1) + std**2
        _close(f"variance at t={time} is preserved", total, torch.ones_like(total))
    slope = process.gamma_slope(t[1:-1])
    _close(
        "gamma's slope", slope, (gamma[2:] - gamma[:-2]) / (t[2:] - t[:-2]), tolerance=1e-2 * float(slope.abs().max())
    )


def _check_posterior(process: GaussianEmbedding, seed: int) -> None:
    """By conditioning the joint Gaussian of (z_s, z_t) on z_t."""
    stream = torch.Generator().manual_seed(seed)
    x0 = torch.arange(process.num_symbols)
    e = process.embeddings()
    for s, t in ((0.0, 0.3), (0.2, 0.25), (0.4, 1.0), (0.0, 1.0)):
        times = torch.tensor([s, t], dtype=torch.float64)
        mean_s, std_s = process.marginal(x0, times[0])
        mean_t, std_t = process.marginal(x0, times[1])
        scale = (torch.sigmoid(-process.gamma(times[1])) / torch.sigmoid(-process.gamma(times[0]))).sqrt()
        zt = mean_t + torch.randn(e.shape, generator=stream, dtype=torch.float64)
        covariance = scale * std_s**2
        expected_mean = mean_s + (covariance / std_t**2)[:, None] * (zt - mean_t)
        expected_std = (std_s**2 - covariance**2 / std_t**2).sqrt()
        mean, std = process.posterior(zt, e, times[1], times[0])
        _close(f"posterior mean from t={t} to s={s}", mean, expected_mean, tolerance=1e-7)
        _close(f"posterior deviation from t={t} to s={s}", std.expand(len(x0)), expected_std, tolerance=1e-7)


def _check_noise(process: GaussianEmbedding, num_draws: int, seed: int) -> None:
    x0 = torch.arange(process.num_symbols + 1).expand(num_draws, -1)  # the last is unlabelled
    frozen = torch.zeros_like(x0, dtype=torch.bool)
    frozen[:, 0] = True
    for time in (0.0, 0.5, 1.0):
        t = torch.full((num_draws,), time, dtype=torch.float64)
        draw, again = (process.noise(x0, t, frozen, _stream(seed)) for _ in "ab")
        _require(torch.equal(draw.z, again.z), f"noise at t={time} is the same for the same generator")
        _require(torch.equal(draw.noised, ~frozen), "frozen tokens have no z")
        mean, std = process.marginal(x0[0, :-1], t[0])
        mean = torch.cat([mean, torch.zeros(1, process.width)])
        std = torch.cat([std, torch.ones(1)])
        off = (draw.z.mean(0) - mean).abs() - SIGMAS * std[:, None] / num_draws**0.5
        _require(bool((off <= TOLERANCE).all()), f"mean of noise at t={time}: off by {float(off.max())}")
        variance = ((draw.z - mean) ** 2).mean(0)
        off = (variance / (std**2)[:, None] - 1).abs() - SIGMAS * (2 / num_draws) ** 0.5
        _require(bool((off <= TOLERANCE).all()), f"variance of noise at t={time}: off by {float(off.max())}")
    t = torch.full((3,), 0.5, dtype=torch.float64)
    rows = [process.noise(x0[:3], t, None, [_stream(seed + i) for i in order]).z[1] for order in ((0, 1, 2), (9, 1, 8))]
    _require(torch.equal(rows[0], rows[1]), "noise of a row depends on its own generator alone")


def _check_weight(process: GaussianEmbedding, seed: int) -> None:
    """T KL( q(z_s | z_t, e) || q(z_s | z_t, e_hat) ) is the step weight times SNR_t ||e - e_hat||^2."""
    stream = torch.Generator().manual_seed(seed)
    e = process.embeddings()
    estimate, zt = (torch.randn(e.shape, generator=stream, dtype=torch.float64) for _ in "ab")
    for step in range(1, process.num_timesteps + 1):
        t, s = (torch.tensor(i / process.num_timesteps, dtype=torch.float64) for i in (step, step - 1))
        (q_mean, std), (p_mean, _) = process.posterior(zt, e, t, s), process.posterior(zt, estimate, t, s)
        exact = _divergence(q_mean, std, p_mean, std).sum(-1)
        error = torch.exp(-process.gamma(t)) * ((e - estimate) ** 2).sum(-1)
        ours = process.step_weight(t, s) * error / process.num_timesteps
        _close(f"weight of step {step}", ours / exact, torch.ones_like(exact), tolerance=1e-6)


class _Toy:
    """A prediction from z alone; it is fitted to no process."""

    def __init__(self, process: GaussianEmbedding) -> None:
        self.process = process

    def __call__(self, tokens: Tensor, t: Tensor, z: Tensor) -> Tensor:
        del tokens
        if self.process.prediction == "eps":
            alpha, sigma = (x[:, None, None] for x in alpha_sigma(self.process.gamma(t)))
            return (z - alpha * torch.tanh(1.5 * z + 0.3)) / sigma + 0.05 * t[:, None, None]
        return torch.cat([torch.sin(1.3 * z) + 0.4, 0.2 * z - t[:, None, None]], dim=-1)


@dataclass(frozen=True)
class _Windows:
    tokens: Tensor
    frozen: Tensor
    target: Tensor


def _check_bound(process: GaussianEmbedding, num_draws: int, seed: int) -> None:
    toy, num = _Toy(process), process.num_timesteps
    grid = torch.linspace(-GRID_END, GRID_END, GRID_POINTS, dtype=torch.float64)
    width = float(grid[1] - grid[0])
    times = torch.arange(num + 1, dtype=torch.float64) / num

    def estimate(t: Tensor) -> Tensor:
        z, row = grid[:, None, None], t.expand(GRID_POINTS)
        return process.estimate(toy(torch.zeros(GRID_POINTS, 1), row, z), z, row, None)[:, 0]

    density = _density(grid, torch.zeros(()), torch.ones(()))
    x0 = torch.arange(2)
    e = process.embeddings()
    bound = torch.zeros(2, dtype=torch.float64)
    for step in range(num, 0, -1):
        t, s = times[step], times[step - 1]
        predicted = estimate(t)
        mean, std = process.posterior(grid[:, None], predicted, t, s)
        kernel = _density(grid[None, :], mean, std)  # [from z_t, to z_s]
        density = (density * width) @ kernel
        for symbol in x0.tolist():
            of_mean, of_std = process.marginal(x0[symbol], t)
            q = _density(grid, of_mean, of_std) * width
            error = torch.exp(-process.gamma(t)) * ((e[symbol] - predicted) ** 2).sum(-1)
            bound[symbol] += (q * error).sum() * process.step_weight(t, s) / num
    decoder = process.decode(grid[:, None, None]).dense()[:, 0]
    _close(
        "the reverse chain's density at t=0 sums to 1",
        (density * width).sum(),
        torch.tensor(1.0).double(),
        tolerance=1e-4,
    )
    exact = -((density * width) @ decoder.exp()).log()
    for symbol in x0.tolist():
        mean, std = process.marginal(x0[symbol], times[0])
        bound[symbol] -= (_density(grid, mean, std) * width * decoder[:, symbol].clamp(min=-1e6)).sum()
        last, deviation = process.marginal(x0[symbol], times[-1])
        bound[symbol] += _divergence(last, deviation, torch.zeros(()), torch.ones(())).sum()
    _require(bool((bound >= exact - 1e-6).all()), f"bound {bound.tolist()} not below exact -log p {exact.tolist()}")
    for symbol in x0.tolist():
        tokens = torch.full((num_draws, 1), symbol)
        free = torch.zeros_like(tokens, dtype=torch.bool)
        estimates = process.elbo(toy, _Windows(tokens, free, ~free), _stream(seed))
        allowed = SIGMAS * float(estimates.std()) / math.sqrt(num_draws) + 1e-6
        off = abs(float(estimates.mean()) - float(bound[symbol]))
        _require(off <= allowed, f"elbo of symbol {symbol} is unbiased: off by {off}, allowed {allowed}")
        none = process.elbo(toy, _Windows(tokens[:4], ~free[:4], ~free[:4]), _stream(seed))
        _close("frozen tokens carry no bound", none, torch.zeros_like(none))


def _density(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return torch.exp(-0.5 * ((x - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


def _divergence(q_mean: Tensor, q_std: Tensor, p_mean: Tensor, p_std: Tensor) -> Tensor:
    """KL of two Gaussians, nats."""
    ratio = (q_std / p_std) ** 2
    return 0.5 * (ratio + ((q_mean - p_mean) / p_std) ** 2 - 1 - ratio.log())


def _stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _close(what: str, ours: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    off = float((ours - expected).abs().max())
    _require(off <= tolerance, f"{what}: off by {off}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"gaussian process: {what}")
