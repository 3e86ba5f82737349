"""Every command line of the documentation: its options exist, its configuration composes, and it runs.

The default tests parse them all with the command's own parser. ``-m slow`` runs those of the pages in ``RUN``, page by
page and in their order, in a short form (``documented_commands.py``) and in a folder that holds what the page takes as
given. A command of such a page that is not run has its reason in ``NOT_RUN``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard

from genpolicy import cli, registry
from genpolicy.config import Settings, structured
from genpolicy.training.settings import configuration
from genpolicy_experiments.description import Experiment
from genpolicy_loop.config import LoopConfig
from tests.contracts import documented_commands
from tests.contracts.documented_commands import (
    ROOT,
    Line,
    arguments_of,
    inline_lines,
    lines_of,
    pages,
    program_of,
    shortened,
)

PAGES = {page.relative_to(ROOT).as_posix(): lines_of(page) for page in pages()}
PAGES = {name: lines for name, lines in PAGES.items() if lines}
INLINE = {page.relative_to(ROOT).as_posix(): lines for page in pages() if (lines := inline_lines(page))}
VALUE = "value-of-the-option"

OTHER_PROGRAMS: Mapping[str, str] = {
    "pip": "installs packages; tests/packaging installs the wheel",
    "curl": "fetches a large file",
    "hf": "needs an account",
    "lc0": "another program",
    "cutechess-cli": "another program; tests/play has what it does",
    "xboard": "another program with a window",
    "shogiarena": "another program; tests/play has what it does",
    "printf": "writes to the script that the page shows",
    "genpolicy.sh": "the script that the page shows",
    "cut": "a reader of the output",
    "cd": "goes to the package that new-game made",
    "mkdir": "makes a folder",
    "git": "shows an earlier version of a file",
}
"""Programs that are not ours, and why they are not run."""

NOT_RUN: Mapping[str, str] = {
    r"\b(push|pull) OWNER/NAME|hf:OWNER": "needs the network; tests/hub has a server of its own",
    r"leela:NET": "needs a network of Leela's; tests/policies has a small one",
    r"--cluster": "starts or needs a cluster; tests/cluster has its own",
    r"gpsusi|/opt/YaneuraOu|/path/to/": "an engine or a folder of the reader's",
    r"--game (avoid|othello)\b|game=avoid|runs/avoid": "a game of the page's own; tests/connect/test_porting_guide.py",
    r"learner\.kind=linear|runs/linear": "a learner of the page's own; tests/contracts has it",
    r"bias=pooled|left_to_right": "a plugin of the page's own; tests/contracts/test_your_own_sampler.py",
    r"floodgate/2016|hcpe|dlshogi": "files of other programs; tests/shogi reads and writes such files",
    r"genpolicy experiment": "hours, and data that takes as long; tests/experiments runs small ones to the end",
    r"runs/earlier": "a file of the repository's history",
}
"""Commands of genpolicy that are not run, and why."""


def composed(line: Line) -> None:
    """Parse a command as ``genpolicy`` would, and read the configuration that it names."""
    words = arguments_of(line)
    parsed = cli.make_parser([words[0]]).parse_args(words)
    assert callable(getattr(parsed, "run", None)), f"no verb in {line.text}"
    if words[0] == "train" and not parsed.resume:
        config = configuration(parsed.config, parsed.overrides, parsed.out, resume=False)[1]
        options = dict(config.learner)
        learner = registry.load("learners", options.pop("kind"))
        structured(learner.Config, options, where=line.text, prefix="learner")
    elif words[0] == "experiment":
        Experiment(parsed.file, parsed.overrides)
    elif words[0] == "loop" and str(parsed.file) != "loop.yaml":  # the page shows it
        settings = Settings([parsed.file], parsed.overrides)
        settings.data["out"] = parsed.out or "runs/loop"
        settings.fill(LoopConfig)


@pytest.mark.parametrize("page", PAGES)
def test_every_option_and_setting_exists(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for line in PAGES[page]:
        if program_of(line.words)[0] != "genpolicy" or re.search(r"learner\.kind=linear|bias=pooled", line.text):
            continue
        try:
            composed(line)
        except (SystemExit, ValueError, OSError, LookupError) as error:
            wrong.append(f"{line.number}: {line.text}: {error or capsys.readouterr().err}")
    assert not wrong, "\n".join(wrong)


def lenient(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser of a command without what it requires, and so of its verbs."""
    for action in parser._actions:
        action.required = False
        if not action.option_strings:
            action.nargs = {None: "?", "+": "*"}.get(action.nargs, action.nargs)
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                lenient(verb)
    return parser


