"""Games, players and settings that the tests of tournaments share."""

from __future__ import annotations

from typing import Any

from genpolicy.registry import load_game
from genpolicy_arena.openings import draw_random
from genpolicy_arena.tournament import TournamentConfig

CHESS = load_game("chess")
TTT = load_game("connect:rows=3,cols=3,k=3,gravity=false")
FOUR = load_game("connect:rows=4,cols=5,k=3,gravity=true")
PLAYERS = {"random": "random", "other": "random?seed=3", "mcts": "mcts:rollout?simulations=12"}


def config(game: Any = FOUR, rounds: int = 6, players: dict[str, str] | None = None, **more: Any) -> TournamentConfig:
    openings = draw_random(game, rounds, 2, 1, reuse=True)
    return TournamentConfig(game.spec, players or PLAYERS, openings, seed=1, **more)
