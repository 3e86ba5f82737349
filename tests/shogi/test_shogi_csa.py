"""CSA: what the standard's own example, floodgate and damaged files hold."""

from __future__ import annotations

from pathlib import Path

import cshogi
import cshogi.CSA
import pytest

import genpolicy
from genpolicy.errors import SourceError
from genpolicy.game import PlayedGame

GAME = genpolicy.load_game("shogi")

BLANK_ROWS = "".join(f"P{rank}" + " * " * 9 + "\n" for rank in range(2, 9))
KING_ROWS = "P1" + " * " * 4 + "-OU" + " * " * 4 + "\n" + BLANK_ROWS + "P9" + " * " * 4 + "+OU" + " * " * 4
# The example of the standard's section 3 (computer-shogi.org/protocol/record_v22.html), shortened.
STANDARD = """'----------棋譜ファイルの例"example.csa"-----------------
V2.2
N+NAKAHARA
N-YONENAGA
$EVENT:13th World Computer Shogi Championship
$SITE:KAZUSA ARC
$START_TIME:2003/05/03 10:30:00
$TIME_LIMIT:00:25+00
$OPENING:YAGURA
PI
+
+2726FU
T12
-3334FU
T6
%CHUDAN
'---------------------------------------------------------
"""
FLOODGATE = """V2
N+gps
N-YssL980X1
'Max_Moves:256
$EVENT:wdoor+floodgate-900-0+gps+YssL980X1+20150101000000
$START_TIME:2015/01/01 00:00:00
P1-KY-KE-GI-KI-OU-KI-GI-KE-KY
P2 * -HI *  *  *  *  * -KA *{blank}
P3-FU-FU-FU-FU-FU-FU-FU-FU-FU
P4 *  *  *  *  *  *  *  *  *{blank}
P5 *  *  *  *  *  *  *  *  *{blank}
P6 *  *  *  *  *  *  *  *  *{blank}
P7+FU+FU+FU+FU+FU+FU+FU+FU+FU
P8 * +KA *  *  *  *  * +HI *{blank}
P9+KY+KE+GI+KI+OU+KI+GI+KE+KY
P+
P-
+
'rating:gps+0:YssL980X1+1
'black_rate:gps+0:2768.0
'white_rate:YssL980X1+1:1831.0
+7776FU
T0
'** 30 -3334FU +2726FU
-3334FU
T1
+8822UM
T0
%TORYO
'summary:toryo:gps win:YssL980X1 lose
'$END_TIME:2015/01/01 00:10:00
""".replace("{blank}", " ")


def read(folder: Path, content: str | bytes, name: str = "games.csa") -> list[PlayedGame]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(GAME.files.open_games(path))


def usi(game: PlayedGame) -> list[str]:
    return [GAME.moves[i] for i in game.moves]


def test_the_standards_example(tmp_path) -> None:
    (game,) = read(tmp_path, STANDARD)
    assert (game.game_id, game.start, usi(game)) == ("games.csa:1", GAME.format(GAME.parse()), ["2g2f", "3c3d"])
    assert game.result is None
    assert game.headers["Black"] == "NAKAHARA"
    assert game.headers["White"] == "YONENAGA"
    assert game.headers["TimeControl"] == "00:25+00"


def test_floodgate_says_who_won_and_the_ratings(tmp_path) -> None:
    (game,) = read(tmp_path, FLOODGATE)
    assert usi(game) == ["7g7f", "3c3d", "8h2b+"]
    assert game.result == 1.0
    assert (game.headers["BlackElo"], game.headers["WhiteElo"]) == ("2768.0", "1831.0")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp932"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r", "\r\r\n"])
def test_encodings_and_line_ends(tmp_path, encoding, ends) -> None:
    text = "V2.2\nN+羽生善治\nN-森内俊之\nPI\n+\n+7776FU\n%TORYO\n".replace("\n", ends)
    (game,) = read(tmp_path, text.encode(encoding))
    assert (game.headers["Black"], game.headers["White"]) == ("羽生善治", "森内俊之")
    assert (usi(game), game.result) == (["7g7f"], 1.0)
    with pytest.raises(SourceError, match=r"games\.csa:8: .*stands after the game's end"):
        read(tmp_path, f"{text}-3334FU{ends}".encode(encoding))


@pytest.mark.parametrize(
    ("end", "result"),
    [
        ("%TORYO", 1.0),  # White is to move and gives up
        ("%TIME_UP", 1.0),
        ("%KACHI", -1.0),  # White declares
        ("%SENNICHITE", 0.0),
        ("%JISHOGI", 0.0),
        ("%HIKIWAKE", 0.0),
        ("%MAX_MOVES", 0.0),
        ("%ILLEGAL_MOVE", 1.0),
        ("%+ILLEGAL_ACTION", -1.0),
        ("%-ILLEGAL_ACTION", 1.0),
        ("%CHUDAN", None),
        ("%MATTA", None),
        ("%ERROR", None),
        ("", None),
        # The illegal move itself stands before the statement in some programs' files.
        ("-3313FU\n%ILLEGAL_MOVE", 1.0),
        ("%TORYO\n'summary:time up:a lose:b win", -1.0),
        ("'summary:abnormal:a lose:b win", -1.0),
    ],
)
def test_ends_of_games(tmp_path, end, result) -> None:
    (game,) = read(tmp_path, f"V2.2\nN+a\nN-b\nPI\n+\n+7776FU,T3\n{end}\n")
    assert usi(game) == ["7g7f"]
    assert game.result == result


