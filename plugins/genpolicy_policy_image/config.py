"""Options of the image policy: every repair of the published recipe is a switch, and presets set them together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from genpolicy.errors import ConfigError, require_one_of

MAX_TIMESTEPS = 4_000
"""As of the other processes; diffusers makes its tables in Python."""

CHOICES: dict[str, tuple[str, ...]] = {
    "preset": ("published", "repaired", "classifier"),
    "size": ("small", "published"),
    "target": ("probabilities", "scaled", "bits", "logits"),
    "prediction": ("eps", "x0", "classify"),
    "condition": ("token", "tokens", "planes"),
    "unet": ("unet2d", "unet2d_condition"),
    "schedule": ("scaled_linear", "cosine"),
    "scheduler": ("ddpm", "ddim", "dpmsolver++"),
}

PRESETS: dict[str, dict[str, Any]] = {
    "published": {
        "target": "probabilities",
        "prediction": "eps",
        "condition": "token",
        "frozen_backbone": True,
        "unet": "unet2d_condition",
        "schedule": "scaled_linear",
        "matched": False,
        "temperature": 1.0,
    },
    "repaired": {
        "target": "scaled",
        "prediction": "x0",
        "condition": "planes",
        "frozen_backbone": False,
        "unet": "unet2d",
        "schedule": "cosine",
        "matched": True,
        "temperature": 1.0,
    },
    "classifier": {
        "target": "scaled",
        "prediction": "classify",
        "condition": "planes",
        "frozen_backbone": False,
        "unet": "unet2d",
        "schedule": "cosine",
        "matched": True,
        "temperature": 0.0,
    },
}

SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "backbone_width": 48,
        "backbone_blocks": 2,
        "channels": [48],
        "layers_per_block": 1,
        "cross_attention_dim": 64,
        "norm_groups": 8,
        "attention_head_dim": 8,
    },
    # UNet2DConditionModel's own defaults and dlshogi's resnet30x384.
    "published": {
        "backbone_width": 384,
        "backbone_blocks": 30,
        "channels": [320, 640, 1280, 1280],
        "layers_per_block": 2,
        "cross_attention_dim": 1280,
        "norm_groups": 32,
        "attention_head_dim": 8,
    },
}


@dataclass
class ImageConfig:
    """Options of ``ImageLearner``. What is None is as ``preset`` and ``size`` say."""

    preset: str = "repaired"
    """``published``: as it was tried and failed; ``repaired``; ``classifier``: the repaired network without noise."""
    size: str = "small"
    """``small``: for a CPU and minutes; ``published``: the 912 M weights of the published experiment."""

    target: str | None = None
    """What the image of a move holds: ``probabilities``, 1 in the move's cell (published); ``scaled``, ``scale`` there;
    ``bits``, the cell's number in binary, a plane of plus or minus ``scale`` for each bit (analog bits, Chen et al.
    2022, arXiv:2208.04202); ``logits``, centred log-probabilities of the smoothed one-hot image."""
    scale: float | None = None
    """Size of a ``scaled`` image's 1 (3 by default) or of a bit (1 by default).

    Beside noise a one-hot image of K cells can be read as it is while scale * sqrt(signal / noise) is above
    sqrt(2 ln K), 3.9 for 2187. With 20 that is so for 7 of 8 timesteps of the cosine schedule, which then teach nothing
    about positions; with 3 for 2 of 5, and the sampler has more steps in which to make up its mind."""
    prediction: str | None = None
    """``eps``: the noise, by squared error (published); ``x0``: a softmax over the cells, by cross-entropy, its mean
    image taken for the clean one; ``classify``: the same network and softmax with no noisy image at all."""
    condition: str | None = None
    """How the position comes in: ``token``, one pooled vector (published); ``tokens``, one a square, both by
    cross-attention; ``planes``: its features are further planes of the input."""
    frozen_backbone: bool | None = None
    """Whether the denoiser's gradient stops before the backbone, which then learns by a classification head of its own
    (it stands for the finished policy network of the published experiment, within the same budget)."""
    schedule: str | None = None
    """Of the noise in training: ``scaled_linear`` from 0.00085 to 0.012 (published) or ``cosine``."""
    num_timesteps: int = 1000
    """Of that schedule."""
    scheduler: str = "ddpm"
    """How the policy plays where nothing else is asked: ``ddpm``, ``ddim`` or ``dpmsolver++``."""
    matched: bool | None = None
    """Whether the sampler has the schedule of the training. If not, it is diffusers' default one (linear from 0.0001
    to 0.02, the image clipped to [-1, 1], timesteps from the lower end of each interval), as published."""
    num_steps: int = 20
    """Network calls of one decision."""
    temperature: float | None = None
    """How the policy plays: 1 draws the move by the diffusion, 0 takes the likeliest by one call."""

    unet: str | None = None
    """``unet2d`` (diffusers' UNet2DModel; takes ``planes`` only) or ``unet2d_condition`` (UNet2DConditionModel)."""
    channels: list[int] | None = None
    """Of the UNet, one number a resolution."""
    layers_per_block: int | None = None
    cross_attention_dim: int | None = None
    attention_head_dim: int | None = None
    norm_groups: int | None = None
    backbone_width: int | None = None
    backbone_blocks: int | None = None
    """Residual blocks of the network that reads the position; 0 hands on a projection of the input planes."""

    redraw: bool = True
    """Whether, where several moves are best, the label is drawn anew each time a window is made."""
    augment: bool = False
    """Whether each window is seen through a symmetry of the game, drawn anew each time."""
    cache_dir: str | None = None
    """Folder of the cached windows; None puts them beside the data set."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More arguments of diffusers' UNet, as it names them."""

    def __post_init__(self) -> None:
        for name in ("preset", "size"):
            require_one_of(f"learner.{name}", getattr(self, name), CHOICES[name])
        for name, value in {**PRESETS[self.preset], **SIZES[self.size]}.items():
            if getattr(self, name) is None:
                setattr(self, name, list(value) if isinstance(value, list) else value)
        for name in CHOICES:
            require_one_of(f"learner.{name}", getattr(self, name), CHOICES[name])
        if self.scale is None:
            self.scale = 3.0 if self.target == "scaled" else 1.0
        self._check_numbers()
        if self.unet == "unet2d" and self.condition != "planes":
            raise ConfigError(
                f"learner.condition={self.condition} needs cross-attention: set learner.unet=unet2d_condition, or "
                "learner.condition=planes"
            )

    def _check_numbers(self) -> None:
        least = {"layers_per_block": 1, "cross_attention_dim": 1, "attention_head_dim": 1, "norm_groups": 1}
        least |= {"backbone_width": 1, "backbone_blocks": 0, "num_timesteps": 1, "num_steps": 1}
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise ConfigError(f"learner.{name} must be at least {smallest}, got {getattr(self, name)}")
        if self.num_timesteps > MAX_TIMESTEPS:
            raise ConfigError(f"learner.num_timesteps must be at most {MAX_TIMESTEPS:,}, got {self.num_timesteps}")
        if self.num_steps > self.num_timesteps:
            raise ConfigError(
                f"learner.num_steps must be at most num_timesteps={self.num_timesteps}, got {self.num_steps}"
            )
        if not self.scale or self.scale <= 0:
            raise ConfigError(f"learner.scale must be above 0, got {self.scale}")
        if self.scale != 1 and self.target in ("probabilities", "logits"):
            raise ConfigError(f"learner.scale={self.scale} is for target scaled or bits; target is {self.target!r}")
        for width in [*(self.channels or [0]), self.backbone_width]:
            if not width or width % (self.norm_groups or 1):
                raise ConfigError(
                    f"learner.channels and backbone_width must be multiples of norm_groups={self.norm_groups}, got "
                    f"{self.channels} and {self.backbone_width}"
                )
