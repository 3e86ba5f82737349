"""KIF and KI2: what collections hold, in both encodings, and what newspapers leave out."""

from __future__ import annotations

import random
from pathlib import Path

import cshogi
import cshogi.KI2
import cshogi.KIF
import pytest

import genpolicy
from genpolicy.errors import SourceError
from genpolicy.game import PlayedGame
from genpolicy_shogi.files import Source
from genpolicy_shogi.japanese import ki2_usi, kif_move, kif_usi
from genpolicy_shogi.replay import Replay

GAME = genpolicy.load_game("shogi")
KIF = """# ---- Kifu for Windows95 V3.53 棋譜ファイル ----
開始日時：2019/03/01 9:00
棋戦：竜王戦
手合割：平手
先手：藤井
後手：渡辺
手数----指手---------消費時間--
   1 ７六歩(77)   ( 0:16/00:00:16)
*コメント
   2 ３四歩(33)   ( 0:00/00:00:00)+
   3 ２二角成(88) ( 0:03/00:00:19)
   4 同　銀(31)   ( 0:01/00:00:01)
   5 ４五角打     ( 0:05/00:00:24)
   6 投了         ( 0:10/00:00:11)
まで5手で先手の勝ち

変化：3手
   3 ２六歩(27)
   4 ８四歩(83)
"""
KI2 = """手合割：平手
先手：A
後手：B

▲７六歩    △３四歩    ▲２二角成  △同　銀    ▲４五角
△６二銀    ▲３四角
まで7手で先手の勝ち
"""


def read(folder: Path, content: str | bytes, name: str = "games.kif") -> list[PlayedGame]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(GAME.files.open_games(path))


def usi(game: PlayedGame) -> list[str]:
    return [GAME.moves[i] for i in game.moves]


@pytest.mark.parametrize("encoding", ["cp932", "utf-8", "utf-8-sig"])
def test_a_game_of_a_collection(tmp_path, encoding) -> None:
    (game,) = read(tmp_path, KIF.encode(encoding))
    assert usi(game) == ["7g7f", "3c3d", "8h2b+", "3a2b", "B*4e"]
    assert game.result == 1.0
    assert game.headers["Black"] == "藤井"
    assert game.headers["Event"] == "竜王戦"


@pytest.mark.parametrize("encoding", ["cp932", "utf-8"])
def test_a_game_of_a_newspaper(tmp_path, encoding) -> None:
    (game,) = read(tmp_path, KI2.encode(encoding), "games.ki2")
    assert usi(game) == ["7g7f", "3c3d", "8h2b+", "3a2b", "B*4e", "7a6b", "4e3d"]
    assert game.result == 1.0


def test_several_games_in_a_file(tmp_path) -> None:
    games = read(tmp_path, KIF + "\n" + KIF.replace("藤井", "羽生"))
    assert [game.headers["Black"] for game in games] == ["藤井", "羽生"]
    assert usi(games[0]) == usi(games[1])


@pytest.mark.parametrize(
    ("end", "result"),
    [
        ("   2 投了", 1.0),
        ("   2 切れ負け", 1.0),
        ("   2 反則勝ち", -1.0),  # the move before was illegal: White, to move, wins
        ("   2 反則負け", 1.0),
        ("   2 入玉勝ち", -1.0),
        ("   2 千日手", 0.0),
        ("   2 持将棋", 0.0),
        ("   2 中断", None),
        ("", None),
        ("まで1手で後手の勝ち", -1.0),
        ("まで1手で後手の反則負け", 1.0),
        ("まで、1手で千日手", 0.0),
        ("まで1手で時間切れにより先手の勝ち", 1.0),
        ("まで1手で上手の勝ち", -1.0),
        ("まで1手で後手の投了により先手の勝ち", 1.0),
        ("まで1手で後手の反則により先手の勝ち", 1.0),
        ("まで1手で後手の時間切れにより先手の勝ち", 1.0),
        ("まで1手で後手の時間切れで先手の勝ち", 1.0),
        ("まで1手で後手投了により先手の勝ち", 1.0),
        ("まで1手で後手の二歩により先手の反則勝ち", 1.0),
        ("まで1手で下手の投了により上手の勝ち", -1.0),
        ("まで1手で先手の入玉宣言勝ち", 1.0),
        ("まで1手で中断", None),
        ("   2 投了\nまで1手で後手の投了により先手の勝ち", 1.0),
        ("   2 反則負け\nまで1手で先手の反則負け", -1.0),
        ("   2 反則勝ち\nまで1手で後手の反則勝ち", -1.0),
        ("   2 千日手\nまで1手で先手の反則負け", -1.0),
    ],
)
def test_ends_of_games(tmp_path, end, result) -> None:
    (game,) = read(tmp_path, f"先手：a\n後手：b\n   1 ７六歩(77)\n{end}\n")
    assert usi(game) == ["7g7f"]
    assert game.result == result


