"""The maximum of a likelihood of results: games counted by pairing, Newton's method, the information at the top.

Axes: N players, P pairings (ordered pairs), K free parameters (N ratings, then perhaps advantage, draw parameter).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy_arena.rating_groups import Groups
from genpolicy_arena.rating_models import MODELS, Counts, Floats, RatingModel

MAX_PLAYERS = 3000  # the information matrix is dense
_MAX_ITERATIONS = 200
_FAR = 20.0
"""In x, some 3,500 Elo: beyond it a difference runs away and has no maximum."""
_DECIDED = 3.0
"""Games that may have been decided as far as none of many says, by the rule of three."""
_LONGEST = 3.0
"""In x: a longer step leaves where the curve is curved."""


@dataclass(frozen=True)
class RatedGame:
    """One game as ratings see it."""

    first: str
    """Who moved first."""
    second: str
    result: float
    """1 the first player won, 0 a draw, -1 the second won."""
    pair: str | None = None
    """What the two games of one opening share; None: this game stands alone."""


@dataclass(frozen=True)
class FitOptions:
    """How ratings are fitted. None takes the model's own default."""

    model: str = "bt"
    anchor: tuple[str, float] | None = None
    """A player and its rating."""
    advantage: float | Literal["fit"] | None = None
    """Elo points that moving first is worth, on the scale of the ratings shown: what ``Ratings.advantage`` says
    may be given back here. A model's own default is on its own scale (BayesElo's eloAdvantage 32.8)."""
    draw: float | Literal["fit"] | None = None
    """The draw parameter."""
    prior: float | None = None
    """Virtual games of each player, shared out over those it met by games, half with each colour, as BayesElo does:
    draws for that model, half a win and half a loss for the others. None: the model's default. Where the likelihood
    alone has no maximum, 1 is added to those players whose rating nothing bounds."""
    bootstrap: int = 0
    """So many draws of opening pairs for the intervals; 0: by the information matrix."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        if self.prior is not None and self.prior < 0:
            raise ValueError(f"prior must be at least 0 virtual games, got {self.prior}")
        if self.bootstrap < 0:
            raise ValueError(f"bootstrap must be at least 0 draws, got {self.bootstrap}")


class Tally:
    """Games counted by ordered pair."""

    def __init__(self, games: Sequence[RatedGame], names: Sequence[str] | None = None) -> None:
        if not games:
            raise ValueError("no finished game to rate; games without a result are left out")
        counts: Counter[tuple[str, str, float]] = Counter((game.first, game.second, game.result) for game in games)
        found = sorted({name for first, second, _ in counts for name in (first, second)})
        self.names = list(names) if names is not None else found
        if len(self.names) > MAX_PLAYERS:
            raise ValueError(
                f"{len(self.names)} players are more than the {MAX_PLAYERS} that are rated: --min-games 20"
            )
        self.index = {name: i for i, name in enumerate(self.names)}
        self.pairs: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for (first, second, result), number in counts.items():
            if result not in (1.0, 0.0, -1.0) or first == second:
                raise ValueError(f"a game of {first!r} and {second!r} with result {result!r} is no game between two")
            self.pairs[self.index[first], self.index[second]][1 - int(result)] += number

    def arrays(self, prior: Floats, *, drawn: bool) -> tuple[NDArray[np.int64], NDArray[np.int64], Counts]:
        """Who moved first and second [P], and the counts with the virtual games of each player [N]."""
        pairs = {key: list(value) for key, value in self.pairs.items()}
        if prior.any():
            met: Counter[tuple[int, int]] = Counter()
            total: Counter[int] = Counter()
            for (i, j), counts in self.pairs.items():
                met[min(i, j), max(i, j)] += int(sum(counts))
                total[i] += int(sum(counts))
                total[j] += int(sum(counts))
            for (i, j), number in met.items():
                # Each player brings a quarter of its own to either colour, shared by games (BayesElo's AddPrior).
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
class Fitted:
    """Where the likelihood is highest."""

    strengths: Floats
    """[N] in x, mean 0 within each group."""
    advantage: float
    draw: float
    covariance: Floats
    """[K, K] of ratings and whatever else was free."""
    free: tuple[str, ...]
    log_likelihood: float
    notes: list[str] = field(default_factory=list)


class _Likelihood:
    """A log-likelihood over N strengths, the advantage of the first move and the draw parameter."""

    def __init__(self, tally: Tally, model: RatingModel, prior: Floats) -> None:
        self.model, self.size = model, len(tally.names)
        self.first, self.second, self.counts = tally.arrays(prior, drawn=model.prior_is_drawn)
        advantage = np.full_like(self.first, self.size)
        self._columns = ((self.first, 1.0), (self.second, -1.0), (advantage, 1.0))

    def look(self, at: Floats) -> tuple[float, Floats, Floats]:
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
        """The squares of what the games scored beyond expectation, the middle of a sandwich, and whose were too few.

        Equals that always drew show no spread at all, which does not mean that there is none: of any number of games
        without a decided one, three might as well have been decided (the rule of three, 95 %). No player's squares are
        taken to be less than those of three decided games, or of all its games where it has fewer.

        Returns:
            [N + 2, N + 2], and [N] whether a player's squares were raised.
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
        least = np.minimum(_DECIDED, played) / played * of_players(games * expected * (1 - expected))
        short = np.maximum(0.0, least - of_players(squares))
        lacking: Floats = short / played
        squares = squares + games * np.maximum(lacking[self.first], lacking[self.second])
        return self._outer(squares), short > 1e-9

    def _outer(self, weights: Floats) -> Floats:
        """Sum over pairings of weight times the outer product of dx by the parameters."""
        matrix = np.zeros((self.size + 2, self.size + 2))
        for rows, sign in self._columns:
            for others, other_sign in self._columns:
                np.add.at(matrix, (rows, others), sign * other_sign * weights)
        return matrix


