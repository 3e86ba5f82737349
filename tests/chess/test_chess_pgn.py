"""PGN: what real files hold is read as python-chess reads it, and nothing unreadable passes in silence."""

from __future__ import annotations

import gzip
import io
import random
import re
import tracemalloc
from pathlib import Path

import chess
import chess.pgn
import pytest
import zstandard

import genpolicy
from genpolicy.errors import SourceError
from genpolicy.game import PlayedGame

GAME = genpolicy.load_game("chess")

MORPHY = """[Event "Paris"]
[Site "Paris FRA"]
[Date "1858.??.??"]
[Round "?"]
[White "Morphy, Paul"]
[Black "Duke Karl / Count Isouard"]
[Result "1-0"]

1.e4 e5 2.Nf3 d6 3.d4 Bg4 4.dxe5 Bxf3 5.Qxf3 dxe5 6.Bc4 Nf6 7.Qb3 Qe7
8.Nc3 c6 9.Bg5 b5 10.Nxb5 cxb5 11.Bxb5+ Nbd7 12.O-O-O Rd8 13.Rxd7 Rxd7
14.Rd1 Qe6 15.Bxd7+ Nxd7 16.Qb8+ Nxb8 17.Rd8# 1-0
"""


def write(folder: Path, content: str | bytes, name: str = "games.pgn") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder: Path, content: str | bytes, name: str = "games.pgn") -> list[PlayedGame]:
    return list(GAME.files.open_games(write(folder, content, name)))


def read_all(folder: Path, content: str | bytes, name: str = "games.pgn") -> tuple[list[PlayedGame], list[str]]:
    bad: list[SourceError] = []
    games = list(GAME.files.open_games(write(folder, content, name), bad.append))
    return games, [str(error) for error in bad]


def uci(game: PlayedGame) -> list[str]:
    return [GAME.moves[i] for i in game.moves]


def random_pgn(num_games: int, seed: int = 0, plies: int = 60) -> str:
    """Games written by python-chess, with comments, variations and NAGs."""
    rng = random.Random(seed)
    out = io.StringIO()
    for number in range(num_games):
        game = chess.pgn.Game()
        game.headers["White"], game.headers["Round"] = "Zoë", str(number)
        if number % 5 == 4:
            game.setup(chess.Board("r3k2r/pP3ppp/8/3pP3/8/8/P1p2PPP/R3K2R w KQkq d6 7 31"))
        node: chess.pgn.GameNode = game
        for _ in range(rng.randint(1, plies)):
            legal = list(node.board().legal_moves)
            if not legal:
                break
            if len(legal) > 1 and rng.random() < 0.1:
                node.add_variation(legal[0], comment="or this (perhaps) [%eval 0.1]")
                node = node.add_main_variation(legal[-1], comment='said; [Event "no"] 1-0')
                node.nags.add(rng.randint(1, 20))
            else:
                node = node.add_main_variation(rng.choice(legal))
        game.headers["Result"] = rng.choice(["1-0", "0-1", "1/2-1/2", "*"])
        print(game, file=out, end="\n\n")
    return out.getvalue()


def test_a_game_as_published(tmp_path: Path) -> None:
    (game,) = read(tmp_path, MORPHY)
    assert game.game_id == "games.pgn:1"
    assert game.start == chess.STARTING_FEN
    assert game.result == 1.0
    assert game.headers["White"] == "Morphy, Paul"
    assert len(game.moves) == 33
    assert uci(game)[-1] == "d1d8"
    state = GAME.parse(game.start)
    for move in game.moves:
        state = GAME.play(state, move)
    assert GAME.outcome(state) == -1.0


