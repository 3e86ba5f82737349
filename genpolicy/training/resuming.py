"""Whether a run can resume from a checkpoint: checked before anything of it is taken over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from genpolicy.errors import CheckpointError
from genpolicy.training import setup
from genpolicy.training.checkpoint import (
    Checkpoint,
    DamagedError,
    differences,
    unpack_optimizer,
    unpack_streams,
)


def require_usable(
    checkpoint: Checkpoint, identity: Mapping[str, Any], optimizers: Mapping[str, Any], *, averaged: bool
) -> None:
    """Check that a checkpoint holds what resuming reads, and that it is of this run (``identity``).

    A state file with a checksum holds what was written. Of an older one, or of other JSON in its place, this tells what
    is missing or of a wrong kind.

    Raises:
        DamagedError: something is missing or of a wrong kind.
        CheckpointError: it belongs to another run; names each thing that differs, with both values.
    """
    state, needed = checkpoint.state, ["model", "optimizer", "random", *(["ema"] if averaged else [])]
    try:
        _require(isinstance(state["identity"]["config"]["learner"]["kind"], str), "identity")
        if found := differences(setup.completed(state["identity"]), identity):
            raise CheckpointError(
                f"{checkpoint.folder}: the checkpoint belongs to another run: {'; '.join(found)}. Give the same "
                "configuration, or start a new run in another folder (init_from copies only the weights)"
            )
        if missing := [name for name in needed if name not in checkpoint.tensors]:
            raise KeyError(missing[0])
        for name, optimizer in optimizers.items():
            _require_optimizer(checkpoint, name, optimizer.state_dict()["param_groups"])
        _require(_is_number(state["seconds"]), "seconds")
        for name in ("ema_updates", "num_processes"):
            _require(_is_count(state[name]), name)
        best, recent = state["best"], state.get("recent", {"sums": {}, "counts": {}, "records": 0})
        if best is not None:
            _require(_is_number(best["loss"]) and _is_count(best["step"]) and best["step"] > 0, "best")
            _require(best.get("windows") is None or _is_count(best["windows"]), "best.windows")
        _require(_is_count(recent["records"]), "recent.records")
        for name, total in recent["sums"].items():
            _require(isinstance(total, int | float) and recent["counts"][name] > 0, "recent")
        _require(all(isinstance(each, str) for each in state.get("commits", [])), "commits")
        unpack_streams(checkpoint.tensors.get("stream", {}), state.get("streams", []))
    except CheckpointError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError.of(checkpoint.folder, f"{type(error).__name__}: {str(error)[:100]}") from error


def _require(is_so: bool, name: str) -> None:
    if not is_so:
        raise TypeError(f"{name} is not what a run saves there")


def _require_optimizer(checkpoint: Checkpoint, name: str, groups: list[dict[str, Any]]) -> None:
    """Check the plain values of an optimiser: numbers where it has numbers, as many of them."""
    plain = checkpoint.state["optimizer"][name]
    saved = unpack_optimizer(checkpoint.tensors["optimizer"], plain, name)["param_groups"]
    _require(len(saved) == len(groups), f"optimizer.{name}")
    for was, now in zip(saved, groups, strict=True):
        _require({"params", "lr", "peak_lr"} <= was.keys(), f"optimizer.{name}")
        # Another release of torch may know other options: only those that both have are compared.
        _require(all(_is_like(was[key], now[key]) for key in was.keys() & now.keys()), f"optimizer.{name}")


def _is_like(was: object, now: object) -> bool:
    if isinstance(now, bool) or not isinstance(now, int | float | list | tuple):
        return True
    if isinstance(now, int | float):
        return _is_number(was)
    return isinstance(was, list | tuple) and len(was) == len(now) and all(map(_is_like, was, now))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
