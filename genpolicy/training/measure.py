"""What is measured on the way: loss and ELBO on validation windows, and how often the policy's move is a best one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from genpolicy.data.records import Dataset, Record
from genpolicy.data.windows import WindowSource
from genpolicy.game import Game
from genpolicy.policies.learner import Learner
from genpolicy.values import score_to_value


@dataclass(frozen=True)
class Question:
    """A validation position and its best moves."""

    state: Any
    best: frozenset[int]


class Validation:
    """A fixed set of windows and positions, the same at every measurement.

    Args:
        source: The windows of the validation split.
        questions: Positions that the policy is asked.
        num_windows: Windows that loss and ELBO are averaged over, spread over the split.
        batch_size: Windows of one network call.
        process, num_processes: Which share of them is ours.
    """

    def __init__(
        self,
        source: WindowSource,
        questions: list[Question],
        num_windows: int,
        batch_size: int,
        process: int,
        num_processes: int,
    ) -> None:
        self._source = source
        num_windows = min(num_windows, len(source))
        chosen = np.linspace(0, len(source) - 1, num_windows).astype(np.int64) if num_windows else np.empty(0, np.int64)
        self._windows = chosen[process::num_processes]
        self._questions = questions[process::num_processes]
        self._batch_size = batch_size

    @torch.no_grad()
    def sums(self, learner: Learner, device: torch.device, seed: int) -> torch.Tensor:
        """[6] float64 sums over our share: windows, loss, ELBO in nats; positions, best moves, legal without the mask.

        The noise is the same each time. The caller keeps the global generators as they were.
        """
        learner.eval()
        try:
            generator = torch.Generator(device).manual_seed(seed)
            totals = torch.zeros(6, dtype=torch.float64)
            for start in range(0, len(self._windows), self._batch_size):
                batch = self._source.batch(self._windows[start : start + self._batch_size], 0).to(device)
                n = len(batch.tokens)
                loss, _ = learner.loss(batch, generator)
                elbo = learner.elbo(batch, generator).double().sum().cpu()
                totals[:3] += torch.stack([torch.tensor(float(n)).double(), loss.double().cpu() * n, elbo])
            if self._questions:
                policy = learner.policy()
                policy = policy.modes().get("one_call", policy)
                decisions = policy.decide([question.state for question in self._questions])
                hits = sum(d.move in q.best for d, q in zip(decisions, self._questions, strict=True))
                raw = sum(d.stats.get("raw_legal", float("nan")) for d in decisions)
                totals[3:] = torch.tensor([len(decisions), hits, raw], dtype=torch.float64)
            return totals
        finally:
            learner.train()


def averages(sums: torch.Tensor) -> dict[str, float]:
    """The figures that sums over all processes stand for; what was not measured is left out."""
    windows, loss, elbo, positions, hits, raw = sums.tolist()
    figures: dict[str, float] = {}
    if windows:
        figures |= {"validation/loss": loss / windows, "validation/elbo_nats": elbo / windows}
    if positions:
        figures |= {"validation/accuracy": hits / positions, "validation/raw_legal": raw / positions}
    return {name: value for name, value in figures.items() if value == value}


def questions(dataset: Dataset, split: str, game: Game[Any], count: int) -> list[Question]:
    """Up to ``count`` labelled positions spread over a split, with the labelled move and all that tie with it."""
    if count == 0:
        return []
    total = sum(batch.num_rows for batch in dataset.batches(["split"], split))
    every = max(1, total // count)
    found: list[Question] = []
    for record in _every(dataset.records(split), every):
        if record.line and len(found) < count:
            found.append(Question(game.parse(record.state), frozenset(_best(record, game))))
    return found


def _every(records: Iterator[Record], step: int) -> Iterator[Record]:
    return (record for number, record in enumerate(records) if number % step == 0)


def _best(record: Record, game: Game[Any]) -> list[int]:
    values = {move: score_to_value(score) for move, score in record.scored_moves.items()}
    tied = [move for move, value in values.items() if value == max(values.values())]
    return [game.moves.index(move) for move in {record.moves[0], *tied}]
