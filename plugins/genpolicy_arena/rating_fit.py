"""Maximises the likelihood of results: games counted by pairing, Newton's method, the information at the maximum.

Axes: N players, P pairings (ordered pairs), K free parameters (N ratings, then perhaps advantage, draw parameter).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy_arena.rating_groups import Groups, flagged
from genpolicy_arena.rating_models import MODELS, Counts, Floats, RatingModel

MAX_PLAYERS = 3000  # the information matrix is dense
_MAX_ITERATIONS = 200
_MAX_STRENGTH = 20.0
"""In x, about 3,500 Elo: a strength beyond it diverges, so the likelihood has no maximum."""
_MAX_VARIANCE = 1e8
"""In x squared: a larger variance means that the likelihood flattens out towards infinity, without a maximum."""
MAX_RATING = 10_000.0
"""Largest rating of an anchor, either way."""
MAX_ADVANTAGE = 2_000.0
"""Largest worth of the first move, either way: at 5,000 the fit finds no maximum."""
MAX_DRAW = 10_000.0
"""Largest draw parameter as people write it: with this nu, equal players draw 9,998 of 10,000 games."""
MAX_PRIOR = 1e6
"""Most virtual games of each player; so many hide the games played."""
MIN_BOOTSTRAP = 20
"""Fewest bootstrap samples whose percentiles are shown as an interval."""
_RULE_OF_THREE = 3.0
"""Decided games that none among many observed ones cannot rule out (95 %)."""
_MAX_MOVE = 3.0
"""In x: a longer step of Newton's method leaves the region where the curvature is of use."""


@dataclass(frozen=True)
class RatedGame:
    """One game in the form that ratings take."""

    first: str
    """Name of the player who moved first."""
    second: str
    result: float
    """1 if the first player won, 0 for a draw, -1 if the second won."""
    pair: str | None = None
    """Name that the two games of one opening share; None for a single game."""


