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

ROOT = Path(__file__).parents[2]
TTT = "connect:rows=3,cols=3,k=3,gravity=false"
GENPOLICY = [sys.executable, "-m", "genpolicy"]
"""Run as a child, so that it can be killed; the package is installed, so the folder it runs in may be any."""

# What is trained.
BOARD = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 4}
BOARD |= {"mlp_ratio": 2.0, "init_std": 0.3}
SEQUENCE = {"geometry": "sequence", "head": "unified", "num_layers": 1, "width": 16, "num_heads": 2, "init_std": 0.3}
TRAINER = {"batch_size": 16, "max_records": 128, "eval_records": 0, "accuracy_records": 0, "checkpoint_every": 0}
TRAINER |= {"tensorboard": False, "device": "cpu"}
ABSORBING = {"kind": "absorbing", "num_timesteps": 6, "schedule": "linear", "weighting": "linear"}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "absorbing": (
        "labelled",
        {"kind": "diffusion", "horizon": 3, "train_pad": True, "augment": True, "network": BOARD, "process": ABSORBING},
    ),
    "sequence": (
        "labelled",
        {
            "kind": "diffusion",
            "paradigm": "s-aa",
            "horizon": 3,
            "viewer": "absolute",
            "network": {**SEQUENCE, "tied": True, "time_conditioning": True},
            "process": {"kind": "absorbing", "num_timesteps": 5, "schedule": "cosine_squared"},
            "sampler": {"name": "a0_last", "num_steps": 3, "temperature": 0.8, "num_futures": 2},
        },
    ),
    "horizons": (
        "labelled",
        {
            "kind": "diffusion",
            "horizon": 3,
            "horizons": [1, 2],
            "network": {**BOARD, "positions": "rotary"},
            "process": ABSORBING,
            "sampler": {"name": "easy_first", "options": {"rate": "cosine", "score": "margin"}, "horizon": 2},
        },
    ),
    "multinomial": (
        "labelled",
        {
            "kind": "diffusion",
            "horizon": 2,
            "network": BOARD,
            "process": {"kind": "multinomial", "num_timesteps": 6},
            "sampler": {"name": "easy_first"},
        },
    ),
    "gaussian": (
        "labelled",
        {
            "kind": "gaussian",
            "horizon": 2,
            "network": BOARD,
            "process": {"prediction": "x0_ce", "num_timesteps": 20, "width": 8},
            "num_steps": 5,
        },
    ),
    "gaussian-eps": (
        "labelled",
        {
            "kind": "gaussian",
            "horizon": 2,
            "network": BOARD,
            "process": {"prediction": "eps", "num_timesteps": 20, "width": 8},
            "scheduler": "ddim",
            "num_steps": 4,
        },
    ),
    "one_step": ("labelled", {"kind": "one_step", "network": BOARD}),
    "direct": ("labelled", {"kind": "direct", "horizon": 2, "network": BOARD}),
    "autoregressive": ("labelled", {"kind": "autoregressive", "horizon": 2, "network": SEQUENCE}),
    "state_value": ("labelled", {"kind": "state_value", "num_value_bins": 16, "network": BOARD}),
    "action_value": ("labelled", {"kind": "action_value", "num_value_bins": 16, "network": BOARD}),
    "chess": (
        "chess-games",
        {
            "kind": "diffusion",
            "horizon": 2,
            "network": {**BOARD, "width": 6, "num_heads": 1},
            "process": {"kind": "absorbing", "num_timesteps": 5, "weighting": "constant", "reduction": "sum"},
            "sampler": {"name": "easy_first_commit", "temperature": 0.0},
        },
    ),
    "shogi": ("shogi-games", {"kind": "one_step", "network": {**BOARD, "width": 4, "num_heads": 1}}),
    "image": (
        "chess-games",
        {
            "kind": "image",
            "channels": [8],
            "norm_groups": 4,
            "backbone_width": 8,
            "backbone_blocks": 1,
            "cross_attention_dim": 8,
            "num_steps": 3,
            "target": "bits",
        },
    ),
}

# Positions. Equal ones stand in one call and come again in a later one, because their draws count how often they were
# asked.
CONNECT = [
    ["", ".../.X./... O", "", "X.O/.X./..O X", ".../.X./... O", ""],
    ["X.O/.X./..O X", "XO./.X./... O", "OX./X.O/.OX X", "XXO/O.X/..O X"],
]
CHESS = [
    [
        "",
        "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3",
        "",
        "8/P5k1/8/8/8/5K2/6p1/8 w - - 0 60",
    ],
    ["| e2e4 e7e5 g1f3 b8c6", "r3k2r/8/8/3pP3/8/8/8/R3K2R w KQkq d6 0 20", "8/P5k1/8/8/8/5K2/6p1/8 b - - 1 60"],
]
SHOGI = [
    ["", "lnsgkgsnl/1r5b1/pppppp1pp/6p2/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL b - 3", ""],
    ["4k4/9/4P4/9/9/9/9/9/4K4 b GSNLPrb2g 1", "| 7g7f 3c3d 8h2b+ 3a2b"],
]
REUSE = [["", ".../.X./... O"], ["| b2 a3"], ["| b2 a3 c3 a1", ""], ["| b2 a3"]]


