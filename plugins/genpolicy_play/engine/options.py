"""What a GUI may set: the engine's own options and those of the policy, declared with their types and ranges.

Nothing here imports torch, so that an engine can name its options at once; a test holds the tables below to what the
policies themselves say.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import genpolicy.options as declared
from genpolicy_play.engine.search import DEFAULT_OVERHEAD_MS

EMPTY = "<empty>"  # how the protocols write an empty text
MAX_SEED = 2**31 - 1  # what a GUI's spin box holds
MAX_SIMULATIONS = 1_000_000
MAX_MULTI_PV = 500
SAMPLERS = (
    "ancestral",
    "easy_first",
    "easy_first_commit",
    "stochastic",
    "a0_last",
    "one_call",
    "remasking",
)
SAMPLERS_WITHOUT_MASK = ("ancestral", "easy_first", "stochastic", "one_call")
"""Those for a process whose noise looks like data."""
SCHEDULERS = ("ddpm", "ddim", "dpmsolver++", "one_call")
_WEIGHTS = ("seed", "batch_size")
_NETWORK = (*_WEIGHTS, "legal_mask")
_VALUE = (*_WEIGHTS, "readout", "temperature", "prior_temperature")
POLICY_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "diffusion": (
        *_NETWORK,
        "sampler",
        "num_steps",
        "temperature",
        "num_futures",
        "horizon",
        "rate",
        "score",
        "noise",
        "commit",
        "eta",
        "sigma",
    ),
    "gaussian": (*_NETWORK, "scheduler", "num_steps"),
    "one_step": (*_NETWORK, "temperature"),
    "direct": (*_NETWORK, "temperature"),
    "autoregressive": (*_NETWORK, "temperature", "imagine"),
    "state_value": _VALUE,
    "action_value": _VALUE,
    "mcts": (
        "simulations",
        "c_puct",
        "c_base",
        "c_init",
        "first_play",
        "first_play_reduction",
        "first_play_value",
        "dirichlet_alpha",
        "noise_fraction",
        "leaves",
        "virtual_loss",
        "early_stop",
        "tau",
        "temperature",
        "reuse",
        "seed",
        "preset",
    ),
    "random": (),
    "greedy": (),
    "alphabeta": (),
    "engine": (),
    "oracle": (),
}
"""``Policy.option_names()`` of the policies that come with the program, as far as the order goes."""
NO_PRIOR = ("alphabeta", "engine", "oracle", "mcts")
"""Policies that a tree search cannot be laid over: without probabilities of their moves, or one already."""

Kind = Literal["spin", "check", "combo", "string"]


@dataclass(frozen=True)
class Option:
    """One option: how it is declared and what it takes."""

    name: str
    kind: Kind
    default: Any = None
    """None: not set; the policy's own."""
    low: int = 0
    high: int = 0
    members: tuple[str, ...] = ()
    key: str | None = None
    """The policy's name for it; None for an option of the engine itself."""
    number: bool = False
    """A ``string`` that holds a number with a fraction, for which the protocols have no type."""

    def declaration(self) -> str:
        """What stands behind ``option name X``."""
        if self.kind == "spin":
            return f"type spin default {self.default} min {self.low} max {self.high}"
        if self.kind == "check":
            return f"type check default {'true' if self.default else 'false'}"
        if self.kind == "combo":
            return f"type combo default {self.default} " + " ".join(f"var {member}" for member in self.members)
        return f"type string default {EMPTY if self.default in (None, '') else self.default}"

    def read(self, text: str) -> Any:
        """The value of a text.

        Raises:
            ValueError: the option does not take it; the message says what it takes.
        """
        text = text.strip()
        if self.kind == "spin":
            digits = text.removeprefix("-").removeprefix("+")
            if (
                not (digits.isascii() and digits.isdigit())
                or len(digits) > 18
                or not self.low <= int(text) <= self.high
            ):
                raise ValueError(f"takes a whole number from {self.low} to {self.high}")
            return int(text)
        if self.kind == "check":
            if text.lower() not in ("true", "false"):
                raise ValueError("takes true or false")
            return text.lower() == "true"
        if self.kind == "combo":
            same = [member for member in self.members if member.lower() == text.lower()]
            if not same:
                raise ValueError(f"takes one of {', '.join(self.members)}")
            return same[0]
        if text in ("", EMPTY):
            return None
        if not self.number:
            return text
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError("takes a number, or nothing for the policy's own")
        return value


def _number(name: str, default: float | None = None) -> Option:
    return Option(name, "string", default, number=True)


