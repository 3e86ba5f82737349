"""What a run would take on an H200, on eight, and with a hundred actors: prices from rates that are measured here.

    python benchmarks/scale.py [--nodes 20000] [--labels 64] [--updates 2]

Measured, in CPU time, since others share the machine: a label by an engine, a record of training on one core, a record
of self-play by the loop's search; and, exactly, the bytes of a record and the operations of one. For the GPU nothing is
measured: operations over its peak and over the part of it that is stated, which is an estimate and is called one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from ratios import describe, times

import genpolicy
from genpolicy import cli
from genpolicy.config import compose, read_yaml
from genpolicy.data.oracle import make_oracle
from genpolicy.data.records import Dataset
from genpolicy.policies.learner import Learner
from genpolicy.shipped import data_folder
from genpolicy.training.config import RunConfig
from genpolicy.training.setup import make_learner
from genpolicy_engines.oracle import find_engine

RUN = {"rounds": "--updates", "quick": ["--labels", "8", "--nodes", "400"], "programs": ["stockfish"]}
CONFIGS = ("chess/diffusearch-10k", "chess/demo-imagine", "chess/demo-s-a")
GAMES, POSITIONS, EPOCHS = (10_000, 100_000), 66.0, 200
"""Of the paper's recipes: games, positions of a game (660,000 of 10,000 games), and passes over them."""
PEAK, SHARES, WITH_MANY = 989e12, (0.1, 0.3), 0.9
"""FLOP/s of an H200 (bf16, dense, its data sheet), the parts of it that may be used, and what of eight is kept."""
ANSWER_S = 0.0005
"""The command's CPU for an answer (benchmarks/thousand_workers.py)."""
ACTORS = (2, 16, 100, 1000)


