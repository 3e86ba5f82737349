"""The calls of the programs that docs/playing-in-a-gui.md connects, made as their sources make them; and its blocks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import chess
import chess.engine
import chess.pgn
import pytest
import yaml  # type: ignore[import-untyped]

from genpolicy import load_game
from tests.play.engine_policies import save_diffusion
from tests.play.engine_session import ENGINE, Session, best

pytestmark = pytest.mark.usefixtures("warm_start")

PAGE = Path(__file__).parents[2] / "docs" / "playing-in-a-gui.md"


def blocks(heading: str, language: str) -> list[str]:
    """The blocks of one language below a heading."""
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (found,) = [text for text in section if text.startswith(f"{heading}\n")]
    return re.findall(rf"```{language}\n(.*?)```", found, re.DOTALL)


def script(folder: Path, *arguments: str) -> Path:
    """The script of the page, with paths of this machine."""
    (text,) = blocks("A script for programs that ask for one file", "sh")[:1]
    command = " ".join([*ENGINE, *arguments])
    path = folder / "genpolicy.sh"
    path.write_text(re.sub(r"exec .*", f"exec {command}", text))
    path.chmod(0o755)
    return path


def test_the_calls_of_lichess_bot(tmp_path: Path) -> None:
    """lichess-bot's engine_wrapper.py: python-chess's client, a first move of ten seconds, clocks, pondering."""
    config = yaml.safe_load(blocks("lichess-bot", "yaml")[0])
    engine_path = script(tmp_path, "--policy", str(save_diffusion(tmp_path / "policy", "chess")))
    options = config["engine"]["uci_options"]
    assert config["engine"]["protocol"] == "uci"
    # Its own time-out is 10 s: too short to load torch on a machine that is busy with other tests.
    popen: dict[str, Any] = {"timeout": 60.0, "setpgrp": True, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    with chess.engine.SimpleEngine.popen_uci([str(engine_path)], **popen) as engine:
        managed = [name for name in options if chess.engine.Option(name, "", None, None, None, None).is_managed()]
        assert managed == []
        engine.configure(options)
        opponent = chess.engine.Opponent(name="somebody", title="BOT", rating=1500, is_engine=True)
        engine.send_opponent_information(opponent=opponent, engine_rating=1400)
        board = chess.Board()
        for move in range(6):
            limit = chess.engine.Limit(time=10.0, clock_id="first move")
            if move:
                limit = chess.engine.Limit(
                    white_clock=3.0, black_clock=3.0, white_inc=0.1, black_inc=0.1, clock_id="real time"
                )
            answer = engine.play(
                board, limit, info=chess.engine.INFO_ALL, ponder=move > 0, draw_offered=False, root_moves=None
            )
            assert answer.move is not None
            assert {"depth", "nodes", "pv", "time"} <= set(answer.info)
            board.variation_san(answer.info.get("pv", []))  # it is shown so in the chat
            board.push(answer.move)
            board.push(answer.ponder if move % 2 and answer.ponder else next(iter(board.legal_moves)))
        engine.send_game_result(board, chess.WHITE, "Black resigned")
        engine.ping()
        engine.quit()


def test_the_calls_of_cute_chess() -> None:
    """Cute Chess's uciengine.cpp: a ping before it ponders, another after a ponder that came to nothing."""
    with Session("--policy", "greedy", "--game", "chess") as session:
        lines = session.ask("uci", until="uciok")
        assert any(line.startswith("option name Ponder type check") for line in lines), "or it never ponders"
        session.ask("isready", until="readyok")
        session.send("ucinewgame", "setoption name Ponder value true", "position startpos")
        clock = "wtime 10000 btime 10000 winc 100 binc 100"
        words = session.ask("isready", f"go {clock}")[-1].split()
        moves = f"{words[1]} e7e5"
        session.ask(f"position startpos moves {moves}", "isready", until="readyok")
        session.send(f"go ponder {clock}")
        assert best(session.ask("ponderhit"))
        session.send(f"position startpos moves {moves}", f"go ponder {clock}")
        session.ask("stop")
        session.ask(f"position startpos moves {words[1]} d7d5", "isready", until="readyok")
        assert best(session.ask("go movetime 100"))
        session.send("quit")
        assert session.process.wait(10) == 0
        assert session.strays() == []
    # Its own words for the options of the page's command line.
    (command,) = blocks("Cute Chess", "sh")
    words = command.replace("\\\n", " ").split()
    known = {"-engine", "-each", "-games", "-repeat", "-pgnout"}
    assert {word for word in words if word.startswith("-")} == known
    assert {word.split("=")[0] for word in words if "=" in word} == {"name", "cmd", "arg", "proto", "tc"}
    assert json.loads(blocks("Cute Chess", "json")[0])["protocol"] == "uci"


def test_the_calls_of_banksia() -> None:
    """Banksia's uciengine.cpp: its regular expression for options, every clock with movestogo."""
    with Session("--policy", "greedy", "--game", "chess") as session:
        lines = session.ask("uci", until="uciok")
        option = re.compile(r"option name (.*) type (combo|spin|button|check|string)(.*)")
        for line in lines:
            if line.startswith("option"):
                found = option.search(line)
                assert found is not None
                if found[2] == "spin":
                    assert re.search(r"(.*)default (.+) min (.+) max (.+)", found[3])
                if found[2] == "combo":
                    assert " var " in found[3]
                    assert "var" not in found[3].replace(" var ", ""), "it looks for these letters anywhere"
        session.ask("isready", until="readyok")
        session.send("ucinewgame", "position startpos moves e2e4")
        assert best(session.ask("go wtime 2000 btime 2000 winc 0 binc 0 movestogo 40"))
        assert session.strays() == []
    entry = json.loads(blocks("Banksia", "json")[0])["app"]
    assert set(entry) == {"name", "protocol", "command", "ponderable"}