@dataclass(frozen=True)
class FitOptions:
    """How ratings are fitted. None means the model's own default."""

    model: str = "bt"
    anchor: tuple[str, float] | None = None
    """A player and its rating."""
    advantage: float | Literal["fit"] | None = None
    """Worth of the first move in Elo points, on the scale of the ratings shown, as in ``Ratings.advantage``. A model's
    own default is on the model's scale (BayesElo's eloAdvantage 32.8)."""
    draw: float | Literal["fit"] | None = None
    """The draw parameter."""
    prior: float | None = None
    """Virtual games of each player, shared out over its opponents by games, half with each colour, as in BayesElo:
    draws for that model, half a win and half a loss for the others. If the likelihood alone has no maximum, 1 is added
    to the players whose rating nothing bounds."""
    bootstrap: int = 0
    """Number of bootstrap samples of opening pairs for the intervals; 0 uses the information matrix instead."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        if self.draw is not None and not MODELS[self.model].has_draw_parameter:
            raise ValueError(f"--draw: model {self.model!r} has no draw parameter; leave it out")
        for option, value, least, most in (
            ("--anchor NAME=ELO", None if self.anchor is None else self.anchor[1], -MAX_RATING, MAX_RATING),
            ("--advantage", self.advantage, -MAX_ADVANTAGE, MAX_ADVANTAGE),
            ("--draw", self.draw, 0.0, MAX_DRAW),
            ("--prior", self.prior, 0.0, MAX_PRIOR),
        ):
            # So written, NaN fails too.
            if isinstance(value, int | float) and not least <= value <= most:
                raise ValueError(f"{option} must be a number from {least:,.0f} to {most:,.0f}, got {value}")
        if self.bootstrap < 0 or 0 < self.bootstrap < MIN_BOOTSTRAP:
            raise ValueError(
                f"bootstrap must be 0 or at least {MIN_BOOTSTRAP} samples, got {self.bootstrap}; 1000 is usual"
            )


class Tally:
    """Games counted by ordered pair."""

    def __init__(self, games: Sequence[RatedGame]) -> None:
        if not games:
            raise ValueError("no finished game to rate; games without a result are skipped")
        counts: Counter[tuple[str, str, float]] = Counter((game.first, game.second, game.result) for game in games)
        self.names = sorted({name for first, second, _ in counts for name in (first, second)})
        if len(self.names) > MAX_PLAYERS:
            raise ValueError(
                f"{len(self.names)} players are more than the {MAX_PLAYERS} that can be rated: try --min-games 20"
            )
        self.index = {name: i for i, name in enumerate(self.names)}
        self.pairs: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for (first, second, result), number in counts.items():
            if result not in (1.0, 0.0, -1.0) or first == second:
                raise ValueError(f"a game of {first!r} and {second!r} with result {result!r} cannot be rated")
            self.pairs[self.index[first], self.index[second]][1 - int(result)] += number

    def arrays(self, prior: Floats, *, drawn: bool) -> tuple[NDArray[np.int64], NDArray[np.int64], Counts]:
        """Indices of the first and second players [P], and counts with the virtual games of each player [N]."""
        pairs = {key: list(value) for key, value in self.pairs.items()}
        if prior.any():
            met: Counter[tuple[int, int]] = Counter()
            total: Counter[int] = Counter()
            for (i, j), counts in self.pairs.items():
                met[min(i, j), max(i, j)] += int(sum(counts))
                total[i] += int(sum(counts))
                total[j] += int(sum(counts))
            for (i, j), number in met.items():
                # Each player adds a quarter of its virtual games to either colour, by games (BayesElo's AddPrior).
                share = float(prior[i] * number / total[i] + prior[j] * number / total[j]) / 4
                if share == 0:
                    continue
                for key in ((i, j), (j, i)):
                    row = pairs.setdefault(key, [0.0, 0.0, 0.0])
                    for result, part in ((1, share),) if drawn else ((0, share / 2), (2, share / 2)):
                        row[result] += part
        first, second = np.array(list(pairs), np.int64).T
        wins, draws, losses = np.array(list(pairs.values()), np.float64).T
        return first, second, Counts(wins, draws, losses)


@dataclass
class Estimate:
    """The parameters that maximise the likelihood."""

    strengths: Floats
    """[N] in x, mean 0 within each group."""
    advantage: float
    draw: float
    covariance: Floats
    """[K, K] of the strengths and the other free parameters."""
    free: tuple[str, ...]
    """Names of the other free parameters: ``advantage``, ``draw``."""
    log_likelihood: float
    notes: list[str] = field(default_factory=list)


class _Likelihood:
    """A log-likelihood over N strengths, the advantage of the first move and the draw parameter."""

    def __init__(self, tally: Tally, model: RatingModel, prior: Floats) -> None:
        self.model, self.size = model, len(tally.names)
        self.first, self.second, self.counts = tally.arrays(prior, drawn=model.prior_is_drawn)
        self.played = np.array(list(tally.pairs), np.int64).T
        """[2, pairings] the players of those that hold more than virtual games."""
        advantage = np.full_like(self.first, self.size)
        self._columns = ((self.first, 1.0), (self.second, -1.0), (advantage, 1.0))

    def evaluate(self, at: Floats) -> tuple[float, Floats, Floats]:
        """Value, gradient [N + 2] and information [N + 2, N + 2] at a point [N + 2]."""
        num, draw = self.size, np.full_like(self.first, self.size + 1)
        curve = self.model.curve(at[self.first] - at[self.second] + at[num], at[num + 1], self.counts)
        gradient = np.zeros(num + 2)
        for rows, sign in self._columns:
            np.add.at(gradient, rows, sign * curve.dx)
        gradient[num + 1] = curve.dd.sum()
        information = self._outer(-curve.dxx)
        for rows, sign in self._columns:
            np.add.at(information, (rows, draw), -sign * curve.dxd)
            np.add.at(information, (draw, rows), -sign * curve.dxd)
        information[num + 1, num + 1] = -curve.ddd.sum()
        return float(curve.value.sum()), gradient, information

    def spread_of_scores(self, at: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Squared deviations of the scores from expectation: the middle factor of a sandwich covariance.

        Equal players that always drew show no spread, but that does not mean that there is none: if none of many games
        was decided, three could have been (the rule of three, 95 %). Each player's squares are therefore at least those
        of three decided games, or of all its games if it has fewer.

        Returns:
            The matrix [N + 2, N + 2], and for each player whether its squares were raised, [N].
        """
        x = at[self.first] - at[self.second] + at[self.size]
        expected = self.model.probabilities(x, at[self.size + 1])[0]
        wins, draws, losses = self.counts.wins, self.counts.draws, self.counts.losses
        squares = wins * (1 - expected) ** 2 + draws * (0.5 - expected) ** 2 + losses * expected**2
        games = self.counts.games

        def of_players(amounts: Floats) -> Floats:
            sides = (np.bincount(side, amounts, self.size) for side in (self.first, self.second))
            total: Floats = np.sum(list(sides), axis=0)
            return total

        played = np.maximum(1e-300, of_players(games))
        least = np.minimum(_RULE_OF_THREE, played) / played * of_players(games * expected * (1 - expected))
        short = np.maximum(0.0, least - of_players(squares))
        lacking: Floats = short / played
        squares = squares + games * np.maximum(lacking[self.first], lacking[self.second])
        return self._outer(squares), short > 1e-9

    def _outer(self, weights: Floats) -> Floats:
        """Sum over pairings of the weight times the outer product of dx/dparameters with itself."""
        matrix = np.zeros((self.size + 2, self.size + 2))
        for rows, sign in self._columns:
            for others, other_sign in self._columns:
                np.add.at(matrix, (rows, others), sign * other_sign * weights)
        return matrix


