"""EPD and FEN lists, DiffuSearch's records and tables of searched positions."""

from __future__ import annotations

import gzip
import json
import random
import re
import tracemalloc
from pathlib import Path

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import genpolicy
from genpolicy.errors import SourceError
from genpolicy.game import Position
from genpolicy_chess.diffusearch import parse_state_string
from genpolicy_chess.positions import split_of

GAME = genpolicy.load_game("chess")

# The two position strings that stand in the published code (src/test_infer_ddm.py) and their FENs.
PUBLISHED = {
    "rnbqkbnrpppppppp................................PPPPPPPPRNBQKBNRwKQkq-.0.1..": chess.STARTING_FEN,
    "rn.qkb.rppp.pppp.....n.....p.bB....P......N..N..PPP.PPPPR..QKB.RbKQkq-.5.4..": (
        "rn1qkb1r/ppp1pppp/5n2/3p1bB1/3P2N1/2N5/PPP1PPPP/R2QKB1R b KQkq - 5 4".replace("3P2N1/2N5", "3P4/2N2N2")
    ),
}
START76 = next(iter(PUBLISHED))
AFTER_E4 = "rnbqkbnrpppppppp....................P...........PPPP.PPPRNBQKBNRbKQkq-.0.1.."
ROOK_ENDING = "....k...................................K......R................"
MATE_IN_ONE = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 12 40"


def state_string(board: chess.Board) -> str:
    """The 76 characters of a position.

    Raises:
        ValueError: the half-move clock is above 99 or the full-move number above 999; the format has no room for them.
    """
    pieces, side, castling, en_passant, halfmove, fullmove = board.fen().split()
    if len(halfmove) > 2 or len(fullmove) > 3:
        raise ValueError(f"{board.fen()!r} has a counter too large for DiffuSearch's 76 characters")
    squares = re.sub(r"\d", lambda digit: "." * int(digit.group()), pieces.replace("/", ""))
    padded = [f"{castling:.<4}", f"{en_passant:.<2}", f"{halfmove:.<2}", f"{fullmove:.<3}"]
    return "".join([squares, side, *padded])


def read(path: Path) -> list[Position]:
    return list(GAME.files.open_positions(path))


def read_all(path: Path) -> tuple[list[Position], list[str]]:
    bad: list[SourceError] = []
    return list(GAME.files.open_positions(path, bad.append)), [str(error) for error in bad]


def write(folder: Path, text: str | bytes, name: str = "list.epd") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def records(num: int, seed: int = 0, horizon: int = 4) -> list[dict[str, str]]:
    """Records as the published files hold them, made with python-chess alone."""

    def string(board: chess.Board) -> str:
        squares = "".join(
            piece.symbol() if (piece := board.piece_at(chess.square(file, rank))) else "."
            for rank in range(7, -1, -1)
            for file in range(8)
        )
        _, side, castling, en_passant, halfmove, fullmove = board.fen().split()
        return (
            squares
            + side
            + castling.ljust(4, ".")
            + en_passant.ljust(2, ".")
            + halfmove.ljust(2, ".")
            + fullmove.ljust(3, ".")
        )

    rng = random.Random(seed)
    rows: list[dict[str, str]] = []
    while len(rows) < num:
        board = chess.Board()
        for _ in range(rng.randint(0, 60)):
            if board.is_game_over():
                break
            board.push(rng.choice(list(board.legal_moves)))
        if board.is_game_over():
            continue
        prompt, words = string(board), []
        for ply in range(horizon):
            if ply:
                words.append(string(board))
            move = rng.choice(list(board.legal_moves))
            words.append(move.uci())
            board.push(move)
            if board.is_game_over():
                break
        rows.append({"prompt": prompt, "response": " ".join(words)})
    return rows


