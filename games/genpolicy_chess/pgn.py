"""Portable Game Notation: games read one at a time, with the line of whatever is wrong, and written.

The reader is our own because it must refuse what python-chess's skips: text that is not a move, an illegal move (after
which python-chess drops the rest of the game), a game that the end of the file cuts short. Comments, variations, NAGs
and annotation glyphs are skipped.

A game without a result after its moves is accepted where another game follows (its tag then gives the result) and
refused at the end of the file, where it means that the file was cut. A game of headers alone is a game of no moves.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import chess

from genpolicy.errors import SourceError
from genpolicy.files import refuse
from genpolicy.game import OnBad, PlayedGame
from genpolicy_chess.files import open_for_writing, read_lines
from genpolicy_chess.moves import MOVES, move_id
from genpolicy_chess.state import parse_fen

_RESULTS: dict[str, float | None] = {"1-0": 1.0, "0-1": -1.0, "1/2-1/2": 0.0, "1/2": 0.0, "½-½": 0.0, "*": None}
_RESULT_TEXTS = {1.0: "1-0", -1.0: "0-1", 0.0: "1/2-1/2", None: "*"}
_STANDARD_VARIANTS = {"", "?", "standard", "chess", "normal", "from position", "classical", "orthodox"}

_TAG = re.compile(r'\s*\[\s*(\w+)\s+"((?:[^"\\]|\\.)*)"\s*\]')
_LOOSE_TAG = re.compile(r'\s*\[\s*(\w+)\s+"(.*)"\s*\]\s*$')  # quotes within the value that were not escaped
_NEXT_GAME = re.compile(r'\s*\[\s*Event\s+"')
_TOKEN = re.compile(r"\{|\}|;|\(|\)|\$\d*|[^\s{}();$]+")
_MOVE_NUMBER = re.compile(r"\d+\.[.…]*|\d+$|[.…]+")
_GLYPH = re.compile(r"[-+=/~#!?±∓∞⩲⩱□∆⌓⨀⟳↑→⇆]+|N|D|e\.?p\.?[+#!?]*")
_EN_PASSANT_SUFFIXES = ("e.p.", "e.p", "ep.", "ep")
_NULL_MOVES = {"--", "Z0", "0000", "@@@@", "null"}


@dataclass
class _Entry:
    """A game while it is read."""

    number: int
    line: int
    headers: dict[str, str] = field(default_factory=dict)
    moves: list[int] = field(default_factory=list)
    started: bool = False
    """Something other than tags was seen."""
    start: str = ""
    board: chess.Board | None = None
    error: str | None = None
    error_line: int = 0

    def fail(self, line: int, reason: str) -> None:
        """Record an error; only the first one of an entry counts."""
        if self.error is None:
            self.error, self.error_line = reason, line


class _Reader:
    """Turns the lines of a file into games."""

    def __init__(self, path: Path, label: str, on_bad: OnBad | None) -> None:
        self.path = path
        self.label = label
        self.on_bad = on_bad
        self.count = 0
        self.entry: _Entry | None = None
        self.comment_line = 0
        """Line where the open comment began, 0 outside."""
        self.depth = 0
        """Open variations."""
        self.after_blank = False

    def feed(self, line: int, text: str) -> Iterator[PlayedGame]:
        """The games that end in this line."""
        if self.comment_line:
            if _NEXT_GAME.match(text) and "}" not in text:
                self._current(line).fail(self.comment_line, "the comment that begins here is never closed")
                self.comment_line = 0
            else:
                _, closed, text = text.partition("}")
                if not closed:
                    return
                self.comment_line = 0
        if not text.strip():
            self.after_blank = True
            return
        blank, self.after_blank = self.after_blank, False
        if text.startswith("%"):  # escaped by the standard
            return
        if text.lstrip().startswith("["):
            tags = _tags(text)
            if tags is not None:
                yield from self._take_tags(line, tags, blank)
                return
            if self.entry is None or not self.entry.started:
                self._current(line).fail(line, f'{text.strip()!r} is not a tag; expected [Name "value"]')
                return
        yield from self._take_movetext(line, text)

    def finish(self, line: int) -> Iterator[PlayedGame]:
        """The game that is still open at the end of the file, after ``line`` lines."""
        entry = self.entry
        if entry is None:
            return
        if self.comment_line:
            entry.fail(self.comment_line, "the comment that begins here is never closed; is the file cut short?")
        if self.depth:
            entry.fail(line, "a variation '(' is still open where the file ends; is it cut short?")
        entry.fail(
            line,
            "the file ends before a result (1-0, 0-1, 1/2-1/2 or *) closes the game; is it cut short? "
            "Fetch it again, or append the result",
        )
        yield from self._close(line, None)

    def _current(self, line: int) -> _Entry:
        if self.entry is None:
            self.count += 1
            self.entry = _Entry(self.count, line)
            self.depth = 0
        return self.entry

    def _take_tags(self, line: int, tags: list[tuple[str, str]], blank: bool) -> Iterator[PlayedGame]:
        entry = self.entry
        first = tags[0][0]
        # Some files have blank lines among the tags of one game, some have none between games of tags alone.
        if entry is not None and (entry.started or ((blank or first == "Event") and first in entry.headers)):
            yield from self._close(line, None)
        self._current(line).headers.update(tags)

    def _take_movetext(self, line: int, text: str) -> Iterator[PlayedGame]:
        at = 0
        while match := _TOKEN.search(text, at):
            token, at = match.group(), match.end()
            if token == "{":
                end = text.find("}", at)
                if end < 0:
                    self.comment_line = line
                    return
                at = end + 1
            elif token == ";":
                return
            elif token[0] == "$":
                continue
            elif token in "()":
                self._take_bracket(line, token)
            elif self.depth == 0:
                yield from self._take_word(line, token)

    def _take_bracket(self, line: int, token: str) -> None:
        entry = self._current(line)
        entry.started = True
        self.depth += 1 if token == "(" else -1
        if self.depth < 0:
            self.depth = 0
            entry.fail(line, "a ')' that closes no variation")

    def _take_word(self, line: int, word: str) -> Iterator[PlayedGame]:
        result = word.replace("–", "-").replace("—", "-")
        if result in _RESULTS:
            if self.entry is not None:
                yield from self._close(line, result)
            return
        if word not in _NULL_MOVES:
            word = _MOVE_NUMBER.sub("", word, count=1) if _MOVE_NUMBER.match(word) else word
            if not word or (_GLYPH.fullmatch(word) and word not in _NULL_MOVES):
                return
        entry = self._current(line)
        entry.started = True
        if entry.error is None:
            self._take_move(entry, line, word)

    def _take_move(self, entry: _Entry, line: int, word: str) -> None:
        if not self._set_up(entry):
            return
        board = entry.board
        assert board is not None
        where = f"move {board.fullmove_number}{'.' if board.turn else '...'} {word!r}"
        if word in _NULL_MOVES:
            entry.fail(line, f"{where} is a null move, which is not a move of a game")
            return
        try:
            move = board.parse_san(_without_suffix(word))
        except chess.AmbiguousMoveError:
            entry.fail(line, f"{where} is ambiguous in {board.fen()!r}")
        except chess.IllegalMoveError:
            entry.fail(line, f"{where} is illegal in {board.fen()!r}")
        except ValueError:
            entry.fail(line, f"{where} is not a move (in {board.fen()!r})")
        else:
            entry.moves.append(move_id(move))
            board.push(move)

    def _set_up(self, entry: _Entry) -> bool:
        """Give the entry its first board, once; False if its tags do not allow it."""
        if entry.board is not None or entry.error is not None:
            return entry.error is None
        variant = entry.headers.get("Variant", "")
        if variant.strip().lower() not in _STANDARD_VARIANTS:
            entry.fail(entry.line, f"variant {variant!r} is not standard chess")
            return False
        fen = entry.headers.get("FEN", "")
        try:
            board = parse_fen(fen) if fen.strip(" ?") else chess.Board()
        except ValueError as error:
            entry.fail(entry.line, f"tag FEN: {error}")
            return False
        entry.board, entry.start = board, board.fen()
        return True

    def _close(self, line: int, terminator: str | None) -> Iterator[PlayedGame]:
        entry = self.entry
        assert entry is not None
        if self.depth:
            entry.fail(line, "a variation '(' is still open where the game ends")
        self._set_up(entry)
        tag = entry.headers.get("Result", "*").strip()
        results = {_RESULTS[text] for text in (tag, terminator) if text in _RESULTS} - {None}
        if len(results) > 1:
            entry.fail(line, f"the tag says {tag!r} and the moves end with {terminator!r}")
        self.entry, self.depth = None, 0
        if entry.error is None:
            result = results.pop() if results else None
            game_id = f"{self.label}:{entry.number}"
            where = f"{self.path}:{entry.line}: game {entry.number}"
            yield PlayedGame(game_id, entry.start, tuple(entry.moves), result, entry.headers, where)
            return
        names = " - ".join(entry.headers.get(colour, "?") for colour in ("White", "Black"))
        error = SourceError(
            f"{self.path}:{entry.error_line}: game {entry.number} ({names}, from line {entry.line}): {entry.error}"
        )
        refuse(error, self.on_bad)


def _tags(text: str) -> list[tuple[str, str]] | None:
    """The tags of a line, which may hold several; None where it is not a line of tags."""
    found, at = [], 0
    while match := _TAG.match(text, at):
        found.append((match.group(1), re.sub(r"\\(.)", r"\1", match.group(2))))
        at = match.end()
    if found and not text[at:].strip():
        return found
    loose = _LOOSE_TAG.match(text)
    return [(loose.group(1), loose.group(2))] if loose else None


def read_games(path: Path, on_bad: OnBad | None, label: str | None = None) -> Iterator[PlayedGame]:
    """Games of a PGN file, streamed; their ids are ``label`` (by default the file's name) and a number from 1.

    Raises:
        SourceError: an unreadable game or a damaged file (only without ``on_bad``), or no game in it.
    """
    reader = _Reader(path, label or path.name, on_bad)
    line = 0
    damage: list[SourceError] = []
    for line, text in read_lines(path, damage.append if on_bad else None):
        yield from reader.feed(line, text)
    if damage:
        assert on_bad is not None
        on_bad(damage[0])
        return  # with the game in which it was cut
    yield from reader.finish(line)
    if reader.count == 0:
        raise SourceError(f"{path}: holds no game; expected PGN text")


def write_games(path: Path, games: Iterable[PlayedGame], *, append: bool = False) -> int:
    """Write or append games in PGN export format and return how many; ``.gz`` and ``.zst`` compress."""
    count = 0
    with open_for_writing(path, append=append) as out:
        for game in games:
            out.write(game_text(game))
            count += 1
    return count


def game_text(game: PlayedGame) -> str:
    """One game in PGN's export format, a blank line after it."""
    board = parse_fen(game.start)
    result = _RESULT_TEXTS[game.result]
    roster = {"Event": "?", "Site": "?", "Date": "????.??.??", "Round": "?", "White": "?", "Black": "?", "Result": "*"}
    headers = {**roster, **game.headers, "Result": result}
    for name in ("SetUp", "FEN"):
        headers.pop(name, None)
    if game.start != chess.STARTING_FEN:
        headers.update(SetUp="1", FEN=game.start)
    words = []
    for i, move in enumerate(game.moves):
        if board.turn == chess.WHITE or i == 0:
            words.append(f"{board.fullmove_number}{'.' if board.turn == chess.WHITE else '...'}")
        words.append(board.san_and_push(MOVES[move]))
    lines = [f'[{name} "{_escaped(value)}"]' for name, value in headers.items()]
    movetext = textwrap.wrap(" ".join([*words, result]), 79, break_long_words=False, break_on_hyphens=False)
    return "\n".join([*lines, "", *movetext, "", ""])


def _escaped(value: str) -> str:
    return " ".join(value.replace("\\", "\\\\").replace('"', '\\"').split())


def _without_suffix(word: str) -> str:
    word = word.rstrip("+#!?")
    return next((word.removesuffix(each) for each in _EN_PASSANT_SUFFIXES if word.endswith(each)), word)
