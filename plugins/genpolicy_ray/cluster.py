"""A cluster of Ray: it finds room for workers, starts their processes and says why one has ended.

Everything else goes over the pipes of ``genpolicy_common.cluster``, past Ray: a message costs a tenth of a millisecond.
Each worker is a task of Ray that holds one processor, in a fresh process, and that Ray does not try again by itself.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from genpolicy.machine import num_cores
from genpolicy_common.cluster import CONNECT_S, Cluster, ClusterError, work_for

LOCAL, AUTO = "local", "auto"
OBJECT_STORE_BYTES = 100_000_000
"""Of a cluster that is started here; workers put nothing there."""
CLOSE_S = 5.0
"""So long may all workers together take to end by themselves, so that they end their engines."""


class RayCluster(Cluster):
    """Workers on Ray.

    Args:
        address: ``local`` starts Ray on this machine and ends it with the cluster. ``HOST:PORT`` joins a cluster that
            this machine is a node of, as ``auto`` does with the one that runs here; ``ray://HOST:PORT`` joins any.
        num_workers: Workers at once; None means one for each processor of the cluster.

    Raises:
        ClusterError: it cannot be reached, or it has another version of Ray or Python.
    """

    def __init__(self, address: str = LOCAL, num_workers: int | None = None) -> None:
        self._owner = not ray.is_initialized()
        if self._owner:
            _join(address, num_workers)
        elif address not in (LOCAL, AUTO):
            raise ClusterError(f"--cluster {address}: this process has joined a cluster of Ray; call ray.shutdown()")
        self._places = num_workers or int(ray.cluster_resources().get("CPU", 1))
        task: Any = ray.remote(max_calls=1, max_retries=0, num_cpus=1, scheduling_strategy="SPREAD")
        self._task = task(work_for)
        self._patience_until: float | None = None
        """When workers that have not ended are killed; None while the cluster is at work."""
        super().__init__("127.0.0.1" if address == LOCAL else ray.util.get_node_ip_address())

    @property
    def num_places(self) -> int:
        """Workers that run at once."""
        return self._places

    def close(self) -> None:
        """End all workers, and Ray where it was started or joined here."""
        if not ray.is_initialized():
            return
        super().close()
        if self._owner:
            ray.shutdown()

    def _launch(self, *arguments: Any) -> Any:
        return self._task.remote(*arguments)

    def _end_of(self, handle: Any) -> str | None:
        if not ray.wait([handle], timeout=0)[0]:
            return None
        try:
            ray.get(handle)
        except RayError as error:
            return _lines(error)[0]
        return "its process has ended"

    def _ended(self, handles: Sequence[Any]) -> Collection[Any]:
        return set(ray.wait(list(handles), num_returns=len(handles), timeout=0)[0]) if handles else ()

    def _kill(self, handle: Any) -> None:
        if self._patience_until is None:
            self._patience_until = time.monotonic() + CLOSE_S
        if not ray.wait([handle], timeout=max(0.0, self._patience_until - time.monotonic()))[0]:
            ray.cancel(handle, force=True)


def _join(address: str, num_workers: int | None) -> None:
    """Start Ray here, or join a cluster, and leave the handlers of signals as they are."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    main = threading.current_thread() is threading.main_thread()
    before, stopped = signal.getsignal(signal.SIGTERM), False
    try:
        if address == LOCAL:
            places = max(num_workers or 0, num_cores())
            ray.init("local", num_cpus=places, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quiet)
        else:
            _require_answer(address)
            ray.init(address, **quiet)
    except (RuntimeError, ValueError, OSError, RayError) as error:
        if isinstance(error, ClusterError):
            raise
        raise ClusterError(f"--cluster {address}: {' '.join(_lines(error))}{_token_hint(address)}") from error
    except SystemExit as stop:
        if stop.code != signal.SIGTERM:
            raise
        stopped = True
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)  # Ray sets its own, which exits with the signal's number
    if stopped:
        signal.raise_signal(signal.SIGTERM)


def _lines(error: Exception) -> list[str]:
    """What an error says; where Ray made it of the traceback of another one, that one's last line."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1:] if "Traceback" in str(error) else lines


def _token_hint(address: str) -> str:
    """Ray sends its token to no address that is given, unless it is told to, and does not say that it is asked."""
    if address in (LOCAL, AUTO) or os.environ.get("RAY_AUTH_MODE"):
        return ""
    return (
        "; if the cluster asks for a token, which ray start then says, give RAY_AUTH_MODE=token in the environment and "
        "have the head's ~/.ray/auth_token here"
    )


def _require_answer(address: str) -> None:
    """See that something listens there; Ray itself would try for long.

    Raises:
        ClusterError: nothing does, or it is not an address.
    """
    if address == AUTO:
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdigit()):
        raise ClusterError(
            f"--cluster {address!r} is not an address: give HOST:PORT as ray start --head prints it, "
            "ray://HOST:PORT, auto, or local for workers on this machine"
        )
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S / 3).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"--cluster {address}: nothing answers there ({error}); is the head running (ray start --head), and may "
            "this machine reach it?"
        ) from error
