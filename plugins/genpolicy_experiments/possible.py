"""Checks, once the data exist and before hours are spent, that every run can be made and is fair."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from genpolicy import registry
from genpolicy.config import structured, to_dict
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError, DatasetError, RegistryError
from genpolicy.game import Game
from genpolicy.policies.learner import Learner
from genpolicy.training import setup
from genpolicy.training.config import RunConfig
from genpolicy_experiments import leaks
from genpolicy_experiments.description import FLOPS, Experiment, PlannedRun, digest
from genpolicy_experiments.plays import SPELLING, as_played

Plays = Mapping[str, Mapping[str, Any]]
"""Name of a measurement -> options of the policy."""

_WRONG_TYPES = (TypeError, AttributeError, ArithmeticError, LookupError)
"""What code raises for a value of a type that it does not check for."""


def require(experiment: Experiment, waiting: Sequence[tuple[PlannedRun, Plays]], say: Callable[[str], None]) -> None:
    """Check that the remaining runs can be made, and that their policies can play as the cells say.

    Args:
        experiment: The experiment.
        waiting: The remaining runs, each with the ways in which its policy plays.
        say: Called with notes for the user.

    Raises:
        ConfigError: a method cannot do a paradigm or does not have an option, a budget is less than one update, no
            record holds a ply, or a split is empty; the message names the cell.
        DatasetError: a data set cannot be trained on.
    """
    _require_measurable(experiment)
    opened: dict[str, tuple[Dataset, Game[Any]]] = {}
    for run, _ in waiting:
        if (known := _data_of(run)) not in opened:
            opened[known] = _open(experiment, _cell(experiment, run), run)
    for note in experiment.data_notes:
        say(note)
    seen: set[str] = set()
    for run, plays in waiting:
        cell = _cell(experiment, run)
        dataset, game = opened[known := _data_of(run)]
        section = run.config.get("learner", {})
        made = digest([section, sorted(plays), known, run.budget, run.config["trainer"].get("batch_size")])
        if made in seen:
            continue
        seen.add(made)
        learner = _make(cell, game, section, plays)
        _require_budget(cell, learner, run)
        _require_horizon(cell, learner, plays, dataset)


def _cell(experiment: Experiment, run: PlannedRun) -> str:
    return f"{experiment.path}: cell {run.name.rpartition(', ')[0]!r}"


def _data_of(run: PlannedRun) -> str:
    return digest([run.config["data"], run.config.get("game")])


def _require_measurable(experiment: Experiment) -> None:
    path, folder, split = experiment.path, experiment.file.data.folder, experiment.file.evaluate.split
    splits = experiment.dataset.splits
    if not splits.get(split):
        have = ", ".join(name for name, count in splits.items() if count)
        raise ConfigError(f"{path}: evaluate.split {split!r} holds no record of {folder}; splits with records: {have}")
    if not any(line for batch in experiment.dataset.batches(["line"], split) for line in batch.column(0).to_pylist()):
        raise ConfigError(
            f"{path}: evaluate.split {split!r} of {folder} holds no labelled position: name a data set that "
            "'genpolicy data label' wrote"
        )


def _open(experiment: Experiment, cell: str, run: PlannedRun) -> tuple[Dataset, Game[Any]]:
    try:
        dataset, game = setup.open_data(structured(RunConfig, run.config))
    except (DatasetError, RegistryError) as error:
        raise type(error)(f"{cell}: {error}") from error
    measured = registry.load_game(experiment.dataset.game_spec)
    if game.spec != measured.spec:
        raise ConfigError(
            f"{cell}: data.folder {run.config['data']['folder']} is of {game.spec!r}, but the one that is measured on "
            f"({experiment.file.data.folder}) is of {measured.spec!r}; train on records of the same game"
        )
    return dataset, game


def _make(cell: str, game: Game[Any], section: dict[str, Any], plays: Plays) -> Learner:
    way_out = "change its settings, or leave the cell out with a line of skip"
    what = f"learner: {section}"
    try:
        learner = setup.make_learner(game, section)
        policy = learner.policy()
        for play in plays.values():
            what = "; ".join(f"play.{key}: {value!r}" for key, value in play.items())
            with tempfile.TemporaryDirectory() as folder:
                if SPELLING in play:
                    policy.save_pretrained(folder)
                as_played(policy, Path(folder), play).close()
    except (RegistryError, ValueError, *_WRONG_TYPES) as error:
        raised = error.__cause__ if isinstance(error, RegistryError) else error
        if isinstance(raised, _WRONG_TYPES):
            raise ConfigError(f"{cell}: a value has the wrong type in {what} ({raised}); {way_out}") from error
        raise ConfigError(f"{cell}: {error}; {way_out}") from error
    return learner


def _require_budget(cell: str, learner: Learner, run: PlannedRun) -> None:
    """Check that a budget of FLOPs can be counted and is at least one update."""
    if FLOPS not in run.budget:
        return
    per_record = learner.flops_per_record()
    if per_record is None:
        raise ConfigError(
            f"{cell}: learner {run.config['learner'].get('kind')!r} does not give its cost: set the budget in records"
        )
    batch = structured(RunConfig, run.config).trainer.batch_size
    if run.budget[FLOPS] < per_record * batch:
        raise ConfigError(
            f"{cell}: budget.flops {run.budget[FLOPS]:g} is less than one update of {batch} records, which costs "
            f"{per_record * batch:.3g}; raise the budget"
        )


def _require_horizon(cell: str, learner: Learner, plays: Plays, dataset: Dataset) -> None:
    """Check that the network is trained on every ply that it plays."""
    settings = to_dict(learner.config)
    longest = settings.get("horizon")
    if not isinstance(longest, int):
        return
    horizons = list(settings.get("horizons") or [])
    trained = max(horizons, default=longest)
    if horizons and settings["network"]["positions"] == "learned":
        for play in plays.values():
            played = play.get("horizon") or longest
            if played > trained:
                raise ConfigError(
                    f"{cell}: it would play with horizon {played}, but is trained on learner.horizons {horizons}, and "
                    "learned positions do not extend to later plies: set play.horizon to a trained one, or "
                    "learner.network.positions: rotary"
                )
    labelled = dataset.info.options.get("horizon")
    if not isinstance(labelled, int) or trained <= labelled:
        return
    # Lines may also be drawn anew from record to record, up to the end of those.
    if not settings.get("redraw") and leaks.has_cut_lines(dataset, labelled):
        raise ConfigError(
            f"{cell}: learner.horizon {trained} goes beyond the {labelled} plies that {dataset.folder} is labelled "
            f"with, so later ones would never be learnt: lower the horizon, or label with --horizon {trained}"
        )
