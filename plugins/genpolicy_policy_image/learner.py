"""Trains the image policy: a move's image is noised, and the network restores the noise or the move.

Axes: B batch, K cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from genpolicy.data.records import Dataset
from genpolicy.data.windows import WindowOptions, WindowSource
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.policies.learner import Learner
from genpolicy.sequence import Layout
from genpolicy_policy_image.codes import Code
from genpolicy_policy_image.config import ImageConfig
from genpolicy_policy_image.network import ImageNetwork
from genpolicy_policy_image.schedulers import noise_scheduler
from genpolicy_policy_image.windows import Cells, ImageBatch, ImageWindows

if TYPE_CHECKING:
    from genpolicy_policy_image.policy import ImagePolicy


class ImageLearner(Learner):
    """Backbone, UNet and their loss.

    Args:
        game: Supplies input planes and planes of moves.
        config: Options.

    Raises:
        ConfigError: a game without planes, or a UNet that diffusers cannot build.
    """

    Config: ClassVar[type[Any]] = ImageConfig
    config: ImageConfig
    network: ImageNetwork

    def meaning(self) -> dict[str, Any]:
        """What the image is, what the network predicts of it, and the noise at each time."""
        names = ("target", "prediction", "scale", "schedule", "num_timesteps")
        return {name: getattr(self.config, name) for name in names}

    def __init__(self, game: Game[Any], config: ImageConfig) -> None:
        super().__init__(game, config)
        self.layout = Layout(game, "s-a", 1)
        if not game.tokens.decodes:
            raise ConfigError(
                f"learner.kind=image: it makes images of decoded tokens, and those of {game.spec!r} are not"
            )
        try:
            self.cells = Cells(game)
            start = game.planes([game.parse()])
        except ValueError as error:
            raise ConfigError(f"learner.kind=image: {error}; it needs Game.planes and Game.move_planes") from error
        if start.shape[2:] != self.cells.shape[1:]:
            raise ConfigError(
                f"learner.kind=image: {game.spec!r} has input planes of {start.shape[2:]} and planes of moves of "
                f"{self.cells.shape[1:]}"
            )
        assert config.target is not None
        assert config.scale is not None
        self.code = Code(config.target, self.cells.shape, config.scale)
        self.network = ImageNetwork(config, start.shape[1], self.code.num_planes, self.cells.shape)
        signal = noise_scheduler(config).alphas_cumprod.float()
        self.signal: Tensor
        """[timesteps] alpha-bar: the part of an image's variance that is not noise."""
        self.register_buffer("signal", signal, persistent=False)

    @property
    def fingerprint(self) -> str:
        """The layout's, of which the windows are made."""
        return self.layout.fingerprint

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """As ``Learner.param_groups``; Muon gets the UNet's matrices but for the embeddings of time and of classes."""
        decayed, others = super().param_groups(weight_decay)
        # diffusers calls what turns a time or a class into a vector ``..._embedding``.
        matrices = [p for name, p in self.network.named_parameters() if p.ndim == 2 and "embed" not in name]
        return [{**decayed, "muon": matrices}, others]

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """Positions of a split as images, with the cell of the labelled move."""
        from genpolicy.data.window_source import build_windows

        config, training = self.config, split == self.trained_split
        options = WindowOptions(
            viewer="absolute",  # so that a row alone says who is to move; images are the mover's whatever the tokens
            redraw=config.redraw and training,
            augment=config.augment and training,
            seed=seed,
            cache_dir=None if config.cache_dir is None else Path(config.cache_dir),
        )
        return ImageWindows(build_windows(records, split, self.game, self.layout, options), self.game, self.layout)

    def loss(self, batch: ImageBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The noise's mean squared error, or the cross-entropy of the labelled cell in nats, at a random time a row.

        Metrics: ``legal_mass``, the softmax's probability on legal moves; ``own``, the cross-entropy of the backbone's
        own head, which is part of the loss where the backbone is frozen.
        """
        kept = batch.label >= 0
        planes, label, legal = batch.planes[kept], batch.label[kept], batch.legal[kept]
        metrics: dict[str, Tensor] = {}
        images, timesteps, noise = self._noised(label, generator)
        features = self.network.features(planes)
        out = self.network(images, timesteps, features).float()
        if self.config.prediction == "eps":
            loss = functional.mse_loss(out, noise)
        else:
            logits = out.flatten(1)
            loss = functional.cross_entropy(logits, label)
            metrics["legal_mass"] = (logits.detach().softmax(-1) * legal).sum(-1).mean()
        if self.config.frozen_backbone:
            own = functional.cross_entropy(self.network.own_logits(features).float(), label)
            metrics["denoiser"], metrics["own"] = loss.detach(), own.detach()
            loss = loss + own
        return loss, metrics

    def _noised(self, label: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Noised images of cells [B], their timesteps [B], and the noise."""
        if self.config.prediction == "classify":
            return self.blank(len(label)), self.last_timestep(len(label)), self.blank(len(label))
        image = self.code.image(label)
        timesteps = torch.randint(len(self.signal), (len(label),), generator=generator, device=label.device)
        noise = torch.randn(image.shape, generator=generator, device=label.device)
        signal = self.signal[timesteps][:, None, None, None]
        return signal.sqrt() * image + (1 - signal).sqrt() * noise, timesteps, noise

    def blank(self, count: int) -> Tensor:
        """[count, planes, H, W] images that say nothing: what ``classify`` is shown."""
        return torch.zeros(count, self.code.num_planes, *self.cells.shape[1:], device=self.signal.device)

    def last_timestep(self, count: int) -> Tensor:
        """[count] the time of pure noise."""
        return torch.full((count,), len(self.signal) - 1, device=self.signal.device)

    @torch.no_grad()
    def elbo(self, batch: ImageBatch, generator: torch.Generator) -> Tensor:
        """[B] exact -log p(move | position) in nats of the classifier; NaN for the others, which bound nothing."""
        if self.config.prediction != "classify":
            return super().elbo(batch, generator)
        features = self.network.features(batch.planes)
        logits = self.network(self.blank(len(features)), self.last_timestep(len(features)), features).flatten(1)
        nll = functional.cross_entropy(logits.double(), batch.label.clamp(min=0), reduction="none")
        return nll.masked_fill(batch.label < 0, 0.0)

    def policy(self) -> ImagePolicy:
        """A policy that plays with these weights (shared, not copied)."""
        from genpolicy_policy_image.policy import ImagePolicy

        return ImagePolicy(self)
