"""The learner of docs/your-own-learner.md, installed as a package of its own: no layout and no transformer."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import genpolicy
from genpolicy import cli, registry
from genpolicy.config import compose
from genpolicy.data.counter_rng import draw
from genpolicy.data.records import Dataset
from genpolicy.data.stream import Share, Stream
from genpolicy.data.window_source import CachedWindows, build_windows
from genpolicy.data.windows import TokenBatch, WindowOptions, concatenate
from genpolicy.encoding import ids_fingerprint
from genpolicy.errors import CheckpointError, ConfigError, RegistryError
from genpolicy.policies.decision import Decision
from genpolicy.policies.learner import Learner
from genpolicy.sequence import Layout
from genpolicy.testing import check_learner, check_policy
from genpolicy.training.config import OptimConfig, RunConfig
from genpolicy.training.loop import train
from genpolicy.training.optim import make_optimizers
from genpolicy.training.setup import make_learner
from tests.small_datasets import solved_connect, write_dataset

PAGE = (Path(__file__).parents[2] / "docs/your-own-learner.md").read_text()
NETWORK = {"num_layers": 1, "width": 16, "num_heads": 2}


def block(language: str, first_line: str) -> str:
    (found,) = re.findall(rf"```{language}\n{re.escape(first_line)}\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=5)


@pytest.fixture
def linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's module, installed with the entry points that the page names."""
    project = tomllib.loads(block("toml", "# pyproject.toml"))["project"]
    site = tmp_path / "site"
    info = site / "linear_policy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"].items()
    (info / "entry_points.txt").write_text(
        "\n".join(f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in names.items()) for group, names in points)
    )
    (site / "linear_policy.py").write_text(block("python", "# linear_policy.py"))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "linear_policy", raising=False)
    return importlib.import_module("linear_policy")


