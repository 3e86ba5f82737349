"""Makes one run of an experiment in a process of its own: trains or resumes, then measures every way of playing.

    python -m genpolicy_experiments.worker JOB.json

It ends when the process that started it is gone, and resumes when it is started again. It fails if the data does not
have the version in the run's key.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genpolicy.config import structured
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError
from genpolicy.files import write_atomic
from genpolicy.folder_lock import FolderLock
from genpolicy.game import Game
from genpolicy.policies.base import Policy, load_policy
from genpolicy.training import setup
from genpolicy.training.checkpoint import newest, remove_leftovers
from genpolicy.training.config import RunConfig
from genpolicy.training.run import CHECKPOINTS, POLICY_FOLDER
from genpolicy_common.children import follow_parent
from genpolicy_common.labelled import LabelledPosition, labelled_positions
from genpolicy_evaluation.accuracy import calls_of, hits_of
from genpolicy_evaluation.futures import measure_futures
from genpolicy_evaluation.positions import ask
from genpolicy_experiments import stored
from genpolicy_experiments.description import FLOPS
from genpolicy_experiments.plays import as_played

BOUND_WINDOWS = 2048
"""Most windows, spread over the validation split, that the bound is averaged over."""
BOUND_DRAWS = 4


def main(arguments: list[str]) -> int:
    """Run a job file."""
    job = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    follow_parent(job.get("parent", os.getppid()), lambda: is_wanted(job))
    # The process of a command that was killed may still be saving its last checkpoint.
    with FolderLock(Path(job["results"]), "makes a run", "choose another folder", wait=True):
        return _work(job)


def is_wanted(job: dict[str, Any]) -> bool:
    """Whether a worker of a cluster still makes the run: its command names another one when it takes that for lost."""
    try:
        now = stored.read_mapping(Path(job["results"]) / stored.JOB)
        return bool(now.get("place") == job.get("place"))
    except (OSError, stored.DamagedError):
        return True


def _work(job: dict[str, Any]) -> int:
    folder, results, evaluate = Path(job["folder"]), Path(job["results"]), job["evaluate"]
    config = structured(RunConfig, {**job["config"], "out": str(folder)})
    config = setup.as_begun(config, other_seeds(job, results))
    versions = job.get("records", {})
    trained = _train(config, job["budget"], results, folder, versions.get("trained_on"))
    policy = load_policy(folder / POLICY_FOLDER)
    _, game = setup.open_data(config)
    measured_on = Dataset.open(evaluate["folder"])
    stored.require_version(evaluate["folder"], versions.get("measured_on"), actual=measured_on.checksum)
    positions = labelled_positions(measured_on, game, evaluate["split"], limit=evaluate["positions"])
    stored.require_version(evaluate["folder"], versions.get("measured_on"))  # shards were read after it was opened
    for name, play in job["plays"].items():
        if not _is_measured(results, name):
            with contextlib.closing(as_played(policy, folder / POLICY_FOLDER, play)) as played:
                figures, hits = measure(played, positions, evaluate)
            write_atomic(results / f"{name}.npz", _packed(hits, positions, game))
            # The JSON is written last: if it exists, the measurement is whole.
            write_atomic(results / f"{name}.json", json.dumps({**figures, **trained}, indent=2).encode())
    return 0


def other_seeds(job: dict[str, Any], results: Path) -> Iterator[Path]:
    """Configurations of the finished runs that differ from this one in the seed alone.

    All seeds of a cell are trained in the same way, though the code has gained keys since the first of them, and the
    data may have been moved.
    """
    ours, *data = _cell(job)
    for file in sorted(results.parent.glob(f"*/{stored.JOB}")):
        with contextlib.suppress(stored.DamagedError, KeyError, TypeError):
            settings, *its_data = _cell(stored.read_mapping(file))
            if file.parent != results and settings == ours and any(map(_is_same, data, its_data)):
                yield file.parent / stored.RUN / "config.yaml"


def _cell(job: dict[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    """Settings of a run that its cell's other seeds have, too; folder and checksum of the data it is trained on."""
    config = job["config"]
    trainer = {key: value for key, value in config["trainer"].items() if key != "seed"}
    settings = {**config, "trainer": trainer, "data": {**config["data"], "folder": ""}, "out": ""}
    return settings, config["data"]["folder"], job.get("records", {}).get("trained_on")


def _is_same(one: Any, other: Any) -> bool:
    return one is not None and one == other


def _is_measured(results: Path, name: str) -> bool:
    try:
        return stored.measured(results, name) is not None
    except stored.DamagedError as error:
        _say(f"{error}; measured again")
        return False


