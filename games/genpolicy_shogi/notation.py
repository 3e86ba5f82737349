"""What CSA, KIF and KI2 share: a game while it is read, the ways in which games end, boards from diagrams."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from genpolicy.errors import SourceError
from genpolicy.files import refuse
from genpolicy.game import Game, OnBad, PlayedGame
from genpolicy_shogi.files import Source, read_lines
from genpolicy_shogi.replay import Replay
from genpolicy_shogi.sfen import STARTPOS

TERMINATION = "Termination"
"""Header that keeps how a game ended, in CSA's word for it."""
ENDED = "Ended"
"""Header of a tournament's game; ``limit`` says that it was drawn because it had the most plies allowed."""

# Result for the player who would move next; None: unknown, or not a game's end.
ENDINGS: dict[str, float | None] = {
    "TORYO": -1.0,
    "TSUMI": -1.0,
    "TIME_UP": -1.0,
    "ILLEGAL_MOVE": -1.0,
    "KACHI": 1.0,
    "SENNICHITE": 0.0,
    "JISHOGI": 0.0,
    "HIKIWAKE": 0.0,
    "MAX_MOVES": 0.0,
    "CHUDAN": None,
    "MATTA": None,
    "FUZUMI": None,
    "ERROR": None,
}
FULL_SET = {"P": 18, "L": 4, "N": 4, "S": 4, "G": 4, "B": 2, "R": 2, "K": 2}
HAND_ORDER = "RBGSNLP"
"""The order in which SFEN writes hands."""


class Diagram:
    """A position under construction: pieces on squares and in hands."""

    def __init__(self) -> None:
        self.squares: dict[tuple[int, int], str] = {}
        """(file, rank) from 1 -> SFEN piece, e.g. ``"+p"``."""
        self.hands: dict[str, int] = {}
        """SFEN piece -> count."""
        self.ranks: set[int] = set()
        """Ranks that were given as rows."""

    @staticmethod
    def of(sfen: str) -> Diagram:
        """The diagram of a position."""
        board, _, hands = sfen.split()[:3]
        diagram = Diagram()
        for rank, row in enumerate(board.split("/"), 1):
            file, promoted = 9, ""
            for char in row:
                if char == "+":
                    promoted = char
                elif char.isdigit():
                    file -= int(char)
                else:
                    diagram.squares[file, rank] = promoted + char
                    file, promoted = file - 1, ""
        count = ""
        for char in hands.replace("-", ""):
            if char.isdigit():
                count += char
            else:
                diagram.hands[char] = int(count or 1)
                count = ""
        return diagram

    def put(self, file: int, rank: int, piece: str) -> None:
        """Put a piece on an empty square.

        Raises:
            ValueError: off the board, or on another piece.
        """
        if not (1 <= file <= 9 and 1 <= rank <= 9):
            raise ValueError(f"square {file}{rank} is not on the board")
        if (file, rank) in self.squares:
            raise ValueError(f"square {file}{rank} holds two pieces")
        self.squares[file, rank] = piece

    def rest_to_hand(self, player: int) -> None:
        """Give all pieces that are nowhere yet, kings excepted, to a player's hand."""
        for letter, total in FULL_SET.items():
            if letter != "K":
                used = sum(piece.lstrip("+").upper() == letter for piece in self.squares.values())
                used += self.hands.get(letter, 0) + self.hands.get(letter.lower(), 0)
                piece = letter if player == 0 else letter.lower()
                self.hands[piece] = self.hands.get(piece, 0) + max(0, total - used)

    def sfen(self, player: int) -> str:
        """SFEN with ``player`` to move."""
        ranks = []
        for rank in range(1, 10):
            text, empty = "", 0
            for file in range(9, 0, -1):
                piece = self.squares.get((file, rank))
                if piece is None:
                    empty += 1
                    continue
                text += (str(empty) if empty else "") + piece
                empty = 0
            ranks.append(text + (str(empty) if empty else ""))
        hands = ""
        for letter in HAND_ORDER + HAND_ORDER.lower():
            if count := self.hands.get(letter, 0):
                hands += (str(count) if count > 1 else "") + letter
        return f"{'/'.join(ranks)} {'bw'[player]} {hands or '-'} 1"


@dataclass
class Entry:
    """A game while it is read."""

    number: int
    line: int
    headers: dict[str, str] = field(default_factory=dict)
    start: str | None = None
    """SFEN of the first position, once it is known."""
    moves: list[str] = field(default_factory=list)
    result: float | None = None
    """For Black."""
    replay: Replay | None = None
    error: str | None = None
    error_line: int = 0

    def fail(self, line: int, reason: str) -> None:
        """Record an error; only the first one of an entry counts."""
        if self.error is None:
            self.error, self.error_line = reason, line

    def set_up(self, game: Game[Any], line: int, sfen: str) -> None:
        """Take a first position, as the game writes it."""
        try:
            self.start = game.format(game.parse(sfen))
        except ValueError as error:
            self.fail(line, f"first position: {error}")
        else:
            self.replay = Replay(self.start)

    def play(self, usi: str) -> None:
        """Play a move.

        Raises:
            ValueError: it is illegal.
        """
        assert self.replay is not None
        self.replay.play_usi(usi)
        self.moves.append(usi)

    def end(self, line: int, word: str) -> None:
        """Take how the game ended; the result is the mover's."""
        if word == "TSUMI" and self.replay is not None and not self.replay.is_mate():
            self.fail(line, f"a mate is stated where the player to move has a way out, in {self.replay.sfen!r}")
        self.headers[TERMINATION] = word
        result, player = ENDINGS.get(word), self.replay.player if self.replay is not None else 0
        self.result = None if result is None else (result if player == 0 else -result) + 0.0