@pytest.mark.parametrize(("packing", "num_games"), [("", 50), (".gz", 5), (".zst", 5)])
def test_moves_are_those_that_python_chess_reads(tmp_path: Path, packing: str, num_games: int) -> None:
    text = random_pgn(num_games)
    pack = {"": lambda b: b, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[packing]
    games = read(tmp_path, pack(text.encode()), f"some.pgn{packing}")
    stream = io.StringIO(text)
    results = {"1-0": 1.0, "0-1": -1.0, "1/2-1/2": 0.0, "*": None}
    for number, game in enumerate(games, 1):
        expected = chess.pgn.read_game(stream)
        assert expected is not None
        assert uci(game) == [move.uci() for move in expected.mainline_moves()]
        assert game.start == expected.board().fen()
        assert game.result == results[expected.headers["Result"]]
        assert game.headers["White"] == "Zoë"
        assert game.game_id == f"some.pgn{packing}:{number}"
    assert chess.pgn.read_game(stream) is None
    assert len(games) == num_games


@pytest.mark.parametrize(
    ("movetext", "moves"),
    [
        ("1. e4 e5 *", "e2e4 e7e5"),
        ("1.e4 e5 2.Nf3 *", "e2e4 e7e5 g1f3"),
        ("1 e4 1... e5 2. Nf3! Nc6?! 3. Bb5!? $1 a6 $146 *", "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6"),
        ("1. e4 {the best; by test} e5 ; rest (of the line\n2. Nf3 *", "e2e4 e7e5 g1f3"),
        ("1. e4 {over\n\n[%clk 1:00]\nlines} e5 *", "e2e4 e7e5"),
        ("1. e4 (1. d4 d5 (1... Nf6 2. c4 {x) y} -- 1-0) 2. zzz) 1... e5 *", "e2e4 e7e5"),
        ("1. e4\n% an escaped line with Nonsense\ne5 *", "e2e4 e7e5"),
        ("1. e4 e5\n\n\n2. Nf3 Nc6 *", "e2e4 e7e5 g1f3 b8c6"),
        ("1. e2e4 e7e5 2. Ng1f3 *", "e2e4 e7e5 g1f3"),
        ("1. e4 d5 2. e5 f5 3. exf6e.p. gxf6 *", "e2e4 d7d5 e4e5 f7f5 e5f6 g7f6"),
        ("1. e4 d5 2. e5 f5 3. exf6 e.p.+ N *", "e2e4 d7d5 e4e5 f7f5 e5f6"),
        ("1. Nf3 Nf6 2. g3 g6 3. Bg2 Bg7 4. 0-0 O-O *", "g1f3 g8f6 g2g3 g7g6 f1g2 f8g7 e1g1 e8g8"),
        ("1. e4 += e5 +/- 2. Nf3 □ *", "e2e4 e7e5 g1f3"),
        ("1. f3 e5 2. g4 Qh4++ 0-1", "f2f3 e7e5 g2g4 d8h4"),
        ("*", ""),
    ],
)
def test_movetext_in_its_many_forms(tmp_path: Path, movetext: str, moves: str) -> None:
    (game,) = read(tmp_path, f'[Event "x"]\n\n{movetext}\n')
    assert " ".join(uci(game)) == moves


def test_bytes_of_many_kinds(tmp_path: Path) -> None:
    text = '[Event "x"]\n[White "Müller"]\n\n1. e4 {für} e5 *\n\n' * 2
    for content in (
        text.encode(),
        b"\xef\xbb\xbf" + text.encode(),
        text.encode().replace(b"\n", b"\r\n"),
        text.encode().replace(b"\n", b"\r"),
        text.encode("latin-1"),
        b"\xef\xbb\xbf" + text.encode() + b"\xef\xbb\xbf" + text.encode(),
    ):
        games = read(tmp_path, content)
        assert [uci(game) for game in games] == [["e2e4", "e7e5"]] * len(games)
        assert {game.headers["White"] for game in games} == {"Müller"}
        assert len(games) in (2, 4)


def test_setup_positions_start_where_they_say(tmp_path: Path) -> None:
    fen = "4k3/P7/8/8/8/8/8/4K3 w - - 0 40"
    (game,) = read(tmp_path, f'[Event "x"]\n[SetUp "1"]\n[FEN "{fen}"]\n[Variant "From Position"]\n\n40. a8=Q+ *\n')
    assert (game.start, uci(game)) == (fen, ["a7a8q"])


def test_headers_with_quotes_and_several_to_a_line(tmp_path: Path) -> None:
    (game,) = read(tmp_path, '[Event "a \\"b\\" \\\\ c"][Site "s"]\n[White "x "y" z"]\n\n*\n')
    assert (game.headers["Event"], game.headers["Site"], game.headers["White"]) == ('a "b" \\ c', "s", 'x "y" z')


def test_games_of_headers_alone_and_without_headers(tmp_path: Path) -> None:
    content = '[Event "a"]\n[Result "1-0"]\n\n[Event "b"]\n\n1. d4 *\n1. e4 1-0\n\n[Event "c"]\n[Result "0-1"]\n\n0-1\n'
    games = read(tmp_path, content)
    assert [(g.headers.get("Event"), uci(g), g.result) for g in games] == [
        ("a", [], 1.0),
        ("b", ["d2d4"], None),
        (None, ["e2e4"], 1.0),
        ("c", [], -1.0),
    ]


def test_games_of_headers_alone_need_no_blank_line_between(tmp_path: Path) -> None:
    games = read(tmp_path, '[Event "a"]\n[Site "x"]\n[Event "b"]\n[Event "c"]\n\n1. e4 *\n')
    assert [(g.headers["Event"], len(g.moves)) for g in games] == [("a", 0), ("b", 0), ("c", 1)]


def test_a_blank_line_among_the_headers_splits_nothing(tmp_path: Path) -> None:
    (game,) = read(tmp_path, '[Event "a"]\n\n[Site "b"]\n\n1. e4 *\n')
    assert (game.headers, len(game.moves)) == ({"Event": "a", "Site": "b"}, 1)


def test_result_comes_from_tag_or_moves(tmp_path: Path) -> None:
    content = '[Event "a"]\n[Result "*"]\n\n1. e4 1-0\n\n[Event "b"]\n[Result "0-1"]\n\n1. e4 *\n\n'
    content += '[Event "c"]\n[Result "1/2-1/2"]\n\n1. e4 e5\n\n[Event "d"]\n\n1. e4 1/2-1/2\n'
    assert [game.result for game in read(tmp_path, content)] == [1.0, -1.0, 0.0, 0.0]


GOOD = '[Event "good"]\n\n1. e4 e5 *\n\n'

BAD_GAMES = [
    ("1. e4 e5 2. Ke3 *", 7, r"move 2\. 'Ke3' is illegal in"),
    ("1. d4 d5 2. Nf3 e6\n3. a3 a6 4. Nd2 *", 8, "move 4. 'Nd2' is ambiguous"),
    ("1. e4 e5 2. Nxz3 *", 7, "'Nxz3' is not a move"),
    ("1. e4 e5 2. Nf *", 7, "'Nf' is not a move"),
    ("1. e4 garbage e5 *", 7, "'garbage' is not a move"),
    ("1. e4xyz *", 7, "'e4xyz' is not a move"),
    ("1. e4 -- 2. d4 *", 7, "null move"),
    ("1. e4 Z0 2. d4 *", 7, "null move"),
    ("1. e4 0000 2. d4 *", 7, "null move"),
    ("1. e4 e5) *", 7, "closes no variation"),
    ("1. e4 (1. d4 e5\n\n", 11, "still open"),
    ("1. e4 { never closed\n\n", 7, "never closed"),
    ("1. f3 e5 2. g4 Qh4# 3. a3 0-1", 7, "'a3' is illegal"),
    ("1. e4 e5 N@f3 *", 7, "'N@f3' is not a move"),
    ("1. a4 b5 2. axb5 a6 3. bxa6 h6 4. a7 h5 5. a8=K *", 7, "'a8=K'"),
]


@pytest.mark.parametrize(("movetext", "line", "reason"), BAD_GAMES, ids=[b[0] for b in BAD_GAMES])
def test_a_bad_game_is_named_and_skipped(tmp_path: Path, movetext: str, line: int, reason: str) -> None:
    content = f'{GOOD}[Event "bad"]\n\n{movetext}\n\n{GOOD}'
    games, bad = read_all(tmp_path, content)
    assert [game.headers["Event"] for game in games] == ["good", "good"]
    assert [game.game_id for game in games] == ["games.pgn:1", "games.pgn:3"]
    (message,) = bad
    assert re.search(rf"games\.pgn:{line}: game 2 .*from line 5.*{reason}", message), message
    with pytest.raises(SourceError, match=reason):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ('[Variant "Atomic"]', "variant 'Atomic' is not standard chess"),
        ('[Variant "Chess960"]\n[FEN "bqnbrkrn/pppppppp/8/8/8/8/PPPPPPPP/BQNBRKRN w KQkq - 0 1"]', "Chess960"),
        ('[FEN "bqnbrkrn/pppppppp/8/8/8/8/PPPPPPPP/BQNBRKRN w KQkq - 0 1"]', "castling right"),
        ('[FEN "nonsense"]', "'nonsense' is not a FEN"),
        ('[Result "0-1"]', "the tag says '0-1' and the moves end with '1-0'"),
        ("[White Morphy]", "is not a tag"),
        ('[White "Morphy', "is not a tag"),
    ],
)
def test_bad_headers_are_named_and_skipped(tmp_path: Path, headers: str, reason: str) -> None:
    games, bad = read_all(tmp_path, f'{GOOD}[Event "bad"]\n{headers}\n\n1. e4 1-0\n\n{GOOD}')
    assert [game.headers["Event"] for game in games] == ["good", "good"]
    assert len(bad) == 1
    assert "game 2" in bad[0]
    assert reason in bad[0]


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.62, 0.65, 0.9, 0.97])
def test_a_file_cut_within_a_game_is_refused(tmp_path: Path, cut: float) -> None:
    content = MORPHY + "\n" + MORPHY
    games, bad = read_all(tmp_path, content[: len(MORPHY) + 1 + int(cut * len(MORPHY.rstrip()))])
    assert len(games) == 1
    assert len(bad) == 1
    assert "game 2" in bad[0]


