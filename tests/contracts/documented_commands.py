"""The commands and the Python of the documentation, and the reasons of those that no test runs.

A page's code blocks of a shell, and the commands in the comments that begin a configuration, are read as a shell would:
``\\`` continues a line, ``#`` begins a comment, ``&&``, ``;`` and ``|`` part commands, ``NAME=value`` sets a variable,
``for NAME in ...; do ...; done`` repeats. Commands in the prose, between backticks, are read as well.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^ *```(?:sh|bash|console)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(genpolicy\s[^`]+)`")
ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
MARKS = ("&&", "||", ";", "|", "|&", "&")

OTHER_PROGRAMS: Mapping[str, str] = {
    "pip": "installs packages; tests/packaging installs the wheel",
    "curl": "fetches a large file",
    "hf": "needs an account",
    "lc0": "another program",
    "cutechess-cli": "another program; tests/play has what it does",
    "xboard": "another program with a window; tests/play/test_engine_guis.py runs it",
    "shogiarena": "another program; tests/play has what it does",
    "printf": "writes to the script that the page shows",
    "genpolicy.sh": "the script that the page shows; tests/play/test_engine_guis.py runs it",
    "cut": "a reader of the output",
    "cd": "goes to the package that new-game made",
    "mkdir": "makes a folder",
    "git": "shows an earlier version of a file",
    "pytest": "the tests themselves",
    "make": "installs what it needs first; then it is genpolicy demo, whose steps are commands of other pages",
}
"""Programs that are not run, and why."""

NOT_RUN: Mapping[str, str] = {
    r"\b(push|pull) OWNER/NAME|hf:OWNER": "needs the network; tests/hub has a server of its own",
    r"leela:NET": "needs a network of Leela's; tests/policies has a small one",
    r"--cluster": "starts or needs a cluster; tests/cluster has its own",
    r"gpsusi|/opt/YaneuraOu|/path/to/": "an engine or a folder of the reader's",
    r"--game othello": "a package that new-game has made; tests/cli/test_new_game.py",
    r"runs/earlier": "a file of the repository's history",
    r"trainer\.seed=[1-9]|runs/(s-a|imagine)-[1-9]": "the command before it with another seed",
    r"torch\.distributed": "eight processes with a GPU each; tests/training/test_training_processes.py starts two",
    r"json\.tool": "a reader of the output",
    r"cshogi\.cli": "plays whole games with an engine; tests/play/test_engine_games.py does",
}
"""Commands that are not run, and why."""

NOT_EXECUTED: Mapping[str, str] = {
    r"^docs/porting-a-game\.md\n": "tests/connect/test_porting_guide.py runs the game and finds the quotations",
    r"^docs/your-own-learner\.md\n": "tests/training/test_your_own_learner.py runs them",
    r"^docs/your-own-sampler\.md\n": "tests/contracts/test_your_own_sampler.py runs them",
    r"^docs/search\.md\nclass SearchModel": "signatures without bodies",
    r"popen_uci": "plays a whole game; tests/play/test_engine_games.py does the same with this client",
}
"""Blocks of Python that are not run, by page and beginning, and why."""

NAMES: Mapping[str, str] = {
    "COMMAND": "train",
    "FILE": "experiments/small/table-5",
    "DATA": "runs/labelled",
    "LABELLED": "runs/LABELLED",
    "FOLDER": "runs/new/policy",
    "OUT": "runs/muzero",
    "data/mine": "runs/labelled",
}
"""What the documentation leaves to its reader."""


@dataclass(frozen=True)
class Line:
    """A command of a page."""

    page: str
    number: int
    """Line of the page on which its block begins."""
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it stands there."""
        return shlex.join(self.words)

    @property
    def command(self) -> str:
        """``train``, ``data label``."""
        name = self.words[1] if len(self.words) > 1 else ""
        return f"{name} {self.words[2]}" if name in ("data", "evaluate") and len(self.words) > 2 else name


@dataclass(frozen=True)
class Block:
    """A block of Python of a page."""

    page: str
    number: int
    """Line of the page on which it begins."""
    code: str


def pages() -> list[Path]:
    """README, CONTRIBUTING, every page of the documentation, notebooks, and configurations with their comments."""
    docs, configs = ROOT / "docs", ROOT / "configs"
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(docs.rglob("*.md")),
        *sorted(docs.rglob("*.ipynb")),
        *sorted(path for path in configs.rglob("*.y*ml")),
    ]


