"""A policy folder from a stranger: refused by one message, or harmless; never read from, imported for, or grown on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from genpolicy import cli, load_policy
from genpolicy.config import read_yaml
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.yaml_text import check_yaml
from tests.fuzz.malicious_folders import CANARY, bombs, good_policy, peak_mb
from tests.small_datasets import CONNECT

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory by Linux")
DECLARED = {"CheckpointError", "RegistryError", "ConfigError"}
MAX_SECONDS = 10
MAX_GROWTH_MB = 200
MAX_MESSAGE = 8_000


def opened(root: Path, every: int) -> list[dict[str, Any]]:
    """What came of every folder, all opened by one process."""
    (root / "canary_module.py").write_text("raise SystemExit('imported')\n")
    here = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.fuzz.malicious_folders", str(root), str(every)]
    settings = {
        CANARY: "secret",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(here), str(root), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        command, cwd=root, env={**os.environ, **settings}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"after {done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"
    assert not [path for path in root.rglob("*") if "canary" in path.name.lower() and path.name != "canary_module.py"]
    return [json.loads(line) for line in done.stdout.splitlines()]


def wrong(one: dict[str, Any]) -> list[str]:
    """What a folder should not have done."""
    found = list(one["seen"])
    if one["error"] not in DECLARED:
        found.append(f"{one['error']}: {one['message'][:200]}" if one["error"] else "was loaded")
    if "secret" in one["message"] or one["length"] > MAX_MESSAGE:
        found.append(f"message of {one['length']} characters: {one['message'][:200]}")
    if one["seconds"] > MAX_SECONDS or one["grown_mb"] > MAX_GROWTH_MB:
        found.append(f"{one['seconds']:.1f} s, {one['grown_mb']:.0f} MB")
    return found


@pytest.mark.parametrize(("every", "least"), [(3, 200), pytest.param(1, 590, marks=pytest.mark.slow)])
def test_malicious_folders_are_refused_and_touch_nothing(tmp_path: Path, every: int, least: int) -> None:
    results = opened(tmp_path, every)
    assert len(results) >= least
    assert {one["name"]: wrong(one) for one in results if wrong(one)} == {}


@pytest.mark.parametrize(("name", "text"), bombs(), ids=lambda value: str(value)[:30])
def test_a_bomb_is_refused_before_anything_is_made_of_it(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    by_parser = "undefined alias|nesting depth"  # the parser of PyYAML 6.0.4 has a limit of its own
    with pytest.raises(ConfigError, match=rf"aliases followed|refers to itself|more than|longer than|{by_parser}"):
        read_yaml(tmp_path / "config.yaml")


def test_an_alias_that_is_used_with_measure_is_read(tmp_path: Path) -> None:
    check_yaml("\n".join(["a: &a {x: 1, y: [1, 2]}", *(f"k{i}: {{<<: *a, y: 3}}" for i in range(100))]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"horizon": 400}, "attention of 1 layers over 4,400 tokens"),
        ({"horizon": 1800, "geometry": "board"}, "attention of 1 layers over 19,800 tokens"),
        ({"num_layers": 10**9, "geometry": "board"}, "num_layers must be at least 1 and at most 1,000"),
        ({"num_layers": 1000, "geometry": "board"}, "its (weight|bias) has shape"),
        ({"board_code": 10**8, "geometry": "board"}, "larger than its weights, or cannot be made"),
        ({"kind": "absorbing\n    num_timesteps: 100000"}, "num_timesteps must be from 1 to 4,000"),
        ({"num_futures": 10**9}, "num_futures must be at least 1 and at most 1024"),
        ({"depth": 10**9}, "depth must be at least 1 and at most 64"),
    ],
)
def test_what_would_fill_the_memory_is_refused_before_it_is_made(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    folder = good_policy(tmp_path / "good")
    text = (folder / "config.yaml").read_text()
    for key, value in changed.items():
        text, count = re.subn(rf"(?m)^( *{key}:).*", rf"\g<1> {value}", text, count=1)
        assert count == 1
    (folder / "config.yaml").write_text(text)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_mb()
    with pytest.raises(CheckpointError, match=said):
        load_policy(folder)
    assert peak_mb() - before < MAX_GROWTH_MB


@pytest.mark.parametrize("game", ["[]", "{}", "[connect]", "1"])
@pytest.mark.parametrize("spelling", ["{}", "mcts:{}?simulations=2", "mix:{},random"])
def test_a_game_that_is_no_text_is_refused_wherever_the_folder_is_named(
    spelling: str, game: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = good_policy(tmp_path / "good")
    config = folder / "config.yaml"
    config.write_text(re.sub(r"(?m)^game: .*", f"game: {game}", config.read_text()))
    words = ["tournament", "--game", CONNECT, "--rounds", "1", "--workers", "1", "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--policy", spelling.format(folder), "random"]) == 2
    assert "config.yaml: game must be a text" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_long_file_does_not_allow_a_large_network(tmp_path: Path) -> None:
    folder = good_policy(tmp_path / "good")
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(200 << 30)  # a hole, which takes no space
    config = folder / "config.yaml"
    config.write_text(re.sub(r"(?m)^( *width:).*", r"\g<1> 16384", config.read_text()))
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_mb()
    with pytest.raises(CheckpointError, match="larger than its weights"):
        load_policy(folder)
    assert peak_mb() - before < MAX_GROWTH_MB


def test_control_characters_do_not_reach_a_terminal(tmp_path: Path) -> None:
    for text in ('command: "\\e]0;title\\a"', 'game: "\\x9b2J"', '"\\r": 1'):
        (tmp_path / "config.yaml").write_text(f"policy: x\n{text}\n")
        with pytest.raises(ConfigError, match="line 2: a text with control characters"):
            read_yaml(tmp_path / "config.yaml")
    check_yaml('text: "tab\\tand\\nline, 将棋"')
