"""What answers a ``go`` without a search: the game is over, or the player to move wins by declaring so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genpolicy.game import Game
from genpolicy_play.engine.dialect import Dialect
from genpolicy_play.engine.protocol import Go


@dataclass(frozen=True)
class Settled:
    """An answer and what is told before it."""

    infos: tuple[str, ...]
    """Whole lines, told at once."""
    reply: str
    """The whole line that waits where answers are held."""


def settle(game: Game[Any], dialect: Dialect, state: Any, go: Go, *, wdl: bool) -> Settled | None:
    """The answer where no search is needed; None where one is.

    Args:
        game: The rules.
        dialect: Its protocol.
        state: A position.
        go: What was asked; with ``searchmoves`` nothing is declared.
        wdl: Whether wins, draws and losses are told, where the protocol has them.
    """
    wdl &= dialect.wdl
    if len(game.legal(state)) == 0:
        lost = game.outcome(state) == -1.0
        score = "mate 0" if lost else "cp 0"
        share = " wdl 0 0 1000" if lost else " wdl 0 1000 0"
        return Settled((_info(score + share * wdl),), f"bestmove {dialect.no_move}")
    if dialect.win is not None and game.declaration(state) == 1.0 and not go.search_moves:
        said = "info string the player to move wins by declaration"
        return Settled((_info("mate 1"), said), f"bestmove {dialect.win}")
    return None


def _info(score: str) -> str:
    return f"info depth 0 score {score} nodes 0 nps 0 time 0"
