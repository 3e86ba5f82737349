"""What a run's folder holds, as tests read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The whole lines of ``metrics.jsonl``; the last one may be in the middle of being written."""
    file = out / "metrics.jsonl"
    return (
        [json.loads(line) for line in file.read_text().splitlines(True) if line[-1] == "\n"] if file.is_file() else []
    )


def weights(policy: Path) -> bytes:
    return (policy / "model.safetensors").read_bytes()


def steps(out: Path) -> list[int]:
    return sorted(int(p.name.removeprefix("step-")) for p in (out / "checkpoints").iterdir())
