"""configs/chess/bt4.yaml is the published network by size: counted by hand from BT4's layers as they are here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from genpolicy import load_game, registry
from genpolicy.config import compose, structured
from genpolicy.training.config import RunConfig

CONFIG = Path(__file__).parents[2] / "configs/chess/bt4.yaml"


def test_it_has_the_published_number_of_weights() -> None:
    """The matrices, row 16 of them by name; norms, vectors and small tables are below half a percent together."""
    n, w, f, heads = 15, 1024, 1536, 32  # blocks, width, feed-forward width, heads
    tokens, squares, pieces, code = 77, 64, 13, 320
    moves, kinds, rank = 1968, 5, 256
    by_hand = {
        "attention": n * 4 * w * w,
        "feed-forward": n * 2 * w * f,
        "smolgen": n * (w * 32 + tokens * 32 * 256 + 256 * 256 * heads) + 256 * tokens**2,
        "code of the board": squares * pieces * squares * code + code * w,
        "feed-forward of the embedding": 2 * w * f,
        "gates": 2 * tokens * w,
        "symbols": (130 + moves + 2) * w,
        "source and target of an input move": 2 * w * w,
        "source, target and action of a predicted move": kinds * 4 * w * rank,
        "win, draw, loss": w * 128 + tokens * 128 * 128,
        "plies left": w * 32 + tokens * 32 * 128,
    }
    config = compose(RunConfig, [CONFIG])
    options = dict(config.learner)
    kind = registry.load("learners", options.pop("kind"))
    with torch.device("meta"):
        learner = kind(load_game("chess"), structured(kind.Config, options, prefix="learner"))
    counted = sum(weight.numel() for weight in learner.network.parameters())
    assert counted == pytest.approx(sum(by_hand.values()), rel=0.01)
    assert counted == pytest.approx(185e6, rel=0.01)  # the published network
