"""What is given, encoded once for all network calls of a decision.

Where what is given does not attend to what is imagined (``NetworkConfig.attention``), its features are the same in
every call about the same position, whatever the sampler has decided and whichever candidate is tried. Its keys and
values of every layer are kept, and a call computes the imagined tokens alone.

Axes: B batch, G given tokens, N tokens, W width, H heads, D features of a head.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.sequence import Layout


def attention_levels(layout: Layout, attention: str) -> NDArray[np.int64]:
    """[N] a token attends to the tokens of its own level and of lower ones; what is given has level 0."""
    if attention == "full":
        return np.zeros(layout.length, np.int64)
    return layout.blocks + 1 if attention == "block_causal" else (~layout.given).astype(np.int64)


def hiding_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Minus infinity where ``visible`` is false, zero elsewhere."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, float("-inf"))


@dataclass
class Encoded:
    """The given tokens of some positions, as a trunk has encoded them."""

    inputs: list[Tensor] = field(default_factory=list)
    """[B, G, W] what enters each layer."""
    qkv: list[Tensor] = field(default_factory=list)
    """[B, G, 3, H, D] queries, keys and values of each layer."""
    features: Tensor = field(default_factory=lambda: torch.empty(0))
    """[B, G, W]."""

    def repeated(self, copies: int) -> Encoded:
        """The same for every row ``copies`` times over."""
        if copies == 1:
            return self
        inputs, qkv = ([x.repeat_interleave(copies, 0) for x in each] for each in (self.inputs, self.qkv))
        return Encoded(inputs, qkv, self.features.repeat_interleave(copies, 0))
