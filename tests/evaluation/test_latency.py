"""What is timed and what is counted, for policies whose time and answers are known; the command and its figure."""

from __future__ import annotations

import builtins
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import genpolicy
from genpolicy.cli import main
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.base import Decision, Policy
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from genpolicy_common.labelled import LabelledPosition
from genpolicy_evaluation.latency import LatencyPoint, latency_report, limited_threads, measure_latency
from genpolicy_evaluation.latency_command import read_sweeps
from genpolicy_evaluation.latency_plot import series_of
from genpolicy_evaluation.matplotlib_style import check_plot_files, load_pyplot, save_figure
from tests.pictures import kill_half_way
from tests.small_datasets import CONNECT, solved_connect


class Sleeper(Policy):
    """Needs a known time for a call and a known time for each position; plays the lowest legal move."""

    kind: ClassVar[str] = "sleeper"

    def __init__(self, game: Game[Any], per_call_s: float = 0.0, per_position_s: float = 0.0, **stats: float) -> None:
        self.game, self._per_call, self._per_position, self._stats = game, per_call_s, per_position_s, stats
        self.batches: list[int] = []
        self.asked: list[str] = []
        self.seeds: list[int] = []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        self.batches.append(len(states))
        self.asked += [self.game.format(state) for state in states]
        time.sleep(self._per_call + self._per_position * len(states))
        stats = {"network_calls": float(len(states)), **self._stats}
        return [Decision(move := int(self.game.legal(s)[0]), line=(move, move, move), stats=stats) for s in states]


def test_a_kill_while_a_picture_is_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    pyplot, path = load_pyplot(), tmp_path / "x.png"
    save_figure(pyplot.figure(), [path])
    before = path.read_bytes()
    assert before.startswith(b"\x89PNG")

    kill_half_way(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        save_figure(pyplot.figure(), [path])
    assert path.read_bytes() == before
    assert not pyplot.get_fignums()


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


@pytest.fixture(scope="module")
def positions(game: Game[Any]) -> list[LabelledPosition]:
    """Forty positions; the lowest move is the label of one in four, and among the best of one in two."""
    found = [s for s in game.positions() if game.outcome(s) is None and len(game.legal(s)) >= 3][:40]
    rows = []
    for index, state in enumerate(found):
        low, other = (int(move) for move in game.legal(state)[:2])
        label = low if index % 4 == 0 else other
        best = {label, low} if index % 2 == 0 else {label}
        rows.append(LabelledPosition(state, (label,), frozenset(best), len(game.legal(state)), f"g{index}"))
    return rows


def test_calls_positions_and_accuracy_are_counted(game: Game[Any], positions: list[LabelledPosition]) -> None:
    policy = Sleeper(game)
    point = measure_latency(policy, positions, batches=(1, 16), num_calls=5, warm_up=2, seed=7)
    # The largest batch goes over all positions, 40 = 16 + 16 + 8; its short last call is not timed.
    assert policy.batches == [16, 16, 16, 16, 8, 1, 1, 1, 1, 1, 1, 1]
    assert policy.seeds == [7, 7]
    assert [(timing.batch, len(timing.ms)) for timing in point.timings] == [(1, 5), (16, 2)]
    assert (point.labelled.value, point.best.value, point.labelled.trials) == (0.25, 0.5, 40)
    assert (point.depth, point.network_calls, point.family) == (3.0, 1.0, "sleeper")
    assert measure_latency(Sleeper(game, depth=6.0), positions, batches=(4,), num_calls=2).depth == 6.0


def test_calls_of_a_move_alone_are_asked_where_it_is_not_timed(
    game: Game[Any], positions: list[LabelledPosition]
) -> None:
    policy = Sleeper(game)
    point = measure_latency(policy, positions, batches=(8,), num_calls=3, warm_up=0)
    assert point.network_calls == 1.0
    assert policy.batches == [8] * 5 + [1] * 3
    assert [timing.batch for timing in point.timings] == [8]


def test_times_are_those_of_a_move(game: Game[Any], positions: list[LabelledPosition]) -> None:
    policy = Sleeper(game, per_call_s=0.05, per_position_s=0.001)
    point = measure_latency(policy, positions, batches=(1, 10), num_calls=4, warm_up=0)
    alone, together = point.timings
    # A busy machine sleeps longer, but not so long that a call's time could pass for a move's.
    assert 51 <= alone.median < 500
    assert 6 <= together.median < 60
    ordered = sorted(alone.ms)
    assert alone.median == pytest.approx((ordered[1] + ordered[2]) / 2)
    assert alone.quartiles == pytest.approx(((ordered[0] + 3 * ordered[1]) / 4, (3 * ordered[2] + ordered[3]) / 4))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"batches": ()}, "batch sizes"),
        ({"batches": (0,)}, "batch sizes"),
        ({"batches": (4, 4)}, "batch sizes"),
        ({"batches": (41,)}, "needs as many positions, got 40"),
        ({"num_calls": 0}, "timed calls"),
        ({"warm_up": -1}, "warm-up"),
    ],
)
def test_settings_out_of_range_are_refused(
    game: Game[Any], positions: list[LabelledPosition], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        measure_latency(Sleeper(game), positions, **arguments)


def test_threads_are_set_and_put_back() -> None:
    before = torch.get_num_threads()
    with limited_threads(1) as threads:
        assert threads == torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="threads must be at least 1"), limited_threads(0):
        pass


