"""CSA, the format of computer shogi servers (floodgate) and tournaments: games read one at a time, and written.

Version 2.2 of the standard (computer-shogi.org/protocol/record_v22.html) and the words that 3.0 adds: several games in
a file (``/`` between them), handicaps (``PI82HI22KA``), any first position (``P1`` to ``P9``, ``P+``, ``P-``), several
statements in a line. Comments are skipped except floodgate's summary, which names the winner, and its ratings. A
game may end without a statement that says how; its result is then unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from genpolicy.game import Game, OnBad, PlayedGame
from genpolicy_shogi.files import Source
from genpolicy_shogi.notation import (
    ENDINGS,
    TERMINATION,
    Diagram,
    Entry,
    LineReader,
    known_headers,
    termination,
    time_limits,
)
from genpolicy_shogi.replay import Replay, usi_square
from genpolicy_shogi.sfen import STARTPOS

NAMES: tuple[str, ...] = ("", "FU", "KY", "KE", "GI", "KA", "HI", "KI", "OU", "TO", "NY", "NK", "NG", "UM", "RY")
"""By cshogi's piece type."""
_SFEN: dict[str, str] = dict(
    zip(NAMES[1:], ("P", "L", "N", "S", "B", "R", "G", "K", "+P", "+L", "+N", "+S", "+B", "+R"), strict=True)
)
_HEADERS = {
    "EVENT": "Event",
    "SITE": "Site",
    "START_TIME": "StartTime",
    "END_TIME": "EndTime",
    "TIME_LIMIT": "TimeControl",
    "TIME": "TimeControl",
    "OPENING": "Opening",
}
_MOVE = re.compile(r"([+-])(\d)(\d)(\d)(\d)([A-Z]{2})")
_PAIR = re.compile(r"(\d)(\d)([A-Z]{2})")
_SUMMARY = re.compile(r"'summary:([^:]*):([^:]*) (win|lose|draw):([^:]*) (win|lose|draw)")
_RATE = re.compile(r"'(black|white)_rate:.*:([\d.]+)")


