"""A cluster of threads: its workers share this process, so that programs they start are warm."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from genpolicy_common.cluster import Cluster, work_for


def _work(*arguments: Any) -> None:
    with suppress(ConnectionRefusedError):  # the others have done it all, and nobody listens any more
        work_for(*arguments)


class Threads(Cluster):
    """Workers are threads, which end when their pipes do; ``address`` is of no use."""

    def __init__(self, address: str, num_workers: int | None = None) -> None:
        super().__init__("127.0.0.1")
        self._places = num_workers or 2
        self._started: list[threading.Thread] = []

    @property
    def num_places(self) -> int:
        return self._places

    def close(self) -> None:
        super().close()
        for thread in self._started:
            thread.join(60)

    def _launch(self, *arguments: Any) -> Any:
        thread = threading.Thread(target=_work, args=arguments, daemon=True)
        thread.start()
        self._started.append(thread)
        return thread

    def _end_of(self, handle: Any) -> str | None:
        return None if handle.is_alive() else "its thread has ended"

    def _kill(self, handle: Any) -> None:
        """It ends with its pipe."""
