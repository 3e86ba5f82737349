"""``genpolicy evaluate boards``: whether the board that a policy imagines after a move is the one that the rules give.

Three moves are asked about in each position: the policy's own; a legal move drawn at random, which a network cannot
have learned by heart; and one drawn the more often the less usual what it does to the board is in random play
(``genpolicy.policies.rarity``), such as castling, en passant or a promotion to a bishop. *Position*: what it imagines
stands for a position at all; *board*: every square and hand is right, whether or not the rights and counters beside
them are; *whole state*: move counters, rights and the side to move, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from genpolicy.game import Game
    from genpolicy.policies.base import Decision, Policy
    from genpolicy_common.labelled import LabelledPosition
    from genpolicy_evaluation.accuracy import Share

CHUNK = 256
MEASURES = ("position", "board", "whole")
MOVES = ("own", "random", "rare")


@dataclass(frozen=True)
class Boards:
    """One way of choosing moves, measured."""

    policy: str
    moves: str
    """``own``, ``random`` or ``rare``."""
    shares: dict[str, Share]
    """By measure."""

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        shares = {measure: share.figures() for measure, share in self.shares.items()}
        return {"policy": self.policy, "moves": self.moves, **shares}


def measure_boards(policy: Policy, positions: Sequence[LabelledPosition], *, name: str, seed: int = 0) -> list[Boards]:
    """Measure the boards that a policy imagines one move ahead.

    Args:
        policy: A policy whose decisions have imagined states.
        positions: From ``labelled_positions``, at least one.
        name: For the table.
        seed: Seed of the drawn moves.

    Raises:
        ValueError: a policy that imagines no boards, or whose boards are made by the rules.
    """
    from genpolicy.control import Control
    from genpolicy.policies.base import decide_with
    from genpolicy.policies.rarity import Rarity
    from genpolicy_evaluation.accuracy import Share

    if not policy.imagines:
        raise ValueError(
            f"policy {name!r} searches by the rules, which make its boards: measure one that imagines them, or its "
            "search in the imagination"
        )

    game, draws, rarity = policy.game, np.random.default_rng(seed), np.random.default_rng(seed + 1)
    rare = Rarity(game, game.tokens)
    # Without its mask a policy would imagine what it likes instead of the move that it is given.
    masked = policy if getattr(policy, "legal_mask", True) else policy.with_options(legal_mask=True)
    hits: dict[tuple[str, str], list[float]] = {}
    for start in range(0, len(positions), CHUNK):
        states = [position.state for position in positions[start : start + CHUNK]]
        random = {game.format(state): int(draws.choice(game.legal(state))) for state in states}
        seldom = {
            game.format(state): int(rarity.choice(game.legal(state), p=rare.weights(state, game.legal(state))))
            for state in states
        }
        for moves, decisions in (
            ("own", policy.decide(states)),
            ("random", decide_with(masked, states, Control(restrict=partial(_drawn, game, random)))),
            ("rare", decide_with(masked, states, Control(restrict=partial(_drawn, game, seldom)))),
        ):
            for state, decision in zip(states, decisions, strict=True):
                for measure, hit in _compared(policy, name, state, decision).items():
                    hits.setdefault((moves, measure), []).append(float(hit))
    clusters = [position.cluster for position in positions]
    return [
        Boards(name, moves, {each: Share.of(np.array(hits[moves, each]), clusters) for each in MEASURES})
        for moves in MOVES
    ]


def _drawn(game: Game[Any], drawn: dict[str, int], state: Any) -> list[int]:
    return [drawn[game.format(state)]]


def _compared(policy: Policy, name: str, state: Any, decision: Decision) -> dict[str, bool]:
    """By measure, whether the first imagined board is right for the first move of the line."""
    game, text = policy.game, next(iter(decision.states), None)
    if not decision.states or not decision.line:
        raise ValueError(
            f"policy {name!r} imagines no board after a move: use one with states, such as S-ASA; sampler=one_call "
            "decides a move alone, add ?sampler=by_ply or easy_first"
        )
    if decision.line[0] not in game.legal(state):  # by a policy without a mask
        return dict.fromkeys(MEASURES, False)
    after, tokens = game.play(state, decision.line[0]), game.tokens
    learner: Any = policy.learner  # None where the policy only chose whose decision it is, as a mixture does
    # Tokens may be right on every square and yet stand for no position, as by a right too many.
    if decision.state_tokens and learner is not None:
        tokens = learner.layout.tokenizer
        right = tokens.encode([after], learner.viewers([state]))[0] == np.array(decision.state_tokens[0])
    elif text is None:
        return dict.fromkeys(MEASURES, False)
    else:
        both = tokens.encode([after, game.parse(text)], np.zeros(2, np.int64))
        right = both[0] == both[1]
    is_board = (np.asarray(tokens.rows) >= 0) | (np.asarray(tokens.hands) >= 0)
    board = right[is_board] if is_board.any() else right  # a tokenizer need not say which tokens are squares
    return {"position": text is not None, "board": bool(board.all()), "whole": bool(right.all())}


def add_boards_parser(measures: Any) -> None:
    """Add ``boards`` to ``genpolicy evaluate``."""
    from genpolicy_evaluation.commands import add_data_arguments

    parser = measures.add_parser("boards", help="how often the board imagined after a move is right")
    add_data_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure imagined boards and show the table."""
    from genpolicy_common.tables import Report, positions_text, publish
    from genpolicy_evaluation.commands import facts, opened, source
    from genpolicy_evaluation.players import opened_players

    dataset, game, positions = opened(arguments)
    rows: list[Boards] = []
    with opened_players(game, arguments) as players:
        for player in players:
            rows += measure_boards(player.policy, positions, name=player.name, seed=arguments.seed)
    report = Report(
        f"Imagined boards on {source(arguments)}", ["policy", "after", "position %", "board %", "whole state %"]
    )
    for row in rows:
        report.add(row.policy, f"{row.moves} move", *(str(row.shares[measure]) for measure in MEASURES))
    report.notes = [f"{positions_text(len(positions), len({p.cluster for p in positions}))}."]
    figures = {"data": facts(arguments, dataset, positions), "policies": [row.figures() for row in rows]}
    publish([report], figures, arguments)
    return 0
