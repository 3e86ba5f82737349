"""Tournaments: schedule, openings, adjudication, forfeits, kills, and what the files then hold."""

from __future__ import annotations

import contextlib
import gzip
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import chess
import chess.pgn
import pytest

from genpolicy import cli
from genpolicy.errors import LockedError, SourceError
from genpolicy_arena import workers
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.match import GameResult
from genpolicy_arena.openings import draw_from_book, draw_random, read_book
from genpolicy_arena.results import TournamentFolder
from genpolicy_arena.sprt import SprtConfig
from genpolicy_arena.tournament import TournamentConfig, run_tournament
from genpolicy_common.store import StoreError
from tests.evaluation.tournament_games import CHESS, FOUR, PLAYERS, TTT, config

pytestmark = pytest.mark.usefixtures("warm_start")


def games_of(results: Sequence[GameResult]) -> dict[int, tuple[Any, ...]]:
    return {each.number: (each.first, each.second, each.moves, each.result, each.ended) for each in results}


# Who plays whom.


def test_round_robin_plays_every_opening_with_both_colours_in_every_pair() -> None:
    tasks = config(rounds=3).tasks()
    assert [task.number for task in tasks] == list(range(3 * 3 * 2))
    met = Counter((task.first, task.second, task.opening) for task in tasks)
    names = list(PLAYERS)
    openings = config(rounds=3).openings
    assert met == Counter((a, b, opening) for opening in openings for a in names for b in names if a != b)
    pairs = Counter(task.pair for task in tasks)
    assert set(pairs.values()) == {2}


def test_gauntlet_is_the_first_against_the_others() -> None:
    tasks = config(rounds=1, format="gauntlet").tasks()
    assert {frozenset((task.first, task.second)) for task in tasks} == {
        frozenset(("random", "other")),
        frozenset(("random", "mcts")),
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"format": "knockout"}, "round-robin, gauntlet, got 'knockout'"),
        ({"players": {"a": "random"}}, "at least two players"),
        ({"sprt": SprtConfig()}, "two players against each other, got 3"),
        ({"rounds": 0}, "at least one round"),
        ({"group_size": 3}, "even number of at least 2, got 3"),
    ],
)
def test_impossible_tournaments_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**more)


# Openings.


def write_books(folder: Path) -> dict[str, Path]:
    lines = folder / "book.txt"
    lines.write_text("# lines\ne2e4 e7e5 g1f3\nstartpos moves d2d4 d7d5\n\ne2e4 e7e5 g1f3\nf2f3 e7e5 g2g4 d8h4\nc2c5\n")
    epd = folder / "book.epd"
    epd.write_text("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq -\n8/8/8/8/8/5k2/8/5K2 w - - 0 1\nnonsense\n")
    pgn = folder / "book.pgn"
    pgn.write_text(
        '[Event "two moves more"]\n[Result "1-0"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 1-0\n\n'
        '[Event "b"]\n\n1. d4 Ke7 1-0\n\n'
    )
    packed = folder / "packed.txt.gz"
    with gzip.open(packed, "wt") as file:
        file.write(
            "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1 moves e7e5\nposition startpos moves a2a3\n"
        )
    return {"lines": lines, "epd": epd, "pgn": pgn, "packed": packed}


def test_books_are_read_whatever_their_form(tmp_path: Path) -> None:
    books = {name: read_book(CHESS, path, 4 if name == "pgn" else None) for name, path in write_books(tmp_path).items()}
    texts = {name: [CHESS.format(each.play(CHESS)) for each in book.openings] for name, book in books.items()}
    board = chess.Board()
    for uci in ("e2e4", "e7e5", "g1f3"):
        board.push_uci(uci)
    assert texts["lines"][0] == board.fen()
    assert len(texts["lines"]) == 2
    assert books["lines"].num_repeated == 1
    assert texts["epd"] == ["rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"]
    board.push_san("Nc6")
    assert texts["pgn"] == [board.fen()]
    assert [text.split()[0] for text in texts["packed"]] == [
        "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR",
        "rnbqkbnr/pppppppp/8/8/8/P7/1PPPPPPP/RNBQKBNR",
    ]


