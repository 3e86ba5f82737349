"""Engines as policies: limits, skill, value and line, what they see of the past, and what becomes of failing ones."""

from __future__ import annotations

import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("chess")

import genpolicy
from genpolicy.errors import EngineError
from genpolicy.testing import check_policy
from genpolicy.testing.policies import check_decision
from genpolicy.values import score_to_value
from genpolicy_engines.oracle import find_engine
from genpolicy_engines.policy import EnginePolicy

GAME = genpolicy.load_game("chess")

ENGINE = """#!{python}
import os, sys, time
log = open({log!r}, "a")
searches = 0
for line in sys.stdin:
    words = line.split()
    log.write(line)
    log.flush()
    if words[:1] == ["uci"]:
        print("id name Fake\\noption name Hash type spin default 16")
        print("option name Skill Level type spin default 20 min 0 max 20")
        print("option name UCI_LimitStrength type check default false")
        print("option name UCI_Elo type spin default 1500 min 100 max 3000")
        print("uciok", flush=True)
    elif words[:1] == ["isready"]:
        print("readyok", flush=True)
    elif words[:1] == ["go"]:
        {action}
        print("info depth 1 score cp 50 nodes 7 pv {move}")
        print("bestmove {move}", flush=True)
        {after}
"""


def fake(folder: Path, action: str = "pass", move: str = "g1f3", after: str = "pass") -> tuple[Path, Path]:
    """An engine that always answers one move; what it was told is in the second file."""
    log = folder / "told"
    log.touch()
    program = folder / "engine"
    program.write_text(ENGINE.format(python=sys.executable, log=str(log), action=action, move=move, after=after))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program, log


def play(moves: str, text: str | None = None) -> Any:
    state = GAME.parse(text)
    for move in moves.split():
        state = GAME.play(state, GAME.moves.index(move))
    return state


def test_options_reach_the_engine(tmp_path: Path) -> None:
    program, log = fake(tmp_path)
    spelling = f"engine:{program}?nodes=5&movetime_ms=200&Skill%20Level=5&UCI_Elo=1800"
    policy = genpolicy.load_policy(spelling, game=GAME, seed=3, device="cpu")
    try:
        decision = policy.decide([GAME.parse()])[0]
    finally:
        policy.close()
    assert (GAME.moves[decision.move], decision.value) == ("g1f3", pytest.approx(score_to_value("cp:50")))
    told = log.read_text().splitlines()
    assert {"setoption name Skill Level value 5", "setoption name UCI_Elo value 1800"} <= set(told)
    assert "setoption name UCI_LimitStrength value true" in told
    assert "go nodes 5 movetime 200" in told
    assert "Skill Level=5" in policy.label


def test_a_blank_is_as_good_as_its_code_and_the_check_may_be_given(tmp_path: Path) -> None:
    program, log = fake(tmp_path)
    spelling = f"engine:{program}?nodes=5&Skill Level=0&UCI_Elo=1800&UCI_LimitStrength=false"
    genpolicy.load_policy(spelling, game="chess").close()
    told = log.read_text().splitlines()
    assert {"setoption name Skill Level value 0", "setoption name UCI_LimitStrength value false"} <= set(told)


def test_the_engine_is_told_how_the_game_came_there(tmp_path: Path) -> None:
    program, log = fake(tmp_path, move="g1h1")
    start = "6k1/5ppp/8/8/8/8/4QPPP/6K1 w - - 0 1"
    policy = genpolicy.load_policy(f"engine:{program}?nodes=5", game=GAME)
    try:
        policy.decide([play("g1h1 g8h8 h1g1 h8g8", start)])
    finally:
        policy.close()
    assert f"position fen {start} moves g1h1 g8h8 h1g1 h8g8" in log.read_text().splitlines()


