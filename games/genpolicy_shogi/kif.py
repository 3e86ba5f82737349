"""KIF and KI2, the formats in which Japanese collections are kept: games read one at a time, and written as KIF.

KIF names the square that a piece comes from; KI2, like a newspaper, only tells apart what could be confused (右 左 直
上 寄 引 打). Both are read by one reader, since the lines tell themselves apart. Variations (変化), comments and times
are skipped. A first position is a handicap (手合割) or a diagram. A game may end without saying how.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from genpolicy.game import Game, OnBad, PlayedGame
from genpolicy_shogi.files import Source
from genpolicy_shogi.japanese import KANJI, NAMES, PIECE, TYPES, count_text, ki2_usi, kif_move, kif_usi, number_of
from genpolicy_shogi.notation import (
    FULL_SET,
    TERMINATION,
    Diagram,
    Entry,
    LineReader,
    known_headers,
    termination,
    time_limits,
)
from genpolicy_shogi.replay import Replay
from genpolicy_shogi.sfen import PIECE_TYPES, STARTPOS

_REST = "/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1"
HANDICAPS = {
    "平手": STARTPOS,
    "香落ち": "lnsgkgsn1/1r5b1" + _REST,
    "右香落ち": "1nsgkgsnl/1r5b1" + _REST,
    "角落ち": "lnsgkgsnl/1r7" + _REST,
    "飛車落ち": "lnsgkgsnl/7b1" + _REST,
    "飛香落ち": "lnsgkgsn1/7b1" + _REST,
    "二枚落ち": "lnsgkgsnl/9" + _REST,
    "三枚落ち": "lnsgkgsn1/9" + _REST,
    "四枚落ち": "1nsgkgsn1/9" + _REST,
    "五枚落ち": "2sgkgsn1/9" + _REST,
    "左五枚落ち": "1nsgkgs2/9" + _REST,
    "六枚落ち": "2sgkgs2/9" + _REST,
    "左七枚落ち": "2sgkg3/9" + _REST,
    "右七枚落ち": "3gkgs2/9" + _REST,
    "八枚落ち": "3gkg3/9" + _REST,
    "十枚落ち": "4k4/9" + _REST,
}
"""White, who gives the handicap, moves first; left and right are White's."""
MAX_DIGITS = 9
"""Of a move's number; Python converts no more than 4,300."""

_KIF_LINE = re.compile(r"\s*(\d+)[\s.:：]+(\S.*)")
_KI2_MARK = re.compile(r"[▲△▼▽☗☖⛊⛉]")
_RESULT = re.compile(r"[\s　]*まで、?(\d*)手?(?:で|にて)?(.*)")
_HEADER = re.compile(r"([^\s：:*#&][^：:]*)[：:](.*)")
_HEADERS = {
    "開始日時": "StartTime",
    "終了日時": "EndTime",
    "棋戦": "Event",
    "場所": "Site",
    "持ち時間": "TimeControl",
    "戦型": "Opening",
}
_SIDES = {"先手": 0, "下手": 0, "後手": 1, "上手": 1}
_ENDINGS = {
    "投了": "TORYO",
    "詰み": "TSUMI",
    "詰": "TSUMI",
    "切れ負け": "TIME_UP",
    "時間切れ": "TIME_UP",
    "反則負け": "ILLEGAL_MOVE",
    "入玉勝ち": "KACHI",
    "入玉宣言": "KACHI",
    "宣言勝ち": "KACHI",
    "千日手": "SENNICHITE",
    "持将棋": "JISHOGI",
    "引き分け": "HIKIWAKE",
    "最大手数": "MAX_MOVES",
    "中断": "CHUDAN",
    "封じ手": "CHUDAN",
    "不詰": "FUZUMI",
    "不戦勝": "FORFEIT",
    "不戦敗": "FORFEIT",
    "反則勝ち": "ILLEGAL_ACTION",
}
_LOST_BY_MOVER = ("TORYO", "TSUMI", "TIME_UP")
"""Endings that name the loser for certain; programs differ in whom they call ``反則負け``: the summary decides it."""
_WRITTEN = {
    "TORYO": "投了",
    "TSUMI": "詰み",
    "TIME_UP": "切れ負け",
    "ILLEGAL_MOVE": "反則負け",
    "ILLEGAL_ACTION": "反則勝ち",
    "KACHI": "入玉勝ち",
    "SENNICHITE": "千日手",
    "JISHOGI": "持将棋",
    "HIKIWAKE": "引き分け",
    "MAX_MOVES": "最大手数",
    "FUZUMI": "不詰",
}


