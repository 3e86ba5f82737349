"""Tournaments of chess: engines that misbehave, PGN that others read, and the commands."""

from __future__ import annotations

import json
import signal
import sys
import textwrap
from pathlib import Path

import chess
import chess.pgn
import pytest

from genpolicy import cli
from genpolicy.registry import load_game
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.tournament import run_tournament
from genpolicy_policy_baselines.simple import RandomPolicy
from tests.evaluation.tournament_games import CHESS, FOUR, TTT, config

# Chess: engines that misbehave, and PGN that others read.


def write_engine(folder: Path, body: str) -> Path:
    """A UCI engine that answers ``go`` as ``body`` says."""
    path = folder / "engine.py"
    path.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent(
            """
            import sys, time
            for line in sys.stdin:
                words = line.split()
                if words[:1] == ["uci"]: print("id name Broken\\nuciok", flush=True)
                elif words[:1] == ["isready"]: print("readyok", flush=True)
                elif words[:1] == ["quit"]: break
                elif words[:1] == ["go"]:
            """
        )
        + textwrap.indent(textwrap.dedent(body), " " * 8)
        + "\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit(7)", "ended with status 7"),
        ("time.sleep(60)", "hangs"),
        ("print('bestmove e2e5', flush=True)", "e2e5"),
    ],
)
def test_an_engine_that_crashes_hangs_or_cheats_loses_and_the_report_says_why(
    body: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = write_engine(tmp_path, body)
    arguments = ["tournament", "--game", "chess", "--rounds", "1", "--random-plies", "2", "--workers", "1"]
    arguments += ["--policy", "random", f"bad=engine:{engine}?nodes=1&timeout_s=0.3"]
    status = cli.main([*arguments, "--out", str(tmp_path / "t"), "--json", str(tmp_path / "t.json")])
    out = capsys.readouterr()
    assert status == 0, out.err
    figures = json.loads((tmp_path / "t.json").read_text())
    assert figures["games"] == 2
    assert [each["by"] for each in figures["forfeits"]] == ["bad", "bad"]
    assert all(reason in each["reason"] for each in figures["forfeits"])
    assert "bad failed" in out.out
    assert reason in out.out


def test_what_a_terminal_would_obey_is_in_no_report_and_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = write_engine(tmp_path, r"print('bestmove \x1b[31m\x1b]0;pwned\x07', flush=True)")
    arguments = ["tournament", "--game", "chess", "--rounds", "1", "--random-plies", "2", "--workers", "1"]
    arguments += ["--policy", "random", f"bad=engine:{engine}?nodes=1", "--out", str(tmp_path / "t")]
    assert cli.main(arguments) == 0
    out = capsys.readouterr()
    report, pgn = out.out + out.err, (tmp_path / "t" / "games.pgn").read_text()
    for text in (report, pgn):
        assert "pwned" in text
        assert not {c for c in text if not c.isprintable() and c not in "\n\t"}


def test_a_game_of_shogi_at_the_limit_of_plies_is_written_as_that(tmp_path: Path) -> None:
    shogi = load_game("shogi")
    settings = config(shogi, 2, {"a": "random", "b": "random?seed=3"}, rules=Adjudication(max_plies=10))
    outcome = run_tournament(settings, shogi, tmp_path / "t")
    assert [each.ended for each in outcome.results] == ["limit"] * 4
    written = tmp_path / "t" / "games.csa"
    assert [line for line in written.read_text().splitlines() if line[0] == "%"] == ["%MAX_MOVES"] * 4
    again = list(shogi.files.open_games(written))
    assert [(len(each.moves), each.result) for each in again] == [(10, 0.0)] * 4


def test_an_anchor_that_does_not_play_is_refused_before_a_game(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tournament", "--game", FOUR.spec, "--policy", "a=random", "b=random?seed=1", "--rounds", "1"]
    arguments += ["--workers", "1", "--out", str(tmp_path / "t")]
    assert cli.main([*arguments, "--anchor", "nobody=3"]) == 2
    assert "--anchor: 'nobody' does not play; the players: a, b" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()
    assert cli.main([*arguments, "--anchor", "b=3"]) == 0


def test_every_pgn_is_read_by_python_chess_with_the_same_result(tmp_path: Path) -> None:
    settings = config(
        CHESS, 5, {"random": "random", "mcts": "mcts:uniform?simulations=4"}, rules=Adjudication(max_plies=90)
    )
    outcome = run_tournament(settings, CHESS, tmp_path / "t")
    texts = {1.0: "1-0", 0.0: "1/2-1/2", -1.0: "0-1"}
    rows = {f"{each.round + 1}.{each.number % 2 + 1}": each for each in outcome.results}
    count = 0
    with (tmp_path / "t" / "games.pgn").open() as file:
        while (game := chess.pgn.read_game(file)) is not None:
            count += 1
            assert game.errors == []
            row = rows[game.headers["Round"]]
            assert (game.headers["White"], game.headers["Black"]) == (row.first, row.second)
            assert game.headers["Result"] == texts[row.result]
            assert game.headers["PlyCount"] == str(len(row.moves))
            assert [move.uci() for move in game.mainline_moves()] == list(row.moves)
            board = game.end().board()
            if row.ended == "rules":
                ended = board.outcome(claim_draw=True)
                assert ended is not None
                assert ended.result() == texts[row.result]
    assert count == len(outcome.results) == 10


# The commands.


def test_the_commands_play_and_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t"
    arguments = ["--policy", "random", "r2=random?seed=4", "mcts:uniform?simulations=10", "--game", TTT.spec]
    arguments += ["--rounds", "5", "--random-plies", "1", "--workers", "1", "--out", str(out)]
    extra = ["--json", str(tmp_path / "a.json"), "--markdown", str(tmp_path / "a.md")]
    assert cli.main(["tournament", *arguments, *extra]) == 0
    shown = capsys.readouterr().out
    assert "Crosstable" in shown
    figures = json.loads((tmp_path / "a.json").read_text())
    names = [row["name"] for row in figures["ratings"]["players"]]
    assert set(names) == {"random", "r2", "mcts:uniform?simulations=10"}
    assert "| player |" in (tmp_path / "a.md").read_text()
    by_folder, by_file = tmp_path / "b.json", tmp_path / "c.json"
    assert cli.main(["ratings", str(out), "--game", TTT.spec, "--json", str(by_folder)]) == 0
    assert cli.main(["ratings", str(out / "games.games"), "--game", TTT.spec, "--json", str(by_file)]) == 0
    rows = [json.loads(path.read_text())["ratings"]["players"] for path in (by_folder, by_file)]
    assert rows[0] == rows[1] == figures["ratings"]["players"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_signal_ends_a_tournament_and_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command was gone without a word."""
    monkeypatch.setattr(RandomPolicy, "decide", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    words = ["tournament", "--game", "chess", "--policy", "a=random", "b=random?seed=2", "--workers", "1"]
    assert cli.main([*words, "--out", str(tmp_path / "t")]) == 128 + signal.SIGTERM
    said = capsys.readouterr().err
    assert "stopped; finished games are kept, and the same command resumes" in said
    assert "genpolicy: stopped by SIGTERM" in said


def test_ratings_read_anybodys_pgn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "club.pgn"
    results = ["1-0", "1/2-1/2", "0-1", "1-0", "*"]
    path.write_text(
        "".join(
            f'[Event "e"]\n[White "Ann"]\n[Black "Bob"]\n[Result "{result}"]\n\n1. e4 e5 {result}\n\n'
            for result in results
        )
        + '[Event "e"]\n[White "Bob"]\n[Black "Ann"]\n[Result "1-0"]\n\n1. e4 Ke7 1-0\n\n'
        + '[Event "e"]\n[White "?"]\n[Black "Ann"]\n[Result "1-0"]\n\n1-0\n\n'
        + '[Event "e"]\n[White "Bob"]\n[Black "Ann"]\n[Result "1-0"]\n\n1. d4 1-0\n\n'
    )
    assert cli.main(["ratings", str(path), "--los", "--crosstable", "--json", str(tmp_path / "r.json")]) == 0
    out = capsys.readouterr()
    figures = json.loads((tmp_path / "r.json").read_text())
    assert figures["games"] == 5
    assert figures["left_out"] == {
        "unreadable games": 1,
        "games without a result": 1,
        "games whose headers do not name two players": 1,
    }
    assert "Ke7" in out.err
    assert figures["crosstable"] == [
        {"first": "Ann", "second": "Bob", "wins": 2, "draws": 1, "losses": 1},
        {"first": "Bob", "second": "Ann", "wins": 1, "draws": 0, "losses": 0},
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "random"], "at least two players"),
        (["--policy", "a=random", "a=random?seed=1"], "two players are called 'a'"),
        (["--policy", "random", "nonsense"], "nonsense"),
        (["--policy", "random", "random?seed=1", "--openings", "no.txt"], "no.txt"),
        (["--policy", "random", "random?seed=1", "--format", "swiss"], "swiss"),
        (["--policy", "random", "random?seed=1", "--sprt", "elo1=-5"], "elo0 must be below elo1"),
        (["--policy", "random", "random?seed=1", "--anchor", "random=x"], "is not a number"),
        (["--policy", "random", "random?seed=1", "--model", "elo"], "bt, bayeselo, ordo"),
        (["--policy", "random", "random?seed=1", "--model", "ordo", "--draw", "1"], "has no draw parameter"),
        (["--policy", "random", "random?seed=1", "--bootstrap", "19"], "bootstrap must be 0 or at least 20"),
        (["--policy", "random", "random?seed=1", "--at-limit", "judge"], "needs a judge"),
        (["--policy", "random", "random?seed=1", "--judge", "nobody"], "nobody"),
        (["--policy", "random", "random?seed=1", "--judge-cp", "500"], "add --judge"),
        (["--policy", "random", "random?seed=1", "--judge-every", "2"], "add --judge"),
        (["--policy", "random", "random?seed=1", "--sprt-on", "games"], "add --sprt"),
        (["--policy", "random", "random?seed=1", "--rounds", "100", "--random-plies", "1"], "--random-plies"),
        (["--policy", "random", "random?seed=1", "--opening-plies", "4"], "give one by --openings"),
        (["--policy", "random", "random?seed=1", "--openings", "b", "--random-plies", "4"], "leave one of them out"),
    ],
)
def test_bad_arguments_are_one_message_and_leave_nothing(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t"
    command = ["tournament", "--game", TTT.spec, "--rounds", "2", "--out", str(out), *arguments]
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("genpolicy: error: ")
    assert not out.exists()