@pytest.mark.parametrize(
    ("lines", "sfen"),
    [
        ("PI82HI22KA\n-", "lnsgkgsnl/9/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1"),
        ("P+59OU00FU\nP-51OU00AL\n+", "4k4/9/9/9/9/9/9/9/4K4 b P2r2b4g4s4n4l17p 1"),
        ("P-51OU53TO\nP+59OU29KI00KI00KI\n-", "4k4/9/4+p4/9/9/9/9/9/4K2G1 w 2G 1"),
        (f"{KING_ROWS}\nP+00HI\n+", "4k4/9/9/9/9/9/9/9/4K4 b R 1"),
    ],
)
def test_first_positions(tmp_path, lines, sfen) -> None:
    (game,) = read(tmp_path, f"V2.2\n{lines}\n")
    assert game.start == sfen


def test_several_games_in_a_file(tmp_path) -> None:
    games = read(tmp_path, STANDARD + "/\n" + FLOODGATE + "/\nV2.2\nPI\n+\n+7776FU\n")
    assert [(game.game_id, len(game.moves)) for game in games] == [
        ("games.csa:1", 2),
        ("games.csa:2", 3),
        ("games.csa:3", 1),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("V2.2\nPI\n+\n+7775FU\n", r"games\.csa:4: game 1 .*move 1 '\+7775FU'.*illegal"),
        ("V2.2\nPI\n+\n+7776GI\n", r":4: .*77 holds FU"),
        ("V2.2\nPI\n+\n-3334FU\n", r":4: .*player who is not to move"),
        ("V2.2\nPI\n+\n+77\n", r":4: .*'\+77' is not a statement"),
        ("V2.2\nPI\n+\n+7776FU\n%WHAT\n", r":5: .*%WHAT.*does not end.*%TORYO"),
        ("V2.2\nPI\n+\n+7776FU\n%TSUMI\n", r":5: .*a mate is stated where the player to move has a way out"),
        ("V2.2\nPI\n+\n%TORYO\n+7776FU\n", r":5: .*after the game's end"),
        ("V2.2\nPI33FU22HI\n+\n", r":2: .*no HI stands on 22"),
        ("V2.2\nP-51OU\nP-52OU\n+\n", r"first position: .*legal position"),
        ("V2.2\nPI\n+\n+0055FU\n", r":4: .*illegal"),
        ("hello\n", r":1: .*'hello' is not a statement"),
        ("", r"holds no game"),
        ("V2.2\nPI\n+\n+8833UM\n", r":4: .*illegal"),
    ],
)
def test_bad_games_name_the_line(tmp_path, content, message) -> None:
    with pytest.raises(SourceError, match=message):
        read(tmp_path, content)


def test_bad_games_are_counted_and_the_others_kept(tmp_path) -> None:
    path = tmp_path / "games.csa"
    path.write_text(STANDARD + "/\nV2.2\nPI\n+\n+7775FU\n%TORYO\n/\n" + FLOODGATE)
    bad: list[SourceError] = []
    assert [game.game_id for game in GAME.files.open_games(path, bad.append)] == ["games.csa:1", "games.csa:3"]
    assert len(bad) == 1


@pytest.mark.parametrize("bad", ["P1-KY-KE\n+\n+7776FU", "PI\n-\n+7776FU", "PI\n+\n+7776XX", "PI\n+\n+7776FU\nfoo"])
@pytest.mark.parametrize("between", ["%TORYO\nV2.2\nN+C\n", "%TORYO\n", "V2.2\nN+C\n"])
def test_a_game_that_is_bad_from_its_first_move_costs_no_other(tmp_path, bad, between) -> None:
    path, found = tmp_path / "games.csa", list[SourceError]()
    path.write_text(f"V2.2\nN+A\n{bad}\n{between}PI\n+\n+2726FU\n%TORYO\n")
    (game,) = GAME.files.open_games(path, found.append)
    assert (game.game_id, usi(game)) == ("games.csa:2", ["2g2f"])
    assert ["game 1 (A - ?" in str(error) for error in found] == [True]


