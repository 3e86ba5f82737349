"""How long a move may take: what the clock, the byoyomi or the time for the move leaves of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from genpolicy_play.engine.protocol import Go

DEFAULT_OVERHEAD_MS = 30
MOVES_AHEAD = 30  # that a clock without movestogo is shared out over
MAX_SHARE = 0.5  # of what is left on the clock for one move
INCREMENT_SHARE = 0.8
WIND_UP = 0.25  # of a short time that is kept for what comes after the search: on a busy machine both sides wait to run

LAST_MINUTE = 0.15  # the same while nothing has been found: a move that the policy has not seen is the worse risk

LATENESS_S = 0.15  # where no clock is lost and nothing has been found: one call of a small network on a busy machine


@dataclass(frozen=True)
class Budget:
    """Seconds from ``go`` (from ``ponderhit`` while pondering)."""

    soft_s: float
    """When the search should be over."""
    hard_s: float
    """When the answer goes out, if there is one."""
    last_s: float
    """When an answer goes out, whatever has been found."""


def budget(go: Go, player: int, overhead_ms: float) -> Budget | None:
    """The time for a move; None where none is set.

    Args:
        go: The limits.
        player: Who moves, 0 or 1.
        overhead_ms: What the way from and to the GUI takes, at most.
    """
    if go.movetime is not None:
        found = _within(go.movetime, go.movetime, overhead_ms)
        # No clock is lost by a move that comes late; a move that the policy has not seen may lose the game.
        return replace(found, last_s=found.hard_s + LATENESS_S)
    left, byoyomi = go.time_left[player], go.byoyomi or 0
    if left is None and go.byoyomi is None:
        return None
    left = left or 0
    increment = go.increment[player]
    # A clock at nothing with an increment or byoyomi behind it: those are all there is.
    most = left + byoyomi if byoyomi or left else increment
    shares = MOVES_AHEAD if go.moves_to_go is None else min(go.moves_to_go, MOVES_AHEAD)
    wanted = left / shares + INCREMENT_SHARE * increment
    if left > 0:
        # The last move before the control may take what is left; any other leaves something for those that follow.
        wanted = min(wanted, left if shares == 1 else MAX_SHARE * left)
    found = _within(min(most, wanted + byoyomi) if most else 0.0, most, overhead_ms)
    # Nothing is left, and the game goes on all the same: as with movetime.
    return found if most else replace(found, last_s=LATENESS_S)


def _within(wanted_ms: float, most_ms: float, overhead_ms: float) -> Budget:
    """A budget that ends, with the answer on its way, before ``most_ms`` are over."""
    hard = most_ms - min(overhead_ms, WIND_UP * most_ms)
    soft = min(wanted_ms, hard - min(overhead_ms, WIND_UP * most_ms) / 2)
    last = most_ms - min(overhead_ms, LAST_MINUTE * most_ms)
    # What was not found by then is not worth the rest of the clock.
    hard, last = (max(0.0, min(each, 4 * wanted_ms + 100.0)) for each in (hard, last))
    return Budget(max(0.0, soft) / 1e3, hard / 1e3, last / 1e3)
