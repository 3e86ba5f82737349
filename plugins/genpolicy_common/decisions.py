"""A decision that applications can play, whoever wrote the policy."""

from __future__ import annotations

from typing import Any

from genpolicy import registry
from genpolicy.control import FREE, Control
from genpolicy.errors import RegistryError
from genpolicy.policies.base import Decision, Policy, decide_with


def decided(policy: Policy, state: Any, control: Control = FREE) -> Decision:
    """A policy's decision for one position.

    Raises:
        RegistryError: it is not one ``Decision``, or its move is not legal; the message names the policy's package.
        ValueError: as ``Policy.decide``.
    """
    answer: Any = decide_with(policy, [state], control)
    if not isinstance(answer, list | tuple) or len(answer) != 1 or not isinstance(answer[0], Decision):
        raise RegistryError(f"{_owner(policy)} answered {answer!r:.80}, not one Decision for one position")
    decision: Decision = answer[0]
    if decision.move not in policy.game.legal(state):
        known = 0 <= decision.move < len(policy.game.moves)
        move = policy.game.moves[decision.move] if known else f"of id {decision.move}"
        raise RegistryError(f"{_owner(policy)} chose the illegal move {move} in {policy.game.format(state)!r}")
    return decision


def _owner(policy: Policy) -> str:
    return registry.named("policies", policy.kind, policy)
