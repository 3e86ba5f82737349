"""Folders, archives and lists: what a path stands for, streamed, and every format written and read back."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zipfile
from pathlib import Path

import pytest

import genpolicy
from genpolicy.errors import SourceError
from genpolicy.game import PlayedGame

GAME = genpolicy.load_game("shogi")
START = GAME.format(GAME.parse())
HANDICAP = "lnsgkgsnl/9/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1"
CSA = "V2.2\nN+a\nN-b\nPI\n+\n+7776FU\n-3334FU\n%TORYO\n"


def random_game(seed: int, start: str = START, plies: int = 120) -> PlayedGame:
    rng = random.Random(seed)
    state, moves = GAME.parse(start), []
    for _ in range(rng.randint(0, plies)):
        legal = GAME.legal(state).tolist()
        if not legal:
            break
        moves.append(rng.choice(legal))
        state = GAME.play(state, moves[-1])
    result = rng.choice([1.0, 0.0, -1.0])
    return PlayedGame(str(seed), start, tuple(moves), result, {"Black": f"先手 {seed}", "White": "gote, the other"})


def mid_game(seed: int) -> PlayedGame:
    """A game that begins in the middle of another one."""
    game = random_game(seed, plies=200)
    state = GAME.parse(game.start)
    half = len(game.moves) // 2
    for move in game.moves[:half]:
        state = GAME.play(state, move)
    return PlayedGame("mid", GAME.format(state), game.moves[half:], game.result, game.headers)


GAMES = [random_game(i) for i in range(6)] + [random_game(9, HANDICAP), mid_game(11), mid_game(12)]


@pytest.mark.parametrize("line", ["startpos moves 7g7f\n", f"{START}\n"])
def test_a_list_that_holds_nothing_is_not_of_another_kind(tmp_path, line) -> None:
    kind = "games" if "moves" in line else "positions"
    for name, content in (("a", line), ("b", ""), ("d", line)):
        (tmp_path / f"{name}.usi").write_text(content)
    (tmp_path / "c.usi.gz").write_bytes(gzip.compress(1000 * line.encode())[:30])
    assert GAME.files.source_kind(tmp_path) == kind
    bad: list[SourceError] = []
    read = GAME.files.open_games if kind == "games" else GAME.files.open_positions
    assert len(list(read(tmp_path, bad.append))) == 2
    assert ["b.usi: holds no" in str(bad[0]), "c.usi.gz: cannot be read" in str(bad[1])] == [True, True]
    for name, message in (("b.usi", "holds no position"), ("c.usi.gz", "cut short")):
        with pytest.raises(SourceError, match=message):
            list(GAME.files.open_positions(tmp_path / name))


@pytest.mark.parametrize(
    "name", ["g.csa", "g.kif", "g.kifu", "g.usi", "g.hcpe3", "g.csa.gz", "g.kifu.zst", "g.hcpe3.gz", "g.sfen.zst"]
)
def test_games_written_are_games_read(tmp_path, name) -> None:
    path = tmp_path / name
    for game in GAMES:
        GAME.files.write_game(path, game)  # each call appends
    found = list(GAME.files.open_games(path))
    assert [(g.start, g.moves) for g in found] == [(g.start, g.moves) for g in GAMES]
    if ".usi" not in name and ".sfen" not in name:  # lists of moves have no place for a result
        assert [g.result for g in found] == [g.result for g in GAMES]
    if ".csa" in name or ".kif" in name:
        assert [(g.headers["Black"], g.headers["White"]) for g in found] == [
            (g.headers["Black"], g.headers["White"]) for g in GAMES
        ]
    GAME.files.write_games(path, GAMES[:2])  # in place of what was there
    assert len(list(GAME.files.open_games(path))) == 2


def test_a_name_of_no_format_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"games are written as \.csa"):
        GAME.files.write_game(tmp_path / "game.pgn", GAMES[0])


@pytest.mark.parametrize(
    ("line", "start", "moves"),
    [
        ("startpos moves 7g7f 3c3d", START, ["7g7f", "3c3d"]),
        ("position startpos moves 7g7f", START, ["7g7f"]),
        ("startpos", START, []),
        (f"sfen {HANDICAP} moves 3c3d 7g7f", HANDICAP, ["3c3d", "7g7f"]),
        (f"{HANDICAP} moves 3c3d # a comment", HANDICAP, ["3c3d"]),
    ],
)
def test_lines_of_usi(tmp_path, line, start, moves) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"# openings\n\n{line}\n")
    assert GAME.files.source_kind(path) == "games"
    (game,) = GAME.files.open_games(path)
    assert (game.game_id, game.start, [GAME.moves[m] for m in game.moves]) == ("a.txt:3", start, moves)
    assert game.result is None


def test_lines_of_sfen_are_positions(tmp_path) -> None:
    path = tmp_path / "a.sfen"
    path.write_text(f"{HANDICAP}\nsfen {START}\n{HANDICAP[:-2]}\nstartpos moves 7g7f 3c3d\n")
    assert GAME.files.source_kind(path) == "positions"
    found = [position.text for position in GAME.files.open_positions(path)]
    after = GAME.parse()
    for usi in ("7g7f", "3c3d"):
        after = GAME.play(after, GAME.moves.index(usi))
    assert found == [HANDICAP, START, HANDICAP, GAME.format(after)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("startpos moves 7g7f 7g7f", r"a\.txt:1: move 2: .*'7g7f' is illegal"),
        ("startpos moves 7g7f what", r":1: move 2: 'what' is not a move"),
        ("startpos moves 5e5d+", r":1: move 1: .*illegal"),
        ("sfen moves 7g7f", r":1: .*expected 'startpos"),
        ("sfen 9/9/9 b - 1 moves 7g7f", r":1: .*not an SFEN"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message) -> None:
    path = tmp_path / "a.txt"
    path.write_text(line + "\n")
    with pytest.raises(SourceError, match=message):
        list(GAME.files.open_games(path))


def archive(folder: Path) -> Path:
    """A folder as floodgate's archives have them, one of its files damaged, one no game file."""
    for day, name, text in (
        ("2016/01", "wdoor+a.csa", CSA),
        ("2016/01", "wdoor+b.csa", CSA.replace("7776", "7775")),
        ("2016/02", "wdoor+c.csa", CSA + "/\n" + CSA),
        ("2016/02", "empty.csa", ""),
        ("2016/02", "notes.md", "not a game"),
    ):
        (folder / day).mkdir(parents=True, exist_ok=True)
        (folder / day / name).write_text(text)
    return folder


