"""What a dataclass schema says of a configuration's keys: which there are, and which hold sections or lists.

OmegaConf checks these, too, but by the names of its classes and not by the key.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any


def must_be_section(path: str, value: Any) -> str:
    """What to say of a value that stands where a section belongs."""
    return f"key {path!r} is a section of keys, got {value!r}; write {path}.<key>=<value>"


def fields_of(schema: type[Any]) -> dict[str, Any]:
    """The name and type of each field of a dataclass."""
    hints = typing.get_type_hints(schema)
    return {f.name: hints[f.name] for f in dataclasses.fields(schema)}


def section_of(hint: Any) -> type[Any] | None:
    """The dataclass that a field of this type holds; None for no section."""
    for candidate in (hint, *typing.get_args(hint)):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None


def known_keys(schema: type[Any], prefix: str = "") -> Iterator[str]:
    """Dotted path of every key of a dataclass schema, sections included."""
    for name, hint in fields_of(schema).items():
        path = f"{prefix}.{name}".strip(".")
        yield path
        if nested := section_of(hint):
            yield from known_keys(nested, path)


def _walk(schema: type[Any], data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any, Any]]:
    """Dotted path, type and value of every key of nested data; the type is None where the schema lacks the key."""
    hints = fields_of(schema)
    for key, value in data.items():
        path, hint = f"{prefix}.{key}".strip("."), hints.get(key)
        yield path, hint, value
        if isinstance(value, Mapping) and (nested := section_of(hint)):
            yield from _walk(nested, value, path)


def as_written(
    schema: type[Any], data: Mapping[str, Any], written: Mapping[str, str], prefix: str = ""
) -> dict[str, Any]:
    """Nested data whose texts are what was ``written`` (by dotted path) where YAML reads another value: yes, 1e3."""
    made, hints = dict(data), fields_of(schema)
    for key, value in data.items():
        path, hint = f"{prefix}.{key}".strip("."), hints.get(key)
        if isinstance(value, Mapping) and (nested := section_of(hint)):
            made[key] = as_written(nested, value, written, path)
        elif hint in (str, str | None) and isinstance(value, bool | int | float):
            made[key] = written.get(path, value)
    return made


def unknown_keys(schema: type[Any], data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted path of every key that the schema lacks."""
    return (path for path, hint, _ in _walk(schema, data, prefix) if hint is None)


def wrong_shapes(schema: type[Any], data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """What to say of each value that stands where a list or a section belongs, of each list of another length than its
    type, and of each mapping or list among plain items, which OmegaConf lets pass."""
    walked = list(_walk(schema, data, prefix))
    for path, hint, value in walked:
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        kinds = [each for each in (typing.get_args(hint) if is_union else (hint,)) if each is not type(None)]
        is_list = all(typing.get_origin(each) in (list, tuple) for each in kinds)
        items = typing.get_args(kinds[0]) if is_list else ()
        length = len(items) if is_list and typing.get_origin(kinds[0]) is tuple and ... not in items else None
        if is_list and isinstance(value, bool | int | float | str | Mapping):
            example = f"{path}=[{','.join([str(value)] * (length or 1))}]"
            is_item = not isinstance(value, Mapping) and set(items) <= _PLAIN
            yield f"key {path!r} must be a list, " + (f"e.g. {example}" if is_item else f"got {value!r}")
        elif isinstance(value, list) and len(value) != (length or len(value)):
            yield f"key {path!r} holds {length} values, got {value!r}"
    for path, hint, value in walked:
        nested, is_dict = section_of(hint), typing.get_origin(hint) is dict
        is_wrong = (nested or is_dict) and isinstance(value, bool | int | float | str)
        if is_wrong or ((is_dict or (nested and nested is hint)) and isinstance(value, list)):
            yield must_be_section(path, value)
    for path, hint, value in walked:
        lists = [each for each in (hint, *typing.get_args(hint)) if typing.get_origin(each) in (list, tuple)]
        if isinstance(value, list) and lists and {kind for each in lists for kind in typing.get_args(each)} <= _PLAIN:
            yield from (
                f"key {path!r} is a list of plain values, got {each!r} in it"
                for each in value
                if isinstance(each, Mapping | list)
            )


_PLAIN = {bool, int, float, str, ...}
