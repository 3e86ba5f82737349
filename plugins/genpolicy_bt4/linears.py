"""Initial weights of the biases' linear layers, and which of their weights are matrices."""

from __future__ import annotations

import torch
from torch import nn


def draw_linears(module: nn.Module, generator: torch.Generator | None) -> None:
    """Draw the weights of the linear layers in a module so that features keep their size; norms change nothing.

    The standard deviation is one over the root of the number of inputs. ``NetworkConfig.init_std`` is made for layers
    that add to a residual stream; here one small layer follows the other.
    """
    for child in module.modules():
        if isinstance(child, nn.Linear):
            child.weight.normal_(0.0, child.in_features**-0.5, generator=generator)
            if child.bias is not None:
                child.bias.zero_()
        elif isinstance(child, nn.LayerNorm):
            child.reset_parameters()


def linear_weights(module: nn.Module) -> list[nn.Parameter]:
    """The matrices of the linear layers in a module."""
    linears = [child for child in module.modules() if isinstance(child, nn.Linear)]
    return [weight for linear in linears for name, weight in linear.named_parameters(recurse=False) if name == "weight"]
