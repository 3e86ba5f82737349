"""The transformer trunk, and the denoiser with a head on it: noised tokens in, logits of the clean tokens out.

Pre-norm blocks with GELU, with biases and dropout where GPT-2 has them (Radford et al. 2019), and full attention; other
activations and post-norm by ``NetworkConfig``.
``genpolicy.networks.cpu`` has faster forms of torch's attention, linear layer and dropout for CPUs.

Axes: B batch, N tokens, G given tokens, W width, H heads, D features of a head.
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
from genpolicy.networks.biases import bias_of_layer, make_bias
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.cpu import Dropout, Linear, attend
from genpolicy.networks.embedding import BoardEmbedding, Modulation, SequenceEmbedding, TimeEmbedding, index_buffer
from genpolicy.networks.heads import TypedHead, UnifiedHead
from genpolicy.networks.prefix import Encoded, attention_levels, hiding_bias
from genpolicy.networks.shown_moves import ShownMoves
from genpolicy.networks.whole_board import BoardCode, Gates
from genpolicy.sequence import Layout

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

    def __init__(self, positions: Tensor, head_width: int) -> None:
        super().__init__()
        half = head_width // 2
        frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = positions.to(torch.float64)[:, None] * frequencies
        self.cos = nn.Buffer(angles.cos().float(), persistent=False)
        self.sin = nn.Buffer(angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """[B, N, ..., H, D] of the tokens from ``start`` on, the same shape out; features i and i + D/2 form a pair."""
        first, second = x.chunk(2, dim=-1)
        shape = (x.shape[1],) + (1,) * (x.ndim - 3) + (-1,)
        cos, sin = (table[start : start + x.shape[1]].to(x.dtype).view(shape) for table in (self.cos, self.sin))
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def picked(x: Tensor, wanted: Tensor | None) -> Tensor:
    """[S, 1, W] of x [B, N, W]: the tokens ``wanted`` [S], counted over the whole batch; x itself where it is None."""
    return x if wanted is None else x.flatten(0, 1).index_select(0, wanted)[:, None]


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

    def forward(
        self, x: Tensor, bias: Tensor | None, attend: Attend = attend, start: int = 0, wanted: Tensor | None = None
    ) -> Tensor:
        """[B, N, W] of the tokens from ``start`` on in and out, or out [S, 1, W] of those ``wanted`` [S]; ``bias``
        [H, N, N], [B, H, N, N] or None."""
        b, n, w = x.shape
        # einops would slow a small network's call; of no rows at all torch cannot tell a size that is -1.
        qkv = self.qkv(x).view(b, n, 3, self.num_heads, w // self.num_heads)
        if self.rotary is not None:
            qkv = torch.cat([self.rotary(qkv[:, :, :2], start), qkv[:, :, 2:]], dim=2)
        mixed = attend(qkv, bias, self.dropout if self.training else 0.0)
        out: Tensor = self.out(picked(mixed.reshape(b, n, w), wanted), varies=wanted is not None)
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

    def forward(self, x: Tensor, varies: bool = False) -> Tensor:
        """[B, N, W] in and out; ``varies`` as in ``Linear``."""
        out: Tensor = self.out(self.activation(self.inner(x, varies)), varies)
        return out


class Residual(nn.Module):
    """Adds a part f to what it reads.

    Pre-norm: x + f(norm(x)). Post-norm: norm(x + a f(x)) with a = (2 num_layers)^-1/4, which is DeepNorm's
    norm(x / a + f(x)) for an encoder (Wang et al. 2022, arXiv:2203.00555); the norms divide by the root of the variance
    plus 1e-3, as BT4's do. Modulated: x + gate f((1 + scale) norm(x) + shift).
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.width, self.is_post = config.width, config.norm == "post"
        self.scale = (2 * config.num_layers) ** -0.25
        self.dropout = Dropout(config.dropout)

    def make_norm(self) -> nn.LayerNorm:
        """A norm of this network."""
        return nn.LayerNorm(self.width, eps=1e-3) if self.is_post else nn.LayerNorm(self.width)

    def forward(
        self,
        x: Tensor,
        norm: nn.Module,
        part: Callable[[Tensor], Tensor],
        modulation: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """[B, N, W] in and out, or out [S, 1, W] where the part gives the tokens ``wanted`` [S] alone; ``modulation``
        [B, 1, 3, W] shift, scale and gate."""
        out: Tensor
        own = picked(x, wanted)
        if modulation is not None:
            shift, scale, gate = modulation.unbind(2)
            out = own + picked(gate.expand_as(x), wanted) * self.dropout(part((1 + scale) * norm(x) + shift))
        elif self.is_post:
            out = norm(own + self.scale * self.dropout(part(x)))
        else:
            out = own + self.dropout(part(norm(x)))
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
        self.modulation = Modulation(config.width) if config.time_conditioning == "adaln" else None

    def forward(
        self,
        x: Tensor,
        bias: Tensor | None,
        attend: Attend = attend,
        start: int = 0,
        condition: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """[B, N, W] of the tokens from ``start`` on in and out, or out [S, 1, W] of those ``wanted`` [S]; ``bias``
        [H, N, N], [B, H, N, N] or None; ``condition`` [B, 1, W] where blocks are modulated."""
        first, second = (None, None) if self.modulation is None else self.modulation(condition)
        if second is not None and wanted is not None:
            second = second.index_select(0, wanted // x.shape[1])
        x = self.residual(
            x, self.norm_attention, lambda y: self.attention(y, bias, attend, start, wanted), first, wanted
        )
        mlp = functools.partial(self.mlp, varies=wanted is not None)
        out: Tensor = self.residual(x, self.norm_mlp, mlp, second)
        return out


class Trunk(nn.Module):
    """Embedding, blocks and final norm: ids [B, N] to features [B, N, W]."""

    def __init__(self, layout: Layout, config: NetworkConfig, num_input_symbols: int, *, causal: bool = False) -> None:
        super().__init__()
        self.config = config
        self.num_heads, self.length = config.num_heads, layout.length
        self.embedding: SequenceEmbedding | BoardEmbedding
        learned = config.positions == "learned"
        if config.geometry == "board":
            positions = torch.from_numpy(layout.plies)
            self.embedding = BoardEmbedding(layout, num_input_symbols, config.width, learned, config.features)
        else:
            positions = torch.arange(layout.length)
            self.embedding = SequenceEmbedding(layout, num_input_symbols, config.width, learned)
        levels = attention_levels(layout, config.attention)
        self.num_apart = 0 if config.attention == "full" else int(layout.given.sum())
        """G, or 0 where what is given attends to what is imagined."""
        self.visible = index_buffer(levels[None, :] <= levels[:, None]) if levels.max() > 1 else None
        """[N, N] bool, as ``forward``'s; None where ``num_apart`` says it all."""
        self.shown = None
        if config.shows_moves and ShownMoves.applies(layout):
            said = {"outcome": config.shown_outcome, "counts": config.shown_counts, "pieces": config.shown_pieces}
            told = {key: value is not False for key, value in said.items()}
            self.shown = ShownMoves(layout, config.width, num_input_symbols, causal=causal, levels=levels, **told)
        self.bias = make_bias(layout, config)
        rotary = None if learned else Rotary(positions, config.width // config.num_heads)
        self.time = TimeEmbedding(config.width) if config.time_conditioning else None
        self.pooled = Linear(config.width, config.width) if config.time_conditioning == "adaln" else None
        self.num_given = int(layout.given.sum())
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
        self,
        tokens: Tensor,
        t: Tensor | None,
        visible: Tensor | None = None,
        added: Tensor | None = None,
        encoded: Encoded | None = None,
        kept: Encoded | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Features [B, n, W] of ids [B, n] at times [B], where n is N or where an earlier slot of the layout ends.

        Args:
            tokens: Ids of the first n tokens; those after them are then not there.
            t: Times; needed only with time conditioning.
            visible: [N, N] bool, the tokens (columns) that each token (row) attends to; None for all.
            added: [B, N, W] features added to the embedding; None for none.
            encoded: What ``encode`` made of the given tokens; None computes them, too.
            kept: Takes the inputs and keys of every layer; for ``encode``.
            wanted: [S] tokens, counted over the whole batch, whose features are needed; those of others are 0, and the
                last block skips most of their cost. None for all.

        Raises:
            ConfigError: the network is conditioned on time and got none.
        """
        x = self.embedding(tokens)
        if self.shown is not None:
            x = self.shown(x, tokens)
        if added is not None:
            x = x + added
        (b, n), apart, start, condition = tokens.shape, self.num_apart, 0 if encoded is None else self.num_apart, None
        if self.time is not None and n > apart:
            if t is None:
                raise ConfigError("this network has time_conditioning, so it needs the timesteps t")
            if self.pooled is not None:
                condition = self.time(t) + self.pooled(x[:, : self.num_given].mean(1, keepdim=True))
            else:
                x = x + self.time(t) if apart == 0 else torch.cat([x[:, :apart], x[:, apart:] + self.time(t)], 1)
        x = self.prepared(x, tokens, start)
        static = self.bias.static()
        if static is not None:
            static = static.expand(-1, -1, self.length, self.length)[:, :, start:n, :n]
            static = static.contiguous() if n < self.length else static
        if self.visible is not None:
            visible = self.visible if visible is None else self.visible & visible
        hidden = None if visible is None else hiding_bias(visible[start:n, :n], x.dtype).expand(self.num_heads, -1, -1)
        for i, block in enumerate(self.blocks):
            if kept is not None:
                kept.inputs.append(x)
            own = bias_of_layer(self.bias, i, x if encoded is None else torch.cat([encoded.inputs[i], x], 1))
            own = own if own is None else own[:, :, start:]
            bias = total_bias(None if static is None else static[i], own, hidden)
            last = wanted if i == len(self.blocks) - 1 else None
            x = block(x, bias, functools.partial(self._attend, i, encoded, kept), start, condition, last)
        out: Tensor = x if self.residual.is_post else self.norm(x)
        if wanted is not None:
            everything = out.new_zeros(b * n, out.shape[-1])
            return everything.index_copy(0, wanted, out[:, 0]).view(b, n, -1)
        return out if encoded is None else torch.cat([encoded.features, out], 1)

    def encode(self, tokens: Tensor, copies: int = 1) -> Encoded | None:
        """The given tokens of ids [B, n], for ``copies`` rows each; None where they attend to what is imagined."""
        if not self.num_apart:
            return None
        kept = Encoded()
        kept.features = self.forward(tokens[:, : self.num_apart], None, kept=kept)
        return kept.repeated(copies)

    def _attend(
        self, i: int, encoded: Encoded | None, kept: Encoded | None, qkv: Tensor, bias: Tensor | None, dropout: float
    ) -> Tensor:
        """[B, m, H, D] the attention of layer ``i``; with ``encoded`` of the imagined tokens alone."""
        first = self.num_apart
        if encoded is not None:
            return self.bias.attend_last(i, torch.cat([encoded.qkv[i], qkv], 1), bias, dropout, first)
        if kept is not None:
            kept.qkv.append(qkv)
        if not 0 < first < qkv.shape[1]:
            return self.bias.attend(i, qkv, bias, dropout)
        above, below = (None, None) if bias is None else (bias[..., :first, :first], bias[..., first:, :])
        given = self.bias.attend(i, qkv[:, :first], above, dropout)
        return torch.cat([given, self.bias.attend_last(i, qkv, below, dropout, first)], 1)

    def prepared(self, x: Tensor, tokens: Tensor, start: int = 0) -> Tensor:
        """[B, n - start, W] what enters the blocks, of embeddings [B, n, W]."""
        if self.code is not None:
            x = self.code(x, tokens)
        x = self.dropout(x)
        if self.residual.is_post:
            x = self.norm(x)
        if self.gates is not None:
            x = self.gates(x)
        x = x[:, start:]
        if self.embedding_mlp is not None and self.embedding_norm is not None:
            x = self.residual(x, self.embedding_norm, self.embedding_mlp)
        return x


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
            self.head = TypedHead(layout, config, embedding, self.trunk.shown, actions_only=self.actions_only)
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
        return self.head(self.trunk(tokens, t, visible), tokens)  # type: ignore[no-any-return]

    def encode(self, tokens: Tensor, copies: int = 1) -> Encoded | None:
        """See ``Trunk.encode``; for ``denoise``."""
        return self.trunk.encode(tokens, copies)

    def denoise(
        self, tokens: Tensor, t: Tensor | None, encoded: Encoded | None, visible: Tensor | None = None
    ) -> TypedLogits:
        """The call, computing the imagined tokens alone where the given ones are ``encoded``."""
        if encoded is None:
            return self(tokens, t) if visible is None else self(tokens, t, visible)  # type: ignore[no-any-return]
        return self.head(self.trunk(tokens, t, visible, encoded=encoded), tokens)  # type: ignore[no-any-return]

    def token_nll(
        self,
        tokens: Tensor,
        t: Tensor | None,
        targets: Tensor,
        where: Tensor,
        visible: Tensor | None = None,
        *,
        admitted: Tensor | None = None,
    ) -> Tensor:
        """-log p(targets) in nats at the tokens of ``where`` [B, N] (bool), flat in row-major order.

        The head and the end of the trunk run on those tokens only. Infinite where a typed head's token cannot hold its
        target. A unified head's softmax runs over the whole vocabulary, or over the symbols of ``admitted``
        ([N, K] or [B, N, K]); a typed head's is always within the layout's.
        """
        wanted = None if self.head.reads_other_tokens else where.reshape(-1).nonzero()[:, 0]
        return self.head.nll(self.trunk(tokens, t, visible, wanted=wanted), targets, where, tokens, admitted)

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


def total_bias(*parts: Tensor | None) -> Tensor | None:
    """The sum of what there is; None for nothing."""
    there = [part for part in parts if part is not None]
    return functools.reduce(torch.add, there) if there else None
