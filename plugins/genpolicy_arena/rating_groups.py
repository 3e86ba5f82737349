"""Finds which players can be compared: groups that met, and players whose rating nothing bounds.

Ratings by maximum likelihood are finite if and only if the players cannot be cut in two so that one part never scored
against the other (Ford 1957, American Mathematical Monthly 64).

Axes: N players.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genpolicy_common.arguments import MAX_SHOWN


@dataclass(frozen=True)
class Groups:
    """Groups of players in the graph of results."""

    component: NDArray[np.int64]
    """[N] number of the group: players that met, directly or through others; 0 is that of the first player."""
    open_above: NDArray[np.bool_]
    """[N] whether nothing bounds the rating from above, relative to the core of its group: neither the player nor those
    it is tied to ever dropped a point to the core."""
    open_below: NDArray[np.bool_]
    """[N] whether nothing bounds the rating from below."""

    @property
    def num_components(self) -> int:
        """Number of groups that never met."""
        return int(self.component.max()) + 1

    @property
    def connected(self) -> bool:
        """Whether every rating is bounded within its group."""
        return not (self.open_above.any() or self.open_below.any())

    def complaints(self, names: Sequence[str]) -> list[str]:
        """A sentence on the players whose ratings are not bounded from above, and one for below, if any."""
        texts = []
        for flags, bound, what in (
            (self.open_above, "above", "no point was dropped to players below"),
            (self.open_below, "below", "no point was scored against players above"),
        ):
            if flags.any():
                texts.append(f"nothing bounds the rating from {bound}, since {what}: {flagged(names, flags)}")
        return texts


def flagged(names: Sequence[str], flags: NDArray[np.bool_]) -> str:
    """The names whose flags are set; of many the first, and how many more there are."""
    who = [name for name, flag in zip(names, flags, strict=True) if flag]
    more = f" and {len(who) - MAX_SHOWN} more" if len(who) > MAX_SHOWN else ""
    return "; ".join(who[:MAX_SHOWN]) + more


def find_groups(num_players: int, pairs: Mapping[tuple[int, int], Sequence[float]]) -> Groups:
    """Find the groups.

    Args:
        num_players: N.
        pairs: (first, second) -> wins, draws and losses of the first of the two players.
    """
    scored: list[set[int]] = [set() for _ in range(num_players)]
    met: list[set[int]] = [set() for _ in range(num_players)]
    for (i, j), (wins, draws, losses) in pairs.items():
        met[i].add(j)
        met[j].add(i)
        if wins + draws > 0:
            scored[i].add(j)
        if losses + draws > 0:
            scored[j].add(i)
    component = np.full(num_players, -1, np.int64)
    open_above, open_below = np.zeros(num_players, bool), np.zeros(num_players, bool)
    conceded: list[set[int]] = [set() for _ in range(num_players)]
    for i, others in enumerate(scored):
        for j in others:
            conceded[j].add(i)
    number = 0
    for start in range(num_players):
        if component[start] >= 0:
            continue
        members = sorted(_reach(start, met))
        component[members] = number
        number += 1
        core = _largest_core(members, scored, conceded)
        above = _reach(core[0], conceded) - set(core)  # scored against the core and never conceded to it
        below = _reach(core[0], scored) - set(core)
        open_above[list(above)] = True
        open_below[list(below)] = True
        if len(core) == 1:  # then it is not a core, and is treated like the others
            open_above[core] = bool(below)
            open_below[core] = bool(above)
        for other in set(members) - above - below - set(core):
            # Neither above nor below: it met the core only through players that are not bounded themselves.
            open_above[other] = open_below[other] = True
    return Groups(component, open_above, open_below)


def _largest_core(members: Sequence[int], scored: list[set[int]], conceded: list[set[int]]) -> list[int]:
    """The largest set of players that all reach each other along points scored."""
    left, best = set(members), list[int]()
    while left:
        start = min(left)
        core = _reach(start, scored) & _reach(start, conceded)
        if len(core) > len(best):
            best = sorted(core)
        left -= core
    return best


def _reach(start: int, edges: list[set[int]]) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        for other in edges[waiting.pop()] - seen:
            seen.add(other)
            waiting.append(other)
    return seen
