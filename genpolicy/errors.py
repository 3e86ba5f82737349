"""The errors a user can meet; each subclasses a built-in, so callers can catch either."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from contextlib import suppress

_OBEYED = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_UNPRINTED = dict.fromkeys(_OBEYED, "\ufffd")


MAX_SAID = 8_000  # characters of an error; the legal moves of a shogi position have some 3,000


def printable(text: str) -> str:
    """A text from outside with U+FFFD for what a terminal would obey: control characters except tabs and ends of lines,
    and marks that turn the direction of writing."""
    return text.translate(_UNPRINTED)


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
    """A file of games, positions or records holds something unreadable; the message names file and line.

    It may repeat a line of the file, which may be anything: see ``printable``. The middle of a very long one is cut.
    """

    def __init__(self, message: object) -> None:
        text = printable(str(message))
        cut = f"{text[: MAX_SAID // 2]} [...] {text[-MAX_SAID // 2 :]}"
        super().__init__(cut if len(text) > MAX_SAID else text)


class DatasetError(ValueError):
    """A data set is damaged, truncated, empty or of another game."""


class LockedError(ValueError):
    """Another process works in the folder."""


class EngineError(RuntimeError):
    """An engine is missing, is not an engine, hangs, dies, or answers nonsense."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, of another game or tokenizer, or newer than this code."""


class TrainingError(ValueError):
    """Training cannot continue: the loss or its gradient is not a finite number."""


def require_one_of(key: str, value: object, allowed: Collection[str]) -> None:
    """Raise a ``ConfigError``, which names the near one, where the value of a key is not an allowed one."""
    if value not in allowed:
        hint = did_you_mean(value, allowed)
        raise ConfigError(f"{key} must be one of {', '.join(allowed)}; got {value!r}.{hint}")


def lacks_memory(error: Exception) -> bool:
    """Whether too little memory is the reason; torch, Arrow and the loader of libraries have no class of their own."""
    said = ("allocate memory", "out of memory", "bad_alloc", "could not create a primitive", "failed to map segment")
    threads = ("can't start new thread", "Failed to launch worker thread")  # each needs memory for its stack
    by_words = not isinstance(error, ValueError) and any(words in str(error) for words in (*said, *threads))
    by_number = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return by_words or by_number or isinstance(error, MemoryError) or _lost_its_error(error)


def _lost_its_error(error: Exception) -> bool:
    """Whether Python had no memory for an error, as happens under ``ulimit -v``; without a limit it is a bug."""
    with suppress(ImportError):  # Windows
        import resource

        limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        return limited and isinstance(error, SystemError) and "without exception set" in str(error)
    return False


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The part of a message that names what was meant, `` Did you mean: 'linear'?``; "" where nothing known is near."""
    import difflib  # needed for errors alone

    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean: {near[0]!r}?" if near else ""
