"""The two protocols, UCI and USI: how they differ, what the lines of a GUI mean, and the position that they set.

The reader is tolerant: it skips malformed numbers, words without their value and unknown words, and reports what it
skipped. Nothing that reads a line raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from genpolicy.game import Game

MAX_NUMBER = 10**12
"""Milliseconds or nodes: more than anybody waits for, and exact as a float."""
MAX_COMPLAINTS = 4
"""About one line."""
QUOTED_CHARACTERS = 60
"""Most characters of a word from outside that a message repeats."""
MESSAGE_CHARACTERS = 400
"""Most characters of a message of ours, which may quote such a word."""
MAX_PLIES = 4_000
"""The longest game of chess under the 75-move rule has 17,697."""


@dataclass(frozen=True)
class Dialect:
    """What one protocol says differently from the other."""

    hello: str
    hello_answer: str
    clocks: tuple[str, str]
    """Prefix of the clock words (``wtime``, ``winc``) of player 0 and of player 1."""
    no_move: str
    """What ``bestmove`` says where there is no legal move."""
    win: str | None
    """What ``bestmove`` says where the player to move wins by declaration; None where the protocol has no word."""
    mate_in_plies: bool
    """Whether mates are counted in plies instead of moves of the player who mates."""
    wdl: bool
    """Whether ``info`` may carry ``wdl``."""
    blanks: bool
    """Whether names of options may hold blanks."""
    mate_answer: str | None
    """The word that answers ``go mate``; None where ``bestmove`` answers it."""
    ignored: tuple[str, ...]
    """Options, in lower case, that a GUI may set although they are not declared; they change nothing here."""

    def option_name(self, name: str) -> str:
        """The name of an option as this protocol can write it."""
        return name if self.blanks else name.replace(" ", "_")


UCI = Dialect(
    hello="uci",
    hello_answer="uciok",
    clocks=("w", "b"),
    no_move="(none)",
    win=None,
    mate_in_plies=False,
    wdl=True,
    blanks=True,
    mate_answer=None,
    ignored=("hash", "ownbook", "uci_analysemode", "uci_opponent", "uci_variant", "uci_chess960", "clear hash"),
)
USI = Dialect(
    hello="usi",
    hello_answer="usiok",
    clocks=("b", "w"),
    no_move="resign",
    win="win",
    mate_in_plies=True,
    wdl=False,
    blanks=False,
    mate_answer="checkmate",
    ignored=("usi_hash", "usi_ponder", "usi_ownbook", "usi_analysemode", "usi_opponent", "usi_variant"),
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({"uci": UCI, "usi": USI})
"""By ``Game.protocol``."""


def words_of(line: bytes) -> list[str]:
    """The words of a line; invalid UTF-8 becomes U+FFFD, and a byte-order mark at the beginning is dropped."""
    return line.decode("utf-8", errors="replace").removeprefix("\ufeff").replace("\x00", " ").split()


def quoted(text: str, most: int = QUOTED_CHARACTERS) -> str:
    """A text from outside as an ``info string`` may repeat it: printable ASCII, cut after ``most`` characters."""
    plain = "".join(c if c.isprintable() and c.isascii() else "?" for c in text[: most + 1])
    return plain if len(plain) <= most else plain[:most] + "..."


@dataclass(frozen=True)
class Go:
    """The limits of a ``go``; times in milliseconds."""

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
    """Longest mate to look for, in moves; in USI the milliseconds to look for one (0 sets no limit)."""
    search_moves: tuple[str, ...] = ()
    complaints: tuple[str, ...] = field(default=(), compare=False)
    """What was skipped, for an ``info string`` each."""

    @property
    def is_timed(self) -> bool:
        """Whether a clock, a byoyomi or a time for the move runs."""
        return any(t is not None for t in (self.movetime, *self.time_left, self.byoyomi))


def read_go(words: Sequence[str], dialect: Dialect, is_move: frozenset[str]) -> Go:
    """The limits of a ``go`` line.

    Args:
        words: Those behind ``go``.
        dialect: Says whose clock is whose.
        is_move: The texts of the game's moves; ``searchmoves`` ends at the first other word.
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
            elif (number := _whole_number(text)) is None:
                complaints.append(f"{word} without a number")
                at += text not in known and text not in ("", "infinite", "ponder", "searchmoves")
            else:
                numbers[word] = number
                at += 1
        else:
            complaints.append(f"unknown word {quoted(word)!r} behind go")
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
        words: Those behind ``setoption``.
    """
    if words[:1] != ["name"] or len(words) < 2:
        return None
    at = words.index("value", 2) if "value" in words[2:] else len(words)
    name = " ".join(words[1:at])
    return name, " ".join(words[at + 1 :]) if at < len(words) else None


@dataclass(frozen=True)
class Position:
    """A position as ``position`` names it, not checked against the rules."""

    text: str | None
    """The first position; None for the initial one."""
    moves: tuple[str, ...]
    """Those played from there."""


def read_position(words: Sequence[str]) -> Position | None:
    """The position of a ``position`` line; None where it names none.

    Args:
        words: Those behind ``position``.
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


def _whole_number(text: str) -> int | None:
    """A whole number of at most ``MAX_NUMBER``; a negative one, as GUIs send for a clock that has run out, is 0."""
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        return None
    return 0 if text.startswith("-") else min(int(digits), MAX_NUMBER)


def _at_least_1(number: int | None) -> int | None:
    return None if number is None else max(1, number)


class PositionReader:
    """Holds the position of the last valid ``position`` line; where a new line extends it, only new moves are played.

    Args:
        game: The rules.
    """

    def __init__(self, game: Game[Any]) -> None:
        self.game = game
        self._text: str | None = None
        self._moves: tuple[str, ...] = ()
        self._states: list[Any] = [game.parse()]

    @property
    def state(self) -> Any:
        """The position, with the history that the game's rules of repetition need."""
        return self._states[-1]

    def set(self, position: Position) -> str | None:
        """Change to a position. Returns what is wrong with it, or None; a wrong one changes nothing."""
        if len(position.moves) > MAX_PLIES:
            return f"position: {len(position.moves)} moves; at most {MAX_PLIES} are followed"
        num_known = 0
        if position.text == self._text:
            both = zip(position.moves, self._moves, strict=False)
            num_known = next(
                (i for i, (new, old) in enumerate(both) if new != old), min(len(position.moves), len(self._moves))
            )
        try:
            states = self._states[: num_known + 1] if num_known else [self._first(position.text)]
        except ValueError as error:
            return f"position: {quoted(str(error), MESSAGE_CHARACTERS)}"
        for number, text in enumerate(position.moves[num_known:], num_known + 1):
            try:
                states.append(self._after(states[-1], text))
            except ValueError:
                return f"position: move {number}, {quoted(text)!r}, is illegal"
        self._text, self._moves, self._states = position.text, position.moves, states
        return None

    def _first(self, text: str | None) -> Any:
        return self._states[0] if text == self._text else self.game.parse(text)

    def _after(self, state: Any, text: str) -> Any:
        try:
            return self.game.play(state, self.game.moves.index(text))
        except ValueError:
            # Some GUIs write moves otherwise: a capital letter for a promotion, castling as the king taking its rook.
            return self.game.play(state, self.game.move_from_text(state, text))
