"""That answers come in time: nothing pauses a search, and nobody waits for an answer that nobody plays."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.play.engine_policies import save_diffusion
from tests.play.engine_session import Session, best

pytestmark = pytest.mark.usefixtures("warm_start")

MAIN = "from genpolicy.cli import main\nsys.exit(main(['engine', *sys.argv[1:]]))\n"


def patched(code: str, *arguments: str) -> list[str]:
    """A command that runs code, then the engine."""
    return [sys.executable, "-c", f"import sys\n{code}{MAIN}", *arguments]


def took_s(session: Session, lines: Sequence[str], stop: str) -> float:
    """Seconds from ``stop`` to ``bestmove``."""
    session.send(*lines)
    time.sleep(0.05)
    began = time.perf_counter()
    session.ask(stop)
    return time.perf_counter() - began


def test_pondering_that_came_to_nothing_costs_no_time() -> None:
    # The policy takes a second for a move. The other side has played something else than was pondered on: "stop" and
    # the next "go" follow each other on our clock.
    code = (
        "import time\n"
        "from genpolicy_policy_baselines import simple\n"
        "def slow(self, states, **more):\n"
        "    time.sleep(1.0)\n"
        "    return original(self, states, **more)\n"
        "original, simple.RandomPolicy.decide = simple.RandomPolicy.decide, slow\n"
    )
    with Session(command=patched(code, "--policy", "random", "--game", "chess")) as session:
        session.ask("uci", "isready", until="readyok")
        lines = ("position startpos moves e2e4", "go ponder movetime 100")
        assert min(took_s(session, lines, "stop") for _ in range(3)) < 0.15
        assert not any("legal move is played" in line for line in session.lines), "nobody plays that answer"
        # After a ponder hit somebody does: then it is said.
        session.send(*lines, "ponderhit")
        assert any("legal move is played" in line for line in session.until("bestmove"))
        assert session.strays() == []


def test_a_first_call_ends_when_pondering_does(tmp_path: Path) -> None:
    # Two slow blocks make a call: one that is stopped in the first never comes to the second.
    code = (
        "import time\n"
        "from genpolicy.networks import transformer\n"
        "def slow(self, *arguments):\n"
        "    print('block', file=sys.stderr, flush=True)\n"
        "    time.sleep(0.4)\n"
        "    return original(self, *arguments)\n"
        "original, transformer.Block.forward = transformer.Block.forward, slow\n"
    )
    folder = save_diffusion(tmp_path, "chess", num_steps=2)
    with Session(command=patched(code, "--policy", str(folder))) as session:
        session.ask("uci", "isready", until="readyok", timeout_s=120)
        before = session.complaints.count(b"block")
        took_s(session, ("position startpos moves e2e4", "go ponder movetime 100"), "stop")
        assert best(session.ask("go nodes 1"))
        assert session.complaints.count(b"block") <= before + 1 + 2
        assert session.strays() == []


@pytest.mark.parametrize("policy", ["mcts:heuristic?simulations=1000000", "alphabeta?depth=30"])
def test_a_search_is_ready_before_it_has_searched(policy: str) -> None:
    # Its own limits are for a move: a GUI waits some ten seconds for readyok.
    with Session("--policy", policy, "--game", "chess") as session:
        session.ask("uci", "isready", until="readyok", timeout_s=20)
        assert best(session.ask("position startpos", "go movetime 50"))
        assert session.strays() == []


def test_an_analysis_that_ends_in_its_first_simulations_has_a_move_of_the_policy() -> None:
    # The first simulations are a batch of eight positions, here of two seconds.
    code = (
        "import time\n"
        "from genpolicy_policy_baselines import simple\n"
        "def slow(self, states, **more):\n"
        "    time.sleep(0.25 * len(states))\n"
        "    return original(self, states, **more)\n"
        "original, simple.RandomPolicy.decide = simple.RandomPolicy.decide, slow\n"
    )
    with Session(command=patched(code, "--policy", "mcts:random?value=heuristic", "--game", "chess")) as session:
        session.ask("uci", "isready", until="readyok")
        session.send("position startpos", "go infinite")
        session.until("info depth", timeout_s=1.5)
        assert best(session.ask("stop"))
        assert not any("legal move is played" in line for line in session.lines)
        assert session.strays() == []


def test_no_garbage_is_collected_in_a_search() -> None:
    # A full collection stops every thread for a quarter of a second where torch is loaded.
    code = (
        "import gc\n"
        "def tell(phase, info):\n"
        "    if phase == 'start': print('collects', info['generation'], file=sys.stderr, flush=True)\n"
        "gc.callbacks.append(tell)\n"
    )
    with Session(command=patched(code, "--policy", "mcts:heuristic?reuse=true", "--game", "chess")) as session:
        session.ask("uci", "isready", until="readyok")
        before = session.complaints.count(b"collects")
        for move in ("", " moves e2e4", " moves e2e4 e7e5"):
            session.ask(f"position startpos{move}", "go movetime 400")
        session.ask("isready", until="readyok")
        assert session.complaints.count(b"collects") == before


def test_a_search_that_is_stopped_before_the_policy_is_loaded_is_answered_by_it() -> None:
    code = (
        "import time\n"
        "from genpolicy_play.engine.host import Host\n"
        "def slow(self):\n"
        "    time.sleep(2.0)\n"
        "    return original(self)\n"
        "original, Host.load = Host.load, slow\n"
    )
    with Session(command=patched(code, "--policy", "greedy", "--game", "chess")) as session:
        mate = "position fen 7k/8/6K1/8/8/8/8/3Q4 w - - 0 1"
        assert best(session.ask(b"\xef\xbb\xbfuci", mate, "go infinite", "stop")) in ("d1d8", "d1h5", "d1h1")
        assert session.lines[-1].startswith("bestmove")
        assert not any("legal move is played" in line for line in session.lines)
        assert "uciok" in session.lines
        session.send("go infinite", "quit")
        assert session.process.wait(10) == 0
    with Session(command=patched(code, "--policy", "greedy", "--game", "chess")) as session:
        session.ask("uci", until="uciok")
        session.send("isready", "go movetime 100", "quit")  # nothing is loaded yet
        assert session.process.wait(10) == 0


@pytest.mark.parametrize("policy", ["mcts:heuristic?simulations=50", "alphabeta?nodes=500", "greedy"])
def test_a_ponder_hit_may_bring_the_clock_or_none(policy: str) -> None:
    with Session("--policy", policy, "--game", "shogi") as session:
        session.ask("usi", "isready", until="readyok")
        ponder = ("position startpos moves 7g7f", "go ponder")
        # As ShogiHome does where it ponders early: the times come with the hit.
        hit = "ponderhit btime 0 wtime 0 byoyomi 300"
        assert min(took_s(session, ponder, hit) for _ in range(3)) < 0.3 + 0.5
        # No clock at all: the policy's own limits.
        assert min(took_s(session, ponder, "ponderhit") for _ in range(2)) < 3
        assert session.strays() == []
