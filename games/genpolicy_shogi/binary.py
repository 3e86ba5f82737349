"""hcpe, hcpe3 and PSV, the training data of dlshogi and YaneuraOu: records read and written as they are, byte for byte.

All numbers are little-endian.

* hcpe, 38 bytes a position: hcp[32], eval i2 (centipawns for the player to move), bestMove16 u2, gameResult i1 (0 draw,
  1 Black won, 2 White won), a spare byte.
* hcpe3, a game: hcp[32], moveNum u2, result u1 (lowest two bits as in hcpe; 4 repetition, 8 declaration, 16 cut at the
  longest length), opponent u1; then for each move selectedMove16 u2, eval i2, candidateNum u2 and so many times move16
  u2, visitNum u2. A move without candidates is not a training sample.
* PSV (YaneuraOu's PackedSfenValue), 40 bytes a position: packed sfen[32], score i2 (for the player to move), move u2,
  gamePly u2, game_result i1 (1 won, 0 draw, -1 lost, for the player to move), a spare byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar

from genpolicy.errors import SourceError
from genpolicy.files import refuse
from genpolicy.game import OnBad
from genpolicy_shogi.files import Source, append_bytes
from genpolicy_shogi.packed import HCP, NUM_BYTES, PSFEN, unpack, usi_of_move16, usi_of_yaneura

_HCPE = struct.Struct("<32shHbB")
_PSV = struct.Struct("<32shHHbB")
_GAME = struct.Struct("<32sHBB")
_MOVE = struct.Struct("<HhH")
_CANDIDATE = struct.Struct("<HH")
RESULTS = {0: 0.0, 1: 1.0, 2: -1.0}
"""Result for Black by hcpe's number."""


@dataclass(frozen=True)
class Hcpe:
    """One position of an hcpe file."""

    hcp: bytes
    eval: int
    """Centipawns for the player to move."""
    move16: int
    game_result: int
    spare: int = 0

    @property
    def sfen(self) -> str:
        """The position; ValueError where the bytes do not stand for one."""
        return unpack(HCP, self.hcp)

    @property
    def move(self) -> str:
        """The best move in USI, not checked against the position; ValueError where the bits do not stand for one."""
        return usi_of_move16(self.move16)

    def to_bytes(self) -> bytes:
        """The 38 bytes."""
        return _HCPE.pack(self.hcp, self.eval, self.move16, self.game_result, self.spare)


@dataclass(frozen=True)
class Hcpe3Move:
    """One move of a game of an hcpe3 file."""

    move16: int
    """The move played."""
    eval: int
    """Centipawns for the player to move."""
    candidates: tuple[tuple[int, int], ...] = ()
    """(move, visits) of the search; () where the position is not a training sample."""


@dataclass(frozen=True)
class Hcpe3Game:
    """One game of an hcpe3 file."""

    hcp: bytes
    result: int
    opponent: int
    moves: tuple[Hcpe3Move, ...]

    @property
    def sfen(self) -> str:
        """The first position; ValueError where the bytes do not stand for one."""
        return unpack(HCP, self.hcp)

    def to_bytes(self) -> bytes:
        """The game as the file holds it."""
        parts = [_GAME.pack(self.hcp, len(self.moves), self.result, self.opponent)]
        for move in self.moves:
            parts.append(_MOVE.pack(move.move16, move.eval, len(move.candidates)))
            parts += [_CANDIDATE.pack(*candidate) for candidate in move.candidates]
        return b"".join(parts)


@dataclass(frozen=True)
class Psv:
    """One position of a PSV file."""

    packed_sfen: bytes
    score: int
    """Centipawns for the player to move."""
    move16: int
    """YaneuraOu's number, which is not cshogi's."""
    ply: int
    game_result: int
    spare: int = 0

    @property
    def sfen(self) -> str:
        """The position; ValueError where the bytes do not stand for one."""
        return unpack(PSFEN, self.packed_sfen)

    @property
    def move(self) -> str:
        """The move in USI, not checked against the position; ValueError where the bits do not stand for one."""
        return usi_of_yaneura(self.move16)

    def to_bytes(self) -> bytes:
        """The 40 bytes."""
        return _PSV.pack(self.packed_sfen, self.score, self.move16, self.ply, self.game_result, self.spare)