class _Reader(LineReader):
    """Turns the lines of a file into games."""

    def _reset(self, entry: Entry | None) -> None:
        self.entry = entry
        self.rows = 0
        """Rows of the diagram seen so far."""
        self.diagram: Diagram | None = None
        self.handicap = ""
        self.player: int | None = None
        """Player to move, where a line names one."""
        self.last = ""
        """Square of the last move, in USI."""
        self.began = False
        """A move was seen, readable or not."""
        self.ended = False
        self.in_variation = False

    def feed(self, line: int, text: str) -> Iterator[PlayedGame]:
        """The games that end in this line."""
        stripped = text.strip(" \t　")
        if not stripped or stripped[0] in "*#&" or stripped.startswith(("手数", "+-", "９ ８", "9 8")):
            return
        if stripped.startswith("変化"):
            self.in_variation = True
        elif stripped.startswith("まで"):
            self._result(line, stripped)
        elif _KI2_MARK.search(stripped[0]) or (match := _KIF_LINE.match(text)):
            if not self.in_variation:
                entry = self._current(line)
                self.began = True
                if entry.error is None:
                    self._moves(entry, line, stripped)
        elif stripped[0] in "|｜":
            self._row(line, stripped)
        elif stripped in ("先手番", "下手番", "後手番", "上手番"):
            self._current(line)
            self.player = _SIDES[stripped[:2]]
        elif match := _HEADER.match(stripped):
            if self.began or self.ended:
                yield from self.finish(line)
            self._header(line, match.group(1).strip(), match.group(2).strip(" \t　"))
        elif self.entry is None or not self.entry.moves:
            # A title over the diagram; after moves it would hide a damaged line.
            return
        elif not self.in_variation:
            self.entry.fail(line, f"{stripped!r} is not a line of KIF or KI2")

    def _complete(self, entry: Entry, line: int) -> None:
        self._set_up(entry, line)

    def _header(self, line: int, name: str, value: str) -> None:
        entry = self._current(line)
        if name in _SIDES:
            if value:
                entry.headers[self.game.players[_SIDES[name]]] = value
        elif name == "手合割":
            self.handicap = value.strip(" 　")
        elif name.endswith("の持駒"):
            self._hand(entry, line, _SIDES.get(name[:2], 0), value)
        elif value and name not in ("手数", "後手番", "先手番"):
            entry.headers[_HEADERS.get(name, name)] = value

    def _hand(self, entry: Entry, line: int, player: int, value: str) -> None:
        self.diagram = self.diagram or Diagram()
        if value in ("なし", "無し", ""):
            return
        for word in re.split(r"[\s　]+", value):
            match = re.fullmatch(rf"({PIECE})([{KANJI}十]*)(\d{{0,3}})", word)
            if match is None or TYPES[match.group(1)] > 7:
                entry.fail(line, f"{word!r} is not a piece in hand")
                return
            piece = PIECE_TYPES[TYPES[match.group(1)]]
            piece = piece if player == 0 else piece.lower()
            count = int(match.group(3)) if match.group(3) else number_of(match.group(2))
            if not 1 <= count <= FULL_SET[piece.upper()]:
                entry.fail(line, f"{word!r}: there are no {count} of this piece")
                return
            self.diagram.hands[piece] = self.diagram.hands.get(piece, 0) + count

    def _row(self, line: int, text: str) -> None:
        entry = self._current(line)
        self.diagram = self.diagram or Diagram()
        self.rows += 1
        body = text[1:].rpartition("|")[0] or text[1:]
        cells = [(body[i], body[i + 1]) for i in range(0, len(body) - 1, 2)]
        if len(cells) != 9 or self.rows > 9:
            entry.fail(line, f"{text!r} is not a row of nine squares")
            return
        for i, (mark, char) in enumerate(cells):
            if char in "・.* 　":
                continue
            if char not in TYPES:
                entry.fail(line, f"{char!r} in {text!r} is not a piece")
                return
            piece = PIECE_TYPES[TYPES[char]]
            self.diagram.put(9 - i, self.rows, piece.lower() if mark in "vVｖ" else piece)

    def _set_up(self, entry: Entry, line: int) -> None:
        if entry.replay is not None or entry.error is not None:
            return
        sfen = HANDICAPS.get(self.handicap or "平手")
        if self.diagram is not None and self.rows:
            if self.rows != 9:
                entry.fail(line, f"the diagram has {self.rows} rows, not 9")
                return
            white_first = sfen is not None and " w " in sfen
            sfen = self.diagram.sfen(int(white_first) if self.player is None else self.player)
        elif sfen is None:
            known = ", ".join(HANDICAPS)
            entry.fail(line, f"手合割 {self.handicap!r} has no diagram and is none of {known}")
            return
        entry.set_up(self.game, line, sfen)

    def _moves(self, entry: Entry, line: int, text: str) -> None:
        self._set_up(entry, line)
        if entry.error is not None:
            return
        if _KI2_MARK.match(text):
            for token in _KI2_MARK.split(text)[1:]:
                self._move(entry, line, token.strip(" \t　"), by_source=False)
            return
        match = _KIF_LINE.match(text)
        assert match is not None
        number, rest = match.group(1), re.sub(r"[(（]\s*\d+:.*", "", match.group(2)).strip(" \t　+")
        if rest in _ENDINGS:
            self._end(entry, line, rest)
            return
        if len(number) > MAX_DIGITS or int(number) != len(entry.moves) + 1:
            entry.fail(line, f"move {number[:MAX_DIGITS]} stands where move {len(entry.moves) + 1} is expected")
            return
        self._move(entry, line, rest, by_source=True)

    def _move(self, entry: Entry, line: int, text: str, *, by_source: bool) -> None:
        replay = entry.replay
        assert replay is not None
        where = f"move {len(entry.moves) + 1} {text!r}"
        if self.ended:
            entry.fail(line, f"{where} stands after the game's end")
        if entry.error is not None:
            return
        if not by_source and text in _ENDINGS:
            self._end(entry, line, text)
            return
        try:
            usi = kif_usi(replay, text, self.last) if by_source else ki2_usi(replay, text, self.last)
            entry.play(usi)
        except ValueError as error:
            entry.fail(line, f"{where}: {error}")
        else:
            self.last = usi[2:4]

    def _end(self, entry: Entry, line: int, word: str) -> None:
        entry.end(line, _ENDINGS[word])
        assert entry.replay is not None
        if word in ("反則勝ち", "不戦勝"):
            entry.result = 1.0 if entry.replay.player == 0 else -1.0
        elif word == "不戦敗":
            entry.result = -1.0 if entry.replay.player == 0 else 1.0
        self.ended = True

    def _result(self, line: int, text: str) -> None:
        entry, match = self.entry, _RESULT.match(text)
        if entry is None or match is None or self.in_variation:
            return
        said = match.group(2)
        self.ended = True
        loss = re.search(r"(先手|後手|上手|下手)の?(?:反則負け|負け|切れ負け)", said)
        win = re.search(r"(先手|後手|上手|下手)の?[^\s先後上下]{0,20}勝", said)
        if win or loss:
            side = _SIDES[(win or loss).group(1)]  # type: ignore[union-attr]
            result = 1.0 if (side == 0) == bool(win) else -1.0
            if entry.headers.get(TERMINATION) in _LOST_BY_MOVER and entry.result != result:
                entry.fail(line, f"{text!r} contradicts the line before, by which the other player wins")
            entry.result = result
        else:
            for word, name in _ENDINGS.items():
                if word in said:
                    if entry.replay is not None and TERMINATION not in entry.headers:
                        entry.end(line, name)
                    break


