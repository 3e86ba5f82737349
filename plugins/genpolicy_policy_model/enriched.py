"""Policy and value in one network that reads imagined codes: ``policy_value`` with cross-attention to a future.

A code diffusion policy (``code_diffusion``), whose weights are part of the network, imagines s | a k a k a ... by some
calls. What its trunk makes of the code tokens in the last call is what every token of the position attends to:

    x_i <- x_i + gate * attention(query of x_i; keys and values of the codes),    x_i the embedding of token i

The gate begins at 0, so that training begins with the plain policy. Nothing is drawn: the surest tokens are decided
first, each as its likeliest symbol.

Axes: B positions, N tokens of a sequence, W width, C imagined code tokens, F width of the network that imagines them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.config import to_dict
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.diffusion.samplers import make_sampler, sample_steps
from genpolicy.errors import CheckpointError, ConfigError, require_one_of
from genpolicy.game import Game
from genpolicy.networks.cpu import Linear
from genpolicy.networks.embedding import index_buffer
from genpolicy.networks.transformer import draw_weights
from genpolicy.networks.value_heads import finite
from genpolicy.policies.dream import Recorder
from genpolicy.policies.first_action import FirstAction, Imagined
from genpolicy.policies.learner import Learner
from genpolicy.policies.tokens import NetworkLearner
from genpolicy.sequence import Layout
from genpolicy_policy_baselines.judged_windows import JudgedBatch
from genpolicy_policy_baselines.policy_value import (
    PolicyValueConfig,
    PolicyValueLearner,
    PolicyValueNetwork,
    PolicyValuePolicy,
)
from genpolicy_policy_model.code_diffusion import SHAPE, CodeDiffusionConfig, CodeDiffusionLearner

ENRICH = ("none", "cross")
SAME = (*SHAPE, "horizon", "train_pad", "tokens", "process", "network")
"""Options in which ``learner.codes`` and the policy that imagines must agree."""
FOLLOWS_FROM = 0.5
"""Part of the run from which the loss's gradient reaches the network that imagines."""


