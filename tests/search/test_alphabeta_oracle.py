"""The built-in oracle labels and plays itself; as a policy alpha-beta keeps the laws."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import genpolicy
from genpolicy.cli import main
from genpolicy.data.oracle import make_oracle
from genpolicy.data.records import Dataset
from genpolicy.errors import EngineError
from genpolicy.testing import check_policy
from genpolicy.values import score_to_value
from genpolicy_alphabeta.policy import AlphaBetaPolicy
from genpolicy_policy_baselines.simple import GreedyPolicy
from tests.small_datasets import CONNECT


def positions(game: Any, *, every: int) -> list[Any]:
    return [s for s in game.positions() if game.outcome(s) is None][::every]


def test_on_small_boards_it_agrees_with_the_solver() -> None:
    """Values of every move of 300 positions of 3x3x3, and a line that keeps them."""
    game = genpolicy.load_game(CONNECT)
    states = positions(game, every=15)
    with make_oracle("alphabeta?depth=9", game) as oracle, make_oracle("solver", game) as solver:
        ours = oracle.analyse(states, 9, move_values=True)
        exact = solver.analyse(states, 9, move_values=True)
    for state, line, right in zip(states, ours, exact, strict=True):
        assert {move: score_to_value(score) for move, score in line.move_values.items()} == {
            move: score_to_value(score) for move, score in right.move_values.items()
        }, game.format(state)
        assert score_to_value(line.scores[0] or "") == score_to_value(right.scores[0] or "")
        at = state
        for move in line.moves:
            at = game.play(at, move)
        assert line.ended
        assert game.outcome(at) == (score_to_value(line.scores[0] or "") * (-1) ** len(line.moves))


def test_mates_are_counted_in_moves_of_the_winner() -> None:
    game = genpolicy.load_game(CONNECT)
    with make_oracle("alphabeta", game) as oracle:
        win, theirs = oracle.analyse([game.parse("XX./OO./... X"), game.parse("XX./OO./X.. O")], 5)
        assert (win.scores[0], [game.moves[m] for m in win.moves], win.ended) == ("mate:1", ["c3"], True)
        (doomed,) = oracle.analyse([game.parse("X.X/.O./X.O O")], 5)
    assert theirs.scores[0] == "mate:1"
    assert (doomed.scores[0], len(doomed.moves), doomed.ended) == ("mate:-1", 2, True)


def test_a_short_line_is_searched_on_from_its_end() -> None:
    game = genpolicy.load_game("connect")
    with make_oracle("alphabeta?depth=2", game) as oracle:
        (line,) = oracle.analyse([game.parse()], 5)
    assert len(line.moves) == 5
    assert [score is not None for score in line.scores] == [True, False, True, False, True]
    assert not line.ended


def test_processes_label_alike(tmp_path: Path) -> None:
    game = genpolicy.load_game(CONNECT)
    states = positions(game, every=400)
    with make_oracle("alphabeta?nodes=300", game) as one, make_oracle("alphabeta?nodes=300&processes=2", game) as two:
        assert one.describe() == two.describe()
        assert two.analyse(states, 3, move_values=True) == one.analyse(states, 3, move_values=True)


ENDLESS = f"""
import genpolicy, time
from genpolicy.data.oracle import make_oracle
if __name__ == "__main__":
    game = genpolicy.load_game({CONNECT!r})
    oracle = make_oracle("alphabeta?nodes=10&processes=2", game)
    oracle.analyse([game.parse()] * 2, 1)
    print("begun", flush=True)
    time.sleep(600)
