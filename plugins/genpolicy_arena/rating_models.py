"""Three models of a game's result: Bradley-Terry with draws (Davidson), BayesElo's and Ordo's.

Each gives the log-likelihood of win, draw and loss counts, its gradient and its curvature in two numbers: the strength
difference x, which includes the first move's advantage, and a draw parameter, if the model has one. Everything is in
natural units; a model's ``unit`` is one Elo point in them.

Axes: P pairings (ordered pairs of players: who moved first, who second).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LOGISTIC_UNIT = math.log(10) / 400
"""x per Elo point if the expected score is 1 / (1 + 10^(-difference / 400))."""


@dataclass(frozen=True)
class Counts:
    """Results of P pairings from the view of the player who moved first; fractions come from a prior."""

    wins: Floats
    draws: Floats
    losses: Floats

    @property
    def games(self) -> Floats:
        """[P] number of games."""
        total: Floats = self.wins + self.draws + self.losses
        return total


@dataclass(frozen=True)
class Curve:
    """A log-likelihood at one point, [P] each: value, first and second derivatives in x and the draw parameter."""

    value: Floats
    dx: Floats
    dd: Floats
    dxx: Floats
    dxd: Floats
    ddd: Floats


class RatingModel(ABC):
    """A model of one game's result."""

    name: ClassVar[str]
    unit: ClassVar[float] = LOGISTIC_UNIT
    has_draw_parameter: ClassVar[bool] = True
    default_advantage: ClassVar[float | None] = None
    """Default worth of the first move in Elo points; None estimates it."""
    default_draw: ClassVar[float | None] = None
    """Default draw parameter as people write it; None estimates it."""
    default_prior: ClassVar[float] = 0.0
    """Default number of virtual games of each player, shared out over its opponents."""
    prior_is_drawn: ClassVar[bool] = False
    """Whether a virtual game is a draw; else it is half a win and half a loss, which bounds a fitted draw rate too."""

    @abstractmethod
    def curve(self, x: Floats, draw: float, counts: Counts) -> Curve:
        """The log-likelihood of counts, for x [P] and a draw parameter in natural units."""

    @abstractmethod
    def probabilities(self, x: Floats, draw: float) -> tuple[Floats, Floats, Floats]:
        """Probabilities of win, draw and loss for the player who moves first, [P] each."""

    def natural_draw(self, shown: float) -> float:
        """The draw parameter in natural units, from the one that people write, at least 0.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"model {self.name!r} has no draw parameter")

    def shown_draw(self, draw: float) -> float:
        """The draw parameter as people write it, from the one in natural units."""
        return draw

    def draw_of_share(self, share: float) -> float:
        """The draw parameter, as people write it, with which equal players draw this share (below 1) of their games.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"model {self.name!r} has no draw parameter")

    @property
    def start_draw(self) -> float:
        """Natural draw parameter at which its estimation begins."""
        return 0.0

    @property
    def no_draws(self) -> float:
        """Natural draw parameter for which no game is drawn: the estimate if there is no draw."""
        return -math.inf

    def elo_scale(self, draw: float) -> float:
        """Factor from the model's own differences to Elo's near equality.

        It is the slope of the expected score at x = 0, relative to that of Elo's formula. Models with draws stretch
        differences by it; BayesElo has shown ratings multiplied by it since its version of December 2005.
        """
        step = 1e-4
        wins, draws, _ = self.probabilities(np.array([step, -step]), draw)
        score = wins + draws / 2
        return float((score[0] - score[1]) / (2 * step) * 4)


class Davidson(RatingModel):
    """Bradley-Terry with draws after Davidson, and a first-move advantage that multiplies the strength.

    With strengths p and q, P(win) : P(draw) : P(loss) = p : nu sqrt(p q) : q (Davidson 1970, JASA 65; with the order
    effect Davidson & Beaver 1977, Biometrics 33). A draw counts as half a win and half a loss: at the maximum each
    player's expected score equals its actual one. The draw parameter is ln(nu); people write nu.
    """

    name = "bt"

    def probabilities(self, x: Floats, draw: float) -> tuple[Floats, Floats, Floats]:
        """See ``RatingModel.probabilities``."""
        terms = np.stack([x / 2, np.full_like(x, draw), -x / 2])
        terms = np.exp(terms - terms.max(axis=0))
        wins, draws, losses = terms / terms.sum(axis=0)
        return wins, draws, losses

    def curve(self, x: Floats, draw: float, counts: Counts) -> Curve:
        """See ``RatingModel.curve``; concave, as for every exponential family."""
        wins, draws, losses = self.probabilities(x, draw)
        games, lead = counts.games, wins - losses
        log_sum = np.logaddexp(np.logaddexp(x / 2, -x / 2), draw)
        value = (counts.wins - counts.losses) * x / 2 - games * log_sum
        if math.isfinite(draw):
            value = value + counts.draws * draw
        return Curve(
            value=value,
            dx=(counts.wins - counts.losses) / 2 - games * lead / 2,
            dd=counts.draws - games * draws,
            dxx=-games * (wins + losses - lead**2) / 4,
            dxd=games * draws * lead / 2,
            ddd=-games * draws * (1 - draws),
        )

    def natural_draw(self, shown: float) -> float:
        """ln(nu)."""
        return math.log(shown) if shown > 0 else -math.inf

    def draw_of_share(self, share: float) -> float:
        """From share = nu / (2 + nu)."""
        return 2 * share / (1 - share)

    def shown_draw(self, draw: float) -> float:
        """nu: the odds of a draw against a win between equal players."""
        return math.exp(draw)


