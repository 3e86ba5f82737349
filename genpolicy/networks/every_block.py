"""One pass that restores every block of a record, each as if those before it were clean and later ones were not there.

What is clean is encoded once. The noised tokens of a block attend to the clean ones before it and to each other, which
is what they would see in a call of their own under ``attention: block_causal`` (block diffusion, Arriola et al. 2025,
arXiv:2503.09573, trains so, too).

Axes: B batch, N tokens, G given tokens, W width, H heads, D features of a head.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from genpolicy.diffusion.logits import TypedLogits
from genpolicy.errors import ConfigError
from genpolicy.networks.biases import bias_of_layer
from genpolicy.networks.prefix import Encoded
from genpolicy.networks.transformer import DenoisingTransformer, Trunk, total_bias
from genpolicy.sequence import KINDS, Layout


def require_every_block(network: DenoisingTransformer) -> None:
    """See that one pass can restore every block: with ``attention: block_causal``, and without ``time_conditioning``,
    as every block has a time of its own.

    Raises:
        ConfigError: it cannot.
    """
    config = network.config
    if config.attention != "block_causal" or config.time_conditioning:
        raise ConfigError(
            "every block of a record is trained in one pass (learner.process.one_pass) with "
            "learner.network.attention=block_causal and learner.network.time_conditioning=false; got "
            f"{config.attention!r} and {str(config.time_conditioning).lower()}"
        )


def block_spans(layout: Layout) -> tuple[tuple[int, int], ...]:
    """First token of each block of a layout, and the token after its last."""
    blocks = layout.blocks.tolist()
    starts = [blocks.index(block) for block in range(max(blocks) + 1)]
    return tuple(zip(starts, [*starts[1:], layout.length], strict=True))


@dataclass(frozen=True)
class EveryBlock:
    """A ``Denoiser`` of every block at once, by a network of which ``require_every_block`` holds."""

    layout: Layout
    network: DenoisingTransformer
    clean: Tensor
    """[B, N] ids, of which a block sees those before it; ``mask`` where one is not to be seen."""

    def __call__(self, tokens: Tensor, t: Tensor | None = None) -> TypedLogits:
        """Not served: the logits of all tokens are of several contexts. Take ``token_nll``.

        Raises:
            ConfigError: always; some process's loss asks for whole predictions.
        """
        raise ConfigError(
            "learner.process.one_pass trains by the likelihood of tokens, and this process's loss reads whole "
            "predictions: set learner.process.one_pass=0, or another weighting"
        )

    def token_nll(self, tokens: Tensor, t: Tensor | None, targets: Tensor, where: Tensor) -> Tensor:
        """As ``DenoisingTransformer.token_nll``; times are not read."""
        head = self.network.head
        is_state = torch.from_numpy(self.layout.kinds == KINDS.index("state")).to(tokens.device)
        clean, noised = block_features(self.network.trunk, self.clean, tokens, block_spans(self.layout))
        # A move is scored by the squares that it goes between, of the state before it: decided by then, so clean.
        at = is_state[: clean.shape[1], None]
        before = torch.cat([torch.where(at, clean, noised[:, : clean.shape[1]]), noised[:, clean.shape[1] :]], 1)
        inputs = torch.where(is_state, self.clean, tokens)
        each = noised.new_zeros(tokens.shape)
        for features, part, ids in ((noised, where & is_state, self.clean), (before, where & ~is_state, inputs)):
            nll = head.nll(features, targets, part, ids)
            each = each.to(nll.dtype).masked_scatter(part, nll)
        return each[where]


def block_features(
    trunk: Trunk, clean: Tensor, noised: Tensor, spans: tuple[tuple[int, int], ...]
) -> tuple[Tensor, Tensor]:
    """Features [B, n, W] of the clean tokens before the last block, and [B, N, W] of the noised ones.

    Args:
        trunk: With ``attention: block_causal``.
        clean: [B, N] ids.
        noised: [B, N] ids, the given tokens as in ``clean``.
        spans: First token of each block, and the token after its last, in order.
    """
    first, last = spans[0][0], spans[-1][0]
    kept = Encoded()
    before = trunk(clean[:, :last], None, kept=kept)
    # All that is shown on a token comes from blocks before its own.
    x = trunk.embedding(noised)
    x = trunk.prepared(x if trunk.shown is None else trunk.shown(x, clean), noised, first)
    static = trunk.bias.static()
    static = None if static is None else static.expand(-1, trunk.num_heads, trunk.length, trunk.length)

    def attend(i: int, qkv: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        out = []
        for start, stop in spans:
            seen = torch.cat([kept.qkv[i][:, :start], qkv[:, start - first : stop - first]], 1)
            rows = None if bias is None else bias[..., start - first : stop - first, :stop]
            out.append(trunk.bias.attend_last(i, seen, rows, dropout, start))
        return torch.cat(out, 1)

    for i, block in enumerate(trunk.blocks):
        own = bias_of_layer(trunk.bias, i, torch.cat([kept.inputs[i][:, :first], x], 1))
        bias = total_bias(None if static is None else static[i], own)
        x = block(x, None if bias is None else bias[..., first:, :], functools.partial(attend, i), first)
    return before, torch.cat([before[:, :first], x if trunk.residual.is_post else trunk.norm(x)], 1)