@pytest.mark.parametrize("content", ["", "\n\n  \n", "% nothing\n; here\n", "\ufeff"])
def test_a_file_without_games_is_an_error(tmp_path: Path, content: str) -> None:
    with pytest.raises(SourceError, match=r"games\.pgn: holds no game"):
        read_all(tmp_path, content)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    text = random_pgn(30).encode()
    packed = zstandard.ZstdCompressor().compress(text)
    for name, content in {
        "cut.pgn.gz": gzip.compress(text)[:-40],
        "cut.pgn.zst": packed[:-40],
        "half.pgn.zst": packed[: len(packed) // 2],
        "not.pgn.gz": text,
        "not.pgn.zst": text,
        "flipped.pgn.gz": gzip.compress(text)[:-6] + b"\0\1\2\3\4\5",
    }.items():
        with pytest.raises(SourceError, match=rf"{re.escape(name)}:\d+: cannot be read .*damaged or cut short"):
            read(tmp_path, content, name)
    with pytest.raises(SourceError, match="no such file"):
        list(GAME.files.open_games(tmp_path / "absent.pgn"))
    with pytest.raises(SourceError, match="not a text file"):
        read(tmp_path, MORPHY.encode("utf-16"))
    with pytest.raises(SourceError, match="not a text file"):
        read(tmp_path, gzip.compress(text), "packed.pgn")
    with pytest.raises(SourceError, match=r"not a kind of file that chess reads; games: \.pgn"):
        read(tmp_path, text, "games.doc")


def test_zstandard_frames_follow_one_another(tmp_path: Path) -> None:
    pack = zstandard.ZstdCompressor().compress
    assert len(read(tmp_path, pack(MORPHY.encode()) + pack(MORPHY.encode()), "two.pgn.zst")) == 2


@pytest.mark.parametrize("number", [80, pytest.param(300, marks=pytest.mark.thorough)])
def test_damaged_text_raises_only_source_errors(tmp_path: Path, number: int) -> None:
    rng = random.Random(5)
    text = random_pgn(4, seed=9)
    for _ in range(number):
        damaged = bytearray(text.encode())
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.choice(b'()[]{};"\\ \n1abNxO-+=#*\xe9')
        try:
            games, _ = read_all(tmp_path, bytes(damaged))
        except SourceError:
            continue
        for game in games:
            state = GAME.parse(game.start)
            for move in game.moves:
                state = GAME.play(state, move)


@pytest.mark.parametrize(("name", "number"), [("out.pgn", 25), ("out.pgn.gz", 5), ("out.pgn.zst", 5)])
def test_written_games_are_read_back_by_us_and_by_python_chess(tmp_path: Path, name: str, number: int) -> None:
    games = read(tmp_path, random_pgn(number, seed=4))
    GAME.files.write_games(tmp_path / name, iter(games))
    again = list(GAME.files.open_games(tmp_path / name))
    assert [(g.start, g.moves, g.result) for g in again] == [(g.start, g.moves, g.result) for g in games]
    assert [g.headers["Round"] for g in again] == [str(i) for i in range(number)]
    if name == "out.pgn":
        stream = (tmp_path / name).open(encoding="utf-8")
        for game in games:
            theirs = chess.pgn.read_game(stream)
            assert theirs is not None
            assert not theirs.errors
            assert [move.uci() for move in theirs.mainline_moves()] == uci(game)
        assert max(map(len, (tmp_path / name).read_text().splitlines())) <= 100
        stream.close()


def test_kind_and_folders(tmp_path: Path) -> None:
    write(tmp_path, MORPHY, "b.pgn")
    write(tmp_path, MORPHY, "a.PGN")
    assert GAME.files.source_kind(tmp_path) == GAME.files.source_kind(tmp_path / "b.pgn") == "games"
    assert [game.game_id for game in GAME.files.open_games(tmp_path)] == ["a.PGN:1", "b.pgn:1"]
    assert len(list(GAME.files.open_games(tmp_path / "*.pgn"))) == 1
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", MORPHY, "b.pgn")
    assert len({game.game_id for game in GAME.files.open_games(tmp_path / "**" / "b.pgn")}) == 2
    with pytest.raises(SourceError, match="games, not positions"):
        list(GAME.files.open_positions(tmp_path))
    write(tmp_path, "", "c.epd")
    with pytest.raises(SourceError, match="name those of one kind"):
        GAME.files.source_kind(tmp_path)


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """1,000 games in 4 MB of text, most of it noise that does not pack."""
    rng = random.Random(6)
    block = random_pgn(10, seed=11, plies=4)
    path = tmp_path / "large.pgn.zst"
    unpacked = 0
    with zstandard.open(path, "wt") as out:
        for _ in range(100):
            noise = "\n".join(rng.randbytes(40).hex() for _ in range(470))
            unpacked += out.write(f"{{{noise}}}\n{block}")
    tracemalloc.start()
    count = sum(1 for _ in GAME.files.open_games(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 1000
    assert unpacked > 3_700_000
    assert peak < 1_000_000
