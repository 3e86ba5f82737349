"""hcpe, hcpe3 and PSV: bytes as cshogi writes them, round trips, and what is cut or damaged."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path

import cshogi
import numpy as np
import pytest
import zstandard

import genpolicy
from genpolicy.errors import SourceError
from genpolicy.game import Position
from genpolicy_shogi import binary, labelled
from genpolicy_shogi.files import Source
from genpolicy_shogi.packed import (
    HCP,
    PSFEN,
    move16_of_usi,
    pack,
    unpack,
    usi_of_move16,
    usi_of_yaneura,
    yaneura_of_usi,
)

GAME = genpolicy.load_game("shogi")
READERS = {".hcpe": binary.HCPE, ".hcpe3": binary.HCPE3, ".psv": binary.PSV}


def random_board(rng: random.Random, plies: int) -> cshogi.Board:
    board = cshogi.Board()
    for _ in range(plies):
        moves = list(board.legal_moves)
        if not moves:
            return random_board(rng, plies)
        board.push(rng.choice(moves))
    return board if not board.is_game_over() else random_board(rng, plies)


def hcpe_bytes(count: int, seed: int = 0) -> bytes:
    """Records as cshogi's own types hold them."""
    rng = random.Random(seed)
    records = np.zeros(count, cshogi.HuffmanCodedPosAndEval)
    for record in records:
        board = random_board(rng, rng.randint(0, 120))
        board.to_hcp(np.asarray(record["hcp"]))
        record["eval"] = rng.randint(-3000, 3000)
        record["bestMove16"] = np.int16(np.uint16(cshogi.move16(rng.choice(list(board.legal_moves)))))
        record["gameResult"] = rng.choice([cshogi.DRAW, cshogi.BLACK_WIN, cshogi.WHITE_WIN])
    return records.tobytes()


def psv_bytes(count: int, seed: int = 0) -> bytes:
    rng = random.Random(seed)
    records = np.zeros(count, cshogi.PackedSfenValue)
    for record in records:
        plies = rng.randint(0, 120)
        board = random_board(rng, plies)
        board.to_psfen(np.asarray(record["sfen"]))
        record["score"] = rng.randint(-3000, 3000)
        record["move"] = cshogi.move16_to_psv(cshogi.move16(rng.choice(list(board.legal_moves))))
        record["gamePly"] = plies + 1
        record["game_result"] = rng.choice([-1, 0, 1])
    return records.tobytes()


def hcpe3_bytes(count: int, seed: int = 0) -> bytes:
    """Games as dlshogi's scripts write them: a header, then moves with their candidates."""
    rng = random.Random(seed)
    out = b""
    for _ in range(count):
        board = random_board(rng, rng.randint(0, 20))
        hcp = np.zeros(1, cshogi.HuffmanCodedPos)
        board.to_hcp(hcp)
        moves = b""
        num_moves = 0
        for _ in range(rng.randint(0, 12)):
            legal = list(board.legal_moves)
            if not legal:
                break
            played = rng.choice(legal)
            candidates = rng.sample(legal, min(len(legal), rng.choice([0, 1, 5])))
            moves += struct.pack("<HhH", cshogi.move16(played), rng.randint(-999, 999), len(candidates))
            for move in candidates:
                moves += struct.pack("<HH", cshogi.move16(move), rng.randint(1, 800))
            board.push(played)
            num_moves += 1
        out += (
            hcp.tobytes() + struct.pack("<HBB", num_moves, rng.choice([0, 1, 2, 4, 9, 16]), rng.randint(0, 2)) + moves
        )
    return out


DATA = {".hcpe": hcpe_bytes, ".hcpe3": hcpe3_bytes, ".psv": psv_bytes}


def test_positions_are_packed_as_cshogi_packs_them_and_back() -> None:
    rng = random.Random(4)
    starts = [
        "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1",
        "4k4/9/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1",  # a handicap: fewer pieces than a set
        "R8/2K1S1SSk/4B4/9/9/9/9/9/1L1L1L3 b RBGSNLP3g3n17p 1",
    ]
    boards = [cshogi.Board(text) for text in starts] + [random_board(rng, rng.randint(0, 250)) for _ in range(60)]
    for board in boards:
        text = GAME.format(GAME.parse(board.sfen()))
        theirs = np.zeros(1, cshogi.HuffmanCodedPos)
        board.to_hcp(theirs)
        assert pack(HCP, text) == theirs.tobytes()
        assert unpack(HCP, theirs.tobytes()) == text
        packed = np.zeros(1, cshogi.PackedSfen)
        board.to_psfen(packed)
        assert unpack(PSFEN, packed.tobytes()) == text
        for move in board.legal_moves:
            usi = cshogi.move_to_usi(move)
            assert move16_of_usi(usi) == cshogi.move16(move)
            assert usi_of_move16(cshogi.move16(move)) == usi
            assert yaneura_of_usi(usi) == cshogi.move16_to_psv(cshogi.move16(move))
            assert usi_of_yaneura(yaneura_of_usi(usi)) == usi


