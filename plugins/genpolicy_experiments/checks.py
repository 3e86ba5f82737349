"""What can be wrong with a description by itself, before any data set is looked at."""

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
LONGEST_NAME = 100
MOST_SEED = 2**32


def check(path: Path, file: ExperimentFile, name: str) -> None:
    """See that names, numbers and labels are ones that runs, tables and files can have.

    Raises:
        ConfigError: one that is not; the message names the key, the value and what would do.
    """
    if not file.data.folder:
        raise ConfigError(f"{path}: data.folder is empty: name a labelled data set")
    if len(file.budget) != 1 or next(iter(file.budget)) not in (*BUDGETS, FLOPS):
        kinds = ", ".join((*BUDGETS, FLOPS))
        raise ConfigError(f"{path}: budget holds exactly one of {kinds}, e.g. budget: {{records: 50000}}")
    for kind, amount in file.budget.items():
        budget(path, f"budget.{kind}", kind, amount)
    if not file.seeds or len(set(file.seeds)) != len(file.seeds):
        raise ConfigError(f"{path}: seeds is a list of different whole numbers, got {file.seeds}")
    for seed in file.seeds:
        if not 0 <= seed < MOST_SEED:
            raise ConfigError(f"{path}: seeds are whole numbers from 0 to {MOST_SEED - 1}, got {seed}")
    if not name.strip() or len(name) > LONGEST_NAME or name.startswith(".") or not _is_plain(name, "/\\"):
        raise ConfigError(
            f"{path}: name is that of the files that are written: 1 to {LONGEST_NAME} characters without / or line "
            f"breaks that begin with no dot, got {name if len(name) <= LONGEST_NAME else name[:20] + '...'!r}"
        )
    least = {"threads": file.threads, "parallel": file.parallel, "evaluate.positions": file.evaluate.positions}
    for key, number in least.items():
        if number is not None and number < 1:
            also = "" if key == "threads" else ", or null"
            raise ConfigError(f"{path}: {key} is a whole number of at least 1{also}; got {number}")
    for command in file.data.make:
        try:
            shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"{path}: data.make: {command!r}: {error}; close the quotation mark") from error
    _refuse_owned(path, "run", file.run)
    for axis, labels in file.axes.items():
        _check_axis(path, file, axis, labels)


def budget(path: Path, where: str, kind: str, amount: Any) -> None:
    """See that an amount of a kind is one that can be spent.

    Raises:
        ConfigError: it is no number above 0, or no whole one where only those are counted.
    """
    is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
    whole = kind in WHOLE
    if not is_number or not math.isfinite(amount) or amount <= 0 or (whole and amount != int(amount)):
        what = "a whole number" if whole else "a number"
        raise ConfigError(f"{path}: {where} is {what} above 0, e.g. {where}: 50000; got {amount!r}")


def _check_axis(path: Path, file: ExperimentFile, axis: str, labels: Mapping[str, Any]) -> None:
    if not labels:
        raise ConfigError(f"{path}: axis {axis!r} has no labels")
    for text in (axis, *labels):
        if not text.strip() or not _is_plain(text):
            raise ConfigError(f"{path}: axes: {text!r} is no name for a row of a table: write one line of text")
    for label, settings in labels.items():
        where = f"axes.{axis}.{label}"
        if settings is not None and not isinstance(settings, Mapping):
            raise ConfigError(f"{path}: {where} holds settings such as {{learner.horizon: 4}}, got {settings!r}")
        without = (settings or {}).get(WITHOUT, [])
        if not isinstance(without, list) or not all(isinstance(key, str) for key in without):
            raise ConfigError(f"{path}: {where}.without is a list of keys such as [learner.process], got {without!r}")
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
    """Refuse settings that the experiment itself makes for every run, and would override without a word."""
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
            raise ConfigError(f"{path}: {where}: {key} has no effect: the folder is the command's --out")
        if key == "play" or (where == "run" and key.startswith(PLAY)):
            raise ConfigError(
                f"{path}: {where}: {key}: how the policy plays is set in a label of an axis by dotted keys, e.g. "
                "play.num_steps: 20"
            )
        if where == "run" and key.startswith(BUDGET):
            raise ConfigError(f"{path}: {where}: {key}: the budget of every run is the key budget of the file")


def _flat(path: Path, where: str, settings: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys, sections included."""
    for key, value in settings.items():
        if not isinstance(key, str):
            raise ConfigError(f"{path}: {where}: keys are names such as learner.horizon, got {key!r}")
        yield f"{prefix}{key}", value
        if isinstance(value, Mapping):
            yield from _flat(path, where, value, f"{prefix}{key}.")


def _is_plain(text: str, without: str = "") -> bool:
    return text.isprintable() and not any(character in text for character in without)
