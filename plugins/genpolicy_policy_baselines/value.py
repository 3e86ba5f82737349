"""What S-V and SA-V share: a network that predicts one value in bins, and a policy that plays the move valued highest.

Both are Ruoss et al. 2024 (arXiv:2402.04494), on the trunk, windows and trainer of every other learner here: the value
of a state (S-V) or of a move (SA-V) is a win probability of its player to move, put into uniform bins and learnt by
cross-entropy. A policy reads it as the expected value or as the likeliest bin's.

Axes: B positions, R rows of a network call, N tokens of a sequence, V value bins, m legal moves of a position.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.data.records import Dataset
from genpolicy.data.windows import WindowSource
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.game import Game
from genpolicy.networks.heads import UnifiedHead
from genpolicy.policies.base import Decision, legal_probabilities
from genpolicy.policies.saved import WeightsPolicy
from genpolicy.policies.tokens import NetworkLearner, NetworkLearnerConfig
from genpolicy.sequence import Layout
from genpolicy.values import bin_to_probability, probability_to_value
from genpolicy_policy_baselines import declared
from genpolicy_policy_baselines.declared import READOUTS
from genpolicy_policy_baselines.one_step import OneStepLearner, first_time

ROWS_AT_ONCE = 1024
"""Most rows of one network call; 8 layers of width 256 then take some hundred megabytes for chess."""
FloatArray = NDArray[np.float64]


@dataclass
class ValueConfig(NetworkLearnerConfig):
    """Options of the value learners."""

    num_value_bins: int = 128
    """Uniform bins of the win probability, at least 2 (Ruoss et al. 2024 take 128)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_value_bins < 2:
            raise ConfigError(f"num_value_bins must be at least 2, got {self.num_value_bins}")
        if self.train_pad:
            raise ConfigError("train_pad: a value has no PAD after it; leave it out")


class ValueLearner(OneStepLearner):
    """Cross-entropy of the binned value given the other tokens, all at once.

    Args:
        game: The game.
        config: Its options.
    """

    Config: ClassVar[type[Any]] = ValueConfig
    paradigm: ClassVar[str]
    """Of ``genpolicy.sequence``, with one value and nothing else imagined."""

    def __init__(self, game: Game[Any], config: ValueConfig) -> None:
        super().__init__(game, config, Layout(game, self.paradigm, 1, num_value_bins=config.num_value_bins))
        slot = self.layout.slot("value", 0)
        assert slot is not None
        self._place = slot.start
        bins = config.num_value_bins
        self.centres = np.array([probability_to_value(bin_to_probability(i, bins)) for i in range(bins)])
        """[V] value in [-1, 1] of each bin's centre."""

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """Positions (with a move, for SA-V) and their values; turned by symmetries in training only, where asked for.

        Raises:
            DatasetError: the split has no values of this kind; the message says which command adds them.
        """
        from genpolicy.data.window_source import build_windows

        self.check_labels(records, split)
        options = self.config.window_options(seed, training=split == self.trained_split)
        options = dataclasses.replace(options, redraw=False)  # tied moves have one value
        return build_windows(records, split, self.game, self.layout, options)

    @abstractmethod
    def check_labels(self, records: Dataset, split: str) -> None:
        """See that a split has the values to learn.

        Raises:
            DatasetError: it has none.
        """

    @torch.no_grad()
    def bin_probabilities(self, tokens: Tensor) -> Tensor:
        """[R, V] float64 probabilities of the bins, given rows of tokens [R, N] with the value masked."""
        hidden, place = self.network.trunk(tokens, first_time(tokens)), self._place
        if isinstance(self.network.head, UnifiedHead):
            # One softmax over everything at every token would be most of the work.
            hidden, place = hidden[:, place : place + 1], 0
        logits = TypedLogits.of(self.network.head(hidden, tokens))
        return logits.at(place, self.layout.value_offset, self.layout.code_offset).softmax(-1)

    def read_values(self, tokens: Tensor) -> tuple[FloatArray, FloatArray]:
        """[R] expected value and [R] value of the likeliest bin, both in [-1, 1], for the player to move."""
        chances = self.bin_probabilities(tokens).cpu().numpy()
        return chances @ self.centres, self.centres[chances.argmax(-1)]


