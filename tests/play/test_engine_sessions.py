"""What the engine answers, in sessions with fresh processes: both dialects, policies with networks and without."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genpolicy import load_game
from genpolicy_engines.options import EngineOption
from tests.play.engine_policies import save_diffusion
from tests.play.engine_session import ENGINE, Session, before_bestmove, best

pytestmark = [pytest.mark.usefixtures("warm_start"), pytest.mark.xdist_group("engine-sessions")]

MORPHY = "kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1"  # mate in two: 1.Ra6
MATE_OR_NOT = "7k/8/6K1/8/8/8/5Q2/8 w - - 0 1"  # f2f8 mates
SMOTHERED = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"  # d8h4 mates
DECLARED = "+R+R+B+B4K/GGGGSS3/9/9/9/9/9/9/4k4 b 2P 1"  # ten pieces and 28 points in the camp, no check
TSUME_5 = "9/8B/8L/8k/8N/4B2R1/9/9/9 b Sr4g3s3n3l18p 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_diffusion(tmp_path_factory.mktemp("engine") / "small", "chess")


@contextmanager
def greeted(hello: str, *arguments: str) -> Iterator[Session]:
    """An engine that has said who it is; in the end it has printed nothing but protocol, and quits."""
    with Session(*arguments) as session:
        session.ask(hello, until=f"{hello}ok")
        session.ask("isready", until="readyok")
        yield session
        assert session.strays() == []
        assert session.end() == 0


@pytest.fixture(scope="module")
def chess_diffusion(folder: Path) -> Iterator[Session]:
    with greeted("uci", "--policy", str(folder)) as session:
        yield session


@pytest.fixture(scope="module")
def chess_tree() -> Iterator[Session]:
    with greeted("uci", "--policy", "mcts:heuristic", "--game", "chess") as session:
        yield session


@pytest.fixture(scope="module")
def shogi_tree() -> Iterator[Session]:
    with greeted("usi", "--policy", "mcts:heuristic", "--game", "shogi") as session:
        yield session


def field(line: str, word: str) -> int:
    found = re.search(rf"\b{word} (-?\d+)", line)
    assert found, f"no {word} in {line!r}"
    return int(found[1])


# Greeting and options.


def test_options_are_declared_as_other_programs_read_them(chess_diffusion: Session) -> None:
    lines = chess_diffusion.ask("uci", until="uciok")
    options = {o.name: o for o in map(EngineOption.parse, lines) if o}
    wanted = {"Steps", "Sampler", "Temperature", "Seed", "Simulations", "MultiPV", "Device", "Ponder", "Threads"}
    assert wanted <= set(options)
    assert (options["Steps"].kind, options["Steps"].low, options["Steps"].high) == ("spin", 1, 8)
    assert options["Sampler"].kind == "combo"
    assert "easy_first" in options["Sampler"].members
    assert options["Ponder"].kind == "check"
    assert len(options) == sum(line.startswith("option ") for line in lines), "two options of one name"


def test_usi_names_hold_no_blanks(shogi_tree: Session) -> None:
    lines = shogi_tree.ask("usi", until="usiok")
    names = [option.name for option in map(EngineOption.parse, lines) if option]
    assert names
    assert not any(" " in name for name in names)


def test_wrong_options_are_said_and_change_nothing(chess_diffusion: Session) -> None:
    session = chess_diffusion
    for line, word in [
        ("setoption name Steps value 99", "at most 8"),
        ("setoption name Steps value x", "whole number"),
        ("setoption name No Such Thing value 3", "no option"),
        ("setoption name UCI_Chess960 value true", "Chess960 is not supported"),
        ("setoption name Sampler value fastest", "option Sampler stays as it was: Sampler must be one of "),
        ("setoption name Temperature value warm", "number"),
        ("setoption nonsense", "setoption"),
    ]:
        said = session.ask(line, "isready", until="readyok")
        assert any(text.startswith("info string") and word in text for text in said), (line, said)
    assert field(before_bestmove(session.ask("position startpos", "go"))[-1], "nodes") == 8


def test_an_option_that_the_policy_refuses_is_taken_back(chess_diffusion: Session) -> None:
    said = chess_diffusion.ask("setoption name num_futures value 4", "isready", until="readyok")
    assert any("num_futures" in line and "stays as it was" in line for line in said)
    assert best(chess_diffusion.ask("position startpos", "go"))


def test_steps_and_sampler_and_temperature_take_effect(chess_diffusion: Session) -> None:
    session = chess_diffusion
    lines = session.ask("setoption name steps value 3", "position startpos", "go")
    assert field(before_bestmove(lines)[-1], "nodes") == 3
    lines = session.ask("setoption name Sampler value one_call", "go")
    assert field(before_bestmove(lines)[-1], "nodes") == 1
    session.send("setoption name Sampler value ancestral", "setoption name Temperature value 1.0")
    moves = {best(session.ask("go")) for _ in range(6)}
    assert len(moves) > 1, "a drawn move of an untrained network is hardly six times the same"
    session.send("setoption name Sampler value easy_first", "setoption name Steps value 8")
    session.ask("setoption name Temperature value", "isready", until="readyok")


def test_one_seed_plays_one_game(chess_diffusion: Session) -> None:
    def moves(seed: int) -> list[str]:
        chess_diffusion.send("setoption name Sampler value ancestral", "setoption name Temperature value 2.0")
        chess_diffusion.ask(f"setoption name Seed value {seed}", "ucinewgame", "isready", until="readyok")
        return [best(chess_diffusion.ask("position startpos", "go")) for _ in range(3)]

    first, again, other = moves(5), moves(5), moves(6)
    assert first == again
    assert first != other
    chess_diffusion.send("setoption name Sampler value easy_first", "setoption name Temperature value")
    chess_diffusion.ask("setoption name Seed value 0", "isready", until="readyok")


# Limits.


def test_nodes_are_network_calls_and_depth_is_the_horizon(chess_diffusion: Session) -> None:
    for nodes in (1, 2, 5, 8, 1000):
        lines = chess_diffusion.ask("position startpos moves e2e4", f"go nodes {nodes}")
        assert field(before_bestmove(lines)[-1], "nodes") == min(nodes, 8)
    (line,) = [t for t in chess_diffusion.ask("go depth 1") if t.startswith("info string imagined")]
    assert "of 1 moves legal" in line
    (line,) = [t for t in chess_diffusion.ask("go depth 9") if t.startswith("info string imagined")]
    assert "of 2 moves legal" in line
    assert "of 1 positions" in line


def test_a_search_by_the_rules_imagines_nothing(chess_tree: Session) -> None:
    lines = chess_tree.ask("setoption name UCI_Chess960 value false", "position startpos", "go nodes 40")
    assert len(before_bestmove(lines)[-1].split(" pv ")[1].split()) > 1
    assert not any(line.startswith("info string") for line in lines), lines


@pytest.mark.parametrize("go", ["go movetime 200", "go wtime 6000 btime 6000", "go wtime 1000 btime 9 movestogo 4"])
def test_a_clock_ends_the_search(chess_tree: Session, go: str) -> None:
    # So many simulations take minutes: only the clock can end them.
    chess_tree.send("setoption name Simulations value 1000000", "position startpos")
    began = time.perf_counter()
    assert best(chess_tree.ask(go, timeout_s=10))
    assert time.perf_counter() - began > 0.1
    chess_tree.ask("setoption name Simulations value", "isready", until="readyok")


def test_a_clock_is_used_beyond_the_usual_simulations(chess_tree: Session) -> None:
    chess_tree.send("position startpos", "go movetime 60000")
    chess_tree.until(lambda line: line.startswith("info depth") and field(line, "nodes") > 101)
    assert best(chess_tree.ask("stop"))


def test_set_simulations_cap_a_clock(chess_tree: Session) -> None:
    lines = chess_tree.ask("setoption name Simulations value 24", "position startpos", "go wtime 60000 btime 60000")
    assert field(before_bestmove(lines)[-1], "nodes") <= 25
    assert field(before_bestmove(chess_tree.ask("go"))[-1], "nodes") <= 25
    assert field(before_bestmove(chess_tree.ask("go nodes 200"))[-1], "nodes") >= 200
    chess_tree.ask("setoption name Simulations value 100", "isready", until="readyok")


def test_no_time_at_all_is_answered_with_a_legal_move(chess_tree: Session) -> None:
    legal = {"e2e3", "g1f3"}
    for go in ("go movetime 0", "go wtime 0 btime 0", "go wtime -30 btime 50", "go movetime 1"):
        assert best(chess_tree.ask("position startpos", f"{go} searchmoves e2e3 g1f3")) in legal


def test_searchmoves_restricts_every_kind_of_policy(chess_diffusion: Session, chess_tree: Session) -> None:
    for session in (chess_diffusion, chess_tree):
        for move in ("a2a3", "h2h4", "b1a3"):
            lines = session.ask("position startpos", f"go searchmoves {move}")
            assert best(lines) == move
            assert before_bestmove(lines)[-1].split(" pv ")[1].split()[0] == move
        assert best(session.ask("go searchmoves e2e5 g1f3 nodes 4")) == "g1f3"
        said = session.ask("go searchmoves e2e5 nodes 4")
        assert any("illegal" in line or "no legal move" in line for line in said)
        castling = session.ask("position fen 4k3/8/8/8/8/8/8/4K2R w K - 0 1", "go searchmoves e1h1 nodes 4")
        assert best(castling) == "e1g1"


@pytest.mark.parametrize("policy", ["random", "greedy", "alphabeta?depth=1", "engine:stockfish?nodes=100"])
def test_searchmoves_of_policies_without_networks(policy: str) -> None:
    with Session("--policy", policy, "--game", "chess") as session:
        session.send("uci", "isready")
        for move in ("a2a3", "h2h4"):
            assert best(session.ask("position startpos", f"go nodes 40 searchmoves {move}")) == move
        answer = best(session.ask(f"position fen {SMOTHERED}", "go searchmoves a7a6 d8h4"))
        assert answer in ("a7a6", "d8h4")
        if policy != "random":
            assert answer == "d8h4"
        assert session.strays() == []
        assert session.end() == 0


def test_infinite_holds_the_answer_until_stop(chess_diffusion: Session, chess_tree: Session) -> None:
    for session in (chess_diffusion, chess_tree):
        session.send("position startpos", "go infinite")
        session.until("info depth")
        session.stays_silent(0.6)
        lines = session.ask("stop", "isready", until="readyok")
        assert sum(line.startswith("bestmove") for line in lines) == 1, "stop waits for the search"


def test_ponder_holds_the_answer_until_ponderhit(chess_diffusion: Session, chess_tree: Session) -> None:
    for session in (chess_diffusion, chess_tree):
        session.send("position startpos moves e2e4", "go ponder wtime 3000 btime 3000 winc 0 binc 0")
        session.until("info depth")
        session.stays_silent(0.4)
        assert best(session.ask("ponderhit", timeout_s=10))
        session.send("position startpos moves e2e4", "go ponder movetime 100")
        assert best(session.ask("stop"))


def test_isready_is_answered_while_it_searches(chess_tree: Session) -> None:
    chess_tree.send("position startpos", "go infinite")
    lines = chess_tree.ask("isready", until="readyok")  # the search ends only by the next line
    assert not any(line.startswith("bestmove") for line in lines)
    chess_tree.ask("stop")


def test_every_go_has_one_bestmove(chess_tree: Session) -> None:
    before = sum(line.startswith("bestmove") for line in chess_tree.lines)
    chess_tree.send("position startpos", "go infinite", "go infinite", "go nodes 8", "stop", "stop", "ponderhit")
    # The thread that searches takes one after another: where the last has answered, the others can say no more.
    chess_tree.send(f"position fen {SMOTHERED}", "go searchmoves d8h4 nodes 1")
    chess_tree.until("bestmove d8h4")
    assert sum(line.startswith("bestmove") for line in chess_tree.lines) == before + 4


# What is told.


def test_multi_pv_tells_different_moves_best_first(chess_diffusion: Session, chess_tree: Session) -> None:
    for session in (chess_diffusion, chess_tree):
        session.send("setoption name MultiPV value 4", "position startpos")
        lines = before_bestmove(answer := session.ask("go"))[-4:]
        assert [field(line, "multipv") for line in lines] == [1, 2, 3, 4]
        firsts = [line.split(" pv ")[1].split()[0] for line in lines]
        assert len(set(firsts)) == 4
        assert firsts[0] == best(answer)
        session.ask("setoption name MultiPV value 1", "isready", until="readyok")


def test_lines_and_ponder_moves_are_legal(chess_diffusion: Session, chess_tree: Session) -> None:
    game = load_game("chess")
    position: list[str] = []
    for session in (chess_diffusion, chess_tree):
        state = game.parse()
        position = []
        for _ in range(12):
            moves = " moves " + " ".join(position) if position else ""
            answer = session.ask(f"position startpos{moves}", "go nodes 8")
            for line in before_bestmove(answer):
                after = state
                for move in line.split(" pv ")[1].split():
                    after = game.play(after, game.moves.index(move))  # an illegal one is an error
            words = answer[-1].split()
            state = game.play(state, game.moves.index(words[1]))
            if len(words) == 4:
                assert game.moves.index(words[3]) in game.legal(state)
            position.append(words[1])


def test_a_tree_knows_values_and_mates(chess_tree: Session, shogi_tree: Session) -> None:
    lines = chess_tree.ask(f"position fen {MATE_OR_NOT}", "go nodes 200")
    assert best(lines) == "f2f8"
    assert "score mate 1 wdl 1000 0 0" in before_bestmove(lines)[-1]
    lines = chess_tree.ask("position fen 4k3/8/8/8/8/8/8/QQ2K3 b - - 0 1", "go nodes 50")
    assert field(before_bestmove(lines)[-1], "score cp") < -300
    lines = shogi_tree.ask("position sfen 4k4/9/4P4/9/9/9/9/9/4K4 b G 1", "go nodes 200")
    assert best(lines) == "G*5b"
    assert "score mate 1 nodes" in before_bestmove(lines)[-1]


def test_positions_without_a_move(chess_tree: Session, shogi_tree: Session) -> None:
    mated, stalemate = "7k/6Q1/6K1/8/8/8/8/8 b - - 0 1", "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
    for fen in (mated, stalemate):
        assert chess_tree.ask(f"position fen {fen}", "go movetime 50")[-1] == "bestmove (none)"
    assert shogi_tree.ask("position sfen 4k4/4G4/4P4/9/9/9/9/9/4K4 w - 1", "go")[-1] == "bestmove resign"
    assert (
        shogi_tree.ask("position sfen 4k4/4G4/4P4/9/9/9/9/9/4K4 w - 1", "go mate 100", until="checkmate")[-1]
        == "checkmate nomate"
    )


def test_a_won_declaration_is_declared(shogi_tree: Session) -> None:
    assert load_game("shogi").outcome(load_game("shogi").parse(DECLARED)) == 1.0
    assert shogi_tree.ask(f"position sfen {DECLARED}", "go nodes 10")[-1] == "bestmove win"
    one_less = DECLARED.replace("2P", "P")
    assert shogi_tree.ask(f"position sfen {one_less}", "go nodes 10")[-1] not in ("bestmove win", "bestmove resign")


def test_mates_are_found_on_request(chess_tree: Session, shogi_tree: Session) -> None:
    lines = chess_tree.ask(f"position fen {MORPHY}", "go mate 2")
    assert best(lines) == "a1a6"
    assert "score mate 2 wdl 1000 0 0" in before_bestmove(lines)[-1]
    assert len(before_bestmove(lines)[-1].split(" pv ")[1].split()) == 3
    lines = chess_tree.ask("position fen 4k3/8/8/8/8/8/8/QQ2K3 w - - 0 1", "go mate 1 nodes 40")
    assert "score cp" in before_bestmove(lines)[-1], "without a mate the policy chooses"
    for limits in ("nodes 100 depth 1 wtime 1000 btime 1000", "wtime 500 btime 500", "movetime 300"):
        lines = chess_tree.ask("position startpos", f"go mate 20 {limits}")
        assert "score cp" in before_bestmove(lines)[-1], "the policy has a part of the time"
    answer = shogi_tree.ask(f"position sfen {TSUME_5}", "go mate 20000", until="checkmate")[-1].split()
    assert len(answer) == 1 + 5
    game = load_game("shogi")
    state = game.parse(TSUME_5)
    for move in answer[1:]:
        state = game.play(state, game.moves.index(move))
    assert len(game.legal(state)) == 0
    lines = shogi_tree.ask("position startpos", "go mate 300", until="checkmate", timeout_s=10)
    assert lines[-1] in ("checkmate timeout", "checkmate nomate")
    shogi_tree.send("go mate infinite")
    assert shogi_tree.ask("stop", until="checkmate")[-1] in ("checkmate timeout", "checkmate nomate")


# What is wrong.


def test_the_last_good_position_stays(chess_tree: Session) -> None:
    session = chess_tree
    session.send(f"position fen {MATE_OR_NOT}")
    for line in (
        "position startpos moves e2e4 e2e4",
        "position fen 8/8/8/8/8/8/8/8 w - - 0 1",
        "position fen",
        "position",
        "position startpos moves e2e4 xyz",
        "position chess960 5",
    ):
        said = session.ask(line, "isready", until="readyok")
        assert any(text.startswith("info string position") for text in said), (line, said)
    assert best(session.ask("go nodes 200")) == "f2f8"


def test_noise_of_every_kind_is_survived(chess_tree: Session) -> None:
    session = chess_tree
    session.send(
        b"\xff\xfe\x00\x80 position", b"", b"   ", b"\tgo\xff", b"joho debug on", b"debug off", b"register later"
    )
    session.send(b"x" * (1 << 20), b"position startpos moves " + b"e2e4 " * (1 << 18), b"go " + b"\xe3\x81\x82 " * 1000)
    session.until("bestmove")
    shuffle = b"position startpos moves " + b"g1f3 g8f6 f3g1 f6g8 " * 60_000
    endless = b"position startpos moves " + b"e2e4 " * (4 << 20)
    session.send(shuffle, b"setoption name " + b"n" * 100_000 + b" value 1", endless)
    said = session.ask("isready", until="readyok")
    assert said.count("info string a line was too long and is ignored") == 1
    assert best(session.ask("position startpos", "go nodes 4"))


def test_quit_is_obeyed_at_once() -> None:
    for before in ([], ["position startpos", "go infinite"]):
        with Session("--policy", "mcts:heuristic", "--game", "chess") as session:
            session.ask("uci", until="uciok")
            if before:
                session.ask(*before, until="info depth")
            session.send("quit")
            assert session.process.wait(10) == 0  # the search ends only by this line


def test_the_end_of_the_input_lets_a_search_end() -> None:
    lines = b"uci\nposition startpos moves d2d4\ngo nodes 20"  # not even a last line feed
    done = subprocess.run(
        [*ENGINE, "--policy", "mcts:heuristic", "--game", "chess"], input=lines, capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith(b"bestmove ")
    assert done.stderr == b""


def test_a_reader_that_leaves_is_no_crash() -> None:
    command = [*ENGINE, "--policy", "random", "--game", "chess"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"uci\nisready\ngo nodes 1\nisready\n")
        process.stdin.flush()
        assert process.wait(30) in (0, 141, -signal.SIGPIPE)
        assert b"Traceback" not in process.stderr.read()


def test_what_others_print_goes_to_standard_error() -> None:
    code = (
        "import os, sys\n"
        "from genpolicy_play.engine.process import Output\n"
        "output = Output.claim()\n"
        "print('python', flush=True); os.write(1, b'from C\\n'); output.send('readyok', 'info string \\u5c06\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"readyok\ninfo string ??\n"
    assert done.stderr == b"python\nfrom C\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "random", "--game", "connect"], "no engine protocol"),
        (["--policy", "random"], "--game"),
        (["--policy", "rando", "--game", "chess"], "Did you mean"),
        (["--policy", "no/such/folder"], "no such folder"),
        (["--policy", "random", "--game", "chss"], "Did you mean"),
    ],
)
def test_what_cannot_be_served_is_refused_before_the_first_line(arguments: list[str], words: str) -> None:
    done = subprocess.run([*ENGINE, *arguments], input=b"uci\n", capture_output=True, timeout=60)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


def test_a_damaged_folder_is_said_on_both_channels(folder: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes()[: -100 if name.endswith("rs") else None])
    with Session("--policy", str(tmp_path)) as session:
        session.send("uci", "isready")
        assert session.process.wait(60) == 2
        deadline = time.monotonic() + 5
        while b"model.safetensors" not in session.complaints and time.monotonic() < deadline:
            time.sleep(0.05)
        assert b"model.safetensors" in session.complaints
        assert any(line.startswith("info string the policy cannot be loaded") for line in session.lines)
        assert session.strays() == []


def test_a_policy_that_fails_loses_no_answer() -> None:
    code = (
        "import sys\n"
        "from genpolicy_policy_baselines import simple\n"
        "calls = []\n"
        "def fail(self, states, **more):\n"
        "    calls.append(states)\n"
        "    if len(calls) > 1: raise AssertionError('a bug of ours')\n"
        "    return original(self, states, **more)\n"
        "original, simple.RandomPolicy.decide = simple.RandomPolicy.decide, fail\n"
        "from genpolicy.cli import main\n"
        "sys.exit(main(['engine', '--policy', 'random', '--game', 'chess']))\n"
    )
    with Session(command=[sys.executable, "-c", code]) as session:
        session.ask("uci", "isready", until="readyok")
        for _ in range(2):
            lines = session.ask("position startpos", "go")
            assert "info string the policy fails here: a bug of ours" in lines
            assert best(lines) in ("a2a3", "a2a4", "b1a3")
        session.send("go infinite")
        session.stays_silent(0.3)
        assert best(session.ask("stop"))
        assert session.strays() == []
        assert session.end() == 0
