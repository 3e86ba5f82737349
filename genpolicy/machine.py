"""The machine and the checkout that this code runs on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

GIT_TIMEOUT_S = 10


def num_cores() -> int:
    """Processor cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str | None:
    """Commit of this checkout, 12 digits, with ``+`` if tracked files have changed since; None outside a checkout."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():  # an installed package may lie within somebody else's repository
        return None
    call = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True, encoding="utf-8")
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