def test_the_calls_of_shogihome() -> None:
    """ShogiHome's engine.ts: options by pairs of words, times with the ponder hit, go infinite, go mate infinite."""
    game: Any = load_game("shogi")
    with Session("--policy", "mcts:heuristic?simulations=50", "--game", "shogi") as session:
        for line in session.ask("usi", until="usiok"):
            if line.startswith("option "):
                words = line.split(" ")[1:]
                assert words[0] == "name"
                assert words[2] == "type"
                assert len(words) % 2 == 0
                assert set(words[4::2]) <= {"default", "min", "max", "var"}
        session.send("setoption name USI_Hash value 32", "setoption name USI_Ponder value true")
        session.ask("isready", until="readyok")
        session.send("usinewgame", "position startpos")
        assert not any("no option" in line for line in session.lines)
        move = best(session.ask("go btime 1000 wtime 1000 byoyomi 100"))
        assert game.moves.index(move) in game.legal(game.parse())
        session.send(f"position startpos moves {move} 3c3d", "go ponder")
        assert best(session.ask("ponderhit btime 0 wtime 0 byoyomi 100"))
        session.send(f"position startpos moves {move}", "go infinite")
        session.until("info depth")
        session.ask("stop")
        session.send(f"position startpos moves {move} 8c8d", "go mate infinite")
        assert session.ask("stop", until="checkmate")[-1] in ("checkmate timeout", "checkmate nomate")
        session.send("gameover win", "quit")
        assert session.process.wait(10) == 0
        assert session.strays() == []


def test_the_page_names_options_that_there_are(tmp_path: Path) -> None:
    with Session("--policy", str(save_diffusion(tmp_path, "chess"))) as session:
        names = {
            line.split(" type ")[0][12:] for line in session.ask("uci", until="uciok") if line.startswith("option")
        }
    assert {"Move Overhead", "Threads", "Sampler", "Steps", "Simulations", "Ponder"} <= names
    assert "Hash" not in names
    assert "SyzygyPath" not in names
    for text in blocks("ShogiArena", "yaml"):
        assert yaml.safe_load(text)
    (code,) = blocks("python-chess", "python")
    compile(code, str(PAGE), "exec")


@pytest.mark.slow
def test_a_match_in_xboard(tmp_path: Path) -> None:
    """The page's line, in a window that nobody sees."""
    needed = ("xboard", "polyglot", "stockfish", "xvfb-run")
    path = f"{os.environ.get('PATH', '')}:/usr/games"
    missing = [name for name in needed if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    engine_path = script(tmp_path, "--policy", str(save_diffusion(tmp_path / "policy", "chess")))
    (line,) = blocks("XBoard", "sh")
    words = [str(engine_path) if word.endswith("genpolicy.sh") else word for word in line.split()]
    done = subprocess.run(
        ["xvfb-run", "-a", *words], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, timeout=300
    )
    assert b"Match genpolicy" in done.stderr + done.stdout
    games = (tmp_path / "games.pgn").read_text()
    assert games.count('[Result "') == 2
    for reason in ("illegal", "forfeit", "disconnect", "exited", "Time"):
        assert reason not in re.sub(r"\[TimeControl.*", "", games)
    with (tmp_path / "games.pgn").open() as file:
        for _ in range(2):
            game = chess.pgn.read_game(file)
            assert game is not None
            assert game.errors == []
            assert game.end().board().ply() > 4


def test_a_gui_that_sets_every_option_to_its_default_is_told_nothing(tmp_path: Path) -> None:
    """Some of them belong to other samplers than the policy's."""
    with Session("--policy", str(save_diffusion(tmp_path / "policy", "chess"))) as session:
        names = []
        for line in session.ask("uci", until="uciok"):
            found = re.fullmatch(r"option name (.+) type (?!button)\w+ default ?(.*?)(?: (?:min|max|var) .*)?", line)
            if found is not None:
                names.append(found[1])
                session.send(f"setoption name {found[1]} value {found[2]}")
        assert {"Sampler", "kernel", "eta", "MultiPV"} <= set(names)
        assert session.ask("isready", until="readyok") == ["readyok"]
        said = session.ask("setoption name kernel value euler", "isready", until="readyok")
        assert any("option kernel stays as it was" in line for line in said)
        assert best(session.ask("position startpos", "go"))


def test_an_option_set_to_its_default_leaves_the_search_in_the_imagination_on() -> None:
    """One that says how a future is sampled turns it off, if it is chosen."""
    with Session("--policy", "chess") as session:
        session.ask("uci", until="uciok")
        for sampler, searches in (("by_ply", True), ("one_call", False), ("by_ply", True)):
            session.ask(f"setoption name Sampler value {sampler}", "isready", until="readyok")
            said = session.ask("position startpos", "go", until="bestmove")
            assert any(" score " in line for line in said if line.startswith("info")) == searches
