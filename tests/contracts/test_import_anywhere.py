"""Every module can be imported where Python has no POSIX modules and functions, as on Windows."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POSIX_MODULES = ["fcntl", "grp", "pwd", "pty", "readline", "resource", "syslog", "termios", "tty"]
CODE = """
import importlib, json, os, signal, sys

modules, blocked = json.loads(sys.argv[1]), set(json.loads(sys.argv[2]))
libraries = ("accelerate", "diffusers", "filelock", "matplotlib", "omegaconf", "pyarrow.parquet", "rich", "safetensors",
             "starlette", "tensorboard", "torch", "torch.utils.tensorboard", "uvicorn", "yaml", "chess", "cshogi")
for name in libraries:  # whose own ways out are theirs
    importlib.import_module(name)
try:
    import ray
except ModuleNotFoundError:  # the extra is not installed, and a module of a plugin of Ray begins with it
    modules.remove("genpolicy_ray.cluster")


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


for name in blocked:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Blocked())
for name in ("fork", "forkpty", "geteuid", "getuid", "getloadavg", "killpg", "sched_getaffinity", "setsid", "uname"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGCHLD", "setitimer", "alarm"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in modules:
    importlib.import_module(name)
print(len(modules))
"""


def modules() -> list[str]:
    folders = [ROOT / "genpolicy", *(p for top in ("games", "plugins") for p in (ROOT / top).iterdir() if p.is_dir())]
    files = [(folder.parent, path) for folder in folders for path in folder.rglob("*.py") if path.stem != "__main__"]
    names = [".".join(path.relative_to(parent).with_suffix("").parts) for parent, path in files]
    return sorted(name.removesuffix(".__init__") for name in names)


def begins_with(source: str) -> set[str]:
    """The modules that a module imports as it is imported itself, whatever happens."""
    plain = [node for node in ast.parse(source).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in plain if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in plain if isinstance(node, ast.ImportFrom)}


def test_no_module_begins_with_one_of_posix() -> None:
    assert begins_with(
        "import os, fcntl\nfrom pwd import x\ntry:\n    import tty\nexcept ImportError:\n    pass\n"
    ) == {*("os", "fcntl", "pwd")}
    files = [path for top in ("genpolicy", "games", "plugins") for path in (ROOT / top).rglob("*.py")]
    assert len(files) > 150
    found = {path: begins_with(path.read_text(encoding="utf-8")) & set(POSIX_MODULES) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.thorough
def test_every_module_can_be_imported_without_posix() -> None:
    names = modules()
    assert {"genpolicy_common.store", "genpolicy_labelling.writer", "genpolicy_experiments.worker"} <= set(names)
    words = [sys.executable, "-c", CODE, json.dumps(names), json.dumps(POSIX_MODULES)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) >= len(names) - 1
