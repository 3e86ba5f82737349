"""The brute-force vectors and the toy prediction that they were made with."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    """Computed in float64 by explicit matrices and full enumeration, without this code."""
    loaded: dict[str, Any] = json.loads((Path(__file__).parent / "vectors" / "diffusion.json").read_text())
    return loaded


@pytest.fixture(scope="session")
def toy() -> Callable[..., Tensor]:
    """Logits [B, 2, 5] of two tokens, as ``toy_predictor.def`` of the vectors says."""

    def logits(tokens: Tensor, t: object = None) -> Tensor:
        a, b = tokens[:, 0, None, None].double(), tokens[:, 1, None, None].double()
        n, k = torch.arange(2).double()[:, None], torch.arange(5).double()
        return 1.5 * torch.sin(0.7 * (k + 1) * (n + 1) + 0.9 * a + 1.3 * b * (n + 1)) + 0.2 * k

    return logits


@pytest.fixture(scope="session")
def pairs() -> Callable[[int], Tensor]:
    """All pairs [S*S, 2] of S states."""
    return lambda num: torch.tensor(list(itertools.product(range(num), repeat=2)))
