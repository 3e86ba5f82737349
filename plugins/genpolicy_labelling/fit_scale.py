"""``genpolicy data fit-scale``: fits the scale that turns an engine's centipawns into win probabilities.

The model is that of ``genpolicy.values``: P(win) = 1 / (1 + exp(-scale * centipawns)), a draw counting half. The scale
that makes the results of labelled games likeliest is found by Newton's method; its interval is that of a bootstrap over
whole games, since the positions of a game share one result.

Axes: N positions, G games.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.errors import DatasetError
from genpolicy.values import CENTIPAWN_SCALE, parse_score
from genpolicy_common.arguments import add_data, add_json, require
from genpolicy_common.tables import write_json

Array = NDArray[np.float64]
MAX_CENTIPAWNS = 3000.0
"""Larger scores are left out: they come from decided games, which only tell that the scale is not negative."""
NUM_RESAMPLES = 400
MIN_GAMES = 10
_MAX_ITERATIONS = 50


@dataclass(frozen=True)
class ScaleFit:
    """A fitted scale, its interval and the data behind it."""

    scale: float
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end."""
    positions: int
    games: int
    log_loss: float
    """Mean of -log P(result) in nats with the fitted scale; guessing at even odds gives 0.693."""
    log_loss_before: float
    """The same with ``scale_before``."""
    scale_before: float
    """The scale that the data set was made with."""

    @property
    def three_quarters(self) -> float:
        """Centipawns at which the win probability is 75 %."""
        return float(np.log(3.0) / self.scale)


def fit_scale(centipawns: Array, results: Array, games: NDArray[np.int64], seed: int = 0) -> tuple[float, float, float]:
    """The likeliest scale and the ends of its 95 % interval.

    Args:
        centipawns: Scores for the player to move, [N].
        results: 1 if that player won, 0.5 for a draw, 0 if it lost, [N].
        games: Number of each position's game, 0..G-1, [N].
        seed: Seed of the resampled games.

    Raises:
        ValueError: the likelihood has no maximum (all scores are 0, or every result agrees with its score's sign), or
            it lies at 0 or below.
    """
    weight = np.ones(len(centipawns))
    best = _likeliest(centipawns, results, weight)
    if best <= 0:
        raise ValueError(f"the fitted scale is {best:g}: the better score wins no more often; are the results right?")
    rng = np.random.default_rng(seed)
    num_games = int(games.max()) + 1
    drawn = []
    for _ in range(NUM_RESAMPLES):
        times = np.bincount(rng.integers(num_games, size=num_games), minlength=num_games)
        try:
            drawn.append(_likeliest(centipawns, results, times[games].astype(np.float64), best))
        except ValueError:  # a resample whose results all agree with the scores, or all differ, has no finite scale
            drawn.append(np.copysign(np.inf, np.sum(times[games] * (results - 0.5) * centipawns)))
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return best, float(low), float(high)


def log_loss(centipawns: Array, results: Array, scale: float) -> float:
    """Mean of -log P(result) in nats; a draw is half a win and half a loss."""
    # -log P(win) = log(1 + exp(-x)); -log P(loss) = log(1 + exp(x)), both without overflow.
    x = scale * centipawns
    return float(np.mean(results * np.logaddexp(0.0, -x) + (1.0 - results) * np.logaddexp(0.0, x)))


def _likeliest(centipawns: Array, results: Array, weight: Array, start: float = CENTIPAWN_SCALE) -> float:
    """Newton's method on the log likelihood, which is concave in the scale."""
    pawns = centipawns / 100.0
    scale = 100.0 * start
    for _ in range(_MAX_ITERATIONS):
        probability = 1.0 / (1.0 + np.exp(-np.clip(scale * pawns, -700.0, 700.0)))
        slope = float(np.sum(weight * (results - probability) * pawns))
        curvature = float(np.sum(weight * probability * (1.0 - probability) * pawns**2))
        if curvature <= 1e-12:
            break
        # Beyond doubling or halving, the quadratic approximation is of no use.
        change = float(np.clip(slope / curvature, -0.5 * abs(scale) - 0.01, abs(scale) + 0.01))
        scale += change
        if abs(change) < 1e-9 * max(1.0, abs(scale)):
            return scale / 100.0
    raise ValueError("no scale fits best: the scores are all 0, or every result agrees with its score's sign")


def fit_dataset(folder: Path, split: str | None = None, seed: int = 0) -> ScaleFit:
    """Fit the scale to the scores and results of a data set.

    Args:
        folder: A data set with games, results and ``cp`` scores, e.g. one that ``genpolicy data selfplay`` made.
        split: Only positions of this split; None takes all.
        seed: Seed of the bootstrap.

    Raises:
        DatasetError: the folder holds no data set, or too few games with scores and results.
    """
    from genpolicy.data.records import Dataset
    from genpolicy.registry import load_game

    dataset = Dataset.open(folder)
    game = load_game(dataset.game_spec)
    numbers: dict[str, int] = {}
    rows: list[tuple[float, float, int]] = []
    for record in dataset.records(split):
        if record.result is None or record.game_id is None or not record.scores or record.scores[0] is None:
            continue
        kind, value = parse_score(record.scores[0])
        if kind != "cp" or abs(value) > MAX_CENTIPAWNS:
            continue
        player = game.player(game.parse(record.state))
        result = record.result if player == 0 else -record.result
        rows.append((value, 0.5 + 0.5 * result, numbers.setdefault(record.game_id, len(numbers))))
    if len(numbers) < MIN_GAMES:
        raise DatasetError(
            f"{folder}: {len(numbers)} games have cp scores and a result, and a fit needs at least {MIN_GAMES}; "
            "genpolicy data selfplay makes such games, and so does genpolicy data label from imported ones"
        )
    centipawns, results, games = (np.array(column) for column in zip(*rows, strict=True))
    try:
        scale, low, high = fit_scale(centipawns, results, games.astype(np.int64), seed)
    except ValueError as error:
        raise DatasetError(f"{folder}: {error}; a fit needs games not won by the side with the better score") from error
    before = dataset.centipawn_scale
    return ScaleFit(
        scale,
        low,
        high,
        len(rows),
        len(numbers),
        log_loss(centipawns, results, scale),
        log_loss(centipawns, results, before),
        before,
    )


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "fit-scale",
        help="fit the scale that turns an engine's centipawns into win probabilities",
        description="Fit the scale that turns an engine's centipawns into win probabilities to the results of labelled "
        "games. Give it to the oracle: 'engine?nodes=2000&scale=S'. Adjudicated games (--adjudicate) end as their "
        "scores predict, which makes the scale too large.",
    )
    add_data(parser, old="DATASET")
    parser.add_argument("--split", metavar="NAME", help="only train, validation or test (default: all)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the interval (default 0)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """``genpolicy data fit-scale``."""
    require(arguments.folder, "--data", "runs/labelled")
    fit = fit_dataset(arguments.folder, arguments.split, arguments.seed)
    print(f"scale={fit.scale:.6g}  (95 % interval {fit.low:.6g} to {fit.high:.6g}, by games)")
    print(f"win probability 75 % at {fit.three_quarters:.0f} centipawns")
    print(f"log loss {fit.log_loss:.4f}, with the data set's scale {fit.scale_before:.6g}: {fit.log_loss_before:.4f}")
    print(f"from {fit.positions:,} positions of {fit.games:,} games")
    write_json(arguments.json, asdict(fit))
    return 0
