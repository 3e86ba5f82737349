"""Where worker processes run: the one place through which commands start workers on other machines.

A ``Cluster`` starts functions in processes of their own and connects each with this process by a pipe over TCP, over
which both send Python objects. A package adds a kind of cluster by an entry point of the group
``genpolicy.clusters``: a function of the address that ``--cluster`` gives and of the number of workers asked for (None
means as many as fit). No command names a kind.

A worker that ends, by a kill, with its machine or because it is done, is an event like a message. What it was asked for
is then asked of another worker; that is the caller's part.
"""

from __future__ import annotations

import functools
import hmac
import importlib.metadata
import os
import pickle
import platform
import secrets
import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Generic, Self, TypeVar

from genpolicy import registry
from genpolicy.errors import EngineError
from genpolicy.machine import commit
from genpolicy_common.shipping import FOLDER, packed

TaskT = TypeVar("TaskT")
TOKEN_BYTES = 32
LOOK_S = 2.0
"""Workers whose pipes are silent are looked after so often: a machine without power closes no connection."""
CONNECT_S = 30.0
PATIENCE_S = 120.0
"""So long may there be no connected worker while one is expected."""
MAX_LOSSES = 5
"""So many workers that have answered nothing may be lost with nothing answered in between."""


class ClusterError(ConnectionError):
    """A cluster cannot be reached, or its workers cannot be used."""


@dataclass(frozen=True)
class Versions:
    """What must be equal on both sides of a pipe."""

    genpolicy: str
    python: str

    @staticmethod
    @functools.cache  # git is asked for the commit, which must not be done for each of a thousand workers
    def here() -> Versions:
        """Those of this process."""
        version = importlib.metadata.version("genpolicy")
        return Versions(f"{version} ({commit() or 'installed'})", ".".join(platform.python_version_tuple()[:2]))

    def require(self, theirs: Versions, who: str) -> None:
        """Check those of a worker.

        Raises:
            ClusterError: they differ.
        """
        for name, ours, other in (
            ("Python", self.python, theirs.python),
            ("genpolicy", self.genpolicy, theirs.genpolicy),
        ):
            if ours != other:
                raise ClusterError(
                    f"worker {who} has {name} {other}, this machine {name} {ours}; install the same version on all "
                    "machines of the cluster, or name another cluster"
                )


@dataclass(frozen=True)
class Hello:
    """The first message of a worker."""

    versions: Versions
    host: str
    pid: int


@dataclass(frozen=True)
class Lost:
    """The event that a worker has ended, whatever ended it."""

    why: str


@dataclass(eq=False)
class Worker:
    """A process on a cluster, from before it begins until it ends."""

    number: int
    handle: Any
    """What the cluster knows it by."""
    name: str = "starting"
    """``HOST:PID`` when it has connected."""
    pipe: Connection | None = None
    begun: float = field(default_factory=time.monotonic)

    def send(self, thing: Any) -> None:
        """Send an object; what a worker that has ended is sent is dropped, since its end is an event."""
        assert self.pipe is not None
        with suppress(OSError):
            self.pipe.send(thing)