@pytest.mark.parametrize("page", INLINE)
def test_commands_in_the_prose_exist_with_their_options(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for line in INLINE[page]:
        words = arguments_of(line)
        if words[-1].startswith("--") and words[-1] != "--help":
            words.append(VALUE)  # an option that is named without a value; one that takes none is named alone
        try:
            lenient(cli.make_parser([words[0]] if words[0] in registry.available("commands") else [])).parse_args(words)
        except ValueError as error:
            wrong.append(f"{line.number}: {line.text}: {error}")
        except SystemExit as ended:
            said = capsys.readouterr().err
            if ended.code and f"unrecognized arguments: {VALUE}" not in said:
                wrong.append(f"{line.number}: {line.text}: {said}")
    assert not wrong, "\n".join(wrong)


def test_a_wrong_command_in_the_prose_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`genpolicy\ntrain` and `genpolicy data lable`\n```sh\ngenpolicy fenced\n```\n`genpolicy play --gmae`\n"
    )
    monkeypatch.setattr(documented_commands, "ROOT", tmp_path)
    found = inline_lines(page)
    assert [(line.number, *line.words[1:]) for line in found] == [
        (1, "train"),
        (2, "data", "lable"),
        (6, "play", "--gmae"),
    ]
    for line in found[1:]:
        with pytest.raises((SystemExit, ValueError)):
            lenient(cli.make_parser([line.words[1]])).parse_args([*line.words[1:]])


def test_what_other_commands_name_exists() -> None:
    """Our scripts and tests and the options given to them, targets of the Makefile; other programs have a reason."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong, used = [], set()
    for line in (line for lines in PAGES.values() for line in lines):
        program, words = program_of(line.words)
        if program == "make":
            wrong += [f"{line.page}: make {word}" for word in words if "=" not in word and word not in targets]
        elif program in ("python", "pytest") and (files := [word for word in words if word.endswith(".py")]):
            text = "".join((ROOT / file).read_text() for file in files if (ROOT / file).is_file())
            options = [word for word in words if word.startswith("--")] if program == "python" else []
            wrong += [f"{line.page}: {file}" for file in files if not (ROOT / file).is_file()]
            wrong += [f"{line.page}: {files[0]} {option}" for option in options if f'"{option}"' not in text]
        elif program in OTHER_PROGRAMS:
            used.add(program)
        elif program != "genpolicy" and words[:1] not in (["-m"], ["-c"]):
            wrong.append(f"{line.page}: {line.text}: another program without a reason in OTHER_PROGRAMS")
    assert not wrong
    assert used == set(OTHER_PROGRAMS)


def test_every_reason_is_that_of_a_command() -> None:
    texts = [line.text for lines in PAGES.values() for line in lines]
    assert [pattern for pattern in NOT_RUN if not any(re.search(pattern, text) for text in texts)] == []


def test_commands_are_read_as_a_shell_would(tmp_path: Path) -> None:
    """Continued lines, comments, variables, loops, texts over several lines, parts of a line."""
    from tests.contracts.documented_commands import commands_of

    block = "G=a:b=1\nX=1 run --game $G \\\n  'p?x=1&y=2'   # why\nfor f in u v; do\n    one $f\ndone\n"
    block += 'python -c "\na b" && c | d; e\n# genpolicy f\n# not a command\n'
    words = [["X=1", "run", "--game", "a:b=1", "p?x=1&y=2"], ["one", "u"], ["one", "v"]]
    assert list(commands_of(block)) == [*words, ["python", "-c", "\na b"], ["c"], ["d"], ["e"], ["genpolicy", "f"]]


# The commands themselves.

TTT = "data import all --game connect:rows=3,cols=3,k=3,gravity=false --split 0.8/0.05/0.15"
GIVEN: Mapping[str, tuple[str, ...]] = {
    "runs/demo/imagine": ("train --config chess/demo-imagine --out runs/demo/imagine",),
    "runs/demo/s-a": ("train --config chess/demo-s-a --out runs/demo/s-a",),
    "runs/demo/s-asa": ("train --config chess/demo --out runs/demo/s-asa",),
    "runs/demo-shogi/imagine": ("train --config shogi/demo-imagine --out runs/demo-shogi/imagine",),
    "runs/ttt-labelled": (
        f"{TTT} --out runs/ttt-all",
        "data label runs/ttt-all --oracle solver --horizon 4 --move-values --out runs/ttt-labelled",
    ),
    "runs/ttt-asa": ("train --config connect/s-asa-3x3 --out runs/ttt-asa",),
    "runs/ttt-s-a": ("train --config connect/s-a-3x3 --out runs/ttt-s-a",),
    "runs/muzero": ("train --config connect/muzero-3x3 --out runs/muzero",),
    "runs/unizero": ("train --config connect/unizero-3x3 --out runs/unizero",),
    "runs/vq": ("train --config connect/vq-3x3 --out runs/vq",),
    "runs/new": ("train --config connect/policy-value-3x3 --out runs/new",),
    "runs/value": ("train --config connect/policy-value-3x3 --out runs/value",),
    "runs/s-a": ("train --config chess/demo-s-a --out runs/s-a",),
    "runs/first": ("train --config connect/s-asa-3x3 --out runs/first",),
    "runs/mine": ("train --config connect/s-asa-3x3 --out runs/mine",),
    "runs/labelled": ("data label --data sample:chess --oracle alphabeta?depth=1 --out runs/labelled",),
    "runs/labelled-shogi": ("data label --data sample:shogi --oracle alphabeta?depth=1 --out runs/labelled-shogi",),
    "runs/games": ("data selfplay --game chess --oracle alphabeta?depth=1 --games 3 --out runs/games",),
    "runs/chess-1": ("data selfplay --game chess --oracle alphabeta?depth=1 --games 3 --out runs/chess-1",),
    "runs/floodgate": ("data selfplay --game shogi --oracle alphabeta?depth=1 --games 3 --out runs/floodgate",),
}
"""What pages take as given: the commands that make it, without ``genpolicy``."""

OF_SHOGI: Mapping[str, str] = {"docs/ja/README.md": "runs/labelled"}
"""What a page takes as given and means of shogi: ``-shogi`` of it is copied under its name."""

MATES = ("f3 e5 g4", "f4 e5 g4", "f3 e6 g4", "f4 e6 g4", "g4 e5 f3", "g4 e5 f4", "g4 e6 f3", "g4 e6 f4")
"""Fool's mate, but for ``Qh4#``."""
PUZZLES = """PuzzleId,FEN,Moves,Rating
1,rnbqkbnr/pppp1ppp/8/4p3/8/5P2/PPPPP1PP/RNBQKBNR w KQkq - 0 2,g2g4 d8h4,600
2,rnbqkbnr/pppp1ppp/8/4p3/5P2/8/PPPPP1PP/RNBQKBNR w KQkq - 0 2,g2g4 d8h4,700
"""
KIF = """手合割：平手
先手：A
後手：B
手数----指手---------消費時間--
   1 ７六歩(77)
   2 ３四歩(33)
   3 ２六歩(27)
   4 投了
"""


