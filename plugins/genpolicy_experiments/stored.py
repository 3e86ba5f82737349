"""Reads the files of a run's folder, and uses them only if they are whole and of the right version of the data."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genpolicy.data.records import Dataset, DatasetInfo
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.files import read_json
from genpolicy.shipped import data_folder

RUN, JOB, LOG, FAILED, TRAINED = "run", "job.json", "log.txt", "failed.json", "trained.json"
CLUSTERS, POSITIONS = "clusters", "positions"
"""Arrays beside the hits of a measurement: each position's game, and (in newer files) a digest of all positions."""


class DamagedError(ValueError):
    """A file of results is empty, cut off or not what it should be; the message names it."""


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        DamagedError: the file does not hold one.
        FileNotFoundError: there is no such file.
    """
    try:
        mapping = read_json(path)
    except ValueError as error:
        what = "empty" if not path.stat().st_size else str(error)
        raise DamagedError(f"{path}: damaged ({what})") from error
    if not isinstance(mapping, dict):
        raise DamagedError(f"{path}: damaged (it holds a {type(mapping).__name__}, not figures by name)")
    return mapping


def failure(folder: Path) -> str | None:
    """Why the last attempt at a run failed; None if it did not."""
    path = folder / FAILED
    try:
        return str(read_mapping(path).get("error", "no reason given"))
    except FileNotFoundError:
        return None
    except DamagedError as error:  # the file exists because the run failed, so that is still known
        return str(error)


def trained(folder: Path) -> dict[str, Any] | None:
    """Figures of the training; None if it has not finished.

    Raises:
        DamagedError: the file is damaged.
    """
    return _with_key(folder / TRAINED, "records")


def measured(folder: Path, name: str) -> dict[str, Any] | None:
    """The figures of a measurement whose hits are whole, too; None if it has not been made.

    Raises:
        DamagedError: one of its two files is damaged, or the hits are missing.
    """
    figures = _with_key(folder / f"{name}.json", "best")
    if figures is not None:
        hits(folder / f"{name}.npz")
    return figures


def _with_key(path: Path, key: str) -> dict[str, Any] | None:
    try:
        figures = read_mapping(path)
    except FileNotFoundError:
        return None
    if key not in figures:
        raise DamagedError(f"{path}: damaged (it has no {key!r})")
    return figures


def hits(path: Path) -> dict[str, Any]:
    """The arrays of a measurement: hits by metric, one number per position, and ``clusters``, the positions' games.

    Raises:
        DamagedError: the file is missing or damaged, or its arrays do not belong together.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        positions = len(arrays[CLUSTERS])
        wrong = [name for name, array in arrays.items() if name != POSITIONS and array.shape != (positions,)]
    except FileNotFoundError:
        raise DamagedError(f"{path}: missing, although its figures exist") from None
    except (
        ValueError,
        OSError,
        EOFError,
        KeyError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        what = "empty" if not path.stat().st_size else f"{type(error).__name__}: {error}"
        raise DamagedError(f"{path}: damaged ({what})") from error
    if wrong:
        raise DamagedError(f"{path}: damaged ({wrong[0]!r} has another number of positions than {CLUSTERS!r})")
    return arrays


def require_same_positions(measured: Mapping[Path, Mapping[str, Any]]) -> None:
    """Check that the arrays of several files (``hits``) are of the same positions; older files hold their games alone.

    Raises:
        ConfigError: they are not, so they cannot be compared; the message names two files and the way out.
    """
    for which in (CLUSTERS, POSITIONS):
        groups: dict[bytes, list[Path]] = {}
        for path, arrays in measured.items():
            if which in arrays:
                groups.setdefault(arrays[which].tobytes(), []).append(path)
        if len(groups) > 1:
            few, *_, many = sorted(groups.values(), key=len)
            raise ConfigError(
                f"{few[0]}: measured on other positions than {many[0]}, although the data is the same, so they cannot "
                f"be compared; delete the wrong one with its .json ({len(few)} runs are like the first, {len(many)} "
                "like the second), and run the same command: it is measured again"
            )


def provenance(folder: Path) -> dict[str, Any] | None:
    """Provenance of a run's policy; None if there is no policy.

    Raises:
        DamagedError: the file is damaged.
    """
    from genpolicy.training.run import POLICY_FOLDER  # needs torch

    try:
        return read_mapping(folder / RUN / POLICY_FOLDER / "provenance.json")
    except FileNotFoundError:
        return None


def trained_on(folder: Path) -> str | None:
    """Checksum of the data set that a run was trained on; None if it is not known.

    Raises:
        DamagedError: the file that holds it is damaged.
    """
    dataset = (provenance(folder) or {}).get("dataset")
    checksum = dataset.get("checksum") if isinstance(dataset, dict) else None
    return checksum if isinstance(checksum, str) else None


def require_version(folder: str | Path, checksum: str | None, *, actual: str | None = None) -> None:
    """Check that a data set still has the version in a run's key; no shard is read.

    Args:
        folder: Folder of the data set.
        checksum: The expected checksum; None accepts any.
        actual: The actual checksum; None reads it from the folder.

    Raises:
        DatasetError: the data set has another version, or is missing.
    """
    if checksum is None:
        return
    try:
        path = data_folder(folder)
        now = actual or Dataset(path, DatasetInfo.read(path)).checksum
        what = f"its checksum was {checksum[:12]} and is {now[:12]}"
    except DatasetError as error:
        now, what = None, str(error)
    if now != checksum:
        raise DatasetError(
            f"{folder}: the data changed while the runs were made ({what}); results of two versions are never mixed. "
            "Run the same command again: it makes runs of the new version and ignores the old ones"
        )


def start(job: Path, threads: int) -> subprocess.Popen[bytes]:
    """Start the process that makes a run, as a file describes it; its output goes to the log beside that."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    with job.with_name(LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "genpolicy_experiments.worker", str(job)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C at the terminal is passed on by the process that starts it, once
        )


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Tell processes to save and end, and wait for them; one that does not end in a minute is killed."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
