"""Types of the options of ``genpolicy data``: each reads a text or says which texts it accepts."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from genpolicy_common.option_types import not_negative as not_negative
from genpolicy_common.option_types import positive as positive
from genpolicy_common.option_types import whole as whole
from genpolicy_common.option_types import wrong

ALL_PLIES = 2**31 - 1
One = TypeVar("One")
Other = TypeVar("Other")


def words(text: str) -> str:
    """A text that is not empty."""
    if not text.strip():
        raise wrong("a text that is not empty", text)
    return text


def folder(text: str) -> Path:
    """A folder that need not exist; not a file."""
    path = Path(words(text))
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"takes a folder; {text} is a file")
    return path


def dataset(text: str) -> Path:
    """The folder of a data set; for a file, the message names the folder that holds it."""
    path = Path(words(text))
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"takes the folder of a data set; {text} is a file (it lies in {path.parent})")
    return path


def rates(text: str) -> tuple[float, float]:
    """``LOW:HIGH``, or one number for both."""
    takes = "LOW:HIGH with 0 <= LOW <= HIGH <= 1, such as 0.05:0.30"
    return _pair(text, takes, float, float, lambda low, high: 0 <= low <= high <= 1)


def plies(text: str) -> tuple[int, int]:
    """``LOW:HIGH``, or one number for both."""
    return _pair(text, "LOW:HIGH with 0 <= LOW <= HIGH, such as 4:12", int, int, lambda low, high: 0 <= low <= high)


def temperature(text: str) -> tuple[float, int]:
    """``T:PLIES``, or ``T`` for the whole game."""
    takes = "T:PLIES with T above 0 and PLIES at least 1, or T alone, such as 1:8"
    return _pair(text, takes, float, int, lambda value, number: 0 < value < math.inf and number >= 1, str(ALL_PLIES))


def adjudication(text: str) -> tuple[float, int]:
    """``VALUE:PLIES``."""
    takes = "VALUE:PLIES with 0 < VALUE <= 1 and PLIES at least 1, such as 0.95:8"
    return _pair(text, takes, float, int, lambda value, number: 0 < value <= 1 and number >= 1, "")


def _pair(
    text: str,
    takes: str,
    one: Callable[[str], One],
    other: Callable[[str], Other],
    fits: Callable[[One, Other], bool],
    missing: str | None = None,
) -> tuple[One, Other]:
    """``ONE:OTHER``; a missing ``OTHER`` is read as ``missing``, or as ``ONE``."""
    first, _, second = text.partition(":")
    try:
        pair = one(first), other(second or (first if missing is None else missing))
    except ValueError:
        raise wrong(takes, text) from None
    if not fits(*pair):
        raise wrong(takes, text)
    return pair


def share(text: str) -> float:
    """A number in (0, 1]."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise wrong("a number above 0 and at most 1, such as 0.25", text)
    return number


def fractions(text: str) -> str:
    """``TRAIN/VALIDATION/TEST``."""
    from genpolicy_labelling.splits import SplitFractions

    try:
        SplitFractions.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
