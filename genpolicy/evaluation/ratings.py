"""Elo ratings of players from games, by maximum likelihood, with intervals and likelihood of superiority.

The models stand in ``rating_models``. Ratings are relative: their mean is 0, or the anchor has the rating it was given.
Intervals are 95 %: 1.96 standard deviations of the inverse observed information, of the difference to the mean of all
players (or to the anchor); for Ordo's model, whose likelihood is none of the results, of the sandwich of both. They
hold that games are independent. Where they are not (two games of one opening, deterministic players), a bootstrap over
opening pairs says more: whole pairs are drawn with replacement, and the interval is of percentiles.

Axes: N players, P pairings (ordered pairs), K free parameters (N ratings, then perhaps advantage, draw parameter).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy.evaluation.rating_groups import Groups, find_groups
from genpolicy.evaluation.rating_models import MODELS, Counts, Floats, RatingModel

Z95 = 1.959963984540054
MAX_PLAYERS = 3000  # the information matrix is dense
AUTO_PRIOR = 1.0
"""Virtual draws of each player where the likelihood alone has no maximum."""
_MAX_ITERATIONS = 200
_FAR = 20.0
"""In x, some 3,500 Elo: beyond it a difference runs away and has no maximum."""


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


@dataclass
class PlayerRating:
    """A row of the table."""

    name: str
    elo: float
    low: float
    """Lower end of the 95 % interval of the difference to the mean (or the anchor); -inf where nothing bounds it."""
    high: float
    games: int
    wins: int
    draws: int
    losses: int
    group: int
    """Players of different groups never met, not even through others: their ratings do not compare."""

    @property
    def score(self) -> float:
        """Points a game."""
        return (self.wins + self.draws / 2) / self.games


@dataclass
class Ratings:
    """What ``fit`` found."""

    model: str
    players: list[PlayerRating]
    """By group, then best first."""
    los: NDArray[np.float64]
    """[N, N] probability that the row's player is stronger than the column's, in the order of ``players``; NaN across
    groups."""
    advantage: float
    """What moving first is worth in Elo points."""
    advantage_interval: tuple[float, float] | None
    """None where it was given."""
    draw: float | None
    """The model's draw parameter as people write it (nu, eloDraw); None where it has none."""
    scale: float
    """Elo shown = the model's own difference times this."""
    prior: float
    log_likelihood: float
    """Of the games and the prior's."""
    notes: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """For JSON; an end of an interval that nothing bounds is null."""
        rows = [
            {
                **{
                    key: getattr(row, key) for key in ("name", "elo", "low", "high", "games", "wins", "draws", "losses")
                },
                "score": row.score,
                "group": row.group,
            }
            for row in self.players
        ]
        return {
            "model": self.model,
            "players": rows,
            "likelihood_of_superiority": self.los.tolist(),
            "first_move_advantage": self.advantage,
            "first_move_advantage_interval": self.advantage_interval,
            "draw_parameter": self.draw,
            "scale": self.scale,
            "prior": self.prior,
            "log_likelihood": self.log_likelihood,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class FitOptions:
    """How ratings are fitted. None takes the model's own default."""

    model: str = "bt"
    anchor: tuple[str, float] | None = None
    """A player and its rating."""
    advantage: float | Literal["fit"] | None = None
    """Elo points that moving first is worth."""
    draw: float | Literal["fit"] | None = None
    """The draw parameter."""
    prior: float | None = None
    """Virtual draws of each player, shared out over those it met by games, half with each colour (BayesElo's prior).
    None: the model's default, and 1 where the likelihood alone has no maximum."""
    bootstrap: int = 0
    """So many draws of opening pairs for the intervals; 0: by the information matrix."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        if self.prior is not None and self.prior < 0:
            raise ValueError(f"prior must be at least 0 virtual draws, got {self.prior}")
        if self.bootstrap < 0:
            raise ValueError(f"bootstrap must be at least 0 draws, got {self.bootstrap}")


def fit(games: Iterable[RatedGame], options: FitOptions | None = None) -> Ratings:
    """Ratings of all players of some games.

    Raises:
        ValueError: no game, a result that is none, an anchor that did not play, more than 3,000 players.
    """
    options = FitOptions() if options is None else options
    model = MODELS[options.model]
    listed = list(games)
    tally = _Tally(listed)
    if options.anchor is not None and options.anchor[0] not in tally.index:
        raise ValueError(f"anchor {options.anchor[0]!r} played no game; the players: {', '.join(tally.names[:20])}")
    notes: list[str] = []
    groups = find_groups(len(tally.names), tally.pairs)
    prior = model.default_prior if options.prior is None else options.prior
    fitted, bounded = None, prior > 0 or groups.connected
    if bounded:
        fitted = _maximise(tally, model, options, prior, groups)
    if fitted is None:
        if options.prior is not None:
            notes.append(f"with a prior of {options.prior:g} the likelihood has no maximum")
        prior = AUTO_PRIOR
        notes += groups.complaints(tally.names)
        notes.append(
            f"so the likelihood of the games alone has no maximum, and {AUTO_PRIOR:g} virtual draw of each player is "
            "added; choose another with --prior"
        )
        fitted = _maximise(tally, model, options, prior, groups)
    if fitted is None:
        # One colour never dropped a point where it could tell: its advantage and the draws run away together.
        notes.append(
            "the advantage of the first move has no maximum and is taken as 0; choose another with --advantage"
        )
        fitted = _maximise(tally, model, replace(options, advantage=0.0), prior, groups)
    if fitted is None:
        raise ValueError("no ratings could be fitted to these games; give --prior 2 and --draw 0.5")
    if groups.num_components > 1:
        notes.append(
            f"the players are {groups.num_components} groups that never met: each has a mean of its own, and ratings "
            "of different groups do not compare"
        )
    notes += fitted.notes
    if (shrink := model.elo_scale(fitted.draw)) < 0.3:
        notes.append(
            f"equals draw so often here that Elo near equality is {shrink:.2f} of the model's own scale: read no "
            "expected score of distant players from these differences; --model ordo has no draws in its scale"
        )
    ratings = _table(tally, model, options, groups, fitted, prior, notes)
    if not bounded:
        for row in ratings.players:
            above, below = groups.open_above[tally.index[row.name]], groups.open_below[tally.index[row.name]]
            row.low, row.high = (-math.inf if below else row.low), (math.inf if above else row.high)
    if options.bootstrap:
        _bootstrap(listed, options, ratings, prior)
    return ratings


class _Tally:
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

    def arrays(self, prior: float) -> tuple[NDArray[np.int64], NDArray[np.int64], Counts]:
        """Who moved first and second [P], and the counts with the prior's draws."""
        pairs = {key: list(value) for key, value in self.pairs.items()}
        if prior > 0:
            met: Counter[tuple[int, int]] = Counter()
            total: Counter[int] = Counter()
            for (i, j), counts in self.pairs.items():
                met[min(i, j), max(i, j)] += int(sum(counts))
                total[i] += int(sum(counts))
                total[j] += int(sum(counts))
            for (i, j), number in met.items():
                # Each player brings prior / 4 of its own to either colour, shared by games (BayesElo's AddPrior).
                share = prior / 4 * (number / total[i] + number / total[j])
                for key in ((i, j), (j, i)):
                    pairs.setdefault(key, [0.0, 0.0, 0.0])[1] += share
        first, second = np.array(list(pairs), np.int64).T
        wins, draws, losses = np.array(list(pairs.values()), np.float64).T
        return first, second, Counts(wins, draws, losses)


@dataclass
class _Fitted:
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


def _maximise(tally: _Tally, model: RatingModel, options: FitOptions, prior: float, groups: Groups) -> _Fitted | None:
    """Newton's method with halved steps; None where the maximum lies at infinity."""
    first, second, counts = tally.arrays(prior)
    notes: list[str] = []
    num = len(tally.names)
    decisive = float(counts.wins.sum() + counts.losses.sum())
    advantage = model.default_advantage if options.advantage is None else options.advantage
    fit_advantage = advantage in (None, "fit")
    point = np.zeros(num + 2)
    point[num] = 0.0 if fit_advantage else float(advantage or 0.0) * model.unit
    fit_draw = False
    if model.has_draw_parameter:
        draw = model.default_draw if options.draw is None else options.draw
        fit_draw = draw in (None, "fit")
        point[num + 1] = model.start_draw if fit_draw else model.natural_draw(float(draw or 0.0))
        if fit_draw and counts.draws.sum() == 0:
            point[num + 1], fit_draw = model.no_draws, False
    if decisive == 0:
        notes.append("every game was drawn: how often equals draw cannot be estimated")
        fit_draw = False
        if fit_advantage:
            point[num], fit_advantage = 0.0, False
    if fit_advantage and (set(first.tolist()) | set(second.tolist())) and not _both_ways(first, second):
        notes.append("no pair met with both colours: the advantage of the first move is taken as 0, give --advantage")
        point[num], fit_advantage = 0.0, False
    free = np.array([True] * num + [fit_advantage, fit_draw])
    gauge = np.stack([(groups.component == g).astype(np.float64) for g in range(groups.num_components)])

    def look(at: Floats) -> tuple[float, Floats, Floats]:
        curve = model.curve(at[first] - at[second] + at[num], at[num + 1], counts)
        gradient, information = np.zeros(num + 2), np.zeros((num + 2, num + 2))
        np.add.at(gradient, first, curve.dx)
        np.subtract.at(gradient, second, curve.dx)
        gradient[num], gradient[num + 1] = curve.dx.sum(), curve.dd.sum()
        columns = ((first, 1.0), (second, -1.0), (np.full_like(first, num), 1.0))
        for rows, sign in columns:
            for others, other_sign in columns:
                np.add.at(information, (rows, others), -sign * other_sign * curve.dxx)
            np.add.at(information, (rows, np.full_like(first, num + 1)), -sign * curve.dxd)
            np.add.at(information, (np.full_like(first, num + 1), rows), -sign * curve.dxd)
        information[num + 1, num + 1] = -curve.ddd.sum()
        return float(curve.value.sum()), gradient[free], information[np.ix_(free, free)]

    fixed = np.zeros((int(free.sum()), int(free.sum())))
    fixed[:num, :num] = gauge.T @ gauge
    value, gradient, information = look(point)
    for _ in range(_MAX_ITERATIONS):
        try:
            move = np.linalg.solve(information + fixed, gradient)
        except np.linalg.LinAlgError:
            return None
        size = min(1.0, 3.0 / max(1e-300, float(np.abs(move).max())))  # a long step leaves where the curve is curved
        while size > 1e-9:
            trial = point.copy()
            trial[free] += size * move
            if not (fit_draw and trial[num + 1] <= model.no_draws):
                new = look(trial)
                if new[0] >= value - 1e-12 * abs(value):
                    break
            size /= 2
        else:
            break
        point, (value, gradient, information) = trial, new
        if np.abs(point[: num + 1]).max() > _FAR:
            return None
        if np.abs(move).max() * size < 1e-11:
            break
    if np.abs(gradient).max() > 1e-5 * max(1.0, float(counts.games.sum())):
        return None
    inverse = np.linalg.inv(information + fixed)
    if not model.has_draw_parameter:
        spread = _score_spread(point, first, second, counts, model, num)[np.ix_(free, free)]
        inverse = inverse @ spread @ inverse
    # The gauge's own direction is no uncertainty: with the mean held, it is taken out again.
    project = np.eye(int(free.sum()))
    project[:num, :num] -= (gauge / gauge.sum(axis=1, keepdims=True)).T @ gauge
    names = tuple(name for name, is_free in (("advantage", fit_advantage), ("draw", fit_draw)) if is_free)
    return _Fitted(
        point[:num], float(point[num]), float(point[num + 1]), project @ inverse @ project.T, names, value, notes
    )


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


def _score_spread(
    point: Floats, first: NDArray[np.int64], second: NDArray[np.int64], counts: Counts, model: RatingModel, num: int
) -> Floats:
    """[K, K] sum of squares of the games' scores in the statistical sense: the middle of the sandwich."""
    expected = model.probabilities(point[first] - point[second] + point[num], point[num + 1])[0]
    square = counts.wins * (1 - expected) ** 2 + counts.draws * (0.5 - expected) ** 2 + counts.losses * expected**2
    spread = np.zeros((num + 2, num + 2))
    columns = ((first, 1.0), (second, -1.0), (np.full_like(first, num), 1.0))
    for rows, sign in columns:
        for others, other_sign in columns:
            np.add.at(spread, (rows, others), sign * other_sign * square)
    return spread


def _table(
    tally: _Tally,
    model: RatingModel,
    options: FitOptions,
    groups: Groups,
    fitted: _Fitted,
    prior: float,
    notes: list[str],
) -> Ratings:
    """Rows and intervals in Elo points."""
    num = len(tally.names)
    scale = model.elo_scale(fitted.draw)
    points = scale / model.unit
    elo = fitted.strengths * points
    covariance = fitted.covariance[:num, :num] * points**2
    deviation = np.sqrt(np.maximum(0.0, np.diag(covariance)))
    if options.anchor is not None:
        at, rating = tally.index[options.anchor[0]], options.anchor[1]
        same = groups.component == groups.component[at]
        elo = np.where(same, elo - elo[at] + rating, elo)
        deviation = np.where(same, _difference(covariance)[:, at], deviation)
    counted = np.zeros((num, 3), np.int64)
    for (i, j), (wins, draws, losses) in tally.pairs.items():
        counted[i] += np.array([wins, draws, losses], np.int64)
        counted[j] += np.array([losses, draws, wins], np.int64)
    rows = []
    for i, name in enumerate(tally.names):
        low, high = elo[i] - Z95 * deviation[i], elo[i] + Z95 * deviation[i]
        rows.append(
            PlayerRating(
                name=name,
                elo=float(elo[i]),
                low=float(low),
                high=float(high),
                games=int(counted[i].sum()),
                wins=int(counted[i, 0]),
                draws=int(counted[i, 1]),
                losses=int(counted[i, 2]),
                group=int(groups.component[i]),
            )
        )
    order = sorted(range(num), key=lambda i: (rows[i].group, -rows[i].elo, rows[i].name))
    los = _superiority(elo, covariance, groups)
    interval = None
    if "advantage" in fitted.free:
        spread = math.sqrt(max(0.0, float(fitted.covariance[num, num]))) * points
        centre = fitted.advantage * points
        interval = (centre - Z95 * spread, centre + Z95 * spread)
    return Ratings(
        model=model.name,
        players=[rows[i] for i in order],
        los=los[np.ix_(order, order)],
        advantage=fitted.advantage * points,
        advantage_interval=interval,
        draw=model.shown_draw(fitted.draw) if model.has_draw_parameter else None,
        scale=scale,
        prior=prior,
        log_likelihood=fitted.log_likelihood,
        notes=notes,
    )


def _difference(covariance: Floats) -> Floats:
    """[N, N] standard deviation of each difference of two ratings."""
    own = np.diag(covariance)
    result: Floats = np.sqrt(np.maximum(0.0, own[:, None] + own[None, :] - 2 * covariance))
    return result


def _superiority(elo: Floats, covariance: Floats, groups: Groups) -> Floats:
    """[N, N] normal approximation; 0.5 on the diagonal, NaN across groups."""
    deviation = np.maximum(_difference(covariance), 1e-12)
    z = (elo[:, None] - elo[None, :]) / deviation
    los = np.array([[0.5 * (1 + math.erf(value / math.sqrt(2))) for value in row] for row in z])
    los[groups.component[:, None] != groups.component[None, :]] = math.nan
    return los


def _bootstrap(games: Sequence[RatedGame], options: FitOptions, ratings: Ratings, prior: float) -> None:
    """Replace the intervals by percentiles over draws of whole pairs (in place)."""
    clusters: dict[Any, list[RatedGame]] = defaultdict(list)
    for number, game in enumerate(games):
        clusters[number if game.pair is None else (game.pair, frozenset((game.first, game.second)))].append(game)
    blocks = list(clusters.values())
    random = np.random.default_rng(options.seed)
    quiet = FitOptions(options.model, options.anchor, options.advantage, options.draw, prior or None)
    names = [row.name for row in ratings.players]
    samples: dict[str, list[float]] = {name: [] for name in names}
    advantages, failures = [], 0
    for _ in range(options.bootstrap):
        drawn = [game for k in random.integers(0, len(blocks), len(blocks)) for game in blocks[k]]
        present = {name for game in drawn for name in (game.first, game.second)}
        if len(present) < len(names):  # somebody was not drawn at all, so there is nothing to compare it by
            failures += 1
            continue
        found = fit(drawn, quiet)
        advantages.append(found.advantage)
        for row in found.players:
            samples[row.name].append(row.elo)
    if len(advantages) < 20:
        ratings.notes.append("too few bootstrap draws held every player: the intervals are by the information matrix")
        return
    for row in ratings.players:
        low, high = np.percentile(samples[row.name], [2.5, 97.5])
        row.low = row.low if math.isinf(row.low) else float(low)
        row.high = row.high if math.isinf(row.high) else float(high)
    if ratings.advantage_interval is not None:
        low, high = np.percentile(advantages, [2.5, 97.5])
        ratings.advantage_interval = (float(low), float(high))
    ratings.notes.append(
        f"intervals: percentiles of {len(advantages)} bootstrap draws of {len(blocks)} pairs and single games"
        + (f" ({failures} draws lacked a player)" if failures else "")
    )