def read_games(game: Game[Any], source: Source, label: str, on_bad: OnBad | None) -> Iterator[PlayedGame]:
    """Games of a KIF or KI2 file, streamed; their ids are ``label`` and a number from 1.

    Raises:
        SourceError: an unreadable game (only without ``on_bad``), or a damaged file.
    """
    return _Reader(game, source, label, on_bad).read()


def game_text(game: Game[Any], played: PlayedGame) -> str:
    """One game in KIF, for people and for programs."""
    ours = {value: key for key, value in _HEADERS.items()}
    lines = [
        f"{name}：{_time_text(value) if name == '持ち時間' else value}"
        for name, value in known_headers(played.headers, ours)
    ]
    lines += _first_position(played.start)
    for side, player in zip(("先手", "後手"), game.players, strict=True):
        lines.append(f"{side}：{' '.join(played.headers.get(player, '').split())}")
    lines.append("手数----指手---------消費時間--")
    replay = Replay(played.start)
    last = ""
    for number, move in enumerate(played.moves, 1):
        usi = game.moves[move]
        lines.append(f"{number:4} {kif_move(replay, usi, last)}")
        replay.play_usi(usi)
        last = usi[2:4]
    lines += _last_lines(termination(game, played, replay), played, replay)
    return "\n".join(lines) + "\n"


