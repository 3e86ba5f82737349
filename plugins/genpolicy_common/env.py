"""``genpolicy env``: what a report of a fault should say of the machine and of what is installed."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from importlib import metadata
from typing import Any

import genpolicy
from genpolicy import registry
from genpolicy.machine import commit, num_cores
from genpolicy_common import ENV
from genpolicy_common.arguments import add_json
from genpolicy_common.tables import Report, write_json

PACKAGES = ("torch", "numpy", "accelerate", "diffusers", "omegaconf", "safetensors", "pyarrow", "chess", "cshogi")
PROGRAMS = ("stockfish", "fairy-stockfish", "chromium")
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES", "HF_ENDPOINT", "GENPOLICY_HUB_CACHE")


def add_parser(subparsers: Any) -> None:
    """Add ``env`` to the command line."""
    parser = subparsers.add_parser("env", help=ENV.help, description="Nothing is sent anywhere; copy what is printed.")
    add_json(parser, "it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print versions, the machine, programs and what other packages have added."""
    facts = environment()
    table = Report("Environment", ["what", "is"], words=True)
    for name, value in facts.items():
        table.add(name, str(value))
    table.print()
    write_json(arguments.json, facts)
    return 0


def environment() -> dict[str, str | int]:
    """What is installed, by name; no path of a user's folder is in it, and of the environment only ``VARIABLES``."""
    facts: dict[str, str | int] = {
        "genpolicy": f"{genpolicy.__version__} {commit() or ''}".strip(),
        "python": f"{platform.python_version()} ({sys.implementation.name})",
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": num_cores(),
        **_of_torch(),
    }
    facts |= {name: _version(name) for name in PACKAGES}
    facts |= {name: "found" if _has(name) else "not found" for name in PROGRAMS}
    facts |= {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return facts | {f"from {name}": ", ".join(things) for name, things in _third_party().items()}


def processor() -> str:
    """The processor's name, as the system knows it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _of_torch() -> dict[str, str | int]:
    """Threads and accelerator, or why torch cannot be imported: a report may be about just that."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"import of torch": str(error)}
    if torch.cuda.is_available():
        accelerator = torch.cuda.get_device_name(0)
    else:
        accelerator = "mps" if torch.backends.mps.is_available() else "none"
    return {"threads of torch": torch.get_num_threads(), "accelerator": accelerator}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _has(program: str) -> bool:
    return shutil.which(program) is not None or os.path.isfile(f"/usr/games/{program}")


def _third_party() -> dict[str, list[str]]:
    """What other packages than genpolicy have registered."""
    found: dict[str, list[str]] = {}
    for group in registry.ONE_OF:
        for point in registry.entry_points(group=f"genpolicy.{group}"):
            if point.dist is not None and point.dist.name != "genpolicy":
                found.setdefault(f"{point.dist.name} {point.dist.version}", []).append(f"{group}.{point.name}")
    return found