def test_a_mate_problem_without_a_king_does_not_fit() -> None:
    for packing in (HCP, PSFEN):
        with pytest.raises(ValueError, match="one king"):
            pack(packing, "8k/9/9/9/9/9/9/9/9 b 2r2b4g4s4n4l18p 1")


def test_any_32_bytes_are_a_position_or_an_error() -> None:
    rng = random.Random(5)
    good = pack(HCP, GAME.format(GAME.parse()))
    for packing in (HCP, PSFEN):
        for _ in range(3000):
            with pytest.raises(ValueError, match=packing.name.split()[0] + r"|legal position"):
                unpack(packing, rng.randbytes(32))
    for bit in range(256):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            text = unpack(HCP, bytes(flipped))
        except ValueError:
            continue
        assert unpack(HCP, pack(HCP, text)) == text  # another legal position, its hands perhaps in another order


@pytest.mark.parametrize("suffix", DATA)
@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_files_come_back_byte_for_byte(tmp_path, suffix, packing) -> None:
    data = DATA[suffix](30)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    again = tmp_path / f"b{suffix}{packing}"
    count = binary.write(again, (record for _, record in READERS[suffix].read(path)))
    unpacked = {"": lambda b: b, ".gz": gzip.decompress, ".zst": lambda b: _unzstd(b)}[packing](again.read_bytes())
    assert (count, unpacked) == (30, data)
    assert list(READERS[suffix].read(again)) == list(READERS[suffix].read(path))


def _unzstd(data: bytes) -> bytes:
    import io

    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()


@pytest.mark.parametrize("suffix", DATA)
def test_a_file_cut_at_any_byte_names_the_record(tmp_path, suffix) -> None:
    data = DATA[suffix](3, seed=1)
    ends = _ends(data, suffix)
    for size in range(len(data)):
        path = tmp_path / f"cut{suffix}"
        path.write_bytes(data[:size])
        whole = sum(end <= size for end in ends)
        if size in (0, *ends):
            assert len(list(READERS[suffix].read(path))) == whole  # nothing is missing that a reader could know of
            continue
        with pytest.raises(SourceError, match=rf"cut{suffix}.* record {whole + 1}: .*ends within the record"):
            list(READERS[suffix].read(path))
        bad: list[SourceError] = []
        found = READERS[suffix].read(path, bad.append)
        assert (len(list(found)), len(bad)) == (whole, 1)


def _ends(data: bytes, suffix: str) -> list[int]:
    """Where each record ends, by walking the bytes."""
    if suffix != ".hcpe3":
        size = {".hcpe": 38, ".psv": 40}[suffix]
        return list(range(size, len(data) + 1, size))
    ends, at = [], 0
    while at < len(data):
        (moves,) = struct.unpack_from("<H", data, at + 32)
        at += 36
        for _ in range(moves):
            (candidates,) = struct.unpack_from("<H", data, at + 4)
            at += 6 + 4 * candidates
        ends.append(at)
    return ends


