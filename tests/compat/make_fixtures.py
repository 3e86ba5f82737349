"""Makes the fixtures of test_made_before.py. Run it with the OLD code, from its checkout:

    OMP_NUM_THREADS=1 python -m tests.compat.make_fixtures tests/compat/data

Everything is made in a temporary folder, by the commands that a user types and under relative paths, so that no file of
the fixtures names a place on the machine that made it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import lzma
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.numpy import load, save

import genpolicy
from genpolicy.cli import main
from tests.compat import made_before
from tests.compat.fixture_cases import ABSORBING, BOARD, LEARNERS, TRAINER, TTT, cases

ROOT = Path(__file__).parents[2]
GENPOLICY = [sys.executable, "-m", "genpolicy"]
"""Run as a child, so that it can be killed; the package is installed, so the folder it runs in may be any."""


def call(*words: str) -> str:
    """Run a command of genpolicy to its end; what it printed."""
    print("genpolicy", *words, file=sys.stderr)
    before, sys.argv = sys.argv, ["genpolicy", *words]  # data sets remember the command line
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = main(list(words))
    finally:
        sys.argv = before
    if status:
        raise SystemExit(f"genpolicy {' '.join(words)} ended with status {status}")
    return printed.getvalue()


def call_until(words: Sequence[str], enough: Callable[[], bool], clear: Sequence[str]) -> None:
    """Run a command and SIGKILL it, with the processes that it started, as soon as ``enough``.

    Raises:
        SystemExit: it never left what is wanted.
    """
    for _ in range(60):
        for each in clear:
            shutil.rmtree(each, ignore_errors=True)
        process = subprocess.Popen([*GENPOLICY, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not enough():
            time.sleep(0.0002)
        children = _children(process.pid)
        process.send_signal(signal.SIGKILL)
        for child in children:
            os.kill(child, signal.SIGKILL)
        was_over = process.wait() != -signal.SIGKILL
        if not was_over and enough():
            return
    raise SystemExit(f"genpolicy {' '.join(words)}: not stopped in the middle in 60 tries")


def _children(parent: int) -> list[int]:
    found = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(word) for word in found.read_text().split()] if found.exists() else []


def bfloat16(array: Any) -> Any:
    """The weights with the lower half of their bits 0, so that they pack to half the size."""
    rounded: Any = (np.ascontiguousarray(array, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return rounded.reshape(array.shape)


def shake_weights(folder: Path, size: float) -> None:
    """Add noise to a saved policy's weights and round them, checksum included.

    After a few updates answers are close to uniform, and one position's to another's; what would be compared is little.
    """
    draw = np.random.default_rng(0)
    weights = load((folder / "model.safetensors").read_bytes())
    shaken = {name: weights[name] + size * draw.normal(size=weights[name].shape) for name in sorted(weights)}
    data = save({name: bfloat16(array) for name, array in shaken.items()})
    (folder / "model.safetensors").write_bytes(data)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["weights_sha256"] = hashlib.sha256(data).hexdigest()
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


# The fixtures.


def make_records(expected: dict[str, Any]) -> None:
    """Data sets: finished, imported, and what a kill left of labelling and of self-play."""
    os.mkdir("records")
    call("data", "import", "all", "--game", TTT, "--split", "0.5/0.2/0.3", "--max-positions", "240",
         "--out", "records/imported")  # fmt: skip
    label = ["data", "label", "records/imported", "--oracle", "solver?distance=true", "--horizon", "4", "--move-values"]
    call(*label, "--out", "records/labelled")
    play = ["data", "selfplay", "--game", TTT, "--oracle", "alphabeta?depth=4", "--horizon", "3", "--games", "24"]
    play += ["--random-plies", "0:2", "--seed", "5", "--split", "0.6/0.2/0.2"]
    call(*play, "--out", "records/played")
    for name, words, whole in (("labelling", label, "labelled"), ("playing", play, "played")):
        folder = Path("records", name)
        command = [*words, "--out", str(folder)]
        call_until(command, lambda folder=folder: _is_half_done(folder), [str(folder)])
        expected[name] = {"command": command, "as": f"records/{whole}"}
    for name in ("imported", "labelled", "played"):
        call("data", "info", f"records/{name}", "--rows", "0", "--json", f"{name}.json")
        expected[name] = {"info": json.loads(Path(f"{name}.json").read_text()), "rows": _rows(Path("records", name))}
    # What the policies of the big games learn from.
    for game in ("chess", "shogi"):
        call("data", "selfplay", "--game", game, "--oracle", "alphabeta?depth=1", "--horizon", "2", "--games", "8",
             "--max-plies", "4", "--split", "1/0/0", "--out", f"{game}-games")  # fmt: skip


def _is_half_done(folder: Path) -> bool:
    """Whether units are finished, and one that is not has answers already."""
    journal = folder / "journal.jsonl"
    lines = journal.read_bytes().split(b"\n") if journal.exists() else []
    return sum(b'"rows"' in line for line in lines) >= 2 and len(lines) > 1 and b'"answer"' in lines[-2]


def _rows(folder: Path) -> str:
    return made_before.rows_digest(folder)


def make_policies() -> None:
    """A saved policy of every kind, and one that was saved with other options than it was trained with."""
    for name, (data, learner) in LEARNERS.items():
        run = Path("trained", name)
        folder = data if data.endswith("-games") else f"records/{data}"
        config = {"data": {"folder": folder, "validation": None}, "learner": learner}
        config |= {"optim": {"name": "adamw", "lr": 0.02}, "trainer": TRAINER}
        Path("policies/configs").mkdir(parents=True, exist_ok=True)
        Path(f"policies/configs/{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        call("train", "--config", f"policies/configs/{name}.yaml", "--out", str(run))
        shutil.copytree(run / "policy", Path("policies", name))
        shake_weights(Path("policies", name), 0.05 if learner["kind"] == "image" else 0.25)
        genpolicy.load_policy(f"policies/{name}")
    told = genpolicy.load_policy("policies/absorbing", sampler="ancestral", temperature=0.6, legal_mask=False)
    told.save_pretrained("policies/told-otherwise")


def make_decisions(folder: Path) -> None:
    """What all of them answer."""
    torch.set_num_threads(1)
    told = cases()
    for case in told:
        case["answers"] = made_before.answers(case)
        if "dreamt" in case:
            case["dreams"] = made_before.dreams(case)
    data = json.dumps(told, separators=(",", ":")).encode()
    (folder / "decisions.json.xz").write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def make_configs(folder: Path) -> None:
    """Every configuration that was shipped, as its user has it, and all that the old code read from it."""
    found = {}
    files = [*sorted(ROOT.glob("configs/*/*.yaml")), *sorted(Path("policies/configs").glob("*.yaml"))]
    for path in files:
        text = path.read_text()
        if "learner" in yaml.safe_load(text) and "axes" not in yaml.safe_load(text):
            name = path.relative_to(ROOT).as_posix() if path.is_absolute() else path.as_posix()
            found[name] = {"text": text, "read": yaml.safe_load(call("train", "--config", str(path), "--print-config"))}
    data = json.dumps(found, separators=(",", ":"), sort_keys=True).encode()
    (folder / "configs.json.xz").write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def make_experiment(expected: dict[str, Any]) -> None:
    """One that came to its end; and one killed while the last of its runs trained, the others finished."""
    os.mkdir("experiment")
    network = {**BOARD, "width": 8, "num_heads": 1}
    trainer = {key: value for key, value in TRAINER.items() if key != "max_records"} | {"checkpoint_every": 10}
    description = {
        "name": "tiny",
        "title": "Made before",
        "data": {"folder": "records/labelled"},
        "run": {"learner": {"network": network}, "optim": {"lr": 0.01}, "trainer": trainer},
        "axes": {
            "method": {
                "S-A": {"learner.kind": "one_step"},
                "S-ASA": {"learner.kind": "diffusion", "learner.horizon": 2, "learner.process": ABSORBING},
            }
        },
        "seeds": [0, 1],
        "budget": {"records": 1600},
        "evaluate": {"positions": 40},
        "metrics": ["best", "best_one_call", "legal", "calls", "records"],
        "compare": [{"title": "a future over none", "a": {"method": "S-ASA"}, "b": {"method": "S-A"}}],
    }
    Path("experiment/tiny.yaml").write_text(yaml.safe_dump(description, sort_keys=False))
    command = ["experiment", "experiment/tiny.yaml", "--parallel", "1"]
    call(*command, "--out", "experiment/finished")

    half = Path("experiment/half")

    def is_last_one_training() -> bool:
        return len(list(half.glob("runs/*/measured-*.json"))) == 3 and any(
            not list(run.glob("trained.json")) and list(run.glob("run/checkpoints/step-*"))
            for run in half.glob("runs/*")
        )

    call_until([*command, "--out", str(half)], is_last_one_training, [str(half)])
    # Finished runs need their checkpoints for nothing; the one that goes on needs its last.
    for name in ("finished", "half"):
        for trained in Path("experiment", name, "runs").glob("*/trained.json"):
            shutil.rmtree(trained.parent / "run" / "checkpoints")
    for folder in half.glob("runs/*/run/checkpoints"):
        for old in sorted(folder.glob("*step-*"))[:-1]:
            shutil.rmtree(old)
    expected["experiment"] = {"command": command}


def make_tournaments(expected: dict[str, Any]) -> None:
    """One that is over; and one killed with a group of games half played."""
    os.mkdir("tournaments")
    command = ["tournament", "--game", TTT, "--policy", "random", "greedy", "ab=alphabeta?depth=2", "--rounds", "4"]
    command += ["--random-plies", "2", "--seed", "3", "--workers", "1", "--games-at-once", "4"]
    call(*command, "--out", "tournaments/finished/cup", "--json", "cup.json")
    lines = Path("tournaments/half/cup/games.jsonl")

    def is_in_the_middle() -> bool:
        played = lines.read_bytes().count(b"\n") if lines.exists() else 0
        return 4 < played < 20 and played % 4 != 0

    call_until([*command, "--out", "tournaments/half/cup"], is_in_the_middle, ["tournaments/half"])
    rate = ["ratings", "tournaments/finished/cup", "--game", TTT, "--model", "ordo", "--anchor", "random=0"]
    rate += ["--prior", "2"]
    call(*rate, "--json", "ratings.json")
    expected["tournament"] = {"command": command, "figures": json.loads(Path("cup.json").read_text())}
    expected["ratings"] = {"command": rate, "figures": json.loads(Path("ratings.json").read_text())}


def make_report(expected: dict[str, Any]) -> None:
    """A page of which two policies' accuracies were measured when it was stopped."""
    os.mkdir("report")
    command = ["evaluate", "report", "--policy", "policies/one_step", "greedy", "policies/state_value"]
    command += ["--data", "records/labelled", "--limit", "30", "--calls", "2", "--threads", "1", "--seed", "2"]
    parts = Path("report/page_files/parts")
    call(*command, "--out", "report/page.md", "--json", "figures.json")
    figures = json.loads(Path("figures.json").read_text())
    Path("report/page.md").unlink()

    def has_two() -> bool:
        return len(list(parts.glob("accuracy-*.json"))) == 2

    call_until([*command, "--out", "report/page.md"], has_two, ["report/page_files"])
    expected["report"] = {"command": command, "kept": len(list(parts.glob("*.json"))), "figures": figures}


