"""The table of an experiment by plies to the end of the game, and what two plies of rules find."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from genpolicy import registry
from genpolicy.cli import main
from genpolicy_common.labelled import LabelledPosition, labelled_positions
from genpolicy_experiments.by_end import by_end, two_plies
from genpolicy_experiments.description import Experiment

TICTACTOE = "connect:rows=3,cols=3,k=3,gravity=false"


def solved(game: Any, state: Any, known: dict[Any, float]) -> float:
    """Minimax for the player to move."""
    if (ended := game.outcome(state)) is not None:
        return float(ended)
    if (key := game.key(state)) not in known:
        known[key] = max(-solved(game, game.play(state, move), known) for move in game.legal(state).tolist())
    return known[key]


def experiment_on(tmp_path: Path, *, horizon: int) -> Experiment:
    """One cell, measured on three positions of tic-tac-toe in ten."""
    raw, data = tmp_path / "raw", tmp_path / "data"
    assert main(["data", "import", "all", "--game", TICTACTOE, "--split", "0.6/0.1/0.3", "--out", str(raw)]) == 0
    label = ["data", "label", str(raw), "--oracle", "solver?distance=true", "--horizon", str(horizon)]
    assert main([*label, "--out", str(data)]) == 0
    path = tmp_path / "ends.yaml"
    description = {"data": {"folder": str(data)}, "budget": {"records": 64}, "axes": {"method": {"S-A": {}}}}
    path.write_text(yaml.safe_dump({**description, "run": {"learner": {"kind": "one_step"}}}))
    return Experiment(path)


def result(experiment: Experiment, folder: Path, hits: Any) -> Any:
    """What a finished run of the only cell has found."""
    np.savez(folder / "hits.npz", best=np.asarray(hits, float))
    return SimpleNamespace(cell=experiment.cells[0], seed=0, hits=folder / "hits.npz")


def test_a_policy_that_sees_the_end_in_one_ply_alone_is_right_in_that_column_alone(tmp_path: Path) -> None:
    experiment = experiment_on(tmp_path, horizon=9)
    game = registry.load_game(TICTACTOE)
    positions = labelled_positions(experiment.dataset, game, "test")
    wins = [any(game.outcome(game.play(p.state, m)) for m in game.legal(p.state).tolist()) for p in positions]
    assert 0 < sum(wins) < len(wins)
    table = by_end(experiment, [result(experiment, tmp_path, wins)])
    assert table is not None
    random, rules, cell = table.rows
    assert [random[0], rules[0], cell[0]] == ["a random legal move", "two plies of rules, no network", "S-A"]
    counts = [int(column.partition("(")[2].removesuffix(")")) for column in table.columns[2:]]
    assert sum(counts) == len(positions)
    ends_in_one = [len(p.line) == 1 for p in positions]  # a win, or the last move of a draw
    assert table.columns[2] == f"1 ({sum(ends_in_one)})"
    assert float(cell[1]) == pytest.approx(100 * np.mean(wins), abs=0.06)
    assert float(cell[2]) == pytest.approx(100 * sum(wins) / sum(ends_in_one), abs=0.06)
    assert set(cell[3:]) == {"0.0"}
    assert float(random[1]) == pytest.approx(100 * np.mean([len(p.best) / p.num_legal for p in positions]), abs=0.06)
    # Whatever ends within two plies is found; a loss in two is one whatever is played.
    assert rules[2] == "100.0"
    assert float(random[1]) < float(rules[1]) < 100


def test_lines_that_stop_before_the_end_have_a_column_or_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_on(tmp_path, horizon=1)
    table = by_end(experiment, [])
    assert table is not None
    assert [column.partition(" ")[0] for column in table.columns] == ["method", "all", "1", "others"]
    assert table.rows[-1] == ["S-A", "-", "-", "-"]
    monkeypatch.setattr("genpolicy_experiments.by_end.MOST_LATER", 0.1)
    assert by_end(experiment, []) is None


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("XX./OO./... X", 1.0),  # the win is taken, not the other player's stopped
        ("XX./O../... O", 1.0),  # the win is stopped
        (".../.../... X", 1.0),  # nothing is decided, and every move is best
    ],
)
def test_two_plies_of_rules(text: str, share: float) -> None:
    game = registry.load_game(TICTACTOE)
    state = game.parse(text)
    known: dict[Any, float] = {}
    worth = {move: -solved(game, game.play(state, move), known) for move in game.legal(state).tolist()}
    best = frozenset(move for move, value in worth.items() if value == max(worth.values()))
    assert two_plies(game, LabelledPosition(state, (min(best),), best, len(worth), "")) == share


def test_two_plies_of_rules_do_not_see_a_fork() -> None:
    """In a corner, O walks into one: X stops the threat and makes two."""
    game = registry.load_game(TICTACTOE)
    state = game.parse("X../.O./..X O")
    edges = frozenset(game.moves.index(name) for name in ("b3", "a2", "c2", "b1"))
    assert two_plies(game, LabelledPosition(state, (min(edges),), edges, 6, "")) == pytest.approx(4 / 6)
