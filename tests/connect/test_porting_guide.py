"""What docs/porting-a-game.md quotes from k-in-a-row stands there, word for word; its shell lines name what exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from genpolicy.shipped import shipped
from genpolicy.testing import check_game

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/porting-a-game.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, flags=re.DOTALL)


def test_quotations_are_true() -> None:
    sources = [path.read_text() for path in sorted((ROOT / "games/genpolicy_connect").glob("*.py"))]
    quoted = [block for block in blocks("python") if not block.startswith(("# tests/", '"""Avoid'))]
    assert len(quoted) >= 5
    for block in quoted:
        assert any(block in source for source in sources), block


def test_the_whole_game_obeys_the_laws() -> None:
    (code,) = [block for block in blocks("python") if block.startswith('"""Avoid')]
    (project,) = [block for block in blocks("toml") if "avoid" in block]
    assert tomllib.loads(project)["project"]["entry-points"]["genpolicy.games"] == {"avoid": "avoid:AvoidGame"}
    module: dict[str, Any] = {"__name__": "avoid"}
    exec(compile(code, "avoid.py", "exec"), module)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 75
    # Tic-tac-toe's counts: the first line of three, which ends both games, can stand at ply 5.
    perft = {1: 9, 2: 72, 3: 504, 4: 3024}
    check_game(module["AvoidGame"](), perft=perft, bad_texts=["no position", "XXXXXXXXX"])


def test_the_readers_own_test_is_python() -> None:
    own = [block for block in blocks("python") if block.startswith("# tests/")]
    assert len(own) == 1
    compile(own[0], "porting-a-game.md", "exec")


def test_commands_have_the_options_that_are_shown() -> None:
    joined = [block.replace("\\\n", " ") for block in blocks("sh")]
    lines = [line for block in joined for line in block.splitlines() if line.startswith("genpolicy ")]
    assert len(lines) >= 12
    verbs = {"data": ["import", "label", "selfplay"], "evaluate": ["accuracy"]}
    helps: dict[str, str] = {}
    for line in lines:
        words = line.partition("#")[0].split()
        command = [words[1], *(word for word in words[2:3] if word in verbs.get(words[1], []))]
        if (name := " ".join(command)) not in helps:
            helps[name] = subprocess.run(
                [sys.executable, "-m", "genpolicy", *command, "--help"], capture_output=True, text=True, check=True
            ).stdout
        for option in (word for word in words if word.startswith("--")):
            assert option in helps[name], line
    for config in re.findall(r"--config (\S+)", GUIDE):
        assert config in shipped(), config
    for config in re.findall(r"configs/\S+\.yaml", GUIDE):
        assert (ROOT / config).is_file(), config
