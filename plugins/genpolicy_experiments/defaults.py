"""Finished runs whose settings a new run would not have, since a default has changed.

A run's key is the hash of what is written, so such a run is not made again, and all seeds of a cell are trained alike;
but cells of one table may differ in it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from genpolicy.config import read_yaml, structured
from genpolicy.errors import ConfigError, RegistryError
from genpolicy.registry import load_game
from genpolicy.training import setup
from genpolicy.training.checkpoint import differences
from genpolicy.training.config import RunConfig
from genpolicy_experiments import stored
from genpolicy_experiments.description import Experiment
from genpolicy_experiments.runner import Result


def of_other_defaults(experiment: Experiment, results: Sequence[Result]) -> list[str]:
    """A sentence for the finished runs that differ from new ones in the same settings."""
    found: dict[str, dict[Path, str]] = {}
    for result in results:
        file = result.folder / stored.RUN / "config.yaml"
        if result.figures is None or not file.is_file():
            continue
        written = experiment.planned(result.cell, result.seed).config
        try:
            now = setup.compared(setup.filled_in(structured(RunConfig, {**written, "out": ""})))
        except (ConfigError, RegistryError):
            continue  # no new run can be made
        then = setup.completed({"config": read_yaml(file)})["config"]
        if changed := differences(then, _without_idle(experiment.dataset.game_spec, then, now)):
            found.setdefault("; ".join(changed), {})[result.folder] = f"{result.cell.name}, seed {result.seed}"
    return [
        f"OTHER DEFAULTS THAN TODAY'S: {changed}: {'; '.join(runs.values())} (delete {', '.join(map(str, runs))}, and "
        "the same command makes them again)."
        for changed, runs in found.items()
    ]


def _without_idle(spec: str, then: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Today's settings; options of the network that are null stay as they were if that makes the same network.

    What null means depends on the game and the learner, as of moves that are shown where nothing is imagined.
    """
    before, today = (settings["learner"].get("network") for settings in (then, now))
    if not isinstance(before, dict) or not isinstance(today, dict):
        return now
    unsaid = {key: value for key, value in before.items() if value is not None and today.get(key, 0) is None}
    as_before = {**now["learner"], "network": {**today, **unsaid}}
    if not unsaid or _network(spec, json.dumps(as_before)) != _network(spec, json.dumps(now["learner"])):
        return now
    return {**now, "learner": as_before}


@functools.cache  # all seeds of a cell have one
def _network(spec: str, section: str) -> str:
    """A digest of the modules, the parameters and the tables of a new learner of a game.

    Args:
        spec: The game's.
        section: ``learner:`` of a configuration as JSON.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        learner = setup.make_learner(load_game(spec), json.loads(section))
    found = hashlib.sha256(repr([(name, type(module)) for name, module in learner.named_modules()]).encode())
    for name, tensor in (*learner.named_parameters(), *learner.named_buffers()):
        found.update(name.encode() + tensor.detach().numpy().tobytes())
    return found.hexdigest()