class Cluster(ABC):
    """Starts workers and delivers what they send.

    Args:
        host: Address of this machine that workers can reach.
    """

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0), backlog=1024)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._expected: dict[bytes, Worker] = {}
        self._strangers: dict[socket.socket, tuple[float, bytearray]] = {}
        """Since when, and what they have sent of a token."""
        self._by_pipe: dict[Connection, Worker] = {}
        self._readable: deque[Any] = deque()
        """What the last look at all connections found to read. To look again for each message would take time in
        proportion to the square of the number of workers."""
        self._looked = self._accompanied = time.monotonic()
        """When workers were last looked after, and when one was last connected."""
        self._count = 0

    @property
    @abstractmethod
    def num_places(self) -> int:
        """Workers that run at once: those asked for, else as many as the cluster has processors."""

    @abstractmethod
    def _launch(self, *arguments: Any) -> Any:
        """Have ``work_for(*arguments)`` called in a process of its own, when there is room; what it is known by."""

    @abstractmethod
    def _end_of(self, handle: Any) -> str | None:
        """Why a worker has ended; None while it waits or runs."""

    def _ended(self, handles: Sequence[Any]) -> Collection[Any]:
        """Those of some workers that may have ended; where to ask for each takes long, a cluster asks for all."""
        return handles

    @abstractmethod
    def _kill(self, handle: Any) -> None:
        """End a worker at once."""

    @property
    def workers(self) -> list[Worker]:
        """Those that have not ended."""
        return [*self._by_pipe.values(), *self._expected.values()]

    def start(self, target: Callable[..., None], *arguments: Any) -> Worker:
        """Start ``target(pipe, *arguments)`` in a process of its own; it may have to wait for room.

        Args:
            target: A function of a module; it sends and receives by its pipe and returns when that ends.
            arguments: What can be pickled.
        """
        token, self._count = secrets.token_bytes(TOKEN_BYTES), self._count + 1
        worker = Worker(self._count, self._launch(self._listener.getsockname()[:2], token, target, arguments))
        self._expected[token] = worker
        return worker

    def events(self, timeout_s: float | None = None) -> Iterator[tuple[Worker, Any]]:
        """What has come: the messages of workers, a ``Hello`` first and ``Lost`` last.

        Args:
            timeout_s: How long to wait for the first; None waits until there is one.

        Raises:
            ClusterError: a worker has other versions, or no worker has started for two minutes though there is room.
        """
        limit = time.monotonic() + (float("inf") if timeout_s is None else timeout_s)
        came = False
        while not came:
            if not self._readable:
                wait_s = max(0.0, min(limit - time.monotonic(), self._looked + LOOK_S - time.monotonic()))
                self._readable.extend(key.fileobj for key, _ in self._selector.select(wait_s))
            while self._readable:
                each = self._readable.popleft()
                if each is self._listener:
                    self._accept()
                elif (worker := self._by_pipe.get(each)) is not None:
                    came = True
                    yield self._receive(worker)
                elif each in self._strangers and (known := self._meet(each)) is not None:
                    came = True
                    yield known
            if time.monotonic() >= self._looked + LOOK_S:
                for lost in self._look():
                    came = True
                    yield lost
            if time.monotonic() >= limit:
                return

    def close(self) -> None:
        """End all workers; safe to call twice."""
        workers = self.workers
        for worker in workers:
            if worker.pipe is not None:
                self._forget(worker)
        for worker in workers:  # when all know that they may end
            self._kill(worker.handle)
        self._expected.clear()
        for stranger in self._strangers:
            stranger.close()
        self._strangers.clear()
        self._readable.clear()
        self._selector.close()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _accept(self) -> None:
        connected, _ = self._listener.accept()
        connected.setblocking(False)
        self._strangers[connected] = time.monotonic(), bytearray()
        self._selector.register(connected, selectors.EVENT_READ, connected)

    def _meet(self, stranger: socket.socket) -> tuple[Worker, Any] | None:
        """Find out who has connected. Nothing of a stranger is unpickled, or waited for, before it has sent a token."""
        _, token = self._strangers[stranger]
        came = b""
        with suppress(OSError):
            came = stranger.recv(TOKEN_BYTES - len(token))
        token += came
        if came and len(token) < TOKEN_BYTES:
            return None
        self._selector.unregister(stranger)
        del self._strangers[stranger]
        known = next((each for each in self._expected if hmac.compare_digest(each, bytes(token))), None)
        if known is None:
            stranger.close()
            return None
        worker = self._expected.pop(known)
        stranger.setblocking(True)
        worker.pipe = pipe = _as_pipe(stranger)
        self._by_pipe[pipe] = worker
        self._selector.register(pipe, selectors.EVENT_READ, pipe)
        _, hello = event = self._receive(worker)
        if isinstance(hello, Hello):
            worker.name = f"{hello.host}:{hello.pid}"
            Versions.here().require(hello.versions, worker.name)
        return event

    def _receive(self, worker: Worker) -> tuple[Worker, Any]:
        assert worker.pipe is not None
        try:
            return worker, worker.pipe.recv()
        except (EOFError, OSError):
            self._forget(worker)
            return worker, Lost(self._end_of(worker.handle) or "its connection was closed")

    def _look(self) -> Iterator[tuple[Worker, Lost]]:
        """Find workers that have ended without a word."""
        self._looked = now = time.monotonic()
        for stranger in [each for each, (since, _) in self._strangers.items() if now - since > CONNECT_S]:
            del self._strangers[stranger]
            self._selector.unregister(stranger)
            stranger.close()
        if self._by_pipe:
            self._accompanied = now
        ended = self._ended([worker.handle for worker in self.workers])
        for token, worker in list(self._expected.items()):
            if worker.handle in ended and (why := self._end_of(worker.handle)) is not None:
                del self._expected[token]
                yield worker, Lost(why)
            elif now - max(worker.begun, self._accompanied) > PATIENCE_S:
                raise ClusterError(
                    f"no worker has started for {PATIENCE_S:.0f} s; is the cluster full, or can its machines not reach "
                    f"{':'.join(map(str, self._listener.getsockname()[:2]))}?"
                )
        for worker in list(self._by_pipe.values()):
            assert worker.pipe is not None
            if (
                worker.handle in ended
                and not worker.pipe.poll()
                and (why := self._end_of(worker.handle)) is not None
                and not worker.pipe.poll()
            ):
                self._forget(worker)
                yield worker, Lost(why)

    def _forget(self, worker: Worker) -> None:
        pipe, worker.pipe = worker.pipe, None
        if pipe is not None:
            del self._by_pipe[pipe]
            self._selector.unregister(pipe)
            pipe.close()


