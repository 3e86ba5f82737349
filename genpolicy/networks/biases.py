"""Attention biases: what is added to the scores of attention, by layer and head, and if need be by row of the batch.

A bias is found by its name in the entry-point group ``genpolicy.biases`` and chosen by ``NetworkConfig.bias``;
``docs/your-own-sampler.md`` shows how to add one. ``RelativeBias`` is learned from how two tokens lie to each other:

    bias[h, i, j] = space[h, relation(i, j)] + time[h, ply_j - ply_i, whether i and j are the same place]

without the difference of plies where positions are rotary and attention sees it anyway. Two squares relate by
(row_j - row_i, column_j - column_i), every difference with its own entry. Where one of the two tokens is not a square,
they relate by their classes: all squares are one class, every other place of a state (side to move, a hand slot, ...)
is one; actions, values and the codes of each codebook are one each.

Axes: B batch, N tokens, W width, H heads, R relations of places.
"""

from __future__ import annotations

import inspect

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy import registry
from genpolicy.errors import ConfigError, RegistryError, did_you_mean
from genpolicy.networks.budget import take
from genpolicy.networks.config import MAX_SIZE, NetworkConfig
from genpolicy.networks.cpu import attend
from genpolicy.networks.embedding import index_buffer
from genpolicy.sequence import KINDS, Layout


