"""The transformer trunk, and the denoiser with a head on it: noised tokens in, logits of the clean tokens out.

Pre-norm blocks with GELU, with biases and dropout where GPT-2 has them (Radford et al. 2019), and full attention; other
activations and post-norm by ``NetworkConfig``.
``genpolicy.networks.cpu`` has faster forms of torch's attention, linear layer and dropout for CPUs.

Axes: B batch, N tokens, W width, H heads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.diffusion.logits import TypedLogits
from genpolicy.errors import ConfigError
from genpolicy.networks.biases import make_bias
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.cpu import Dropout, Linear, attend
from genpolicy.networks.embedding import BoardEmbedding, SequenceEmbedding, index_buffer
from genpolicy.networks.heads import TypedHead, UnifiedHead
from genpolicy.networks.shown_moves import ShownMoves
from genpolicy.networks.whole_board import BoardCode, Gates
from genpolicy.sequence import Layout

TIME_FEATURES = 64
Attend = Callable[[Tensor, Tensor | None, float], Tensor]
"""``attend`` or what an attention bias puts in its place."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "mish": F.mish,
    "relu2": lambda x: F.relu(x).square(),
}


class Rotary(nn.Module):
    """Rotates queries and keys by their positions (Su et al. 2021, arXiv:2104.09864, base 10000).

    Args:
        positions: [N] of each token: its place in the sequence, or its ply.
        head_width: D, even.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, positions: Tensor, head_width: int) -> None:
        super().__init__()
        half = head_width // 2
        frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = positions.to(torch.float64)[:, None] * frequencies
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, ..., H, D] in, the same shape out; features i and i + D/2 form a pair."""
        first, second = x.chunk(2, dim=-1)
        shape = (x.shape[1],) + (1,) * (x.ndim - 3) + (-1,)
        cos, sin = (table[: x.shape[1]].to(x.dtype).view(shape) for table in (self.cos, self.sin))
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class SelfAttention(nn.Module):
    """Multi-head self-attention with GPT-2's projections and biases.

    ``attend`` is ``F.scaled_dot_product_attention`` with a bias on its scores, or a faster form of it.
    """

    def __init__(self, width: int, num_heads: int, dropout: float, rotary: Rotary | None) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.rotary = rotary

    def forward(self, x: Tensor, bias: Tensor | None, attend: Attend = attend) -> Tensor:
        """[B, N, W] in and out; ``bias`` [H, N, N], [B, H, N, N] or None."""
        b, n, w = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.num_heads, -1)  # einops would add 1 % to a small network's call
        if self.rotary is not None:
            qkv = torch.cat([self.rotary(qkv[:, :, :2]), qkv[:, :, 2:]], dim=2)
        mixed = attend(qkv, bias, self.dropout if self.training else 0.0)
        out: Tensor = self.out(mixed.reshape(b, n, w))
        return out


