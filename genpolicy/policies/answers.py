"""A policy's answers, seen to be what callers can use, whoever wrote the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genpolicy import registry
from genpolicy.errors import RegistryError
from genpolicy.game import Game
from genpolicy.policies.decision import Decision

if TYPE_CHECKING:
    from genpolicy.policies.base import Policy

TOLERANCE = 1e-3
"""How far rounding may take probabilities, their sum and values."""


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
        if decision.move not in game.legal(state):
            raise RegistryError(
                f"{_owner(policy)} chose the illegal move {_text(game, decision.move)} in {game.format(state)!r}"
            )


def require_possible(policy: Policy, states: Sequence[Any], decisions: Sequence[Decision]) -> None:
    """See that each decision's move is legal, its probabilities are some of legal moves, and its value is one.

    Raises:
        RegistryError: one is not; the message names the policy's package and the position.
    """
    require_legal(policy, states, decisions)
    for state, decision in zip(states, decisions, strict=True):
        wrong = _impossible(policy.game, state, decision)
        if wrong is not None:
            raise RegistryError(f"{_owner(policy)} gave {wrong}")


def _impossible(game: Game[Any], state: Any, decision: Decision) -> str | None:
    """What is wrong with a decision's numbers; None where nothing is. Comparisons are such that NaN fails them."""
    place = f"in {game.format(state)!r}"
    if decision.value is not None and not abs(decision.value) <= 1 + TOLERANCE:
        return f"the value {decision.value} {place}; a value lies in [-1, 1], for the player to move"
    if not decision.policy:
        return None
    legal = set(game.legal(state).tolist())
    for move, share in decision.policy.items():
        if move not in legal:
            return f"a probability of the illegal move {_text(game, move)} {place}"
        if not -TOLERANCE <= share <= 1 + TOLERANCE:
            return f"the probability {share} of {_text(game, move)} {place}; a probability lies in [0, 1]"
    total = sum(decision.policy.values())
    is_one = abs(total - 1) <= TOLERANCE
    return None if is_one else f"probabilities that sum to {total:.6g} {place}; they must sum to 1"


def _text(game: Game[Any], move: int) -> str:
    return str(game.moves[move]) if 0 <= move < len(game.moves) else f"of id {move}"


def _owner(policy: Policy) -> str:
    return registry.named("policies", policy.kind, policy)
