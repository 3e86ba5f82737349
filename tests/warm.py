"""Starts Python programs in a moment: as forks of a process that has imported torch and genpolicy already.

`Popen` is `subprocess.Popen` in everything but the start: real pipes, signals, sessions, process groups and exit
statuses, and the caller is the parent of the process. What a fork cannot stand for starts cold, as ever: another
interpreter, other threads of torch, another hash seed, a system other than Linux. ``GENPOLICY_TESTS_COLD=1`` starts
everything cold.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import io
import json
import multiprocessing.util
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
COLD = "GENPOLICY_TESTS_COLD"
IMPORTS = (
    *("torch._dynamo", "filelock", "numpy", "omegaconf", "rich.live"),
    *(
        "genpolicy.policies.diffusion",
        "genpolicy.training.loop",
        "genpolicy.training.measure",
        "genpolicy.training.run",
    ),
    *("genpolicy.data.window_build", "genpolicy_common.train", "genpolicy_evaluation.accuracy"),
    *("genpolicy_labelling.importing", "genpolicy_labelling.label", "genpolicy_labelling.selfplay"),
    *("genpolicy_arena.tournament", "genpolicy_experiments.runner", "genpolicy_experiments.worker"),
    *("genpolicy_policy_baselines.simple", "genpolicy_connect.solver"),
)
"""What many commands need. None of it starts a thread but that of Arrow's allocator."""
FORK_SAFE = "jemalloc_bg_thd"
"""Name of the thread of Arrow's allocator, which prepares itself for every fork (pthread_atfork)."""
AT_START = ("OMP_", "MKL_", "KMP_", "ONEDNN_", "DNNL_", "ATEN_", "TORCH", "PYTORCH", "CUDA", "LD_", "LC_", "LANG")
"""Beginnings of the names of variables that Python and torch read while they start, beside those of ``PYTHON``."""
NOT_AT_START = ("PYTHONPATH", "PYTHONUNBUFFERED", "OMP_WAIT_POLICY", "TORCHINDUCTOR_CACHE_DIR")
"""A fork sees to the first two by itself, where there is one thread none waits, and torch sets the last for itself."""
LIMIT_S = 120.0
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
MAX_MESSAGE = 190_000
"""Bytes that a socket takes as one message."""
FIRST_FREE = 500
"""Descriptors from here on are nobody's."""


PlainPopen = subprocess.Popen
"""Held because tests put `Popen` in its place."""
plain_spawn = multiprocessing.util.spawnv_passfds


class Popen(PlainPopen):  # type: ignore[type-arg]
    """A `subprocess.Popen` whose process has imported torch before it begins, where a fork can stand for a start."""

    def _execute_child(self, *values: Any) -> None:
        names = list(inspect.signature(PlainPopen._execute_child).parameters)[1:]  # type: ignore[attr-defined]
        given = dict(zip(names, values, strict=True))
        environment = os.environ if given["env"] is None else given["env"]
        arguments = given["args"]
        if not (isinstance(arguments, (list, tuple)) and _is_plain(given) and can_be_warm(arguments, environment)):
            super()._execute_child(*values)  # type: ignore[misc]
            return
        pipes = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        try:
            streams = [standard if fd == -1 else fd for standard, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
            self.pid = start(
                [os.fspath(word) for word in arguments],
                {0: streams[0], 1: streams[1], 2: streams[2], **{fd: fd for fd in given["pass_fds"]}},
                environment,
                given["cwd"],
                new_session=given["start_new_session"],
                group=given["process_group"],
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def spawn(path: Any, arguments: Sequence[Any], descriptors: Sequence[int]) -> int:
    """What `multiprocessing` starts its processes with: warm those that run a task, not those that keep its books."""
    words = [os.fsdecode(word) for word in arguments]
    if words[1] == "-B" and os.environ.get("PYTHONDONTWRITEBYTECODE"):
        del words[1]  # multiprocessing says again what the environment says
    if not (any("spawn_main" in word for word in words) and can_be_warm(words, os.environ)):
        return plain_spawn(path, arguments, descriptors)
    return start(words, {**{fd: fd for fd in (0, 1, 2)}, **{fd: fd for fd in descriptors}}, os.environ)


@contextmanager
def starts() -> Iterator[None]:
    """Let every program that this process starts meanwhile start warm, if it can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Popen)
        patch.setattr(multiprocessing.util, "spawnv_passfds", spawn)
        yield


def _is_plain(given: dict[str, Any]) -> bool:
    default = {"executable": None, "preexec_fn": None, "close_fds": True, "shell": False, "umask": -1}
    own = all(given[name] == value for name, value in default.items())
    return own and all(given[name] is None for name in ("gid", "gids", "uid"))


def can_be_warm(arguments: list[Any] | tuple[Any, ...], environment: Any) -> bool:
    """Whether a fork of the warm process does what a new process would."""
    if not sys.platform.startswith("linux") or os.environ.get(COLD) or environment.get("OMP_NUM_THREADS") != "1":
        return False
    is_python = len(arguments) > 2 and arguments[0] == sys.executable and arguments[1] in ("-m", "-c")
    return is_python and _at_start(environment) == _at_start(_warm_environment())


def _warm_environment() -> dict[str, str]:
    return {**_environment_then, "OMP_NUM_THREADS": "1"}


_environment_then = dict(os.environ)


def _at_start(environment: Any) -> dict[str, str]:
    """What of an environment is read once, while Python and torch start."""
    names = (name for name in environment if name.startswith(("PYTHON", *AT_START)) and name not in NOT_AT_START)
    return {"MKL_NUM_THREADS": environment.get("OMP_NUM_THREADS", ""), **{name: environment[name] for name in names}}


def start(
    arguments: list[str],
    descriptors: dict[int, int],
    environment: Any,
    cwd: Any = None,
    *,
    new_session: bool = False,
    group: int | None = -1,
) -> int:
    """Start ``python -m MODULE ...`` or ``python -c CODE ...`` as a fork, a child of this process; returns its id.

    Args:
        arguments: The interpreter, ``-m`` or ``-c``, and so on.
        descriptors: Its descriptors and which of ours they are.
        environment: Its environment.
        cwd: Its working directory; None is ours.
        new_session: Whether it leads a session of its own.
        group: Its process group, 0 one of its own; -1 or None is ours.
    """
    order: dict[str, Any] = {
        "arguments": arguments,
        "targets": list(descriptors),
        "environment": dict(environment),
        "cwd": os.fspath(cwd or os.getcwd()),
        "new_session": new_session,
        "group": -1 if group is None else group,
    }
    return _warm_process().fork(json.dumps(order).encode(), list(descriptors.values()))


@functools.cache
def _warm_process() -> WarmProcess:
    return WarmProcess()


class WarmProcess:
    """The process that has imported everything and is forked; it ends when this one does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(LIMIT_S)
        with theirs:
            self._process = PlainPopen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_warm_environment(),
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )

        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(LIMIT_S)

    def fork(self, order: bytes, descriptors: list[int]) -> int:
        """Fork once; returns the process id of the fork, which is a child of this process."""
        assert len(order) < MAX_MESSAGE, f"an order of {len(order)} bytes"
        with self._lock:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._socket, [order], descriptors)
                answer = self._socket.recv(MAX_MESSAGE)
            finally:
                _adopt_orphans(False)
        if not answer.isdigit():
            raise RuntimeError(f"the warm process is gone or cannot fork: {answer.decode()}")
        return int(answer)


