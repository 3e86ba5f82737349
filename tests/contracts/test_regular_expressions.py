"""No regular expression of the repository can take exponential time.

A match takes exponential time where a repetition without an upper bound stands within another one and a text can be
divided between the two in many ways, as in ``([^;"]+)+``. So such nesting is not allowed, except where each round of
the outer repetition begins with a character that the inner one cannot match.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
SAFE = {r"\b[a-z_]\w*(?:\.\w+)+", r'\s*([A-Za-z][A-Za-z0-9_]{0,14})(?:\s((?:"[^"]*"|[^;"])*))?(?:;|$)'}
"""Nested, and each round begins with a character of its own."""
REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT)


def patterns() -> Iterator[tuple[str, str]]:
    """Place and text of every pattern that is given to a function of ``re``."""
    for top in ("genpolicy", "plugins", "games"):
        for file in sorted((REPOSITORY / top).rglob("*.py")):
            calls = [
                node
                for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr != "escape"
            ]
            if not calls:
                continue
            parts = file.relative_to(REPOSITORY).with_suffix("").parts
            names = vars(importlib.import_module(".".join(parts if top == "genpolicy" else parts[1:])))
            for call in calls:
                known = {"shape": "3x3", **names}  # "shape" is a local variable of connect's parser
                text = eval(compile(ast.Expression(call.args[0]), str(file), "eval"), known)
                yield f"{file.relative_to(REPOSITORY)}:{call.lineno}", text


def is_nested(parsed: Any, inside: bool = False) -> bool:
    """Whether an unbounded repetition stands within another one."""
    if isinstance(parsed, tuple) and parsed and parsed[0] in REPEATS:
        _, high, body = parsed[1]
        unbounded = high == constants.MAXREPEAT
        return (unbounded and inside) or is_nested(body, inside or unbounded)
    if isinstance(parsed, tuple | list | parser.SubPattern):
        return any(is_nested(part, inside) for part in parsed)
    return False


def test_no_unbounded_repetition_stands_within_another() -> None:
    pytest.importorskip("chess")
    pytest.importorskip("cshogi")
    found = dict(patterns())
    assert len(found) > 50, "the search for patterns does not find them"
    nested = {place: text for place, text in found.items() if is_nested(parser.parse(text)) and text not in SAFE}
    assert nested == {}


def test_the_check_sees_what_once_hung() -> None:
    assert is_nested(parser.parse(r'((?:\s+(?:"[^"]*"|[^;"]+)+)?)\s*(?:;|$)'))
    assert not is_nested(parser.parse(r"(?:[a-z][0-9]{0,3})+x*"))
    assert all(re.compile(text) for text in SAFE)