class Crew(Generic[TaskT]):
    """The workers that do some tasks: as many as the cluster has places, replaced when they are lost.

    A task of a lost worker waits for another one. What tasks are, and what is said about them, is the caller's part.

    Args:
        cluster: Where they run; it is closed with the crew.
        target: Called in each, as ``target(pipe, *arguments)``.
        arguments: What can be pickled.
        say: Told who joins and who is lost.
        most: Most workers; None means as many as the cluster has places.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: Callable[..., None],
        *arguments: Any,
        say: Callable[[str], None] = lambda text: None,
        most: int | None = None,
    ) -> None:
        self.cluster, self.say = cluster, say
        self._start = functools.partial(cluster.start, target, *arguments)
        self.waiting: deque[TaskT] = deque()
        """Tasks that no worker has."""
        self.idle: deque[Worker] = deque()
        """Workers with room for a task."""
        self.at_work: dict[Worker, list[TaskT]] = {}
        """The tasks of each worker that is not ready for others, none while it ends its last."""
        self._losses = 0
        self._first: tuple[str, Mapping[str, Mapping[str, Any]]] | None = None
        self.num_lost = 0
        self.answered: Counter[str] = Counter()
        """What each worker has answered, by name, also of those that were lost."""
        for _ in range(max(1, min(most or cluster.num_places, cluster.num_places))):
            self._start()

    def ready(self, worker: Worker) -> None:
        """Note that a worker has done all its tasks and has room for one."""
        self.at_work.pop(worker, None)
        self.idle.append(worker)

    def give(self, task: TaskT) -> Worker:
        """Give a task to an idle worker, which the caller tells what it is."""
        worker = self.idle.popleft()
        self.at_work.setdefault(worker, []).append(task)
        return worker

    def require_same(self, worker: Worker, engines: Mapping[str, Mapping[str, Any]], way_out: str) -> None:
        """Check that a worker has the engines of the first one that said so; the command itself may have none.

        Args:
            worker: The worker.
            engines: What each says of itself, by what it is called in messages.
            way_out: The message's last sentences.

        Raises:
            EngineError: an engine differs in its name (most engines give their version in it), limits or options.
        """
        first, theirs = self._first = self._first or (worker.name, engines)
        for what, about in engines.items():
            if about != (other := theirs[what]):
                keys = [key for key in {**other, **about} if about.get(key) != other.get(key)]
                said = "; ".join(f"{key} {about.get(key)!r}, not {other.get(key)!r}" for key in keys)
                raise EngineError(
                    f"worker {worker.name}: {what} is another one than that of worker {first}: {said}. {way_out}"
                )

    def credit(self, worker: Worker, number: int = 1) -> None:
        """Note that a worker has answered something."""
        self.answered[worker.name] += number
        self._losses = 0

    def event(self) -> tuple[Worker, Any]:
        """The next message, or ``Lost`` for a worker in whose place another was started and whose tasks wait.

        Folders of policies that workers ask for (``genpolicy_common.shipping``) are sent here.

        Raises:
            ClusterError: five workers that had answered nothing were lost with nothing answered in between; or as
                ``Cluster.events``.
            Exception: what a worker raised and sent.
        """
        while True:
            worker, message = next(self.cluster.events())
            if isinstance(message, Exception):
                raise named(message, worker.name)
            if isinstance(message, Hello):
                self.say(f"worker {worker.name} joins")
                continue
            if isinstance(message, tuple) and message[0] == FOLDER:
                worker.send(packed(message[1]))
                continue
            if isinstance(message, Lost):
                self._losses += worker.name not in self.answered  # a machine takes many that have worked with it
                self.num_lost += 1
                if self._losses >= MAX_LOSSES:
                    raise ClusterError(
                        f"{self._losses} workers were lost before they had answered anything, the last one "
                        f"({worker.name}): {message.why}. What is finished is kept, and the same command resumes"
                    )
                number = self.answered[worker.name]
                self.say(f"worker {worker.name} is lost ({message.why}) after {number} answers; another takes its work")
                self._start()
                self.waiting.extendleft(reversed(self.at_work.pop(worker, [])))
                if worker in self.idle:
                    self.idle.remove(worker)
            return worker, message

    def close(self) -> None:
        """End the workers and leave the cluster; safe to call twice."""
        self.cluster.close()

    def report(self) -> str:
        """Who has answered how much, in a line."""
        parts = [f"{name} {number}" for name, number in sorted(self.answered.items())]
        who = f"{len(parts)} worker{'s' * (len(parts) != 1)} answered: {', '.join(parts)}"
        return who + f"; {self.num_lost} lost" * bool(self.num_lost)


def named(error: Exception, who: str) -> Exception:
    """The same kind of error with the worker's name before its text."""
    if isinstance(error, OSError) and error.filename is not None:
        error.filename = f"worker {who}: {error.filename}"
    elif isinstance(error, OSError) and error.strerror is not None:
        error.strerror = f"worker {who}: {error.strerror}"
    elif len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"worker {who}: {error.args[0]}",)
    else:
        return ClusterError(f"worker {who}: {type(error).__name__}: {error}")
    return error


