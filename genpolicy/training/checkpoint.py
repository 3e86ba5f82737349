"""Checkpoints: complete, atomic, checked, and without pickle.

A checkpoint is a folder ``step-00001000`` of safetensors files and ``state.json``, which holds the size and the SHA-256
of each of them, and its own SHA-256. It is written under another name, flushed to the disk and renamed, so a folder of
that name is whole unless the disk damaged it or somebody renamed it later. Such a checkpoint is passed over with a
note, and the one before it is taken.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from genpolicy.errors import CheckpointError
from genpolicy.files import FULL, read_json, refuse_pipe, sync_folder, write_durably

FORMAT_VERSION = 1
"""Raised when a checkpoint written by this code could not be read by older code."""
STATE_FILE = "state.json"
_PREFIX, _UNFINISHED, _REPLACED = "step-", ".unfinished-", ".replaced-"
_NAME = re.compile(r"step-[0-9]{1,18}")
_TENSORS = re.compile(r"[a-z]+\.safetensors")


@dataclass
class Checkpoint:
    """What a run needs to resume."""

    num_updates: int
    """Updates made."""
    tensors: dict[str, dict[str, Tensor]]
    """File (without suffix) -> name -> tensor: ``model``, ``optimizer``, ``random``, maybe ``ema`` and ``stream``."""
    state: dict[str, Any]
    """Everything else: values that JSON can hold."""
    folder: Path | None = None
    """Where it was read from."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into the run's ``checkpoints`` folder; returns its own folder.

    Raises:
        CheckpointError: it cannot be written (a full disk, ...); those that were there are still there.
    """
    final = folder / f"{_PREFIX}{checkpoint.num_updates:08d}"
    unfinished = folder / f"{_UNFINISHED}{final.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove(unfinished)
        unfinished.mkdir()
        files = {}
        for name, tensors in checkpoint.tensors.items():
            data = save_tensors(_apart(tensors))
            files[f"{name}.safetensors"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            write_durably(unfinished / f"{name}.safetensors", data)
        state = {"format": FORMAT_VERSION, "step": checkpoint.num_updates, "files": files, **checkpoint.state}
        state["sha256"] = _checksum(state)
        write_durably(unfinished / STATE_FILE, (json.dumps(state, indent=1, sort_keys=True) + "\n").encode())
        replace_folder(unfinished, final)
    except OSError as error:
        with suppress(OSError):
            remove_leftovers(folder)
        last = newest(folder, checkpoint.num_updates)
        kept = f"the last one, {last}, is untouched" if last else "there was none before"
        way_out = "free some space" if error.errno in FULL else "see to the folder"
        raise CheckpointError(
            f"{final}: the checkpoint cannot be written ({error.strerror or error}); {kept}: "
            f"{way_out}, then resume with --resume"
        ) from error
    return final


def replace_folder(new: Path, final: Path) -> None:
    """Rename a finished folder to its place; one that is there already gives way at the last moment."""
    old = final.with_name(f"{_REPLACED}{final.name}")
    remove(old)
    sync_folder(new)
    if os.path.lexists(final):  # a link to nothing gives way, too
        final.rename(old)
    new.rename(final)
    remove(old)
    sync_folder(final.parent)  # the rename itself has to reach the disk, too


def load_latest(
    folder: Path, say: Callable[[str], None], require_usable: Callable[[Checkpoint], None] | None = None
) -> Checkpoint | None:
    """The newest checkpoint that is whole; None where there is none at all.

    Args:
        folder: The run's ``checkpoints`` folder.
        say: Called with a line for each damaged checkpoint.
        require_usable: Raises ``DamagedError`` for a checkpoint whose ``state`` the caller cannot use.

    Raises:
        CheckpointError: all are damaged, or the newest one was written by newer code; what ``require_usable`` raises.
    """
    damaged = []
    for candidate in _folders(folder):
        try:
            checkpoint = read_checkpoint(candidate)
            if require_usable is not None:
                require_usable(checkpoint)
            return checkpoint
        except DamagedError as error:
            damaged.append(str(error))
            say(f"{error}; trying the checkpoint before it")
    if damaged:
        raise CheckpointError(
            f"{folder}: no intact checkpoint ({'; '.join(damaged)}); delete this folder, and the same command begins "
            "anew"
        )
    return None


def read_checkpoint(folder: Path) -> Checkpoint:
    """One checkpoint, every byte of it checked; of a ``state.json`` from before it had a checksum, the form alone.

    Raises:
        DamagedError: damaged, or the folder has another update's name.
        CheckpointError: written by newer code.
    """
    try:
        refuse_pipe(folder / STATE_FILE)
        state = read_json(folder / STATE_FILE)
        checksum, expected = state.pop("sha256", None), _checksum(state)
        version, num_updates, files = state.pop("format"), state.pop("step"), state.pop("files")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedError.of(folder, error) from error
    # Before the version, which may be what is damaged.
    if checksum is None and "commits" in state:  # commits are newer than checksums
        raise DamagedError.of(folder, "its checksum is missing")
    if checksum not in (None, expected):
        raise DamagedError.of(folder, "its checksum differs")
    if not (type(version) is type(num_updates) is int and isinstance(files, dict)):
        raise DamagedError.of(folder, "format, step or files is of a wrong type")
    if version > FORMAT_VERSION:
        raise CheckpointError(f"{folder}: format {version}, this code reads up to {FORMAT_VERSION}: upgrade genpolicy")
    if num_updates != _update_of(folder):
        raise DamagedError(
            f"{folder}: was renamed, or {STATE_FILE} is damaged (it is of update {num_updates}, the folder's name says "
            f"{_update_of(folder)})"
        )
    tensors = {}
    for name, facts in files.items():
        if not _TENSORS.fullmatch(name):
            raise DamagedError.of(folder, "it names a file that is not a checkpoint's")
        try:
            refuse_pipe(folder / name)
            data = (folder / name).read_bytes()
            if len(data) != facts["bytes"] or hashlib.sha256(data).hexdigest() != facts["sha256"]:
                raise ValueError("its checksum differs")
            tensors[name.removesuffix(".safetensors")] = load_tensors(data)
        except (OSError, ValueError, SafetensorError, KeyError, TypeError) as error:
            raise DamagedError.of(folder, error, name) from error
    return Checkpoint(num_updates, tensors, state, folder)


def _checksum(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def newest(folder: Path, up_to: float = math.inf) -> Path | None:
    """The newest finished checkpoint of at most ``up_to`` updates, whole or not; None where there is none."""
    there = _folders(folder, up_to)
    return there[0] if there else None


def prune(folder: Path, num_updates: int, keep: int, best: int) -> None:
    """Delete all but the ``keep`` newest checkpoints and the one of update ``best``, and what a kill left behind.

    Those of later updates than ``num_updates``, the run's, were passed over as damaged: they are left alone, and do not
    count as kept.
    """
    for unwanted in _folders(folder, num_updates)[keep:]:
        if _update_of(unwanted) != best:
            remove(unwanted)
    remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Delete what a kill left unfinished; a folder that had given way to one that never came is put back."""
    for old in folder.glob(f"{_REPLACED}*"):
        final = old.with_name(old.name.removeprefix(_REPLACED))
        if not final.exists():
            old.rename(final)
    for leftover in [*folder.glob(f"{_UNFINISHED}*"), *folder.glob(f"{_REPLACED}*")]:
        remove(leftover)


