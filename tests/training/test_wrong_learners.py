"""Learners that break their contract: the message names the learner and the place, and no traceback is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from genpolicy import registry
from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.data.windows import WindowSource
from genpolicy.errors import DatasetError, RegistryError
from genpolicy.policies.learner import Learner
from genpolicy.training.config import RunConfig
from genpolicy.training.loop import train
from tests.small_datasets import solved_connect
from tests.training.toy import ToyLearner, ToyPolicy


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=40)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("learners", "toy")(ToyLearner)
    registry.register("policies", "toy")(ToyPolicy)


def configuration(data: Dataset, folder: Path) -> RunConfig:
    settings = ["learner.kind=toy", "trainer.device=cpu", "trainer.batch_size=16", "trainer.max_steps=2"]
    where = [f"data.folder={data.folder}", "data.validation=null", f"out={folder / 'run'}"]
    return compose(RunConfig, overrides=[*settings, "trainer.tensorboard=false", *where])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda loss, numbers: loss, "made a Tensor, not a pair of loss and numbers"),
        (lambda loss, numbers: (loss, numbers, 3), "made a tuple, not a pair of loss and numbers"),
        (lambda loss, numbers: (loss.expand(16), numbers), r"loss\(\) gave a loss of shape \[16\], not a scalar"),
        (lambda loss, numbers: (loss.detach(), numbers), r"loss\(\) gave a loss without a gradient"),
        (lambda loss, numbers: (0.5, numbers), r"loss\(\) gave a loss that is a float, not a tensor"),
        (lambda loss, numbers: (loss, {"accuracy": 0.5}), r"loss\(\) gave the number 'accuracy' that is a float"),
        (lambda loss, numbers: (loss, {"accuracy": torch.zeros(16)}), r"gave the number 'accuracy' of shape \[16\]"),
    ],
    ids=["no pair", "three", "losses", "detached", "float", "number", "numbers"],
)
def test_a_loss_that_cannot_be_trained_on_is_named(
    changed: Any, message: str, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = ToyLearner.loss
    monkeypatch.setattr(ToyLearner, "loss", lambda self, *given: changed(*loss(self, *given)))
    with pytest.raises(RegistryError, match=rf"^learner 'toy' \(.*\):? {message}"):
        train(configuration(data, tmp_path))


class NoWindows(WindowSource):
    def __len__(self) -> int:
        return 0

    def batch(self, indices: Any, epoch: int) -> Any:
        raise AssertionError("it has none")


@pytest.mark.parametrize(
    ("member", "changed", "message"),
    [
        ("Config", dict, r": ToyLearner\.Config is <class 'dict'>, not a dataclass"),
        ("__init__", lambda self, game, config: setattr(self, "network", nn.Linear(2, 2)), "AttributeError: "),
        ("__init__", Learner.__init__, " has no parameter that requires a gradient"),
        ("__abstractmethods__", frozenset(["policy"]), "TypeError: .* abstract .*policy"),
        ("windows", lambda self, records, split: None, r"windows\(\) is called with .* unexpected .*'seed'"),
        ("windows", lambda self, records, split, *, seed: [], "made a list, not a WindowSource or a Stream"),
        ("windows", lambda self, records, split, *, seed: NoWindows(), r"makes no window of split 'train', in windows"),
    ],
    ids=["config", "init", "frozen", "abstract", "seed", "list", "empty"],
)
def test_a_learner_that_cannot_be_trained_is_named(
    member: str,
    changed: Any,
    message: str,
    data: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ToyLearner, member, changed)
    with pytest.raises((RegistryError, DatasetError), match=rf"learner 'toy' .*{message}"):
        train(configuration(data, tmp_path))
    assert not (tmp_path / "run").exists()