def test_openings_that_end_the_game_or_are_illegal_are_named_and_survived(tmp_path: Path) -> None:
    paths = write_books(tmp_path)
    bad = read_book(CHESS, paths["lines"]).bad
    assert [text.split(":")[1] for text in bad] == ["6", "7"]  # by line
    assert "ends the game" in bad[0]
    assert "c2c5" in bad[1]
    bad = read_book(CHESS, paths["epd"]).bad
    assert any("ends the game" in text and ":2" in text for text in bad)  # bare kings
    assert any("nonsense" in text for text in bad)
    assert "Ke7" in read_book(CHESS, paths["pgn"]).bad[0]
    (tmp_path / "over.txt").write_text("f2f3 e7e5 g2g4 d8h4\n")
    with pytest.raises(
        SourceError, match=r"over\.txt: no opening of this book can be played; the first one: .*ends the"
    ):
        read_book(CHESS, tmp_path / "over.txt")


def test_a_book_of_lines_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "notepad.txt").write_text("e2e4 e7e5\nd2d4\n", encoding="utf-8-sig")
    book = read_book(CHESS, tmp_path / "notepad.txt")
    assert [len(each.moves) for each in book.openings] == [2, 1]


def test_a_book_is_drawn_without_replacement(tmp_path: Path) -> None:
    path = tmp_path / "b.txt"
    path.write_text("e2e4\nd2d4\nc2c4\ng1f3\nb1c3\n")
    book = read_book(CHESS, path)
    five = draw_from_book(book, 5, 7, reuse=False, path=path)
    assert len(set(five)) == 5
    assert five[:3] == draw_from_book(book, 3, 7, reuse=False, path=path)
    assert five != draw_from_book(book, 5, 8, reuse=False, path=path)
    with pytest.raises(ValueError, match=r"6 rounds need as many openings, and the book has 5 .*--reuse-openings"):
        draw_from_book(book, 6, 7, reuse=False, path=path)
    ten = draw_from_book(book, 10, 7, reuse=True, path=path)
    assert set(Counter(ten).values()) == {2}


def test_random_openings_differ_and_run_out() -> None:
    found = draw_random(TTT, 20, 2, 0)
    assert len({str(TTT.key(each.play(TTT))) for each in found}) == 20
    assert found[:5] == draw_random(TTT, 5, 2, 0)
    with pytest.raises(ValueError, match="beyond the 9 found"):
        draw_random(TTT, 10, 1, 0)
    assert len(draw_random(TTT, 10, 1, 0, reuse=True)) == 10
    with pytest.raises(ValueError, match="end the game"):
        draw_random(TTT, 1, 9, 0)


# The same games whoever plays them.


@pytest.mark.thorough
def test_results_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    one = run_tournament(config(), FOUR, tmp_path / "one", workers=1)
    two = run_tournament(config(), FOUR, tmp_path / "two", workers=2)
    assert len(one.results) == 36
    assert games_of(one.results) == games_of(two.results)
    again = run_tournament(config(), FOUR, tmp_path / "one", workers=1)
    assert again.results == one.results  # nothing is played twice


def test_other_seeds_are_other_games(tmp_path: Path) -> None:
    first = run_tournament(config(rounds=2), FOUR, tmp_path / "a")
    other = run_tournament(
        TournamentConfig(FOUR.spec, PLAYERS, draw_random(FOUR, 2, 2, 1), seed=2), FOUR, tmp_path / "b"
    )
    assert games_of(first.results) != games_of(other.results)


COMMAND = [
    sys.executable,
    "-m",
    "genpolicy",
    "tournament",
    "--game",
    FOUR.spec,
    "--rounds",
    "16",
    "--random-plies",
    "2",
]
COMMAND += ["--seed", "1", "--policy", "random", "other=random?seed=3", "mcts=mcts:rollout?simulations=40"]


def test_a_worker_ends_quietly_when_its_command_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = multiprocessing.Pipe()

    def play_groups(setup: Any, pipe: Connection) -> None:
        pipe.send(("ready", None))
        ours.close()  # with a message that was not read, which is another error than an end
        pipe.recv()

    monkeypatch.setattr(workers, "_play_groups", play_groups)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(workers, "follow_parent", lambda parent: None)
    setup: Any = None
    workers._work(0, setup, theirs)