MATE = """後手の持駒：{hand}
|v玉 ・ ・ ・ ・ ・ ・ ・ ・|
| ・ ・ 金 ・ ・ ・ ・ ・ ・|
{empty}{empty}{empty}{empty}{empty}{empty}| 玉 ・ ・ ・ ・ ・ ・ ・ ・|
先手の持駒：飛　金
   1 {move}
   2 詰み
"""


@pytest.mark.parametrize(
    ("hand", "move"),
    [
        ("なし", "８二金打"),
        ("歩", "９三飛打"),  # a pawn on 9二 is taken: a futile interposition, which collections do not play
    ],
)
def test_a_mate(tmp_path, hand, move) -> None:
    text = MATE.format(hand=hand, move=move, empty="| ・ ・ ・ ・ ・ ・ ・ ・ ・|\n")
    (game,) = read(tmp_path, text)
    assert game.result == 1.0
    GAME.files.write_game(tmp_path / "again.kif", game)
    assert "詰み" in (tmp_path / "again.kif").read_text("cp932")


# Which pieces White gives; a left one stands on the right of the diagram.
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("香落ち", ["1a"]),
        ("右香落ち", ["9a"]),
        ("角落ち", ["2b"]),
        ("飛車落ち", ["8b"]),
        ("飛香落ち", ["8b", "1a"]),
        ("二枚落ち", ["8b", "2b"]),
        ("四枚落ち", ["8b", "2b", "1a", "9a"]),
        ("六枚落ち", ["8b", "2b", "1a", "9a", "2a", "8a"]),
        ("八枚落ち", ["8b", "2b", "1a", "9a", "2a", "8a", "3a", "7a"]),
        ("十枚落ち", ["8b", "2b", "1a", "9a", "2a", "8a", "3a", "7a", "4a", "6a"]),
    ],
)
def test_handicaps(tmp_path, name, missing) -> None:
    (game,) = read(tmp_path, f"手合割：{name}\n上手：a\n下手：b\n   1 ５二玉(51)\n")
    board = cshogi.Board()
    taken = {9 * (int(square[0]) - 1) + "abcdefghi".index(square[1]) for square in missing}
    pieces = [0 if square in taken else piece for square, piece in enumerate(board.pieces)]
    board.set_pieces(pieces, ([0] * 7, [0] * 7))
    board.turn = cshogi.WHITE
    assert game.start.split()[:3] == board.sfen().split()[:3]
    assert (game.headers["White"], game.headers["Black"]) == ("a", "b")


def test_a_diagram(tmp_path) -> None:
    text = """後手の持駒：飛二　角　歩十七
  ９ ８ ７ ６ ５ ４ ３ ２ １
+---------------------------+
| ・ ・ ・ ・v玉 ・ ・ ・ ・|一
| ・ ・ ・ ・ ・ ・ ・ ・ ・|二
| ・ ・ ・ ・ 歩 ・ ・ ・ ・|三
| ・ ・ ・ ・ ・ ・ ・ ・v全|四
| ・ ・ ・ ・ ・ ・ ・ ・ ・|五
| ・ ・ ・ ・ ・ ・ ・ ・ ・|六
| ・ ・ ・ ・ ・ ・ ・ ・ ・|七
| ・ ・ ・ ・ ・ ・ ・ ・ ・|八
| ・ ・ ・ ・ 玉 ・ ・ ・ 龍|九
+---------------------------+
先手の持駒：金二　銀
先手：a
後手：b
   1 ５二金打
まで1手で先手の勝ち
"""
    (game,) = read(tmp_path, text.replace("飛二", "飛"), "game.kifu")
    assert game.start == "4k4/9/4P4/8+s/9/9/9/9/4K3+R b 2GSrb17p 1"
    assert usi(game) == ["G*5b"]


