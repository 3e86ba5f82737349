"""Converts positions between the training data of dlshogi and YaneuraOu and the library's own form.

Scores become ``cp:`` texts for the player to move, results are Black's, the visits of a search its policy. The move of
an hcpe or PSV record and the most visited move of an hcpe3 record are the line; hcpe3 also says what was played.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from genpolicy.errors import SourceError
from genpolicy.files import refuse
from genpolicy.game import Game, OnBad, PlayedGame, Position
from genpolicy.values import CENTIPAWN_SCALE, parse_score
from genpolicy_shogi import binary, packed
from genpolicy_shogi.binary import RESULTS, Hcpe, Hcpe3Game, Hcpe3Move, Psv
from genpolicy_shogi.files import Source
from genpolicy_shogi.packed import HCP, PSFEN, move16_of_usi, pack, yaneura_of_usi
from genpolicy_shogi.replay import Replay

MATE_EVAL = 30_000
"""Centipawns of a mate where a format has only those; dlshogi's own figure."""
_EVAL_RANGE = -0x8000, 0x7FFF
VISITS = 10_000
"""Visits of a policy that is written without knowing their number."""
_LAST_GAME_PLY = 0xFFFF
_FromT = TypeVar("_FromT")
_MadeT = TypeVar("_MadeT")


def read_positions(game: Game[Any], source: Source, label: str, on_bad: OnBad | None) -> Iterator[Position]:
    """Positions of an hcpe, hcpe3 or PSV file, streamed; an illegal record is one bad entry, an hcpe3 game too.

    Raises:
        SourceError: an unreadable or illegal record (only without ``on_bad``), or a damaged file.
    """
    if source.suffix == ".hcpe3":
        for number, record in binary.HCPE3.read(source, on_bad):
            made = _made(hcpe3_positions, record, source, "hcpe3", number, on_bad)
            for ply, (text, line, scores, played, policy) in enumerate(made or ()):
                yield Position(
                    text,
                    f"{source.label}: hcpe3 record {number}",
                    line,
                    scores,
                    game_id=f"{label}:{number}",
                    ply=ply,
                    played=played,
                    result=RESULTS[record.result & 3],
                    policy=policy,
                    is_whole_in_source=True,
                )
        return
    records: Iterator[tuple[int, Hcpe | Psv]]
    if source.suffix == ".hcpe":
        name, records = "hcpe", binary.HCPE.read(source, on_bad)
    else:
        name, records = "PSV", binary.PSV.read(source, on_bad)
    for number, each in records:
        found = _made(_position, each, source, name, number, on_bad)
        if found is not None:
            text, line, scores, result = found
            known = each.ply - 1 if isinstance(each, Psv) and each.ply else None
            yield Position(text, f"{source.label}: {name} record {number}", line, scores, ply=known, result=result)


def _made(
    make: Callable[[_FromT], _MadeT], record: _FromT, source: Source, name: str, number: int, on_bad: OnBad | None
) -> _MadeT | None:
    """What ``make`` gives for a record; None where it raises ValueError and ``on_bad`` was called."""
    try:
        return make(record)
    except ValueError as error:
        refuse(SourceError(f"{source.label}: {name} record {number}: {error}"), on_bad, error)
        return None


def _position(record: Hcpe | Psv) -> tuple[str, tuple[str], tuple[str], float]:
    """Text, line, scores and Black's result of a record; ValueError where it is illegal."""
    text, move = record.sfen, record.move
    Replay(text).play_usi(move)
    if isinstance(record, Hcpe):
        return text, (move,), (f"cp:{record.eval}",), _result(record.game_result)
    if record.game_result not in (-1, 0, 1):
        raise ValueError(f"game_result is 1, 0 or -1, got {record.game_result}")
    black = 1 if text.split()[1] == "b" else -1
    return text, (move,), (f"cp:{record.score}",), float(black * record.game_result) + 0.0


def _result(number: int) -> float:
    if number not in RESULTS:
        raise ValueError(f"the result is 0 (draw), 1 (Black) or 2 (White), got {number}")
    return RESULTS[number]


Searched = tuple[str, tuple[str, ...], tuple[str, ...], str, str | None]
"""Text, line, scores, move played and policy of one position of an hcpe3 game."""


def hcpe3_positions(record: Hcpe3Game) -> list[Searched]:
    """The positions of a game in which a move was played.

    Raises:
        ValueError: the first position, a move or the result is illegal; the message says which.
    """
    _result(record.result & 3)
    replay = Replay(record.sfen)
    found: list[Searched] = []
    for ply, move in enumerate(record.moves, 1):
        try:
            text = replay.sfen.rpartition(" ")[0] + " 1"
            visits = {replay.move16(number): count for number, count in move.candidates}
            total = sum(visits.values())
            line: tuple[str, ...] = ()
            # An eval of 0 without candidates is a move that was not searched, for example one of an opening book.
            scores = (f"cp:{move.eval}",) if total or move.eval else ()
            policy: str | None = None
            if total:
                line = (max(visits, key=visits.__getitem__),)
                policy = " ".join(f"{usi}={count / total:.6g}" for usi, count in visits.items() if count)
            played = replay.move16(move.move16)
            found.append((text, line, scores, played, policy))
            replay.play_usi(played)
        except ValueError as error:
            raise ValueError(f"move {ply}: {error}") from error
    return found