def write_files(folder: Path) -> None:
    """Files of games and puzzles that pages take as given."""
    games = (f"1. {a} {b} 2. {c} Qh4# 0-1" for a, b, c in map(str.split, MATES))
    text = "".join(f'[White "One"]\n[Black "Other"]\n[Result "0-1"]\n\n{game}\n\n' for game in games)
    for name in ("games.pgn", "Capablanca.pgn", "London1851.pgn"):
        (folder / name).write_text(text)
    (folder / "puzzles.csv").write_text(PUZZLES)
    with zstandard.open(folder / "lichess_db_puzzle.csv.zst", "wt") as packed:
        packed.write(PUZZLES)
    (folder / "docs/results").mkdir(parents=True)
    (folder / "棋譜.kif").write_text(KIF, encoding="utf-8")
    for page, begins, name in (("self-play", "game:", "loop.yaml"), ("show", "title:", "scenes.yaml")):
        text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
        (found,) = re.findall(rf"```yaml\n({begins}.*?)```", text, re.DOTALL)
        (folder / name).write_text(found)


def run(folder: Path, words: list[str]) -> int | str | None:
    """The exit status of a command run in a folder; of one that serves, what it said if it did not."""
    if words[0] == "web":
        return served(folder, words)
    if words[0] == "engine":  # which ends its process at quit
        command = [sys.executable, "-m", "genpolicy", *words]
        return subprocess.run(command, cwd=folder, input="quit\n", text=True).returncode
    before, sys.stdin = sys.stdin, io.StringIO("quit\n")
    try:
        with contextlib.chdir(folder):
            return cli.main(words)
    finally:
        sys.stdin = before


