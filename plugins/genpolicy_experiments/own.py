"""What the learner of a run measures itself (``Learner.measure``), as metrics called ``own:NAME``."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import torch

from genpolicy.files import write_atomic
from genpolicy.policies.base import load_policy
from genpolicy.training.run import POLICY_FOLDER
from genpolicy_experiments import stored
from genpolicy_experiments.description import Experiment, digest
from genpolicy_experiments.metrics import OWN

MOST = 1000
"""Most items that are looked at where the description sets no number of positions."""


def is_wanted(experiment: Experiment) -> bool:
    """Whether a column or a plot of the description shows such a metric."""
    shown = [*experiment.file.metrics, *(name for plot in experiment.file.plots for name in plot.drawn)]
    return any(name.startswith(OWN) for name in shown)


def figures(experiment: Experiment, run: Path) -> dict[str, float]:
    """The figures of a finished run by metric, kept in its folder; {} of a learner that measures nothing.

    Args:
        experiment: Its data set and split are measured on, with as many items as it has positions.
        run: The folder of the run.
    """
    evaluate = experiment.file.evaluate
    identity = [experiment.dataset.checksum, evaluate.split, evaluate.positions]
    path = run / f"own-{digest(identity)}.json"
    with suppress(FileNotFoundError, stored.DamagedError):
        return {f"{OWN}{name}": value for name, value in stored.read_mapping(path).items()}
    learner = load_policy(run / stored.RUN / POLICY_FOLDER).learner
    assert learner is not None  # of a run that was trained
    with torch.no_grad():
        found = learner.eval().measure(experiment.dataset, evaluate.split, evaluate.positions or MOST)
    write_atomic(path, json.dumps(found).encode())
    return {f"{OWN}{name}": float(value) for name, value in found.items()}