def _train(
    config: RunConfig, budget: dict[str, float], results: Path, folder: Path, version: str | None
) -> dict[str, Any]:
    """Train unless that is done, and return the figures of the training.

    A damaged policy is saved again from its last checkpoint; damaged figures are computed again from the policy.
    ``version`` is the checksum of the data in the run's key.
    """
    is_whole, facts = _has_policy(folder), _facts(results)
    if is_whole and facts is not None:
        return facts
    dataset, game = setup.open_data(config)
    stored.require_version(dataset.folder, version, actual=dataset.checksum)
    learner = setup.make_learner(game, config.learner)
    per_record = learner.flops_per_record()
    if FLOPS in budget:
        if per_record is None:
            raise ConfigError(
                f"learner {config.learner.get('kind')!r} does not give its cost: set the budget in records"
            )
        config.trainer.max_records = max(1, int(budget[FLOPS] / per_record))
    if not is_whole:
        from genpolicy.training.loop import train

        remove_leftovers(folder / CHECKPOINTS)  # a kill may have left the only checkpoint under another name
        train(config, resume=newest(folder / CHECKPOINTS) is not None, overwrite=newest(folder / CHECKPOINTS) is None)
        # The training opened the data again.
        stored.require_version(dataset.folder, version, actual=stored.trained_on(results))
    if facts is not None:
        return facts
    provenance = stored.provenance(results) or {}
    records = int(provenance["records_seen"])
    seconds = provenance.get("seconds")
    figures = {
        "records": records,
        "minutes": None if seconds is None else seconds / 60,
        "flops": None if per_record is None else per_record * records,
        "parameters": sum(p.numel() for p in learner.parameters() if p.requires_grad),
        "commit": provenance.get("commit"),
        "bound": _bound(folder, config, dataset, game) if config.data.validation else None,
    }
    for part in dataset.parts:
        stored.require_version(part.folder, version and part.checksum)  # the bound was computed from it
    write_atomic(results / stored.TRAINED, json.dumps(figures, indent=2).encode())
    return figures


def _has_policy(folder: Path) -> bool:
    """Whether the trained policy exists and is whole; it is saved at the end of training, and not before."""
    if not (folder / POLICY_FOLDER).is_dir():
        return False
    try:
        load_policy(folder / POLICY_FOLDER)
        provenance = stored.provenance(folder.parent)
    except (ValueError, OSError) as error:
        _say(f"{error}; saved again from the last checkpoint, or trained again if there is none")
        return False
    return provenance is not None and "records_seen" in provenance


def _facts(results: Path) -> dict[str, Any] | None:
    try:
        return stored.trained(results)
    except stored.DamagedError as error:
        _say(f"{error}; computed again from the policy")
        return None


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _bound(folder: Path, config: RunConfig, dataset: Any, game: Any) -> float | None:
    """Mean bound on -log p(future | position) over the validation split, in nats; None if the method has none."""
    split = config.data.validation
    learner = load_policy(folder / POLICY_FOLDER).learner
    if learner is None or split is None or not dataset.splits.get(split):
        return None
    windows = learner.source(dataset, split, seed=0)
    chosen = np.linspace(0, len(windows) - 1, min(len(windows), BOUND_WINDOWS)).astype(np.int64)
    batch = windows.batch(chosen, 0)
    generator = torch.Generator().manual_seed(0)
    learner.eval()
    mean = float(torch.stack([learner.elbo(batch, generator) for _ in range(BOUND_DRAWS)]).mean())
    return mean if np.isfinite(mean) else None


def measure(policy: Policy, positions: list[LabelledPosition], evaluate: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Measure a policy's ways of playing: figures, and the hits behind them by metric.

    ``best`` is the policy with its options, ``best_one_call`` its marginal by one network call (the same if it has no
    other way). ``raw_best`` counts the first imagined action instead of the move that is played for it; without a legal
    mask (``play.legal_mask=false``) an illegal one is a miss.
    """
    modes = policy.modes()
    full = list(modes.values())[-1]
    one_call = modes.get("one_call", full)
    figures: dict[str, Any] = {}
    hits: dict[str, Any] = {}
    for suffix, way in (("", full), ("_one_call", one_call)):
        if suffix and way is full:
            for name in ("best", "raw_best", "labelled", "legal"):
                figures[f"{name}_one_call"], hits[f"{name}_one_call"] = figures[name], hits[name]
            continue
        began = time.perf_counter()
        decisions = ask(way, positions, "")
        ms = 1e3 * (time.perf_counter() - began) / len(positions)
        scored = hits_of(decisions, positions)
        of = {"best": scored.best, "raw_best": scored.raw_best, "labelled": scored.labelled, "legal": scored.raw_legal}
        for name, row in of.items():
            hits[name + suffix] = row
            figures[name + suffix] = float(np.mean(row))
        if not suffix:
            figures["calls"] = calls_of(way, decisions, positions)
            figures["ms"] = ms
    figures["random"] = float(np.mean([len(p.best) / p.num_legal for p in positions]))
    if evaluate.get("futures"):
        futures = measure_futures(full, positions)
        for step, shares in enumerate(futures.steps):
            for name, share in shares.items():
                if share.trials:
                    figures[f"{name}_{step}"] = share.value
    return figures, hits


def _packed(hits: dict[str, Any], positions: list[LabelledPosition], game: Game[Any]) -> bytes:
    stream = io.BytesIO()
    text = "\n".join(f"{game.format(p.state)} {sorted(p.best)} {p.label}" for p in positions)
    which: dict[str, Any] = {
        stored.CLUSTERS: np.array([p.cluster for p in positions]),
        stored.POSITIONS: np.array(hashlib.sha256(text.encode()).hexdigest()),
    }
    np.savez_compressed(stream, **which, **hits)
    return stream.getvalue()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, OSError, RuntimeError) as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
