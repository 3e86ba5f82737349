"""What the engine plays and says where its policy fails or finds no time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from genpolicy import load_game
from genpolicy.policies.base import Variation
from genpolicy.policies.thinking import Answer
from genpolicy_play.engine.protocol import Go
from genpolicy_play.engine.search import Search
from genpolicy_play.engine.shortcuts import Plan
from tests.play.engine_policies import save_diffusion
from tests.play.engine_session import Session, before_bestmove, best

pytestmark = pytest.mark.usefixtures("warm_start")

MATE_OR_NOT = "position fen 7k/8/6K1/8/8/8/5Q2/8 w - - 0 1"  # f2f8 mates


def patched(code: str, *arguments: str) -> list[str]:
    main = "from genpolicy.cli import main\nsys.exit(main(['engine', *sys.argv[1:]]))\n"
    return [sys.executable, "-c", f"import sys, time\n{code}{main}", *arguments]


def failing(which: Sequence[int], sleep_s: float = 0.0) -> str:
    """Code that lets some of the greedy policy's decisions fail; the first one (0) is made in loading."""
    return (
        "from genpolicy_policy_baselines import simple\n"
        "calls = []\n"
        "def decide(self, states, **more):\n"
        "    calls.append(states)\n"
        f"    if len(calls) - 1 in {list(which)}:\n"
        f"        time.sleep({sleep_s})\n"
        "        raise RuntimeError('the pipe is broken')\n"
        "    return original(self, states, **more)\n"
        "original, simple.GreedyPolicy.decide = simple.GreedyPolicy.decide, decide\n"
    )


def test_a_policy_that_fails_once_is_asked_once_more() -> None:
    with Session(command=patched(failing([1, 2, 4]), "--policy", "greedy", "--game", "chess")) as session:
        session.ask("uci", "isready", until="readyok")
        lines = session.ask(MATE_OR_NOT, "go")  # fails twice
        assert "info string the policy fails here: the pipe is broken" in lines
        said = "info string the policy failed (the pipe is broken): a legal move is played instead"
        assert said in lines
        assert not any("in time" in line for line in lines)
        assert best(session.ask("go")) == "f2f8"
        lines = session.ask("go")  # fails once
        assert best(lines) == "f2f8"
        assert "info string the policy fails here: the pipe is broken" in lines
        assert said not in lines
        assert session.strays() == []


@pytest.mark.parametrize("method", ["seed", "with_options"])
def test_a_policy_that_fails_between_two_searches_still_answers(method: str) -> None:
    code = (
        "from genpolicy_policy_baselines import simple\n"
        "def fail(self, *arguments, **more):\n"
        "    raise RuntimeError('the pipe is broken')\n"
        f"simple.GreedyPolicy.{method} = fail\n"
    )
    with Session(command=patched(code, "--policy", "greedy", "--game", "chess")) as session:
        session.ask("uci", "isready", until="readyok")
        lines = session.ask("ucinewgame", "setoption name Seed value 3", "isready", until="readyok", timeout_s=20)
        assert any("the pipe is broken" in line for line in lines)
        lines = session.ask(MATE_OR_NOT, "go", timeout_s=20)
        assert best(lines) == "f2f8"
        assert not any("broken" in line for line in lines), "an option that failed was taken back"
        assert session.strays() == []


def test_a_second_try_is_within_the_time() -> None:
    # It fails when the time is over: then there is none for another try.
    code = failing([1], sleep_s=0.6)
    with Session(command=patched(code, "--policy", "greedy", "--game", "chess")) as session:
        session.ask("uci", "isready", until="readyok")
        lines = session.ask(MATE_OR_NOT, "go movetime 100")
        assert any("no answer of the policy in time: a legal move is played" in line for line in lines)
        assert best(session.ask("go")) == "f2f8"
        assert not any("once more" in line for line in session.lines)


