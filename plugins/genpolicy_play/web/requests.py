"""Reads the JSON of a request: every field is checked before it is used."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from genpolicy.errors import did_you_mean

MAX_BODY_BYTES = 64 * 1024
MAX_DEPTH = 8
"""Of nested lists and objects; no request needs more than two."""
MAX_MOVES = 2000
"""Of a game. The longest games on record have some 540 plies."""
MAX_TEXT = 4096
"""Characters of a first position, which in shogi may include moves."""
MAX_NAME = 100
"""Characters of a player's name and of other short texts."""
MAX_MOVE = 32
MAX_SEED = 2**31 - 1
_QUOTED = 60


class RequestError(ValueError):
    """A request that is refused.

    Args:
        message: What is wrong and what would be right, for people.
        status: HTTP status, 4xx, 502, 503 or 504.
        retry_after_s: With 503, when to try again.
    """

    def __init__(self, message: str, status: int = 400, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s


def quoted(value: Any) -> str:
    """A value as JSON for a message, without control characters and cut where it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def read_object(body: bytes) -> dict[str, Any]:
    """The object of a body.

    Raises:
        RequestError: not UTF-8, not JSON, not an object, or with a number such as NaN or 1e999.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except RequestError:
        raise
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None
    except UnicodeDecodeError:
        raise RequestError("the body is not UTF-8") from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
        raise RequestError(f"the body is not JSON: {reason}") from None
    if not isinstance(value, dict):
        raise RequestError("the body must be a JSON object, such as {}")
    if _depth(value) > MAX_DEPTH:
        raise RequestError("the body is nested too deeply")
    return value


def _depth(value: Any) -> int:
    """How deeply lists and objects are nested; counted without recursion, which deep ones would overflow."""
    depth, level = 0, [value]
    while level := [inner for each in level for inner in _inside(each)]:
        depth += 1
    return depth


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RequestError(f"the number {quoted(text)} is too large")
    return value


class Fields:
    """The fields of a body, read with their types and limits.

    Args:
        values: The body.
        known: All names that the request may have.

    Raises:
        RequestError: a field of another name.
    """

    def __init__(self, values: Mapping[str, Any], known: Iterable[str]) -> None:
        names = sorted(known)
        for name in values:
            if name not in names:
                hint = did_you_mean(name, names)
                raise RequestError(f"field {quoted(name)} does not exist.{hint} Fields here: {', '.join(names)}")
        self._values = values

    def text(self, name: str, default: str | None = None, *, most: int = MAX_NAME) -> str:
        """A text of one line, stripped; ``default`` where it is missing or null.

        Raises:
            RequestError: missing without a default, not a text, too long, or with control characters.
        """
        value = self._values.get(name)
        if value is None:
            if default is None:
                raise RequestError(f"field {name!r} is missing")
            return default
        return line_of_text(value, name, most)

    def optional_text(self, name: str, *, most: int = MAX_NAME) -> str | None:
        """As ``text``; None where it is missing, null or empty."""
        return self.text(name, "", most=most) or None

    def content(self, name: str, *, most: int) -> str:
        """The content of a text file, of any number of lines.

        Raises:
            RequestError: missing, empty, not a text, too long, or with control characters.
        """
        value = self._values.get(name)
        if not isinstance(value, str) or not value.strip():
            raise RequestError(f"{name} must be a text that is not empty, got {quoted(value)}")
        if len(value) > most:
            raise RequestError(f"{name} may have at most {most:,} characters, got {len(value):,}")
        allowed = "\n\r\t\f"
        if strange := {each for each in value if (each < " " and each not in allowed) or "\ud800" <= each <= "\udfff"}:
            raise RequestError(f"{name} must hold no control characters, got {quoted(min(strange))}")
        return value

    def texts(self, name: str, *, most: int, length: int) -> list[str]:
        """A list of texts; [] where it is missing or null.

        Raises:
            RequestError: not a list, too many, or one that is not a text.
        """
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise RequestError(f"{name} must be a list of texts, got {quoted(value)}")
        if len(value) > most:
            raise RequestError(f"{name} may hold at most {most:,} texts, got {len(value):,}")
        return [line_of_text(each, f"{name}[{i}]", length) for i, each in enumerate(value)]

    def flag(self, name: str) -> bool:
        """A truth value; False where it is missing or null.

        Raises:
            RequestError: something else.
        """
        value = self._values.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise RequestError(f"{name} must be true or false, got {quoted(value)}")
        return value

    def whole(self, name: str, low: int, high: int) -> int | None:
        """A whole number of a range; None where it is missing or null.

        Raises:
            RequestError: something else.
        """
        value = self._values.get(name)
        return None if value is None else whole_number(value, name, low, high)

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; {} where it is missing or null.

        Raises:
            RequestError: something else.
        """
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise RequestError(f"{name} must be an object, got {quoted(value)}")
        return value


def line_of_text(value: Any, name: str, most: int) -> str:
    """A stripped text of printable characters.

    Raises:
        RequestError: something else, or too long.
    """
    if not isinstance(value, str):
        raise RequestError(f"{name} must be a text, got {quoted(value)}")
    text = value.strip()
    if len(text) > most:
        raise RequestError(f"{name} may have at most {most:,} characters, got {len(text):,}")
    if any(
        not char.isprintable() and char != "\u3000" for char in text
    ):  # Japanese names may hold an ideographic space
        raise RequestError(f"{name} must be one line of printable characters, got {quoted(text)}")
    return text


def whole_number(value: Any, name: str, low: float, high: float) -> int:
    """A whole number from ``low`` to ``high``; 3.0 counts as one.

    Raises:
        RequestError: something else.
    """
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole or not low <= value <= high:
        raise RequestError(f"{name} must be a whole number from {low} to {high}, got {quoted(value)}")
    return int(value)


def number(value: Any, name: str, low: float, high: float) -> float:
    """A number from ``low`` to ``high``.

    Raises:
        RequestError: something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise RequestError(f"{name} must be a number from {low:g} to {high:g}, got {quoted(value)}")
    return float(value)
