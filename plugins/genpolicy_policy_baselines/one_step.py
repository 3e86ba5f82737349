"""The one-step baseline S-A: the same network and windows as diffusion, one masked action, one call.

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.diffusion.process import nll_per_row
from genpolicy.diffusion.random import uniforms
from genpolicy.diffusion.ranking import draw_tokens, likeliest_symbols
from genpolicy.game import Game
from genpolicy.policies.dream import Recorder
from genpolicy.policies.first_action import FirstAction, Imagined
from genpolicy.policies.tokens import NetworkLearner, NetworkLearnerConfig, NetworkPolicy
from genpolicy.sequence import Layout
from genpolicy_policy_baselines import declared


@dataclass
class OneStepConfig(NetworkLearnerConfig):
    """Options of ``OneStepLearner``: those of every network learner, and no more."""


class OneStepLearner(NetworkLearner):
    """Cross-entropy of the labelled move given the position (``s | a``).

    Args:
        game: The game.
        config: Its options.
        layout: Another view than ``s | a``; all that it imagines is then predicted from what it gives.
    """

    Config: ClassVar[type[Any]] = OneStepConfig

    def __init__(self, game: Game[Any], config: NetworkLearnerConfig, layout: Layout | None = None) -> None:
        super().__init__(game, config, layout or Layout(game, "s-a", 1, admit_pad=config.train_pad))

    def loss(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean over the rows of -log p(target | given), in nats; nothing is drawn."""
        del generator
        return self._nll(batch).sum() / batch.target.any(1).sum().clamp(min=1), {}

    @torch.no_grad()
    def elbo(self, batch: TokenBatch, generator: torch.Generator) -> Tensor:
        """[B] -log p(target | given) among the symbols that a token can hold, in nats: exact, no bound."""
        del generator
        return self._nll(batch, self.admitted).double()

    def _nll(self, batch: TokenBatch, admitted: Tensor | None = None) -> Tensor:
        masked = torch.where(batch.frozen, batch.tokens, self.layout.mask)
        t, x0 = first_time(batch.tokens), batch.tokens
        return nll_per_row(self.network, masked, t, x0, batch.target, admitted=admitted)


class OneStepPolicy(NetworkPolicy):
    """Plays the likeliest legal move of one network call, or one drawn at a temperature.

    Args:
        learner: Holds the weights.
        temperature: Divides the logits before the move is drawn; 0 takes the likeliest.
        options: Arguments of ``NetworkPolicy``.

    Raises:
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "one_step"
    declaration = declared.ONE_STEP
    learner_class: ClassVar[type[NetworkLearner]] = OneStepLearner

    def __init__(self, learner: NetworkLearner, *, temperature: float = 0.0, **options: Any) -> None:
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature must be at least 0 (0 takes the likeliest), got {temperature}")
        super().__init__(learner, **options)
        self.temperature = float(temperature)

    def own_options(self) -> dict[str, Any]:
        """The constructor's options as they are."""
        return {**super().own_options(), "temperature": self.temperature}

    @property
    def mask_only_filters(self) -> bool:
        """Whether the likeliest move is played instead of sampled."""
        return self.temperature == 0

    def _imagine(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        prediction = self._predict(tokens, first_time(tokens))
        return self._filled(prediction, tokens, seeds, first_action, recorder)

    def _filled(
        self,
        prediction: TypedLogits,
        tokens: Tensor,
        seeds: Sequence[int],
        first_action: FirstAction,
        recorder: Recorder | None,
    ) -> Imagined:
        """What one call's prediction imagines."""
        masked = first_action.masked(prediction)
        logits, latest = masked.restrict(self.learner.admitted), first_action.moves(masked)
        if self.temperature == 0:
            drawn = likeliest_symbols(logits)
        else:
            generators = [torch.Generator().manual_seed(seed) for seed in seeds]
            (uniform,) = uniforms(1, tuple(tokens.shape), generators, tokens.device)
            drawn = draw_tokens(logits, uniform, tokens == self.layout.mask, self.temperature)
        filled = torch.where(tokens == self.layout.mask, drawn, tokens)
        if recorder is not None:
            recorder.note(0, filled, masked, latest)
        return Imagined(filled, first_action.first_call(prediction), latest, 1)


OneStepLearner.policy_class = OneStepPolicy


def first_time(tokens: Tensor) -> Tensor:
    """[B] the one time of a one-step model: 1, with its one action masked."""
    return torch.ones(len(tokens), dtype=torch.int64, device=tokens.device)