# Positions with many pieces that reach one square, from the Japan Shogi Association's page on notation
# (shogi.or.jp/faq/kihuhyouki.html): diagram, move as printed, square it comes from.
@pytest.mark.parametrize(
    ("sfen", "text", "expected"),
    [
        ("4k4/2G6/G8/9/9/9/9/9/4K4 b - 1", "８二金上", "9c8b"),
        ("4k4/2G6/G8/9/9/9/9/9/4K4 b - 1", "８二金寄", "7b8b"),
        ("4k4/4G4/4G1G2/9/9/9/9/9/4K4 b - 1", "５二金", None),
        ("9/4k4/9/9/9/5GG2/9/9/4K4 b - 1", "４五金直", "4f4e"),
        ("9/4k4/9/9/9/5GG2/9/9/4K4 b - 1", "４五金右", "3f4e"),
        ("4k4/9/9/9/9/9/9/9/1K4G1G b - 1", "２八金左", "3i2h"),
        ("4k4/9/9/9/9/9/8S/7S1/K8 b - 1", "１八銀", None),
        ("4k4/9/9/9/9/9/9/9/K1GG5 b - 1", "７八金直", "7i7h"),
        ("4k4/9/9/9/9/9/9/9/K1GG5 b - 1", "７八金右", "6i7h"),
        ("4k4/9/9/9/9/9/S1S6/9/S1S1K4 b - 1", "８八銀左上", "9i8h"),
        ("4k4/9/9/9/9/9/S1S6/9/S1S1K4 b - 1", "８八銀右引", "7g8h"),
        ("4k4/9/9/9/9/9/9/+R7+R/4K4 b - 1", "５八龍右", "1h5h"),
        ("+R7+R/9/4k4/9/9/9/9/9/4K4 b - 1", "８一竜左", "9a8a"),
        ("4k4/9/4P4/9/9/9/9/9/4K4 b 2G 1", "５二金打", "G*5b"),
        ("4k4/9/4P4/9/9/9/9/9/4K4 b 2G 1", "５二金", "G*5b"),
        ("4k4/9/9/2S6/9/9/9/9/4K4 b - 1", "７三銀成", "7d7c+"),
        ("4k4/9/9/2S6/9/9/9/9/4K4 b - 1", "７三銀不成", "7d7c"),
        # White's right is the other way.
        ("4k1gg1/9/9/9/9/9/9/9/4K4 w - 1", "３二金直", "3a3b"),
        ("4k1gg1/9/9/9/9/9/9/9/4K4 w - 1", "３二金左", "2a3b"),
    ],
)
def test_what_newspapers_leave_out(sfen, text, expected) -> None:
    replay = Replay(GAME.format(GAME.parse(sfen)))
    if expected is None:
        with pytest.raises(ValueError, match="legal move"):
            ki2_usi(replay, text, "")
    else:
        assert ki2_usi(replay, text, "") == expected


def test_every_move_of_random_games_reads_back() -> None:
    rng = random.Random(7)
    replay, last = Replay(GAME.format(GAME.parse())), ""
    for _ in range(150):
        for move in replay.legal():
            text = cshogi.move_to_usi(move)
            assert kif_usi(replay, kif_move(replay, text, last), last) == text
            assert ki2_usi(replay, cshogi.KI2.move_to_ki2(move, replay.board)[1:], last) == text
        move = rng.choice(replay.legal())
        last = cshogi.move_to_usi(move)[2:4]
        replay.play(move, "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("   1 ７五歩(77)\n", r"games\.kif:1: game 1 .*move 1 '７五歩\(77\)'.*illegal"),
        ("   1 ７六銀(77)\n", r":1: .*77 holds 歩"),
        ("   1 ７六歩(77)\n   3 ３四歩(33)\n", r":2: .*move 3 stands where move 2 is expected"),
        ("   1 ７六歩(77)\n   2 ３四\n", r":2: .*not a move of KIF"),
        ("   1 同　歩(77)\n", r":1: .*同 without a move before it"),
        ("手合割：謎落ち\n   1 ７六歩(77)\n", r"手合割 '謎落ち' has no diagram"),
        ("   1 ７六歩(77)\n   2 投了\n   3 ３四歩(33)\n", r":3: "),
        (
            "   1 ７六歩(77)\n   2 投了\nまで1手で後手の勝ち\n",
            r":3: .*'まで1手で後手の勝ち' contradicts the line before",
        ),
        ("   1 ７六歩(77)\n   2 詰み\n", r":2: .*a mate is stated where the player to move has a way out"),
        ("▲７六歩\nまで1手で詰み\n", r":2: .*a mate is stated"),
        ("   1 ７六歩(77)\n   2 切れ負け\nまで1手で先手の反則負け\n", r":3: .*contradicts the line before"),
        ("▲７六歩\n▲３四歩 △５五銀\n", r":2: .*no legal move fits"),
        ("", r"holds no game"),
        (b"\x00\x01\x02", r"not a text file"),
        (b"\x81\xff\n", r"neither UTF-8 nor Shift-JIS"),
    ],
)
def test_bad_games_name_the_line(tmp_path, content, message) -> None:
    with pytest.raises(SourceError, match=message):
        read(tmp_path, content)


