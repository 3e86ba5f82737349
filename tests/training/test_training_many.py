"""``genpolicy train`` by several processes, as ``torch.distributed.run`` starts them on one machine or on several."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from genpolicy.data.records import Dataset
from tests.small_datasets import solved_connect
from tests.training.run_folders import read_metrics
from tests.training.test_training_processes import command, environment, wait_for_update

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_start")]

SAME = [
    "learner.kind=one_step",
    "learner.network.dropout=0",
    "trainer.max_steps=8",
    "trainer.eval_every=0",
    "trainer.log_every=1",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=10)


def launched(data: Dataset, out: Path, *rest: str, launcher: tuple[str, ...]) -> subprocess.Popen[str]:
    """Training as a launcher starts it; its options end with those of ``python -m``."""
    words = [sys.executable, "-m", *launcher, "-m", "genpolicy", *command(data, out, *rest)[3:]]
    return subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def of_machines(data: Dataset, out: Path, *rest: str) -> list[str]:
    """What two processes that are started as if each had its own machine say; both must succeed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    torchrun = ("torch.distributed.run", "--nnodes=2", "--nproc_per_node=1", "--master_addr=127.0.0.1")
    started = [
        launched(data, out, *rest, launcher=(*torchrun, f"--master_port={port}", f"--node_rank={rank}"))
        for rank in (0, 1)
    ]
    said = [each.communicate(timeout=300)[1] for each in started]
    assert [each.returncode for each in started] == [0, 0], said
    return said


def losses(out: Path) -> list[float]:
    return [each["train/loss"] for each in read_metrics(out) if "train/loss" in each]


def assert_same_losses(one: Path, other: Path, updates: int) -> None:
    assert len(losses(one)) == updates
    assert losses(other) == pytest.approx(losses(one), rel=0, abs=1e-5)


def test_machines_train_as_one_process_and_hand_over_to_it(data: Dataset, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run(command(data, one, *SAME), env=environment(), check=True, capture_output=True)
    of_machines(data, two, *SAME)
    assert_same_losses(one, two, 8)
    longer = [*SAME, "trainer.max_steps=12", "--resume"]
    done = subprocess.run(command(data, two, *longer), env=environment(), check=True, capture_output=True, text=True)
    assert "2 processes there, 1 here" in done.stderr
    subprocess.run(command(data, one, *longer), env=environment(), check=True, capture_output=True)
    assert_same_losses(one, two, 12)
    assert all("2 processes there" not in text for text in of_machines(data, tmp_path / "again", *SAME))


def two_processes(data: Dataset, out: Path) -> tuple[subprocess.Popen[str], dict[str | None, int]]:
    """torchrun with two processes that have trained a little, and their ids by rank."""
    launcher = ("torch.distributed.run", "--standalone", "--nproc_per_node=2")
    process = launched(data, out, "trainer.max_steps=100000", launcher=launcher)
    wait_for_update(out, 2, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("this system does not tell a process's children")
    return process, {rank_of(int(pid)): int(pid) for pid in children.read_text().split()}


def test_a_process_that_dies_ends_all_with_its_name(data: Dataset, tmp_path: Path) -> None:
    process, ranks = two_processes(data, tmp_path / "run")
    os.kill(ranks["1"], signal.SIGKILL)
    said = process.communicate(timeout=120)[1]
    assert process.returncode != 0
    assert "SIGKILL" in said
    assert "local_rank: 1" in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks.values())


def test_processes_save_and_end_when_their_launcher_is_killed(data: Dataset, tmp_path: Path) -> None:
    process, ranks = two_processes(data, tmp_path / "run")
    process.kill()
    said = process.communicate(timeout=120)[1]  # until the last process has closed its end of the pipes
    assert f"resume with: genpolicy train --resume --out {tmp_path / 'run'}, in 2 processes as before" in said
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in ranks.values())
    assert list((tmp_path / "run" / "checkpoints").iterdir())


def rank_of(pid: int) -> str | None:
    """The rank of a process that torch started; None for another process."""
    told = dict(word.partition("=")[::2] for word in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return told.get("RANK")