LINES = [
    ("8/8/4k3/8/8/3K4/R7/8 w - -", "8/8/4k3/8/8/3K4/R7/8 w - - 0 1", (), ()),
    ("8/8/4k3/8/8/3K4/R7/8 w - -  ", "8/8/4k3/8/8/3K4/R7/8 w - - 0 1", (), ()),
    ("8/8/4k3/8/8/3K4/R7/8 w - - 7 40", "8/8/4k3/8/8/3K4/R7/8 w - - 7 40", (), ()),
    ("8/8/4k3/8/8/3K4/R7/8 w - - 7 40 ; a comment", "8/8/4k3/8/8/3K4/R7/8 w - - 7 40", (), ()),
    ("8/8/4k3/8/8/3K4/R7/8 w - - 7 40;a comment", "8/8/4k3/8/8/3K4/R7/8 w - - 7 40", (), ()),
    ("8/8/4k3/8/8/3K4/R7/8 w - -; comment", "8/8/4k3/8/8/3K4/R7/8 w - - 0 1", (), ()),
    ("8/8/4k3/8/8/3K4/R7/8 w - - hmvc 7; fmvn 40;", "8/8/4k3/8/8/3K4/R7/8 w - - 7 40", (), ()),
    (
        '8/8/4k3/8/8/3K4/R7/8 w - - bm Ra6+; id "a; b"; ce 512;',
        "8/8/4k3/8/8/3K4/R7/8 w - - 0 1",
        ("a2a6",),
        ("cp:512",),
    ),
    (
        "8/8/4k3/8/8/3K4/R7/8 w - - acd 9; pv Ra6+ Kd5 a6a5; ce -3",
        "8/8/4k3/8/8/3K4/R7/8 w - - 0 1",
        ("a2a6", "e6d5", "a6a5"),
        ("cp:-3",),
    ),
    (f"{MATE_IN_ONE[:-6]} bm Ra8#; dm 1;", "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", ("a1a8",), ("mate:1",)),
    (f"{MATE_IN_ONE[:-6]} ce 32766;", "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", (), ("mate:1",)),
    (f"{MATE_IN_ONE[:-6]} ce -32763;", "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", (), ("mate:-2",)),
]


@pytest.mark.parametrize(("line", "fen", "moves", "scores"), LINES, ids=[line for line, *_ in LINES])
def test_lines_of_lists(tmp_path: Path, line: str, fen: str, moves: tuple[str, ...], scores: tuple[str, ...]) -> None:
    (position,) = read(write(tmp_path, f"\n# remark\n; remark\n{line}\n\n"))
    assert (position.text, position.line, position.scores) == (fen, moves, scores)
    assert position.where == f"{tmp_path / 'list.epd'}:4"
    assert position.ended == ("Ra8#" in line)


@pytest.mark.parametrize("name", ["a.epd", "a.fen", "a.TXT", "a.epd.gz", "a.fen.zst"])
def test_lists_in_every_packing(tmp_path: Path, name: str) -> None:
    text = "".join(f"{fen}\r\n" for _, fen, *_ in LINES).encode()
    pack = {"z": gzip.compress, "t": zstandard.ZstdCompressor().compress}.get(name[-1] if name[-3:] != "TXT" else "")
    path = write(tmp_path, pack(text) if pack else text, name)
    assert GAME.files.source_kind(path) == "positions"
    assert [position.text for position in read(path)] == [fen for _, fen, *_ in LINES]


