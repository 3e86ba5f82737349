"""The commands that are disturbed, and what must come out of each however often it was."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from genpolicy.data.records import Dataset
from tests.faults.disk import FAULTS
from tests.faults.nursery import Ending, Nursery
from tests.small_datasets import CONNECT, solved_connect

SMALL = {
    "learner.kind": "diffusion",
    "learner.horizon": 1,
    "learner.network": {"num_layers": 1, "width": 16, "num_heads": 2},
    "trainer": {"device": "cpu", "batch_size": 8, "tensorboard": False, "eval_records": 16, "accuracy_records": 4},
}
TRAIN = [
    *("train", "--out", "run", "data.folder=../data", "data.validation=test", "learner.kind=diffusion"),
    *("learner.horizon=1", "learner.network.num_layers=1", "learner.network.width=16", "learner.network.num_heads=2"),
    *("trainer.device=cpu", "trainer.batch_size=8", "trainer.tensorboard=false", "trainer.eval_records=16"),
    *("trainer.accuracy_records=4", "trainer.max_steps=6", "trainer.eval_every=2", "trainer.checkpoint_every=2"),
    *("optim.lr=0.1", "optim.schedule=constant", "optim.warmup=0", "optim.grad_clip=0", "trainer.keep=1"),
]
IMPORT = ["data", "import", "../some.games", "--game", CONNECT, "--split", "0.8/0.1/0.1"]
GAMES = "-; b2 a1 c1 a3 a2; *; {}\n-; a1 b1 a2 b2 a3; 1-0; {}\n-; c3 b2; 1/2-1/2; {}\n"
SELFPLAY = ["data", "selfplay", "--game", CONNECT, "--oracle", "solver", "--games", "6", "--random-plies", "0:2"]
LOOP = {
    "game": CONNECT,
    "generations": 3,
    "games": 6,
    "window": 2,
    "reanalyse": 0.5,
    "start": "mcts:rollout?simulations=2",
    "search": "{prior}",
    "together": 4,
    "split": "1/0/0",
    "learners": {
        "prior": {
            "data": {"validation": None},
            "learner": {"kind": "one_step", "network": {"num_layers": 1, "width": 16, "num_heads": 2}},
            "trainer": {
                **{"device": "cpu", "batch_size": 8, "max_steps": 4, "checkpoint_every": 2, "keep": 1},
                **{"tensorboard": False, "prefetch": 0},
            },
            "optim": {"lr": 0.01},
        }
    },
}
PLAY = [
    "tournament",
    "--game",
    CONNECT,
    "--policy",
    "random",
    "greedy",
    "--rounds",
    "6",
    "--out",
    "cup",
    "--workers",
    "1",
]


@dataclass(frozen=True)
class Work:
    """A command and its result.

    Args:
        name: For tables.
        arguments: Of ``genpolicy``, run in a folder beside ``data``, a labelled data set.
        result: What must be the same as after an undisturbed run, read from that folder.
        again: Further arguments where the command is run after a fault.
        faults: Those that it can be given: what a process that it starts has synced is not known.
    """

    name: str
    arguments: list[str]
    result: Callable[[Path], object]
    again: tuple[str, ...] = ()
    faults: tuple[str, ...] = FAULTS


def _weights(folder: Path) -> object:
    names = ("policy", "policy-best")
    return [hashlib.sha256((folder / "run" / name / "model.safetensors").read_bytes()).hexdigest() for name in names]


def _records(folder: Path) -> object:
    made = Dataset.open(folder / "out")
    assert made.info.complete, "the data set is not complete"
    return [str(record.to_row()) for record in made.records()]


def _games(folder: Path) -> object:
    games = [json.loads(line) for line in (folder / "cup" / "games.jsonl").read_text().splitlines()]
    keys = ("number", "round", "first", "second", "start", "moves", "result", "reason")
    return Counter(str([game[key] for key in keys]) for game in games)


def _tables(folder: Path) -> object:
    lines = (folder / "exp" / "small.csv").read_text().splitlines()
    weights = [path.read_bytes() for path in (folder / "exp").rglob("model.safetensors")]
    assert weights, "no run has a policy"
    times = ("minutes", "ms")
    return [line for line in lines if line.split(",")[1] not in times], [hashlib.sha256(w).hexdigest() for w in weights]


def _generations(folder: Path) -> object:
    weights = sorted((folder / "loop").glob("generation-*/prior/policy/model.safetensors"))
    games = sorted((folder / "loop").glob("generation-*/*/dataset.yaml"))
    assert (len(weights), len(games)) == (3, 5), "a stage is missing"
    records = [Dataset.open(path.parent).checksum for path in games]
    return records, [hashlib.sha256(path.read_bytes()).hexdigest() for path in weights]


WORKS = {
    work.name: work
    for work in (
        Work(
            "import", ["data", "import", "all", "--game", CONNECT, "--split", "0.8/0.1/0.1", "--out", "out"], _records
        ),
        Work("selfplay", [*SELFPLAY, "--out", "out"], _records),
        Work("label", ["data", "label", "../data", "--oracle", "solver", "--horizon", "2", "--out", "out"], _records),
        Work("train", TRAIN, _weights, ("--resume",)),
        Work("tournament", [*PLAY, "--out", "cup"], _games),
        Work("experiment", ["experiment", "../small.yaml", "--out", "exp"], _tables, faults=FAULTS[:4]),
    )
}

LOOP_WORK = Work("loop", ["loop", "../loop.yaml", "--out", "loop"], _generations)
"""Not one of ``WORKS``, all of whose operations are disturbed: it is made of them, and has hundreds."""


class Bench:
    """Disturbs commands, each in a fresh folder.

    Args:
        folder: Scratch.
        nursery: Runs the commands.
    """

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder, self.nursery = folder.resolve(), nursery
        solved_connect(self.folder / "data", every=60)
        (self.folder / "some.games").write_text(GAMES)
        description = {
            "name": "small",
            "data": {"folder": str(self.folder / "data")},
            "run": {**SMALL, "data.validation": None},
            "axes": {"x": {"a": {}}},
            "seeds": [0],
            "budget": {"records": 24},
            "evaluate": {"positions": 5},
        }
        (self.folder / "small.yaml").write_text(yaml.safe_dump(description, sort_keys=False))
        (self.folder / "loop.yaml").write_text(yaml.safe_dump(LOOP, sort_keys=False))
        self._expected: dict[str, tuple[int, object]] = {}

    def undisturbed(self, work: Work) -> tuple[int, object]:
        """The number of operations of a command, and its result."""
        if work.name not in self._expected:
            root = self.clear()
            ending = self.nursery.run(work.arguments, root)
            assert ending.status == 0, ending.said
            self._expected[work.name] = ending.num_operations, work.result(root)
        return self._expected[work.name]

    def disturb(self, work: Work, fault: str, at: int) -> str | None:
        """Run a command with a fault, then again without; what is wrong with that, or None."""
        _, expected = self.undisturbed(work)
        root = self.clear()
        first = self.nursery.run(work.arguments, root, fault, at)
        if wrong := _wrong(first, {0, 2, -9}):
            return f"disturbed: {wrong}"
        second = self.nursery.run([*work.arguments, *(work.again if any(root.iterdir()) else ())], root)
        if wrong := _wrong(second, {0}):
            return f"again: {wrong} (before: {first.status} {first.said[-300:]})"
        try:
            result = work.result(root)
        except Exception as error:
            return f"no result: {type(error).__name__}: {error}"
        return None if result == expected else "the result is another one"

    def points(self, work: Work, seed: int) -> Iterator[tuple[str, int]]:
        """Every fault at every operation, in random order, for ever."""
        generator = random.Random(f"{work.name} {seed}")
        number, _ = self.undisturbed(work)
        points = [(fault, at) for fault in work.faults for at in range(1, number + 1)]
        while True:
            generator.shuffle(points)
            yield from points

    def clear(self) -> Path:
        """An empty folder to work in."""
        root = self.folder / "work"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        return root


def _wrong(ending: Ending, statuses: set[int]) -> str | None:
    if "Traceback" in ending.said:
        return f"traceback: {ending.said[-1500:]}"
    if ending.status not in statuses:
        return f"status {ending.status}: {ending.said[-600:]}"
    return f"no message: status 2 and {ending.said!r}" if ending.status == 2 and "error:" not in ending.said else None