def test_a_folder_of_folders(tmp_path) -> None:
    folder = archive(tmp_path / "floodgate")
    assert GAME.files.source_kind(folder) == "games"
    bad: list[SourceError] = []
    found = list(GAME.files.open_games(folder, bad.append))
    assert [game.game_id for game in found] == ["wdoor+a.csa:1", "wdoor+c.csa:1", "wdoor+c.csa:2"]
    assert sorted(Path(str(error).partition(":")[0]).name for error in bad) == ["empty.csa", "wdoor+b.csa"]
    with pytest.raises(SourceError, match=r"wdoor\+b\.csa:6: "):
        list(GAME.files.open_games(folder))


def test_an_archive(tmp_path) -> None:
    folder = archive(tmp_path / "floodgate")
    path = tmp_path / "floodgate.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for inside in sorted(folder.rglob("*.csa")):
            file.write(inside, inside.relative_to(tmp_path))
    bad: list[SourceError] = []
    assert len(list(GAME.files.open_games(path, bad.append))) == 3
    assert len(bad) == 2
    assert any("floodgate.zip/floodgate/2016/01/wdoor+b.csa:6: " in str(error) for error in bad)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "no such file or folder"),
        (lambda p: p.mkdir(), "holds no file that shogi reads"),
        (
            lambda p: (p.mkdir(), (p / "a.csa").write_text(CSA), (p / "b.hcpe").write_bytes(b"")),
            "games and .*positions",
        ),
    ],
)
def test_paths_that_cannot_be_read(tmp_path, make, message) -> None:
    make(tmp_path / "x")
    with pytest.raises(SourceError, match=message):
        GAME.files.source_kind(tmp_path / "x")


