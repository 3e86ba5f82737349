"""A program that starts warm does what one that starts cold does: the tests that use it check what a user has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="adopts a fork as Linux does"),
    pytest.mark.skipif("OMP_NUM_THREADS" not in os.environ, reason="nothing starts warm without OMP_NUM_THREADS=1"),
]


def both(*arguments: str, **settings: Any) -> tuple[int, str, str]:
    """What a program ends with and says, the same warm and cold."""
    words, endings = [sys.executable, *arguments], []
    settings = {"env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
    text = settings.pop("input", None)
    assert warm.can_be_warm(words, settings["env"])
    for kind in (warm.Popen, warm.PlainPopen):
        with kind(words, stdin=subprocess.PIPE, **settings) as process:
            out, err = process.communicate(text, timeout=60)
        endings.append((process.returncode, out, err))
    assert endings[0] == endings[1]
    return endings[0]


def test_it_has_imported_torch_and_is_a_child_of_ours() -> None:
    code = "import os, sys; print('torch' in sys.modules, os.getppid(), os.getpid(), len(os.listdir('/proc/self/fd')))"
    with warm.Popen([sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate(timeout=60)
    assert out.split() == [
        "True",
        str(os.getpid()),
        str(process.pid),
        "4",
    ]  # three streams, and the folder that it lists


@pytest.mark.parametrize(
    ("code", "status", "out", "err"),
    [
        ("print(input() + '!')", 0, "hello!\n", ""),
        ("import sys; sys.exit(7)", 7, "", ""),
        ("import sys; sys.exit('why')", 1, "", "why\n"),
        ("import sys; sys.exit()", 0, "", ""),
        ("import os; os._exit(3)", 3, "", ""),
        ("import os; os.abort()", -signal.SIGABRT, "", ""),
        ("import sys; print(sys.argv, __name__)", 0, "['-c', 'a', 'b c'] __main__\n", ""),
        ("import atexit; atexit.register(print, 'last')", 0, "last\n", ""),
        ("import threading; threading.Timer(0.05, print, ['late']).start(); print('early')", 0, "early\nlate\n", ""),
        ("def f():\n    raise ValueError('x')\nf()", 1, "", "line 2, in f\nValueError: x\n"),
        ("import signal; signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "", "KeyboardInterrupt\n"),
        ("import signal; print(signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN)", 0, "True\n", ""),
    ],
)
def test_it_ends_as_a_new_process_does(code: str, status: int, out: str, err: str) -> None:
    ended = both("-c", code, "a", "b c", input="hello\n")
    assert ended[0] == status
    assert ended[1].endswith(out)
    assert ended[2].endswith(err)


@pytest.mark.parametrize(("unbuffered", "status"), [("", 120), ("1", 1)])
def test_an_output_that_takes_no_more_is_said(unbuffered: str, status: int) -> None:
    code = "import os, sys; os.close(1); os.open('/dev/full', 1); print('x')"
    environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered}
    for kind in (warm.Popen, warm.PlainPopen):
        with kind([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.communicate(timeout=60)[1].endswith("OSError: [Errno 28] No space left on device\n")
        assert process.returncode == status


def test_a_module_is_run_in_its_folder_with_its_environment(tmp_path: Path) -> None:
    for folder, text in (("here", "'here'"), ("there", "'there'")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}_part.py").write_text(f"NAME = {text}\n")
    (tmp_path / "here" / "main_part.py").write_text(
        "import os, sys, here_part, there_part\nprint(here_part.NAME, there_part.NAME, os.getcwd(), __spec__.name)\n"
        "print(os.environ['OTHER'], 'HOME' in os.environ)\n"
    )
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "HOME"}
    environment |= {"PYTHONPATH": str(tmp_path / "there"), "OTHER": "7"}
    status, out, _ = both("-m", "main_part", cwd=tmp_path / "here", env=environment)
    assert (status, out) == (0, f"here there {tmp_path / 'here'} main_part\n7 False\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_to_it_or_its_group_ends_it(number: signal.Signals) -> None:
    code = "import os, time; print(os.getpid() == os.getpgid(0) == os.getsid(0), flush=True); time.sleep(60)"
    process = warm.Popen(
        [sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    os.killpg(process.pid, number)
    assert process.wait(60) == -number
    assert process.communicate() == ("", None)


def test_two_draw_other_numbers() -> None:
    code = "import random, numpy, torch; print(random.random(), numpy.random.random(), torch.rand(()).item())"
    drawn = set()
    for _ in range(2):
        with warm.Popen([sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
            drawn.update(process.communicate(timeout=60)[0].split())
    assert len(drawn) == 6


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ((sys.executable, "file.py", "x"), {}),
        (("python-of-another", "-c", "pass"), {}),
        ((sys.executable, "-c", "pass"), {"PYTHONHASHSEED": "1"}),
        ((sys.executable, "-c", "pass"), {"OMP_NUM_THREADS": "2"}),
        ((sys.executable, "-c", "pass"), {"LC_ALL": "other"}),
    ],
)
def test_what_a_fork_cannot_stand_for_starts_cold(arguments: tuple[str, ...], changes: dict[str, str]) -> None:
    assert not warm.can_be_warm(arguments, {**ENVIRONMENT, **changes})


def test_the_way_back_to_cold_starts(cold_start: None) -> None:
    assert not warm.can_be_warm((sys.executable, "-c", "pass"), ENVIRONMENT)