def maximise(tally: Tally, model: RatingModel, options: FitOptions, prior: Floats, groups: Groups) -> Fitted | None:
    """Where the likelihood is highest, by Newton's method with halved steps; None where that lies at infinity.

    Args:
        tally: The games.
        model: Of a game's result.
        options: What is fitted; here alone an advantage is on the model's own scale.
        prior: [N] virtual games of each player.
        groups: Of the games.
    """
    likelihood = _Likelihood(tally, model, prior)
    point, fit_advantage, fit_draw, notes = _begin(likelihood, options)
    num = likelihood.size
    free = np.array([True] * num + [fit_advantage, fit_draw])
    within = np.ix_(free, free)
    # The mean of each group is held: a shift of all of them changes nothing, and would make the matrix singular.
    gauge = np.stack([(groups.component == g).astype(np.float64) for g in range(groups.num_components)])
    fixed = np.zeros((int(free.sum()), int(free.sum())))
    fixed[:num, :num] = gauge.T @ gauge
    value, gradient, information = likelihood.look(point)
    for _ in range(_MAX_ITERATIONS):
        try:
            move = np.linalg.solve(information[within] + fixed, gradient[free])
        except np.linalg.LinAlgError:
            return None
        size = min(1.0, _LONGEST / max(1e-300, float(np.abs(move).max())))
        while size > 1e-9:
            trial = point.copy()
            trial[free] += size * move
            if not (fit_draw and trial[num + 1] <= model.no_draws):
                found = likelihood.look(trial)
                if found[0] >= value - 1e-12 * abs(value):
                    break
            size /= 2
        else:
            break
        point, (value, gradient, information) = trial, found
        if np.abs(point[: num + 1]).max() > _FAR:
            return None
        if np.abs(move).max() * size < 1e-11:
            break
    if np.abs(gradient[free]).max() > 1e-5 * max(1.0, float(likelihood.counts.games.sum())):
        return None
    inverse = np.linalg.inv(information[within] + fixed)
    if not model.has_draw_parameter:
        spread, raised = likelihood.spread_of_scores(point)
        inverse = inverse @ spread[within] @ inverse
        if raised.any():
            who = [name for name, flag in zip(tally.names, raised, strict=True) if flag]
            shown = "; ".join(who[:5]) + (f" and {len(who) - 5} more" if len(who) > 5 else "")
            notes.append(
                "next to no game was decided against expectation, so the intervals are as wide as if three had been: "
                + shown
            )
    # What the gauge put into its own direction is no uncertainty, since the mean is held; it is taken out again.
    project = np.eye(int(free.sum()))
    project[:num, :num] -= (gauge / gauge.sum(axis=1, keepdims=True)).T @ gauge
    names = tuple(name for name, is_free in (("advantage", fit_advantage), ("draw", fit_draw)) if is_free)
    covariance = project @ inverse @ project.T
    return Fitted(point[:num], float(point[num]), float(point[num + 1]), covariance, names, value, notes)


def _begin(likelihood: _Likelihood, options: FitOptions) -> tuple[Floats, bool, bool, list[str]]:
    """The first point [N + 2], whether advantage and draw parameter are free, and what to say of it."""
    model, counts, num = likelihood.model, likelihood.counts, likelihood.size
    notes: list[str] = []
    point = np.zeros(num + 2)
    advantage = model.default_advantage if options.advantage is None else options.advantage
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
        notes.append("every game was drawn: how often equals draw cannot be estimated")
        fit_draw = fit_advantage = False
    if fit_advantage and not _both_ways(likelihood.first, likelihood.second):
        notes.append("no pair met with both colours: the advantage of the first move is taken as 0, give --advantage")
        fit_advantage = False
    return point, fit_advantage, fit_draw, notes


def _both_ways(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether the advantage can be told from strength: in a cycle of one length it cannot, in two colours it can.

    The design matrix of strengths alone must not span the constant.
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