def test_a_policy_that_fails_while_it_ponders_answers_when_it_is_told_to() -> None:
    code = failing([1, 2])
    with Session(command=patched(code, "--policy", "greedy", "--game", "chess")) as session:
        session.ask("uci", "isready", until="readyok")
        session.send(MATE_OR_NOT, "go ponder")
        session.until("info string trying once more")
        session.ask("isready", until="readyok")
        assert not any(line.startswith("bestmove") for line in session.lines)
        assert any("the policy failed (the pipe is broken)" in line for line in session.ask("ponderhit"))


@pytest.mark.parametrize(
    "text", ["8/8/8/8/8/8/8/8 w - - 0 1", "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq x 0 1"]
)
def test_the_reason_against_a_position_is_said_in_full(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        load_game("chess").parse(text)
    with Session("--policy", "random", "--game", "chess") as session:
        lines = session.ask("uci", "isready", f"position fen {text}", "isready", until="readyok")
        lines += session.until("readyok")
        (said,) = [line for line in lines if line.startswith("info string position: ")]
        assert len(str(caught.value)) > 60
        assert str(caught.value) in said


def test_what_was_planned_is_played_where_there_is_no_time() -> None:
    game = load_game("chess")

    def after(*texts: str) -> tuple[object, list[int]]:
        state, moves = game.parse(), []
        for text in texts:
            moves.append(game.moves.index(text))
            state = game.play(state, moves[-1])
        return state, moves

    plan = Plan(game)
    line = tuple(after("e2e4", "e7e5", "g1f3", "b8c6")[1])
    plan.remember(game.parse(), Answer((Variation((*line, -1)),)))

    def played(*texts: str, allowed: Sequence[str] = ()) -> str:
        state, _ = after(*texts)
        legal = [game.moves.index(text) for text in allowed] or game.legal(state).tolist()
        search = Search(state, legal, restricted=bool(allowed), go=Go())
        found, said = plan.substitute(search)
        assert ("planned" in said) is (game.moves[found.move] == "g1f3")
        return game.moves[found.move]

    assert played("e2e4", "e7e5") == "g1f3"
    assert played("e2e4", "e7e5", allowed=["a2a3", "h2h3"]) == "a2a3"
    assert played("e2e4", "d7d5") == game.moves[game.legal(after("e2e4", "d7d5")[0]).tolist()[0]]
    # An answer of one move plans nothing, and takes nothing back.
    plan.remember(game.parse(), Answer((Variation((line[0],)),)))
    assert played("e2e4", "e7e5") == "g1f3"


@pytest.mark.parametrize("game", ["chess", pytest.param("shogi", marks=pytest.mark.thorough)])
def test_the_first_network_call_is_played_where_there_is_time_for_no_more(tmp_path: Path, game: str) -> None:
    # Two slow blocks make a call, which thus takes half a second; a whole decision has eight. What is played after a
    # second is the marginal of the first call, never a move that nobody chose.
    code = (
        "from genpolicy.networks import transformer\n"
        "def slow(self, *arguments):\n"
        "    time.sleep(0.25)\n"
        "    return original(self, *arguments)\n"
        "original, transformer.Block.forward = transformer.Block.forward, slow\n"
    )
    folder = save_diffusion(tmp_path / "small", game)
    hello = "uci" if game == "chess" else "usi"
    clock = "go wtime 0 btime 0 byoyomi 1000" if game == "shogi" else "go wtime 0 btime 0 winc 1000 binc 1000"
    with Session(command=patched(code, "--policy", str(folder))) as session:
        session.ask(hello, "isready", until="readyok", timeout_s=120)
        first = best(session.ask("position startpos", "go nodes 1"))
        for _ in range(2):
            lines = session.ask(clock)
            assert not any("no answer of the policy" in line for line in lines)
            assert best(lines) == first
            assert " nodes 1 " in before_bestmove(lines)[-1]
        assert session.strays() == []