def lines_of(page: Path) -> list[Line]:
    """The commands of a page in their order."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    if page.suffix == ".ipynb":
        cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
        shell = [line[1:] for cell in cells for line in "".join(cell["source"]).splitlines() if line.startswith("!")]
        blocks = [(1, "\n".join(shell))]
    elif page.suffix == ".md":
        blocks = [(text[: found.start()].count("\n") + 1, found[1]) for found in BLOCK.finditer(text)]
    else:
        comment = "\n".join(line[1:] for line in text.splitlines() if line.startswith("#"))
        shown = re.findall(r"^ {2,}(genpolicy (?:.*\\\n)*.*)$", comment, re.MULTILINE)
        blocks = [(1, "\n".join(shown))]
    return [Line(name, number, tuple(words)) for number, block in blocks for words in commands_of(block)]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of Python of a page in their order."""
    if page.suffix != ".md":
        return []
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    return [Block(name, text[: found.start()].count("\n") + 1, found[1]) for found in PYTHON.finditer(text)]


def reason_of(shown: Line | Block) -> str | None:
    """Why a command or a block is not run; None if it is."""
    if isinstance(shown, Block):
        text, reasons = f"{shown.page}\n{shown.code}", NOT_EXECUTED
    else:
        text, reasons = shown.text, NOT_RUN
        if reason := OTHER_PROGRAMS.get(program_of(shown.words)[0]):
            return reason
    return next((reason for pattern, reason in reasons.items() if re.search(pattern, text)), None)


def commands_of(block: str) -> Iterator[list[str]]:
    """The commands of a block, each as its words."""
    variables: dict[str, str] = {}
    loop: tuple[str, list[str]] = "", [""]
    for line in _whole_lines(block):
        parts = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        parts.whitespace_split = True
        for words in _parted(parts):
            words = words[words[0] == "do" :]
            if not words:
                continue
            if words[0] == "done":
                loop = "", [""]
            elif words[0] == "for":
                loop = words[1], words[3:]
            elif all(ASSIGNED.match(word) for word in words):
                variables |= dict(word.split("=", 1) for word in words)
            else:
                for value in loop[1]:
                    yield [_filled(word, {**variables, loop[0]: value}) for word in words]


def _whole_lines(block: str) -> Iterator[str]:
    """The lines of a block, those that a quoted text goes over as one; commands that stand in comments, too."""
    held = ""
    for line in block.replace("\\\n", " ").splitlines():
        line = held + (line[2:] if line.startswith(("# genpolicy ", "# python ")) else line)
        try:
            shlex.split(line, comments=True)
        except ValueError:
            held = line + "\n"
            continue
        held = ""
        if not line.startswith("#!"):
            yield line


def _parted(words: Iterable[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in words:
        if word not in MARKS:
            command.append(word)
        elif command:
            yield command
            command = []
    if command:
        yield command


def _filled(word: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        word = re.sub(rf"\${name}\b", lambda _, value=value: value, word) if name else word
    return word


def program_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """The program that a command runs, without variables of the environment in front, and its arguments."""
    rest = [*words]
    while rest and (ASSIGNED.match(rest[0]) or rest[0] == "exec"):
        rest.pop(0)
    return (rest[0].rpartition("/")[2], rest[1:]) if rest else ("", [])


def arguments_of(line: Line) -> list[str]:
    """The arguments of a command of genpolicy, without where its output goes, with names in place of placeholders."""
    words = list(program_of(line.words)[1])
    for mark in (">", "2>"):
        if mark in words:
            words = words[: words.index(mark)]
    return [NAMES.get(word, _named(word)) for word in words if word != "..."]


def _named(word: str) -> str:
    return re.sub(r"(?<=[:=])(FOLDER|OUT|DATA|LABELLED|FILE|data/mine)\b", lambda found: NAMES[found[0]], word)


def inline_lines(page: Path) -> list[Line]:
    """The commands of genpolicy in the prose of a page, which may be parts: a verb, an option of it."""
    if page.suffix != ".md":
        return []
    text = re.sub(FENCE, lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
    return [
        Line(page.relative_to(ROOT).as_posix(), text[: found.start()].count("\n") + 1, tuple(shlex.split(found[1])))
        for found in INLINE.finditer(text)
    ]
