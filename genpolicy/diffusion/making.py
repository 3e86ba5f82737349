"""Processes made from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from genpolicy import registry
from genpolicy.diffusion.process import Process
from genpolicy.errors import ConfigError, did_you_mean


def make_process(options: Mapping[str, Any], num_symbols: int) -> Process:
    """The process of a ``process:`` section (``kind`` and what the process takes itself) for a layout's symbols.

    Raises:
        ConfigError: no ``kind``, or a key that the process does not take.
        RegistryError: no such process, it cannot be made, or it is not a ``Process``.
    """
    rest = dict(options)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigError(f"learner.process.kind must name one of: {', '.join(registry.available('processes'))}")
    factory = registry.load("processes", kind)
    require_keys(rest, factory)
    with registry.making("processes", kind, ConfigError):
        process = factory(num_symbols, **rest)
    if not isinstance(process, Process):
        if kind not in registry.available("learners"):
            raise registry.wrong_thing("processes", kind, process, "a genpolicy.diffusion.Process")
        raise ConfigError(f"process {kind!r} noises embeddings, not tokens: set learner.kind={kind}")
    return process


def require_keys(options: Mapping[str, Any], factory: Callable[..., Any]) -> None:
    """See that what makes a process takes these keys of a ``process:`` section, and values of these types.

    Raises:
        ConfigError: it does not; the message names the near key, or a value.
    """
    known = registry.keys_of(factory, 1)
    for key, value in options.items():
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"key 'learner.process.{key}' does not exist.{hint} Keys here: kind, {', '.join(known)}")
        default = known[key].default
        whole = isinstance(default, float) and type(value) is int  # 1 is a number such as 1.0, too
        if isinstance(default, int | float | str) and type(value) is not type(default) and not whole:
            raise ConfigError(f"key 'learner.process.{key}' is a value such as {default!r}, got {value!r}")