BAD_LINES = [
    ("8/8/4k3/8/8/3K4/R7 w - -", "expected 8 rows"),
    ("8/8/4k3/8/8/3K4", "expected at least 4 fields"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - 7", "neither counters nor operations"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - 7 x", "neither counters nor operations"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - bm Ra9;", "invalid san"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - bm Kd5;", "illegal san"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - bm d3d5;", "move 'd3d5' is illegal"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - bm --;", "move '--' is illegal"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - ce high;", "ce must be a whole number"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - ce 32767;", "ce must lie from -32767 to 32766"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - ce 99998;", "ce must lie from -32767 to 32766"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - ce -99998;", "ce must lie from -32767 to 32766"),
    ("8/8/4k3/8/8/3K4/R7/8 w - - hmvc many;", "half-move clock"),
    (f'8/8/4k3/8/8/3K4/R7/8 w - - bm {"a" * 5000}"', "neither counters nor operations"),  # an unclosed quote
    (f'8/8/4k3/8/8/3K4/R7/8 w - - id {" " * 5000}"', "neither counters nor operations"),
    (f'8/8/4k3/8/8/3K4/R7/8 w - - {"c0 a;" * 5000} c1 "', "neither counters nor operations"),
    ("8/8/8/8/8/3K4/R7/8 w - -", "Black has no king"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=[line[:60] for line, _ in BAD_LINES])
def test_bad_lines_are_named_and_skipped(tmp_path: Path, line: str, reason: str) -> None:
    good = LINES[0][0]
    path = write(tmp_path, f"{good}\n{line}\n{good}\n")
    positions, bad = read_all(path)
    assert [position.where[-2:] for position in positions] == [":1", ":3"]
    (message,) = bad
    assert message.startswith(f"{path}:2: ")
    assert reason in message
    with pytest.raises(SourceError, match=r"list\.epd:2"):
        read(path)


def test_published_position_strings() -> None:
    for text, fen in PUBLISHED.items():
        assert parse_state_string(text).fen() == fen
        assert state_string(chess.Board(fen)) == text


def test_position_strings_round_trip_through_random_games() -> None:
    rng = random.Random(7)
    for _ in range(2):
        board = chess.Board()
        while not board.is_game_over() and board.halfmove_clock < 100:
            assert parse_state_string(state_string(board)).fen() == board.fen()
            board.push(rng.choice(list(board.legal_moves)))


@pytest.mark.parametrize(
    ("text", "fen"),
    [
        (START76.replace("-.", ".."), chess.STARTING_FEN),
        # searchless_chess: the side first, three characters of half-move clock, "none" as dots
        ("w" + START76[:64] + "KQkq..0..1..", chess.STARTING_FEN),
        ("b" + AFTER_E4[:64] + "KQkqe30..1..", "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"),
        # DiffuSearch's with a counter that has outgrown its field
        (ROOK_ENDING + "w-...-.10090.", "4k3/8/8/8/8/K6R/8/8 w - - 100 90"),
        (ROOK_ENDING + "w-...-.5.1000", "4k3/8/8/8/8/K6R/8/8 w - - 5 1000"),
    ],
)  # fmt: skip
def test_other_spellings_of_position_strings(text: str, fen: str) -> None:
    assert parse_state_string(text).fen() == fen


def test_a_string_with_two_readings_is_refused() -> None:
    # A black bishop on a8 and h1's bishop or the side: "b" at both ends of 65 characters, both readings legal.
    squares = "b" + "." * 7 + "...k" + "." * 4 + "." * 24 + "....K..." + "." * 16
    assert len(squares) == 64
    text = f"{squares}b-...-.150999"
    assert len(text) == 77
    with pytest.raises(ValueError, match="more than one reading"):
        parse_state_string(text)


@pytest.mark.parametrize(
    "text",
    [
        "", START76[:-1], START76 + "..", START76.replace("w", "x"), START76.replace("K", "."), "x" * 76, 7, None,
        START76.replace("0.", ".0"), START76.replace("1..", "01."), START76.replace("P", "1"),
    ],
)  # fmt: skip
def test_position_strings_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_state_string(text)


@pytest.mark.parametrize(
    ("name", "number"),
    [("train.jsonl", 60), ("chess_test.jsonl.gz", 10), ("test-00000-of-00001-d1e1.parquet", 10), ("x.jsonl.zst", 10)],
)
def test_published_records_round_trip(tmp_path: Path, name: str, number: int) -> None:
    rows = records(number)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    else:
        pack = {"gz": gzip.compress, "st": zstandard.ZstdCompressor().compress}.get(name[-2:], bytes)
        write(tmp_path, pack(text), name)
    positions = read(tmp_path / name)
    for row, position in zip(rows, positions, strict=True):
        assert state_string(chess.Board(position.text)) == row["prompt"]
        board, words = chess.Board(position.text), []
        for ply, move in enumerate(position.line):
            if ply:
                words.append(state_string(board))
            words.append(move)
            board.push_uci(move)
        assert " ".join(words) == row["response"]
        assert position.ended == (board.is_checkmate() or board.is_stalemate())
    assert {p.split for p in positions} == {"train" if "train" in name else "test" if "test" in name else None}


def test_a_record_may_end_with_mate_or_hold_moves_alone(tmp_path: Path) -> None:
    board = chess.Board(MATE_IN_ONE)
    rows = [
        {"prompt": state_string(board), "response": "a1a8"},
        {"prompt": START76, "response": "e2e4 e7e5 g1f3"},
        {"prompt": START76, "response": f"e2e4 {AFTER_E4}"},
    ]
    positions = read(write(tmp_path, "\n".join(map(json.dumps, rows)), "r.jsonl"))
    assert [(p.line, p.ended) for p in positions] == [
        (("a1a8",), True),
        (("e2e4", "e7e5", "g1f3"), False),
        (("e2e4",), False),
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"prompt": "abc", "response": "e2e4"}', "'abc' is not a position string"),
        (json.dumps({"prompt": START76, "response": "e2e5"}), "move 'e2e5' is illegal"),
        (json.dumps({"prompt": START76, "response": f"d2d4 {AFTER_E4} e7e5"}), "leads to"),
        (json.dumps({"prompt": START76, "response": ""}), "holds no move"),
        (json.dumps({"prompt": START76, "response": None}), "response must be text"),
        (json.dumps({"prompt": START76}), "response must be text"),
        (json.dumps({"prompt": START76, "response": "WIN[3]"}), "'WIN[3]' is not a position string"),
        (json.dumps({"state": START76}), "expected columns prompt, response"),
        ("[1, 2]", "expected an object"),
        ('{"prompt": "', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_bad_records_are_named_and_skipped(tmp_path: Path, record: str, reason: str) -> None:
    good = json.dumps({"prompt": START76, "response": "e2e4"})
    path = write(tmp_path, f"{good}\n{record}\n{good}\n", "r.jsonl")
    positions, bad = read_all(path)
    assert len(positions) == 2
    assert len(bad) == 1
    assert bad[0].startswith(f"{path}:2: ")
    assert reason in bad[0]


TABLE = [
    {"game": 7, "ply": 0, "fen": chess.STARTING_FEN, "line": "e2e4 e7e5", "cp": 31, "mate": None},
    {"game": 7, "ply": 1, "fen": MATE_IN_ONE, "line": "a1a8", "cp": None, "mate": 1},
    {"game": 8, "ply": 0, "fen": "6k1/5ppp/8/8/8/8/8/R5K1 b - - 0 1", "line": "", "cp": None, "mate": -1},
    {"game": None, "ply": None, "fen": "7k/5KQ1/8/8/8/8/8/8 b - - 0 1", "line": None, "cp": None, "mate": 0},
]


def test_tables_of_searched_positions(tmp_path: Path) -> None:
    path = tmp_path / "part-00.parquet"
    pq.write_table(pa.Table.from_pylist(TABLE), path)
    positions = read(path)
    assert [p.text for p in positions] == [row["fen"] for row in TABLE]
    assert [p.line for p in positions] == [("e2e4", "e7e5"), ("a1a8",), (), ()]
    assert [p.scores for p in positions] == [("cp:31",), ("mate:1",), ("mate:-1",), ("mate:0",)]
    assert [p.ended for p in positions] == [False, True, False, True]
    assert [(p.game_id, p.ply) for p in positions] == [("7", 0), ("7", 1), ("8", 0), (None, None)]
    assert positions[1].where == f"{path}: row 2"


def test_missing_columns_stay_unknown(tmp_path: Path) -> None:
    pq.write_table(pa.table({"fen": [chess.STARTING_FEN], "other": [1.5]}), tmp_path / "a.parquet")
    (position,) = read(tmp_path / "a.parquet")
    assert (position.line, position.scores, position.game_id, position.ply) == ((), (), None, None)


def test_numbers_with_gaps_may_be_floats(tmp_path: Path) -> None:
    table = pa.table({"fen": [chess.STARTING_FEN] * 2, "cp": [12.0, float("nan")], "mate": [None, 3.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert [p.scores for p in read(tmp_path / "a.parquet")] == [("cp:12",), ("mate:3",)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"fen": None}, "a FEN is text"),
        ({"fen": "nonsense"}, "'nonsense' is not a FEN"),
        ({"line": "e2e5"}, "move 'e2e5' is illegal"),
        ({"line": "e2e4 e2e4"}, "move 'e2e4' is illegal"),
        ({"line": "e1h1"}, "move 'e1h1' is illegal"),
        ({"ply": -1}, "ply must be a number from 0 to 999999, got -1"),
        ({"ply": 1 << 31}, "ply must be a number from 0 to 999999, got 2147483648"),
    ],
)
def test_bad_rows_are_named_and_skipped(tmp_path: Path, row: dict[str, object], reason: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([TABLE[0], {**TABLE[0], **row}, TABLE[0]]), path)
    positions, bad = read_all(path)
    assert len(positions) == 2
    assert bad[0].startswith(f"{path}: row 2: ")
    assert reason in bad[0]
    with pytest.raises(SourceError, match=re.escape(reason)):
        read(path)


def test_castling_onto_the_rook_is_not_read_as_castling(tmp_path: Path) -> None:
    row = {"fen": "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "line": "e1h1"}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="'e1h1' is illegal"):
        read(tmp_path / "a.parquet")


def test_folders_and_globs_are_read_in_name_order(tmp_path: Path) -> None:
    for i in (10, 2, 0):
        pq.write_table(pa.table({"fen": [chess.STARTING_FEN], "game": [i]}), tmp_path / f"part-{i:02}.parquet")
    write(tmp_path, "about", "README.md")
    assert GAME.files.source_kind(tmp_path) == "positions"
    assert [p.game_id for p in read(tmp_path)] == ["0", "2", "10"]
    assert [p.game_id for p in read(tmp_path / "part-0*.parquet")] == ["0", "2"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.Table.from_pylist(TABLE * 500), whole)
    content = whole.read_bytes()
    for name, damaged in {
        "cut.parquet": content[:-100],
        "empty.parquet": b"",
        "text.parquet": b"8/8/8/8",
        "cut.epd.gz": gzip.compress(b"8/8/4k3/8/8/3K4/R7/8 w - -\n" * 500)[:-12],
        "cut.jsonl.zst": zstandard.ZstdCompressor().compress(START76.encode() * 9)[:-5],
    }.items():
        path = write(tmp_path, damaged, name)
        with pytest.raises(SourceError, match=rf"{re.escape(name)}.*(damaged|cut short)"):
            read(path)
        assert [re.search(rf"{re.escape(name)}.*(damaged|cut short)", bad) is None for bad in read_all(path)[1]] == [
            False
        ]
    for name in ("none.epd", "none.jsonl"):
        with pytest.raises(SourceError, match="holds no position"):
            read_all(write(tmp_path, "\n\n", name))
    pq.write_table(pa.table({"fen": pa.array([], pa.string())}), whole)
    with pytest.raises(SourceError, match="holds no position"):
        read_all(whole)
    pq.write_table(pa.table({"state": ["x"]}), whole)
    with pytest.raises(SourceError, match=r"expected columns prompt, response .* got state"):
        read_all(whole)
    for name in ("a.csv", "a.parquet.gz", "noname"):
        with pytest.raises(SourceError, match=r"not a kind of file that chess reads; games: \.pgn"):
            read_all(write(tmp_path, "x", name))
    with pytest.raises(SourceError, match="holds no file that chess reads"):
        GAME.files.source_kind(tmp_path.joinpath("nothing").mkdir() or tmp_path / "nothing")
    with pytest.raises(SourceError, match="positions, not games"):
        list(GAME.files.open_games(whole))


def test_a_flipped_byte_in_a_table_is_never_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(TABLE * 20), path, write_page_checksum=True)
    content, rng, messages = path.read_bytes(), random.Random(8), []
    for _ in range(30):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            for position in read(path):
                GAME.parse(position.text)
        except SourceError as error:
            messages.append(str(error))
    assert messages
    assert all(path.name in message for message in messages)


@pytest.mark.thorough
def test_memory_does_not_grow_with_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    names = [random.Random(i).randbytes(2000).hex() for i in range(4000)]
    pq.write_table(pa.table({"fen": ["8/8/4k3/8/8/3K4/R7/8 w - - 0 1"] * 4000, "game": names}), path)
    del names
    tracemalloc.start()
    assert sum(1 for _ in GAME.files.open_positions(path)) == 4000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000  # 1,024 rows of 4 kB at a time; all of them would be 16 MB


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/train-00000-of-00001.parquet", "train"),
        ("data/chess_test.jsonl", "test"),
        ("default/test/0000.parquet", "test"),
        ("testing/part-00.parquet", None),
        ("strained/latest.epd", None),
        ("a/train_test.epd", None),
    ],
)
def test_split_is_what_the_name_says(path: str, split: str | None) -> None:
    assert split_of(Path(path)) == split
