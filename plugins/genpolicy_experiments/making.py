"""Makes the data sets of an experiment, and the policies that its cells begin with, by the commands of its file."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from genpolicy.data.records import INFO_FILE, DatasetInfo
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.shipped import data_folder
from genpolicy.training.run import POLICY_FOLDER
from genpolicy_experiments import stored
from genpolicy_experiments.description import Experiment


def make_data(experiment: Experiment, say: Callable[[str], None]) -> None:
    """Run the commands that make the data sets, if one of these or a policy that they train is missing.

    A command whose work is done finds that out by itself.

    Args:
        experiment: The experiment.
        say: Tells people which command runs.

    Raises:
        ConfigError: a data set is missing and there are no commands, a command failed, or they do not make it.
    """
    source, folders = experiment.file.data, experiment.data_folders()
    missing = [folder for folder in folders if not _is_complete(folder)]
    commands = [
        [word.replace("{folder}", source.folder) for word in shlex.split(command)] for command in source.make or ()
    ]
    if not missing and all(_is_trained(command) for command in commands):
        return
    if not source.make:
        raise ConfigError(
            f"{experiment.path}: data folder {missing[0]!r} holds no data set (or an unfinished one) and "
            "data.make has no commands that make one"
        )
    for command, arguments in zip(source.make, commands, strict=True):
        say(f"genpolicy {' '.join(arguments)}")
        call = (
            f"import sys; from genpolicy_common.children import follow_parent; follow_parent({os.getpid()}); "
            "from genpolicy.cli import main; sys.exit(main())"
        )
        # In a session of its own, so that Ctrl-C reaches it once, from here; ``subprocess.run`` would kill it.
        making = [sys.executable, "-c", call, *arguments]
        process = subprocess.Popen(making, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait()
        finally:
            stored.stop([process])
        if status:
            raise ConfigError(f"{experiment.path}: data.make: {command!r} ended with status {status}")
    for folder in missing:
        if not _is_complete(folder):
            raise ConfigError(f"{experiment.path}: the commands of data.make do not make {folder!r}")


def _is_complete(folder: str) -> bool:
    """Whether the folder holds a finished data set. ``Dataset.open`` names damage."""
    path = data_folder(folder)
    return (path / INFO_FILE).is_file() and DatasetInfo.read(path).complete


def _is_trained(command: Sequence[str]) -> bool:
    """Whether a command of ``data.make`` trains no policy, or one that is there."""
    if command[:1] != ["train"]:
        return True
    folders = [word.partition("=")[2] for word in command if word.startswith(("--out=", "out="))]
    folders += [folder for option, folder in itertools.pairwise(command) if option == "--out"]
    return all((Path(folder) / POLICY_FOLDER).is_dir() for folder in folders)


def require_data(experiment: Experiment) -> None:
    """Check that the data sets are there, and that the one to measure on can be read.

    Raises:
        DatasetError: one is missing, or damaged.
    """
    for folder in experiment.data_folders():
        if not data_folder(folder).is_dir():
            raise DatasetError(f"{folder}: no data set; genpolicy experiment FILE makes it")
    _ = experiment.dataset