"""


def test_worker_processes_end_with_one_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    command = [sys.executable, str(tmp_path / "endless.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.communicate(timeout=60)  # its output ends when the last process that may write to it has ended


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows has no masks of signals")
def test_worker_processes_do_not_get_ctrl_c() -> None:
    game = genpolicy.load_game(CONNECT)
    with make_oracle("alphabeta?nodes=10&processes=2", game) as oracle:
        oracle.analyse([game.parse()], 1)
        masked = oracle._pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()  # type: ignore[attr-defined]
    assert signal.SIGINT in masked
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_closing_does_not_wait_for_a_search() -> None:
    """As Ctrl-C does; the position would be searched for longer than a test may take."""
    oracle = make_oracle("alphabeta?nodes=1e9&depth=60&processes=2", genpolicy.load_game("chess"))
    ended: list[BaseException] = []

    def label() -> None:
        try:
            oracle.analyse([oracle.game.parse()] * 2, 2)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=label)
    thread.start()
    while not multiprocessing.active_children():
        time.sleep(0.05)
    oracle.close()
    thread.join()
    assert [type(error) for error in ended] == [EngineError]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("alphabeta?depth=x", "depth must be a number, got 'x'"),
        ("alphabeta?depth=0", "depth must be at least 1"),
        ("alphabeta?nodes=2.5", "nodes must be a whole number"),
        ("alphabeta?processes=0", "processes must be at least 1"),
        ("alphabeta?dept=3", "dept"),
    ],
)
def test_bad_options_are_named(spelling: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_oracle(spelling, genpolicy.load_game(CONNECT))


def test_labelling_and_selfplay_work_without_an_engine(tmp_path: Path) -> None:
    """The commands, on k-in-a-row and on chess."""
    pytest.importorskip("chess")
    everything, labelled = str(tmp_path / "all"), tmp_path / "labelled"
    small = "connect:rows=2,cols=3,k=2,gravity=true"
    assert main(["data", "import", "all", "--game", small, "--out", everything]) == 0
    oracle = ["--oracle", "alphabeta?depth=3", "--horizon", "3"]
    assert main(["data", "label", everything, *oracle, "--move-values", "--out", str(labelled)]) == 0
    dataset = Dataset.open(labelled)
    assert dataset.info.oracle is not None
    assert dataset.info.oracle["name"] == "alphabeta"
    assert all(record.line and record.scored_moves for record in dataset.records())
    played = tmp_path / "chess"
    amount = ["--games", "1", "--max-plies", "6"]
    assert (
        main(["data", "selfplay", "--game", "chess", *oracle[:1], "alphabeta?depth=2", *amount, "--out", str(played)])
        == 0
    )
    assert all(record.line and record.scores[0] for record in Dataset.open(played).records())


def after(game: Any, *moves: int) -> Any:
    state = game.parse()
    for move in moves:
        state = game.play(state, move)
    return state


def test_alphabeta_keeps_the_laws_of_policies() -> None:
    game = genpolicy.load_game(CONNECT)
    states = [game.parse(), after(game, 4), after(game, 4, 0), after(game, 0, 3, 1, 4)]
    for policy in (AlphaBetaPolicy(game), AlphaBetaPolicy(game, depth=2, prior=GreedyPolicy(game), prior_depth=1)):
        check_policy(policy, states, finished=[after(game, 0, 3, 1, 4, 2)])
    decision = AlphaBetaPolicy(game).decide([states[-1]])[0]
    assert (decision.move, decision.value, decision.stats["mate_plies"]) == (2, 1.0, 1.0)
    assert decision.states == ("XXX/OO./... O",)


def test_greedy_keeps_the_laws_and_takes_what_it_sees() -> None:
    game = genpolicy.load_game(CONNECT)
    policy = genpolicy.load_policy("greedy?seed=4", game=game)
    check_policy(policy, [game.parse(), after(game, 4), after(game, 4, 0)], finished=[after(game, 0, 3, 1, 4, 2)])
    assert policy.decide([after(game, 0, 3, 1, 4)])[0].move == 2  # wins at once
    moves = {decision.move for decision in policy.decide([after(game, 4)] * 60)}
    assert len(moves) == 4  # the corners are alike, and none is always first


def test_greedy_takes_the_queen_whatever_defends_it() -> None:
    pytest.importorskip("chess")
    game = genpolicy.load_game("chess")
    for fen, taking in (
        ("4k3/2p5/3q4/8/8/8/3R4/4K3 w - - 0 1", "d2d6"),
        ("4k3/3r4/8/8/8/3Q4/2P5/4K3 b - - 0 1", "d7d3"),
    ):
        assert game.moves[GreedyPolicy(game).decide([game.parse(fen)])[0].move] == taking


def test_spellings() -> None:
    game = genpolicy.load_game(CONNECT)
    policy = genpolicy.load_policy("alphabeta?depth=2&evaluator=greedy&prior=greedy", game=game)
    assert policy.label == "alphabeta?depth=2&evaluator=greedy&prior=greedy"
    assert policy.decide([game.parse()])[0].stats["depth"] == 2.0
    with pytest.raises(ValueError, match="takes no argument"):
        genpolicy.load_policy("alphabeta:4", game=game)
    with pytest.raises(ValueError, match="Did you mean: 'depth'"):
        genpolicy.load_policy("alphabeta?deph=4", game=game)
    with pytest.raises(ValueError, match="gives no value"):
        genpolicy.load_policy("alphabeta?depth=2&evaluator=random", game=game).decide([game.parse()])
    with pytest.raises(ValueError, match="cannot compare positions"):
        genpolicy.load_policy("alphabeta?comparator=random", game=game)
    with pytest.raises(ValueError, match="greedy"):
        genpolicy.load_policy("greedy:x", game=game)