class ValuePolicy(WeightsPolicy):
    """Plays the move that is valued highest.

    ``Decision.value`` is that move's value; ``Decision.policy`` is softmax(value / prior_temperature) over the legal
    moves, so that a search can take it for a prior. Stats: ``network_calls`` and ``ms`` (of the batch over its rows).

    Args:
        learner: Holds the weights.
        readout: ``mean``: the expected value of the bins. ``mode``: the likeliest bin's, ties by the mean.
        temperature: Temperature of the move: it is drawn from softmax(value / temperature); 0 takes the best.
        prior_temperature: Temperature of ``Decision.policy``, above 0, in units of value: at 0.1 a move that is better
            by 0.1 (five percent points of win probability) is e times as likely.
        seed: Same seed, same game.
        batch_size: Most positions in one network call, which has a row for each of their legal moves.

    Raises:
        ValueError: an option out of range.
    """

    declaration = declared.VALUES
    learner: ValueLearner

    def __init__(
        self,
        learner: NetworkLearner,
        *,
        readout: str = "mean",
        temperature: float = 0.0,
        prior_temperature: float = 0.1,
        seed: int = 0,
        batch_size: int = 16,
    ) -> None:
        if readout not in READOUTS:
            raise ValueError(f"readout is one of {', '.join(READOUTS)}; got {readout!r}")
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature must be at least 0 (0 takes the best), got {temperature}")
        if not 0 < prior_temperature < math.inf:
            raise ValueError(f"prior_temperature must be above 0, got {prior_temperature}")
        super().__init__(learner, seed=seed, batch_size=batch_size)
        self.layout = learner.layout
        self.readout, self.temperature = readout, float(temperature)
        self.prior_temperature = float(prior_temperature)

    def own_options(self) -> dict[str, Any]:
        """The constructor's options as they are."""
        return {
            **super().own_options(),
            "readout": self.readout,
            "temperature": self.temperature,
            "prior_temperature": self.prior_temperature,
        }

    @abstractmethod
    def _value_moves(
        self, states: Sequence[Any], legal: list[list[int]]
    ) -> tuple[list[FloatArray], list[FloatArray], int]:
        """For each position [m] expected values and [m] likeliest ones of its moves; and the number of network calls.

        Values are for the player who makes the move.
        """

    def _read(self, tokens: Tensor) -> tuple[FloatArray, FloatArray, int]:
        """``ValueLearner.read_values`` in parts of ``ROWS_AT_ONCE``, and the number of network calls."""
        starts = range(0, len(tokens), ROWS_AT_ONCE)
        parts = [self.learner.read_values(tokens[i : i + ROWS_AT_ONCE].to(self.device)) for i in starts]
        means, modes = (np.concatenate(column) for column in zip(*parts, strict=True))
        return means, modes, len(parts)

    def _decide_batch(self, states: Sequence[Any], legal: list[list[int]], seeds: Sequence[int]) -> list[Decision]:
        began = time.perf_counter()
        means, modes, calls = self._value_moves(states, legal)
        stats = {
            "network_calls": float(calls),
            "raw_legal": 1.0,
            "ms": 1e3 * (time.perf_counter() - began) / len(states),
        }
        return [self._choose(*row, stats) for row in zip(legal, means, modes, seeds, strict=True)]

    def _choose(
        self, legal: list[int], means: FloatArray, modes: FloatArray, seed: int, stats: dict[str, float]
    ) -> Decision:
        ids = np.array(legal, np.int64)
        values = means if self.readout == "mean" else modes
        best = int(np.lexsort((-means, -values))[0])  # the last key counts first; equal moves in the order of their ids
        chosen = best
        if self.temperature > 0:
            chances = legal_probabilities(ids, values / self.temperature)
            chosen = int(np.random.default_rng(seed).choice(len(ids), p=list(chances.values())))
        policy = legal_probabilities(ids, values / self.prior_temperature)
        move = int(ids[chosen])
        value = float(np.clip(values[best], -1.0, 1.0))
        return Decision(move, policy, value, line=(move,), stats=stats, names=self.game.moves.texts)


def missing_labels(records: Dataset, split: str, what: str, command: str) -> DatasetError:
    """What to say of a split that has no values of a kind."""
    return DatasetError(
        f"{records.folder}: split {split!r} has no {what}; this adds them (or with an engine for the oracle): {command}"
    )
