"""A policy's answers, seen to be what callers can use, whoever wrote the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genpolicy import registry
from genpolicy.errors import RegistryError
from genpolicy.policies.decision import Decision

if TYPE_CHECKING:
    from genpolicy.policies.base import Policy


def require_decisions(policy: Policy, states: Sequence[Any], answer: Any) -> list[Decision]:
    """The answer, where it is one decision for each position.

    Raises:
        RegistryError: it is something else; the message names the policy's package.
    """
    wanted = (
        "one Decision for one position" if len(states) == 1 else f"one Decision for each of {len(states)} positions"
    )
    if not isinstance(answer, list | tuple) or not all(isinstance(each, Decision) for each in answer):
        raise RegistryError(f"{_owner(policy)} answered {answer!r:.80}, not {wanted}")
    if len(answer) != len(states):
        raise RegistryError(f"{_owner(policy)} answered {len(answer)} decisions, not {wanted}")
    return list(answer)


def require_legal(policy: Policy, states: Sequence[Any], decisions: Sequence[Decision]) -> None:
    """See that the move of each decision is legal.

    Raises:
        RegistryError: one is not; the message names the policy's package and the position.
    """
    game = policy.game
    for state, decision in zip(states, decisions, strict=True):
        move = decision.move
        if move not in game.legal(state):
            named = game.moves[move] if 0 <= move < len(game.moves) else f"of id {move}"
            raise RegistryError(f"{_owner(policy)} chose the illegal move {named} in {game.format(state)!r}")


def _owner(policy: Policy) -> str:
    return registry.named("policies", policy.kind, policy)