@dataclass
class EnrichedConfig(PolicyValueConfig):
    """Options of ``EnrichedLearner``: those of ``policy_value``, and what imagines."""

    enrich: str = "cross"
    """``cross``: cross-attention to imagined codes. ``none``: ``policy_value`` as it is."""
    codes: CodeDiffusionConfig = field(default_factory=CodeDiffusionConfig)
    """The options of the ``code_diffusion`` policy that ``init_from`` takes."""
    calls: int | None = None
    """Most network calls by which codes are imagined, from 1 to the process's timesteps, which is what None means."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("learner.enrich", self.enrich, ENRICH)


def _require_masks(imagines: CodeDiffusionLearner) -> None:
    """Raise a ConfigError where codes are not imagined from masks, all together."""
    if imagines.by_ply is not None or not imagines.process.noise_is_visible:
        kind, order = imagines.process.kind, imagines.config.process.get("order", "joint")
        raise ConfigError(
            "learner.codes.process: codes are imagined from masks, all together; take a code_diffusion policy with "
            f"kind=absorbing and order=joint, got kind={kind} and order={order}"
        )


class ImaginedCodes(nn.Module):
    """Imagines codes from positions, and gives what its network makes of them.

    Args:
        game: The game.
        config: Options of the code diffusion policy.

    Raises:
        ConfigError: a policy without codes or one that imagines in another way, or as ``CodeDiffusionLearner``.
    """

    def __init__(self, game: Game[Any], config: CodeDiffusionConfig) -> None:
        super().__init__()
        imagines = CodeDiffusionLearner(game, config)
        self.layout, self.network = imagines.layout, imagines.network
        places = [place for s in self.layout.slots if s.kind == "code" for place in range(s.start, s.stop)]
        if not places:
            raise ConfigError("learner.codes.horizon=1 imagines a move and no code; take at least 2")
        _require_masks(imagines)
        self.sampler = make_sampler("easy_first", imagines.process)
        self.flops = NetworkLearner.flops_per_record(imagines) or 0.0
        """Of a forward and backward pass for one position."""
        self.admitted, self.given = index_buffer(self.layout.admitted), index_buffer(self.layout.given)
        self.places = nn.Buffer(torch.tensor(places), persistent=False)

    @property
    def width(self) -> int:
        """F."""
        return self.network.config.width

    @property
    def num_timesteps(self) -> int:
        """Most calls."""
        return self.sampler.process.num_timesteps

    def forward(self, states: Tensor, num_calls: int) -> Tensor:
        """[B, C, F] of positions [B, L] as their players see them; the last call alone has a gradient."""
        tokens = torch.full((len(states), self.layout.length), self.layout.mask, device=states.device)
        tokens[:, : self.layout.state_length] = states
        # The generator's draws change nothing: the sampler takes the likeliest.
        steps = sample_steps(
            self.network,
            self.sampler.process,
            self.sampler,
            tokens,
            self.given.expand(tokens.shape),
            admitted=self.admitted,
            generator=torch.Generator(states.device),
            num_steps=num_calls,
        )
        for step in itertools.islice(steps, num_calls - 1):
            tokens = step.output.prev_sample
            if not self.training:
                finite(step.output.scores[:, self.places], "code")
        self.sampler.set_timesteps(num_calls)
        last = self.sampler.timesteps[-2].to(states.device).expand(len(states))
        hidden: Tensor = self.network.trunk(tokens, last)
        return hidden[:, self.places]


class CrossAttention(nn.Module):
    """Gated attention of some tokens to others; with a gate of 0 it adds nothing.

    Args:
        width: W.
        num_heads: Of the attention.
        read: F.
        std: Standard deviation of the initial weights.
    """

    def __init__(self, width: int, num_heads: int, read: int, std: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(width)
        self.query = Linear(width, width)
        self.keys_values = Linear(read, 2 * width)
        self.out = Linear(width, width)
        with torch.no_grad():
            draw_weights(self, std, None)
        self.gate = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        """[B, N, W] to add to x [B, N, W], of codes [B, C, F]."""
        query = self.query(self.norm(x))
        heads = (
            part.view(*part.shape[:2], self.num_heads, -1).transpose(1, 2)
            for part in (query, *self.keys_values(codes).chunk(2, dim=-1))
        )
        mixed = F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(x.shape)
        added: Tensor = self.gate * self.out(mixed)
        return added


class EnrichedNetwork(PolicyValueNetwork):
    """``policy_value``'s network, beside it one that imagines codes and the attention to them.

    Args:
        layout: ``s | a``.
        config: The learner's.
        game: The game.
    """

    num_calls: Tensor

    def __init__(self, layout: Layout, config: EnrichedConfig, game: Game[Any]) -> None:
        super().__init__(layout, config)
        self.imagined: ImaginedCodes | None = None
        self.reader: CrossAttention | None = None
        self.follows = False
        """Whether the gradient reaches what imagines."""
        if config.enrich == "cross":
            shape = config.network
            self.imagined = ImaginedCodes(game, config.codes)
            self.reader = CrossAttention(shape.width, shape.num_heads, self.imagined.width, shape.init_std)
            self.register_buffer("num_calls", torch.ones((), dtype=torch.int64))

    def judged(self, tokens: Tensor, added: Tensor | None = None) -> tuple[TypedLogits, Tensor, Tensor]:
        """See ``PolicyValueNetwork.judged``; what the codes add is added, too."""
        if self.imagined is None or self.reader is None:
            return super().judged(tokens, added)
        with torch.set_grad_enabled(self.follows and torch.is_grad_enabled()):
            codes = self.imagined(tokens[:, : self.num_state_tokens], int(self.num_calls))
        read = self.reader(self.trunk.embedding(tokens), codes)
        return super().judged(tokens, read if added is None else read + added)


class EnrichedLearner(PolicyValueLearner):
    """Trains ``policy_value`` with attention to what a code diffusion policy imagines.

    By progress the codes are imagined by 1 to ``calls`` network calls. In the first half of the run the network that
    imagines stays as it is; after that the loss of move and value trains it too, by its last call. With a budget in
    minutes both depend on the clock, so that a resumed run is not bit for bit the one that was not interrupted.

    Args:
        game: The game; its sides take turns.
        config: Its options.

    Raises:
        ConfigError: ``calls`` out of range, or as ``ImaginedCodes``.
    """

    Config: ClassVar[type[Any]] = EnrichedConfig
    config: EnrichedConfig
    network: EnrichedNetwork

    def __init__(self, game: Game[Any], config: EnrichedConfig) -> None:
        super().__init__(game, config)
        imagined = self.network.imagined
        self.calls = 0
        """Most calls; 0 where nothing is imagined."""
        if imagined is not None:
            self.calls = imagined.num_timesteps if config.calls is None else config.calls
            if not 1 <= self.calls <= imagined.num_timesteps:
                raise ConfigError(
                    f"learner.calls must be 1..{imagined.num_timesteps} (learner.codes.process.num_timesteps), got "
                    f"{self.calls}"
                )

    def make_network(self, layout: Layout, num_input_symbols: int | None) -> EnrichedNetwork:
        """The weights, drawn anew; those of ``policy_value`` first, as there."""
        del num_input_symbols
        return EnrichedNetwork(layout, self.config, self.game)

    @property
    def fingerprint(self) -> str:
        """The layout's, and that of the codes."""
        imagined = self.network.imagined
        return super().fingerprint + ("" if imagined is None else f" {imagined.layout.fingerprint}")

    def at(self, progress: float) -> None:
        """More calls by progress, and from ``FOLLOWS_FROM`` on a gradient for what imagines."""
        if self.calls:
            self.network.num_calls.fill_(min(self.calls, 1 + int(progress * self.calls)))
            self.network.follows = progress >= FOLLOWS_FROM

    def take_weights(self, source: Learner) -> None:
        """What imagines from a ``code_diffusion`` policy, or everything from a policy of this kind.

        Raises:
            CheckpointError: another learner or viewer, or a policy with codes of another game, shape or process; all
                differences are named.
            ConfigError: a policy that imagines codes in a way that this learner cannot.
        """
        imagined = self.network.imagined
        if imagined is None or isinstance(source, EnrichedLearner):
            super().take_weights(source)
            return
        if not isinstance(source, CodeDiffusionLearner):
            raise CheckpointError(
                f"a {type(source).__name__} imagines no codes; init_from takes a policy of kind code_diffusion or "
                "enriched"
            )
        self.require_same_meaning(source)
        _require_masks(source)
        theirs, ours = (_flat({name: to_dict(c)[name] for name in SAME}) for c in (source.config, self.config.codes))
        differing = [f"learner.codes.{name}={value}" for name, value in theirs.items() if ours.get(name) != value]
        differing += [f"no learner.codes.{name}" for name in ours if name not in theirs]
        if differing:
            raise CheckpointError(f"it imagines other codes or in another way: set {', '.join(differing)}")
        if source.fingerprint != imagined.layout.fingerprint:
            raise CheckpointError(
                f"its codes are those of {source.game.spec!r} (layout {source.fingerprint}), this learner's of "
                f"{self.game.spec!r} (layout {imagined.layout.fingerprint}); train a code_diffusion policy on this game"
            )
        imagined.network.load_state_dict(source.network.state_dict())

    def _parts(self, batch: JudgedBatch) -> dict[str, Tensor]:
        imagined = self.network.imagined
        if imagined is not None and not bool(imagined.network.autoencoder.codebooks.counts.any()):
            raise ConfigError(
                "learner.kind=enriched: what imagines its codes was never trained; set init_from=FOLDER of a policy of "
                "kind code_diffusion for the same game"
            )
        return super()._parts(batch)

    def flops_per_record(self) -> float | None:
        """As of ``policy_value``, and the calls that imagine: on average half of them, one with a gradient in half of
        the run. The attention to the codes is not counted."""
        imagined, plain = self.network.imagined, super().flops_per_record() or 0.0
        return plain if imagined is None else plain + imagined.flops / 3 * ((1 + self.calls) / 2 + 1)

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """As of ``policy_value``; of what imagines Muon moves the blocks."""
        decayed, others = super().param_groups(weight_decay)
        imagined = self.network.imagined
        kept = set[int]() if imagined is None else {id(p) for p in imagined.parameters()}
        kept -= set() if imagined is None else {id(p) for p in imagined.network.trunk.blocks.parameters()}
        return [{**decayed, "muon": [p for p in decayed["muon"] if id(p) not in kept]}, others]


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


class EnrichedPolicy(PolicyValuePolicy):
    """Plays as ``policy_value`` does, after network calls that imagine codes.

    Its codes are imagined by as many calls as in training when the weights were saved.
    """

    kind: ClassVar[str] = "enriched"
    learner_class: ClassVar[type[NetworkLearner]] = EnrichedLearner
    learner: EnrichedLearner

    @property
    def num_calls(self) -> int:
        """Network calls of one decision."""
        return 1 + (int(self.learner.network.num_calls) if self.learner.calls else 0)

    @property
    def num_dream_steps(self) -> int:
        """The last call alone is shown."""
        return 1

    def _imagine(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        made = super()._imagine(tokens, seeds, first_action, recorder)
        return dataclasses.replace(made, num_calls=self.num_calls)


EnrichedLearner.policy_class = EnrichedPolicy
