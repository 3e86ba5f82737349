"""The autoregressive baseline: the same trunk and windows as diffusion, the future written from left to right.

Ye et al. 2025 (arXiv:2502.19805), Table 3, train it beside diffusion on every paradigm.

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.process import nll_per_row
from genpolicy.diffusion.random import uniforms
from genpolicy.diffusion.ranking import draw_tokens, likeliest_symbols
from genpolicy.game import Game
from genpolicy.policies.base import Policy
from genpolicy.policies.dream import Recorder
from genpolicy.policies.first_action import FirstAction, Imagined
from genpolicy.policies.tokens import NetworkLearner, NetworkLearnerConfig, acting_layout
from genpolicy.sequence import Layout
from genpolicy_policy_baselines import declared
from genpolicy_policy_baselines.causal import CausalTransformer
from genpolicy_policy_baselines.one_step import OneStepLearner, OneStepPolicy, first_time


@dataclass
class AutoregressiveConfig(NetworkLearnerConfig):
    """Options of ``AutoregressiveLearner``."""

    paradigm: str = "s-asa"
    """What is imagined; a key of ``genpolicy.sequence.PARADIGMS``."""
    horizon: int = 4
    """Plies imagined."""


class AutoregressiveLearner(OneStepLearner):
    """Cross-entropy of every imagined token given the position and what was imagined before it.

    Args:
        game: The game.
        config: Its options.

    Raises:
        ConfigError: a paradigm that imagines no action.
    """

    Config: ClassVar[type[Any]] = AutoregressiveConfig
    predicts_next: ClassVar[bool] = True

    def __init__(self, game: Game[Any], config: AutoregressiveConfig) -> None:
        layout = acting_layout(game, config.paradigm, config.horizon, admit_pad=config.train_pad)
        super().__init__(game, config, layout)

    def make_network(self, layout: Layout, num_input_symbols: int | None) -> CausalTransformer:
        """The trunk, read from left to right."""
        return CausalTransformer(layout, self.config.network, num_input_symbols)

    def _nll(self, batch: TokenBatch, admitted: Tensor | None = None) -> Tensor:
        t, x0 = first_time(batch.tokens), batch.tokens
        return nll_per_row(self.network, x0, t, x0, batch.target, admitted=admitted)


class AutoregressivePolicy(OneStepPolicy):
    """Predicts the future token by token and plays its first action.

    The whole sequence goes through the network for every token: no keys and values are kept from call to call. Where
    the first action comes first, as in every paradigm here, it is decided by the first call; ``imagine=False`` stops
    there and leaves the future unwritten.

    Args:
        learner: Holds the weights.
        imagine: Write the whole future, in as many calls as it has tokens.
        options: Arguments of ``OneStepPolicy``.

    Raises:
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "autoregressive"
    declaration = declared.AUTOREGRESSIVE
    learner_class: ClassVar[type[NetworkLearner]] = AutoregressiveLearner

    def __init__(self, learner: NetworkLearner, *, imagine: bool = True, **options: Any) -> None:
        super().__init__(learner, **options)
        self.imagine = imagine

    def own_options(self) -> dict[str, Any]:
        """The constructor's options as they are."""
        return {**super().own_options(), "imagine": self.imagine}

    def modes(self) -> dict[str, Policy]:
        """The first action alone, and the whole future."""
        if not self.imagine:
            return {"one_call": self}
        return {"one_call": self.with_options(imagine=False), "token by token": self}

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        """See ``Policy.with_effort``: the first action alone, or everything."""
        return self.modes()["one_call"] if calls == 1 else self

    @property
    def num_calls(self) -> int:
        """Network calls of one decision."""
        return int((~self.layout.given).sum()) if self.imagine else 1

    def _shown_layout(self) -> Layout:
        own = self.layout
        return own if self.imagine else Layout(self.game, "s-a", 1, admit_pad=own.admit_pad, tokenizer=own.tokenizer)

    def _imagine(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        filled, first = tokens.clone(), self.layout.first_action
        places = np.flatnonzero(~self.layout.given).tolist() if self.imagine else [first]
        first_call, latest = None, torch.empty(0)
        for left, at in zip(reversed(range(len(places))), places, strict=True):
            prediction = self._predict(filled, first_time(filled))
            first_call = first_call or first_action.first_call(prediction)
            masked = first_action.masked(prediction)
            logits, latest = masked.restrict(self.learner.admitted), first_action.moves(masked)
            if self.temperature == 0:
                drawn = likeliest_symbols(logits)
            else:
                (uniform,) = uniforms(1, tuple(tokens.shape), generators, tokens.device)
                here = torch.zeros_like(tokens, dtype=torch.bool)
                here[:, at] = True
                drawn = draw_tokens(logits, uniform, here, self.temperature)
            filled[:, at] = drawn[:, at]
            if recorder is not None:
                recorder.note(left, filled, masked, latest)
        assert first_call is not None
        return Imagined(filled, first_call, latest, len(places))


AutoregressiveLearner.policy_class = AutoregressivePolicy
