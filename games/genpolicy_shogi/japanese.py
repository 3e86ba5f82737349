"""Moves, pieces and numbers as shogi books print them: KIF's ``７六歩(77)`` and KI2's ``５八金右``."""

from __future__ import annotations

import re

import cshogi

from genpolicy_shogi.replay import Replay, usi_square
from genpolicy_shogi.sfen import PIECE_TYPES

NAMES = ("", "歩", "香", "桂", "銀", "角", "飛", "金", "玉", "と", "成香", "成桂", "成銀", "馬", "龍")
"""By cshogi's piece type."""
TYPES = {name: number for number, name in enumerate(NAMES) if name}
TYPES |= {"王": 8, "竜": 14, "杏": 10, "圭": 11, "全": 12, "仝": 12}
KANJI = "一二三四五六七八九"
WIDE = "１２３４５６７８９"
DIGIT = {char: i for digits in ("123456789", WIDE, KANJI) for i, char in enumerate(digits, 1)}
PIECE = "|".join(sorted(TYPES, key=len, reverse=True))
_SQUARE = f"[1-9{WIDE}][1-9{WIDE}{KANJI}]"
_KIF_MOVE = re.compile(rf"(?:同\s*|({_SQUARE}))({PIECE})(成|不成|打)?(?:[(（]({_SQUARE})[)）])?")
_KI2_MOVE = re.compile(rf"(?:({_SQUARE})同?|同)[\s　]*({PIECE})([左右直上行引寄入]*)(不成|成|打|生)?")


def number_of(text: str) -> int:
    """Value of a Japanese number up to 18; "" is 1."""
    if "十" in text:
        tens, _, ones = text.partition("十")
        return 10 * (DIGIT[tens] if tens else 1) + (DIGIT[ones] if ones else 0)
    return DIGIT[text] if text else 1


def count_text(number: int) -> str:
    """A number up to 18 in Japanese; one is not written."""
    ones = KANJI[number % 10 - 1] if number % 10 else ""
    return "" if number == 1 else ("十" if number >= 10 else "") + ones


def _target(square: str | None, last: str) -> str:
    if square:
        return usi_square(DIGIT[square[0]], DIGIT[square[1]])
    if not last:
        raise ValueError("同 without a move before it")
    return last


def kif_usi(replay: Replay, text: str, last: str) -> str:
    """USI text of a move as KIF writes it, e.g. ``７六歩(77)``; as ``ki2_usi``."""
    match = _KIF_MOVE.fullmatch(re.sub(r"[\s　]+", "", text))
    if match is None:
        raise ValueError("not a move of KIF, such as ７六歩(77)")
    square, name, way, source = match.groups()
    piece, target = TYPES[name], _target(square, last)
    if way == "打":
        if source is not None:
            raise ValueError(f"a drop (打) comes from no square, and ({source}) is one")
        if piece > 7:
            raise ValueError("only an unpromoted piece can be dropped; a move names its square in brackets")
        return f"{PIECE_TYPES[piece]}*{target}"
    if source is None:
        raise ValueError(
            "KIF names the square that a piece comes from, as in ７六歩(77), or says that it is dropped (打)"
        )
    file, rank = DIGIT[source[0]], DIGIT[source[1]]
    if (stands := replay.piece_type(file, rank)) != piece:
        raise ValueError(f"square {file}{rank} holds {NAMES[stands] or 'no piece'} in {replay.sfen!r}")
    return f"{usi_square(file, rank)}{target}{'+' if way == '成' else ''}"


def ki2_usi(replay: Replay, text: str, last: str) -> str:
    """USI text of a move as newspapers write it, e.g. ``５八金右``.

    Args:
        replay: The position.
        text: The move, without the mark of the player.
        last: Square of the move before in USI, for 同; "" where there is none.

    Raises:
        ValueError: not a move, or none or several legal moves fit.
    """
    match = _KI2_MOVE.fullmatch(re.sub(r"[\s　]+", "", text))
    if match is None:
        raise ValueError("not a move of KI2, such as ７六歩 or ５八金右")
    square, name, modifiers, way = match.groups()
    piece, target = TYPES[name], _target(square, last)
    promotes = way == "成"
    drops, steps = [], []
    for move in replay.legal():
        usi = cshogi.move_to_usi(move)
        if usi[2:4] != target or usi.endswith("+") != promotes:
            continue
        if usi[1] == "*":
            if piece <= 7 and usi[0] == PIECE_TYPES[piece]:
                drops.append(usi)
        elif replay.piece_type(int(usi[0]), ord(usi[1]) - 96) == piece:
            steps.append(usi)
    if way == "打" or not steps:
        found = drops if not modifiers else []
    else:
        found = _told_apart(steps, modifiers, replay.player)
    if len(found) != 1:
        fit = f"{len(found)} legal moves fit ({' '.join(found)})" if found else "no legal move fits"
        raise ValueError(f"{fit} in {replay.sfen!r}")
    return str(found[0])


def _told_apart(steps: list[str], modifiers: str, player: int) -> list[str]:
    """Those of the moves to one square that the modifiers describe, seen by the player who makes them."""
    sign = 1 if player == 0 else -1
    # right > 0: the piece comes from the mover's right; up > 0: it moves forward.
    right = {usi: sign * (int(usi[2]) - int(usi[0])) for usi in steps}
    up = {usi: sign * (ord(usi[1]) - ord(usi[3])) for usi in steps}
    for modifier in modifiers:
        if modifier in "上行入":
            steps = [usi for usi in steps if up[usi] > 0]
        elif modifier == "引":
            steps = [usi for usi in steps if up[usi] < 0]
        elif modifier == "寄":
            steps = [usi for usi in steps if up[usi] == 0]
        elif modifier == "直":
            steps = [usi for usi in steps if right[usi] == 0 and up[usi] > 0]
    # Left and right compare the pieces that the other words leave.
    for modifier in modifiers:
        if modifier in "右左" and steps:
            pick = max if modifier == "右" else min
            best = pick(right[usi] for usi in steps)
            steps = [usi for usi in steps if right[usi] == best]
    return steps


def kif_move(replay: Replay, usi: str, last: str = "") -> str:
    """A legal move as KIF writes it, e.g. ``７六歩(77)``; ``last`` is the square of the move before."""
    target = usi[2:4]
    square = "同　" if target == last else WIDE[int(target[0]) - 1] + KANJI[ord(target[1]) - 97]
    if usi[1] == "*":
        return f"{square}{NAMES[PIECE_TYPES.index(usi[0])]}打"
    file, rank = int(usi[0]), ord(usi[1]) - 96
    return f"{square}{NAMES[replay.piece_type(file, rank)]}{'成' if usi.endswith('+') else ''}({file}{rank})"
