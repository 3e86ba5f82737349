"""A decision that applications can play, whoever wrote the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genpolicy import registry
from genpolicy.control import FREE, Control
from genpolicy.errors import RegistryError
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy, decide_with
from genpolicy.policies.decision import require_legal

TOLERANCE = 1e-3
"""How far rounding may take probabilities, their sum and values."""


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
    require_legal(policy, states, decisions)
    for state, decision in zip(states, decisions, strict=True):
        if (wrong := _impossible(policy.game, state, decision)) is not None:
            raise RegistryError(f"{registry.named('policies', policy.kind, policy)} gave {wrong}")
    return decisions


def _impossible(game: Game[Any], state: Any, decision: Decision) -> str | None:
    """What is wrong with a decision's numbers; None where nothing is. Comparisons are such that NaN fails them."""
    place = f"in {game.format(state)!r}"
    if decision.value is not None and not abs(decision.value) <= 1 + TOLERANCE:
        return f"the value {decision.value} {place}; a value lies in [-1, 1], for the player to move"
    if not decision.policy:
        return None
    legal = set(game.legal(state).tolist())
    for move, share in decision.policy.items():
        named = game.moves[move] if 0 <= move < len(game.moves) else f"of id {move}"
        if move not in legal:
            return f"a probability of the illegal move {named} {place}"
        if not -TOLERANCE <= share <= 1 + TOLERANCE:
            return f"the probability {share} of {named} {place}; a probability lies in [0, 1]"
    total = sum(decision.policy.values())
    is_one = abs(total - 1) <= TOLERANCE
    return None if is_one else f"probabilities that sum to {total:.6g} {place}; they must sum to 1"