@pytest.mark.parametrize("name", ["a.csa.gz", "a.csa.zst"])
def test_a_packed_file_that_is_cut_is_an_error(tmp_path, name) -> None:
    path = tmp_path / name
    for i in range(30):
        GAME.files.write_game(path, random_game(i))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SourceError, match=r"cannot be read .*cut short"):
        list(GAME.files.open_games(path))


def test_memory_does_not_grow_with_the_file(tmp_path) -> None:
    path = tmp_path / "many.usi"
    path.write_text("startpos moves 7g7f 3c3d 8h2b+ 3a2b B*4e B*8e\n" * 2_000)

    def peak(count: int) -> int:
        tracemalloc.start()
        for number, _ in enumerate(GAME.files.open_games(path)):
            if number == count:
                break
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return found

    # What waits for the garbage collector comes and goes; all games at once would be several megabytes.
    assert peak(1_999) < 1 << 19


def test_what_a_mac_adds_is_passed_over(tmp_path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("2020/a.csa", "2020/.hidden.csa", ".git/b.csa"):
            archive.writestr(name, CSA)
        archive.writestr("__MACOSX/2020/._a.csa", b"\0\5\26\7\0\2Mac OS X")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "a")
    assert [game.game_id for game in GAME.files.open_games(tmp_path / "a.zip")] == ["a.csa:1"]
    assert [game.game_id for game in GAME.files.open_games(tmp_path / "a")] == ["a.csa:1"]


def test_a_hidden_folder_may_be_named(tmp_path) -> None:
    folder = tmp_path / ".games"
    folder.mkdir()
    (folder / "a.csa").write_text(CSA)
    assert len(list(GAME.files.open_games(folder))) == 1


@pytest.mark.parametrize("name", ["a.csa", "a.kif", "a.ki2", "a.usi", "a.hcpe", "a.hcpe3", "a.psv", "a.csa.gz"])
def test_an_empty_file_is_named(tmp_path, name) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    read = GAME.files.open_games if GAME.files.source_kind(path) == "games" else GAME.files.open_positions
    with pytest.raises(SourceError, match=rf"{name}: .*empty"):
        list(read(path))
    with pytest.raises(SourceError, match=rf"{name}: .*empty"):
        list(read(path, lambda error: None))


def test_who_refuses_a_bad_game_is_told_once(tmp_path) -> None:
    (tmp_path / "a.csa").write_text(CSA)
    (tmp_path / "b.csa").write_text(CSA.replace("+7776FU", "+7775FU"))
    told = []

    def refuse(error: SourceError) -> None:
        told.append(str(error))
        raise SourceError("refused")

    with pytest.raises(SourceError, match=r"^refused$"):
        list(GAME.files.open_games(tmp_path, refuse))
    assert len(told) == 1


def test_a_broken_archive_in_a_folder_is_one_bad_entry(tmp_path: Path) -> None:
    (tmp_path / "a.csa").write_text(CSA)
    (tmp_path / "b.zip").write_bytes(b"PK\x03\x04 cut off")
    (tmp_path / "c.csa").write_text(CSA.replace("7776", "2726"))
    with pytest.raises(SourceError, match=r"b\.zip: cannot be read .* fetch or pack it again"):
        list(GAME.files.open_games(tmp_path))
    bad: list[SourceError] = []
    assert [game.game_id for game in GAME.files.open_games(tmp_path, bad.append)] == ["a.csa:1", "c.csa:1"]
    assert len(bad) == 1
    with pytest.raises(SourceError, match=r"b\.zip: cannot be read"):
        list(GAME.files.open_positions(tmp_path / "b.zip"))
