"""The same trunk over noised embeddings, which a Gaussian process trains.

Axes: B batch, N tokens, E numbers of an embedding, W width.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from genpolicy.diffusion.logits import TypedLogits
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.cpu import Linear
from genpolicy.networks.transformer import DenoisingTransformer
from genpolicy.sequence import Layout
from genpolicy_policy_baselines.gaussian_embedding import GaussianEmbedding
from genpolicy_policy_baselines.gaussian_formulas import alpha_sigma

TIME_SCALE = 1000.0
"""Times in (0, 1] are embedded as the timesteps of a process of this many."""


class EmbeddingTransformer(DenoisingTransformer):
    """Predicts the tokens, or the noise, of noised embeddings; an ``EmbeddingDenoiser``.

    A noised token enters as the mask with a projection of its z added. The network is always conditioned on time,
    because z alone does not say how much of it is noise.

    Args:
        layout: The tokens of a sequence.
        config: The network's shape; ``time_conditioning`` is set.
        process: Its embeddings are noised; it becomes a part of the network and is saved with it.
        options: Arguments of ``DenoisingTransformer``.
    """

    def __init__(self, layout: Layout, config: NetworkConfig, process: GaussianEmbedding, **options: Any) -> None:
        timed = dataclasses.replace(config, time_conditioning=config.time_conditioning or True)
        super().__init__(layout, timed, **options)
        self.process = process
        self.into = Linear(process.width, config.width)
        self.noise = Linear(config.width, process.width) if process.prediction == "eps" else None

    def predict(self, tokens: Tensor, t: Tensor, z: Tensor) -> TypedLogits | Tensor:
        """Logits of the clean tokens, or the noise [B, N, E] in z.

        Args:
            tokens: [B, N] ids, with the mask where z is read.
            t: [B] float times in (0, 1].
            z: [B, N, E].
        """
        noised = (tokens == self.process.mask)[..., None]
        hidden = self.trunk(tokens, TIME_SCALE * t, added=self.into(z) * noised)
        if self.noise is None:
            return self.head(hidden, tokens)  # type: ignore[no-any-return]
        # sigma z is the best linear guess of the noise; the network supplies the rest, which has unit size at all
        # times (the v of Salimans and Ho 2022, arXiv:2202.00512: eps = sigma z + alpha v).
        alpha, sigma = (x[:, None, None].to(z.dtype) for x in alpha_sigma(self.process.gamma(t)))
        out: Tensor = sigma * z + alpha * self.noise(hidden)
        return out
