"""Streams: shares of processes, a replay that grows while training and resumes exactly, streams that break rules."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from genpolicy import registry
from genpolicy.config import compose
from genpolicy.data.counter_rng import draw
from genpolicy.data.records import Dataset
from genpolicy.data.stream import Share, ShuffledWindows, Stream, Updates
from genpolicy.data.windows import Batch, TokenBatch, WindowSource
from genpolicy.errors import CheckpointError, ConfigError, RegistryError, TrainingError
from genpolicy.training.checkpoint import pack_streams, unpack_streams
from genpolicy.training.config import RunConfig
from genpolicy.training.loop import train
from tests.small_datasets import solved_connect
from tests.training import toy


class Rows(WindowSource):
    """Windows of one token each, which may be appended to."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: NDArray[np.int64], epoch: int) -> TokenBatch:
        tokens = torch.from_numpy(indices.copy())[:, None]
        return TokenBatch(tokens, torch.zeros_like(tokens, dtype=torch.bool), torch.ones_like(tokens) > 0, tokens[:, 0])


class Replay(Stream):
    """A replay that windows are added to while training goes on; each update draws from those that are there."""

    def __init__(self, source: WindowSource, seed: int, first: int = 20) -> None:
        self.source, self.seed = source, seed
        self.windows = torch.arange(first)
        self.threads: set[str] = set()

    def append(self, windows: list[int]) -> None:
        self.windows = torch.cat([self.windows, torch.tensor(windows)])

    def parts(self, update: int) -> list[Batch]:
        self.threads.add(threading.current_thread().name)
        parts = []
        for positions in self.share.positions(update):
            drawn = draw(self.seed, 0, positions, 7, np.full(len(positions), len(self.windows)))
            parts.append(self.source.batch(self.windows[drawn].numpy(), update))
        return parts

    def state_dict(self) -> dict[str, Any]:
        return {"windows": self.windows, "count": len(self.windows)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.windows = state["windows"]
        assert len(self.windows) == state["count"]


class GrowingLearner(toy.ToyLearner):
    """Adds three windows to its replay after every update."""

    made: ClassVar[list[Any]] = []
    stream_class: ClassVar[type[Replay]] = Replay

    def windows(self, records: Dataset, split: str, *, seed: int) -> Any:
        windows = super().windows(records, split, seed=seed)
        if split != "train":
            return windows
        self.replay = self.stream_class(windows, seed)
        self.made.append(self)
        return self.replay

    def after_update(self, num_updates: int) -> None:
        weight = int(self.head.weight.detach().double().sum() * 1e6)  # what is played depends on the weights
        self.replay.append([(weight + i) % len(self.replay.source) for i in range(3)])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=10)


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[GrowingLearner]:
    monkeypatch.syspath_prepend(str(toy.register(tmp_path / "site")))
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(GrowingLearner, "made", [])
    registry.register("learners", "growing")(GrowingLearner)
    return GrowingLearner


def configuration(data: Dataset, out: Path, *overrides: str) -> RunConfig:
    settings = [
        f"data.folder={data.folder}",
        "data.validation=test",
        "learner.kind=growing",
        "trainer.device=cpu",
        "trainer.batch_size=8",
        "trainer.accumulate=2",
        "trainer.max_records=64",
        "trainer.checkpoint_every=1",
        "trainer.keep=99",
        "trainer.eval_every=3",
        "trainer.log_every=1",
        "trainer.tensorboard=false",
        f"out={out}",
    ]
    return compose(RunConfig, overrides=[*settings, *overrides])


