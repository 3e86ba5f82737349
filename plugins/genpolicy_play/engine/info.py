"""The ``info`` and ``bestmove`` lines that report an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from genpolicy.game import Game
from genpolicy.policies.base import Variation
from genpolicy.policies.thinking import Answer
from genpolicy.values import CENTIPAWN_SCALE, value_to_probability
from genpolicy_play.engine.protocol import Dialect

MAX_CENTIPAWNS = 9999
"""Of a decided value where the length of the mate is not known."""


def legal_prefix(game: Game[Any], state: Any, line: Sequence[int]) -> tuple[list[int], list[Any]]:
    """The moves of a line up to the first illegal one, and the position after each of them."""
    moves: list[int] = []
    states: list[Any] = []
    for move in line:
        if move < 0 or move not in game.legal(state):
            break
        state = game.play(state, move)
        moves.append(move)
        states.append(state)
    return moves, states


def info_lines(
    game: Game[Any], dialect: Dialect, state: Any, answer: Answer, elapsed_s: float, *, num_variations: int, wdl: bool
) -> list[str]:
    """The ``info`` lines of an answer, one for each variation."""
    time_ms = round(1e3 * elapsed_s)
    speed = f"nodes {answer.nodes} nps {round(answer.nodes / max(elapsed_s, 1e-3))} time {time_ms}"
    lines = []
    for rank, variation in enumerate(answer.variations[:num_variations], 1):
        moves, states = legal_prefix(game, state, variation.line)
        depth = max(1, len(moves)) if answer.depth is None else max(1, answer.depth)
        score = _score(dialect, variation, mates=_mates_at_once(game, states), wdl=wdl)
        texts = " ".join(game.moves[move] for move in moves)
        lines.append(f"info depth {depth} multipv {rank} {score}{speed} pv {texts}")
    return lines


def legality_text(game: Game[Any], state: Any, answer: Answer) -> str | None:
    """How much of the imagined future the rules allow, in one line; None where nothing was imagined."""
    if not answer.imagined:
        return None
    moves, states = legal_prefix(game, state, answer.imagined)
    texts = [game.moves[move] if move >= 0 else "-" for move in answer.imagined]
    # A line that the game ended, and that says so, has no more moves.
    ended = bool(states) and game.outcome(states[-1]) is not None and answer.imagined[len(moves) :][:1] == (-1,)
    num_moves, num_states = (len(moves),) * 2 if ended else (len(texts), len(answer.states))
    text = f"imagined {' '.join(texts)}: {len(moves)} of {num_moves} moves legal"
    if answer.states:
        num_right = sum(
            imagined == game.format(true)
            for imagined, true in zip(answer.states, states, strict=False)
            if imagined is not None
        )
        text += f", {num_right} of {min(num_states, len(answer.states))} positions as the rules give them"
    return text


def best_move_text(game: Game[Any], state: Any, answer: Answer) -> str:
    """The move to play and, where the line continues legally and the game does not end, the reply to ponder on."""
    moves, states = legal_prefix(game, state, answer.variations[0].line[:2])
    continues = not any(game.outcome(after) is not None for after in states)
    texts = [game.moves[move] for move in (moves if continues else moves[:1])]
    return " ponder ".join(texts)


def _mates_at_once(game: Game[Any], states: Sequence[Any]) -> bool:
    """Whether the first move of a line leaves the other side lost and without a move."""
    return bool(states) and len(game.legal(states[0])) == 0 and game.outcome(states[0]) == -1.0


def _score(dialect: Dialect, variation: Variation, *, mates: bool, wdl: bool) -> str:
    """``score ...`` and a blank; "" where the value is not known."""
    plies = 1 if mates else variation.mate_plies
    value, shares = variation.value, variation.wdl
    if plies is not None:
        # The winner makes the last ply: (plies + 1) / 2 moves of his own, and plies / 2 of one who is mated.
        moves = plies if dialect.mate_in_plies else (plies + 1) // 2 if plies > 0 else -(-plies // 2)
        value, shares, text = (1.0 if plies > 0 else -1.0), None, f"score mate {moves} "
    elif value is not None:
        text = f"score cp {centipawns(value)} "
    else:
        return ""
    if wdl and dialect.wdl:
        # A value alone separates wins from losses and says nothing about draws, so their share is reported as 0.
        win, draw, _ = shares or (value_to_probability(value), 0.0, 0.0)
        wins = round(1000 * win)
        draws = min(round(1000 * draw), 1000 - wins)
        text += f"wdl {wins} {draws} {1000 - wins - draws} "
    return text


def centipawns(value: float) -> int:
    """Centipawns of a value in [-1, 1]: the inverse of ``genpolicy.values.centipawns_to_probability``."""
    probability = value_to_probability(value)
    if not 0.0 < probability < 1.0:
        return MAX_CENTIPAWNS if probability >= 1.0 else -MAX_CENTIPAWNS
    exact = math.log(probability / (1.0 - probability)) / CENTIPAWN_SCALE
    return round(max(-MAX_CENTIPAWNS, min(MAX_CENTIPAWNS, exact)))