def cases() -> list[dict[str, Any]]:
    """Who is asked what."""
    found: list[dict[str, Any]] = []

    def add(spec: str, asked: list[list[str]], *, dreamt: bool = False, seed: int = 7, **options: Any) -> None:
        case = {"name": f"{len(found):02d} {spec}", "spec": spec, "seed": seed, "options": options, "asked": asked}
        if dreamt:
            case["dreamt"] = [asked[0][1], asked[0][0], asked[0][1]]
        found.append(case)

    def connect(spec: str, **more: Any) -> None:
        folder, _, query = spec.partition("?")
        add(f"policies/{folder}" + (f"?{query}" if query else ""), CONNECT, **more)

    connect("absorbing", dreamt=True)
    connect("absorbing?sampler=ancestral", dreamt=True)
    connect("absorbing?sampler=ancestral&temperature=0.5&num_steps=3&batch_size=2")
    connect("absorbing?sampler=easy_first&num_steps=4&rate=cosine&score=entropy&noise=0.3", dreamt=True)
    connect("absorbing?sampler=easy_first&commit=true&temperature=1.0")
    connect("absorbing?sampler=easy_first_commit")
    connect("absorbing?sampler=stochastic", dreamt=True)
    connect("absorbing?sampler=a0_last")
    connect("absorbing?sampler=a0_last&temperature=1.0&num_futures=3", dreamt=True)
    connect("absorbing?sampler=one_call", dreamt=True)
    connect("absorbing?sampler=remasking&eta=0.3&sigma=rescale", dreamt=True)
    connect("absorbing?sampler=ancestral&legal_mask=false", dreamt=True)
    connect("absorbing?legal_mask=false")
    connect("absorbing?seed=3", seed=3, num_steps=2)
    connect("sequence", dreamt=True)
    connect("sequence?num_futures=1&temperature=0")
    connect("horizons", dreamt=True)
    connect("horizons?horizon=1")
    connect("horizons?horizon=3", dreamt=True)
    connect("multinomial", dreamt=True)
    connect("multinomial?sampler=ancestral&temperature=0.7", dreamt=True)
    connect("gaussian", dreamt=True)
    connect("gaussian?scheduler=ddim&num_steps=3")
    connect("gaussian?scheduler=dpmsolver++", dreamt=True)
    connect("gaussian?scheduler=one_call&legal_mask=false")
    connect("gaussian-eps", dreamt=True)
    connect("gaussian-eps?scheduler=ddpm")
    connect("one_step", dreamt=True)
    connect("one_step?temperature=1.0")
    connect("one_step?temperature=1.0&legal_mask=false")
    connect("direct", dreamt=True)
    connect("direct?temperature=0.7")
    connect("autoregressive", dreamt=True)
    connect("autoregressive?imagine=false")
    connect("autoregressive?temperature=1.0&legal_mask=no", dreamt=True)
    connect("state_value", dreamt=True)
    connect("state_value?readout=mode")
    connect("state_value?temperature=0.3&prior_temperature=0.5&batch_size=1")
    connect("action_value")
    connect("action_value?readout=mode&temperature=0.2")
    connect("told-otherwise", dreamt=True)
    add("policies/chess", CHESS, dreamt=True)
    add("policies/chess?sampler=ancestral&temperature=1.0", CHESS)
    add("policies/shogi", SHOGI, dreamt=True)
    add("policies/shogi?temperature=1.0", SHOGI)
    add("policies/image", CHESS, dreamt=True)
    add("policies/image?temperature=0", CHESS)
    add("policies/image?scheduler=ddim&num_steps=2&legal_mask=false", CHESS)

    add("mcts:policies/one_step?value=policies/state_value&simulations=24", CONNECT)
    add("mcts:policies/action_value?simulations=20&c_puct=1.5&temperature=1.0", CONNECT)
    add("mcts:policies/state_value?simulations=16&prior=uniform&leaves=1", CONNECT)
    add("mcts:policies/one_step?value=heuristic&simulations=16&reuse=true", REUSE)
    add("mcts:uniform?simulations=60&reuse=yes&early_stop=true&tau=0.5", REUSE, game=TTT)
    add("mcts:rollout?simulations=30&preset=alphazero", CONNECT, game=TTT)
    add("mcts:heuristic?simulations=40&noise_fraction=0.25&temperature=1.0", CHESS, game="chess")
    add("mcts:policies/chess?value=heuristic&simulations=6&preset=diffusearch", CHESS)
    add("alphabeta?depth=2", CHESS, game="chess")
    add("alphabeta?depth=3", CONNECT, game=TTT)
    add("alphabeta?depth=2&evaluator=policies/state_value&prior=policies/one_step", CONNECT[1:], game=TTT)
    add("alphabeta?nodes=300", SHOGI, game="shogi")
    add("greedy", CHESS, game="chess")
    add("greedy?seed=4", CONNECT, game=TTT)
    add("random?seed=5", CONNECT, game=TTT)
    add("random", SHOGI, game="shogi")
    add("oracle:solver", CONNECT, game=TTT)
    return found


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
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
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