def configuration(data: Dataset, out: Path, *overrides: str) -> RunConfig:
    settings = [
        f"data.folder={data.folder}",
        "data.validation=test",
        "learner.kind=linear",
        "trainer.device=cpu",
        "trainer.batch_size=16",
        "trainer.max_steps=8",
        "trainer.checkpoint_every=2",
        "trainer.keep=9",
        "trainer.eval_every=4",
        "trainer.tensorboard=false",
        f"out={out}",
    ]
    return compose(RunConfig, overrides=[*settings, *overrides])


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_it_trains_saves_loads_plays_and_resumes(
    linear: ModuleType, data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    command = ["train", f"data.folder={data.folder}", "data.validation=test", "learner.kind=linear"]
    longer = [
        "trainer.max_epochs=20",
        "trainer.batch_size=16",
        "trainer.device=cpu",
        "trainer.tensorboard=false",
        "optim.lr=0.03",
    ]
    assert cli.main([*command, *longer, "--out", str(out)]) == 0
    folder = capsys.readouterr().out.splitlines()[-1]
    policy = genpolicy.load_policy(folder)
    assert type(policy).__name__ == "LinearPolicy"
    game = policy.game
    assert set(load_file(Path(folder) / "model.safetensors")) == {"weight"}
    assert ids_fingerprint(game.tokens, game.moves) in (Path(folder) / "config.yaml").read_text()
    states = [game.parse(record.state) for record in list(data.records("test"))[:4]]
    check_policy(policy, states)
    learning = [line["train/right"] for line in lines(out) if "train/right" in line]
    assert sum(learning[-5:]) > sum(learning[:5]) + 0.5
    whole = train(configuration(data, tmp_path / "whole"))
    for update in (6, 8):
        folder_of_update = tmp_path / "whole" / "checkpoints" / f"step-{update:08d}"
        folder_of_update.rename(tmp_path / f"{update}")
    before = (whole / "model.safetensors").read_bytes()
    resumed = train(configuration(data, tmp_path / "whole"), resume=True)
    assert (resumed / "model.safetensors").read_bytes() == before


def test_it_keeps_the_laws_of_learners(linear: ModuleType, data: Dataset) -> None:
    game = genpolicy.load_game(data.game_spec)
    check_learner(lambda: linear.LinearLearner(game, linear.LinearConfig()), data, num_records=16, lr=0.05)


def test_the_page_checks_it(linear: ModuleType, data: Dataset, tmp_path: Path) -> None:
    folder = train(configuration(data, tmp_path / "run"))
    code = block("python", "# check_linear.py")
    exec(code.replace("data/mine", str(data.folder)).replace("runs/linear/policy", str(folder)), {})


def test_a_notebook_registers_it(linear: ModuleType, data: Dataset, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    installed = registry._installed
    hidden = {"learners": {}, "policies": {}}
    monkeypatch.setattr(registry, "_installed", lambda group: hidden.get(group, installed(group)))
    exec(block("python", "# in a notebook"), vars(linear).copy())
    folder = train(configuration(data, tmp_path / "run"))
    assert genpolicy.load_policy(folder).kind == "linear"


def test_weights_of_another_game_are_refused(linear: ModuleType, data: Dataset, tmp_path: Path) -> None:
    folder = train(configuration(data, tmp_path / "run"))
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("gravity=false", "gravity=true"))
    with pytest.raises(CheckpointError, match="its tokens are not those"):
        genpolicy.load_policy(folder)


def test_the_pages_results_are_the_records(linear: ModuleType, data: Dataset, tmp_path: Path) -> None:
    names = {**vars(linear), "TokenBatch": TokenBatch, "CachedWindows": CachedWindows, "dataclass": dataclass}
    exec(block("python", "# results.py"), names)
    won = [replace(record, result=1.0) for record in list(data.records("train"))[:20]]
    records = write_dataset(tmp_path, data.game_spec, won)
    game = genpolicy.load_game(data.game_spec)
    windows = build_windows(records, "train", game, Layout(game, "s-a", 1), WindowOptions(columns=("result",)))
    batch = names["ResultWindows"](windows).batch(np.arange(20), 0)
    players = [game.player(game.parse(record.state)) for record in won]
    assert batch.result.tolist() == [1 - 2 * player for player in players]


def test_the_pages_replay_grows(linear: ModuleType) -> None:
    names: dict[str, Any] = {
        **vars(linear),
        "draw": draw,
        "Stream": Stream,
        "concatenate": concatenate,
        "Mapping": Mapping,
    }
    exec(block("python", "# replay.py"), names)
    first, more = (linear.Positions(torch.full((4, 2), i), torch.full((4,), i)) for i in range(2))
    replay, again = (names["Replay"](first, 3) for _ in range(2))
    replay.append(more)
    again.load_state_dict(replay.state_dict())
    for stream in (replay, again):
        stream.begin(Share(64, accumulate=2))
    (one, two), other = replay.parts(0), again.parts(0)
    assert len(one) == len(two) == 32
    assert set(one.moves.tolist()) == {0, 1}
    assert torch.equal(two.tokens, other[1].tokens)


@pytest.fixture
def staged(linear: ModuleType, monkeypatch: pytest.MonkeyPatch) -> type[Learner]:
    """A learner with a target network, stages, figures of its own and partial loading; it notes its calls."""

    class Staged(linear.LinearLearner):  # type: ignore[name-defined,misc]
        def __init__(self, game: Any, config: Any) -> None:
            super().__init__(game, config)
            self.target = nn.Linear(2, 2)
            self.calls: list[Any] = []

        def at(self, progress: float) -> None:
            self.calls.append(("at", progress))

        def after_update(self, num_updates: int) -> None:
            self.calls.append(("after", num_updates))
            with torch.no_grad():
                self.target.weight.fill_(num_updates)

        def metrics(self, batch: Any, generator: torch.Generator) -> dict[str, Any]:
            assert not self.training
            torch.rand(3, generator=generator)
            return {"first_move": batch.moves.double().mean()}

        def measure(self, records: Dataset, split: str, num: int) -> dict[str, float]:
            assert not torch.is_grad_enabled()
            return {"records": float(records.splits[split]), "num": num}

        def take_weights(self, source: Learner) -> None:
            self.network.load_state_dict(source.network.state_dict())
            self.taken = True

        def policy(self) -> Any:
            made.append(self)
            return super().policy()

    made: list[Any] = []
    Staged.made = made
    registry.register("learners", "staged")(Staged)
    return Staged


@pytest.fixture(autouse=True)
def only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def test_every_declared_member_is_called(staged: Any, linear: ModuleType, data: Dataset, tmp_path: Path) -> None:
    plain = train(configuration(data, tmp_path / "plain"))
    out = tmp_path / "run"
    folder = train(configuration(data, out, "learner.kind=staged", f"init_from={plain}", "trainer.max_steps=4"))
    learner = staged.made[0]
    assert learner.taken
    updates = [[("at", update / 4), ("after", update + 1)] for update in range(4)]
    assert learner.calls == [*(call for pair in updates for call in pair), ("at", 1.0)]
    measured = [line for line in lines(out) if "validation/loss" in line]
    assert [line["step"] for line in measured] == [4]
    assert measured[0]["validation/num"] == 256
    assert measured[0]["validation/records"] == data.splits["test"]
    windows = learner.windows(data, "test", seed=0)
    assert measured[0]["validation/first_move"] == pytest.approx(float(windows.moves.double().mean()))
    # The policy holds the network alone, the checkpoint all of the learner.
    assert set(load_file(folder / "model.safetensors")) == {"weight"}
    kept = load_file(out / "checkpoints/step-00000004/model.safetensors")
    assert torch.equal(kept["target.weight"], torch.full((2, 2), 4.0))


def test_figures_of_no_records_are_not_asked_for(staged: Any, data: Dataset, tmp_path: Path) -> None:
    """``policy_value`` died of a batch without rows at the end of a run."""
    overrides = ["learner.kind=staged", "trainer.max_steps=1", "trainer.accuracy_records=0"]
    train(configuration(data, tmp_path / "run", *overrides))
    measured = [line for line in lines(tmp_path / "run") if "validation/loss" in line]
    assert len(measured) == 1
    assert "validation/num" not in measured[0]


def test_metrics_change_no_other_figure(staged: Any, data: Dataset, tmp_path: Path) -> None:
    figures = []
    for kind in ("linear", "staged"):
        train(configuration(data, tmp_path / kind, f"learner.kind={kind}"))
        figures.append([line["validation/loss"] for line in lines(tmp_path / kind) if "validation/loss" in line])
    assert figures[0] == figures[1]


def test_a_batch_without_what_a_figure_is_of_does_not_count(
    staged: Any, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.chain([math.nan], itertools.repeat(3.0))
    monkeypatch.setattr(
        staged, "metrics", lambda *_: {"figure": torch.tensor(next(numbers)), "none": torch.tensor(math.nan)}
    )
    overrides = ["learner.kind=staged", "trainer.max_steps=1", "trainer.batch_size=4", "trainer.eval_records=12"]
    train(configuration(data, tmp_path / "run", *overrides))
    (measured,) = [line for line in lines(tmp_path / "run") if "validation/loss" in line]
    assert measured["validation/figure"] == 3.0
    assert "validation/none" not in measured


def test_a_figure_may_not_take_the_name_of_another(
    staged: Any, data: Dataset, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(staged, "metrics", lambda self, batch, generator: {"loss": torch.zeros(())})
    with pytest.raises(ValueError, match="validation/loss is measured already"):
        train(configuration(data, tmp_path / "run", "learner.kind=staged"))


def test_what_is_not_a_learner_is_named(data: Dataset, tmp_path: Path) -> None:
    class Impostor:
        Config = RunConfig

        def __init__(self, game: Any, config: Any) -> None:
            pass

    registry.register("learners", "impostor")(Impostor)
    with pytest.raises(RegistryError, match=r"'impostor' .*is the class Impostor, not a subclass of .*Learner"):
        train(configuration(data, tmp_path / "run", "learner.kind=impostor"))


@pytest.mark.parametrize(
    ("kind", "has"), [(None, "no kind"), ("other", "the kind 'other', which is not installed")], ids=["none", "other"]
)
def test_a_policy_that_could_not_be_loaded_is_named_before_training(
    kind: str | None, has: str, linear: ModuleType, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is None:
        monkeypatch.delattr(linear.LinearPolicy, "kind")
    else:
        monkeypatch.setattr(linear.LinearPolicy, "kind", kind)
    with pytest.raises(RegistryError, match=rf"^learner 'linear' \(.*\): its policy LinearPolicy has {has}, so"):
        train(configuration(data, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda legal: [Decision(-1) for _ in legal], "chose the illegal move of id -1 in "),
        (lambda legal: [Decision(moves[0]) for moves in legal][1:], r"answered \d+ decisions, not one Decision"),
        (lambda legal: [moves[0] for moves in legal], "answered .*, not one Decision for each of "),
    ],
    ids=["illegal", "few", "numbers"],
)
def test_what_no_policy_may_answer_is_not_measured(
    answer: Any, message: str, linear: ModuleType, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear.LinearPolicy, "_decide_batch", lambda self, states, legal, seeds: answer(legal))
    with pytest.raises(RegistryError, match=rf"^policy 'linear' \(.*\) {message}"):
        train(configuration(data, tmp_path / "run"))


def test_muon_without_a_matrix_is_refused(linear: ModuleType, data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"optim\.name=muon: the learner names no matrix"):
        train(configuration(data, tmp_path / "run", "optim.name=muon"))


IMAGE = {"channels": [16, 32], "backbone_width": 16, "backbone_blocks": 1, "cross_attention_dim": 16}
LEARNERS: list[dict[str, Any]] = [
    *(
        {"kind": "diffusion", "network": {**NETWORK, "geometry": geometry, "head": head, "tied": tied}}
        for geometry in ("sequence", "board")
        for head in ("unified", "typed")
        for tied in (False, True)
    ),
    {"kind": "diffusion", "network": {**NETWORK, "time_conditioning": True, "positions": "rotary"}},
    {"kind": "gaussian", "network": NETWORK},
    {"kind": "gaussian", "network": NETWORK, "process": {"prediction": "eps"}},
    *({"kind": kind, "network": NETWORK} for kind in ("one_step", "direct", "autoregressive", "state_value")),
    {"kind": "image", **IMAGE},
    {"kind": "image", **IMAGE, "unet": "unet2d_condition", "condition": "tokens"},
    {"kind": "image", **IMAGE, "preset": "classifier", "frozen_backbone": True},
]


@pytest.mark.parametrize("section", LEARNERS, ids=str)
def test_muon_moves_the_matrices_that_it_always_moved(section: dict[str, Any]) -> None:
    """By the rule that stood in the optimiser before: not an embedding's, and no such word in the name."""
    game = genpolicy.load_game("shogi" if section["kind"] == "image" else "chess")
    learner = make_learner(game, section)
    embeddings = {id(p) for m in learner.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    outer = ("embed", "head", "bias", "shown")
    expected = [
        id(p)
        for name, p in learner.named_parameters()
        if p.ndim == 2 and id(p) not in embeddings and not any(word in name for word in outer)
    ]
    optimizers = make_optimizers(learner.param_groups(0.01), OptimConfig(name="muon"))
    assert [id(p) for group in optimizers["muon"].param_groups for p in group["params"]] == expected
    others = [p for group in optimizers["adamw"].param_groups for p in group["params"]]
    assert len(others) + len(expected) == len(list(learner.parameters()))