class BayesElo(RatingModel):
    """BayesElo's model (R. Coulom): a draw is a result within ``eloDraw`` of equality.

    P(win) = 1 / (1 + 10^((eloDraw - delta - eloAdvantage) / 400)), P(loss) the same with the signs of delta and
    eloAdvantage changed, and P(draw) the rest (https://www.remi-coulom.fr/Bayesian-Elo/; Rao & Kupper 1967 with order
    effect). Its defaults: eloAdvantage 32.8, eloDraw 97.3, a prior of 2 virtual draws. The draw parameter is
    eloDraw in x.
    """

    name = "bayeselo"
    default_advantage = 32.8
    default_draw = 97.3
    default_prior = 2.0
    prior_is_drawn = True

    def probabilities(self, x: Floats, draw: float) -> tuple[Floats, Floats, Floats]:
        """See ``RatingModel.probabilities``."""
        wins, losses = _logistic(x - draw), _logistic(-x - draw)
        return wins, np.maximum(0.0, 1 - wins - losses), losses

    def curve(self, x: Floats, draw: float, counts: Counts) -> Curve:
        """See ``RatingModel.curve``. P(draw) = (e^(2 draw) - 1) P(win) P(loss), so it is concave for draw > 0."""
        wins, _, losses = self.probabilities(x, draw)
        up, down = counts.wins + counts.draws, counts.losses + counts.draws
        curve_up, curve_down = up * wins * (1 - wins), down * losses * (1 - losses)
        value = -up * np.logaddexp(0.0, draw - x) - down * np.logaddexp(0.0, draw + x)
        gain, bend = np.zeros_like(x), np.zeros_like(x)
        if draw > 0:
            value = value + counts.draws * (2 * draw + math.log(-math.expm1(-2 * draw)))
            gain = counts.draws * 2 / -math.expm1(-2 * draw)
            bend = counts.draws * -4 * math.exp(-2 * draw) / math.expm1(-2 * draw) ** 2
        return Curve(
            value=value,
            dx=up * (1 - wins) - down * (1 - losses),
            dd=gain - up * (1 - wins) - down * (1 - losses),
            dxx=-curve_up - curve_down,
            dxd=curve_up - curve_down,
            ddd=bend - curve_up - curve_down,
        )

    def natural_draw(self, shown: float) -> float:
        """eloDraw in x."""
        return shown * self.unit

    def draw_of_share(self, share: float) -> float:
        """From share = (theta - 1) / (theta + 1), theta = 10^(eloDraw / 400)."""
        return 400 * math.log10((1 + share) / (1 - share))

    def shown_draw(self, draw: float) -> float:
        """eloDraw in Elo points."""
        return draw / self.unit

    @property
    def start_draw(self) -> float:
        """BayesElo's default."""
        return 97.3 * self.unit

    @property
    def no_draws(self) -> float:
        """eloDraw 0."""
        return 0.0


class Ordo(RatingModel):
    """Ordo's model (M. Ballicora): expected scores alone; a draw is half a point.

    Each player's expected score, the sum of 1 / (1 + e^(-beta (R - R_opponent))), equals its actual one, and so does
    the score of all who moved first, with their advantage (Ordo's manual, "Model for rating calculation", "White
    advantage calculation"). Such ratings maximise a logistic likelihood in which a draw is half a win and half a loss.
    With beta, 202 points mean 76 % ("Scale"), a little less than Elo's ln(10) / 400.
    """

    name = "ordo"
    unit = math.log(0.76 / 0.24) / 202
    has_draw_parameter = False

    def probabilities(self, x: Floats, draw: float) -> tuple[Floats, Floats, Floats]:
        """The expected score as wins, no draws, the rest as losses: the model tells no more."""
        score = _logistic(x)
        return score, np.zeros_like(score), 1 - score

    def curve(self, x: Floats, draw: float, counts: Counts) -> Curve:
        """See ``RatingModel.curve``."""
        score = _logistic(x)
        points, games = counts.wins + counts.draws / 2, counts.games
        zero = np.zeros_like(x)
        value = -points * np.logaddexp(0.0, -x) - (games - points) * np.logaddexp(0.0, x)
        return Curve(value, points - games * score, zero, -games * score * (1 - score), zero, zero)

    def elo_scale(self, draw: float) -> float:
        """1: Ordo's points are shown as they are."""
        return 1.0


MODELS: dict[str, RatingModel] = {model.name: model for model in (Davidson(), BayesElo(), Ordo())}


def _logistic(x: Floats) -> Floats:
    result: Floats = np.exp(-np.logaddexp(0.0, -x))
    return result