class _Reader(LineReader):
    """Turns the lines of a file into games."""

    def _reset(self, entry: Entry | None) -> None:
        self.entry = entry
        self.diagram: Diagram | None = None
        self.began = False
        """A move was seen, readable or not."""
        self.ended = False
        self.illegal: tuple[int, str] | None = None
        """Line and text of an illegal move that waits for the statement that it lost the game."""

    def feed(self, line: int, text: str) -> Iterator[PlayedGame]:
        """The games that end in this line."""
        text = text.strip()
        if not text:
            return
        if text.startswith("'"):
            self._comment(text)
        elif text[0] in "VN$":
            yield from self._header(line, text)
        else:
            # A diagram's row may hold blanks and no commas; all else may stand several in a line.
            for statement in text.split(","):
                if statement.strip() == "/":
                    yield from self.finish(line)
                elif statement.strip():
                    yield from self._statement(line, statement.strip())

    def _complete(self, entry: Entry, line: int) -> None:
        self._give_up_illegal(entry)
        if entry.replay is None and entry.error is None:
            self._set_up(entry, line, 0)

    def _comment(self, text: str) -> None:
        entry = self.entry
        if entry is None:
            return
        if rate := _RATE.match(text):
            entry.headers["BlackElo" if rate.group(1) == "black" else "WhiteElo"] = rate.group(2)
        elif summary := _SUMMARY.match(text):
            how, _, black, _, _ = summary.groups()
            entry.result = {"win": 1.0, "lose": -1.0, "draw": 0.0}[black]
            entry.headers.setdefault(TERMINATION, how)
            if self.illegal is not None and how == "illegal move":
                self.illegal = None

    def _header(self, line: int, text: str) -> Iterator[PlayedGame]:
        if self.began or self.ended:
            yield from self.finish(line)
        entry = self._current(line)
        if text[0] == "N" and text[1:2] in ("+", "-"):
            if text[2:]:
                entry.headers[self.game.players[0] if text[1] == "+" else self.game.players[1]] = text[2:]
        elif text[0] == "$":
            name, colon, value = text[1:].partition(":")
            if colon and value:
                entry.headers[_HEADERS.get(name, name)] = value
        elif text[0] != "V":
            entry.fail(line, f"{text!r} is not a statement of CSA")

    def _statement(self, line: int, text: str) -> Iterator[PlayedGame]:
        if self.ended and (text[0] == "P" or text in ("+", "-")):
            yield from self.finish(line)
        entry = self._current(line)
        match = _MOVE.fullmatch(text)
        self.began |= match is not None
        # Of a bad game only the end counts, so that the next one is not taken for its rest.
        if text[0] == "%":
            if entry.error is None:
                self._end(entry, line, text[1:])
            self.ended = True
            return
        if entry.error is not None or re.fullmatch(r"T[\d.]*", text):
            return
        self._give_up_illegal(entry)
        if text[0] == "P":
            self._place(entry, line, text)
        elif text in ("+", "-"):
            self._set_up(entry, line, "+-".index(text))
        elif match is not None:
            if entry.replay is None:
                self._set_up(entry, line, "+-".index(match.group(1)))
            if entry.error is None:
                self._move(entry, line, match)
        else:
            entry.fail(line, f"{text!r} is not a statement of CSA")

    def _give_up_illegal(self, entry: Entry) -> None:
        if self.illegal is not None:
            entry.fail(*self.illegal)

    def _place(self, entry: Entry, line: int, text: str) -> None:
        if entry.replay is not None:
            entry.fail(line, f"{text!r} stands after the player to move")
            return
        try:
            self.diagram = _placed(self.diagram, text)
        except ValueError as error:
            entry.fail(line, f"{text!r}: {error}")

    def _set_up(self, entry: Entry, line: int, player: int) -> None:
        if entry.replay is not None:
            entry.fail(line, "the player to move is given twice")
            return
        if self.diagram is not None and 0 < len(self.diagram.ranks) < 9:
            missing = " ".join(f"P{rank}" for rank in range(1, 10) if rank not in self.diagram.ranks)
            entry.fail(line, f"the first position lacks the rows {missing}")
            return
        sfen = STARTPOS if self.diagram is None else self.diagram.sfen(player)
        if self.diagram is None and player == 1:
            sfen = sfen.replace(" b ", " w ")
        entry.set_up(self.game, line, sfen)

    def _move(self, entry: Entry, line: int, match: re.Match[str]) -> None:
        replay = entry.replay
        assert replay is not None
        sign, name = match.group(1), match.group(6)
        file, rank, to_file, to_rank = map(int, match.groups()[1:5])
        where = f"move {len(entry.moves) + 1} {match.group()!r}"
        if self.ended:
            entry.fail(line, f"{where} stands after the game's end")
        elif "+-".index(sign) != replay.player:
            entry.fail(line, f"{where} is made by the player who is not to move, in {replay.sfen!r}")
        elif name not in _SFEN or not to_file or not to_rank or bool(file) != bool(rank):
            entry.fail(line, f"{where} is not a move")
        else:
            self._play(entry, line, where, file, rank, usi_square(to_file, to_rank), NAMES.index(name))

    def _play(self, entry: Entry, line: int, where: str, file: int, rank: int, target: str, after: int) -> None:
        replay = entry.replay
        assert replay is not None
        if not file:
            usi = f"{_SFEN[NAMES[after]]}*{target}"
        else:
            before = replay.piece_type(file, rank)
            if after not in (before, before + 8):
                holds = NAMES[before] or "no piece"
                self.illegal = line, f"{where}: square {file}{rank} holds {holds} in {replay.sfen!r}"
                return
            usi = f"{usi_square(file, rank)}{target}{'' if after == before else '+'}"
        try:
            entry.play(usi)
        except ValueError as error:
            self.illegal = line, f"{where}: {error}"

    def _end(self, entry: Entry, line: int, word: str) -> None:
        if entry.replay is None:
            self._set_up(entry, line, 0)
        if word in ("+ILLEGAL_ACTION", "-ILLEGAL_ACTION"):
            entry.result = -1.0 if word[0] == "+" else 1.0
            entry.headers[TERMINATION] = word
            self.illegal = None
        elif word in ENDINGS:
            if word == "ILLEGAL_MOVE":  # it may stand before this, or be left out
                self.illegal = None
            self._give_up_illegal(entry)
            entry.end(line, word)
        else:
            entry.fail(line, f"'%{word}' does not end a game; known are {', '.join('%' + name for name in ENDINGS)}")


