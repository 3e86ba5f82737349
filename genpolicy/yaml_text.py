"""YAML as text: what is refused before anything is constructed, and how keys and values are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe parser in C where there is one, as OmegaConf reads: it takes some texts that the one in Python refuses, and
refuses lists that are nested too deeply at once."""
MAX_NODES = 5_000  # keys, values, lists and mappings of a configuration, aliases followed
MAX_DEPTH = 100  # the parsers call themselves for every level, the one in C until the process dies
MAX_TEXT = 5_000
CHARACTERS_PER_NODE = 50
_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def check_yaml(text: str, max_nodes: int = MAX_NODES, max_text: int = MAX_TEXT) -> None:
    """Refuse YAML that would take much more memory than its text, crash the parser, or change a terminal; nothing is
    constructed.

    Raises:
        ValueError: more nodes or a longer value than allowed, too deep, an alias within what it names, or control
            characters other than tabs and ends of lines.
    """
    if len(text) > max_nodes * CHARACTERS_PER_NODE:
        raise ValueError(f"it is longer than {max_nodes * CHARACTERS_PER_NODE:,} characters")
    num_nodes, sizes, is_open = 0, dict[str | None, int](), list[tuple[str | None, int]]()
    with suppress(yaml.YAMLError):  # what is malformed is left to the parser to name
        for event in yaml.parse(text, Loader=YAML_LOADER):
            line = f"line {event.start_mark.line + 1}:"
            if isinstance(event, yaml.AliasEvent):
                if event.anchor in (anchor for anchor, _ in is_open):
                    raise ValueError(f"{line} alias {event.anchor!r} refers to itself")
                num_nodes += sizes.get(event.anchor, 1)
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, before = is_open.pop()
                sizes[anchor] = num_nodes - before
            elif isinstance(event, yaml.NodeEvent):
                num_nodes, sizes[event.anchor] = num_nodes + 1, 1
                if isinstance(event, yaml.CollectionStartEvent):
                    is_open.append((event.anchor, num_nodes - 1))
                elif isinstance(event, yaml.ScalarEvent) and len(event.value) > max_text:
                    raise ValueError(f"{line} a text of more than {max_text:,} characters")
                elif isinstance(event, yaml.ScalarEvent) and _CONTROL.search(event.value):
                    raise ValueError(f"{line} a text with control characters, which a terminal would obey")
            if len(is_open) > MAX_DEPTH or num_nodes > max_nodes:
                raise ValueError(f"{line} more than {MAX_DEPTH} levels or {max_nodes:,} values, aliases followed")


def entries(text: str) -> Iterator[tuple[str, int, str | None]]:
    """Every key of a YAML document, in the order they stand in: its dotted path, its line from 1, and what is written
    for it without quotes, None for anything else."""

    def entries_of(node: yaml.Node | None, prefix: str = "") -> Iterator[tuple[str, int, str | None]]:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            path = f"{prefix}.{key.value}".strip(".")
            plain = isinstance(value, yaml.ScalarNode) and not value.style
            yield path, key.start_mark.line + 1, value.value if plain else None
            yield from entries_of(value, path)

    with suppress(yaml.YAMLError):
        yield from entries_of(yaml.compose(text, Loader=YAML_LOADER))


def written(text: str) -> dict[str, str]:
    """What stands without quotes in a YAML document, by dotted path."""
    return {path: plain for path, _, plain in entries(text) if plain is not None}


def rewritten_keys(text: str) -> Iterator[tuple[str, Any, int]]:
    """Keys that YAML does not read as they are written (1:30 is 90, no is False): text, value, and line from 1."""

    def plain_keys(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
        for each in node.value if isinstance(node, yaml.SequenceNode) else ():
            yield from plain_keys(each)
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            may_be_other = key.tag not in (_TEXT, _MERGE) or key.value[:1] in tuple("+-.0123456789")
            if isinstance(key, yaml.ScalarNode) and not key.style and may_be_other:
                yield key
            yield from plain_keys(value)

    with suppress(yaml.YAMLError, OmegaConfBaseException, ValueError):  # whoever reads the text meets them, too
        for key in plain_keys(yaml.compose(text, Loader=YAML_LOADER)):
            read = OmegaConf.from_dotlist([f"key={key.value}"])["key"]
            if str(read) != key.value:
                yield key.value, read, key.start_mark.line + 1


def comment_behind(text: str) -> str:
    """The comment that ends a value, which is a part of it where a shell took the quotes off; "" for none."""
    of_values = yaml.NodeEvent, yaml.CollectionEndEvent
    ends = (each.end_mark.index for each in yaml.parse(text, Loader=YAML_LOADER) if isinstance(each, of_values))
    return text[max(ends, default=0) :].strip()