def read_games(game: Game[Any], source: Source, label: str, on_bad: OnBad | None) -> Iterator[PlayedGame]:
    """Games of an hcpe3 file, without what was searched.

    Raises:
        SourceError: an illegal game (only without ``on_bad``), or a damaged file.
    """
    for number, record in binary.HCPE3.read(source, on_bad):
        made = _made(hcpe3_positions, record, source, "hcpe3", number, on_bad)
        if made is not None:
            moves = tuple(game.moves.index(played) for _, _, _, played, _ in made)
            start = game.format(game.parse(record.sfen))
            where = f"{source.label}: game {number}"
            yield PlayedGame(f"{label}:{number}", start, moves, RESULTS[record.result & 3], where=where)


def fits(played: PlayedGame) -> bool:
    """Whether hcpe3 can hold a game: its result is known and its first position has both kings."""
    return played.result is not None and packed.fits(played.start)


def hcpe3_of_game(game: Game[Any], played: PlayedGame) -> Hcpe3Game:
    """A game in hcpe3. Its positions were not searched: they have no candidates, so they are not training samples.

    Raises:
        ValueError: its result is unknown, or its first position has one king.
    """
    if played.result is None:
        raise ValueError(f"game {played.game_id}: its result is unknown, and hcpe3 has no number for that")
    moves = tuple(Hcpe3Move(move16_of_usi(game.moves[move]), 0) for move in played.moves)
    return Hcpe3Game(pack(HCP, played.start), _result_number(played.result), 0, moves)


def write_positions(path: Path, positions: Iterable[Position], *, scale: float = CENTIPAWN_SCALE) -> int:
    """Write labelled positions as hcpe, hcpe3 or PSV, by the file's name; those that a format cannot hold are left out.

    hcpe and PSV take positions with a line, a score of its first position and a result. hcpe3 takes the moves played of
    whole games whose result is known; a position's policy becomes visits, its line a single candidate where it has no
    policy, and a position with neither is not a training sample. No format takes a position with one king.

    Args:
        path: A new file.
        positions: In order, those of a game together.
        scale: By which a score that is a value becomes centipawns.

    Returns:
        How many positions were written.

    Raises:
        ValueError: positions are not written in the format of this name.
    """
    suffix = Source(path).suffix
    if suffix == ".hcpe3":
        count = 0

        def games() -> Iterator[Hcpe3Game]:
            nonlocal count
            for _, group in groupby(positions, key=lambda position: position.game_id):
                for record in _hcpe3_games(list(group), scale):
                    count += len(record.moves)
                    yield record

        binary.write(path, games())
        return count
    if suffix not in (".hcpe", ".psv"):
        raise ValueError(f"{path}: positions are written as .hcpe, .hcpe3 or .psv (each also .gz or .zst)")
    make = _hcpe_of if suffix == ".hcpe" else _psv_of
    return binary.write(path, (make(position, scale) for position in positions if _is_whole(position)))


def _is_whole(position: Position) -> bool:
    scored = position.scores and position.scores[0] is not None
    return bool(position.line and scored and position.result is not None and packed.fits(position.text))


def _hcpe_of(position: Position, scale: float) -> Hcpe:
    assert position.result is not None
    move, result = move16_of_usi(position.line[0]), _result_number(position.result)
    return Hcpe(pack(HCP, position.text), _eval(position.scores, scale), move, result)


def _psv_of(position: Position, scale: float) -> Psv:
    assert position.result is not None
    black = 1 if position.text.split()[1] == "b" else -1
    ply = min(_LAST_GAME_PLY, 1 + (position.ply or 0))
    move = yaneura_of_usi(position.line[0])
    return Psv(pack(PSFEN, position.text), _eval(position.scores, scale), move, ply, int(position.result) * black)


def _hcpe3_games(positions: list[Position], scale: float) -> Iterator[Hcpe3Game]:
    """The game of some positions, or several where one does not follow from the one before."""
    moves: list[Hcpe3Move] = []
    start, result = "", 0
    replay: Replay | None = None
    for position in positions:
        if position.played is None or position.result is None or not packed.fits(position.text):
            continue
        if replay is None or replay.sfen.split()[:3] != position.text.split()[:3]:
            if replay is not None:
                yield Hcpe3Game(pack(HCP, start), result, 0, tuple(moves))
            start, result = position.text, _result_number(position.result)
            moves, replay = [], Replay(position.text)
        moves.append(Hcpe3Move(move16_of_usi(position.played), _eval(position.scores, scale), _candidates(position)))
        replay.play_usi(position.played)
    if replay is not None:
        yield Hcpe3Game(pack(HCP, start), result, 0, tuple(moves))


def _candidates(position: Position) -> tuple[tuple[int, int], ...]:
    if position.policy:
        shares = (entry.split("=") for entry in position.policy.split())
        counted = ((move16_of_usi(usi), round(VISITS * float(share))) for usi, share in shares)
        return tuple((move, visits) for move, visits in counted if visits)
    return ((move16_of_usi(position.line[0]), 1),) if position.line else ()


def _eval(scores: tuple[str | None, ...], scale: float) -> int:
    """Centipawns of the first score, 0 without one. What 16 bits lack is cut off.

    A mate and a value of 1 or -1 are ``MATE_EVAL`` centipawns; other values are those that ``scale`` makes of them.
    """
    if not scores or scores[0] is None:
        return 0
    kind, number = parse_score(scores[0])
    if kind == "mate" or (abs(number) == 1 and kind == "value"):
        return MATE_EVAL if number > 0 else -MATE_EVAL
    if kind == "value":
        return max(-MATE_EVAL, min(MATE_EVAL, round(2 * math.atanh(number) / scale)))
    return max(_EVAL_RANGE[0], min(_EVAL_RANGE[1], int(number)))


def _result_number(result: float) -> int:
    return {number: name for name, number in RESULTS.items()}[result]
