"""Modules can be imported, and local commands run, where Python has no POSIX modules and functions, as on Windows."""

from __future__ import annotations

import ast
import json
import re
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

import subprocess
from genpolicy.cli import main


class Popen(subprocess.Popen):
    def __init__(self, *arguments, preexec_fn=None, pass_fds=(), **options):
        if preexec_fn is not None or pass_fds:
            raise ValueError("preexec_fn and pass_fds are not supported on Windows platforms")
        super().__init__(*arguments, **options)


subprocess.Popen = Popen
for line in COMMANDS.splitlines():
    print(line, flush=True)
    assert main(line.split()) == 0
"""
TINY = "trainer.max_minutes=null trainer.max_records=32 trainer.eval_records=8 trainer.accuracy_records=8"
COMMANDS = f"""\
games
data import all --game connect:rows=3,cols=3,k=3,gravity=false --split 0.6/0.2/0.2 --out positions
data label --data positions --oracle solver --horizon 4 --out labelled
train --config connect/s-asa-3x3 data.folder=labelled {TINY} --out run
evaluate accuracy --policy run random --data labelled --limit 4
tournament --policy run random --rounds 1 --out match
show --policy run --out plan.svg
data selfplay --game connect:rows=3,cols=3,k=3,gravity=false --oracle alphabeta?depth=1 --positions 8 --out played
"""
"""What somebody does on one computer, without an engine."""


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
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    named = re.compile(rf"\b({'|'.join(POSIX_MODULES)})\b")
    found = {path: begins_with(text) & set(POSIX_MODULES) for path, text in texts.items() if named.search(text)}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.thorough
def test_without_posix_every_module_can_be_imported_and_the_local_commands_run(tmp_path: Path) -> None:
    names = modules()
    assert {"genpolicy_common.store", "genpolicy_labelling.writer", "genpolicy_experiments.worker"} <= set(names)
    code = f"COMMANDS = {COMMANDS!r}\n{CODE}"
    words = [sys.executable, "-c", code, json.dumps(names), json.dumps(POSIX_MODULES)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert int(done.stdout.split()[0]) >= len(names) - 1
    assert (tmp_path / "plan.svg").is_file()
    assert sorted(path for path in tmp_path.rglob("*") if set(path.name) & set(':?*|<>"\\')) == []  # forbidden there
