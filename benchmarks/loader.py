"""Does the data loader keep up with the trainer, and does its memory stay the same when the data set grows?

Run ``python benchmarks/loader.py [--records 50000] [--config configs/chess/demo.yaml]``. It makes a data set of random
chess games, builds the cache of windows (s | a s a s a s a, 312 tokens), and prints

* records per second of the loader alone (order, gather, tensors; one thread),
* records per second of training with the configuration, and the ratio, which should be at least 10,
* the memory of a process that only loads, over a data set of this size and of four times this size.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from ratios import describe, rate, ratio

import genpolicy
from genpolicy.config import compose
from genpolicy.data.records import Dataset, DatasetInfo, Record
from genpolicy.data.stream import Share, ShuffledWindows
from genpolicy.data.window_source import build_windows
from genpolicy.data.windows import WindowSource
from genpolicy.sequence import Layout
from genpolicy.training import setup
from genpolicy.training.config import RunConfig
from genpolicy.training.run import Run
from genpolicy_labelling.writer import DatasetWriter

RUN = {"rounds": "--updates", "quick": ["--records", "4000", "--updates", "2"]}
BATCH = 1024
UPDATES = 60


def random_records(game: Any, count: int) -> list[Record]:
    """Positions of random games, each with the four moves that came next."""
    rng, records = random.Random(0), list[Record]()
    number = 0
    while len(records) < count:
        states, moves = [game.parse()], list[str]()
        while len(moves) < 120 and len(legal := game.legal(states[-1])):
            move = int(rng.choice(legal))
            moves.append(game.moves[move])
            states.append(game.play(states[-1], move))
        for ply in range(len(moves) - 4):
            line = " ".join(moves[ply : ply + 4])
            records.append(Record(game.format(states[ply]), game_id=str(number), ply=ply, line=line, split="train"))
        number += 1
    return records[:count]


def write(folder: Path, records: list[Record], times: int) -> None:
    """A data set that holds the records so many times."""
    with DatasetWriter(folder, DatasetInfo(game="chess", made_by="label"), journal=False) as writer:
        for unit in range(times):
            writer.add(unit, records)
        writer.finish({"splits": {"train": len(records) * times}})


def windows(folder: Path, paradigm: str = "s-asa", horizon: int = 4) -> WindowSource:
    game = genpolicy.load_game("chess")
    layout = Layout(game, paradigm, horizon)
    dataset = Dataset.open(folder)
    return build_windows(dataset, "train", game, layout)


def loader_rates(source: WindowSource, updates: int = UPDATES) -> list[float]:
    """Records per second of each batch after three to warm up."""
    stream, rates = ShuffledWindows(source, seed=0), list[float]()
    stream.begin(Share(BATCH))
    for update in range(updates + 3):
        start = time.perf_counter()
        stream.parts(update)
        rates.append(BATCH / (time.perf_counter() - start))
    return rates[3:]


def memory_mib(key: str) -> float:
    """A line of this process's ``/proc/self/status`` in MiB; NaN where there is none."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else []:
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    return float("nan")


def load_only(folder: Path) -> None:
    """In a process of its own: go through the cache once and print the growth of its memory."""
    source = windows(folder)
    before = memory_mib("VmRSS")
    highest = before
    stream = ShuffledWindows(source, seed=0)
    stream.begin(Share(BATCH))
    for update in range(-(-len(source) // BATCH)):
        stream.parts(update)
        highest = max(highest, memory_mib("VmRSS"))
    print(f"{before:.0f} MiB before, {highest:.0f} MiB at most while loading {len(source):,} windows")


def trainer_rate(config_file: Path, folder: Path, updates: int, scratch: Path) -> tuple[list[float], int, str]:
    """Records per second of training updates, the batch, and what it ran on."""
    settings = [f"data.folder={folder}", "data.validation=null", f"out={scratch}", "trainer.tensorboard=false"]
    config = compose(RunConfig, [config_file], settings)
    if not torch.cuda.is_available():
        config.trainer.batch_size = min(config.trainer.batch_size, 64)
    run = Run(setup.filled_in(config), ExitStack(), resume=False, overwrite=True)
    rates = []
    for parts in islice(run.updates.starting_at(0), updates + 2):
        start = time.perf_counter()
        for part in parts:
            loss, _ = run.module(part.to(run.device), run.generator)
            run.accelerator.backward(loss)
        for optimizer in run.optimizers.values():
            optimizer.step()
            optimizer.zero_grad()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        rates.append(config.trainer.batch_size / (time.perf_counter() - start))
    return rates[2:], config.trainer.batch_size, f"{run.device}, {run.accelerator.mixed_precision}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--config", type=Path, default=Path("configs/chess/demo.yaml"))
    parser.add_argument("--updates", type=int, default=5, help="training updates that are timed")
    parser.add_argument("--load-only", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load_only:
        load_only(arguments.load_only)
        return
    describe(f"loader, {arguments.records} records, {torch.get_num_threads()} threads")
    game = genpolicy.load_game("chess")
    with tempfile.TemporaryDirectory() as scratch:
        one, four = Path(scratch) / "one", Path(scratch) / "four"
        records = random_records(game, arguments.records)
        write(one, records, 1)
        write(four, records, 4)
        start = time.perf_counter()
        source = windows(one)
        seconds = time.perf_counter() - start
        print(f"cache of {len(source):,} windows built in {seconds:.1f} s: {len(source) / seconds:,.0f} records/s")
        loader = loader_rates(source)
        rate(f"loader, batch {BATCH}", loader, "records/s")
        trainer, batch, where = trainer_rate(arguments.config, one, arguments.updates, Path(scratch) / "run")
        rate(f"trainer, {arguments.config}, batch {batch}, {where}", trainer, "records/s")
        middle = statistics.median(loader)
        ratio("loader (its median) over trainer", [middle] * len(trainer), trainer, rates=True, wanted="at least 10")
        for name, folder in (("1x", one), ("4x", four)):
            call = [sys.executable, __file__, "--load-only", str(folder)]
            told = subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
            print(f"memory, {name}: {told}")


if __name__ == "__main__":
    main()
