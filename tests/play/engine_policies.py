"""Small policies with networks, their weights as they were drawn: enough to be served."""

from __future__ import annotations

from pathlib import Path

import torch

from genpolicy import load_game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner


def save_diffusion(folder: Path, game: str, num_steps: int = 8) -> Path:
    """A diffusion policy that imagines two plies in so many steps."""
    torch.manual_seed(0)
    config = DiffusionConfig(
        horizon=2,
        process={"kind": "absorbing", "num_timesteps": num_steps},
        network=NetworkConfig(geometry="board", num_layers=2, width=32, num_heads=2, head="typed", move_rank=16),
    )
    return DiffusionLearner(load_game(game), config).policy().save_pretrained(folder)
