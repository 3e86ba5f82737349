"""Elo ratings of players from games, by maximum likelihood, with intervals and likelihood of superiority.

The models are in ``rating_models``. Ratings are relative: their mean is 0, or the anchor has its given rating.
Intervals are 95 % intervals of the difference to the mean of all players (or to the anchor): 1.96 standard deviations
by the inverse observed information, or for Ordo's model, whose likelihood is not that of the results, by a sandwich
estimate. They assume that games are independent. If they are not (two games of one opening, deterministic players), a
bootstrap over opening pairs tells more: whole pairs are drawn with replacement, and the interval is of percentiles.

Axes: N players, P pairings (ordered pairs), K free parameters (N ratings, then perhaps advantage, draw parameter).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy_arena.rating_fit import MIN_BOOTSTRAP, Estimate, FitOptions, RatedGame, Tally, maximise
from genpolicy_arena.rating_groups import Groups, find_groups
from genpolicy_arena.rating_models import MODELS, Floats, RatingModel
from genpolicy_evaluation.intervals import Z95

__all__ = ["FitOptions", "PlayerRating", "RatedGame", "Ratings", "fit"]

MAX_MATRIX = 200
"""Most players for which the matrix of likelihoods of superiority is written to JSON."""
AUTO_PRIOR = 1.0
"""Virtual games of each player that nothing bounds, if the likelihood alone has no maximum."""
MAX_TURNS = 100
"""Most iterations to find the scale on which an advantage is shown."""


@dataclass
class PlayerRating:
    """A row of the table."""

    name: str
    elo: float
    low: float
    """Lower end of the 95 % interval of the difference to the mean (or the anchor); -inf if nothing bounds it."""
    high: float
    games: int
    wins: int
    draws: int
    losses: int
    group: int
    """Group of players that met, directly or through others; ratings of different groups cannot be compared."""

    @property
    def score(self) -> float:
        """Points per game."""
        return (self.wins + self.draws / 2) / self.games


@dataclass
class Ratings:
    """Ratings of players, and what was fitted with them."""

    model: str
    players: list[PlayerRating]
    """By group, then best first."""
    los: NDArray[np.float64]
    """Likelihood of superiority, [N, N]: probability that the row's player is stronger than the column's, in the order
    of ``players``; NaN across groups."""
    advantage: float
    """Worth of the first move in Elo points, on the scale of the ratings."""
    advantage_interval: tuple[float, float] | None
    """95 % interval; None if the advantage was not fitted."""
    draw: float | None
    """The model's draw parameter as people write it (nu, eloDraw); None if it has none."""
    scale: float
    """Factor from the model's own differences to the Elo differences shown."""
    prior: float
    """Virtual games of each player, or of each that nothing bounds (a note says so)."""
    log_likelihood: float
    """Log-likelihood of the games and the virtual games."""
    notes: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Plain data for JSON."""
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
            "likelihood_of_superiority": self.los.tolist() if len(rows) <= MAX_MATRIX else None,
            "first_move_advantage": self.advantage,
            "first_move_advantage_interval": self.advantage_interval,
            "draw_parameter": self.draw,
            "scale": self.scale,
            "prior": self.prior,
            "log_likelihood": self.log_likelihood,
            "notes": self.notes,
        }


def fit(games: Iterable[RatedGame], options: FitOptions | None = None) -> Ratings:
    """Rate all players of some games.

    Raises:
        ValueError: there is no game, a result is not 1, 0 or -1, the anchor did not play, there are more than 3,000
            players, or games were drawn although the draw parameter is 0.
    """
    options = FitOptions() if options is None else options
    model = MODELS[options.model]
    listed = list(games)
    tally = Tally(listed)
    if options.anchor is not None and options.anchor[0] not in tally.index:
        raise ValueError(f"anchor {options.anchor[0]!r} played no game; the players: {', '.join(tally.names[:20])}")
    if model.has_draw_parameter and options.draw == 0 and any(game.result == 0 for game in listed):
        drawn = sum(game.result == 0 for game in listed)
        raise ValueError(
            f"a draw parameter of 0 means that no game is ever drawn, and {drawn} of {len(listed)} were: give --draw a "
            "number above 0, or fit"
        )
    groups = find_groups(len(tally.names), tally.pairs)
    estimate, used, prior, notes = _fit_feasible(tally, model, options, groups)
    if groups.num_components > 1:
        notes.append(
            f"the players are {groups.num_components} groups that never met: each has a mean of its own, and ratings "
            "of different groups cannot be compared"
        )
    notes += estimate.notes
    if (shrink := model.elo_scale(estimate.draw)) < 0.3:
        notes.append(
            f"equal players draw so often here that Elo near equality is {shrink:.2f} of the model's own scale: these "
            "differences do not give the expected scores of distant players; --model ordo has no draws in its scale"
        )
    ratings = _table(tally, model, options, groups, estimate, prior, notes)
    if prior > 0 and not (model.default_prior if options.prior is None else options.prior):
        for row in ratings.players:
            above, below = groups.open_above[tally.index[row.name]], groups.open_below[tally.index[row.name]]
            row.low, row.high = (-math.inf if below else row.low), (math.inf if above else row.high)
    if options.bootstrap:
        _bootstrap(listed, used, ratings)
    return ratings


def _fit_feasible(
    tally: Tally, model: RatingModel, options: FitOptions, groups: Groups
) -> tuple[Estimate, FitOptions, float, list[str]]:
    """Fit with as few assumptions beyond the options as the games need.

    Returns:
        The estimate, the options it was made with, its prior, and notes on the assumptions.

    Raises:
        ValueError: no likelihood has a maximum.
    """
    given = model.default_prior if options.prior is None else options.prior
    unbounded = groups.open_above | groups.open_below
    everybody = np.ones(len(tally.names))
    # Virtual games of the players that nothing bounds connect the graph and leave the other players' games as they are.
    needed = unbounded.astype(np.float64) if unbounded.any() else everybody
    results = np.array(list(tally.pairs.values()))
    share = min(0.95, float(results[:, 1].sum() / results.sum()))
    fixed_draw = None
    if model.has_draw_parameter and share > 0 and (options.draw or model.default_draw or "fit") == "fit":
        fixed_draw = replace(options, draw=model.draw_of_share(share))
    priors = [(given, given * everybody)] if given > 0 or groups.connected else []
    priors.append((AUTO_PRIOR, given * everybody + AUTO_PRIOR * needed))
    # Strengths and draw parameter diverge together if, for example, the best player draws a lot and never loses.
    tries = [(each, *prior, False) for prior in priors for each in (options, fixed_draw) if each is not None]
    # The advantage diverges if one colour never dropped a point in the games that determine it.
    tries += [(replace(each, advantage=0.0), *priors[-1], True) for each in (options, fixed_draw) if each is not None]
    for each, prior, virtual, no_advantage in tries:
        estimate = _fit_on_shown_scale(tally, model, each, virtual, groups)
        if estimate is None:
            continue
        notes: list[str] = []
        if virtual is priors[-1][1]:
            notes += groups.complaints(tally.names)
            notes.append(
                f"the likelihood of the games alone has no maximum, so {AUTO_PRIOR:g} virtual game of each "
                + ("of these players" if unbounded.any() else "player")
                + " is added; choose another for all players with --prior"
            )
        if fixed_draw is not None and each.draw == fixed_draw.draw:
            notes.append(
                "how often equal players draw cannot be told from strengths here: it is fixed at the share of draws, "
                f"{100 * share:.0f} %; choose another with --draw"
            )
        if no_advantage:
            notes.append(
                "the advantage of the first move has no maximum and is taken as 0; choose another with --advantage"
            )
        return estimate, each, prior, notes
    raise ValueError("no ratings could be fitted to these games; give --prior 2 and --draw 0.5")


def _fit_on_shown_scale(
    tally: Tally, model: RatingModel, options: FitOptions, prior: Floats, groups: Groups
) -> Estimate | None:
    """``maximise`` with an advantage that is given in Elo as shown.

    The scale shown follows from the draw parameter, which, if it is fitted, follows from the advantage in the model's
    own points: both are found in turn until they agree.
    """
    if options.advantage in (None, "fit", 0.0):
        return maximise(tally, model, options, options.advantage, prior, groups)
    shown, scale = float(options.advantage or 0.0), 1.0
    estimate = None
    for _ in range(MAX_TURNS):
        estimate = maximise(tally, model, options, shown / scale, prior, groups)
        if estimate is None:
            return None
        next_scale = max(1e-3, model.elo_scale(estimate.draw))
        if abs(next_scale / scale - 1) < 1e-10:
            break
        scale = next_scale
    return estimate


def _table(
    tally: Tally,
    model: RatingModel,
    options: FitOptions,
    groups: Groups,
    estimate: Estimate,
    prior: float,
    notes: list[str],
) -> Ratings:
    """Ratings and intervals in Elo points."""
    num = len(tally.names)
    scale = model.elo_scale(estimate.draw)
    points = scale / model.unit
    elo = estimate.strengths * points
    covariance = estimate.covariance[:num, :num] * points**2
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
    if "advantage" in estimate.free:
        spread = math.sqrt(max(0.0, float(estimate.covariance[num, num]))) * points
        centre = estimate.advantage * points
        interval = (centre - Z95 * spread, centre + Z95 * spread)
    return Ratings(
        model=model.name,
        players=[rows[i] for i in order],
        los=los[np.ix_(order, order)],
        advantage=estimate.advantage * points,
        advantage_interval=interval,
        draw=model.shown_draw(estimate.draw) if model.has_draw_parameter else None,
        scale=scale,
        prior=prior,
        log_likelihood=estimate.log_likelihood,
        notes=notes,
    )


def _difference(covariance: Floats) -> Floats:
    """[N, N] standard deviations of the differences of two ratings."""
    own = np.diag(covariance)
    result: Floats = np.sqrt(np.maximum(0.0, own[:, None] + own[None, :] - 2 * covariance))
    return result


def _superiority(elo: Floats, covariance: Floats, groups: Groups) -> Floats:
    """[N, N] likelihoods of superiority by normal approximation; 0.5 on the diagonal, NaN across groups."""
    deviation = np.maximum(_difference(covariance), 1e-12)
    z = (elo[:, None] - elo[None, :]) / deviation
    los = np.array([[0.5 * (1 + math.erf(value / math.sqrt(2))) for value in row] for row in z])
    los[groups.component[:, None] != groups.component[None, :]] = math.nan
    return los


def _num_groups(ratings: Ratings) -> int:
    return len({row.group for row in ratings.players})


def _bootstrap(games: Sequence[RatedGame], options: FitOptions, ratings: Ratings) -> None:
    """Replace the intervals, in place, by percentiles over samples of whole pairs."""
    clusters: dict[Any, list[RatedGame]] = defaultdict(list)
    for number, game in enumerate(games):
        clusters[number if game.pair is None else (game.pair, frozenset((game.first, game.second)))].append(game)
    blocks = list(clusters.values())
    random = np.random.default_rng(options.seed)
    quiet = replace(options, bootstrap=0)
    names = [row.name for row in ratings.players]
    samples: dict[str, list[float]] = {name: [] for name in names}
    advantages, failures = [], 0
    for _ in range(options.bootstrap):
        drawn = [game for k in random.integers(0, len(blocks), len(blocks)) for game in blocks[k]]
        present = {name for game in drawn for name in (game.first, game.second)}
        if len(present) < len(names):  # a player without a game cannot be compared
            failures += 1
            continue
        sample = fit(drawn, quiet)
        if _num_groups(sample) > _num_groups(ratings):  # players that were linked by games are so no more
            failures += 1
            continue
        advantages.append(sample.advantage)
        for row in sample.players:
            samples[row.name].append(row.elo)
    if len(advantages) < MIN_BOOTSTRAP:
        ratings.notes.append("too few bootstrap samples link all players: the intervals are by the information matrix")
        return
    for row in ratings.players:
        low, high = np.percentile(samples[row.name], [2.5, 97.5])
        row.low = row.low if math.isinf(row.low) else float(low)
        row.high = row.high if math.isinf(row.high) else float(high)
    if ratings.advantage_interval is not None:
        low, high = np.percentile(advantages, [2.5, 97.5])
        ratings.advantage_interval = (float(low), float(high))
    ratings.notes.append(
        f"intervals: percentiles of {len(advantages)} bootstrap samples of {len(blocks)} pairs and single games"
        + (f" ({failures} samples lacked a player or a link)" if failures else "")
    )
