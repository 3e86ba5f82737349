"""A residual network that reads the position and a UNet of diffusers that restores the image of a move.

Axes: B batch, C planes, F features, H rows, W columns, K cells.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from genpolicy.errors import ConfigError
from genpolicy_policy_image.config import ImageConfig


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside the identity, normalised before each (He et al. 2016)."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(groups, width) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]."""
        y = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            y = convolution(functional.silu(norm(y)))
        return x + y


class Backbone(nn.Module):
    """Reads a position's planes: [B, C, H, W] -> [B, F, H, W] normalised features.

    Groups are normalised, not batches, so a row does not depend on the others.
    """

    def __init__(self, num_planes: int, width: int, num_blocks: int, groups: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(num_planes, width, 3, padding=1)
        self.blocks = nn.Sequential(*(ResidualBlock(width, groups) for _ in range(num_blocks)))
        self.norm = nn.GroupNorm(groups, width)

    def forward(self, planes: Tensor) -> Tensor:
        """Features of positions."""
        features: Tensor = self.norm(self.blocks(self.stem(planes)))
        return features


class ImageNetwork(nn.Module):
    """Backbone and denoiser.

    Args:
        config: Their shape.
        num_inputs: Planes C of a position.
        image_planes: Planes of a noised image.
        shape: Planes, rows and columns of the grid of moves.

    Raises:
        ConfigError: diffusers cannot build such a UNet.
    """

    def __init__(self, config: ImageConfig, num_inputs: int, image_planes: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        assert config.backbone_width is not None
        assert config.backbone_blocks is not None
        assert config.norm_groups is not None
        self.config, self.shape = config, shape
        self.image_planes = image_planes
        width = config.backbone_width
        self.backbone = Backbone(num_inputs, width, config.backbone_blocks, config.norm_groups)
        self.own_head = nn.Conv2d(width, shape[0], 1) if config.frozen_backbone else None
        """Trains a backbone that the denoiser does not."""
        outputs = image_planes if config.prediction == "eps" else shape[0]
        inputs = image_planes + (width if config.condition == "planes" else 0)
        try:
            self.unet = make_unet(config, inputs, outputs, shape[1:], width)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"diffusers cannot build this UNet: {error}; see learner.channels and extra") from error

    def features(self, planes: Tensor) -> Tensor:
        """[B, F, H, W] what is read of positions [B, C, H, W]."""
        features: Tensor = self.backbone(planes)
        return features

    def own_logits(self, features: Tensor) -> Tensor:
        """[B, K] what the backbone's own head says (``frozen_backbone`` only)."""
        assert self.own_head is not None
        logits: Tensor = self.own_head(features)
        return logits.flatten(1)

    def forward(self, images: Tensor, timesteps: Tensor, features: Tensor) -> Tensor:
        """What the UNet says of noised images.

        Args:
            images: [B, image planes, H, W].
            timesteps: [B], 0 is nearly clean.
            features: [B, F, H, W] from ``features``.

        Returns:
            [B, image planes, H, W] the noise, where that is predicted; else [B, planes, H, W] logits of the cells.
        """
        told = self.config.condition
        if self.config.frozen_backbone:
            features = features.detach()
        if told == "planes":
            images = torch.cat([images, features], dim=1)
        if self.config.unet == "unet2d":
            return _padded(self.unet, images, timesteps, 2 ** (len(self.config.channels or []) - 1))
        if told == "token":
            states = features.flatten(1)[:, None]
        elif told == "tokens":
            states = features.flatten(2).transpose(1, 2)
        else:
            states = features.new_zeros(len(images), 1, self.config.cross_attention_dim or 1)
        out: Tensor = self.unet(images, timesteps, encoder_hidden_states=states).sample
        return out


def _padded(unet: nn.Module, images: Tensor, timesteps: Tensor, multiple: int) -> Tensor:
    """UNet2DModel halves sizes that it cannot double again: pad to a multiple and cut."""
    rows, columns = images.shape[-2:]
    images = functional.pad(images, (0, -columns % multiple, 0, -rows % multiple))
    out: Tensor = unet(images, timesteps).sample
    return out[..., :rows, :columns]


def make_unet(config: ImageConfig, inputs: int, outputs: int, size: tuple[int, int], features: int) -> nn.Module:
    """diffusers' UNet, drawn anew.

    Args:
        config: Its kind and its shape.
        inputs: Planes that it reads.
        outputs: Planes that it writes.
        size: Rows and columns.
        features: Features of a square, for the tokens of the position.
    """
    from diffusers import UNet2DConditionModel, UNet2DModel

    channels = tuple(config.channels or ())
    common: dict[str, Any] = {
        "sample_size": size[0] if size[0] == size[1] else size,
        "in_channels": inputs,
        "out_channels": outputs,
        "block_out_channels": channels,
        "layers_per_block": config.layers_per_block,
        "norm_num_groups": config.norm_groups,
        "attention_head_dim": config.attention_head_dim,
    }
    levels = len(channels)
    if config.unet == "unet2d":
        plain: nn.Module = UNet2DModel(
            **common,
            down_block_types=("DownBlock2D",) * levels,
            up_block_types=("UpBlock2D",) * levels,
            **config.extra,
        )
        return plain
    told = {"token": features * size[0] * size[1], "tokens": features, "planes": None}[str(config.condition)]
    crossed = max(levels - 1, 1)  # the lowest resolution has no cross-attention, as in diffusers' own default
    rest = levels - crossed
    common["cross_attention_dim"] = config.cross_attention_dim
    crossing: nn.Module = UNet2DConditionModel(
        **common,
        encoder_hid_dim=told,
        down_block_types=("CrossAttnDownBlock2D",) * crossed + ("DownBlock2D",) * rest,
        up_block_types=("UpBlock2D",) * rest + ("CrossAttnUpBlock2D",) * crossed,
        **config.extra,
    )
    return crossing