def make_training(expected: dict[str, Any]) -> None:
    """A run that was killed after a checkpoint, and the weights of the same run that was not."""
    os.mkdir("training")
    learner = {"kind": "diffusion", "horizon": 2, "augment": True, "process": ABSORBING}
    learner["network"] = {**BOARD, "width": 8, "num_heads": 1, "dropout": 0.1}
    config = {
        "data": {"folder": "records/labelled"},
        "learner": learner,
        "optim": {"name": "muon", "lr": 0.003, "ema": 0.9},
        "trainer": {**TRAINER, "max_records": 960, "checkpoint_every": 12, "keep": 1, "seed": 3, "log_every": 5},
    }
    config["trainer"] |= {"eval_every": 24, "eval_records": 16, "accuracy_records": 16}
    Path("training/run.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    command = ["train", "--config", "training/run.yaml"]
    call(*command, "--out", "trained/whole")
    kept = ["step-00000024", "step-00000036"]  # the best one and the last one

    def has_checkpoints() -> bool:
        return sorted(path.name for path in Path("training/run/checkpoints").glob("*step-*")) == kept

    call_until([*command, "--out", "training/run"], has_checkpoints, ["training/run"])
    weights = Path("trained/whole/policy/model.safetensors")
    shutil.copy(weights, "training/uninterrupted.safetensors")
    metrics = [json.loads(line) for line in Path("trained/whole/metrics.jsonl").read_text().splitlines()]
    expected["training"] = {
        "command": ["train", "--resume", "--out", "training/run"],
        "steps": [line["step"] for line in metrics],
    }


def make_all() -> None:
    """Make all of them."""
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    expected: dict[str, Any] = {}
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+"], capture_output=True, text=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        make_records(expected)
        make_policies()
        make_decisions(out)
        make_configs(out)
        make_experiment(expected)
        make_tournaments(expected)
        make_report(expected)
        make_training(expected)
        for name in ("records", "policies", "experiment", "tournaments", "report", "training"):
            for cache in [*Path(name).rglob(".cache"), *Path(name).rglob(".lock")]:
                shutil.rmtree(cache) if cache.is_dir() else cache.unlink()
            made_before.pack(out / f"{name}.tar.xz", Path(name))
        os.chdir(ROOT)
    torch.set_num_threads(1)
    facts = {
        "commit": commit,
        "genpolicy": genpolicy.__version__,
        "python": platform.python_version(),
        "versions": made_before.versions(),
        "machine": platform.machine(),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "probe": made_before.probe(),
    }
    text = json.dumps({"made_with": facts, **expected}, indent=1, sort_keys=True)
    (out / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    make_all()
