"""What a search found, and how ``info`` and ``bestmove`` tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genpolicy.game import Game
from genpolicy.policies.base import Decision, likeliest_first
from genpolicy.values import CENTIPAWN_SCALE, value_to_probability
from genpolicy_play.engine.dialect import Dialect

MAX_CENTIPAWNS = 9999  # a decided value without the length of a mate; mates themselves are told as such


@dataclass(frozen=True)
class Variation:
    """One move and what is expected after it."""

    line: tuple[int, ...]
    """Absolute ids, the move first; nothing makes those after it legal."""
    value: float | None = None
    """In [-1, 1] for the player to move at the root."""
    mate_plies: int | None = None
    """Plies to a mate that is certain, negative where the player to move is mated."""


@dataclass(frozen=True)
class Found:
    """The answer of a search so far."""

    variations: tuple[Variation, ...]
    """The best first; at least one."""
    nodes: int = 0
    """Network calls, or where there is no network the positions looked at."""
    depth: int | None = None
    """Plies looked ahead; None: as far as the line goes."""
    imagined: tuple[int, ...] = ()
    """The imagined moves as they came, whatever is played; -1 for none."""
    states: tuple[str | None, ...] = ()
    """Text of each imagined state, after ``imagined[i]``."""

    @property
    def move(self) -> int:
        """The move to play, absolute id."""
        return self.variations[0].line[0]


def found_of(decision: Decision, nodes: int, multi_pv: int) -> Found:
    """What a decision says; the other variations are the likeliest of its distribution."""
    line = decision.line if decision.line[:1] == (decision.move,) else (decision.move,)
    plies = decision.stats.get("mate_plies")
    sign = -1 if (decision.value or 0.0) < 0 else 1
    first = Variation(line, decision.value, None if not plies else sign * int(plies))
    others = likeliest_first(decision.policy)
    more = [Variation((move,)) for move, chance in others.items() if move != decision.move and chance > 0]
    depth = decision.stats.get("depth")
    return Found(
        (first, *more[: multi_pv - 1]), nodes, None if depth is None else int(depth), decision.line, decision.states
    )


def legal_prefix(game: Game[Any], state: Any, line: Sequence[int]) -> tuple[list[int], list[Any]]:
    """The moves of a line up to the first that cannot be played, and the position after each of them."""
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
    game: Game[Any], dialect: Dialect, state: Any, found: Found, elapsed_s: float, *, multi_pv: int, wdl: bool
) -> list[str]:
    """The ``info`` lines of what was found, one a variation."""
    time_ms = round(1e3 * elapsed_s)
    speed = f"nodes {found.nodes} nps {round(found.nodes / max(elapsed_s, 1e-3))} time {time_ms}"
    lines = []
    for rank, variation in enumerate(found.variations[:multi_pv], 1):
        moves, states = legal_prefix(game, state, variation.line)
        depth = max(1, len(moves)) if found.depth is None else max(1, found.depth)
        score = _score(dialect, variation, mates=_wins_at_once(game, states), wdl=wdl)
        texts = " ".join(game.moves[move] for move in moves)
        lines.append(f"info depth {depth} multipv {rank} {score}{speed} pv {texts}")
    return lines


def legality(game: Game[Any], state: Any, found: Found) -> str | None:
    """One line on what of the imagined future the rules allow; None where nothing was imagined."""
    if not found.imagined:
        return None
    moves, states = legal_prefix(game, state, found.imagined)
    texts = [game.moves[move] if move >= 0 else "-" for move in found.imagined]
    text = f"imagined {' '.join(texts)}: {len(moves)} of {len(texts)} moves legal"
    if found.states:
        right = sum(
            said == game.format(true) for said, true in zip(found.states, states, strict=False) if said is not None
        )
        text += f", {right} of {len(found.states)} positions as the rules give them"
    return text


def best_move(game: Game[Any], state: Any, found: Found) -> str:
    """The move to play and, where the line goes on legally and the game with it, the answer to ponder on."""
    moves, states = legal_prefix(game, state, found.variations[0].line[:2])
    goes_on = not any(game.outcome(after) is not None for after in states)
    texts = [game.moves[move] for move in (moves if goes_on else moves[:1])]
    return " ponder ".join(texts)


def _wins_at_once(game: Game[Any], states: Sequence[Any]) -> bool:
    """Whether the first move of a line leaves the other side without a move and lost."""
    return bool(states) and len(game.legal(states[0])) == 0 and game.outcome(states[0]) == -1.0


def _score(dialect: Dialect, variation: Variation, *, mates: bool, wdl: bool) -> str:
    """``score ...`` and a blank; "" where nothing is known of the value."""
    plies = 1 if mates else variation.mate_plies
    value = variation.value
    if plies is not None:
        # The winner makes the last ply: (plies + 1) / 2 moves of his own, and plies / 2 of one who is mated.
        moves = plies if dialect.mate_in_plies else (plies + 1) // 2 if plies > 0 else -(-plies // 2)
        value, text = (1.0 if plies > 0 else -1.0), f"score mate {moves} "
    elif value is not None:
        text = f"score cp {centipawns(value)} "
    else:
        return ""
    if wdl and dialect.wdl:
        # A value tells wins from losses and knows no draws: the share of draws is not known, and given as none.
        wins = round(1000 * value_to_probability(value))
        text += f"wdl {wins} 0 {1000 - wins} "
    return text


def centipawns(value: float) -> int:
    """Centipawns of a value in [-1, 1]: the inverse of ``genpolicy.values.centipawns_to_probability``."""
    probability = value_to_probability(value)
    if not 0.0 < probability < 1.0:
        return MAX_CENTIPAWNS if probability >= 1.0 else -MAX_CENTIPAWNS
    exact = math.log(probability / (1.0 - probability)) / CENTIPAWN_SCALE
    return round(max(-MAX_CENTIPAWNS, min(MAX_CENTIPAWNS, exact)))
