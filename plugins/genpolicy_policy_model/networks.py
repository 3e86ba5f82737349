"""Representation h, dynamics g and predictions f of a learned model (Schrittwieser et al. 2020, arXiv:1911.08265).

Axes: B batch, N tokens of a latent (1 for a vector), W width of a latent, M moves, L tokens of a position.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.biases import make_bias
from genpolicy.networks.cpu import Linear
from genpolicy.networks.embedding import index_buffer
from genpolicy.networks.moves import MoveHead
from genpolicy.networks.transformer import Block, Trunk, draw_deepnorm, draw_weights
from genpolicy.networks.value_heads import WIN_DRAW_LOSS, CategoricalHead, EndHead, Readout
from genpolicy.sequence import Layout
from genpolicy_policy_model.config import ModelConfig, MuZeroConfig
from genpolicy_policy_model.transforms import scaled, unscaled


class JudgingNetwork(nn.Module):
    """A network with heads of value, reward and, where the options ask for it, of the end."""

    config: ModelConfig

    def _make_heads(self, num_tokens: int, width: int) -> None:
        c = self.config
        low, high, bins = c.support
        support = WIN_DRAW_LOSS if c.value == "wdl" else np.linspace(low, high, int(bins)).tolist()
        self.value = CategoricalHead(num_tokens, width, c.readout, support)
        self.reward = CategoricalHead(num_tokens, width, c.readout, support)
        self.end = EndHead(num_tokens, width, c.readout) if c.end_head else None

    def mean(self, head: CategoricalHead, logits: Tensor) -> Tensor:
        """[B] values of a head's logits, in [-1, 1] for labels that lie there."""
        mean = head.mean(logits)
        return unscaled(mean) if self.config.transform else mean

    def targets(self, head: CategoricalHead, values: Tensor) -> Tensor:
        """[B, bins] a head's targets for values [B]; NaN for NaN."""
        return head.targets(scaled(values) if self.config.transform else values)

    def losses(self, head: CategoricalHead, latent: Tensor, values: Tensor) -> Tensor:
        """[B] a head's losses for values [B]; 0 for NaN."""
        return head.losses(head(latent), self.targets(head, values))


class ModelNetwork(JudgingNetwork):
    """All weights of a learned model.

    Args:
        layout: That of ``s-a``: a position and a place for the move.
        config: Shapes and heads.
    """

    config: MuZeroConfig

    def __init__(self, layout: Layout, config: MuZeroConfig) -> None:
        super().__init__()
        self.layout, self.config = layout, config
        shape = config.network
        vector = config.latent == "vector"
        self.trunk = Trunk(layout, shape, layout.num_symbols + 1)
        self.to_vector = Linear(layout.length * shape.width, config.latent_width) if vector else None
        num_tokens, width = self.latent_shape = (1, config.latent_width) if vector else (layout.length, shape.width)
        self.dynamics: VectorDynamics | SquaresDynamics
        if vector:
            self.dynamics = VectorDynamics(len(layout.moves), width, config.dynamics_layers)
        else:
            self.dynamics = SquaresDynamics(layout, config)
        by_squares = not vector and shape.move_rank > 0
        self.by_squares = MoveHead(layout, width, shape.move_rank, False) if by_squares else None
        readout = None if by_squares else Readout(num_tokens, width, config.readout, num_out=len(layout.moves))
        self.by_latent = readout
        self._make_heads(num_tokens, width)
        self._draw(self.trunk, self.by_squares, self.dynamics)

    @torch.no_grad()
    def _draw(self, *modules: nn.Module | None) -> None:
        """Transformers as GPT-2, post-norm blocks as DeepNorm's; the rest stays as torch draws it."""
        shape, std = self.config.network, self.config.network.init_std
        drawn = [each for each in modules if isinstance(each, (Trunk, MoveHead, OnSquares))]
        for module in drawn:
            draw_weights(module, std, None)
        if shape.norm == "post":
            for module in drawn:
                layers = shape.num_layers if isinstance(module, Trunk) else self.config.dynamics_layers
                draw_deepnorm(module, layers, None)
            return
        for block in (part for module in drawn for part in module.modules()):
            if isinstance(block, Block):
                scale = 1.0 / math.sqrt(2 * shape.num_layers)
                block.attention.out.weight.mul_(scale)
                block.mlp.out.weight.mul_(scale)

    def represent(self, states: Tensor) -> Tensor:
        """Latents [B, N, W] of positions [B, L], seen by their player to move."""
        tokens = F.pad(states, (0, self.layout.length - states.shape[1]), value=self.layout.mask)
        features: Tensor = self.trunk(tokens, None)
        if self.to_vector is None:
            return features
        latent: Tensor = self.to_vector(features.flatten(1))
        return F.layer_norm(latent, latent.shape[-1:])[:, None]

    def step(self, latent: Tensor, moves: Tensor) -> Tensor:
        """Latents [B, N, W] after moves [B]."""
        after: Tensor = self.dynamics(latent, moves)
        return after

    def policy(self, latent: Tensor) -> Tensor:
        """[B, M] logits of the moves."""
        if self.by_latent is not None:
            logits: Tensor = self.by_latent(latent)
            return logits
        assert self.by_squares is not None
        rows = torch.arange(len(latent), device=latent.device)
        of_squares: Tensor = self.by_squares(latent, rows, torch.full_like(rows, self.layout.first_action))
        return of_squares.float()