def test_a_replay_that_grows_resumes_exactly(growing: Any, data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    whole = (train(configuration(data, out)) / "model.safetensors").read_bytes()
    (learner,) = growing.made
    assert len(learner.replay.windows) == 20 + 8 * 3
    assert learner.replay.threads == {"MainThread"}, "made ahead, it would miss what the last update added"
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(line.get("records", 0) for line in lines) == 64
    assert all("epoch" not in line for line in lines)
    assert json.loads((out / "policy" / "provenance.json").read_text())["epochs"] is None
    for update in (5, 2):
        for later in range(update + 1, 9):
            shutil.rmtree(out / "checkpoints" / f"step-{later:08d}", ignore_errors=True)
        resumed = train(configuration(data, out), resume=True)
        assert (resumed / "model.safetensors").read_bytes() == whole
        assert torch.equal(growing.made[-1].replay.windows, learner.replay.windows)


def test_epochs_need_a_number_of_records(growing: Any, data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.max_epochs=2: .*does not say how many.*set trainer\.max_records"):
        train(configuration(data, tmp_path / "run", "trainer.max_epochs=2"))


class OnePart(Replay):
    def parts(self, update: int) -> list[Batch]:
        return super().parts(update)[: 1 if update == 3 else 2]


class ShortPart(Replay):
    def parts(self, update: int) -> list[Batch]:
        return [self.source.batch(np.arange(4 if update < 3 else 3), 0) for _ in range(2)]


class Swelling(Replay):
    @property
    def num_records(self) -> int:
        return len(self.windows)


class Secretive(Replay):
    def state_dict(self) -> dict[str, Any]:
        return {"source": self.source}


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        (
            OnePart,
            TrainingError,
            r"GrowingLearner'.*: its stream OnePart made parts of 4 records for update 4, expected 4 \+ 4",
        ),
        (ShortPart, TrainingError, r"its stream ShortPart made parts of 3 \+ 3 records for update 4, expected 4 \+ 4"),
        (
            Swelling,
            TrainingError,
            r"GrowingLearner'.*: its stream Swelling said num_records=20 when training began and says 23 .*update 1",
        ),
        (Secretive, CheckpointError, r"the stream's state_dict holds what a checkpoint cannot"),
    ],
)
def test_a_stream_that_breaks_its_word_is_named(
    stream: Any, error: type[Exception], message: str, growing: Any, data: Dataset, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(growing, "stream_class", stream)
    out = tmp_path / "run"
    with pytest.raises(error, match=message):
        train(configuration(data, out))
    if error is TrainingError and stream is not Swelling:
        assert (out / "checkpoints" / "step-00000003").is_dir(), "what was done is kept"


def test_what_is_measured_is_a_source(growing: Any, data: Dataset, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(growing, "windows", lambda self, records, split, *, seed: Replay(Rows(40), seed))
    with pytest.raises(TypeError, match=r"GrowingLearner\.windows gave the stream Replay for split 'test'"):
        train(configuration(data, tmp_path / "run"))
    monkeypatch.setattr(growing, "windows", lambda self, records, split, *, seed: [1, 2])
    with pytest.raises(RegistryError, match=r"learner 'growing' .* made a list, not a WindowSource or a Stream"):
        train(configuration(data, tmp_path / "run"))


def test_another_number_of_processes_is_refused(growing: Any, data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(configuration(data, out))
    file = max((out / "checkpoints").iterdir()) / "state.json"
    state = json.loads(file.read_text())
    del state["sha256"], state["commits"]  # as before there were any
    file.write_text(json.dumps({**state, "streams": [*state["streams"], {}]}))
    with pytest.raises(CheckpointError, match="holds the streams of 2 processes, and this run has 1"):
        train(configuration(data, out, "trainer.max_records=80"), resume=True)


def test_states_of_several_processes_come_back() -> None:
    states = [{"a.b": torch.arange(3), "n": 1}, {"a.b": torch.arange(2), "n": [2, "x"]}]
    again = unpack_streams(*pack_streams(states))
    assert [state["n"] for state in again] == [1, [2, "x"]]
    assert [state["a.b"].tolist() for state in again] == [[0, 1, 2], [0, 1]]


def test_a_source_that_grows_is_an_error_and_not_an_endless_loop() -> None:
    source = Rows(8)
    stream = ShuffledWindows(source, 0)
    stream.begin(Share(4))
    seen = [part.indices for update in (0, 1) for part in stream.parts(update) if isinstance(part, TokenBatch)]
    assert sorted(torch.cat(seen).tolist()) == list(range(8))
    source.count = 64
    with pytest.raises(TrainingError, match=r"Rows had 8 windows when training began and has 64 now"):
        stream.parts(2)


def test_processes_share_an_update_and_parts_share_a_process() -> None:
    taken = []
    for process in range(3):
        share = Share(24, accumulate=4, process=process, num_processes=3)
        assert [len(part) for part in share.positions(5)] == [share.part_size] * 4 == [2] * 4
        taken += np.concatenate(share.positions(5)).tolist()
    assert sorted(taken) == list(range(5 * 24, 6 * 24))
    with pytest.raises(ValueError, match=r"trainer\.batch_size=24 is not a multiple of 5 processes"):
        Share(24, num_processes=5)


@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_made_ahead_are_the_same_and_the_thread_ends(prefetch: int) -> None:
    updates = Updates(ShuffledWindows(Rows(50), 1), Share(8, accumulate=2), "test", prefetch=prefetch)
    batches = updates.starting_at(4)
    for update in range(4, 12):
        for made, expected in zip(next(batches), updates.parts(update), strict=True):
            assert torch.equal(made.tokens, expected.tokens)  # type: ignore[attr-defined]
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("genpolicy-batches")]