def test_lines_of_the_figure_are_kinds_and_equal_depths_are_told_apart(
    game: Game[Any], positions: list[LabelledPosition]
) -> None:
    def point(family: str, depth: float, calls: float) -> LatencyPoint:
        made = measure_latency(Sleeper(game), positions[:2], batches=(1,), num_calls=1, warm_up=0)
        return LatencyPoint(f"{family}{depth}", family, depth, calls, made.timings, made.labelled, made.best)

    found = series_of(
        [point("mcts", 5.5, 40), point("mcts", 2.5, 10), point("diffusion", 4, 20), point("engine", 1, 0)]
    )
    assert {name: [p.depth for p in line] for name, line in found.items()} == {
        "mcts": [2.5, 5.5],
        "diffusion": [4],
        "engine": [1],
    }
    points = [point("diffusion", h, t) for h in (4, 2) for t in (1, 20)]
    assert {name: [p.depth for p in line] for name, line in series_of(points).items()} == {
        "diffusion, 1 call": [2, 4],
        "diffusion, 20 calls": [2, 4],
    }


def test_sweeps_are_read_and_wrong_ones_named() -> None:
    assert read_sweeps(["num_steps=1,5", "sampler=margin,entropy"]) == {
        "num_steps": [1, 5],
        "sampler": ["margin", "entropy"],
    }
    for wrong in ("num_steps", "num_steps=", "=3", "num_steps=1,,2"):
        with pytest.raises(ValueError, match="KEY=V,V"):
            read_sweeps([wrong])
    with pytest.raises(ValueError, match="is given twice; list all its values once"):
        read_sweeps(["a=1", "a=2"])


def test_a_kind_of_picture_that_lacks_a_program_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """matplotlib lists .pgf among its kinds wherever it runs, and asks LaTeX how wide texts are."""
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"x\.pgf: cannot be drawn .*not found.* name another kind of file"):
        check_plot_files([tmp_path / "x.png", tmp_path / "x.pgf"])


def test_missing_matplotlib_and_unknown_pictures_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"x\.txt.*\.png"):
        check_plot_files([tmp_path / "x.txt"])
    with pytest.raises(ConfigError, match="no folder"):
        check_plot_files([tmp_path / "nowhere" / "x.png"])
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"plots need matplotlib: pip install 'genpolicy\[plot\]'"):
        check_plot_files([tmp_path / "x.png"])


@pytest.fixture(scope="module")
def folder(game: Game[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    network = NetworkConfig(num_layers=1, width=16, num_heads=2, geometry="board", head="typed")
    learner = DiffusionLearner(game, DiffusionConfig(network=network, horizon=2))
    return DiffusionPolicy(learner).save_pretrained(tmp_path_factory.mktemp("runs") / "tiny" / "policy")


def test_command_draws_the_figure(
    game: Game[Any], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    solved_connect(tmp_path / "data", horizon=2, every=9)
    command = ["evaluate", "latency", "--data", str(tmp_path / "data"), "--policy", str(folder), "random"]
    command += ["--sweep", "num_steps=1,4", "--limit", "24", "--batches", "1", "8", "--calls", "2", "--warm-up", "0"]
    command += ["--plot", str(tmp_path / "f.png"), str(tmp_path / "f.svg")]
    command += ["--json", str(tmp_path / "f.json"), "--markdown", str(tmp_path / "f.md")]
    assert main(command) == 0
    figures = json.loads((tmp_path / "f.json").read_text())
    facts = [(p["policy"], p["family"], p["depth"], p["network_calls"]) for p in figures["points"]]
    assert facts == [
        ("tiny num_steps=1", "diffusion", 2.0, 1.0),
        ("tiny num_steps=4", "diffusion", 2.0, 4.0),
        ("random", "random", 1.0, 0.0),
    ]
    assert [[t["batch"], t["calls"]] for t in figures["points"][0]["timings"]] == [[1, 2], [8, 2]]
    assert figures["data"]["positions"] == 24
    assert figures["machine"]["threads"] >= 1
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "f.svg").read_text()
    assert "tiny num_steps=4" in (tmp_path / "f.md").read_text()
    capsys.readouterr()
    assert main([*command, "--sweep", "simulations=1,2"]) == 2
    assert "none of" in capsys.readouterr().err


def test_table_says_how_it_was_measured(game: Game[Any], positions: list[LabelledPosition]) -> None:
    point = measure_latency(Sleeper(game), positions, batches=(2, 1), num_calls=3, warm_up=0)
    facts = {"threads": 2, "device": "cpu", "processor": "some chip", "cores": 4}
    table = latency_report([point], "x", facts).markdown()
    assert "3 with batch 2, 3 with batch 1; threads: 2; cpu (some chip, 4 cores)" in table
    assert "ms a move, batch 2 | ms a move, batch 1" in table
    assert f"Accuracy: {len(positions)} positions, none known to share a game; intervals: 95 %, boot" in table
