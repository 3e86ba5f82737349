"""Stream: where training takes the batches of its updates from, and a thread that makes them ahead.

``ShuffledWindows`` is the stream over a ``WindowSource``, whose length is fixed: update u takes the windows at
positions u B to (u + 1) B - 1 of the endless sequence "epoch 0 shuffled, epoch 1 shuffled, ...", so where a run stands
in its data is one number. A stream that grows (a replay of games played during training) is a class of its own.

Axes: B records of an update.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.data.counter_rng import Shuffle, bits
from genpolicy.data.windows import Batch, WindowSource, concatenate
from genpolicy.errors import TrainingError


@dataclass(frozen=True)
class Share:
    """Which part of each update a process makes: every ``num_processes``-th record, in ``accumulate`` equal parts.

    Raises:
        ValueError: an update does not divide into so many parts.
    """

    batch_size: int
    """Records B of an update, over all processes."""
    accumulate: int = 1
    """Parts that a process computes one after the other."""
    process: int = 0
    num_processes: int = 1

    def __post_init__(self) -> None:
        if self.batch_size % (self.num_processes * self.accumulate):
            raise ValueError(
                f"trainer.batch_size={self.batch_size} is not a multiple of {self.num_processes} processes times "
                f"trainer.accumulate={self.accumulate}"
            )

    @property
    def part_size(self) -> int:
        """Records of a part."""
        return self.batch_size // (self.num_processes * self.accumulate)

    def positions(self, update: int) -> list[NDArray[np.int64]]:
        """For each part of an update, where its records stand among the records of all updates, counted from 0."""
        every = np.arange(update * self.batch_size, (update + 1) * self.batch_size, dtype=np.int64)
        return np.split(every[self.process :: self.num_processes], self.accumulate)


class Stream(ABC):
    """Batches for one update after the other.

    A run that is resumed makes a stream anew, gives it the saved ``state_dict``, and asks for the next update; its
    batches must then be those of a run that was never interrupted.
    """

    prefetchable: ClassVar[bool] = False
    """Whether ``parts`` depends on nothing but the update and the share, and the stream has no state. A thread then
    makes batches while earlier ones are trained on; otherwise ``parts`` is called when the update before is done."""
    share: Share

    def begin(self, share: Share) -> None:
        """Called once, before ``parts`` and before a state is loaded."""
        self.share = share

    @property
    def num_records(self) -> int | None:
        """Records of one epoch, the same at any time; None where that is not fixed, as in a stream that grows."""
        return None

    @abstractmethod
    def parts(self, update: int) -> list[Batch]:
        """The batches of an update for this process: ``share.accumulate`` parts of ``share.part_size`` records each.

        Args:
            update: Counted from 0; the next one at each call, unless ``prefetchable``.
        """

    def state_dict(self) -> dict[str, Any]:
        """What ``parts`` depends on besides the update: tensors, and values that JSON can hold."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave at the end of an update."""
        if state:
            raise TrainingError(f"{type(self).__name__} has a state_dict and does not say how to load it")


class ShuffledWindows(Stream):
    """All windows of a source, whose number must not change, in a seeded order, another one in every epoch."""

    prefetchable: ClassVar[bool] = True

    def __init__(self, source: WindowSource, seed: int) -> None:
        self._source, self._shuffle = source, Shuffle(len(source), seed)

    @property
    def num_records(self) -> int:
        """Windows of the source."""
        return self._shuffle.n

    def parts(self, update: int) -> list[Batch]:
        """See ``Stream.parts``.

        Raises:
            TrainingError: the source has grown or shrunk since the stream was made.
        """
        if len(self._source) != self._shuffle.n:
            raise TrainingError(
                f"{type(self._source).__name__} had {self._shuffle.n} windows when training began and has "
                f"{len(self._source)} now; a source that grows must be a Stream (genpolicy.data.stream)"
            )
        return [self.at(positions) for positions in self.share.positions(update)]

    def at(self, positions: NDArray[np.int64]) -> Batch:
        """The windows at some places [B] of the endless sequence."""
        epochs = positions // self._shuffle.n
        pieces = []
        for epoch in np.unique(epochs):
            within = positions[epochs == epoch] % self._shuffle.n
            pieces.append(self._source.batch(self._shuffle(within, int(epoch)), int(epoch)))
        return pieces[0] if len(pieces) == 1 else concatenate(pieces)


