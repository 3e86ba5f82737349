"""Types of the options of commands: each reads a text or says which texts it accepts."""

from __future__ import annotations

import argparse


def whole(text: str) -> int:
    """A whole number."""
    return _whole(text, None, "a whole number")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1, "a whole number of at least 1")


def not_negative(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, 0, "a whole number of at least 0")


def _whole(text: str, least: int | None, takes: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise wrong(takes, text) from None
    if least is not None and number < least:
        raise wrong(takes, text)
    return number


def wrong(takes: str, text: str) -> argparse.ArgumentTypeError:
    """The error of an option that takes something else than ``text``."""
    return argparse.ArgumentTypeError(f"takes {takes}, got {text!r}")