def served(folder: Path, words: list[str]) -> str | None:
    """As ``run``, in a process that is asked to end when it has said where it serves."""
    command, seen = [sys.executable, "-m", "genpolicy", *words], [""]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            seen.append(line)
            if "http://" in line:
                break
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=120)
    return None if "http://" in seen[-1] else "".join(seen)


def needed(words: list[str]) -> list[str]:
    """What of ``GIVEN`` a command reads."""
    text = " ".join(words)
    if words[0] == "train":
        parsed = cli.make_parser(["train"]).parse_args(words)
        text += f" {configuration(parsed.config, parsed.overrides, parsed.out, resume=False)[1].data.folder}"
    return [name for name in GIVEN if re.search(rf"(?<![\w-]){name}(?![\w-])", text) and name != made_by(words)]


def made_by(words: list[str]) -> str | None:
    """The folder that a command makes."""
    given = [word.removeprefix("out=") for word in words if word.startswith("out=")]
    return next((after for word, after in itertools.pairwise(words) if word == "--out"), *given[:1] or [None])


class Given:
    """What pages take as given, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_files(folder)

    def made(self, name: str) -> Path:
        """The folder of one thing."""
        if not (self.folder / name).exists():
            for text in GIVEN[name]:
                words = shortened(Line(name, 0, ("genpolicy", *text.split())))
                for each in needed(words):
                    self.made(each)
                assert run(self.folder, words) == 0, f"given {name}: {' '.join(words)}"
        return self.folder / name


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    return Given(tmp_path_factory.mktemp("given"))


def is_run(line: Line) -> bool:
    """Whether a command is one of genpolicy's that runs here."""
    return program_of(line.words)[0] == "genpolicy" and not any(re.search(each, line.text) for each in NOT_RUN)


CONNECT = ("loop", "muzero", "policy-value", "s-asa", "unizero", "unizero-fade", "vq")
DOCS = (
    "bt4",
    "show",
    "commands",
    "deepchess",
    "engine",
    "first-policy",
    "imagination",
    "pig",
    "playing-in-a-gui",
    "publishing",
)
RUN = (
    "README.md",
    *(f"docs/{name}.md" for name in (*DOCS, "tournament", "web")),
    "docs/ja/shogi-gui.md",
    *(f"configs/connect/{name}-3x3.yaml" for name in CONNECT),
)
"""Pages whose commands are run. The short forms of the others have not been run to the end: they are parsed alone."""
LARGE = 384
"""Width from which on a network becomes a small one: its parts are what a command says of it, not its size."""
SMALL = ("learner.network.width=32", "learner.network.num_layers=1", "learner.network.num_heads=2")


def with_small_network(words: list[str]) -> list[str]:
    """A ``train`` command with a network that is made and saved in a moment."""
    if words[0] != "train" or "--resume" in words:
        return words
    parsed = cli.make_parser(["train"]).parse_args(words)
    network = configuration(parsed.config, parsed.overrides, parsed.out, resume=False)[1].learner.get("network", {})
    return [*words, *SMALL] if int(network.get("width", 0)) >= LARGE else words


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run(page: str, given: Given, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path)
    failed = []
    for line in PAGES[page]:
        if not is_run(line):
            continue
        words = with_small_network(without_missing_engines(shortened(line)))
        for name in needed(words):
            if not (tmp_path / name).exists():
                source = f"{name}-shogi" if OF_SHOGI.get(page) == name else name
                shutil.copytree(given.made(source), tmp_path / name)
        if (made := made_by(words)) is not None and line.command != "loop" and (tmp_path / made).is_dir():
            shutil.rmtree(tmp_path / made)  # a page may make it in two ways
        capfd.readouterr()
        status = run(tmp_path, words)
        said = "".join(capfd.readouterr())
        if status not in (0, None):
            failed.append(f"line {line.number}: {line.text}\n  as {' '.join(words)}\n  {status}: {said[-700:]}")
    assert not failed, "\n".join(failed)


def without_missing_engines(words: list[str]) -> list[str]:
    """A command with alpha-beta in place of engines that are not installed here."""
    path = f"{os.environ.get('PATH', '')}:/usr/games"
    for name in ("stockfish", "fairy-stockfish"):
        if shutil.which(name, path=path) is None:
            words = [re.sub(rf"(engine:)?(?<!-){name}(\?[^ ]*)?", "alphabeta?depth=1", word) for word in words]
    return words
