"""When a game is ended from outside: by an engine's score, by scores that both players agree on, by its length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genpolicy.values import parse_score


@dataclass(frozen=True)
class Adjudication:
    """The rules by which a tournament ends games. A draw by rule that the game knows always ends it."""

    judge: str | None = None
    """Spelling of an oracle that looks at each position, e.g. ``stockfish?nodes=10000``; None: nobody does."""
    judge_cp: int = 1300
    """The judge ends a game at a mate or at more than so many centipawns (searchless_chess's rule)."""
    judge_every: int = 1
    """The judge looks after so many plies each."""
    win: tuple[float, int] | None = None
    """(value, plies): won when the values that the players gave in so many last plies all lie beyond this for one side.
    Both players' values count, so both must agree; a player without values never does."""
    draw: tuple[float, int, int] | None = None
    """(value, plies, from ply): drawn when those values all lie within +-value, not before so many plies."""
    max_plies: int = 512
    """A game ends after so many plies, the opening's included."""
    at_limit: str = "draw"
    """What it is then: ``draw``, or ``judge``: won for whoever the judge has ahead by more than ``judge_cp``."""

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

    def agreed(self, values: Sequence[float | None], num_plies: int) -> tuple[float, str] | None:
        """Result (1 the first player) and reason where both players agree; None where they do not.

        Args:
            values: What the mover of each ply gave, for the first player, in [-1, 1]; None where it gave none.
            num_plies: Plies of the game so far.
        """
        if self.win is not None:
            beyond, plies = self.win
            last = [value for value in values[-plies:] if value is not None]
            for side in (1.0, -1.0):
                if len(last) == plies and all(side * value >= beyond for value in last):
                    return side, f"both players' values beyond {beyond:g} for {plies} plies"
        if self.draw is not None and num_plies >= self.draw[2]:
            within, plies, _ = self.draw
            last = [value for value in values[-plies:] if value is not None]
            if len(last) == plies and all(abs(value) <= within for value in last):
                return 0.0, f"both players' values within {within:g} for {plies} plies"
        return None

    def judged(self, score: str | None) -> float | None:
        """Value (1 the player to move wins) that a judge's score settles; None where it settles nothing."""
        if score is None:
            return None
        kind, number = parse_score(score)
        if kind == "mate":
            return 1.0 if number > 0 else -1.0
        if kind == "cp":
            return None if abs(number) <= self.judge_cp else (1.0 if number > 0 else -1.0)
        return number if abs(number) == 1 else None  # an exact solver's win