def _placed(diagram: Diagram | None, text: str) -> Diagram:
    """The diagram after a statement that begins with P."""
    if text.startswith("PI"):
        if diagram is not None:
            raise ValueError("stands after other pieces")
        diagram = Diagram.of(STARTPOS)
        diagram.ranks = set(range(1, 10))
        for file, rank, name in _pairs(text[2:]):
            if diagram.squares.pop((file, rank), "").upper() != _SFEN.get(name):
                raise ValueError(f"no {name} stands on {file}{rank} in the initial position")
        return diagram
    diagram = diagram or Diagram()
    if text[1:2] in ("+", "-"):
        player = "+-".index(text[1])
        for file, rank, name in _pairs(text[2:]):
            if name == "AL" and file == rank == 0:
                diagram.rest_to_hand(player)
                continue
            if name not in _SFEN:
                raise ValueError(f"no piece is called {name}")
            piece = _SFEN[name] if player == 0 else _SFEN[name].lower()
            if file == rank == 0:
                if len(piece) > 1:
                    raise ValueError(f"a promoted piece ({name}) cannot be in hand")
                diagram.hands[piece] = diagram.hands.get(piece, 0) + 1
            else:
                diagram.put(file, rank, piece)
        return diagram
    if text[1:2] not in tuple("123456789"):
        raise ValueError("not a statement of CSA")
    rank = int(text[1])
    if rank in diagram.ranks:
        raise ValueError(f"rank {rank} is given twice")
    diagram.ranks.add(rank)
    # The blank after a last empty square is often lost.
    cells = re.findall(r"..?.?", text[2:])
    if len(cells) != 9:
        raise ValueError(f"a row has nine squares of three characters, got {len(cells)}")
    for i, cell in enumerate(cells):
        if cell.strip() in ("*", ""):
            continue
        if cell[0] not in "+-" or cell[1:] not in _SFEN:
            raise ValueError(f"{cell!r} is neither a piece nor ' * '")
        piece = _SFEN[cell[1:]]
        diagram.put(9 - i, rank, piece if cell[0] == "+" else piece.lower())
    return diagram


def _pairs(text: str) -> list[tuple[int, int, str]]:
    found = [(int(file), int(rank), name) for file, rank, name in _PAIR.findall(text)]
    if sum(4 for _ in found) != len(text):
        raise ValueError("expected squares and pieces such as 82HI")
    return found


def read_games(game: Game[Any], source: Source, label: str, on_bad: OnBad | None) -> Iterator[PlayedGame]:
    """Games of a CSA file, streamed; their ids are ``label`` and a number from 1.

    Raises:
        SourceError: an unreadable game (only without ``on_bad``), or a damaged file.
    """
    return _Reader(game, source, label, on_bad).read()


def game_text(game: Game[Any], played: PlayedGame) -> str:
    """One game in CSA, without the ``/`` that goes between games."""
    lines = ["V2.2"]
    for sign, player in zip("+-", game.players, strict=True):
        if name := " ".join(played.headers.get(player, "").split()):
            lines.append(f"N{sign}{name}")
    ours = {value: key for key, value in _HEADERS.items()}
    for name, value in known_headers(played.headers, ours):
        lines.append(_time_line(value) if name == ours["TimeControl"] else f"${name}:{value}")
    lines += _first_position(played.start)
    replay = Replay(played.start)
    for move in played.moves:
        usi = game.moves[move]
        lines.append("+-"[replay.player] + _csa_move(replay, usi))
        replay.play_usi(usi)
    word = termination(game, played, replay)
    lines.append(f"%{'+-'[1 - replay.player]}ILLEGAL_ACTION" if word == "ILLEGAL_ACTION" else f"%{word}")
    return "\n".join(lines) + "\n"


def _time_line(control: str) -> str:
    """A time control as version 2.2 writes it; where that has no place for it (seconds, an increment), as version 3."""
    limits = time_limits(control)
    if limits is None:
        return f"$TIME_LIMIT:{control}"
    base, byoyomi, increment = limits
    if base % 60 or increment or byoyomi > 99:
        return f"$TIME:{base}+{byoyomi}+{increment}"
    return f"$TIME_LIMIT:{base // 3600:02}:{base // 60 % 60:02}+{byoyomi:02}"


def _first_position(start: str) -> list[str]:
    if start == STARTPOS:
        lines = ["PI"]
    else:
        diagram = Diagram.of(start)
        names = {sfen: name for name, sfen in _SFEN.items()}
        lines = []
        for rank in range(1, 10):
            cells = (diagram.squares.get((file, rank)) for file in range(9, 0, -1))
            row = (" * " if piece is None else "-+"[piece.isupper()] + names[piece.upper()] for piece in cells)
            lines.append(f"P{rank}" + "".join(row))
        for sign, upper in (("+", True), ("-", False)):
            held = "".join(f"00{names[p.upper()]}" * n for p, n in diagram.hands.items() if p.isupper() == upper)
            if held:
                lines.append(f"P{sign}{held}")
    return [*lines, "+" if start.split()[1] == "b" else "-"]


def _csa_move(replay: Replay, usi: str) -> str:
    target = f"{usi[2]}{ord(usi[3]) - 96}"
    if usi[1] == "*":
        return f"00{target}{NAMES[' PLNSBRG'.index(usi[0])]}"
    file, rank = int(usi[0]), ord(usi[1]) - 96
    piece = replay.piece_type(file, rank) + (8 if usi.endswith("+") else 0)
    return f"{file}{rank}{target}{NAMES[piece]}"
