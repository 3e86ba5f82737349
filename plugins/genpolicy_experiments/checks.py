"""Checks a description by itself, before any data set is opened."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy.errors import ConfigError

if TYPE_CHECKING:
    from genpolicy_experiments.description import ExperimentFile

BUDGETS = {"records": "max_records", "minutes": "max_minutes", "steps": "max_steps", "epochs": "max_epochs"}
FLOPS = "flops"
BUDGET, PLAY, WITHOUT = "budget.", "play.", "without"
WHOLE = ("records", "steps")
MAX_NAME_LENGTH = 100
NUM_SEEDS = 2**32


def check(path: Path, file: ExperimentFile, name: str) -> None:
    """Check that runs, tables and files can have these names, numbers and labels.

    Raises:
        ConfigError: one is invalid; the message names the key, the value and what is allowed.
    """
    if not file.data.folder:
        raise ConfigError(f"{path}: data.folder is empty: name a labelled data set")
    if len(file.budget) != 1 or next(iter(file.budget)) not in (*BUDGETS, FLOPS):
        kinds = ", ".join((*BUDGETS, FLOPS))
        raise ConfigError(f"{path}: budget must hold exactly one of {kinds}, e.g. budget: {{records: 50000}}")
    for kind, amount in file.budget.items():
        budget(path, f"budget.{kind}", kind, amount)
    if not file.seeds or len(set(file.seeds)) != len(file.seeds):
        raise ConfigError(f"{path}: seeds must be a list of different whole numbers, got {file.seeds}")
    for seed in file.seeds:
        if not 0 <= seed < NUM_SEEDS:
            raise ConfigError(f"{path}: seeds must be whole numbers from 0 to {NUM_SEEDS - 1}, got {seed}")
    if not name.strip() or len(name) > MAX_NAME_LENGTH or name.startswith(".") or not _is_plain(name, "/\\"):
        raise ConfigError(
            f"{path}: name must be usable as a file name: 1 to {MAX_NAME_LENGTH} characters without / or line breaks, "
            f"not beginning with a dot, got {name if len(name) <= MAX_NAME_LENGTH else name[:20] + '...'!r}"
        )
    least = {"threads": file.threads, "parallel": file.parallel, "evaluate.positions": file.evaluate.positions}
    for key, number in least.items():
        if number is not None and number < 1:
            also = "" if key == "threads" else ", or null"
            raise ConfigError(f"{path}: {key} must be a whole number of at least 1{also}; got {number}")
    for command in file.data.make:
        if not isinstance(command, str):
            raise ConfigError(f"{path}: data.make: a command is text, got {command!r}; put it in quotation marks")
        try:
            shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"{path}: data.make: {command!r}: {error}; close the quotation mark") from error
    _refuse_owned(path, "run", file.run)
    for axis, labels in file.axes.items():
        _check_axis(path, file, axis, labels)


def budget(path: Path, where: str, kind: str, amount: Any) -> None:
    """Check an amount of a budget.

    Raises:
        ConfigError: it is not a number above 0, or not a whole one although the kind is counted.
    """
    is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
    whole = kind in WHOLE
    if not is_number or not math.isfinite(amount) or amount <= 0 or (whole and amount != int(amount)):
        what = "a whole number" if whole else "a number"
        raise ConfigError(f"{path}: {where} must be {what} above 0, e.g. {where}: 50000; got {amount!r}")


def _check_axis(path: Path, file: ExperimentFile, axis: str, labels: Mapping[str, Any]) -> None:
    if not labels:
        raise ConfigError(f"{path}: axis {axis!r} has no labels")
    for text in (axis, *labels):
        if not text.strip() or not _is_plain(text):
            raise ConfigError(f"{path}: axes: {text!r} cannot name a row of a table: write one line of text")
    for label, settings in labels.items():
        where = f"axes.{axis}.{label}"
        if settings is not None and not isinstance(settings, Mapping):
            raise ConfigError(f"{path}: {where} must hold settings such as {{learner.horizon: 4}}, got {settings!r}")
        without = (settings or {}).get(WITHOUT, [])
        if not isinstance(without, list) or not all(isinstance(key, str) for key in without):
            raise ConfigError(
                f"{path}: {where}.without must be a list of keys such as [learner.process], got {without!r}"
            )
        _refuse_owned(path, where, settings or {})
        for key, value in (settings or {}).items():
            if not key.startswith(BUDGET):
                continue
            (kind,) = file.budget
            if key.removeprefix(BUDGET) != kind:
                raise ConfigError(
                    f"{path}: {where}: {key} is of another kind than the file's budget of {kind}; write "
                    f"{BUDGET}{kind}: a number, so that the table can compare them"
                )
            budget(path, f"{where}: {key}", kind, value)


def _refuse_owned(path: Path, where: str, settings: Mapping[Any, Any]) -> None:
    """Refuse settings that the experiment makes itself for every run, and would override silently."""
    for key, value in _flat(path, where, settings):
        if value is None:
            continue
        if key in (f"trainer.{limit}" for limit in BUDGETS.values()):
            kind = next(kind for kind, limit in BUDGETS.items() if key == f"trainer.{limit}")
            raise ConfigError(
                f"{path}: {where}: {key} has no effect, since the runs have the file's budget: write budget: "
                f"{{{kind}: {value}}}, or {BUDGET}{kind}: {value} in a label of an axis"
            )
        if key == "trainer.seed":
            raise ConfigError(f"{path}: {where}: {key} has no effect: write seeds: [{value}], the seeds of every cell")
        if key == "out":
            raise ConfigError(f"{path}: {where}: {key} has no effect: the folder is given by the command's --out")
        if key == "play" or (where == "run" and key.startswith(PLAY)):
            raise ConfigError(
                f"{path}: {where}: {key}: set how the policy plays in a label of an axis, by dotted keys, e.g. "
                "play.num_steps: 20"
            )
        if where == "run" and key.startswith(BUDGET):
            raise ConfigError(f"{path}: {where}: {key}: set the budget of every run with the file's key budget")


def _flat(path: Path, where: str, settings: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values, those of sections included."""
    for key, value in settings.items():
        if not isinstance(key, str):
            raise ConfigError(f"{path}: {where}: keys must be names such as learner.horizon, got {key!r}")
        yield f"{prefix}{key}", value
        if isinstance(value, Mapping):
            yield from _flat(path, where, value, f"{prefix}{key}.")


def _is_plain(text: str, without: str = "") -> bool:
    return text.isprintable() and not any(character in text for character in without)
