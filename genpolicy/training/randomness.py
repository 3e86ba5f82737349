"""The state of every random generator as tensors, so that a checkpoint can hold it without pickle."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from genpolicy.data.counter_rng import bits


def capture(generator: torch.Generator | None = None) -> dict[str, Tensor]:
    """States of Python's, NumPy's and torch's global generators, the GPU's, and of ``generator``, on the CPU."""
    _, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    if name != "MT19937":
        raise RuntimeError(f"NumPy's global generator is {name!r}; only its own MT19937 can be saved")
    states = {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor([math.nan if gauss is None else gauss], dtype=torch.float64),
        "numpy": torch.from_numpy(np.append(np.asarray(keys, np.int64), [position, has_gauss])),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    if generator is not None:
        states["generator"] = generator.get_state()
    return states


def restore(states: dict[str, Tensor], generator: torch.Generator | None = None) -> None:
    """Put every generator back to its state at ``capture``; a GPU's state is skipped where there is no GPU."""
    gauss = float(states["python_gauss"][0])
    random.setstate((3, tuple(states["python"].tolist()), None if math.isnan(gauss) else gauss))
    packed = states["numpy"].numpy()
    keys, position, has_gauss = packed[:-2].astype(np.uint32), int(packed[-2]), int(packed[-1])
    np.random.set_state(("MT19937", keys, position, has_gauss, float(states["numpy_gauss"][0])))
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if generator is not None:
        generator.set_state(states["generator"])


@contextmanager
def preserved(generator: torch.Generator | None = None) -> Iterator[None]:
    """Whatever is drawn inside leaves the generators as they were."""
    before = capture(generator)
    try:
        yield
    finally:
        restore(before, generator)


def seed_of_process(seed: int, process: int) -> int:
    """Seed of what a process of a run draws for itself: the run's own for process 0, however many there are.

    Runs of neighbouring seeds have no stream in common, as they would if the process's number were added.
    """
    return int(bits(seed, process)[0]) if process else seed


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's global generators (initial weights and dropout draw from them)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