class MixedWindows(Stream):
    """Windows of several sources, each of which has a given part of the records, whatever its size.

    Args:
        sources: The windows.
        shares: Parts of the records, above 0, which add up to 1.
        seed: Seed of the sources' orders, which do not depend on each other.
    """

    prefetchable: ClassVar[bool] = True

    def __init__(self, sources: Sequence[WindowSource], shares: Sequence[float], seed: int) -> None:
        # The largest takes what the others, rounded down, leave over: that is never negative where updates are large.
        order = np.argsort(shares, kind="stable")
        # In one order, two labellings of the same positions would show each of them twice in an update.
        self._sources = [ShuffledWindows(sources[at], int(bits(seed, at)[0])) for at in order]
        self._shares = np.array([shares[at] for at in order])[:-1]

    @property
    def num_records(self) -> int:
        """Windows of all sources."""
        return sum(source.num_records for source in self._sources)

    def begin(self, share: Share) -> None:
        """See ``Stream.begin``.

        Raises:
            ValueError: updates of too few records for so many sources.
        """
        super().begin(share)
        self.require(share, len(self._sources))

    @staticmethod
    def require(share: Share, num_sources: int) -> None:
        """Raise a ValueError where updates are too small for every one of so many sources to have its part."""
        if share.batch_size < num_sources**2:
            raise ValueError(
                f"trainer.batch_size={share.batch_size} is too small for {num_sources} folders with shares: "
                f"take at least {num_sources**2}"
            )

    def parts(self, update: int) -> list[Batch]:
        """See ``Stream.parts``."""
        begin, end = (self._taken(number * self.share.batch_size) for number in (update, update + 1))
        which = np.repeat(np.arange(len(begin)), end - begin)
        places = np.concatenate([np.arange(*each, dtype=np.int64) for each in zip(begin, end, strict=True)])
        # Evenly mixed: a loss may be a mean over a part's labelled records, and it spreads its times over the rows.
        mixed = np.argsort(np.concatenate([(np.arange(num) + 0.5) / num for num in end - begin]), kind="stable")
        which, places = which[mixed], places[mixed]
        parts = []
        for rows in self.share.positions(update):
            at = rows - update * self.share.batch_size
            chosen = [(source, places[at][which[at] == i]) for i, source in enumerate(self._sources)]
            by_source = concatenate([source.at(some) for source, some in chosen if len(some)])
            parts.append(by_source.rows(torch.from_numpy(np.argsort(which[at], kind="stable").argsort())))
        return parts

    def _taken(self, num_records: int) -> NDArray[np.int64]:
        """Records of each source among the first so many."""
        some = np.floor(self._shares * num_records).astype(np.int64)
        return np.append(some, num_records - some.sum())


class Updates:
    """The checked parts of one update after the other.

    Args:
        stream: Where they come from.
        share: Which of them are ours.
        owner: Whose stream it is, for messages.
        prefetch: Updates that a thread makes ahead, where the stream allows it.
        pin: Put batches into page-locked memory, from which a GPU copies faster.
    """

    def __init__(self, stream: Stream, share: Share, owner: str, *, prefetch: int = 0, pin: bool = False) -> None:
        self.stream, self._share, self._pin = stream, share, pin
        self._name = f"{owner}: its stream {type(stream).__name__}"
        self._prefetch = prefetch if stream.prefetchable else 0
        stream.begin(share)
        self.num_records = stream.num_records
        """Records of one epoch; None where the stream has no such number."""

    def parts(self, update: int) -> list[Batch]:
        """The parts of one update, for this process.

        Raises:
            TrainingError: the stream broke its contract; the message names it and its learner.
        """
        parts = self.stream.parts(update)
        made: object = parts  # third parties write streams
        if not isinstance(made, list) or not all(isinstance(part, Batch) for part in made):
            raise TrainingError(f"{self._name} made {made!r:.80} for update {update + 1}, not a list of Batch")
        if self.stream.num_records != self.num_records:
            raise TrainingError(
                f"{self._name} said num_records={self.num_records} when training began and says "
                f"{self.stream.num_records} after update {update}; a stream that grows must say None"
            )
        sizes, expected = [len(part) for part in parts], [self._share.part_size] * self._share.accumulate
        if sizes != expected:
            raise TrainingError(
                f"{self._name} made parts of {_listed(sizes)} records for update {update + 1}, expected "
                f"{_listed(expected)} (Stream.share says how many)"
            )
        return [part.map(Tensor.pin_memory) for part in parts] if self._pin else parts

    def starting_at(self, update: int) -> Generator[list[Batch], None, None]:
        """The parts of this update, of the next, and so on without end. Closing the iterator ends its thread."""
        if self._prefetch == 0:
            while True:
                yield self.parts(update)
                update += 1
        pool, later = ThreadPoolExecutor(1, "genpolicy-batches"), itertools.count(update)
        try:
            ahead = deque(pool.submit(self.parts, next(later)) for _ in range(self._prefetch))
            while True:
                parts = ahead.popleft().result()  # raises what the thread has met
                ahead.append(pool.submit(self.parts, next(later)))
                yield parts
        finally:
            pool.shutdown(cancel_futures=True)


def _listed(sizes: Sequence[int]) -> str:
    return " + ".join(map(str, sizes)) or "no"
