"""Configurations: dataclass schemas filled from defaults, then files, then ``key=value``, by OmegaConf.

Every key is checked against the schema. A key that does not exist is an error that names the near one and the place
where it was written: ``file.yaml:12`` or the argument.
"""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from genpolicy.errors import ConfigError
from genpolicy.files import read_at_most
from genpolicy.schema import (
    as_written,
    fields_of,
    known_keys,
    must_be_section,
    section_of,
    unknown_keys,
    wrong_shapes,
)
from genpolicy.shipped import config_file
from genpolicy.yaml_text import (
    CHARACTERS_PER_NODE,
    MAX_DEPTH,
    MAX_NODES,
    MAX_TEXT,
    check_yaml,
    comment_behind,
    entries,
    rewritten_keys,
    written,
)

ConfigT = TypeVar("ConfigT")
_REWRITTEN = re.compile(r"[-+]?(?:0[0-9_]+|[0-9]+_[0-9_]*|[0-9]+:[0-9:]+)")
"""Numbers whose spelling YAML loses: 007 becomes 7, 2024_07 becomes 202407, and 1:30 becomes 90."""


def compose(schema: type[ConfigT], files: Sequence[str | Path] = (), overrides: Sequence[str] = ()) -> ConfigT:
    """An instance of a dataclass schema: its defaults, then each file, then each ``key=value``.

    A file may name others in a top-level ``base:`` (one path or a list, relative to the file), which it then overrides.
    Fields typed ``dict[str, Any]`` are free at this level; their owner checks them with ``structured``.

    Raises:
        ConfigError: a file that cannot be read, a key that does not exist (with the near one), a value of a wrong type
            or out of range; the message begins with the file and line, or the argument, that it was written in.
    """
    return Settings(files, overrides).fill(schema)


