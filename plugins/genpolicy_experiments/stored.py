"""What lies in a run's folder: read back only where it is whole and of the right version of the data."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from genpolicy.data.records import Dataset, DatasetInfo
from genpolicy.errors import ConfigError, DatasetError

RUN, JOB, LOG, FAILED, TRAINED = "run", "job.json", "log.txt", "failed.json", "trained.json"
CLUSTERS, POSITIONS = "clusters", "positions"
"""Arrays beside the hits of a measurement: each position's game, and a digest of all positions (newer files)."""


class DamagedError(ValueError):
    """A file of results is empty, cut off or something else; the message names it."""


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        DamagedError: it holds none.
        FileNotFoundError: there is no such file.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        what = "empty" if not path.stat().st_size else str(error)
        raise DamagedError(f"{path}: damaged ({what})") from error
    if not isinstance(found, dict):
        raise DamagedError(f"{path}: damaged (it holds a {type(found).__name__} and no figures by name)")
    return found


def failure(folder: Path) -> str | None:
    """Why a run failed last time; None where it did not."""
    path = folder / FAILED
    try:
        return str(read_mapping(path).get("error", "no reason given"))
    except FileNotFoundError:
        return None
    except DamagedError as error:  # it only says that the run failed, which it still does
        return str(error)


def trained(folder: Path) -> dict[str, Any] | None:
    """What training took; None where it is not done.

    Raises:
        DamagedError: the file is damaged.
    """
    return _with_key(folder / TRAINED, "records")


def measured(folder: Path, name: str) -> dict[str, Any] | None:
    """The figures of a measurement, whose hits are whole too; None where it is not done.

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
    """The arrays of a measurement: hits by metric, a number a position, and ``clusters``, their games.

    Raises:
        DamagedError: missing, damaged, or arrays that do not belong together.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        positions = len(arrays[CLUSTERS])
        odd = [name for name, array in arrays.items() if name != POSITIONS and array.shape != (positions,)]
    except FileNotFoundError:
        raise DamagedError(f"{path}: missing, its figures are there") from None
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
    if odd:
        raise DamagedError(f"{path}: damaged ({odd[0]!r} has another number of positions than {CLUSTERS!r})")
    return arrays


def require_same_positions(measured: Mapping[Path, Mapping[str, Any]]) -> None:
    """See that arrays of several files (``hits``) are of the same positions; older files tell their games alone.

    Raises:
        ConfigError: they are not, so that no table may compare them; the message names two files and the way out.
    """
    for which in (CLUSTERS, POSITIONS):
        groups: dict[bytes, list[Path]] = {}
        for path, arrays in measured.items():
            if which in arrays:
                groups.setdefault(arrays[which].tobytes(), []).append(path)
        if len(groups) > 1:
            few, *_, many = sorted(groups.values(), key=len)
            raise ConfigError(
                f"{few[0]}: measured on other positions than {many[0]}, though the data is the same, so no table may "
                f"compare them; delete the wrong one with its .json ({len(few)} runs are like the first, {len(many)} "
                "like the second), and run the same command: it is measured again"
            )


def provenance(folder: Path) -> dict[str, Any] | None:
    """Where a run's policy comes from; None where there is no policy.

    Raises:
        DamagedError: the file is damaged.
    """
    from genpolicy.training.run import POLICY_FOLDER  # which needs torch; what only follows its parent does not

    try:
        return read_mapping(folder / RUN / POLICY_FOLDER / "provenance.json")
    except FileNotFoundError:
        return None


def trained_on(folder: Path) -> str | None:
    """Checksum of the data set that a run was trained on; None where nothing tells.

    Raises:
        DamagedError: the file that tells is damaged.
    """
    found = (provenance(folder) or {}).get("dataset")
    checksum = found.get("checksum") if isinstance(found, dict) else None
    return checksum if isinstance(checksum, str) else None


def require_version(folder: str | Path, checksum: str | None, *, found: str | None = None) -> None:
    """See that a data set is still the version that a run is keyed by; no shard is read.

    Args:
        folder: Its folder.
        checksum: What it must be; None demands nothing.
        found: What it is; None looks into the folder.

    Raises:
        DatasetError: it is another one, or gone.
    """
    if checksum is None:
        return
    try:
        now = found or Dataset(Path(folder), DatasetInfo.read(Path(folder))).checksum
        what = f"its checksum was {checksum[:12]} and is {now[:12]}"
    except DatasetError as error:
        now, what = None, str(error)
    if now != checksum:
        raise DatasetError(
            f"{folder}: the data changed while the runs were made ({what}); results of two versions are never mixed. "
            "Run the same command again: runs of the new version are made, and the old ones are named and left out"
        )


def follow_parent(parent: int) -> None:
    """End when the starting process is gone, as after its SIGKILL.

    Args:
        parent: Its id, which a process that begins after the other's end cannot find out any more.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
