"""``genpolicy train`` as a process: killed, signalled, without a terminal, two at once, printing what it would run."""

from __future__ import annotations

import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import genpolicy
from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.training.config import RunConfig
from tests.small_datasets import solved_connect
from tests.training.run_folders import read_metrics, steps, weights

pytestmark = pytest.mark.usefixtures("warm_start")

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=10)


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def command(data: Dataset, out: Path, *rest: str) -> list[str]:
    settings = [
        f"data.folder={data.folder}",
        "data.validation=test",
        "learner.kind=diffusion",
        "learner.network.geometry=board",
        "learner.network.head=typed",
        "learner.network.num_layers=1",
        "learner.network.width=32",
        "learner.network.num_heads=2",
        "learner.network.dropout=0.1",
        "optim.ema=0.9",
        "trainer.device=cpu",
        "trainer.batch_size=16",
        "trainer.max_steps=30",
        "trainer.eval_every=13",
        "trainer.eval_records=16",
        "trainer.accuracy_records=4",
        "trainer.checkpoint_every=1",
        "trainer.keep=2",
    ]
    start = "from genpolicy.cli import main; raise SystemExit(main())"
    return [sys.executable, "-c", start, "train", *settings, "--out", str(out), *rest]


def wait_for_update(out: Path, update: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if any(int(p.name[5:]) >= update for p in (out / "checkpoints").glob("step-*")):
            return
        time.sleep(0.002)
    raise AssertionError(f"update {update} was never reached: {process.communicate()}")


@pytest.mark.thorough
def test_a_killed_run_ends_with_the_same_bits(data: Dataset, tmp_path: Path) -> None:
    env = environment()
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    done = subprocess.run(command(data, undisturbed), env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(undisturbed / "policy")
    moment = random.Random(11)
    for update in (4, 16):
        process = subprocess.Popen(
            command(data, killed, "--resume"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_for_update(killed, update, process)
        time.sleep(moment.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        assert not (killed / "policy").exists()
    done = subprocess.run(command(data, killed, "--resume"), env=env, capture_output=True, text=True, check=True)
    assert "resuming from" in done.stderr
    assert weights(killed / "policy") == weights(undisturbed / "policy")
    assert weights(killed / "policy-best") == weights(undisturbed / "policy-best")
    names = ("step", "validation/loss", "train/loss", "train/grad_norm")
    numbers = [[{n: line.get(n) for n in names} for line in read_metrics(out)] for out in (undisturbed, killed)]
    assert numbers[0] == numbers[1]
    assert not list((killed / "checkpoints").glob(".*"))


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.thorough) for each in (signal.SIGTERM, signal.SIGHUP))],
    ids=lambda number: number.name,
)
def test_a_signal_saves_and_says_how_to_go_on(number: signal.Signals, data: Dataset, tmp_path: Path) -> None:
    out, env = tmp_path / "run", environment()
    process = subprocess.Popen(
        command(data, out, "trainer.max_steps=100000", "trainer.checkpoint_every=0", "trainer.eval_every=10"),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_update(out, 10, process)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number  # as shells count
    assert stdout == ""
    assert "genpolicy: stopping after this update; again to stop at once" in stderr
    found = re.search(r"stopped after update (\d+); resume with: genpolicy train --resume --out (\S+)", stderr)
    assert found
    assert found[2] == str(out)
    assert int(found[1]) in steps(out)


@pytest.mark.thorough
def test_a_terminal_that_is_gone_still_leaves_a_checkpoint(data: Dataset, tmp_path: Path) -> None:
    """The window is closed: the system sends SIGHUP, and whatever is said from then on is an error of its own."""
    pty = pytest.importorskip("pty")
    out, env = tmp_path / "run", environment()
    rare = ("trainer.checkpoint_every=0", "trainer.eval_every=0", "trainer.log_every=1")
    arguments = command(data, out, "trainer.max_steps=100000", *rare)
    child, terminal = pty.fork()
    if child == 0:
        os.execve(arguments[0], arguments, env)
    deadline = time.monotonic() + 120
    while len(read_metrics(out)) < 3 and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert len(steps(out)) == 1


@pytest.mark.slow
def test_two_processes_train_together_and_go_on(data: Dataset, tmp_path: Path) -> None:
    out, env = tmp_path / "run", environment()
    script = tmp_path / "start.py"
    script.write_text("from genpolicy.cli import main\nraise SystemExit(main())\n")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script), "train"]
    settings = command(data, out, "trainer.accumulate=2")[4:]
    done = subprocess.run([*launch, *settings], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(out / "policy")]
    longer = [*launch, *settings, "trainer.max_steps=35", "--resume"]
    done = subprocess.run(longer, env=env, capture_output=True, text=True, check=True)
    assert "resuming from" in done.stderr
    assert "made on other devices" not in done.stderr
    assert max(steps(out)) == 35
    genpolicy.load_policy(out / "policy")


def test_print_config_prints_what_is_run(data: Dataset, tmp_path: Path) -> None:
    done = subprocess.run(
        command(data, tmp_path / "run", "--print-config"),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "printed.yaml").write_text(done.stdout)
    config: Any = compose(RunConfig, [tmp_path / "printed.yaml"])
    assert config.learner["network"]["width"] == 32
    assert config.learner["process"]["kind"] == "absorbing"
    assert config.trainer.max_steps == 30
    assert not (tmp_path / "run").exists()