class Settings:
    """Files and ``key=value`` arguments, merged, and where each key was written last.

    Args:
        files: YAML files, or names of shipped ones such as ``chess/demo``; a later one overrides.
        overrides: ``key=value`` arguments; they override the files. ``~key`` removes a key, or a whole section.

    Raises:
        ConfigError: a file that cannot be read or a malformed argument.
    """

    def __init__(self, files: Sequence[str | Path] = (), overrides: Sequence[str] = ()) -> None:
        self._files = [str(file) for file in files]
        self._places: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self.repeated: list[str] = []
        """Arguments that a later one of the same key overrides."""
        merged = OmegaConf.create({})
        for file in files:
            merged = cast(DictConfig, OmegaConf.merge(merged, self._read(config_file(file), ())))
        last: dict[str, str] = {}
        for override in overrides:
            if override.startswith("~"):
                merged = self._without(merged, override[1:])
                continue
            key, setting = _argument(override)
            if key in last:
                self.repeated.append(last[key])
            last[key] = override
            place = f"argument {override!r}"
            merged = _merged(merged, setting, place)
            self._places |= dict.fromkeys(_paths(OmegaConf.to_container(setting)), place)
            self._written |= written(f"{key}: {override[len(key) + 1 :]}")
        try:
            self.data = cast(dict[str, Any], OmegaConf.to_container(merged, resolve=True))
        except OmegaConfBaseException as error:
            raise self.located(ConfigError(f"key {error.full_key!r}: {_first_line(error)}")) from error

    def fill(self, schema: type[ConfigT], elsewhere: Callable[[], Iterable[str]] = tuple) -> ConfigT:
        """An instance of the schema.

        Args:
            schema: A dataclass.
            elsewhere: Called where a key does not exist; gives keys of free sections that may have been meant.

        Raises:
            ConfigError: as ``compose``.
        """
        with self.locating():
            return structured(schema, as_written(schema, self.data, self._written), elsewhere=elsewhere)

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Inside, a ``ConfigError`` is raised with the place of the key that it names."""
        try:
            yield
        except ConfigError as error:
            raise self.located(error) from error

    def located(self, error: ConfigError) -> ConfigError:
        """The error with the place of the key that it names; with the files where it does not name one."""
        text = str(error)
        place = next((self._places[key] for key in self._named(text) if key in self._places), None)
        if place is None:
            place = ", ".join(self._files)
        text += self._of_another_kind(text)
        return ConfigError(f"{place}: {text}") if place and not text.startswith(place) else error

    def _of_another_kind(self, text: str) -> str:
        """The way out where a file's key does not exist because an argument replaced the ``kind`` beside it."""
        found = re.match(r"key '([\w.-]+)\.[\w-]+' does not exist", text)
        kind = "" if found is None else self._places.get(f"{found[1]}.kind", "")
        if found is None or not kind.startswith("argument"):
            return ""
        return f" It belongs to the kind that {kind} replaces: '~{found[1]}' before it leaves out what files say there"

    def _without(self, merged: DictConfig, key: str) -> DictConfig:
        """Settings without a key and all below it."""
        data = cast(dict[str, Any], OmegaConf.to_container(merged, resolve=False))
        *sections, last = key.split(".")
        inner: Any = data
        for section in sections:
            inner = inner.get(section) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or last not in inner:
            raise ConfigError(f"argument '~{key}': nothing sets the key {key!r}; it removes what a file sets")
        del inner[last]
        self._places = {each: at for each, at in self._places.items() if not f"{each}.".startswith(f"{key}.")}
        return OmegaConf.create(data)

    def _named(self, text: str) -> Iterator[str]:
        """Keys that a message may mean, the likeliest first."""
        candidates = [*re.findall(r"\bkey '([^'\[]+)", text), *re.findall(r"\b[a-z_]\w*(?:\.\w+)+", text)]
        for key in candidates:
            yield key
            # Where a whole section is wrong, the keys in it have the place.
            yield from (longer for longer in self._places if longer.startswith(f"{key}."))
        # A dataclass that refuses a value names its field, but does not know in which section it is itself.
        first = re.split(r"[^\w.]", text, maxsplit=1)[0]
        ending = [key for key in self._places if key == first or key.endswith(f".{first}")]
        if len(ending) == 1:
            yield ending[0]

    def _read(self, path: Path, seen: tuple[Path, ...]) -> DictConfig:
        if path.resolve() in seen:
            raise ConfigError(f"{path}: its 'base' leads back to itself")
        data = read_yaml(path)
        text = path.read_text(encoding="utf-8")
        lines = {key: line for key, line, _ in entries(text)}
        bases = data.pop("base", None)
        bases = [] if bases is None else [bases] if isinstance(bases, str) else bases
        if not isinstance(bases, list) or not all(isinstance(base, str) and base for base in bases):
            raise ConfigError(f"{path}:{lines['base']}: base is a path or a list of paths, got {bases!r}")
        merged = OmegaConf.create({})
        for base in bases:
            try:
                file = config_file(base, path.parent)
            except ConfigError as error:
                raise ConfigError(f"{path}:{lines['base']}: base {base!r}: {error}") from None
            merged = cast(DictConfig, OmegaConf.merge(merged, self._read(file, (*seen, path.resolve()))))
        self._places |= {key: f"{path}:{line}" for key, line in lines.items() if key != "base"}
        self._written |= written(text)
        return _merged(merged, data, str(path))


