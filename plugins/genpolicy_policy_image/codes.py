"""Images of moves: what is noised, and how a cell is read off an image.

A code is a linear map from probabilities over cells to images, ``image = probabilities @ codebook`` but for a constant,
so the mean image of a distribution is the image of its probabilities.

Axes: B batch, K cells (planes * rows * columns), C planes of an image, H rows, W columns.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SMOOTHING = 0.01
"""Probability that ``logits`` spreads over the other cells."""
_FLOOR = 1e-6


class Code:
    """One of the images of ``ImageConfig.target``.

    Args:
        target: ``probabilities``, ``scaled``, ``bits`` or ``logits``.
        shape: Planes, rows and columns of the cells.
        scale: Scale of ``scaled`` and ``bits``.
    """

    def __init__(self, target: str, shape: tuple[int, int, int], scale: float) -> None:
        self.target, self.shape = target, shape
        self.num_cells = math.prod(shape)
        self.scale = scale
        if target == "logits":
            # log p of the label minus log p of another cell.
            self.scale = math.log((1 - SMOOTHING) * (self.num_cells - 1) / SMOOTHING)
        self.num_bits = max(1, (self.num_cells - 1).bit_length())

    @property
    def num_planes(self) -> int:
        """Planes C of an image."""
        return self.num_bits if self.target == "bits" else self.shape[0]

    def bits(self, device: torch.device | str = "cpu") -> Tensor:
        """[K, bits] plus and minus 1, the lowest bit first."""
        cells = torch.arange(self.num_cells, device=device)[:, None]
        return ((cells >> torch.arange(self.num_bits, device=device)) & 1).float() * 2 - 1

    def image(self, cells: Tensor) -> Tensor:
        """[B, C, H, W] images of cells [B]."""
        if self.target == "bits":
            return self._spread(self.bits(cells.device)[cells])
        one_hot = torch.zeros(len(cells), self.num_cells, device=cells.device)
        one_hot[torch.arange(len(cells), device=cells.device), cells] = 1
        return self.mean(one_hot)

    def mean(self, probabilities: Tensor) -> Tensor:
        """[B, C, H, W] mean image of distributions over cells [B, K]."""
        if self.target == "bits":
            return self._spread(probabilities @ self.bits(probabilities.device).to(probabilities.dtype))
        shift = 1 / self.num_cells if self.target == "logits" else 0.0
        return (self.scale * (probabilities - shift)).reshape(-1, *self.shape)

    def _spread(self, bits: Tensor) -> Tensor:
        return (self.scale * bits)[:, :, None, None].expand(-1, -1, *self.shape[1:]).contiguous()

    def scores(self, images: Tensor) -> Tensor:
        """[B, K] how near images [B, C, H, W] are to each cell's own: the higher, the nearer."""
        if self.target == "bits":
            return images.mean((2, 3)) @ self.bits(images.device).to(images.dtype).T
        return images.flatten(1)

    def log_probabilities(self, images: Tensor) -> Tensor:
        """[B, K] float64: estimated mean images read as distributions over cells.

        An estimate by squared error can be any image; what is below zero counts as (nearly) nothing.
        """
        images = images.double()
        if self.target == "logits":
            return images.flatten(1).log_softmax(-1)
        if self.target == "bits":
            up = ((images.mean((2, 3)) / self.scale + 1) / 2).clamp(_FLOOR, 1 - _FLOOR)
            is_up = (self.bits(images.device).double() + 1) / 2
            return (up.log() @ is_up.T + (1 - up).log() @ (1 - is_up).T).log_softmax(-1)
        return (images.flatten(1) / self.scale).clamp(min=_FLOOR).log().log_softmax(-1)