def open_cluster(text: str, num_workers: int | None = None) -> Cluster:
    """The cluster of ``--cluster``: ``local``, an address, or ``KIND:ADDRESS`` where several kinds are installed.

    Raises:
        ClusterError: it cannot be reached.
        RegistryError: no kind of cluster, or its extra is not installed.
        ValueError: no address.
    """
    kinds = registry.available("clusters")
    kind, colon, address = text.partition(":")
    if not (colon and kind in kinds) or address.startswith("//"):  # ray://HOST:PORT is an address
        kind, address = next(iter(kinds), ""), text
    if not address.strip():
        raise ValueError(f"--cluster must be local or the address of a cluster, got {text!r}")
    factory = registry.load("clusters", kind)
    with registry.making("clusters", kind, ValueError, OSError):
        cluster = factory(address, num_workers)
    if not isinstance(cluster, Cluster):
        raise registry.wrong_thing("clusters", kind, cluster, "a genpolicy_common.cluster.Cluster")
    return cluster


def work_for(address: tuple[str, int], token: bytes, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """What a worker's process does: connect, say who it is, and call the target."""
    connected = socket.create_connection(address, timeout=CONNECT_S)
    connected.settimeout(None)
    connected.sendall(token)
    with _as_pipe(connected) as pipe:
        try:
            pipe.send(Hello(Versions.here(), socket.gethostname(), os.getpid()))
            target(pipe, *arguments)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the command is gone
        except Exception as error:
            with suppress(OSError):
                pipe.send(sendable(error))


def sendable(error: Exception) -> Exception:
    """The error if it can be pickled, else an error with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an exception may hold anything
        return ClusterError(f"{type(error).__name__}: {error}")
    return error


def _as_pipe(connected: socket.socket) -> Connection:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # A machine that loses power in the middle of a message would be waited for: two hours, by the usual settings.
    limits = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 90_000}
    for name, seconds in limits.items():
        if (option := vars(socket).get(name)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, seconds)
    return Connection(connected.detach())
