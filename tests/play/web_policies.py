"""Policies for the page: networks with their weights as they were drawn, so that a dream has steps to show."""

from __future__ import annotations

from pathlib import Path

import torch

from genpolicy import load_game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner

TTT = "connect:rows=3,cols=3,k=3,gravity=false"
FOUR = "connect:rows=6,cols=7,k=4,gravity=true"
STEPS = {"chess": 8, "shogi": 6, TTT: 6, FOUR: 6}
NAUGHTY = "<img src=x onerror=alert(1)>"
"""A label that a page which parsed it would run."""


def save(folder: Path, game: str, num_steps: int, seed: int = 0) -> Path:
    """A diffusion policy that imagines two plies."""
    torch.manual_seed(seed)
    config = DiffusionConfig(
        horizon=2,
        process={"kind": "absorbing", "num_timesteps": num_steps},
        network=NetworkConfig(geometry="board", num_layers=1, width=32, num_heads=2, head="typed", move_rank=16),
    )
    return DiffusionLearner(load_game(game), config).policy().save_pretrained(folder)


def arguments(folder: Path) -> list[str]:
    """What ``genpolicy web`` is told on its command line."""
    folders = [save(folder / str(i) / "dreamer", game, steps) for i, (game, steps) in enumerate(STEPS.items())]
    folders.append(save(folder / "slow", "chess", 20, seed=1))
    folders.append(save(folder / NAUGHTY, "chess", 4, seed=2))
    policies = [str(each) for each in folders] + ["random", "tic-tac-toe"]
    return [part for policy in policies for part in ("--policy", policy)]
