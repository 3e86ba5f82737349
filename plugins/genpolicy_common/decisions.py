"""A decision that applications can play, whoever wrote the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genpolicy.control import FREE, Control
from genpolicy.policies.answers import require_possible
from genpolicy.policies.base import Decision, Policy, decide_with


def decided(policy: Policy, state: Any, control: Control = FREE) -> Decision:
    """A policy's decision for one position; errors as ``all_decided``."""
    return all_decided(policy, [state], control)[0]


def all_decided(policy: Policy, states: Sequence[Any], control: Control = FREE) -> list[Decision]:
    """A policy's decisions for some positions.

    Raises:
        RegistryError: they are not one ``Decision`` for each, a move is not legal, or probabilities or a value are
            impossible; the message names the policy's package and the position.
        ValueError: as ``Policy.decide``.
    """
    decisions = decide_with(policy, states, control)
    require_possible(policy, states, decisions)
    return decisions
