"""What benchmarks share: rounds in turns, ratios and rates with quartiles, the machine they ran on, and their report.

A figure is printed and, where the environment variable ``GENPOLICY_BENCHMARK_REPORT`` names a file, appended to it as a
line of JSON: ``python -m benchmarks`` reads it there, so that what was measured before an error or Ctrl-C is kept.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

REPORT = "GENPOLICY_BENCHMARK_REPORT"
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
SETTINGS = ("OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
"""Variables of the environment that change how fast torch is."""

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True)
class Figure:
    """What was measured in some rounds.

    Args:
        name: What it is.
        unit: Of the values; empty for a ratio.
        values: One a round.
        quietest: Value of the round that was disturbed least: of a ratio the one in which both sides together were
            fastest, of a rate the highest, of a time the shortest.
        wanted: ``at most 1.05`` or ``at least 1.3``, for the median; None without a target.
    """

    name: str
    unit: str
    values: list[float]
    quietest: float
    wanted: str | None = None

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median, upper quartile."""
        if len(self.values) == 1:
            return self.values[0], self.values[0], self.values[0]
        low, middle, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, middle, high

    @property
    def reached(self) -> bool:
        """Whether the median is as wanted."""
        if self.wanted is None:
            return True
        word, limit = self.wanted.rsplit(" ", 1)
        middle = self.quartiles[1]
        return middle <= float(limit) if word == "at most" else middle >= float(limit)

    def as_json(self) -> dict[str, object]:
        """All of it, with what follows from the values."""
        low, middle, high = self.quartiles
        spread = {"median": middle, "low": low, "high": high, "rounds": len(self.values)}
        return asdict(self) | spread | {"reached": self.reached, "text": str(self)}

    def __str__(self) -> str:
        low, middle, high, quietest = (_short(value) for value in (*self.quartiles, self.quietest))
        unit = f" {self.unit}" if self.unit else ""
        end = "" if self.wanted is None else f"; wanted {self.wanted}" + ("" if self.reached else ": MISSED")
        return f"{self.name}: {middle}{unit} ({low} to {high}, {len(self.values)} rounds, quietest {quietest}){end}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def ratio(
    name: str, over: Sequence[float], under: Sequence[float], *, rates: bool = False, wanted: str | None = None
) -> Figure:
    """Report the ratios of two things that were measured in the same rounds: times, or rates."""
    rounds = list(zip(over, under, strict=True))
    quietest = max(rounds, key=sum) if rates else min(rounds, key=sum)
    return _report(Figure(name, "", [a / b for a, b in rounds], quietest[0] / quietest[1], wanted))


def rate(name: str, values: Sequence[float], unit: str, *, wanted: str | None = None) -> Figure:
    """Report how much was done in a unit of time, in each round."""
    return _report(Figure(name, unit, list(values), max(values), wanted))


def times(name: str, seconds: Sequence[float]) -> Figure:
    """Report how long something took in each round."""
    return _report(Figure(name, "ms", [1e3 * value for value in seconds], 1e3 * min(seconds)))


def _report(figure: Figure) -> Figure:
    print(figure, flush=True)
    if REPORT in os.environ:
        with open(os.environ[REPORT], "a", encoding="utf-8") as file:
            file.write(json.dumps(figure.as_json()) + "\n")
    return figure


def in_turns(
    calls: Mapping[KeyT, Callable[[], object]], rounds: int, *, clock: str = "wall", warm_up: int = 2
) -> dict[KeyT, list[float]]:
    """Seconds of each call in each round, after some rounds to warm up.

    The calls take turns, every second round in the opposite order, so that other work on the machine hits all of them.
    """
    now = CLOCKS[clock]
    seconds: dict[KeyT, list[float]] = {key: [] for key in calls}
    for number in range(-warm_up, rounds):
        for key, call in list(calls.items())[:: 1 - 2 * (number % 2)]:
            began = now()
            call()
            if number >= 0:
                seconds[key].append(now() - began)
    return seconds


def machine() -> dict[str, object]:
    """Processor, cores, load, versions, and the settings of the environment that matter."""
    from genpolicy.machine import commit, num_cores
    from genpolicy_common.env import processor

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "not installed"
    facts: dict[str, object] = {"processor": processor(), "cores": num_cores(), "load": load()}
    facts |= {"python": platform.python_version(), "torch": torch, "commit": commit() or "unknown"}
    return facts | {name: os.environ[name] for name in SETTINGS if name in os.environ}


def load() -> list[float]:
    """Load averages of 1, 5 and 15 minutes; empty where the system has none."""
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else []


def describe(what: str) -> None:
    """Print what is measured and the machine."""
    facts = machine()
    cores, loads = facts.pop("cores"), load()
    start = f"{facts.pop('processor')}, {cores} cores, load {loads[0] if facts.pop('load') else 'unknown'}"
    print(f"{what}\n{start}, {', '.join(f'{name} {value}' for name, value in facts.items())}", flush=True)
