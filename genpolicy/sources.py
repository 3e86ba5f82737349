"""Played games, positions, puzzles and published results, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class PlayedGame:
    """One game as a source file holds it."""

    game_id: str
    """Unique within its source, e.g. ``"London1851.pgn:12"``."""
    start: str
    """State text of the first position."""
    moves: tuple[int, ...]
    """Absolute move ids, every one of them legal where it was played."""
    result: float | None
    """1.0 first player won, 0.0 draw, -1.0 second player won; None unknown."""
    headers: dict[str, str] = field(default_factory=dict)
    """Names, dates, ratings and whatever else the format carries. Who played is under the names of the two sides
    (``Game.players``, e.g. ``"White"`` and ``"Black"``), whatever a format calls them."""
    where: str = field(default="", compare=False)
    """File, line and number of the game, for messages; "" if only ``game_id`` is known."""


@dataclass(frozen=True)
class Position:
    """One position as a source file holds it (EPD, FEN or SFEN lists)."""

    text: str
    """State text, as ``Game.format`` writes it."""
    where: str
    """File and line, for messages."""
    line: tuple[str, ...] = ()
    """Best line from here, if the source gives one, in protocol moves."""
    scores: tuple[str | None, ...] = ()
    """Score texts of the line (see ``genpolicy.values``), if the source gives any."""
    ended: bool = False
    """The line ends because the game ends there, and not because it was cut."""
    game_id: str | None = None
    """Game that the position comes from, if known."""
    ply: int | None = None
    """Ply within that game, if known."""
    split: str | None = None
    """The source's own split (``"train"``, ``"test"``), if it has one."""
    played: str | None = None
    """The move that was played in its game, if known, in protocol notation."""
    result: float | None = None
    """Result of its game for player 0: 1, 0 or -1; None unknown."""
    policy: str | None = None
    """A search's policy, if the source gives one: ``"e2e4=0.61 d2d4=0.39"``."""
    num_other_best: int = 0
    """Best moves that the source names beside the one that begins ``line``."""
    is_whole_in_source: bool = False
    """No other source holds positions of this game: ``game_id`` is unique within its source, as a ``PlayedGame``'s."""


@dataclass(frozen=True)
class Puzzle:
    """A position with one right line, as a source file holds it."""

    name: str
    """The source's own name, or its place in the file."""
    where: str
    """File and line, for messages."""
    start: str
    """State text that the file gives."""
    setup: tuple[int, ...]
    """Absolute ids of the moves played from ``start`` before the policy decides, each legal; often () or the
    opponent's last one."""
    solution: tuple[int, ...]
    """Absolute ids from there, each legal, the policy's move first and last: those of its player are its own. An odd
    number where players alternate."""
    rule: Literal["line", "mate"] = "line"
    """How a move is judged. ``"line"``: it must be the solution's; a first difference solves the puzzle only if it wins
    at once. ``"mate"``: it must keep a forced win, found by ``Game.mate_distance``; the opponent holds out longest."""
    rating: float | None = None
    """Difficulty on an Elo-like scale, if known."""
    rating_deviation: float | None = None
    """Standard error of ``rating``, if known."""
    themes: tuple[str, ...] = ()
    """Tags by which results are grouped."""
    mate_in: int | None = None
    """Plies from the policy's first move to the mate, that move and the mate counted (1, 3, 5, ...), where it is one;
    for ``rule="mate"`` always known, and the shortest forced mate."""
    verified: bool = False
    """For ``rule="mate"``: the reader of the file has verified that each own move of ``solution`` keeps the shortest
    mate against every answer. Otherwise a move is not right only because the solution has it."""


@dataclass(frozen=True)
class PublishedResult:
    """Figures that others reported for a policy, to print beside our own."""

    policy: str
    """Their name of it."""
    training: str
    """What it was trained on, in their words; "" where it was not trained."""
    source: str
    """Authors, year, number and table."""
    accuracy: float | None = None
    """Action accuracy in percent."""
    puzzles: float | None = None
    """Puzzles solved in percent."""
    elo: float | None = None
    """On their own scale: ratings of different pools of players do not compare."""