class FeedForward(nn.Module):
    """Two projections with an activation between them.

    The GELU is exact: GPT-2's tanh form differs from it by less than 5e-4 and takes torch four times as long on a CPU.
    """

    def __init__(self, width: int, inner: int, activation: str = "gelu") -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.inner = Linear(width, inner)
        self.out = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, W] in and out."""
        out: Tensor = self.out(self.activation(self.inner(x)))
        return out


class Residual(nn.Module):
    """Adds a part f to what it reads.

    Pre-norm: x + f(norm(x)). Post-norm: norm(x + a f(x)) with a = (2 num_layers)^-1/4, which is DeepNorm's
    norm(x / a + f(x)) for an encoder (Wang et al. 2022, arXiv:2203.00555); the norms divide by the root of the variance
    plus 1e-3, as BT4's do.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.width, self.is_post = config.width, config.norm == "post"
        self.scale = (2 * config.num_layers) ** -0.25
        self.dropout = Dropout(config.dropout)

    def make_norm(self) -> nn.LayerNorm:
        """A norm of this network."""
        return nn.LayerNorm(self.width, eps=1e-3) if self.is_post else nn.LayerNorm(self.width)

    def forward(self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        """[B, N, W] in and out."""
        if self.is_post:
            out: Tensor = norm(x + self.scale * self.dropout(part(x)))
            return out
        out = x + self.dropout(part(norm(x)))
        return out


class Block(nn.Module):
    """Attention, then feed-forward, each added to what it reads; see ``Residual``."""

    def __init__(self, config: NetworkConfig, rotary: Rotary | None) -> None:
        super().__init__()
        self.residual = Residual(config)
        self.norm_attention = self.residual.make_norm()
        self.attention = SelfAttention(config.width, config.num_heads, config.dropout, rotary)
        self.norm_mlp = self.residual.make_norm()
        self.mlp = FeedForward(config.width, config.mlp_width, config.activation)

    def forward(self, x: Tensor, bias: Tensor | None, attend: Attend = attend) -> Tensor:
        """[B, N, W] in and out; ``bias`` [H, N, N], [B, H, N, N] or None."""
        x = self.residual(x, self.norm_attention, lambda y: self.attention(y, bias, attend))
        out: Tensor = self.residual(x, self.norm_mlp, self.mlp)
        return out


class TimeEmbedding(nn.Module):
    """A vector for each timestep, which is added to every token: sines of t through two projections."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = Linear(TIME_FEATURES, width)
        self.out = Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        """[B, 1, W] from times [B]."""
        half = TIME_FEATURES // 2
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, device=t.device) / half)
        angles = t[:, None].to(frequencies.dtype) * frequencies
        features = torch.cat([angles.cos(), angles.sin()], dim=-1).to(self.inner.weight.dtype)
        out: Tensor = self.out(F.gelu(self.inner(features)))
        return out[:, None]


class Trunk(nn.Module):
    """Embedding, blocks and final norm: ids [B, N] to features [B, N, W]."""

    def __init__(self, layout: Layout, config: NetworkConfig, num_input_symbols: int, *, causal: bool = False) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.embedding: SequenceEmbedding | BoardEmbedding
        learned = config.positions == "learned"
        if config.geometry == "board":
            positions = index_buffer(layout.plies)
            self.embedding = BoardEmbedding(layout, num_input_symbols, config.width, learned)
        else:
            positions = torch.arange(layout.length)
            self.embedding = SequenceEmbedding(layout, num_input_symbols, config.width, learned)
        shows = config.shows_moves and ShownMoves.applies(layout)
        self.shown = ShownMoves(layout, config.width, num_input_symbols, causal=causal) if shows else None
        self.bias = make_bias(layout, config)
        rotary = None if learned else Rotary(positions, config.width // config.num_heads)
        self.time = TimeEmbedding(config.width) if config.time_conditioning else None
        self.dropout = Dropout(config.dropout)
        self.code = self.embedding_mlp = self.embedding_norm = None
        self.residual = Residual(config)
        if config.board_code:
            self.code = BoardCode(layout, config.width, config.board_code, ACTIVATIONS[config.activation])
            self.embedding_mlp = FeedForward(config.width, config.mlp_width, config.activation)
            self.embedding_norm = self.residual.make_norm()
        self.gates = Gates(layout, config.width) if config.gates else None
        self.blocks = nn.ModuleList([Block(config, rotary) for _ in range(config.num_layers)])
        self.norm = self.residual.make_norm()  # post-norm blocks end with one; theirs follows the embedding

    def forward(
        self, tokens: Tensor, t: Tensor | None, visible: Tensor | None = None, added: Tensor | None = None
    ) -> Tensor:
        """Features [B, n, W] of ids [B, n] at times [B], where n is N or where an earlier slot of the layout ends.

        Args:
            tokens: Ids of the first n tokens; those after them are then not there.
            t: Times; needed only with time conditioning.
            visible: [N, N] bool, the tokens (columns) that each token (row) attends to; None for all.
            added: [B, N, W] features added to the embedding; None for none.

        Raises:
            ConfigError: the network is conditioned on time and got none.
        """
        x = self.embedding(tokens)
        if self.shown is not None:
            x = self.shown(x, tokens)
        if added is not None:
            x = x + added
        if self.time is not None:
            if t is None:
                raise ConfigError("this network has time_conditioning: true, so it needs the timesteps t")
            x = x + self.time(t)
        x = self._prepared(x, tokens)
        static, n = self.bias.static(), tokens.shape[1]
        if static is not None and n < static.shape[-1]:
            static = static[:, :, :n, :n].contiguous()
        hidden = None if visible is None else self._hidden_bias(visible, x.dtype)
        for i, block in enumerate(self.blocks):
            bias = _total(None if static is None else static[i], self.bias.of_layer(i, x), hidden)
            x = block(x, bias, functools.partial(self.bias.attend, i))
        out: Tensor = x if self.residual.is_post else self.norm(x)
        return out

    def _prepared(self, x: Tensor, tokens: Tensor) -> Tensor:
        """[B, n, W] what enters the blocks, of embeddings of this shape."""
        if self.code is not None:
            x = self.code(x, tokens)
        x = self.dropout(x)
        if self.residual.is_post:
            x = self.norm(x)
        if self.gates is not None:
            x = self.gates(x)
        if self.embedding_mlp is not None and self.embedding_norm is not None:
            x = self.residual(x, self.embedding_norm, self.embedding_mlp)
        return x

    def _hidden_bias(self, visible: Tensor, dtype: torch.dtype) -> Tensor:
        """[H, N, N] minus infinity where a token must not look, zero elsewhere."""
        hidden = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        hidden = hidden.masked_fill(~visible, float("-inf"))
        return hidden.expand(self.num_heads, *visible.shape)


class DenoisingTransformer(nn.Module):
    """Predicts the clean tokens of noised ones; a ``Denoiser``.

    Args:
        layout: The tokens of a sequence.
        config: The network's shape.
        num_input_symbols: Symbols that the input may hold; the layout's and the mask if None.
        causal: Whether a token's features predict the next token (``ShownMoves``).
        generator: Draws the initial weights; torch's default generator if None.
    """

    actions_only: ClassVar[bool] = False
    """Whether a typed head predicts the actions alone."""

    def __init__(
        self,
        layout: Layout,
        config: NetworkConfig,
        num_input_symbols: int | None = None,
        *,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.num_tokens, self.num_symbols = layout.length, layout.num_symbols
        self.num_input_symbols = layout.num_symbols + 1 if num_input_symbols is None else num_input_symbols
        if self.num_input_symbols < layout.num_symbols:
            raise ConfigError(
                f"num_input_symbols must be at least the layout's {layout.num_symbols}, got {num_input_symbols}"
            )
        self.trunk = Trunk(layout, config, self.num_input_symbols, causal=causal)
        embedding = self.trunk.embedding.symbol if config.tied else None
        self.head: UnifiedHead | TypedHead
        if config.head == "unified":
            self.head = UnifiedHead(layout, config.width, embedding)
        else:
            rank = config.move_rank if config.geometry == "board" else 0
            self.head = TypedHead(layout, config.width, embedding, rank or None, actions_only=self.actions_only)
        self.initialise(generator)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew, as GPT-2: see ``draw_weights``; projections into the residual stream are smaller.

        Post-norm blocks are drawn as DeepNorm's.
        """
        draw_weights(self, self.config.init_std, generator)
        if self.config.norm == "post":
            draw_deepnorm(self.trunk, self.config.num_layers, generator)
            return
        scale = 1.0 / math.sqrt(2 * self.config.num_layers)
        for block in self.trunk.blocks:
            assert isinstance(block, Block)
            block.attention.out.weight.mul_(scale)
            block.mlp.out.weight.mul_(scale)

    def forward(self, tokens: Tensor, t: Tensor | None = None, visible: Tensor | None = None) -> TypedLogits:
        """Logits of the clean tokens.

        Args:
            tokens: Ids [B, N], int64, below ``num_input_symbols``; or the first n of each row (see ``Trunk``).
            t: Timesteps [B]; needed only with time conditioning.
            visible: [N, N] bool, the tokens (columns) that each token (row) attends to; None for all.
        """
        return self.head(self.trunk(tokens, t, visible))  # type: ignore[no-any-return]

    def token_nll(
        self, tokens: Tensor, t: Tensor | None, targets: Tensor, where: Tensor, visible: Tensor | None = None
    ) -> Tensor:
        """-log p(targets) in nats at the tokens of ``where`` [B, N] (bool), flat in row-major order.

        The head runs on those tokens only. Infinite where a typed head's token cannot hold its target.
        """
        return self.head.nll(self.trunk(tokens, t, visible), targets, where)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the trunk in place (``torch.compile``'s arguments); the heads, which pick tokens, stay uncompiled."""
        self.trunk.compile(*args, **kwargs)


@runtime_checkable
class DrawsOwnWeights(Protocol):
    """A module, such as an attention bias, that draws its own initial weights and those of everything in it."""

    def draw_weights(self, std: float, generator: torch.Generator | None) -> None:
        """Set every weight; called without gradients.

        Args:
            std: ``NetworkConfig.init_std``.
            generator: Source of all draws; torch's default generator if None.
        """
        ...


def draw_weights(module: nn.Module, std: float, generator: torch.Generator | None) -> None:
    """Draw the weights of a module and of those in it: normal matrices, zero biases, norms that change nothing."""
    if isinstance(module, DrawsOwnWeights):
        module.draw_weights(std, generator)
        return
    if isinstance(module, nn.LayerNorm):
        module.reset_parameters()
        return
    for name, parameter in module.named_parameters(recurse=False):
        if name == "bias":
            parameter.zero_()
        else:
            parameter.normal_(0.0, std, generator=generator)
    for child in module.children():
        draw_weights(child, std, generator)


def draw_deepnorm(trunk: nn.Module, num_layers: int, generator: torch.Generator | None) -> None:
    """Draw the matrices of attention and feed-forward parts by Xavier's normal rule, all but queries' and keys' times
    (8 num_layers)^-1/4 (Wang et al. 2022, arXiv:2203.00555, for an encoder)."""
    gain = (8 * num_layers) ** -0.25
    for part in trunk.modules():
        matrices: tuple[tuple[Tensor, float], ...] = ()
        if isinstance(part, SelfAttention):
            query, key, value = part.qkv.weight.chunk(3)
            matrices = ((query, 1.0), (key, 1.0), (value, gain), (part.out.weight, gain))
        elif isinstance(part, FeedForward):
            matrices = ((part.inner.weight, gain), (part.out.weight, gain))
        for matrix, scale in matrices:
            matrix.normal_(0.0, scale * math.sqrt(2 / sum(matrix.shape)), generator=generator)


def _total(*parts: Tensor | None) -> Tensor | None:
    """The sum of what there is; None for nothing."""
    there = [part for part in parts if part is not None]
    return functools.reduce(torch.add, there) if there else None
