"""What a picture shows, as plain figures for a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from genpolicy.policies.base import Policy, likeliest_first
from genpolicy.policies.dream import Dream
from genpolicy_play.drawing import Board, Frame


def facts(policy: Policy, dream: Dream, told: list[Frame]) -> dict[str, Any]:
    """The position, the decision and every step."""
    game, decision = policy.game, dream.decision
    return {
        "game": game.spec,
        "policy": policy.label,
        "position": game.format(dream.state),
        "player": game.player(dream.state),
        "move": game.moves[decision.move],
        "value": decision.value,
        "wdl": decision.wdl,
        "probabilities": _named(policy, decision.policy),
        "line": _texts(policy, decision.line),
        "variations": [
            {"line": _texts(policy, each.line), "value": each.value, "positions": list(each.states)}
            for each in decision.variations
        ],
        "stats": dict(decision.stats),
        "steps": [_step(policy, frame) for frame in told] if dream.steps else [],
    }


def _texts(policy: Policy, line: Sequence[int]) -> list[str | None]:
    return [policy.game.moves[move] if move >= 0 else None for move in line]


def _named(policy: Policy, chances: dict[int, float] | None) -> dict[str, float] | None:
    return None if chances is None else {policy.game.moves[m]: p for m, p in likeliest_first(chances).items()}


def _step(policy: Policy, frame: Frame) -> dict[str, Any]:
    return {
        "step": frame.index + 1,
        "of": frame.of,
        "time": frame.time,
        "probabilities": _named(policy, frame.policy),
        "actions": [
            {
                "ply": a.ply,
                "move": a.text or None,
                "probability": a.probability,
                "masked": a.masked,
                "legal": a.legal,
            }
            for a in frame.actions
        ],
        "values": [dataclasses.asdict(value) for value in frame.values],
        "boards": [_board(board) for board in frame.boards],
    }


def _board(board: Board) -> dict[str, Any]:
    return {
        "ply": board.ply,
        "position": board.text,
        "ended": board.ended,
        "unlike_the_rules": board.num_differing,
        "symbols": [cell.symbol for cell in board.cells],
        "probabilities": [round(cell.probability, 6) for cell in board.cells],
        "masked": [cell.place for cell in board.cells if cell.masked],
    }
