"""Options that an engine declares, and their values; one that it does not accept is refused before any search.

An engine that gets ``Hash value abc`` or a number out of its range crashes, or ignores it silently.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from genpolicy.errors import EngineError

_DECLARED = re.compile(r"option name (?P<name>.+?) type (?P<kind>\w+)(?P<rest>.*)")
_WORD = re.compile(r"(?:^| )(default|min|max|var)(?= |$)")


@dataclass(frozen=True)
class EngineOption:
    """One line ``option name ...``."""

    name: str
    kind: str
    """``spin``, ``check``, ``combo``, ``string``, ``button``, or what else the engine says."""
    low: int | None = None
    high: int | None = None
    members: tuple[str, ...] = ()
    """What a combo takes."""

    @staticmethod
    def parse(line: str) -> EngineOption | None:
        """The option of a line; None where it declares none."""
        match = _DECLARED.match(line)
        if match is None:
            return None
        words = _WORD.split(match["rest"])  # text, word, text, word, text: values may hold blanks, and may be empty
        said = [(word, text.strip()) for word, text in zip(words[1::2], words[2::2], strict=True)]
        first = dict(reversed(said))
        members = tuple(text for word, text in said if word == "var")
        return EngineOption(match["name"], match["kind"], _number(first.get("min")), _number(first.get("max")), members)

    def takes(self) -> str:
        """What it takes, in words; "" where anything goes."""
        if self.kind == "spin":
            ends = (("from", self.low), ("to", self.high))
            return " ".join(["a whole number", *(f"{word} {end}" for word, end in ends if end is not None)])
        if self.kind == "check":
            return "true or false"
        if self.kind == "combo" and self.members:
            return f"one of {', '.join(self.members)}"
        return ""

    def line(self, value: str) -> str | None:
        """The line that sets it; None where it does not take the value."""
        text = value.strip()
        if self.kind == "button":
            return f"setoption name {self.name}"
        if self.kind == "spin":
            number = _number(text)
            if number is None:
                return None
            if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
                return None
            text = str(number)
        elif self.kind == "check":
            text = text.lower()
            if text not in ("true", "false"):
                return None
        elif self.kind == "combo" and self.members:
            same = [member for member in self.members if member.lower() == text.lower()]
            if not same:
                return None
            text = same[0]
        return f"setoption name {self.name} value {text}"


def setoption_lines(
    engine: str, declared: Mapping[str, EngineOption], wanted: Mapping[str, str], spelt: Mapping[str, str]
) -> list[str]:
    """The ``setoption`` lines of what is wanted.

    Args:
        engine: Name of the engine, for messages.
        declared: Its options by name in lower case.
        wanted: Values by name; upper and lower case do not matter.
        spelt: How the user wrote an option that is not spelt as the engine spells it: ``{"Hash": "hash_mb"}``.

    Raises:
        EngineError: it has no such option, or the value is none that it declares; the message says which it takes.
    """
    lines = []
    for key, value in wanted.items():
        said = spelt.get(key, key)
        option = declared.get(key.lower())
        if option is None:
            near = difflib.get_close_matches(key.lower(), declared, n=1)
            hint = f" Did you mean: {declared[near[0]].name!r}?" if near else ""
            known = ", ".join(option.name for option in declared.values()) or "none"
            raise EngineError(f"{engine} has no option {said!r}.{hint} It has: {known}")
        line = option.line(value)
        if line is None:
            raise EngineError(f"{engine}: option {said!r} takes {option.takes()}, got {value!r}")
        lines.append(line)
    return lines


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[-+]?\d{1,18}", text, re.ASCII) else None
