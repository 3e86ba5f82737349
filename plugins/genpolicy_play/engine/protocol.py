"""Reads the lines of a GUI: tolerant of what it does not know, and it says what it left out.

Numbers that are none, words without their value and words of no protocol are skipped and named; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from genpolicy_play.engine.dialect import Dialect

MAX_NUMBER = 10**12  # of milliseconds or nodes: more than anybody waits for, and exact as a float
MAX_COMPLAINTS = 4  # about one line
SHOWN_CHARACTERS = 60  # of a word from outside
SAID_CHARACTERS = 400  # of a message of ours, which may quote one


def words_of(line: bytes) -> list[str]:
    """The words of a line; bytes that are no UTF-8 become U+FFFD, and a byte-order mark at the beginning is none."""
    return line.decode("utf-8", errors="replace").removeprefix("\ufeff").replace("\x00", " ").split()


def shown(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """A text from outside as an ``info string`` may repeat it: printable ASCII, and not long."""
    plain = "".join(c if c.isprintable() and c.isascii() else "?" for c in text[: most + 1])
    return plain if len(plain) <= most else plain[:most] + "..."


@dataclass(frozen=True)
class Go:
    """What ``go`` asks for; times in milliseconds."""

    nodes: int | None = None
    depth: int | None = None
    movetime: int | None = None
    time_left: tuple[int | None, int | None] = (None, None)
    """Of player 0 and player 1."""
    increment: tuple[int, int] = (0, 0)
    moves_to_go: int | None = None
    byoyomi: int | None = None
    infinite: bool = False
    ponder: bool = False
    mate: int | None = None
    """Moves in which a mate is looked for, or in USI the milliseconds to look for one (0: no limit)."""
    search_moves: tuple[str, ...] = ()
    complaints: tuple[str, ...] = field(default=(), compare=False)
    """What was left out, for an ``info string`` each."""

    @property
    def is_timed(self) -> bool:
        """Whether a clock, a byoyomi or a time for the move runs."""
        return any(t is not None for t in (self.movetime, *self.time_left, self.byoyomi))


def read_go(words: Sequence[str], dialect: Dialect, is_move: frozenset[str]) -> Go:
    """The limits of a ``go`` line.

    Args:
        words: Behind ``go``.
        dialect: Whose clock is whose.
        is_move: The texts that are moves of the game; ``searchmoves`` ends at the first word that is none.
    """
    first, second = dialect.clocks
    numbers: dict[str, int] = {}
    flags: set[str] = set()
    moves: list[str] = []
    complaints: list[str] = []
    known = {"nodes", "depth", "movetime", "movestogo", "byoyomi", "mate", "wtime", "btime", "winc", "binc"}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word in ("infinite", "ponder"):
            flags.add(word)
        elif word == "searchmoves":
            begin = at
            while at < len(words) and words[at] in is_move:
                at += 1
            moves += words[begin:at]
            if begin == at:
                complaints.append("searchmoves without a move")
        elif word in known:
            text = words[at] if at < len(words) else ""
            if word == "mate" and text == "infinite":
                numbers["mate"] = 0
                at += 1
            elif (number := _number(text)) is None:
                complaints.append(f"{word} without a number")
                at += text not in known and text not in ("", "infinite", "ponder", "searchmoves")
            else:
                numbers[word] = number
                at += 1
        else:
            complaints.append(f"nothing is known of {shown(word)!r} behind go")
    return Go(
        nodes=_at_least_1(numbers.get("nodes")),
        depth=_at_least_1(numbers.get("depth")),
        movetime=numbers.get("movetime"),
        time_left=(numbers.get(f"{first}time"), numbers.get(f"{second}time")),
        increment=(numbers.get(f"{first}inc", 0), numbers.get(f"{second}inc", 0)),
        moves_to_go=_at_least_1(numbers.get("movestogo")) if numbers.get("movestogo") else None,
        byoyomi=numbers.get("byoyomi"),
        infinite="infinite" in flags,
        ponder="ponder" in flags,
        mate=numbers.get("mate"),
        search_moves=tuple(dict.fromkeys(moves)),
        complaints=tuple(complaints[:MAX_COMPLAINTS]),
    )


def read_setoption(words: Sequence[str]) -> tuple[str, str | None] | None:
    """Name and value (None without ``value``) of a ``setoption`` line; None where it names no option.

    Args:
        words: Behind ``setoption``.
    """
    if words[:1] != ["name"] or len(words) < 2:
        return None
    at = words.index("value", 2) if "value" in words[2:] else len(words)
    name = " ".join(words[1:at])
    return name, " ".join(words[at + 1 :]) if at < len(words) else None


@dataclass(frozen=True)
class Position:
    """What ``position`` names."""

    text: str | None
    """Of the first position; None for the initial one."""
    moves: tuple[str, ...]


def read_position(words: Sequence[str]) -> Position | None:
    """The position of a ``position`` line, not yet looked at; None where it names none.

    Args:
        words: Behind ``position``.
    """
    if not words:
        return None
    at = list(words).index("moves") if "moves" in words else len(words)
    head, moves = list(words[:at]), tuple(words[at + 1 :])
    if head == ["startpos"]:
        return Position(None, moves)
    if head and head[0] in ("fen", "sfen"):
        head = head[1:]
    if not head or head[0] == "startpos":
        return None
    return Position(" ".join(head), moves)


def _number(text: str) -> int | None:
    """A whole number within reason; a negative one, as GUIs send when a clock has run out, is 0."""
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        return None
    return 0 if text.startswith("-") else min(int(digits), MAX_NUMBER)


def _at_least_1(number: int | None) -> int | None:
    return None if number is None else max(1, number)
