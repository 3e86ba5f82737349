"""What is known of the process and the sampler without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genpolicy.declared_samplers import TEMPERATURE
from genpolicy.options import Option

KERNELS = ("exact", "euler")

FLOW = (
    Option("kernel", str, "exact", choices=KERNELS, help="how a step is computed; euler approximates it"),
    Option("churn", float, 0.0, low=0.0, usual_high=10.0, help="how far a step runs ahead before adding noise back"),
    TEMPERATURE,
)
"""The options of the sampler."""


def hides_noise(process: Mapping[str, Any]) -> bool:
    """Whether the noise of a configured process looks like data, so that some samplers cannot play with it."""
    return process.get("source") == "uniform"