def _adopt_orphans(yes: bool) -> None:
    """Whether a process below this one becomes its child when its parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _serve(control: socket.socket) -> None:
    """Fork for each order. Returns in the forks, and in the warm process at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a ctrl-c in the terminal is for the tests and the forks
    for name in IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, MAX_MESSAGE, 32)
        if not order:
            os._exit(0)
        threads = sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
        if len(threads) - threads.count(FORK_SAFE) > 1:
            control.send(f"it has threads, which imports must not start: {threads}".encode())
            os._exit(1)
        pid = _fork_twice()
        if pid == 0:
            control.close()
            _become(json.loads(order), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(str(pid).encode())


def _fork_twice() -> int:
    """Fork a process whose parent has ended, so that whoever adopts orphans is its parent. Returns its id, 0 in it."""
    reports, report = os.pipe()
    waits, opens = os.pipe()
    middle = os.fork()
    if middle == 0:
        pid = os.fork()
        if pid:
            os.write(report, str(pid).encode())
            os._exit(0)
        for descriptor in (reports, report, opens):
            os.close(descriptor)
        os.read(waits, 1)  # ends when the last who could write has closed it, after the adoption
        os.close(waits)
        return 0
    os.close(report)
    pid = int(os.read(reports, 32))
    os.waitpid(middle, 0)
    for descriptor in (reports, waits, opens):
        os.close(descriptor)
    return pid


def _become(order: dict[str, Any], descriptors: list[int]) -> None:
    """Make of this fork what a new process would be."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, FIRST_FREE) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for ours, target in zip(high, order["targets"], strict=True):
        os.dup2(ours, target, inheritable=target < 3)
        os.close(ours)
    if order["new_session"]:
        os.setsid()
    if order["group"] >= 0:
        os.setpgid(0, order["group"])
    os.chdir(order["cwd"])
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:] = [entry for entry in sys.path[1:] if entry not in path]
    sys.path[:0] = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.argv = order["arguments"][1:]
    sys.orig_argv = order["arguments"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _new_streams()
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.modules["torch"].seed()


def _new_streams() -> None:
    encoding, errors = sys.stdout.encoding, sys.stdin.errors
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(io.FileIO(0, closefd=False)), encoding, errors
    )
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(descriptor, "w", closefd=False)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(
            raw if unbuffered else io.BufferedWriter(raw),
            encoding,
            "backslashreplace" if descriptor == 2 else errors,
            line_buffering=not unbuffered and (descriptor == 2 or raw.isatty()),
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run() -> int:
    """Run what the arguments name as the main program, to the last thread and exit handler; returns its status."""
    try:
        _run_main()
        status = 0
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
        if exit.code is not None and not isinstance(exit.code, int):
            print(exit.code, file=sys.stderr)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
            trace = trace.tb_next  # frames of this module say nothing to a reader of the program's output
        traceback.print_exception(type(error), error, trace)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        status = 120  # as of the interpreter
    sys.stderr.flush()
    return status


def _run_main() -> None:
    kind, program = sys.argv[:2]
    if kind == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = sys.argv[1:]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, "")
    sys.argv = ["-c", *sys.argv[2:]]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(program, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    status = _run()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)  # the interpreter would take 0.3 s to free everything
