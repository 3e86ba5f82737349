"""Where figures come from: versions, commit, machine, and fingerprints of what was measured."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import genpolicy
from genpolicy.errors import EngineError
from genpolicy.files import sha256_of
from genpolicy.shipped import policy_folder
from genpolicy_common.env import processor
from genpolicy_common.shipping import folders_in
from genpolicy_engines.oracle import find_engine


def machine_facts(device: str) -> dict[str, Any]:
    """What runs here: device, processor, versions."""
    import torch

    return {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "genpolicy": genpolicy.__version__,
    }


def now() -> str:
    """Local time with its offset, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def policy_fingerprint(spec: str) -> str:
    """Equal for policies that are the same: what was written, and the content of every folder and file that it names.

    Of a program (an engine) its size and date of change stand in for its content.
    """
    facts: list[Any] = [spec]
    folders = folders_in(spec)
    for folder in folders:
        files = sorted(Path(policy_folder(folder) or folder).glob("*"))
        facts += [[file.name, sha256_of(file)] for file in files if file.name in ("config.yaml", "model.safetensors")]
    for part in _named_in(spec):
        if part in folders:
            continue
        if (program := _program(part)) is not None:
            stat = os.stat(program)
            facts.append([stat.st_size, stat.st_mtime_ns])
        elif os.path.isfile(part):
            facts.append(sha256_of(Path(part)))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _program(name: str) -> str | None:
    try:
        return find_engine(name)
    except EngineError:  # most parts of a spelling do not name a program
        return None


def _named_in(spec: str) -> list[str]:
    """What in a spelling may be a folder, a file or a program: its head, the argument, the values of options, and the
    same of the spellings that these hold."""
    head, _, query = spec.partition("?")
    values = [pair.partition("=")[2] for pair in query.split("&") if pair]
    own = [part for part in (head, head.partition(":")[2], *values) if part]
    held = (unquote(part) for text in own if text != spec for part in text.split(","))
    deeper = (name for part in held if part for name in _named_in(part))
    return own + [name for name in dict.fromkeys(deeper) if name not in own]


def source_fingerprint(path: Path) -> str:
    """SHA-256 of a file; of a folder or glob, the fingerprint of its files' names and contents."""
    if path.is_file():
        return sha256_of(path)
    files = sorted(path.rglob("*") if path.is_dir() else path.parent.glob(path.name))
    facts = [[str(file), sha256_of(file)] for file in files if file.is_file()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