class _Record(Protocol):
    def to_bytes(self) -> bytes: ...


class CutShortError(ValueError):
    """The file ends within a record."""


class _Bytes:
    """A stream of which exactly so many bytes are wanted."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.began = False
        """Some of the present record was read."""

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes; b"" where the file ends before the record has begun.

        Raises:
            CutShortError: the file ends within them, or within the record.
        """
        data = self._stream.read(size)
        if len(data) < size and (data or self.began):
            raise CutShortError(f"the file ends within the record: {len(data)} of the next {size} bytes are there")
        self.began = True
        return data


RecordT = TypeVar("RecordT", bound="Hcpe | Hcpe3Game | Psv")


class Format(Generic[RecordT]):
    """How the records of one format are read.

    Args:
        name: Name of the format, for messages.
        layout: Layout of a record's fixed part.
        make: Makes a record of the fields of that part and of what follows it in the file.
    """

    def __init__(self, name: str, layout: struct.Struct, make: Callable[[tuple[Any, ...], _Bytes], RecordT]) -> None:
        self.name = name
        self._layout = layout
        self._make = make

    def read(self, source: Source | Path, on_bad: OnBad | None = None) -> Iterator[tuple[int, RecordT]]:
        """Number (from 1) and content of each record, streamed; positions and moves are not looked into.

        Raises:
            SourceError: the file is damaged or ends within a record, which the message names (``on_bad`` is called
                with this one instead), or cannot be opened.
        """
        source = source if isinstance(source, Source) else Source(source)
        number = 0
        try:
            with source.open() as stream:
                data = _Bytes(stream)
                while True:
                    number, data.began = number + 1, False
                    head = data.take(self._layout.size)
                    if not head:
                        return
                    yield number, self._make(self._layout.unpack(head), data)
        except (CutShortError, SourceError) as error:
            reason = f"{error}; fetch or make it again" if isinstance(error, CutShortError) else str(error)
            refuse(SourceError(f"{source.label}: {self.name} record {number}: {reason}"), on_bad, error)


def _hcpe3_game(fields: tuple[Any, ...], data: _Bytes) -> Hcpe3Game:
    hcp, num_moves, result, opponent = fields
    moves = []
    for _ in range(num_moves):
        move16, value, num_candidates = _MOVE.unpack(data.take(_MOVE.size))
        candidates = data.take(_CANDIDATE.size * num_candidates)
        moves.append(Hcpe3Move(move16, value, tuple(_CANDIDATE.iter_unpack(candidates))))
    return Hcpe3Game(hcp, result, opponent, tuple(moves))


HCPE: Format[Hcpe] = Format("hcpe", _HCPE, lambda fields, data: Hcpe(*fields))
HCPE3: Format[Hcpe3Game] = Format("hcpe3", _GAME, _hcpe3_game)
PSV: Format[Psv] = Format("PSV", _PSV, lambda fields, data: Psv(*fields))
assert (_HCPE.size, _PSV.size) == (NUM_BYTES + 6, NUM_BYTES + 8)


def write(path: Path, records: Iterable[_Record]) -> int:
    """Write records to a new file, packed where its name ends in ``.gz`` or ``.zst``; how many there were."""
    path.write_bytes(b"")
    count = 0
    chunk: list[bytes] = []
    for record in records:
        chunk.append(record.to_bytes())
        count += 1
        if len(chunk) == 4096:
            append_bytes(path, b"".join(chunk))
            chunk = []
    if chunk:
        append_bytes(path, b"".join(chunk))
    return count