_KNOWN: Mapping[str, Option] = {
    "num_steps": Option("Steps", "spin", 20, 1, 1000),
    "sampler": Option("Sampler", "combo", "easy_first", members=SAMPLERS),
    "scheduler": Option("Sampler", "combo", "ddpm", members=SCHEDULERS),
    "temperature": _number("Temperature"),
    "seed": Option("Seed", "spin", 0, 0, MAX_SEED),
    "simulations": Option("Simulations", "spin", 100, 1, MAX_SIMULATIONS),
    "batch_size": Option("batch_size", "spin", 64, 1, 4096),
    "legal_mask": Option("legal_mask", "check", True),
    "num_futures": Option("num_futures", "spin", 1, 1, 256),
    "horizon": Option("horizon", "spin", 4, 1, 64),
    "rate": Option("rate", "combo", "linear", members=("linear", "cosine", "even")),
    "score": Option("score", "combo", "log_prob", members=("log_prob", "entropy", "margin")),
    "noise": _number("noise"),
    "commit": Option("commit", "check", False),
    "eta": _number("eta"),
    "sigma": Option("sigma", "combo", "cap", members=("cap", "rescale")),
    "imagine": Option("imagine", "check", True),
    "readout": Option("readout", "combo", "mean", members=("mean", "mode")),
    "prior_temperature": _number("prior_temperature"),
    "c_puct": _number("c_puct"),
    "c_base": _number("c_base", 19652.0),
    "c_init": _number("c_init", 1.25),
    "first_play": Option("first_play", "combo", "mean", members=("mean", "value", "constant")),
    "first_play_reduction": _number("first_play_reduction", 0.0),
    "first_play_value": _number("first_play_value", 0.0),
    "dirichlet_alpha": _number("dirichlet_alpha", 0.3),
    "noise_fraction": _number("noise_fraction", 0.0),
    "leaves": Option("leaves", "spin", 8, 1, 4096),
    "virtual_loss": _number("virtual_loss", 1.0),
    "early_stop": Option("early_stop", "check", False),
    "tau": _number("tau", 1.0),
    "reuse": Option("reuse", "check", False),
    "preset": Option("preset", "combo", "none", members=("none", "diffusearch", "alphazero")),
}


def own_options(device: str, *, wdl: bool) -> list[Option]:
    """The options of the engine itself.

    Args:
        device: Where the network lies when nothing is set.
        wdl: Whether the protocol has win, draw and loss.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    cores = int(threads) if threads.isascii() and threads.isdigit() and int(threads) > 0 else os.cpu_count() or 1
    devices = tuple(dict.fromkeys((device, "cpu", "cuda", "mps")))
    own = [
        Option("Threads", "spin", min(cores, 512), 1, 512),
        Option("Device", "combo", device, members=devices),
        Option("MultiPV", "spin", 1, 1, MAX_MULTI_PV),
        Option("Ponder", "check", False),
        Option("Move Overhead", "spin", DEFAULT_OVERHEAD_MS, 0, 5000),
    ]
    return [*own, Option("UCI_ShowWDL", "check", True)] if wdl else own


def policy_options(
    keys: Iterable[str],
    values: Mapping[str, Any],
    highest: Mapping[str, int],
    choices: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> list[Option]:
    """The options that a policy takes.

    Args:
        keys: As the policy calls them.
        values: What is set already, by the folder or the spelling.
        highest: Upper ends of ranges that the folder tells.
        choices: The names that options may take, where they are other ones than those of the program's own policies.
    """
    options = []
    for key in keys:
        option = replace(_KNOWN.get(key, Option(key, "string")), key=key)
        if members := choices.get(key):
            first = option.default if option.default in members else members[0]
            option = replace(option, kind="combo", members=members, default=first)
        if key in highest:
            option = replace(option, high=highest[key], default=min(int(option.default), highest[key]))
        value = values.get(key)
        if option.kind == "check" and isinstance(value, (str, int)):
            with suppress(ValueError):  # loading says it
                value = declared.Option(key, bool).read(value)
        if value is not None and (option.kind != "spin" or type(value) is int):  # a wrong one is refused in loading
            option = replace(option, default=value)
        if option.kind == "combo" and option.default not in option.members:
            option = replace(option, members=(*option.members, str(option.default)))
        if option.kind == "spin":
            option = replace(option, high=max(option.high, int(option.default)))
        options.append(option)
    return options


SEARCH_OVER = Option("Simulations", "spin", 0, 0, MAX_SIMULATIONS)
"""Of a policy that is no search: above 0, a tree search with the policy as its prior."""
SEED = replace(_KNOWN["seed"], key=None)
"""Of a policy that takes no option ``seed`` but may be seeded."""