def _merged(under: DictConfig, over: Any, place: str) -> DictConfig:
    try:
        return cast(DictConfig, OmegaConf.merge(under, OmegaConf.create(over)))
    except (OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
        problem = _first_line(error)
        if isinstance(error, TypeError):
            below, above = (OmegaConf.to_container(OmegaConf.create(each)) for each in (under, over))
            problem = next(_clashes(cast(dict[str, Any], below), cast(dict[str, Any], above)), problem)
        raise ConfigError(f"{place}: {problem}") from error


def _clashes(under: Mapping[Any, Any], over: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    # OmegaConf reports these too, but names no key.
    for key, value in over.items():
        path, before = f"{prefix}.{key}".strip("."), under.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            yield from _clashes(before, value, path)
        elif isinstance(before, Mapping) and isinstance(value, list):
            yield must_be_section(path, value)
        elif isinstance(before, list) and isinstance(value, Mapping):
            yield f"key {path!r} must be a list, got {value!r}"


def structured(
    schema: type[ConfigT],
    data: Mapping[str, Any],
    where: str = "",
    prefix: str = "",
    elsewhere: Callable[[], Iterable[str]] = tuple,
) -> ConfigT:
    """An instance of a dataclass schema from plain data; keys and types are checked.

    Args:
        schema: A dataclass.
        data: Nested plain values.
        where: Files the data came from, for the message.
        prefix: Dotted path of the data in the whole configuration, for the message.
        elsewhere: As in ``Settings.fill``.

    Raises:
        ConfigError: as ``compose``.
    """
    at = f"{where}: " if where else ""
    for path in unknown_keys(schema, data, prefix):
        known = sorted(known_keys(schema, prefix))
        siblings = [k for k in known if k.rpartition(".")[0] == path.rpartition(".")[0]]
        hint = _hint(path, siblings, [*known, *elsewhere()])
        raise ConfigError(f"{at}key {path!r} does not exist.{hint} Keys here: {', '.join(siblings)}")
    for problem in wrong_shapes(schema, data, prefix):
        raise ConfigError(f"{at}{problem}")
    for keys, value in leaves(data, (prefix,) if prefix else ()):
        if "${" in str(value):  # it would read the environment, or another key
            raise ConfigError(f"{at}key {'.'.join(map(str, keys))!r}: {value!r} refers to another value; write it out")
    try:
        made = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(dict(data))))
    except (OmegaConfBaseException, OverflowError) as error:
        key = getattr(error, "full_key", "") or _refused_key(schema, data)
        name = f"{prefix}.{key}".strip(".")
        problem = f"the number is out of range ({error})" if isinstance(error, OverflowError) else _first_line(error)
        if "Incompatible value 'None'" in problem:
            problem = "it has no value, and needs one"
        problem = problem.replace("Value '$VALUE' of type '$VALUE_TYPE'", "a value in it")  # as OmegaConf leaves it
        raise ConfigError(f"{at}key {name!r}: {problem}") from error
    except ConfigError as error:
        raise ConfigError(f"{at}{error}") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{at}{prefix + ': ' if prefix else ''}{error}") from error
    return cast(ConfigT, made)


