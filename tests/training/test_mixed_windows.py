"""Several data sets, each with a given share of the records: ``data.shares``."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genpolicy.config import compose
from genpolicy.data.records import Dataset, Record
from genpolicy.data.stream import MixedWindows, Share
from genpolicy.data.windows import TokenBatch
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.registry import load_game
from genpolicy.training.checkpoint import newest
from genpolicy.training.config import DataConfig, RunConfig
from genpolicy.training.loop import train
from genpolicy.training.setup import make_learner, make_stream
from tests.small_datasets import CONNECT, solved_connect, write_dataset
from tests.training.test_streams import Rows


class Marked(Rows):
    """Windows that say which source they are of."""

    def __init__(self, count: int, mark: int) -> None:
        super().__init__(count)
        self.mark = mark

    def batch(self, indices: Any, epoch: int) -> TokenBatch:
        return super().batch(indices + 1000 * self.mark, epoch)


def mixed(share: Share, shares: tuple[float, ...] = (0.25, 0.65, 0.1)) -> MixedWindows:
    stream = MixedWindows([Marked(count, mark) for mark, count in enumerate((40, 7, 300))], shares, seed=3)
    stream.begin(share)
    return stream


def seen(stream: MixedWindows, update: int) -> list[int]:
    parts = stream.parts(update)
    assert [len(part) for part in parts] == [stream.share.part_size] * stream.share.accumulate
    return [int(index) for part in parts for index in part.indices]  # type: ignore[attr-defined]


def test_each_source_has_its_share_and_is_gone_through_evenly() -> None:
    stream = mixed(Share(16))
    taken = np.array([seen(stream, update) for update in range(60)])
    counts = np.bincount(taken.ravel() // 1000) / taken.size
    assert counts.tolist() == pytest.approx([0.25, 0.65, 0.1], abs=1e-9)
    per_update = np.array([np.bincount(row // 1000, minlength=3) for row in taken])
    assert np.ptp(per_update, axis=0).max() <= 2
    for mark, size in enumerate((40, 7, 300)):
        own = taken.ravel()[taken.ravel() // 1000 == mark] % 1000
        times = np.bincount(own, minlength=size)
        assert times.max() - times.min() <= 1
    assert stream.num_records == 347


def test_an_update_depends_on_its_number_alone() -> None:
    forwards = [seen(mixed(Share(16)), update) for update in range(5)]
    again = mixed(Share(16))
    assert [seen(again, update) for update in reversed(range(5))] == forwards[::-1]


def test_processes_and_parts_divide_an_update() -> None:
    whole = sorted(seen(mixed(Share(24)), 4))
    parts = [seen(mixed(Share(24, accumulate=2, process=process, num_processes=3)), 4) for process in range(3)]
    assert sorted(itertools.chain(*parts)) == whole


@pytest.mark.parametrize("accumulate", [1, 4])
def test_sources_are_mixed_within_an_update(accumulate: int) -> None:
    """A loss may be a mean over a part's labelled records, so a part without those of a source would count otherwise;
    it also spreads its times over the rows."""
    for process in range(2):
        stream = mixed(Share(160, accumulate=accumulate, process=process, num_processes=2))
        rows = np.array(seen(stream, 4)) // 1000
        for some in rows.reshape(4, 20):
            assert np.bincount(some, minlength=3).tolist() == pytest.approx([5, 13, 2], abs=1.01)


def test_sources_of_one_size_are_in_orders_of_their_own() -> None:
    """Two labellings of one set of positions, whose windows have the same numbers."""
    stream = MixedWindows([Marked(1000, 0), Marked(1000, 1)], (0.5, 0.5), seed=3)
    stream.begin(Share(100))
    taken = np.array(seen(stream, 0))
    both = set(taken[taken < 1000].tolist()) & set((taken[taken >= 1000] - 1000).tolist())
    assert len(both) <= 10  # 2.5 expected of two orders that do not depend on each other


def test_an_update_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match=r"trainer\.batch_size=8 is too small for 3 folders with shares.* at least 9"):
        mixed(Share(8))


def test_an_update_that_is_too_small_is_refused_before_the_data_are_read(tmp_path: Path) -> None:
    """Reading many folders takes minutes, and these are nowhere."""
    with pytest.raises(ValueError, match=r"trainer\.batch_size=3 is too small for 2 folders"):
        train(configuration([tmp_path / "a", tmp_path / "b"], tmp_path / "out", "trainer.batch_size=3"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"folder": ["a", "b"], "shares": [0.5]}, "1 parts for 2 folders|1 together"),
        ({"folder": ["a", "b"], "shares": [1.0]}, "1 parts for 2 folders"),
        ({"folder": ["a", "b"], "shares": [0.7, 0.7]}, "1 together"),
        ({"folder": ["a", "b"], "shares": [1.0, 0.0]}, "above 0"),
        ({"folder": ["a", "b"], "shares": []}, "above 0"),
        ({"folder": ["a", "b"], "shares": [0.5, float("nan")]}, "1 together"),
        ({"folder": "a", "shares": [0.5, 0.5]}, "2 parts for 1 folders"),
    ],
)
def test_shares_that_do_not_suit_the_folders_are_refused(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        DataConfig(**data)


def configuration(folders: list[Path], out: Path, *more: str) -> RunConfig:
    network = "{num_layers: 1, width: 16, num_heads: 2}"
    names = ", ".join(str(folder) for folder in folders)
    return compose(
        RunConfig,
        [],
        [
            f"data.folder=[{names}]",
            "data.shares=[0.3, 0.7]",
            "learner.kind=one_step",
            f"learner.network={network}",
            "trainer.batch_size=10",
            "optim.schedule=constant",
            "trainer.max_steps=6",
            "trainer.tensorboard=false",
            "trainer.eval_records=0",
            "trainer.accuracy_records=0",
            "trainer.checkpoint_every=2",
            f"out={out}",
            *more,
        ],
    )


def test_a_run_that_is_stopped_ends_with_the_same_weights(tmp_path: Path) -> None:
    folders = [solved_connect(tmp_path / f"{every}", every=every).folder for every in (9, 7)]
    assert Dataset.open(folders).num_records > 20
    train(configuration(folders, tmp_path / "whole"))
    train(configuration(folders, tmp_path / "cut", "trainer.max_steps=4"))
    train(configuration(folders, tmp_path / "cut"), resume=True)
    states = [newest(tmp_path / name / "checkpoints") for name in ("whole", "cut")]
    assert states[0] is not None
    assert states[1] is not None
    whole, cut = ((folder / "model.safetensors").read_bytes() for folder in states if folder is not None)
    assert whole == cut
    by_size = compose(RunConfig, [], ["data.folder=x", "learner.kind=one_step"])
    assert by_size.data.shares is None


def test_other_shares_are_another_run(tmp_path: Path) -> None:
    folders = [solved_connect(tmp_path / f"{every}", every=every).folder for every in (9, 7)]
    train(configuration(folders, tmp_path / "run", "trainer.max_steps=2"))
    with pytest.raises(ValueError, match="shares"):
        train(configuration(folders, tmp_path / "run", "data.shares=[0.5, 0.5]"), resume=True)


def test_learners_with_a_stream_of_their_own_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genpolicy_policy_baselines.one_step import OneStepLearner

    folders = [solved_connect(tmp_path / f"{every}", every=every).folder for every in (9, 7)]
    own = mixed(Share(16))
    monkeypatch.setattr(OneStepLearner, "windows", lambda *_, **__: own)
    with pytest.raises(ConfigError, match="has a stream of its own"):
        train(configuration(folders, tmp_path / "run"))


def test_a_run_is_not_resumed_with_the_shares_of_its_folders_exchanged(tmp_path: Path) -> None:
    folders = [solved_connect(tmp_path / f"{every}", every=every).folder for every in (9, 7)]
    train(configuration(folders, tmp_path / "run", "trainer.max_steps=4"))
    with pytest.raises(CheckpointError, match="dataset"):
        train(configuration(folders[::-1], tmp_path / "run"), resume=True)


def test_search_policies_beside_labels_without_any(tmp_path: Path) -> None:
    """policy_value learns moves of both; a part without policies has no column for them."""
    solved = solved_connect(tmp_path / "solved", every=5)
    labelled = [
        replace(each, scores=(each.scored_moves[each.moves[0]],)) for each in solved.records("train") if each.moves
    ]
    searched = [
        replace(each, policy=f"{each.moves[0]}=1", value=0.5) for each in itertools.islice(labelled, 0, None, 3)
    ]
    folders = [
        write_dataset(tmp_path / name, CONNECT, records).folder
        for name, records in (("labelled", labelled), ("searched", searched))
    ]
    train(configuration(folders, tmp_path / "out", "learner.kind=policy_value", "trainer.max_steps=2"))


def test_what_another_folder_holds_out_is_never_a_label(tmp_path: Path) -> None:
    game = load_game(CONNECT)
    states = [game.parse()]
    for move in ("b2", "a1"):
        states.append(game.play(states[-1], game.moves.index(move)))
    own = Record(game.format(states[0]), line="b2 a1 c1 a3", move_values="b2=value:0", split="train")
    held_out = Record(game.format(states[2]), line="c1", split="test")
    other = Record(game.format(states[1]), line="c3", split="train")
    one, two = ([own], [held_out, other])
    folders = [write_dataset(tmp_path / name, CONNECT, some).folder for name, some in (("a", one), ("b", two))]
    config = configuration(folders, tmp_path / "out")
    learner = make_learner(game, {"kind": "diffusion", "network": {"num_layers": 1, "width": 16, "num_heads": 2}})
    stream = make_stream("diffusion", learner, Dataset.open(folders), config.data, 0)
    stream.begin(Share(10))
    layout, starts = learner.layout, set()
    places = [slot.start for slot in layout.slots if slot.kind == "action"]
    for row in itertools.chain.from_iterable(part.tokens for part in stream.parts(0)):
        moves = tuple(game.moves[int(row[at]) - layout.move_offset] if row[at] != layout.mask else "" for at in places)
        starts.add(moves)
    assert ("b2", "a1", "", "") in starts
    assert ("b2", "a1", "c1", "a3") not in starts
