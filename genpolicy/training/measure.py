"""What is measured during training: loss and ELBO on validation windows, and how often the policy plays a best move."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from genpolicy.control import FREE
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.policies.base import decide_with
from genpolicy.policies.decision import require_legal
from genpolicy.policies.learner import Learner
from genpolicy.training.config import TrainerConfig

FIGURES = ("loss", "elbo_nats", "accuracy", "raw_legal")
Sums = dict[str, tuple[float, float]]
"""Total and weight by the name of a figure; their ratio is the figure."""


class Validation:
    """Measures on a fixed set of windows and positions spread over a split, the same every time.

    Each of the processes has its share of them.

    Raises:
        ConfigError: accuracy is asked of a learner that does not play.
    """

    def __init__(
        self, learner: Learner, records: Dataset, split: str, options: TrainerConfig, process: int, num_processes: int
    ) -> None:
        self._learner, self._records, self._split, self._options = learner, records, split, options
        self._source = learner.source(records, split, seed=options.seed)
        self.num_windows = min(options.eval_records, len(self._source))
        """Windows of all shares that the loss is averaged over; 0: it is not measured."""
        chosen = np.linspace(0, len(self._source) - 1, self.num_windows).astype(np.int64)
        self._windows = chosen[process::num_processes]
        every = _positions(records, split, learner.game, options.accuracy_records)
        if every and not learner.plays:
            raise ConfigError(
                f"trainer.accuracy_records={options.accuracy_records}: the policy of {type(learner).__name__}, as "
                "configured, does not play yet, so it has no accuracy; set trainer.accuracy_records=0"
            )
        self._positions = every[process::num_processes]
        self._is_main = process == 0
        self._batch_size = max(1, options.batch_size // options.accumulate // num_processes)

    @torch.no_grad()
    def sums(self, device: torch.device) -> Sums:
        """Total and weight of each figure over our share.

        ``loss``, ``elbo_nats`` (nats) and the learner's ``metrics`` are over windows; ``accuracy`` (the part that is a
        best move) and ``raw_legal`` (the part that is legal without the mask) are over positions. What the learner
        measures itself is in the first process's share. The noise is the same each time, and metrics have noise of
        their own. The caller keeps the global generators as they were.

        Raises:
            ValueError: the learner gives a figure the name of another.
            RegistryError: the policy does not give one ``Decision`` for each position, or an illegal move.
        """
        learner = self._learner
        learner.eval()
        try:
            noise, other_noise = (torch.Generator(device).manual_seed(self._options.seed) for _ in range(2))
            sums: Sums = {}
            for start in range(0, len(self._windows), self._batch_size):
                batch = self._source.batch(self._windows[start : start + self._batch_size], 0).to(device)
                loss, _ = learner.loss(batch, noise)
                _add(sums, "loss", float(loss.double()) * len(batch), len(batch))
                _add(sums, "elbo_nats", float(learner.elbo(batch, noise).double().sum()), len(batch))
                metrics = learner.metrics(batch, other_noise)
                _require_names(learner, metrics, FIGURES)
                for name, value in metrics.items():
                    if not math.isnan(number := float(value.double())):
                        _add(sums, name, number * len(batch), len(batch))
            if self._positions:
                policy = learner.policy()
                policy = policy.modes().get("one_call", policy)
                states = [state for state, _ in self._positions]
                decisions = decide_with(policy, states, FREE)
                require_legal(policy, states, decisions)
                hits = sum(d.move in best for d, (_, best) in zip(decisions, self._positions, strict=True))
                _add(sums, "accuracy", hits, len(decisions))
                _add(sums, "raw_legal", sum(d.stats.get("raw_legal", math.nan) for d in decisions), len(decisions))
            if self._is_main and self._options.accuracy_records:
                more = learner.measure(self._records, self._split, self._options.accuracy_records)
                _require_names(learner, more, {*FIGURES, *sums})
                sums |= {name: (value, 1.0) for name, value in more.items()}
            return sums
        finally:
            learner.train()


def _require_names(learner: Learner, names: Iterable[str], in_use: Collection[str]) -> None:
    for name in names:
        if name in in_use:
            raise ValueError(f"{type(learner).__name__}: validation/{name} is measured already; rename this figure")


def _add(sums: Sums, name: str, total: float, weight: float) -> None:
    before, weight_before = sums.get(name, (0.0, 0.0))
    sums[name] = (before + total, weight_before + weight)


def averages(shares: Sequence[Sums]) -> dict[str, float]:
    """The figures ``validation/...`` of the sums of all processes; NaN, which was not measured, is left out."""
    together: Sums = {}
    for share in shares:
        for name, (total, weight) in share.items():
            _add(together, name, total, weight)
    figures = {f"validation/{name}": total / weight for name, (total, weight) in together.items()}
    return {name: value for name, value in figures.items() if not math.isnan(value)}


def _positions(dataset: Dataset, split: str, game: Game[Any], count: int) -> list[tuple[Any, frozenset[int]]]:
    """Up to ``count`` labelled positions spread over a split, with the labelled move and all that tie with the best."""
    if count == 0:
        return []
    lines = (line for batch in dataset.batches(["line"], split) for line in batch.column("line").to_pylist())
    labelled = np.array([row for row, line in enumerate(lines) if line], np.int64)
    spread = np.linspace(0, len(labelled) - 1, min(count, len(labelled))).astype(np.int64)
    chosen = set(labelled[spread].tolist())
    records = (record for row, record in enumerate(dataset.records(split)) if row in chosen)
    return [(game.parse(r.state), r.best_moves(game)) for r in records]
