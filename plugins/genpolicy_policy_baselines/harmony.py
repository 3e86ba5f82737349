"""Balance of several losses by learned scales (Ma et al. 2024, HarmonyDream, arXiv:2310.00344).

Each loss L gets a scale e^s and a price for a large one: L e^-s + log(1 + e^s). At the minimum over s, for a loss that
stays at L, e^s = (L + sqrt(L^2 + 4 L)) / 2 (the derivative -L e^-s + 1 / (1 + e^-s) vanishes): a large loss weighs
about 1 / L, so that it cannot drown the others, and the weight of a small one is bounded by that price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


class Harmony(nn.Module):
    """The balanced sum of some losses. It holds their scales, which are trained with the network.

    Args:
        names: The losses, each at least 0. Every scale begins at e^s = 1.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.log_scales = nn.Parameter(torch.zeros(len(self.names)))
        """s of each loss, in the order of the names."""

    def forward(self, losses: Mapping[str, Tensor]) -> Tensor:
        """The sum of L e^-s + log(1 + e^s); ``losses`` has a scalar for each name."""
        each = torch.stack([losses[name] for name in self.names])
        return (each * (-self.log_scales).exp() + nn.functional.softplus(self.log_scales)).sum()

    def weights(self) -> dict[str, Tensor]:
        """The weight e^-s of each loss, for reports; no gradient passes."""
        return dict(zip(self.names, (-self.log_scales.detach()).exp(), strict=True))
