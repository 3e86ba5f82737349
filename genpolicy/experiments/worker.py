"""One run of an experiment in a process of its own: train (or go on), then measure every way of playing that is asked.

    python -m genpolicy.experiments.worker JOB.json

It ends when the process that started it is gone, and goes on where it stopped when it is started again.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genpolicy.config import structured
from genpolicy.data.records import Dataset
from genpolicy.data.storage import write_atomic
from genpolicy.errors import ConfigError
from genpolicy.evaluation.futures import measure_futures
from genpolicy.evaluation.positions import LabelledPosition, ask, labelled_positions
from genpolicy.experiments.description import FLOPS
from genpolicy.policies.base import Policy, load_policy
from genpolicy.policies.learner import Learner
from genpolicy.training import setup
from genpolicy.training.checkpoint import newest
from genpolicy.training.config import RunConfig
from genpolicy.training.run import CHECKPOINTS, POLICY_FOLDER

BOUND_WINDOWS = 2048
"""Windows that the bound is averaged over."""
BOUND_DRAWS = 4


def main(arguments: list[str]) -> int:
    """Run a job file."""
    job = json.loads(Path(arguments[0]).read_text())
    _follow_parent()
    folder, results = Path(job["folder"]), Path(job["results"])
    config = structured(RunConfig, {**job["config"], "out": str(folder)})
    trained = _train(config, job["budget"], folder)
    policy = load_policy(folder / POLICY_FOLDER)
    _, game = setup.open_data(config)
    wanted = job["evaluate"]
    measured_on = Dataset.open(wanted["folder"])
    positions = labelled_positions(measured_on, game, wanted["split"], limit=wanted["positions"])
    for name, play in job["plays"].items():
        result = results / f"{name}.json"
        if not result.exists():
            figures, hits = measure(policy.with_options(**play), positions, wanted)
            write_atomic(results / f"{name}.npz", _packed(hits, positions))
            # The JSON is written last: where it is, the measurement is whole.
            write_atomic(result, json.dumps({**figures, **trained}, indent=2).encode())
    return 0


def _train(config: RunConfig, budget: dict[str, float], folder: Path) -> dict[str, Any]:
    """Train where it is not done; what it took."""
    facts = folder.parent / "trained.json"
    if facts.exists():
        found: dict[str, Any] = json.loads(facts.read_text())
        return found
    dataset, game = setup.open_data(config)
    learner = setup.make_learner(game, config.learner)
    per_record = flops_per_record(learner)
    if FLOPS in budget:
        if per_record is None:
            raise ConfigError(f"learner {config.learner.get('kind')!r} does not say its cost: give budget in records")
        config.trainer.max_records = max(1, int(budget[FLOPS] / per_record))
    from genpolicy.training.loop import train

    train(config, resume=newest(folder / CHECKPOINTS) is not None, overwrite=newest(folder / CHECKPOINTS) is None)
    provenance = json.loads((folder / POLICY_FOLDER / "provenance.json").read_text())
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
    write_atomic(facts, json.dumps(figures, indent=2).encode())
    return figures


def _bound(folder: Path, config: RunConfig, dataset: Any, game: Any) -> float | None:
    """Mean bound on -log p(future | position) over the validation split, in nats; None where the method has none."""
    split = config.data.validation
    policy: Any = load_policy(folder / POLICY_FOLDER)
    learner: Learner | None = getattr(policy, "learner", None)
    if learner is None or split is None or not dataset.splits.get(split):
        return None
    windows = learner.windows(dataset, split, seed=0)
    batch = windows.batch(np.arange(min(len(windows), BOUND_WINDOWS)), 0)
    generator = torch.Generator().manual_seed(0)
    learner.eval()
    mean = float(torch.stack([learner.elbo(batch, generator) for _ in range(BOUND_DRAWS)]).mean())
    return mean if np.isfinite(mean) else None


def flops_per_record(learner: Learner) -> float | None:
    """Floating-point operations of one record's forward and backward pass through a transformer; None for others.

    6 operations a weight of the blocks and a token, and 12 N^2 W a layer for attention (Kaplan et al. 2020,
    arXiv:2001.08361, section 2.1).
    """
    network, layout = getattr(learner, "network", None), getattr(learner, "layout", None)
    if network is None or layout is None or not hasattr(network, "trunk"):
        return None
    weights = sum(p.numel() for p in network.trunk.blocks.parameters())
    config = network.config
    attention = 12 * config.num_layers * config.width * layout.length**2
    return float(6 * weights * layout.length + attention)


def measure(policy: Policy, positions: list[LabelledPosition], wanted: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Figures of a policy's ways of playing, and the hits behind them by metric.

    ``best`` is the policy as it is set, ``best_one_call`` its marginal by one network call (the same where it has no
    other way). ``raw_best`` counts the first imagined action instead of the move that is played for it: where the
    policy plays without a legal mask (``play.legal_mask=false``), one that is illegal is a miss.
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
        of = {
            "best": [float(d.move in p.best) for d, p in zip(decisions, positions, strict=True)],
            "raw_best": [float((d.line or (d.move,))[0] in p.best) for d, p in zip(decisions, positions, strict=True)],
            "labelled": [float(d.move == p.label) for d, p in zip(decisions, positions, strict=True)],
            "legal": [d.stats.get("raw_legal", 1.0) for d in decisions],
        }
        for name, row in of.items():
            hits[name + suffix] = np.array(row)
            figures[name + suffix] = float(np.mean(row))
        if not suffix:
            figures["calls"] = float(np.mean([d.stats.get("network_calls", 0.0) for d in decisions]))
            figures["ms"] = ms
    figures["random"] = float(np.mean([len(p.best) / p.num_legal for p in positions]))
    if wanted.get("futures"):
        futures = measure_futures(full, positions)
        for step, shares in enumerate(futures.steps):
            for name, share in shares.items():
                if share.trials:
                    figures[f"{name}_{step}"] = share.value
    return figures, hits


def _packed(hits: dict[str, Any], positions: list[LabelledPosition]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, clusters=np.array([p.cluster for p in positions]), **hits)
    return stream.getvalue()


def _follow_parent() -> None:
    """End when the starting process is gone, as after its SIGKILL."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, OSError, RuntimeError) as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