class DamagedError(CheckpointError):
    """A damaged checkpoint; an earlier one may be whole."""

    @classmethod
    def of(cls, folder: Path | None, why: str | Exception, name: str = STATE_FILE) -> DamagedError:
        """A file of it is what is damaged."""
        if isinstance(why, Exception):
            why = str(why) if type(why) is ValueError else type(why).__name__
        return cls(f"{folder}: {name} is damaged ({why})")


def differences(saved: Mapping[str, Any], current: Mapping[str, Any], prefix: str = "") -> list[str]:
    """A text for each key of which two mappings hold different values, nested ones key by key."""
    texts = []
    for key in sorted({*saved, *current}):
        was, now = saved.get(key, "nothing"), current.get(key, "nothing")
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            texts += differences(was, now, f"{prefix}{key}.")
        elif was != now:
            texts.append(f"{prefix}{key} was {was!r} and is {now!r}")
    return texts


def _folders(folder: Path, up_to: float = math.inf) -> list[Path]:
    """Finished checkpoints, newest first; what else lies there, as a copy under a name of its own, is left alone."""
    there = (p for p in folder.glob(f"{_PREFIX}*") if _NAME.fullmatch(p.name) and p.is_dir())
    return sorted((p for p in there if _update_of(p) <= up_to), key=_update_of, reverse=True)


def _update_of(folder: Path) -> int:
    return int(folder.name.removeprefix(_PREFIX))


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, none of them sharing memory (safetensors refuses tied weights)."""
    seen: set[int] = set()
    apart = {}
    for key, tensor in tensors.items():
        here = tensor.detach().cpu().contiguous()
        storage = here.untyped_storage().data_ptr()
        apart[key] = here.clone() if storage in seen else here
        seen.add(storage)
    return apart


def remove(folder: Path) -> None:
    """Delete a folder, a file of its name, or a link, but not what a link leads to."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def pack_optimizer(state: Mapping[str, Any], name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimiser's ``state_dict`` as tensors (keys ``name.parameter.entry``) and plain values."""
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {"groups": state["param_groups"], "values": {}}
    for parameter, entries in state["state"].items():
        for entry, value in entries.items():
            key = f"{name}.{parameter}.{entry}"
            if isinstance(value, Tensor):
                tensors[key] = value
            else:
                plain["values"][key] = value
    return tensors, plain


def pack_streams(states: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Each process's ``Stream.state_dict`` as tensors (keys ``process.name``) and plain values.

    Raises:
        CheckpointError: a value that is neither a tensor nor plain.
    """
    tensors = {f"{i}.{k}": v for i, state in enumerate(states) for k, v in state.items() if isinstance(v, Tensor)}
    plain = [{k: v for k, v in state.items() if not isinstance(v, Tensor)} for state in states]
    try:
        json.dumps(plain)
    except TypeError as error:
        raise CheckpointError(f"the stream's state_dict holds what a checkpoint cannot ({error})") from error
    return tensors, plain


def unpack_streams(tensors: Mapping[str, Tensor], plain: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The states that ``pack_streams`` took apart."""
    states = [dict(state) for state in plain]
    for key, tensor in tensors.items():
        process, name = key.split(".", 1)
        states[int(process)][name] = tensor
    return states


def unpack_optimizer(tensors: Mapping[str, Tensor], plain: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The ``state_dict`` that ``pack_optimizer`` took apart."""
    entries: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *plain["values"].items()]:
        owner, parameter, entry = key.split(".", 2)
        if owner == name:
            entries.setdefault(int(parameter), {})[entry] = value
    groups = [
        {key: tuple(value) if isinstance(value, list) and key != "params" else value for key, value in group.items()}
        for group in plain["groups"]
    ]
    return {"state": entries, "param_groups": groups}