def test_what_is_written_is_read_by_cshogi(tmp_path) -> None:
    start = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"
    line = ["7g7f", "3c3d", "8h2b+", "3a2b", "B*4e", "B*8e", "4e3d", "8e7f", "2h7h", "7f6g+"]
    game = PlayedGame("x", start, tuple(map(GAME.moves.index, line)), -1.0, {"Black": "先手", "White": "後手"})
    path = tmp_path / "one.csa"
    GAME.files.write_game(path, game)
    (theirs,) = cshogi.CSA.Parser.parse_file(str(path))
    assert [cshogi.move_to_usi(move) for move in theirs.moves] == line
    assert theirs.win == cshogi.WHITE_WIN
    assert theirs.names == ["先手", "後手"]


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ({"Termination": "adjudication", "Ended": "limit"}, "%MAX_MOVES"),
        ({"Termination": "adjudication", "Ended": "adjudication"}, "%HIKIWAKE"),
        ({"Termination": "JISHOGI"}, "%JISHOGI"),
    ],
)
@pytest.mark.parametrize("suffix", [".csa", ".kif"])
def test_a_drawn_game_is_no_impasse_unless_somebody_said_so(tmp_path, headers, word, suffix) -> None:
    start = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"
    moves = tuple(map(GAME.moves.index, ["7g7f", "3c3d"]))
    path = tmp_path / f"one{suffix}"
    GAME.files.write_game(path, PlayedGame("x", start, moves, 0.0, {"Black": "a", "White": "b", **headers}))
    if suffix == ".csa":
        assert path.read_text().splitlines()[-1] == word
    (again,) = GAME.files.open_games(path)
    assert (again.moves, again.result, again.headers["Termination"]) == (moves, 0.0, word[1:])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("P", r"a\.csa:4: .*'P': not a statement of CSA"),
        ("P\n+\n+7776FU", r"a\.csa:4: .*'P': not a statement of CSA"),
        ("P0 * ", r"a\.csa:4: .*not a statement of CSA"),
        ("P1-KY", r"a\.csa:4: .*nine squares of three characters, got 1"),
        ("P1" + " * " * 10, r"a\.csa:4: .*nine squares of three characters, got 10"),
        ("P1" + " * " * 4 + "-OU" + " * " * 4 + "\n+", r"a\.csa:5: .*lacks the rows P2 P3 P4 P5 P6 P7 P8 P9"),
        ("P1" + " * " * 9 + "\nP1" + " * " * 9, r"a\.csa:5: .*rank 1 is given twice"),
        ("PI\nP1" + " * " * 9, r"a\.csa:5: .*rank 1 is given twice"),
        ("P+00FU\nPI", r"a\.csa:5: .*stands after other pieces"),
    ],
)
def test_a_damaged_diagram_names_its_line(tmp_path, rows, message) -> None:
    path = tmp_path / "a.csa"
    path.write_text(f"V2.2\nN+a\nN-b\n{rows}\n")
    with pytest.raises(SourceError, match=message):
        list(GAME.files.open_games(path))
    bad: list[SourceError] = []
    (tmp_path / "b.csa").write_text("PI\n+\n+7776FU\n%TORYO\n")
    assert [game.game_id for game in GAME.files.open_games(tmp_path, bad.append)] == ["b.csa:1"]
    assert len(bad) == 1


def test_pieces_one_by_one_need_no_rows(tmp_path) -> None:
    path = tmp_path / "a.csa"
    path.write_text(f"P+59OU00KI\nP-51OU\n+\n%TORYO\n/\n{KING_ROWS}\nP+00KI\n+\n%TORYO\n")
    assert [game.start for game in GAME.files.open_games(path)] == ["4k4/9/9/9/9/9/9/9/4K4 b G 1"] * 2


def test_a_file_cut_anywhere_is_a_game_or_an_error(tmp_path) -> None:
    path = tmp_path / "a.csa"
    whole = FLOODGATE.replace("{blank}", " ")
    for size in range(1, len(whole)):
        path.write_text(whole[:size])
        bad: list[SourceError] = []
        assert len(list(GAME.files.open_games(path, bad.append))) + len(bad) == 1


@pytest.mark.parametrize(
    ("control", "line", "back"),
    [
        ("600", "$TIME_LIMIT:00:10+00", "00:10+00"),
        ("5400+30+0", "$TIME_LIMIT:01:30+30", "01:30+30"),
        ("59", "$TIME:59+0+0", "59+0+0"),
        ("90+10+0", "$TIME:90+10+0", "90+10+0"),
        ("600+5", "$TIME:600+0+5", "600+0+5"),
        ("00:25+00", "$TIME_LIMIT:00:25+00", "00:25+00"),
    ],
)
def test_a_time_control_keeps_its_seconds(tmp_path, control, line, back) -> None:
    path = tmp_path / "one.csa"
    game = PlayedGame("x", GAME.format(GAME.parse()), (GAME.moves.index("7g7f"),), 1.0, {"TimeControl": control})
    GAME.files.write_game(path, game)
    assert line in path.read_text().splitlines()
    (read_back,) = GAME.files.open_games(path)
    assert read_back.headers["TimeControl"] == back
    GAME.files.write_game(tmp_path / "two.csa", read_back)
    assert (tmp_path / "two.csa").read_text() == path.read_text()
    (theirs,) = cshogi.CSA.Parser.parse_file(str(path))
    assert [cshogi.move_to_usi(move) for move in theirs.moves] == ["7g7f"]
