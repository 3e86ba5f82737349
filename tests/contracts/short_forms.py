"""Short forms of the commands of the documentation: a few records, updates, games and positions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from genpolicy.cli import make_parser
from genpolicy.training.settings import configuration
from genpolicy_experiments.description import Experiment
from tests.contracts.documented_commands import ROOT, Line, arguments_of, program_of

QUICK = (
    *("trainer.max_minutes=null", "trainer.max_steps=null", "trainer.max_epochs=null", "trainer.max_records=64"),
    *("trainer.batch_size=16", "trainer.eval_records=8", "trainer.accuracy_records=8", "trainer.device=cpu"),
    "optim.warmup=0",
)
"""What is added to every ``genpolicy train``."""

LEARNERS = {
    "policy": {
        "learner": {
            "kind": "policy_value",
            "network": {"geometry": "board", "head": "typed", "width": 16, "num_heads": 4},
        },
        "trainer": {"batch_size": 16, "max_steps": 2, "device": "cpu"},
    }
}
"""Of a loop, in place of its own."""
ADDED: Mapping[str, tuple[str, ...]] = {
    "train": QUICK,
    "data import": ("--max-positions", "400"),
    "data selfplay": ("--max-plies", "20"),
    "data playouts": ("--split", "0.5/0.1/0.4"),
    "evaluate accuracy": ("--limit", "8", "--split", "train"),
    "evaluate futures": ("--limit", "8", "--split", "train"),
    "evaluate latency": (
        "--split",
        "train",
        "--limit",
        "2",
        "--calls",
        "1",
        "--warm-up",
        "0",
        "--batches",
        "1",
        "--sweep",
        "num_steps=1",
    ),
    "evaluate puzzles": ("--limit", "2"),
    "evaluate report": ("--limit", "8", "--calls", "1", "--puzzle-limit", "2", "--play", "1"),
    "tournament": ("--rounds", "1", "--max-plies", "8", "--parallel", "1"),
    "ratings": ("--bootstrap", "20"),
    "demo": ("--plan",),
    "loop": ("games=12", 'random_plies="2:4"', f"learners={json.dumps(LEARNERS)}", "gate.rounds=1"),
    "web": ("--port", "0"),
}
"""What is added to other commands, after what stands there: of an option that is given twice the last counts."""

OPTIONS: Mapping[str, str] = {"--games": "3", "--positions": "20", "--processes": "1"}
"""Other values of options where they are given, since a command takes one of them alone."""

NUMBERS = re.compile(r"\b(nodes|simulations|movetime_ms|depth|candidates)=\d+")
"""Options of engines and searches, all of which become 1 or, of searches and nodes, 2."""

TAKEN_OUT = ("--open", "--verbose")


def shortened(line: Line) -> list[str]:
    """The arguments of a command in its short form."""
    words, kept = [word for word in arguments_of(line) if word not in TAKEN_OUT], []
    for before, word in zip(["", *words], words, strict=False):
        number = re.sub(NUMBERS, lambda found: f"{found[1]}={2 if found[1][0] in 'ns' else 1}", word)
        kept.append(OPTIONS.get(before, word) if word.isdecimal() else number)
    if line.command == "evaluate latency":
        kept = _without(kept, "--sweep")
    elif line.command == "data label" and any(word.startswith("sample:") for word in kept):
        kept += ["--share", "0.002"]
    elif line.command == "loop":
        more = [word for word in kept if word.startswith("generations=")]
        kept = [word for word in kept if word not in more] + [f"generations={2 if more else 1}"]
    kept += ADDED.get(line.command, ())
    return short_experiment(kept) if line.command == "experiment" else with_small_network(kept)


SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "paired.py": ("--limit", "8"),
    "pairs.py": ("--num", "64"),
    "update_cost.py": ("--updates", "2"),
    "encoded_once.py": ("--rounds", "2"),
    "with_history.py": (),
    "search.py": ("--rounds", "2", "--simulations", "32", "--network-simulations", "2"),
    "shogi_encode.py": ("--rounds", "2"),
}
"""What is added to the scripts of ``benchmarks/``."""


def script(line: Line) -> list[str]:
    """The arguments of Python for one of our scripts or modules, or a text, in its short form.

    Raises:
        KeyError: a script has no short form in ``SCRIPTS``.
    """
    words = program_of(line.words)[1]
    if words[:2] == ["-m", "benchmarks"] and "--list" not in words:
        names = [] if words[2:3] and not words[2].startswith("--") else ["chess_encode"]
        return [*words[:2], *names, *words[2:], "--quick", "--rounds", "2"]
    if words[0] in ("-c", "-m"):
        return words
    return [str(ROOT / words[0]), *words[1:], *SCRIPTS[Path(words[0]).name]]


LARGE = 200
"""Width from which on a network becomes a small one: its parts are what a command says of it, not its size."""
SMALL = ("learner.network.width=32", "learner.network.num_layers=1", "learner.network.num_heads=2")


def with_small_network(words: list[str]) -> list[str]:
    """A ``train`` command with a network that is made and saved in a moment."""
    if words[0] != "train" or "--resume" in words:
        return words
    parsed = make_parser(["train"]).parse_args(words)
    network = configuration(parsed.config, parsed.overrides, parsed.out, resume=False)[1].learner.get("network", {})
    return [*words, *SMALL] if int(network.get("width", 0)) >= LARGE else words


def experiment_of(words: Sequence[str]) -> Experiment:
    """The experiment that a command names."""
    parsed = make_parser(["experiment"]).parse_args([*words])
    return Experiment(parsed.file, parsed.overrides)


def short_experiment(words: Sequence[str]) -> list[str]:
    """A few updates of the cells of its first comparison, or of its last cell, with one seed and a few positions."""
    experiment = experiment_of(words)
    file = experiment.file
    compared = file.compare[:1]
    cells = [experiment.cell_of(side) for each in compared for side in (each.a, each.b)] or experiment.cells[-1:]
    left_out = [cell.labels for cell in experiment.cells if cell not in cells]
    settings = {
        "skip": [*file.skip, *left_out],
        "compare": [{key: value for key, value in vars(each).items() if value is not None} for each in compared],
        "seeds": [0],
        "evaluate.positions": 8,
        "run.trainer.batch_size": 8,
        "run.trainer.accumulate": 1,
        "run.optim.warmup": 0,
    }
    settings |= {f"budget.{kind}": amount / 1000 for kind, amount in file.budget.items() if kind == "flops"}
    settings |= {f"budget.{kind}": 16 for kind in file.budget if kind != "flops"}
    network = experiment.configuration(cells[0], 0)["learner"].get("network", {})
    small = [f"run.{setting}" for setting in SMALL] if int(network.get("width", 0)) >= LARGE else []
    return [*words, *(f"{key}={json.dumps(value)}" for key, value in settings.items()), *small, "--parallel", "1"]


def _without(words: Sequence[str], option: str) -> list[str]:
    return [word for before, word in zip(["", *words], words, strict=False) if option not in (before, word)]