def _time_text(control: str) -> str:
    """A time control as KIF files write it: ``10分+30秒`` with byoyomi; other texts stay as they are."""
    limits = time_limits(control)
    if limits is None:
        return control
    base, byoyomi, increment = limits
    text = f"{base // 60}分" + (f"{base % 60}秒" if base % 60 else "")
    return text + (f"+{byoyomi}秒" if byoyomi else "") + (f"（1手ごとに{increment}秒加算）" if increment else "")


def _first_position(start: str) -> list[str]:
    for name, sfen in HANDICAPS.items():
        if sfen == start:
            return [f"手合割：{name}"]
    diagram = Diagram.of(start)

    def hand(upper: bool) -> str:
        held = ((piece, n) for piece, n in diagram.hands.items() if piece.isupper() == upper)
        return "　".join(NAMES[PIECE_TYPES.index(piece.upper())] + count_text(n) for piece, n in held) or "なし"

    rows = []
    short = {**dict(enumerate(NAMES)), 10: "杏", 11: "圭", 12: "全"}
    for rank in range(1, 10):
        cells = []
        for file in range(9, 0, -1):
            piece = diagram.squares.get((file, rank))
            if piece is None:
                cells.append(" ・")
            else:
                cells.append((" " if piece.isupper() else "v") + short[PIECE_TYPES.index(piece.upper())])
        rows.append(f"|{''.join(cells)}|{KANJI[rank - 1]}")
    return [
        "手合割：その他",
        f"後手の持駒：{hand(False)}",
        "  ９ ８ ７ ６ ５ ４ ３ ２ １",
        "+---------------------------+",
        *rows,
        "+---------------------------+",
        f"先手の持駒：{hand(True)}",
        "先手番" if start.split()[1] == "b" else "後手番",
    ]


def _last_lines(word: str, played: PlayedGame, last: Replay) -> list[str]:
    number = len(played.moves)
    handicap = played.start in HANDICAPS.values() and played.start != STARTPOS
    sides = ("下手", "上手") if handicap else ("先手", "後手")
    lines = [f"{number + 1:4} {_WRITTEN.get(word, '中断')}"]
    if played.result is None:
        said = "中断"
    elif played.result == 0:
        said = _WRITTEN[word]
    else:
        said = f"{sides[0 if played.result > 0 else 1]}の勝ち"
    return [*lines, f"まで{number}手で{said}"]
