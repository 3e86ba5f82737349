"""Configurations: dataclass schemas filled from defaults, then files, then ``key=value``, by OmegaConf.

Every key is checked against the schema; one that does not exist is an error that names the near one.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from genpolicy.errors import ConfigError

ConfigT = TypeVar("ConfigT")


def compose(schema: type[ConfigT], files: Sequence[str | Path] = (), overrides: Sequence[str] = ()) -> ConfigT:
    """An instance of a dataclass schema: its defaults, then each file, then each ``key=value``.

    A file may name others in a top-level ``base:`` (one path or a list, relative to the file), which it then overrides.
    Fields typed ``dict[str, Any]`` are free at this level; their owner checks them with ``structured``.

    Raises:
        ConfigError: a file that cannot be read, a key that does not exist (with the near one), a value of a wrong type
            or out of range.
    """
    merged = OmegaConf.create({})
    origin: list[str] = []
    for file in files:
        merged = cast(DictConfig, OmegaConf.merge(merged, _load_file(Path(file), ())))
        origin.append(str(file))
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"{override!r} is not key=value")
        try:
            merged = cast(DictConfig, OmegaConf.merge(merged, OmegaConf.from_dotlist([override])))
        except (OmegaConfBaseException, ValueError) as error:
            raise ConfigError(f"{override!r}: {error}") from error
    try:
        data = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{', '.join(origin)}: {error}") from error
    return structured(schema, cast(dict[str, Any], data), where=", ".join(origin))


def structured(schema: type[ConfigT], data: Mapping[str, Any], where: str = "", prefix: str = "") -> ConfigT:
    """An instance of a dataclass schema from plain data; keys and types are checked.

    Args:
        schema: A dataclass.
        data: Nested plain values.
        where: Files the data came from, for the message.
        prefix: Dotted path of the data in the whole configuration, for the message.

    Raises:
        ConfigError: as ``compose``.
    """
    at = f"{where}: " if where else ""
    for path in _unknown_keys(schema, data, prefix):
        known = sorted(_known_keys(schema, prefix))
        near = difflib.get_close_matches(path, known, n=1, cutoff=0.6)
        hint = f" Did you mean: {near[0].rpartition('.')[2]!r}?" if near else ""
        siblings = [k for k in known if k.rpartition(".")[0] == path.rpartition(".")[0]]
        raise ConfigError(f"{at}key {path!r} does not exist.{hint} Keys here: {', '.join(siblings)}")
    for path, value in _not_sections(schema, data, prefix):
        raise ConfigError(f"{at}key {path!r} is a section of keys, got {value!r}; write {path}.<key>=<value>")
    try:
        made = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(dict(data))))
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", "") or ""
        name = f"{prefix}.{key}".strip(".")
        raise ConfigError(f"{at}key {name!r}: {str(error).splitlines()[0]}") from error
    except ConfigError as error:
        raise ConfigError(f"{at}{error}") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{at}{prefix + ': ' if prefix else ''}{error}") from error
    return cast(ConfigT, made)


def to_yaml(config: Any) -> str:
    """The configuration as YAML, every key written out."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as nested plain values."""
    return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.structured(config), resolve=True))


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file whose top level is a mapping.

    Raises:
        ConfigError: it is missing, unreadable or no mapping.
    """
    try:
        data = OmegaConf.to_container(OmegaConf.load(path))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except Exception as error:  # yaml raises its own family, which OmegaConf passes through
        raise ConfigError(f"{path}: not readable as YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected keys and values at the top level, got {type(data).__name__}")
    return cast(dict[str, Any], data)


def _load_file(path: Path, seen: tuple[Path, ...]) -> DictConfig:
    if path.resolve() in seen:
        raise ConfigError(f"{path}: its 'base' leads back to itself")
    data = read_yaml(path)
    bases = data.pop("base", [])
    merged = OmegaConf.create({})
    for base in [bases] if isinstance(bases, str) else bases:
        merged = cast(DictConfig, OmegaConf.merge(merged, _load_file(path.parent / base, (*seen, path.resolve()))))
    return cast(DictConfig, OmegaConf.merge(merged, OmegaConf.create(data)))


def _fields(schema: type[Any]) -> dict[str, Any]:
    import typing

    hints = typing.get_type_hints(schema)
    return {f.name: hints[f.name] for f in dataclasses.fields(schema)}


def _nested(hint: Any) -> type[Any] | None:
    import typing

    for candidate in (hint, *typing.get_args(hint)):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None


def _known_keys(schema: type[Any], prefix: str = "") -> Iterator[str]:
    for name, hint in _fields(schema).items():
        path = f"{prefix}.{name}".strip(".")
        yield path
        if nested := _nested(hint):
            yield from _known_keys(nested, path)


def _unknown_keys(schema: type[Any], data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    fields = _fields(schema)
    for key, value in data.items():
        path = f"{prefix}.{key}".strip(".")
        if key not in fields:
            yield path
        elif isinstance(value, Mapping) and (nested := _nested(fields[key])):
            yield from _unknown_keys(nested, value, path)


def _not_sections(schema: type[Any], data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    # OmegaConf reports these too, but names no key.
    fields = _fields(schema)
    for key, value in data.items():
        path = f"{prefix}.{key}".strip(".")
        nested = _nested(fields[key])
        if nested and isinstance(value, Mapping):
            yield from _not_sections(nested, value, path)
        elif nested and isinstance(value, bool | int | float | str):
            yield path, value