def maximise(
    tally: Tally,
    model: RatingModel,
    options: FitOptions,
    advantage: float | Literal["fit"] | None,
    prior: Floats,
    groups: Groups,
) -> Estimate | None:
    """Maximise the likelihood by Newton's method with step halving.

    Args:
        tally: The games.
        model: Model of a game's result.
        options: What is fitted.
        advantage: In place of that of the options, on the model's own scale, whose range is larger than theirs.
        prior: [N] virtual games of each player.
        groups: Groups of the players.

    Returns:
        The estimate; None if the likelihood has no maximum.
    """
    likelihood = _Likelihood(tally, model, prior)
    point, fit_advantage, fit_draw, notes = _begin(likelihood, options, advantage)
    num = likelihood.size
    free = np.array([True] * num + [fit_advantage, fit_draw])
    within = np.ix_(free, free)
    # The mean of each group is fixed: a shift of a whole group changes nothing, and would make the matrix singular.
    gauge = np.stack([(groups.component == g).astype(np.float64) for g in range(groups.num_components)])
    fixed = np.zeros((int(free.sum()), int(free.sum())))
    fixed[:num, :num] = gauge.T @ gauge
    value, gradient, information = likelihood.evaluate(point)
    for _ in range(_MAX_ITERATIONS):
        try:
            move = np.linalg.solve(information[within] + fixed, gradient[free])
        except np.linalg.LinAlgError:
            return None
        size = min(1.0, _MAX_MOVE / max(1e-300, float(np.abs(move).max())))
        while size > 1e-9:
            trial = point.copy()
            trial[free] += size * move
            if not (fit_draw and trial[num + 1] <= model.no_draws):
                better = likelihood.evaluate(trial)
                if better[0] >= value - 1e-12 * abs(value):
                    break
            size /= 2
        else:
            break
        point, (value, gradient, information) = trial, better
        if np.abs(point[: num + 1]).max() > _MAX_STRENGTH:
            return None
        if np.abs(move).max() * size < 1e-11:
            break
    if np.abs(gradient[free]).max() > 1e-5 * max(1.0, float(likelihood.counts.games.sum())):
        return None
    try:
        inverse = np.linalg.inv(information[within] + fixed)
    except np.linalg.LinAlgError:
        return None
    if not np.abs(np.diag(inverse)).max() <= _MAX_VARIANCE:
        return None
    if not model.has_draw_parameter:
        spread, raised = likelihood.spread_of_scores(point)
        inverse = inverse @ spread[within] @ inverse
        if raised.any():
            notes.append(
                "almost no game was decided against expectation, so the intervals are as wide as if three had been: "
                + flagged(tally.names, raised)
            )
    # The gauge's own direction is not uncertain, since the mean is fixed; its part is taken out again.
    project = np.eye(int(free.sum()))
    project[:num, :num] -= (gauge / gauge.sum(axis=1, keepdims=True)).T @ gauge
    names = tuple(name for name, is_free in (("advantage", fit_advantage), ("draw", fit_draw)) if is_free)
    covariance = project @ inverse @ project.T
    return Estimate(point[:num], float(point[num]), float(point[num + 1]), covariance, names, value, notes)


def _begin(
    likelihood: _Likelihood, options: FitOptions, advantage: float | Literal["fit"] | None
) -> tuple[Floats, bool, bool, list[str]]:
    """The initial point [N + 2], whether advantage and draw parameter are free, and notes on that."""
    model, counts, num = likelihood.model, likelihood.counts, likelihood.size
    notes: list[str] = []
    point = np.zeros(num + 2)
    advantage = model.default_advantage if advantage is None else advantage
    fit_advantage = advantage is None or advantage == "fit"
    if not fit_advantage:
        point[num] = float(advantage or 0.0) * model.unit
    fit_draw = False
    if model.has_draw_parameter:
        draw = model.default_draw if options.draw is None else options.draw
        fit_draw = draw is None or draw == "fit"
        point[num + 1] = model.start_draw if fit_draw else model.natural_draw(float(draw or 0.0))
        if fit_draw and counts.draws.sum() == 0:
            point[num + 1], fit_draw = model.no_draws, False
    if counts.wins.sum() + counts.losses.sum() == 0:
        notes.append("every game was drawn, so how often equal players draw cannot be estimated")
        fit_draw = fit_advantage = False
    if fit_advantage and not _both_ways(*likelihood.played):
        notes.append("no pair met with both colours: the advantage of the first move is taken as 0; give --advantage")
        fit_advantage = False
    return point, fit_advantage, fit_draw, notes


def _both_ways(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether the advantage can be told from strengths, which needs pairs that met with both colours, for example.

    The design matrix of the strengths alone must not span the constant.
    """
    size = int(max(first.max(), second.max())) + 1
    gram = np.zeros((size, size))
    column = np.zeros(size)
    for a, b, sign in ((first, first, 1.0), (second, second, 1.0), (first, second, -1.0), (second, first, -1.0)):
        np.add.at(gram, (a, b), sign)
    np.add.at(column, first, 1.0)
    np.subtract.at(column, second, 1.0)
    explained = float(column @ np.linalg.lstsq(gram, column, rcond=None)[0])
    return len(first) - explained > 1e-9 * len(first)