def with_unsaid(schema: type[Any], saved: Mapping[str, Any], data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A saved configuration, completed by the keys that are newer than it, at what the code that saved it did.

    A dataclass says in ``unsaid: ClassVar[Mapping[str, Any]]`` what a configuration without its newer keys means, where
    that differs from their defaults.

    Args:
        schema: A dataclass.
        saved: Nested plain values.
        data: What is completed in place of ``saved``: it takes the values that ``saved`` has of those keys, but a key
            that it sets itself stays.
    """
    unsaid = getattr(schema, "unsaid", {})
    filled = {key: value for key, value in unsaid.items() if key not in saved}
    if data is not None:
        filled |= {key: saved[key] for key in unsaid if saved.get(key) is not None}
    data = saved if data is None else data
    filled.update(data)
    for key, hint in fields_of(schema).items():
        nested, old, new = section_of(hint), saved.get(key, {}), data.get(key, {})
        if nested is None or not isinstance(old, Mapping) or not isinstance(new, Mapping):
            continue
        if inner := with_unsaid(nested, old, new):
            filled[key] = inner
    return filled


def to_yaml(config: Any) -> str:
    """The configuration as YAML, every key written out."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as nested plain values."""
    return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.structured(config), resolve=True))


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file whose top level is a mapping.

    Raises:
        ConfigError: it is missing, unreadable, too large, has a key twice, or is not a mapping; the message names the
            line.
    """
    try:
        text = read_at_most(path, 4 * MAX_NODES * CHARACTERS_PER_NODE).decode()
        check_yaml(text)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not readable as YAML: it is not text in UTF-8") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not readable as YAML: {error}") from error
    for key, value, line in rewritten_keys(text):
        raise ConfigError(f"{path}:{line}: YAML reads the key {key} as {value}; quote it: {key!r}")
    try:
        data = OmegaConf.to_container(OmegaConf.load(io.StringIO(text)))
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_yaml_trouble(path, text, error)) from error
    except OSError:  # what OmegaConf raises for a bare word or number
        data = None
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {_first_line(error)}") from error
    if not isinstance(data, dict):
        what = "one value" if data is None else type(data).__name__
        raise ConfigError(f"{path}: expected keys and values at the top level, got {what}")
    return cast(dict[str, Any], data)


def _yaml_trouble(path: Path, text: str, error: yaml.MarkedYAMLError) -> str:
    line = error.problem_mark.line + 1 if error.problem_mark else 1
    problem = error.problem or "it cannot be parsed"
    if "duplicate key" in problem:
        keys, key = list(entries(text)), problem.partition("duplicate key ")[2]
        name = next((name for name, number, _ in keys if number == line and f".{name}".endswith(f".{key}")), key)
        first = next((number for other, number, _ in keys if other == name), line)
        return f"{path}:{line}: key {name!r} stands there twice, in lines {first} and {line}; keep one of them"
    return f"{path}: not readable as YAML: line {line}: {problem}"


def _argument(override: str) -> tuple[str, DictConfig]:
    """Key and settings of a ``key=value``."""
    key, equals, _ = override.partition("=")
    if len(override) > MAX_TEXT or key.count(".") >= MAX_DEPTH:
        limits = f"{MAX_TEXT:,} characters or {MAX_DEPTH} parts of its key"
        raise ConfigError(f"argument {override[:100]!r}...: longer than {limits}; write it to a file (--config FILE)")
    if not equals or not key:
        meant = f"; a file is given by --config {override}" if override.endswith((".yaml", ".yml")) else ""
        raise ConfigError(f"{override!r} is not key=value{meant}")
    if not all(re.fullmatch(r"[\w-]+", part) for part in key.split(".")):
        raise ConfigError(f"argument {override!r}: {key!r} is not a key; write section.key=value, e.g. optim.lr=1e-3")
    try:
        text = override[len(key) + 1 :]
        check_yaml(text)
        if comment := comment_behind(text):
            raise ValueError(f'YAML leaves out {comment!r}; quote the value, {key}="..."')
        if _REWRITTEN.fullmatch(text):  # a field for numbers still reads one; any other keeps the text
            text = f"'{text}'"
        return key, OmegaConf.from_dotlist([f"{key}={text}"])
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"argument {override!r}: the value is not readable as YAML: {error.problem}") from error
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"argument {override!r}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    text = next(iter(str(error).splitlines()), type(error).__name__)
    return text.replace("Cannot convert 'DictConfig' to string", "braces make a mapping; quote text that has them")


def _paths(data: Any, prefix: str = "") -> Iterator[str]:
    """Dotted path of every key of nested mappings."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            path = f"{prefix}.{key}".strip(".")
            yield path
            yield from _paths(value, path)


def _refused_key(schema: type[Any], data: Mapping[str, Any]) -> str:
    """The first key that OmegaConf refuses on its own; for its errors that do not name a key."""
    for path, leaf in leaves(data):
        value: Any = leaf
        for part in reversed(path):
            value = {part: value}
        try:
            OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(value))
        except (OmegaConfBaseException, OverflowError):
            return ".".join(map(str, path))
    return ""


def leaves(data: Mapping[Any, Any], prefix: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Keys and value of every leaf of nested mappings; a key may hold dots."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


def _hint(path: str, siblings: Sequence[str], known: Sequence[str]) -> str:
    """The key that was meant: of the same name in another section, else the nearest here, else anywhere."""
    name = path.rpartition(".")[2]
    by_name: dict[str, list[str]] = {}
    for key in known:
        by_name.setdefault(key.rpartition(".")[2], []).append(key)
    here = difflib.get_close_matches(name, [key.rpartition(".")[2] for key in siblings], n=1, cutoff=0.6)
    if name not in by_name and here:
        return f" Did you mean: {here[0]!r}?"
    near = [name] if name in by_name else difflib.get_close_matches(name, by_name, n=1, cutoff=0.7)
    return f" Did you mean: {' or '.join(map(repr, by_name[near[0]]))}?" if near else ""
