"""The command lines of the documentation, and how they are shortened so that all of them can be run.

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
FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(genpolicy\s[^`]+)`")
ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
MARKS = ("&&", "||", ";", "|", "|&", "&")

QUICK = ("trainer.max_minutes=null", "trainer.max_steps=null", "trainer.max_epochs=null", "trainer.max_records=64")
QUICK += ("trainer.batch_size=16", "trainer.eval_records=8", "trainer.accuracy_records=8", "trainer.device=cpu")
QUICK += ("optim.warmup=0",)
"""What is added to every ``genpolicy train``."""

ADDED: Mapping[str, tuple[str, ...]] = {
    "train": QUICK,
    "data import": ("--max-positions", "400"),
    "evaluate accuracy": ("--limit", "8", "--split", "train"),
    "evaluate futures": ("--limit", "8", "--split", "train"),
    "evaluate latency": (
        "--split",
        "train",
        "--limit",
        "2",
        "--calls",
        "1",
        "--warm-up",
        "0",
        "--sweep",
        "num_steps=1",
    ),
    "evaluate puzzles": ("--limit", "2"),
    "evaluate report": ("--limit", "8", "--calls", "1", "--puzzle-limit", "2", "--play", "1"),
    "tournament": ("--rounds", "1", "--max-plies", "8", "--parallel", "1"),
    "ratings": ("--bootstrap", "10"),
    "demo": ("--plan",),
    "loop": ("--status",),
    "web": ("--port", "0"),
}
"""What is added to other commands, after what stands there: of an option that is given twice the last counts."""

OPTIONS: Mapping[str, str] = {"--games": "3", "--positions": "20"}
"""Other values of options where they are given, since a command takes one of them alone."""

NUMBERS = re.compile(r"\b(nodes|simulations|movetime_ms|depth|candidates)=\d+")
"""Options of engines and searches, all of which become 1 or, of searches and nodes, 2."""

TAKEN_OUT = ("--open", "--verbose")

NAMES: Mapping[str, str] = {
    "COMMAND": "train",
    "FILE": "experiments/small/table-5",
    "DATA": "runs/labelled",
    "LABELLED": "runs/LABELLED",
    "FOLDER": "runs/ttt-s-a/policy",
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
    return re.sub(r"(?<=[:=])(FOLDER|OUT|DATA|LABELLED|FILE)\b", lambda found: NAMES[found[0]], word)


def shortened(line: Line) -> list[str]:
    """The arguments of a command in its short form."""
    words, kept = [word for word in arguments_of(line) if word not in TAKEN_OUT], []
    for before, word in zip(["", *words], words, strict=False):
        number = re.sub(NUMBERS, lambda found: f"{found[1]}={2 if found[1][0] in 'ns' else 1}", word)
        kept.append(OPTIONS.get(before, number))
    if line.command == "evaluate latency":
        kept = _without(kept, "--sweep")
    elif line.command == "data label" and any(word.startswith("sample:") for word in kept):
        kept += ["--share", "0.005"]
    return [*kept, *ADDED.get(line.command, ())]


def _without(words: Sequence[str], option: str) -> list[str]:
    return [word for before, word in zip(["", *words], words, strict=False) if option not in (before, word)]


def inline_lines(page: Path) -> list[Line]:
    """The commands of genpolicy in the prose of a page, which may be parts: a verb, an option of it."""
    if page.suffix != ".md":
        return []
    text = re.sub(FENCE, lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
    return [
        Line(page.relative_to(ROOT).as_posix(), text[: found.start()].count("\n") + 1, tuple(shlex.split(found[1])))
        for found in INLINE.finditer(text)
    ]
