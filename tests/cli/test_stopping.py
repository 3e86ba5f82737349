"""A second Ctrl-C ends ``genpolicy train`` at once, whatever it computes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genpolicy_common.stopping import FIRST, SECOND, second_signal_stops
from tests.small_datasets import solved_connect

pytestmark = pytest.mark.usefixtures("warm_start")

TRAIN = """
import hashlib, sys
from pathlib import Path
from genpolicy import cli, registry
from genpolicy_policy_baselines.one_step import OneStepLearner

@registry.register("learners", "endless")
class Endless(OneStepLearner):
    def loss(self, batch, generator):
        Path(sys.argv[1]).touch()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes in one call of C

sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to a process as POSIX has them")
@pytest.mark.parametrize(
    "second", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=lambda number: number.name
)
def test_in_the_middle_of_a_call_that_python_cannot_leave(second: signal.Signals, tmp_path: Path) -> None:
    data = solved_connect(tmp_path / "data", every=100).folder
    begun = tmp_path / "begun"
    settings = [f"data.folder={data}", "learner.kind=endless", "trainer.max_steps=1", "trainer.tensorboard=false"]
    words = [sys.executable, "-c", TRAIN, str(begun), "train", *settings, "trainer.device=cpu", "data.validation=null"]
    process = subprocess.Popen([*words, "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        shown = ""
        while not begun.exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        while FIRST not in shown:
            shown += process.stderr.readline() or pytest.fail(shown)
        assert process.poll() is None
        process.send_signal(second)
        shown += process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert SECOND in shown
    assert process.returncode == 128 + second
    assert not (tmp_path / "run" / "policy").exists()


def test_signals_outside_the_training_loop_are_left_alone() -> None:
    """While a run is set up, and after it, Ctrl-C is Python's own, and nothing is said."""
    before = signal.set_wakeup_fd(-1)
    assert before == -1
    with pytest.raises(KeyboardInterrupt), second_signal_stops():
        signal.raise_signal(signal.SIGINT)
    assert signal.set_wakeup_fd(-1) == -1