@pytest.mark.parametrize(
    ("action", "move", "after", "message"),
    [
        ("os._exit(3)", "g1f3", "pass", "ended with status 3"),
        ("time.sleep(60)", "g1f3", "pass", "hangs: no answer within"),
        ("pass", "g1g5", "pass", "illegal move: g1g5"),
        ("pass", "(none)", "pass", r"\(none\)"),
    ],
)
def test_one_that_fails_is_an_error_that_names_engine_and_position(
    tmp_path: Path, action: str, move: str, after: str, message: str
) -> None:
    program, log = fake(tmp_path, action, move, after)
    policy = genpolicy.load_policy(f"engine:{program}?nodes=5&timeout_s=1", game=GAME)
    try:
        with pytest.raises(EngineError, match=message) as caught:
            policy.decide([GAME.parse()])
        assert str(program) in str(caught.value)
        assert GAME.format(GAME.parse()) in str(caught.value)
        assert log.read_text().splitlines().count("go nodes 5") == 1  # no second try
        # For the next position it is there again, to fail again.
        with pytest.raises(EngineError, match=message):
            policy.decide([GAME.parse()])
    finally:
        policy.close()


def test_one_that_ends_between_two_moves_is_found_out(tmp_path: Path) -> None:
    program, _ = fake(tmp_path, after="os._exit(4)")
    policy = genpolicy.load_policy(f"engine:{program}?nodes=5", game=GAME)
    try:
        assert GAME.moves[policy.decide([GAME.parse()])[0].move] == "g1f3"
        with pytest.raises(EngineError, match=r"status 4.*|ended"):
            policy.decide([GAME.parse()])
        assert policy.decide([GAME.parse()])[0].move >= 0  # and started again
    finally:
        policy.close()


@pytest.fixture
def stockfish() -> str:
    try:
        return find_engine("stockfish")
    except EngineError as error:
        pytest.skip(str(error))


def test_stockfish_keeps_the_laws_and_mates(stockfish: str) -> None:
    policy = EnginePolicy.from_spec("stockfish", {"game": GAME, "nodes": 500, "horizon": 3})
    try:
        states = [GAME.parse(), play("e2e4 e7e5")]
        check_policy(policy, states, max_plies=4)
        for fen, move in (
            ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", "a1a8"),
            ("r3k3/8/8/8/8/8/5PPP/6K1 b - - 0 1", "a8a1"),
        ):
            decision = policy.decide([GAME.parse(fen)])[0]
            assert (GAME.moves[decision.move], decision.value) == (move, 1.0)
        assert len(policy.decide([GAME.parse()])[0].line) == 3
    finally:
        policy.close()


@pytest.mark.parametrize("options", ["nodes=200&Skill%20Level=0", "movetime_ms=20&UCI_Elo=1400", "depth=3"])
def test_stockfish_at_any_strength(stockfish: str, options: str) -> None:
    policy = genpolicy.load_policy(f"engine:stockfish?{options}", game=GAME)
    try:
        for state in (GAME.parse(), play("e2e4")):
            check_decision(policy, state, policy.decide([state])[0])
    finally:
        policy.close()


def test_wrong_options_name_what_there_is(stockfish: str) -> None:
    with pytest.raises(ValueError, match="needs a limit"):
        genpolicy.load_policy("engine:stockfish", game=GAME)
    with pytest.raises(EngineError, match="Skill Level"):
        genpolicy.load_policy("engine:stockfish?nodes=5&Skil Level=3", game=GAME)
    with pytest.raises(EngineError, match="0 to 20"):
        genpolicy.load_policy("engine:stockfish?nodes=5&Skill Level=30", game=GAME)
    assert shutil.which("no-such-engine-here") is None
    with pytest.raises(EngineError, match="no-such-engine-here"):
        genpolicy.load_policy("engine:no-such-engine-here?nodes=5", game=GAME)


def test_a_seed_reaches_an_oracle_that_draws() -> None:
    game = genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false")
    moves = {
        genpolicy.load_policy("oracle:solver", game=game, seed=seed).decide([game.parse()])[0].move for seed in range(8)
    }
    assert len(moves) > 1
