"""The options that a GUI may set: the engine's own and those of the policy, as UCI and USI write them.

Nothing here imports torch, so that an engine can name its options at once.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from genpolicy.options import Option
from genpolicy_play.engine.search import DEFAULT_OVERHEAD_MS

EMPTY = "<empty>"
"""How the protocols write an empty text."""
MAX_SPIN = 2**31 - 1
"""What the spin box of a GUI can hold."""
SET_BY_GO = ("nodes", "depth", "movetime_ms")
"""Options of a policy that searches within such limits; the GUI sets them for each search with ``go``."""
SEED = Option("Seed", int, 0, 0, MAX_SPIN)
"""Of a policy that declares no option ``seed``."""
SEARCH_OVER = Option("Simulations", int, 0, 0, 1_000_000)
"""Above 0, a tree search over a policy that is not one."""


def own_options(device: str, *, wdl: bool) -> list[Option]:
    """The options of the engine itself.

    Args:
        device: Where the network is when nothing is set.
        wdl: Whether the protocol has win, draw and loss.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    cores = int(threads) if threads.isascii() and threads.isdigit() and int(threads) > 0 else os.cpu_count() or 1
    own = [
        Option("Threads", int, min(cores, 512), 1, 512),
        Option("Device", str, device, choices=tuple(dict.fromkeys((device, "cpu", "cuda", "mps")))),
        Option("MultiPV", int, 1, 1, 500),
        Option("Ponder", bool, False),
        Option("Move Overhead", int, DEFAULT_OVERHEAD_MS, 0, 5000),
    ]
    return [*own, Option("UCI_ShowWDL", bool, True)] if wdl else own


def declaration(option: Option) -> str:
    """What stands behind ``option name X``: numbers with fractions are texts, for which the protocols have no type."""
    default = option.default
    if option.type is bool:
        return f"type check default {'true' if default else 'false'}"
    if option.choices:
        choices = " ".join(f"var {choice}" for choice in option.choices)
        return f"type combo default {option.choices[0] if default is None else default} {choices}"
    if option.type is int and default is not None:
        low, high = _range(option)
        return f"type spin default {default} min {min(low, default)} max {max(high, default)}"
    return f"type string default {EMPTY if default in (None, '') else default}"


def read_text(option: Option, text: str) -> Any:
    """The value of a text that a GUI sets; None, for an empty text, leaves it to the policy.

    Raises:
        ValueError: the option does not accept it; the message begins with the option's name.
    """
    text = text.strip()
    if text in ("", EMPTY) and not option.choices and (option.type in (str, float) or option.default is None):
        return None
    for choice in option.choices:
        if choice.lower() == text.lower():
            return choice
    if option.type is int and option.default is not None:
        low, high = _range(option)
        option = replace(option, low=min(low, option.default), high=max(high, option.default))
    return option.read(text)


def _range(option: Option) -> tuple[int, int]:
    """The range of a spin: what programs offer of the range that the option accepts."""
    low = max(option.low, -MAX_SPIN if option.usual_low is None else option.usual_low)
    high = min(option.high, MAX_SPIN if option.usual_high is None else option.usual_high)
    return int(low), int(high)