class AttentionBias(nn.Module):
    """The base of attention biases, which adds nothing; a subclass overrides ``static``, ``of_layer`` or ``attend``.

    Initial weights are drawn as those of the rest of the network; a subclass whose weights begin otherwise has
    ``draw_weights`` (see ``genpolicy.networks.transformer.DrawsOwnWeights``).

    Args:
        layout: The tokens of a sequence.
        config: The network's shape. A subclass takes the keys of ``config.bias_options`` as further arguments.
    """

    def __init__(self, layout: Layout, config: NetworkConfig) -> None:
        super().__init__()

    def static(self) -> Tensor | None:
        """[layers, H, N, N] the part that is the same for every input; None for none. Computed once in a call."""
        return None

    def of_layer(self, i: int, x: Tensor) -> Tensor | None:
        """[B, H, n, n] the part of layer ``i`` (from 0) that depends on the features ``x`` [B, n, W] that enter it.

        They are those of the first n tokens: of all N, of a shorter future, or of what is given alone. Where not every
        token attends to every token (``NetworkConfig.attention``) the part may depend on given tokens alone.
        """
        return None

    def attend(self, i: int, qkv: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        """[B, N, H, D] the attention of layer ``i``, for terms that read its queries, keys or probabilities.

        Args:
            i: The layer, from 0.
            qkv: [B, N, 3, H, D], the queries and keys rotated where positions are rotary.
            bias: [H, N, N] or [B, H, N, N]: ``static`` and ``of_layer``, with minus infinity where a token must not
                look; None for no bias.
            dropout: Probability of dropping an attention probability; 0 outside training.
        """
        return attend(qkv, bias, dropout)

    def attend_last(self, i: int, qkv: Tensor, bias: Tensor | None, dropout: float, first: int) -> Tensor:
        """[B, N - first, H, D] as ``attend``, of the tokens from ``first`` on; ``bias`` has their rows alone."""
        if type(self).attend is AttentionBias.attend:
            return attend(qkv, bias, dropout, first)
        whole = None if bias is None else F.pad(bias, (0, 0, first, 0))
        return self.attend(i, qkv, whole, dropout)[:, first:]

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The matrices between hidden layers, which Muon moves where a run sets it; AdamW moves the others."""
        return []

    def tables(self) -> list[nn.Parameter]:
        """What learns at the rate ``optim.bias_lr`` where a run sets it; neither linear layers nor hidden matrices."""
        linear = [part.weight for part in self.modules() if isinstance(part, nn.Linear)]
        others = {id(p) for p in (*linear, *self.hidden_matrices())}
        return [p for p in self.parameters() if p.ndim >= 2 and id(p) not in others]

    def flops(self) -> float:
        """Floating-point operations of one row's forward pass, all layers together; look-ups count as none."""
        return 0.0


def bias_of_layer(bias: AttentionBias, i: int, x: Tensor) -> Tensor | None:
    """``bias.of_layer``, seen to have the shape of features ``x`` [B, n, W].

    Raises:
        RegistryError: it has another.
    """
    own, n = bias.of_layer(i, x), x.shape[1]
    if own is not None and own.shape[-2:] != (n, n):
        raise RegistryError(
            f"network.bias: {type(bias).__name__}.of_layer gave the shape {list(own.shape)} for features "
            f"{list(x.shape)}; it must be [{len(x)}, H, {n}, {n}]"
        )
    return own


PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
"""Types of options that are checked."""
SCORES_PER_NUMBER = 8
"""Scores of attention that count as one number where a network's size is limited: they outnumber small networks."""


def make_bias(layout: Layout, config: NetworkConfig) -> AttentionBias:
    """The bias that ``config.bias`` names.

    Raises:
        ConfigError: no such bias or option (with the near one), or an option of another type than its annotation says.
        RegistryError: the bias cannot be imported or made, is not an ``AttentionBias``, or ``static`` gives no bias.
        MemoryError: attention over so many tokens is too much for the file that the network is read from.
    """
    name = config.bias
    if name == "auto":
        name = "relative" if config.geometry == "board" else "none"
    known = registry.available("biases")
    if name not in known:
        hint = did_you_mean(name, known)
        raise ConfigError(f"network.bias {name!r} does not exist.{hint} There are: auto, {', '.join(known)}")
    made: type[AttentionBias] = registry.load("biases", name)
    takes = registry.keys_of(made, 2)
    for key, value in config.bias_options.items():
        if key not in takes:
            hint = did_you_mean(key, takes)
            raise ConfigError(
                f"network.bias_options.{key}: bias {name!r} takes no option {key!r}.{hint} "
                f"It takes: {', '.join(takes) or 'none'}"
            )
        _require_type(key, value, takes[key].annotation)
    full = (config.num_layers, config.num_heads, layout.length, layout.length)
    of_each = 1 + -(-config.num_layers * config.num_heads // SCORES_PER_NUMBER)
    take(layout.length**2 * of_each, f"attention of {config.num_layers:,} layers over {layout.length:,} tokens")
    with registry.making("biases", name, ConfigError), torch.enable_grad():  # a bias may cache what has no gradient
        bias = made(layout, config, **config.bias_options)
        if "_parameters" not in vars(bias):
            raise TypeError("call super().__init__(layout, config) in its __init__")
        if (draw := getattr(bias, "draw_weights", None)) is not None:
            inspect.signature(draw).bind(config.init_std, None)
        static: object = bias.static()
    if static is None:
        return bias
    if (
        not isinstance(static, Tensor)
        or static.ndim != 4
        or any(a not in (1, b) for a, b in zip(static.shape, full, strict=True))
    ):
        raise registry.wrong_thing("biases", name, static, f"a tensor {list(full)} or None, in static()")
    return bias


def _require_type(key: str, value: object, annotation: object) -> None:
    """See that an option is of the plain type, and of a size, that a bias's annotation asks for; others are its own."""
    asked = next((each for each in PLAIN if annotation in (each, each.__name__)), None)
    if asked is None:
        return
    fits = isinstance(value, int | float if asked is float else asked)
    if not fits or isinstance(value, bool) != (asked is bool):
        raise ConfigError(f"network.bias_options.{key} must be {PLAIN[asked]}, got {value!r}")
    if isinstance(value, int | float) and not abs(value) <= MAX_SIZE:
        raise ConfigError(f"network.bias_options.{key} must be at most {MAX_SIZE:,} in size, got {value:,}")


def token_classes(layout: Layout) -> NDArray[np.int64]:
    """[N] 0 for squares, 1 for actions, 2 for values, 3 + place for the other places of a state, then codes by book."""
    classes = np.where(layout.kinds == KINDS.index("action"), 1, 2)
    classes = np.where(layout.books >= 0, 3 + layout.state_length + layout.books, classes)
    is_state = layout.places >= 0
    classes = np.where(is_state, 3 + layout.places, classes)
    return np.where(is_state & (layout.rows >= 0) & (layout.cols >= 0), 0, classes).astype(np.int64)


def place_relations(layout: Layout) -> tuple[NDArray[np.int64], int]:
    """[N, N] index of the relation between two tokens' places, and the number R of relations that occur."""
    classes = token_classes(layout)
    square = classes == 0
    rows, cols = layout.rows, layout.cols
    num_rows, num_cols = int(rows.max()) + 1, int(cols.max()) + 1
    row_difference = rows[None, :] - rows[:, None] + num_rows - 1
    col_difference = cols[None, :] - cols[:, None] + num_cols - 1
    num_classes = int(classes.max()) + 1
    by_square = row_difference * max(1, 2 * num_cols - 1) + col_difference
    by_class = max(1, 2 * num_rows - 1) * max(1, 2 * num_cols - 1) + classes[:, None] * num_classes + classes[None, :]
    raw = np.where(square[:, None] & square[None, :], by_square, by_class)
    relations, index = np.unique(raw, return_inverse=True)
    return index.reshape(raw.shape), len(relations)


def ply_relations(layout: Layout, differences: bool = True) -> tuple[NDArray[np.int64], int]:
    """[N, N] index of (ply_j - ply_i, or 0 without differences; same place or not), and the number of such pairs."""
    plies = layout.plies if differences else np.zeros_like(layout.plies)
    num_differences = 2 * int(plies.max()) + 1
    difference = plies[None, :] - plies[:, None] + int(plies.max())
    same = (layout.places[:, None] == layout.places[None, :]) & (layout.places >= 0)[:, None]
    return difference + num_differences * same.astype(np.int64), 2 * num_differences


class RelativeBias(AttentionBias):
    """The bias of every layer and head by relative row, column and ply, from tables that start at zero."""

    def __init__(self, layout: Layout, config: NetworkConfig) -> None:
        super().__init__(layout, config)
        self.num_layers, self.num_tokens = config.num_layers, layout.length
        space, num_space = place_relations(layout)
        time, num_time = ply_relations(layout, differences=config.positions == "learned")
        pairs, index = np.unique((space * num_time + time).reshape(-1), return_inverse=True)
        self.index = index_buffer(index.reshape(-1))
        self.space_of, self.time_of = index_buffer(pairs // num_time), index_buffer(pairs % num_time)
        # Not written to before ``draw_weights``: a stranger's file may ask for more than there is.
        self.space = nn.Parameter(torch.empty(num_space, config.num_layers * config.num_heads))
        self.time = nn.Parameter(torch.empty(num_time, config.num_layers * config.num_heads))
        self._cache: tuple[tuple[object, ...], Tensor] | None = None

    def draw_weights(self, std: float, generator: torch.Generator | None) -> None:
        """Zeros: attention begins without a bias."""
        self.space.zero_()
        self.time.zero_()

    def static(self) -> Tensor:
        """[layers, H, N, N]; without gradients it is kept until the tables change."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._build()
        key = tuple((p.data_ptr(), p._version, p.dtype, p.device) for p in (self.space, self.time))
        if self._cache is None or self._cache[0] != key:
            self._cache = (key, self._build())
        return self._cache[1]

    def _build(self) -> Tensor:
        of_pair = F.embedding(self.space_of, self.space) + F.embedding(self.time_of, self.time)
        flat = F.embedding(self.index, of_pair)
        size = {"layer": self.num_layers, "n": self.num_tokens}
        return rearrange(flat, "(n m) (layer h) -> layer h n m", **size).contiguous()