@pytest.mark.parametrize("suffix", [".hcpe.gz", ".psv.zst"])
def test_a_packed_file_that_is_cut_names_the_record(tmp_path, suffix) -> None:
    path = tmp_path / f"a{suffix}"
    data = DATA[Path(suffix).stem](400)
    packed = gzip.compress(data) if suffix.endswith(".gz") else zstandard.compress(data)
    path.write_bytes(packed[: len(packed) * 2 // 3])
    with pytest.raises(SourceError, match=r"record \d+: .*cut short"):
        list(READERS[Source(path).suffix].read(path))


def test_hcpe_says_what_cshogi_put_in(tmp_path) -> None:
    path = tmp_path / "a.hcpe"
    path.write_bytes(hcpe_bytes(50))
    theirs = np.frombuffer(path.read_bytes(), cshogi.HuffmanCodedPosAndEval)
    found = list(GAME.files.open_positions(path))
    board = cshogi.Board()
    for position, record in zip(found, theirs, strict=True):
        board.set_hcp(np.ascontiguousarray(record["hcp"]))
        assert position.text.split()[:3] == board.sfen().split()[:3]
        assert position.scores == (f"cp:{record['eval']}",)
        assert position.line == (cshogi.move_to_usi(board.move_from_move16(int(record["bestMove16"]) & 0xFFFF)),)
        assert position.result == {0: 0.0, 1: 1.0, 2: -1.0}[int(record["gameResult"])]


def test_psv_results_are_of_the_side_to_move(tmp_path) -> None:
    path = tmp_path / "a.bin"  # YaneuraOu's name
    path.write_bytes(psv_bytes(50))
    theirs = np.frombuffer(path.read_bytes(), cshogi.PackedSfenValue)
    for position, record in zip(GAME.files.open_positions(path), theirs, strict=True):
        black = 1 if position.text.split()[1] == "b" else -1
        assert position.result == black * int(record["game_result"])
        assert position.scores == (f"cp:{record['score']}",)


def test_hcpe3_visits_become_a_policy(tmp_path) -> None:
    start = pack(HCP, GAME.format(GAME.parse()))
    first, second, third = (move16_of_usi(usi) for usi in ("7g7f", "2g2f", "3c3d"))
    moves = (
        binary.Hcpe3Move(first, 57, ((first, 25), (second, 75))),
        binary.Hcpe3Move(third, -3, ()),  # no training sample, but its score is there
    )
    path = tmp_path / "a.hcpe3"
    binary.write(path, [binary.Hcpe3Game(start, 1 | 16, 0, moves)])
    one, two = GAME.files.open_positions(path)
    assert (one.line, one.scores, one.played, one.policy) == (("2g2f",), ("cp:57",), "7g7f", "7g7f=0.25 2g2f=0.75")
    assert (two.line, two.scores, two.played, two.policy) == ((), ("cp:-3",), "3c3d", None)
    assert (one.game_id, one.ply, two.ply, one.result) == ("a.hcpe3:1", 0, 1, 1.0)
    (game,) = GAME.files.open_games(path)
    assert [GAME.moves[move] for move in game.moves] == ["7g7f", "3c3d"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((34, b"\x00\x00"), r"record 2: .*not a move|illegal"),
        ((34, struct.pack("<H", move16_of_usi("5e5d"))), r"record 2: .*illegal"),
        ((36, b"\x07"), r"record 2: .*0 \(draw\), 1 \(Black\) or 2 \(White\), got 7"),
        ((3, b"\xff\xff"), r"record 2: "),
    ],
)
def test_a_bad_record_is_named_or_counted(tmp_path, change, message) -> None:
    data = bytearray(hcpe_bytes(3))
    at, new = change
    data[38 + at : 38 + at + len(new)] = new
    path = tmp_path / "a.hcpe"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=message):
        list(GAME.files.open_positions(path))
    bad: list[SourceError] = []
    assert len(list(GAME.files.open_positions(path, bad.append))) == 2
    assert len(bad) == 1


def test_a_file_without_a_record_is_said(tmp_path) -> None:
    path = tmp_path / "a.hcpe"
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="holds no position"):
        list(GAME.files.open_positions(path))


@pytest.mark.parametrize("suffix", DATA)
def test_positions_written_are_positions_read(tmp_path, suffix) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    first.write_bytes(DATA[suffix](40, seed=2))
    positions = list(GAME.files.open_positions(first))
    assert labelled.write_positions(second, positions) == len(positions)
    if suffix == ".hcpe":
        assert second.read_bytes() == first.read_bytes()

    def told(position: Position) -> tuple[object, ...]:
        # Visits are written as 1/10,000; which of two equal ones is the line may differ.
        return position.text, position.played, position.result, position.scores, position.line or None

    again = list(GAME.files.open_positions(second))
    differ = sum(told(a) != told(b) for a, b in zip(positions, again, strict=True))
    assert differ <= len(positions) * (0.02 if suffix == ".hcpe3" else 0)


def test_an_import_keeps_what_the_file_says(tmp_path) -> None:
    from genpolicy.cli import main
    from genpolicy.data.records import Dataset

    path = tmp_path / "a.hcpe3"
    path.write_bytes(hcpe3_bytes(20, seed=3))
    assert main(["data", "import", str(path), "--game", "shogi", "--out", str(tmp_path / "out")]) == 0
    records = list(Dataset.open(tmp_path / "out").records())
    positions = list(GAME.files.open_positions(path))
    assert [(r.state, r.played, r.policy, r.result, r.scores) for r in records] == [
        (p.text, p.played, p.policy, p.result, p.scores) for p in positions
    ]