def close(game: Game[Any], source: Source, label: str, entry: Entry, on_bad: OnBad | None) -> PlayedGame | None:
    """The game of an entry; None where it is bad and ``on_bad`` was called.

    Raises:
        SourceError: it is bad, without ``on_bad``.
    """
    if entry.start is None and entry.error is None:
        entry.set_up(game, entry.line, STARTPOS)
    if entry.error is None and entry.start is not None:
        moves = tuple(game.moves.index(usi) for usi in entry.moves)
        where = f"{source.label}:{entry.line}: game {entry.number}"
        return PlayedGame(f"{label}:{entry.number}", entry.start, moves, entry.result, entry.headers, where)
    names = " - ".join(entry.headers.get(player, "?") for player in game.players)
    error = SourceError(
        f"{source.label}:{entry.error_line}: game {entry.number} ({names}, from line {entry.line}): {entry.error}"
    )
    refuse(error, on_bad)
    return None


class LineReader(ABC):
    """Turns the lines of a file of notations into games.

    Args:
        game: Shogi.
        source: The file, for messages.
        label: What the games' ids begin with; a number from 1 follows.
        on_bad: Called with the error of each bad game; None raises it.
    """

    def __init__(self, game: Game[Any], source: Source, label: str, on_bad: OnBad | None) -> None:
        self.game = game
        self.source = source
        self.label = label
        self.on_bad = on_bad
        self.count = 0
        self.entry: Entry | None = None
        """The game that is open."""
        self._reset(None)

    @abstractmethod
    def _reset(self, entry: Entry | None) -> None:
        """Forget the game before, and open ``entry``."""

    @abstractmethod
    def feed(self, line: int, text: str) -> Iterator[PlayedGame]:
        """The games that end in this line."""

    @abstractmethod
    def _complete(self, entry: Entry, line: int) -> None:
        """Add what was still waiting to the game that ends."""

    def finish(self, line: int) -> Iterator[PlayedGame]:
        """End the game that is open.

        Raises:
            SourceError: it is bad, without ``on_bad``.
        """
        if (entry := self.entry) is None:
            return
        self._complete(entry, line)
        played = close(self.game, self.source, self.label, entry, self.on_bad)
        self._reset(None)
        if played is not None:
            yield played

    def _current(self, line: int) -> Entry:
        if self.entry is None:
            self.count += 1
            self._reset(Entry(self.count, line))
        assert self.entry is not None
        return self.entry

    def read(self) -> Iterator[PlayedGame]:
        """Games of the file, streamed.

        Raises:
            SourceError: an unreadable game (only without ``on_bad``), or a damaged file.
        """
        line = 0
        for line, text in read_lines(self.source):
            yield from self.feed(line, text)
        yield from self.finish(line)


def time_limits(control: str) -> tuple[int, int, int] | None:
    """Base time, byoyomi and increment, in seconds, of a ``TimeControl`` such as ``600+30+0``; ``180+2`` is PGN's.

    Returns:
        None for any other text.
    """
    numbers = control.split("+")
    if len(numbers) > 3 or not all(re.fullmatch("[0-9]{1,9}", number) for number in numbers):
        return None
    base, second, third = (int(number) for number in [*numbers, "0", "0"][:3])
    return (base, second, third) if len(numbers) == 3 else (base, 0, second)


def termination(game: Game[Any], played: PlayedGame, last: Replay) -> str:
    """How a game ended, in CSA's word: its headers' where that agrees with its result, else one that fits."""
    said = played.headers.get(TERMINATION, "")
    said = "TIME_UP" if said == "time forfeit" else said  # PGN's word
    result = played.result if played.result is None or last.player == 0 else -played.result
    if said in ENDINGS and ENDINGS[said] == result and (said != "TSUMI" or last.is_mate()):
        return said
    if result is None:
        return "CHUDAN"
    if result == 0:
        # An impasse (JISHOGI) is what the players agree on: only a game whose headers say so is called one.
        limit = "MAX_MOVES" if played.headers.get(ENDED) == "limit" else "HIKIWAKE"
        return "SENNICHITE" if _repeats(game, played) else limit
    if result < 0:
        return "TORYO" if last.legal() else "TSUMI"
    return "KACHI" if last.board.is_nyugyoku() else "ILLEGAL_ACTION"


def _repeats(game: Game[Any], played: PlayedGame) -> bool:
    state = game.parse(played.start)
    for move in played.moves:
        state = game.play(state, move)
    return game.outcome(state) == 0


def known_headers(headers: Mapping[str, str], names: Mapping[str, str]) -> list[tuple[str, str]]:
    """(format's name, value) of the headers that a format has a place for; ``names`` maps from ours."""
    return [(names[key], " ".join(value.split())) for key, value in headers.items() if key in names and value.strip()]
