"""Ends games before the rules do: by an engine's score, by values that both players agree on, or by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genpolicy.values import centipawns_to_probability, parse_score, probability_to_value


@dataclass(frozen=True)
class Adjudication:
    """How a tournament ends games that the rules have not ended. A draw by the game's own rules always ends a game."""

    judge: str | None = None
    """Spelling of an oracle that evaluates each position, e.g. ``stockfish?nodes=10000``. None disables it."""
    judge_cp: int = 1300
    """The judge ends a game at a mate or at more than this many centipawns (searchless_chess's rule); one that gives
    values, at more than their value (``genpolicy.values``)."""
    judge_every: int = 1
    """Plies from one evaluation of the judge to the next."""
    win: tuple[float, int] | None = None
    """(value, plies): a game is won when all values of the last ``plies`` plies lie beyond ``value`` for one side. The
    values are both players' own, so both must be among them and agree; a player that gives no values never does."""
    draw: tuple[float, int, int] | None = None
    """(value, plies, from ply): a game is drawn when those values all lie within +-value, from that ply on."""
    max_plies: int = 512
    """A game ends after this many plies, the opening's included."""
    at_limit: str = "draw"
    """Result of such a game: ``draw``, or ``judge``, which is a win for a side that the judge has ahead by more than
    ``judge_cp``."""

    def __post_init__(self) -> None:
        if self.judge_cp < 1 or self.judge_every < 1 or self.max_plies < 1:
            raise ValueError(
                "judge-cp, judge-every and max-plies must be at least 1, got "
                f"{self.judge_cp}, {self.judge_every} and {self.max_plies}"
            )
        if self.at_limit not in ("draw", "judge"):
            raise ValueError(f"at-limit must be draw or judge, got {self.at_limit!r}")
        if self.at_limit == "judge" and self.judge is None:
            raise ValueError("at-limit judge needs a judge: --judge 'stockfish?nodes=10000'")
        if self.win is not None and not (0 < self.win[0] <= 1 and self.win[1] >= 2):
            raise ValueError(f"adjudicate-win must be VALUE:PLIES, 0 < VALUE <= 1 and PLIES >= 2, got {self.win}")
        if self.draw is not None and not (0 <= self.draw[0] < 1 and self.draw[1] >= 2 and self.draw[2] >= 0):
            raise ValueError(
                f"adjudicate-draw must be VALUE:PLIES:FROM, 0 <= VALUE < 1, PLIES >= 2, FROM >= 0, got {self.draw}"
            )

    def agreed(self, values: Sequence[tuple[int, float | None]], num_plies: int) -> tuple[float, str] | None:
        """Result (1 if the first player wins) and reason if both players agree, else None.

        Args:
            values: Mover of each ply since chance moved last, and the value that it gave, for the first player, in
                [-1, 1]; None if it gave none.
            num_plies: Plies of the game so far.
        """
        if self.win is not None:
            beyond, plies = self.win
            last = _both_players(values, plies)
            for side in (1.0, -1.0):
                if last and all(side * value >= beyond for value in last):
                    return side, f"both players' values beyond {beyond:g} for {plies} plies"
        if self.draw is not None and num_plies >= self.draw[2]:
            within, plies, _ = self.draw
            last = _both_players(values, plies)
            if last and all(abs(value) <= within for value in last):
                return 0.0, f"both players' values within {within:g} for {plies} plies"
        return None

    def judged(self, score: str | None) -> float | None:
        """Result for the player to move (1 if it wins) if a judge's score decides the game, else None."""
        if score is None:
            return None
        kind, number = parse_score(score)
        if kind == "cp":
            decides = abs(number) > self.judge_cp
        else:  # an exact solver's win counts whatever the mark
            mark = probability_to_value(centipawns_to_probability(self.judge_cp))
            decides = kind == "mate" or abs(number) == 1 or abs(number) > mark
        return (1.0 if number > 0 else -1.0) if decides else None


def _both_players(values: Sequence[tuple[int, float | None]], plies: int) -> list[float]:
    """The values of the last ``plies`` plies; empty if one is missing or one player made all of these plies."""
    last = values[-plies:]
    given = [value for _, value in last if value is not None]
    return given if len(given) == plies and len({side for side, _ in last}) == 2 else []