class VectorDynamics(nn.Module):
    """A move's vector added to the latent, then residual layers."""

    def __init__(self, num_moves: int, width: int, num_layers: int) -> None:
        super().__init__()
        self.moves = nn.Embedding(num_moves, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(num_layers))
        self.inner = nn.ModuleList(Linear(width, 2 * width) for _ in range(num_layers))
        self.out = nn.ModuleList(Linear(2 * width, width) for _ in range(num_layers))

    def forward(self, latent: Tensor, moves: Tensor) -> Tensor:
        """[B, 1, W] from latents [B, 1, W] and moves [B]."""
        return self.changed(latent + self.moves(moves)[:, None])

    def changed(self, x: Tensor) -> Tensor:
        """[B, 1, W] from what the latent and the move make together."""
        for norm, inner, out in zip(self.norms, self.inner, self.out, strict=True):
            x = x + out(F.gelu(inner(norm(x))))
        return F.layer_norm(x, x.shape[-1:])


class OnSquares(nn.Module):
    """What changes a latent of squares: marks on some of them, which a subclass sets, then attention."""

    def _attend(self, layout: Layout, config: MuZeroConfig) -> None:
        """Make the blocks, after the weights of the marks."""
        shape = dataclasses.replace(config.network, num_layers=config.dynamics_layers)
        self.bias = make_bias(layout, shape)
        self.blocks = nn.ModuleList([Block(shape, None) for _ in range(shape.num_layers)])
        self.norm = nn.LayerNorm(shape.width)

    def changed(self, x: Tensor) -> Tensor:
        """[B, N, W] from marked latents."""
        static = self.bias.static()
        for i, block in enumerate(self.blocks):
            of_layer = self.bias.of_layer(i, x)
            bias = of_layer if static is None else static[i] if of_layer is None else static[i] + of_layer
            x = block(x, bias, functools.partial(self.bias.attend, i))
        out: Tensor = self.norm(x)
        return out


class SquaresDynamics(OnSquares):
    """A move marked on the places that it leaves and reaches, then attention.

    What stands where the move begins is carried to where it ends. The token of the move stands in for a missing place,
    as the source of a drop.
    """

    def __init__(self, layout: Layout, config: MuZeroConfig) -> None:
        super().__init__()
        moves, width = layout.moves, config.network.width
        self.source, self.target = (
            index_buffer(np.where(of_move >= 0, of_move, layout.first_action))
            for of_move in (moves.source, moves.target)
        )
        self.kind = index_buffer(moves.kind)
        self.marks = nn.Parameter(torch.empty(2, width))
        self.kinds = nn.Embedding(moves.num_kinds, width)
        self.carried = Linear(width, width)
        self._attend(layout, config)

    def forward(self, latent: Tensor, moves: Tensor) -> Tensor:
        """[B, N, W] from latents [B, N, W] and moves [B]."""
        b, n, width = latent.shape
        flat, rows = latent.reshape(b * n, width), n * torch.arange(b, device=latent.device)
        source, target = rows + self.source[moves], rows + self.target[moves]
        marks = self.marks + self.kinds(self.kind[moves])[:, None]
        marks = marks + torch.stack([torch.zeros_like(flat[:b]), self.carried(flat[source])], dim=1)
        at = torch.stack([source, target], dim=1).flatten()
        x = flat.index_add(0, at, marks.flatten(0, 1)).view(b, n, width)
        return self.changed(x)
