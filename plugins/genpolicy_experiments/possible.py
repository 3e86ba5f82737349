"""What is looked at once the data are there and before hours are spent: can every run be made, and is it a fair one?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

Plays = Mapping[str, Mapping[str, Any]]
"""Name of a measurement -> options of the policy."""

_WRONG_TYPES = (TypeError, AttributeError, ArithmeticError, LookupError)
"""What code raises for a value of a type that it did not look for."""


def require(experiment: Experiment, waiting: Sequence[tuple[PlannedRun, Plays]], say: Callable[[str], None]) -> None:
    """See that every run that is still to be made can be made, and played as is asked.

    Args:
        experiment: Whose runs they are.
        waiting: Runs, each with the ways that its policy is to play.
        say: Takes what is to be told and is no error.

    Raises:
        ConfigError: a method that cannot do a paradigm, an option that it does not have, a budget of less than one
            update, plies that no record holds, or a split that holds nothing; the message names the cell.
        DatasetError: a data set that cannot be trained on.
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
            f"{cell}: data.folder {run.config['data']['folder']} is of {game.spec!r}, but what is measured on "
            f"({experiment.file.data.folder}) of {measured.spec!r}; train on records of the same game"
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
            policy.with_options(**play)
    except (RegistryError, ValueError) as error:
        raise ConfigError(f"{cell}: {error}; {way_out}") from error
    except _WRONG_TYPES as error:
        raise ConfigError(f"{cell}: a value of a wrong type in {what} ({error}); {way_out}") from error
    return learner


def _require_budget(cell: str, learner: Learner, run: PlannedRun) -> None:
    """See that a budget of FLOPs can be counted and is at least one update."""
    if FLOPS not in run.budget:
        return
    per_record = learner.flops_per_record()
    if per_record is None:
        raise ConfigError(
            f"{cell}: learner {run.config['learner'].get('kind')!r} does not say its cost: give the budget in records"
        )
    batch = structured(RunConfig, run.config).trainer.batch_size
    if run.budget[FLOPS] < per_record * batch:
        raise ConfigError(
            f"{cell}: budget.flops {run.budget[FLOPS]:g} is less than one update of {batch} records, which costs "
            f"{per_record * batch:.3g}; raise the budget"
        )


def _require_horizon(cell: str, learner: Learner, plays: Plays, dataset: Dataset) -> None:
    """See that no ply is played that the network has never been trained on."""
    settings = to_dict(learner.config)
    longest = settings.get("horizon")
    if not isinstance(longest, int):
        return
    horizons = list(settings.get("horizons") or [])
    trained = max(horizons, default=longest)
    if horizons and settings["network"]["positions"] == "learned":
        for play in plays.values():
            asked = play.get("horizon") or longest
            if asked > trained:
                raise ConfigError(
                    f"{cell}: it would play with horizon {asked}, but is trained on learner.horizons {horizons}, and "
                    "learned positions say nothing of plies beyond: set play.horizon to a trained one, or "
                    "learner.network.positions: rotary"
                )
    labelled = dataset.info.options.get("horizon")
    if not isinstance(labelled, int) or trained <= labelled:
        return
    # Lines may also be drawn anew from record to record, as far as those go.
    if not settings.get("redraw") and leaks.has_cut_lines(dataset, labelled):
        raise ConfigError(
            f"{cell}: learner.horizon {trained} goes beyond the {labelled} plies that {dataset.folder} is labelled "
            f"with, so the later ones would never be learnt: lower the horizon, or label with --horizon {trained}"
        )
