"""What UCI (chess) and USI (shogi) engines are told and answer: dialects, searches, and reading a search's output.

A general client parses every line that the engine prints, at the cost of a third of a core. Here the output of a search
is kept as bytes until the engine names its move; then only the last lines are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from genpolicy.errors import printable


@dataclass(frozen=True)
class Dialect:
    """The words in which UCI and USI differ."""

    hello: str
    hello_answer: bytes
    new_game: str
    position: str
    """What comes before the position's text."""
    hash_option: str
    movetime: str = "movetime {}"
    """What follows ``go`` for a limit in milliseconds."""
    no_moves: tuple[str, ...] = ()
    """What may stand in the place of a move: the engine resigns, or claims what the rules give it."""
    mate_in_plies: bool = False
    """Mates are counted in plies, not in moves of the player who mates."""


DEFAULT_HASH_MB = 16
UCI = Dialect("uci", b"uciok", "ucinewgame", "position fen ", "Hash")
USI = Dialect(
    "usi",
    b"usiok",
    "usinewgame",
    "position sfen ",
    "USI_Hash",
    movetime="btime 0 wtime 0 byoyomi {}",
    no_moves=("resign", "win"),
    mate_in_plies=True,
)


@dataclass(frozen=True)
class Search:
    """What an engine is asked."""

    position: str
    """Text of the position, perhaps with ``moves`` and the moves played from there."""
    only: str | None = None
    """The one move that may be considered at the root; None considers all."""
    num_variations: int | None = None
    """So many of the best moves get a line and a score each (the engine's option MultiPV); None leaves it as it is."""

    @property
    def may_queue(self) -> bool:
        """Whether it may be sent while another search runs (see ``QUEUEING_ENGINES``)."""
        return " moves " not in self.position


@dataclass(frozen=True)
class SearchResult:
    """What an engine said of a search."""

    move: str = ""
    """The engine's choice, as it wrote it."""
    line: tuple[str, ...] = ()
    """Principal variation, beginning with ``move``; as the engine wrote it, nothing is checked."""
    score: str | None = None
    """Score text (``genpolicy.values``) for the player to move; None where the engine gave none."""
    num_nodes: int = 0
    error: str | None = None
    """Why there is no move: the engine died or hung on every attempt."""
    by_move: Mapping[str, str] = field(default_factory=dict)
    """Score text of each of the best moves, where a search asked for more than one; as the engine wrote the moves."""


def readable(output: bytes) -> str:
    """Text of an engine's bytes; what is not UTF-8, and what a terminal would obey, becomes U+FFFD."""
    return printable(output.decode(errors="replace").replace("\r", "\n"))


def parse_search(output: bytes, dialect: Dialect = UCI) -> SearchResult:
    """Read the output of one search, from its end.

    The line is the last one that begins with the move chosen, exact scores before bounds; the score is the last exact
    one (a bound only where nothing else was reported). An engine that resigns still has a best line: its move counts.
    """
    lines = _lines_backwards(output)
    words = next(words for words in lines if words[:1] == ["bestmove"])
    move = words[1] if len(words) > 1 else ""
    no_move = move in dialect.no_moves
    num_nodes = 0
    scores: dict[bool, str] = {}  # exact or not -> what the last such line says
    variations: dict[bool, tuple[str, ...]] = {}
    for words in lines:
        if words[:1] != ["info"] or words[1:2] == ["string"] or _after(words, "multipv") not in ("", "1"):
            continue
        num_nodes = num_nodes or _number(_after(words, "nodes"))
        score = _score(words, dialect)
        if score is None:
            continue
        exact = "lowerbound" not in words and "upperbound" not in words
        scores.setdefault(exact, score)
        if "pv" in words and (no_move or _after(words, "pv") == move):
            variations.setdefault(exact, tuple(words[words.index("pv") + 1 :]))
        if True in variations:
            break
    line = variations.get(True) or variations.get(False) or ((move,) if move else ())
    score = scores.get(True, scores.get(False))
    return SearchResult(
        line[0] if no_move and line else move, line, score, num_nodes, by_move=_scores_by_move(output, dialect)
    )


_VARIATION = re.compile(rb" multipv ([0-9]{1,3}) ")


def _scores_by_move(output: bytes, dialect: Dialect) -> dict[str, str]:
    """The last exact score of each move that has one of the variations; {} where the engine gave one variation alone.

    Of a depth that was cut off in the middle only the first variations are known; the other moves keep the score of
    the depth before.
    """
    by_move: dict[str, str] = {}
    num_variations = max((_number(found.decode()) for found in _VARIATION.findall(output)), default=1)
    if num_variations == 1:
        return by_move
    for words in _lines_backwards(output):
        score, move = _score(words, dialect), _after(words, "pv")
        if words[:1] != ["info"] or words[1:2] == ["string"] or score is None or not move:
            continue
        if "lowerbound" in words or "upperbound" in words:
            continue
        by_move.setdefault(move, score)
        if len(by_move) == num_variations:
            break
    return by_move


def _lines_backwards(output: bytes) -> Iterator[list[str]]:
    """The words of each line, the last line first; most lines are never looked at."""
    end = len(output)
    while end >= 0:
        start = output.rfind(b"\n", 0, end)
        yield readable(output[start + 1 : end]).split()
        end = start


def _after(words: list[str], key: str) -> str:
    if key not in words:
        return ""
    at = words.index(key) + 1
    return words[at] if at < len(words) else ""


MAX_DIGITS = 20


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else 0


def _score(words: list[str], dialect: Dialect) -> str | None:
    kind = _after(words, "score")
    number = _after(words, kind) if kind in ("cp", "mate") else ""
    if kind == "mate" and number in ("+", "-"):  # USI: a mate whose length is not known
        number += "1"
    if len(number) >= MAX_DIGITS:
        return None
    try:
        value = int(number)
    except ValueError:
        return None
    if kind == "mate" and dialect.mate_in_plies:
        value = (value + 1) // 2 if value > 0 else -((1 - value) // 2)
    return f"{kind}:{value}"