def test_workers_end_with_a_command_that_is_killed_in_their_games(tmp_path: Path) -> None:
    slow = ["mcts:rollout?simulations=1000000", "random", "--parallel", "2", "--out", str(tmp_path / "t")]
    process = subprocess.Popen([*COMMAND, "--policy", *slow], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while not (tmp_path / "t" / "tournament.json").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    process.kill()
    process.communicate(timeout=60)  # its output ends when the last process that may write to it has ended


def test_a_worker_that_is_killed_before_it_is_sent_games_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    send = Connection.send

    def after_a_kill(pipe: Connection, games: object) -> None:
        if isinstance(games, Sequence):
            for worker in multiprocessing.active_children():
                worker.kill()
                worker.join()
        send(pipe, games)

    monkeypatch.setattr(Connection, "send", after_a_kill)
    assert cli.main([*COMMAND[3:], "--out", str(tmp_path / "killed"), "--workers", "2"]) == 2
    assert "a worker process ended with status -9" in capsys.readouterr().err


@pytest.mark.parametrize(
    "workers", [pytest.param("1", marks=pytest.mark.thorough), pytest.param("2", marks=pytest.mark.slow)]
)
def test_a_killed_tournament_loses_and_doubles_no_game(workers: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert cli.main([*COMMAND[3:], "--out", str(whole), "--workers", "1"]) == 0
    draw = random.Random(int(workers))
    kills = 0
    for _ in range(12):
        process = subprocess.Popen(
            [*COMMAND, "--out", str(killed), "--workers", workers], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        lines = killed / "games.jsonl"
        before = lines.stat().st_size if lines.exists() else 0
        while process.poll() is None and (not lines.exists() or lines.stat().st_size <= before):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.15))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        if kills == 2 * int(workers):
            break
    assert kills >= 1
    subprocess.run([*COMMAND, "--out", str(killed), "--workers", workers], check=True, capture_output=True, timeout=300)
    rows = [[json.loads(line) for line in (folder / "games.jsonl").open()] for folder in (whole, killed)]
    assert sorted(row["number"] for row in rows[1]) == list(range(16 * 6))
    key = [{row["number"]: (row["moves"], row["result"], row["first"]) for row in listed} for listed in rows]
    assert key[0] == key[1]
    written = list(FOUR.files.open_games(killed / "games.games"))
    assert [[FOUR.moves[m] for m in game.moves] for game in written] == [row["moves"] for row in rows[1]]


def test_torn_lines_and_games_that_no_line_knows_are_cut(tmp_path: Path) -> None:
    settings = config(rounds=2)
    folder = tmp_path / "t"
    done = run_tournament(settings, FOUR, folder)
    lines, written = folder / "games.jsonl", folder / "games.games"
    good_lines, good_games = lines.read_bytes(), written.read_bytes()
    kept = good_lines.splitlines(keepends=True)[:5]
    lines.write_bytes(b"".join(kept) + good_lines.splitlines()[5][:40])
    with TournamentFolder(folder, FOUR, settings.manifest(), settings.players) as played:
        assert len(played.results) == 5
    assert lines.read_bytes() == b"".join(kept)
    assert written.read_bytes() == good_games[: json.loads(kept[-1])["games_file_bytes"]]
    written.unlink()  # somebody tidied up
    again = run_tournament(settings, FOUR, folder)
    assert games_of(again.results) == games_of(done.results)
    assert len(list(FOUR.files.open_games(written))) == 12


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match=r"holds 'thesis\.tex' and no tournament"):
        run_tournament(config(), FOUR, tmp_path / "x")
    run_tournament(config(rounds=1), FOUR, tmp_path / "t")
    with pytest.raises(ValueError, match="holds a tournament with rules"):
        run_tournament(config(rounds=1, rules=Adjudication(max_plies=9)), FOUR, tmp_path / "t")
    assert len(run_tournament(config(rounds=3), FOUR, tmp_path / "t").results) == 18  # more rounds go on
    other = TournamentConfig(FOUR.spec, PLAYERS, draw_random(FOUR, 3, 3, 1), seed=1)
    with pytest.raises(ValueError, match="began from another opening"):
        run_tournament(other, FOUR, tmp_path / "t")
    with (
        TournamentFolder(tmp_path / "u", FOUR, {"rounds": 1}, {}),
        pytest.raises(LockedError, match=f"another process plays a tournament there .process {os.getpid()} on .*--out"),
    ):
        TournamentFolder(tmp_path / "u", FOUR, {"rounds": 1}, {})