def children_s() -> float:
    """CPU time of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def label_s(data: Dataset, engine: str, nodes: int, number: int) -> list[float]:
    """CPU seconds of a label, in four rounds; starting the engine is in it, a thousandth of such a run."""
    game = genpolicy.load_game(data.game_spec)
    states = [game.parse(record.state) for record in islice(data.records(), 0, 600 * number, 600)]
    seconds = []
    for part in range(4):
        before, here = children_s(), time.process_time()
        with make_oracle(f"{engine}?nodes={nodes}", game, processes=1) as oracle:
            oracle.analyse(states[part::4], 8)
        seconds.append((children_s() - before + time.process_time() - here) / len(states[part::4]))
    return seconds


def learner_of(name: str, data: Dataset) -> Learner:
    """The learner of a configuration."""
    return make_learner(genpolicy.load_game(data.game_spec), compose(RunConfig, [name], []).learner)


def record_s(learner: Learner, data: Dataset, size: int, updates: int) -> list[float]:
    """CPU seconds of a record of training, forward, backward and update, on one thread, after one update."""
    optimiser = torch.optim.AdamW(learner.parameters(), lr=1e-4)
    windows, seconds = learner.windows(data, "train", seed=0), []
    for update in range(updates + 1):
        began = time.process_time()
        loss, _ = learner.loss(
            windows.batch((np.arange(size) + update * size) % len(windows), update), torch.Generator()
        )
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        seconds.append((time.process_time() - began) / size)
    return seconds[1:]


def played_s(games: int) -> tuple[dict[str, tuple[float, float]], list[float]]:
    """CPU seconds of self-play of ``connect/loop-3x3``, of a game and of a record, in its first generation (by random
    playouts) and later (a network of its shape, hardly trained); and those of a record of its training.
    """
    seconds = {}
    search = "simulations%3D16%26root%3Dgumbel"
    game = "connect:rows=3,cols=3,k=3,gravity=false"
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(scratch)
        network = [f"game={game}", f"data.folder={folder}/playouts", "data.validation=null", "trainer.max_steps=2"]
        for name, player in (("playouts", "rollout"), ("network", f"{folder}/run/policy")):
            oracle = f"policy:mcts:{player}%3F{search}?together=64"
            words = ["data", "selfplay", "--game", game, "--games", str(games), "--oracle", oracle]
            words += ["--temperature", "1:5", "--random-plies", "0:2", "--split", "1/0/0", "--out", str(folder / name)]
            before = time.process_time() + children_s()
            assert cli.main(words) == 0
            spent = time.process_time() + children_s() - before
            seconds[name] = spent / games, spent / Dataset.open(folder / name).num_records
            if name == "playouts":
                config = ["train", "--config", "connect/policy-value-3x3", "--out", str(folder / "run"), *network]
                assert cli.main(config) == 0
        data = Dataset.open(folder / "network")
        trained = record_s(learner_of("connect/policy-value-3x3", data), data, 128, 4)
    return seconds, trained


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h" if seconds < 360_000 else f"{seconds / 3600:,.0f} h"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="stockfish")
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--labels", type=int, default=64)
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--records", type=int, default=8, help="records of an update")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = data_folder("sample:chess")
    data = Dataset.open(folder)
    describe(f"CPU time; {arguments.nodes} nodes a label, {arguments.labels} labels, {arguments.updates} updates")
    labels = label_s(data, find_engine(arguments.engine), arguments.nodes, arguments.labels)
    times("a label, on one core", labels)
    size = sum((folder / str(shard["file"])).stat().st_size for shard in data.info.shards) / data.num_records
    print(f"a record on the disk: {size:.0f} bytes of {data.num_records:,} records of sample:chess")
    played, learnt = played_s(64)
    for name, (game_s, position_s) in played.items():
        text = f"{1e3 * game_s:.1f} ms of a core a game, {1e3 * position_s:.2f} a record"
        print(f"self-play of connect/loop-3x3 by {name}: {text}")
    times("training of connect/loop-3x3, a record on one core", learnt)
    operations = {}
    for name in CONFIGS:
        learner = learner_of(name, data)
        operations[name] = learner.flops_per_record() or 0.0
        spent = record_s(learner, data, arguments.records, arguments.updates)
        times(f"{name}: {operations[name]:.3g} FLOP a record; on one core", spent)
    print("\nEstimate: a GPU that uses 10 % and 30 % of 989 TFLOP/s (bf16), eight of them keeping 90 % of it")
    for name in CONFIGS:
        rates = [share * PEAK / operations[name] for share in SHARES]
        print(f"{name}: {rates[0]:,.0f} to {rates[1]:,.0f} records/s on one; eight {8 * WITH_MANY:.1f} times that")
    label = float(np.median(labels))
    for games in GAMES:
        records = games * POSITIONS
        trained = [records * EPOCHS * operations[CONFIGS[0]] / (share * PEAK) for share in SHARES]
        print(
            f"\nthe paper's recipe, {games:,} games: {records:,.0f} records, {records * size / 1e6:,.0f} MB on the disk"
        )
        print(f"  training, one H200: {hours(trained[1])} to {hours(trained[0])}; ", end="")
        print(f"eight: {hours(trained[1] / 8 / WITH_MANY)} to {hours(trained[0] / 8 / WITH_MANY)}")
        for actors in ACTORS:
            work = max(records * label / actors, records * ANSWER_S)
            limit = "the command" if records * ANSWER_S > records * label / actors else "the engines"
            print(f"  labels, {actors:4d} cores: {hours(work)}, limited by {limit}")
    loop = compose_loop()
    print(f"\nconnect/loop-3x3: {loop['generations']} generations of {loop['games']} games")
    games_s = loop["games"] * (played["playouts"][0] + (loop["generations"] - 1) * played["network"][0])
    updates = loop["generations"] * loop["max_steps"] * loop["batch_size"]
    print(f"  training, one core: {hours(updates * float(np.median(learnt)))} for {updates:,} records")
    for actors in ACTORS:
        print(f"  games, {actors:4d} cores: {hours(games_s / actors)}")


def compose_loop() -> dict[str, int]:
    """Generations, games, updates and batch of the loop that is shipped."""
    shipped = read_yaml(Path(__file__).parents[1] / "configs/connect/loop-3x3.yaml")
    trainer = shipped["learners"]["policy"]["trainer"]
    return {**{key: shipped[key] for key in ("generations", "games")}, **trainer}


if __name__ == "__main__":
    main()
