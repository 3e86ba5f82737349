"""A kill while matplotlib writes a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def kill_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next picture end by Ctrl-C with half of it in its file; skips the test without matplotlib."""

    def killed(figure: Any, target: Any, **options: Any) -> None:
        if isinstance(target, Path):
            target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(pytest.importorskip("matplotlib.figure").Figure, "savefig", killed)
