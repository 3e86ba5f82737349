"""The errors a user can meet; each subclasses a built-in, so callers can catch either."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(ValueError):
    """A configuration key or value does not exist or is out of range."""


class RegistryError(LookupError):
    """A game, policy, learner or other plugin is not installed, or not what its group asks for."""


class NotInstalledError(RegistryError):
    """A plugin needs an extra of its package; ``way_out`` installs it: ``pip install 'genpolicy[shogi]'``."""

    def __init__(self, message: str, way_out: str) -> None:
        super().__init__(message)
        self.way_out = way_out


class IllegalMoveError(ValueError):
    """The move is well formed but not legal in the position."""


class SourceError(ValueError):
    """A file of games, positions or records holds something unreadable; the message names file and line."""


class DatasetError(ValueError):
    """A data set is damaged, truncated, empty or of another game."""


class StoreError(ValueError):
    """A store of unfinished work is damaged, of another form, or holds something else."""


class LockedError(ValueError):
    """Another process works in the folder."""


class EngineError(RuntimeError):
    """An engine is missing, is not an engine, hangs, dies, or answers nonsense."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, of another game or tokenizer, or newer than this code."""


class TrainingError(ValueError):
    """Training cannot continue: the loss or its gradient is not a finite number."""


def require_one_of(key: str, value: str, allowed: Iterable[str]) -> None:
    """Raise a ``ConfigError`` where the value of a key is not an allowed one."""
    if value not in allowed:
        raise ConfigError(f"{key} must be one of {', '.join(allowed)}; got {value!r}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The part of a message that names what was meant, `` Did you mean: 'linear'?``; "" where nothing known is near."""
    import difflib  # needed for errors alone

    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean: {near[0]!r}?" if near else ""
