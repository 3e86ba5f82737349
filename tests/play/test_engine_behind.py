"""What is told of the engine behind an ``engine:`` policy: its nodes, its line and what to ponder on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import Any

import pytest

from genpolicy import load_game, load_policy
from genpolicy.data.oracle import Line, Oracle
from genpolicy_engines.oracle_policy import OraclePolicy
from tests.play.engine_session import Session, before_bestmove

pytestmark = pytest.mark.usefixtures("warm_start")

STOCKFISH = shutil.which("stockfish", path="/usr/games:/usr/bin:/usr/local/bin:/bin")
needs_stockfish = pytest.mark.skipif(STOCKFISH is None, reason="needs stockfish")
LADDER = "7k/8/8/8/8/8/R7/1R4K1 w - - 0 1"  # mate in two: a rook each way


@needs_stockfish
def test_nodes_line_and_ponder_move_are_the_engines() -> None:
    with Session("--policy", "engine:stockfish?nodes=2000", "--game", "chess") as session:
        session.ask("uci", "isready", until="readyok")
        lines = session.ask("position startpos", "go")
        info = before_bestmove(lines)[-1]
        nodes = re.search(r"nodes (\d+)", info)
        assert nodes
        assert 1000 <= int(nodes[1]) <= 4000, "stockfish looks at its clock every so many nodes"
        assert "score cp " in info
        line = info.split(" pv ")[1].split()
        assert 2 <= len(line) <= 6
        assert lines[-1] == f"bestmove {line[0]} ponder {line[1]}"
        assert not any(" imagined " in each for each in lines), "its boards are the rules' own"
        lines = session.ask(f"position fen {LADDER}", "go")
        assert "score mate 2 wdl 1000 0 0" in before_bestmove(lines)[-1]
        assert session.strays() == []
        assert session.end() == 0


@needs_stockfish
def test_a_line_of_an_engine_is_played_out_by_the_rules() -> None:
    game = load_game("chess")
    policy = load_policy("engine:stockfish?nodes=3000", game=game)
    try:
        state = game.parse()
        decision = policy.decide([state])[0]
        assert decision.line[0] == decision.move
        assert len(decision.line) == len(decision.states) <= 6
        for move, text in zip(decision.line, decision.states, strict=True):
            state = game.play(state, move)
            assert game.format(state) == text
    finally:
        policy.close()


class Said(Oracle):
    """Says one line."""

    def __init__(self, line: Line) -> None:
        self.game = load_game("chess")
        self.line = line

    def describe(self) -> dict[str, Any]:
        return {"name": "said"}

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        return [self.line for _ in states]


@pytest.mark.parametrize(
    ("variation", "shown"),
    [
        ("e2e4 e7e5 e4e5 g8f6", "e2e4 e7e5"),  # an illegal move ends it
        ("e2e4 e7e5 nonsense", "e2e4 e7e5"),
        ("d2d4 d7d5", "e2e4"),  # of another move
        ("", "e2e4"),
        ("e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5a4 g8f6", "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6"),
    ],
)
def test_what_an_engine_says_beyond_its_move_is_followed_as_far_as_it_is_legal(variation: str, shown: str) -> None:
    game = load_game("chess")
    line = Line((game.moves.index("e2e4"),), ("cp:20",), num_nodes=77, variation=tuple(variation.split()))
    decision = OraclePolicy(Said(line), "said").decide([game.parse()])[0]
    assert " ".join(game.moves[move] for move in decision.line) == shown
    assert decision.stats["nodes"] == 77


@pytest.mark.parametrize(("score", "plies"), [("mate:1", 1), ("mate:3", 5), ("mate:-2", -4), ("cp:30", None)])
def test_a_mate_is_told_in_plies(score: str, plies: int | None) -> None:
    game = load_game("chess")
    line = Line((game.moves.index("e2e4"),), (score,))
    stats = OraclePolicy(Said(line), "said").decide([game.parse()])[0].stats
    assert stats.get("mate_plies") == (None if plies is None else abs(plies))


def test_a_missing_engine_names_no_option_of_another_command() -> None:
    with pytest.raises((LookupError, OSError, ValueError, RuntimeError)) as caught:
        load_policy("engine:no-such-engine?nodes=5", game="chess")
    assert "--oracle" not in str(caught.value)
    assert "/path/to/no-such-engine" in str(caught.value)