@pytest.mark.parametrize(
    "bad",
    ["手合割：謎落ち\n先手：A\n   1 ７六歩(77)\n", "手合割：平手\n先手：A\n   1 ７五歩(77)\n", "先手：A\n▲５五銀\n"],
)
def test_a_game_that_is_bad_from_its_first_move_costs_no_other(tmp_path, bad) -> None:
    path, found = tmp_path / "games.kifu", list[SourceError]()
    path.write_text(bad + "   2 投了\n手合割：平手\n先手：C\n   1 ２六歩(27)\n   2 投了\n")
    (game,) = GAME.files.open_games(path, found.append)
    assert (game.game_id, game.headers["Black"], usi(game)) == ("games.kifu:2", "C", ["2g2f"])
    assert ["game 1 (A - ?" in str(error) for error in found] == [True]


def test_what_is_written_is_read_by_cshogi(tmp_path) -> None:
    line = ["7g7f", "3c3d", "8h2b+", "3a2b", "B*4e", "B*8e", "4e3d", "8e7f", "2h7h", "7f6g+"]
    start = GAME.format(GAME.parse())
    game = PlayedGame("x", start, tuple(map(GAME.moves.index, line)), -1.0, {"Black": "先", "White": "後"})
    for name in ("one.kif", "one.kifu"):
        path = tmp_path / name
        GAME.files.write_game(path, game)
        theirs = cshogi.KIF.Parser.parse_file(str(path))
        assert [cshogi.move_to_usi(move) for move in theirs.moves] == line
        assert theirs.win == cshogi.WHITE_WIN


@pytest.mark.parametrize("name", ["games.kif", "games.kif.gz", "games.kif.zst"])
@pytest.mark.parametrize(
    ("players", "encoding", "back"),
    [
        (["藤井", "渡辺"], "cp932", ["藤井", "渡辺"]),
        (["José", "藤井"], "utf-8-sig", ["José", "藤井"]),
        (["藤井", "José"], "cp932", ["藤井", "Jos?"]),  # what is there keeps its encoding
    ],
)
def test_names_that_shift_jis_lacks(tmp_path, name, players, encoding, back) -> None:
    path = tmp_path / name
    for player in players:
        start = GAME.format(GAME.parse())
        GAME.files.write_game(path, PlayedGame("x", start, (GAME.moves.index("7g7f"),), 1.0, {"Black": player}))
    games = list(GAME.files.open_games(path))
    assert [(game.headers["Black"], usi(game), game.result) for game in games] == [(b, ["7g7f"], 1.0) for b in back]
    with Source(path).open() as data:
        assert f"先手：{back[1]}" in data.read().decode(encoding)


def test_a_kif_file_in_utf_8_stays_so(tmp_path) -> None:
    (game,) = read(tmp_path, KIF)
    game.headers["White"] = "José"
    GAME.files.write_game(tmp_path / "games.kif", game)
    assert "後手：José" in (tmp_path / "games.kif").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("２二角", r"names the square that a piece comes from"),
        ("２二角成", r"names the square that a piece comes from"),
        ("４五角", r"names the square that a piece comes from"),
        ("４五角成", r"names the square that a piece comes from"),
        ("４五角打(88)", r"a drop .* comes from no square"),
        ("４五馬打", r"only an unpromoted piece can be dropped"),
        ("４五角成打", r"not a move of KIF"),
        ("４五角打成", r"not a move of KIF"),
    ],
)
def test_a_move_without_its_square_is_no_drop(tmp_path, text, message) -> None:
    line = "   5 ４五角打     ( 0:05/00:00:24)"
    assert line in KIF
    with pytest.raises(SourceError, match=rf"games\.kif:13: .*move 5 .*{message}"):
        read(tmp_path, KIF.replace(line, f"   5 {text}"))
    # What newspapers print says it without.
    (game,) = read(tmp_path, KI2, "games.ki2")
    assert usi(game)[4] == "B*4e"
