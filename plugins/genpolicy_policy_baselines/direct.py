"""The direct baseline: the whole future at once, every token from the position alone (Ye et al. 2025, Table 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from genpolicy.game import Game
from genpolicy.policies.tokens import NetworkLearner, NetworkLearnerConfig, acting_layout
from genpolicy_policy_baselines.one_step import OneStepLearner, OneStepPolicy


@dataclass
class DirectConfig(NetworkLearnerConfig):
    """Options of ``DirectLearner``."""

    paradigm: str = "s-asa"
    """What is imagined; a key of ``genpolicy.sequence.PARADIGMS``."""
    horizon: int = 4
    """Plies imagined."""


class DirectLearner(OneStepLearner):
    """Cross-entropy of every imagined token given the position, all of them masked.

    A diffusion model whose time is always T: it has no second step, so its tokens agree by chance alone.

    Args:
        game: The game.
        config: Its options.

    Raises:
        ConfigError: a paradigm that imagines no action.
    """

    Config: ClassVar[type[Any]] = DirectConfig

    def __init__(self, game: Game[Any], config: DirectConfig) -> None:
        layout = acting_layout(game, config.paradigm, config.horizon, admit_pad=config.train_pad)
        super().__init__(game, config, layout)


class DirectPolicy(OneStepPolicy):
    """Predicts the whole future in one call and plays its first action.

    Options are those of ``OneStepPolicy``.
    """

    kind: ClassVar[str] = "direct"
    learner_class: ClassVar[type[NetworkLearner]] = DirectLearner


DirectLearner.policy_class = DirectPolicy
