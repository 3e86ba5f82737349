"""The stream of training batches: a seeded order for every epoch, made ahead by a thread, resumable at any update.

Update u takes the windows at positions u B to (u + 1) B - 1 of the endless sequence "epoch 0 shuffled, epoch 1
shuffled, ...", so where a run stands in its data is one number. Process r of W takes every W-th of them.

Axes: B records of an update.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.data.counter_rng import Shuffle
from genpolicy.data.windows import Batch, WindowSource, concatenate
from genpolicy.errors import TrainingError


class BatchStream:
    """Batches of a window source from one update on.

    Args:
        source: The windows.
        batch_size: Records B of an update over all processes; a multiple of ``num_processes * accumulate``.
        seed: Of the order.
        accumulate: Parts of an update.
        process, num_processes: Which share of each update is ours.
        prefetch: Updates made ahead by a thread; 0 makes each when it is asked for.
        pin: Put batches into page-locked memory, from which a GPU copies faster.
    """

    def __init__(
        self,
        source: WindowSource,
        batch_size: int,
        seed: int,
        *,
        accumulate: int = 1,
        process: int = 0,
        num_processes: int = 1,
        prefetch: int = 0,
        pin: bool = False,
    ) -> None:
        if batch_size % (num_processes * accumulate):
            raise ValueError(
                f"trainer.batch_size={batch_size} is not a multiple of {num_processes} processes times "
                f"trainer.accumulate={accumulate}"
            )
        self._source, self._batch_size, self._accumulate = source, batch_size, accumulate
        self._process, self._num_processes = process, num_processes
        self._prefetch, self._pin = prefetch, pin
        self._shuffle = Shuffle(len(source), seed)

    def parts(self, update: int) -> list[Batch]:
        """The parts of one update, for this process.

        Raises:
            TrainingError: the source has grown or shrunk since the stream was made.
        """
        if len(self._source) != self._shuffle.n:
            raise TrainingError(
                f"{type(self._source).__name__} had {self._shuffle.n} windows when training began and has "
                f"{len(self._source)} now; the order of a shuffled source is fixed, so its length must not change"
            )
        positions = np.arange(update * self._batch_size, (update + 1) * self._batch_size, dtype=np.int64)
        mine = positions[self._process :: self._num_processes]
        return [self._at(part) for part in np.split(mine, self._accumulate)]

    def _at(self, positions: NDArray[np.int64]) -> Batch:
        epochs = positions // self._shuffle.n
        pieces = []
        for epoch in np.unique(epochs):
            within = positions[epochs == epoch] % self._shuffle.n
            pieces.append(self._source.batch(self._shuffle(within, int(epoch)), int(epoch)))
        batch = pieces[0] if len(pieces) == 1 else concatenate(pieces)
        if not self._pin:
            return batch
        return batch.map(Tensor.pin_memory)

    def starting_at(self, update: int) -> Generator[list[Batch], None, None]:
        """The parts of this update, of the next, and so on without end. Closing the iterator ends its thread."""
        if self._prefetch == 0:
            while True:
                yield self.parts(update)
                update += 1
        ready: queue.Queue[list[Batch] | BaseException] = queue.Queue(maxsize=self._prefetch)
        stop = threading.Event()

        def put(item: list[Batch] | BaseException) -> None:
            while not stop.is_set():
                try:
                    ready.put(item, timeout=0.1)
                    return
                except queue.Full:
                    continue

        def work(next_update: int) -> None:
            try:
                while not stop.is_set():
                    put(self.parts(next_update))
                    next_update += 1
            except BaseException as error:  # raised again where the batch is waited for
                put(error)

        thread = threading.Thread(target=work, args=(update,), name="genpolicy-batches", daemon=True)
        thread.start()
        try:
            while True:
                item = ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stop.set()
            thread.join()
