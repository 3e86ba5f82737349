"""Positions that Lichess has published with evaluations, as rows of ``genpolicy_chess.positions``.

Lichess gives scores from White's point of view and castling as the king's move onto its rook. A row is one of these:

* ``fen`` and ``evals``, a line of ``lichess_db_eval.jsonl.zst`` (https://database.lichess.org/#evals): the first
  variation of the deepest search is taken;
* ``fen``, ``line``, ``depth``, ``knodes``, ``cp``, ``mate``: the table ``Lichess/chess-position-evaluations``. A search
  has a row for each of its variations, the best first; the others are left out;
* ``fen``, ``cp``, ``mate``, ``move``: the table ``Lichess/fishnet-evals``; ``move`` is what was played.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

Row = Mapping[str, Any]

COLUMNS = ("evals", "depth", "knodes", "move")
"""What rows of Lichess have beside ``fen``, ``line``, ``cp`` and ``mate``."""


def is_lichess(names: Collection[str]) -> bool:
    """Whether rows with columns of these names are Lichess's."""
    return "evals" in names or "knodes" in names or {"cp", "mate", "move"} <= set(names)


class LichessRows:
    """Turns the rows of a file, one after the other."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] = ()
        """Position, depth and nodes of the last row's search."""

    def __call__(self, row: Row) -> Row | None:
        """The row with ``cp`` and ``mate`` for the player to move; None for a further variation of the last search.

        Raises:
            ValueError: ``evals`` are not what Lichess writes.
        """
        if row.get("evals") is not None:
            row = _deepest(row)
        elif row.get("knodes") is not None:
            search = (row["fen"], row.get("depth"), row["knodes"])
            if search == self._last:
                return None
            self._last = search
        black = isinstance(row["fen"], str) and row["fen"].split()[1:2] == ["b"]
        return {**row, **{name: _turned(row.get(name)) for name in ("cp", "mate")}} if black else row


def _turned(score: Any) -> Any:
    return -score if isinstance(score, int | float) and not isinstance(score, bool) else score


def _deepest(row: Row) -> Row:
    evals = row["evals"]
    try:
        first = max(evals, key=lambda search: (search["depth"], search["knodes"]))["pvs"][0]
        return {"fen": row["fen"], **{name: first.get(name) for name in ("line", "cp", "mate")}}
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError(f"evals must be searches with depth, knodes and pvs, got {evals!r:.200}") from None