def test_a_tournament_whose_lock_was_lost_is_left_to_who_has_it(tmp_path: Path) -> None:
    done = run_tournament(config(rounds=1), FOUR, tmp_path / "whole").results
    others = []

    def lose() -> None:
        with TournamentFolder(tmp_path / "t", FOUR, config(rounds=1).manifest(), PLAYERS) as first:
            first.add(done[0])
            (tmp_path / "t" / ".lock").unlink()
            others.append(TournamentFolder(tmp_path / "t", FOUR, config(rounds=1).manifest(), PLAYERS))
            first.add(done[1])

    with pytest.raises(LockedError, match="its lock was lost"):
        lose()
    with others[0] as second:
        assert list(second.results) == [done[0].number]
        second.add(done[1])
    lines = (tmp_path / "t" / "games.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [done[0].number, done[1].number]


class Stopped(Exception):
    """Ends a tournament after some games."""


def stop_after(num_games: int, folder: Path) -> None:
    """Play so many games of ``config(rounds=2)``, which leaves the store of an unfinished tournament."""

    def progress(done: int, planned: int, sprt: Any) -> None:
        if done == num_games:
            raise Stopped

    with pytest.raises(Stopped):
        run_tournament(config(rounds=2), FOUR, folder, progress=progress)


def test_the_files_of_an_unfinished_tournament_are_made_from_its_store(tmp_path: Path) -> None:
    """As after a kill between the store and the files, and after somebody cut or deleted them."""
    folder, settings = tmp_path / "t", config(rounds=2)
    stop_after(7, folder)
    assert (folder / "journal.sqlite").exists()
    lines, written = folder / "games.jsonl", folder / "games.games"
    good = lines.read_bytes(), written.read_bytes()
    kept = good[0].splitlines(keepends=True)
    cuts = [
        (b"".join(kept[:5]), good[1]),  # killed before the line, after the game
        (b"".join(kept[:5]) + kept[5][:30], good[1][:-3]),
        (good[0], b""),
        (b"", b""),
    ]
    for number, (some_lines, some_games) in enumerate(cuts):
        copy = tmp_path / f"copy {number}"
        shutil.copytree(folder, copy)
        (copy / "games.jsonl").write_bytes(some_lines)
        (copy / "games.games").write_bytes(some_games)
        with TournamentFolder(copy, FOUR, settings.manifest(), settings.players) as played:
            assert len(played.results) == 7
        assert (copy / "games.games").read_bytes() == good[1]
        rows = [json.loads(line) for line in (copy / "games.jsonl").read_bytes().splitlines()]
        wanted = [json.loads(line) for line in kept]
        assert [{**row, "games_file_bytes": 0} for row in rows] == [{**row, "games_file_bytes": 0} for row in wanted]
        assert rows[-1] == wanted[-1]
        assert not (copy / "journal.sqlite").exists()
    assert len(run_tournament(settings, FOUR, folder).results) == 12
    assert not (folder / "journal.sqlite").exists()


def test_games_of_the_old_form_are_added_to_the_store(tmp_path: Path) -> None:
    """genpolicy 0.1 kept lines alone; here it resumed a tournament that has a store."""
    folder = tmp_path / "t"
    whole = run_tournament(config(rounds=2), FOUR, tmp_path / "whole")
    stop_after(3, folder)
    more = (tmp_path / "whole" / "games.jsonl").read_bytes().splitlines(keepends=True)[3:6]
    shutil.copy(tmp_path / "whole" / "games.games", folder / "games.games")
    with (folder / "games.jsonl").open("ab") as file:
        file.write(b"".join(more))
    stop_after(8, folder)
    done = run_tournament(config(rounds=2), FOUR, folder)
    assert games_of(done.results) == games_of(whole.results)
    written = list(FOUR.files.open_games(folder / "games.games"))
    assert len({game.game_id for game in written}) == len(written) == 12


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tournament.json", "[1]", r"tournament\.json: damaged"),
        ("tournament.json", '{"rounds": "many"}', r"tournament\.json: damaged .rounds must be"),
        ("games.jsonl", "3\n", r"games\.jsonl:1: damaged .*remove the line"),
    ],
)
def test_files_with_other_content_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    stop_after(1, tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        run_tournament(config(rounds=2), FOUR, tmp_path)


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    stop_after(3, tmp_path)
    path = tmp_path / "journal.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreError, match=r"journal\.sqlite: is of a newer form"):
        run_tournament(config(rounds=2), FOUR, tmp_path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreError, match=r"journal\.sqlite: damaged .*delete it to have its work done again"):
        run_tournament(config(rounds=2), FOUR, tmp_path)
    path.unlink()
    assert len(run_tournament(config(rounds=2), FOUR, tmp_path).results) == 12
