"""Every command line and every block of Python of the documentation runs, or ``documented_commands.py`` has the reason.

``-m slow`` runs them page by page and in their order, in the short forms of ``short_forms.py`` and in a folder that
holds what the page takes as given; ``-k PAGE`` runs one page. With ``REPORT`` they write what each took and said.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from genpolicy import cli
from genpolicy.shipped import data_folder
from genpolicy.training.settings import configuration
from genpolicy_experiments.possible import require
from genpolicy_experiments.runner import Runner
from genpolicy_shogi import binary
from genpolicy_shogi.packed import HCP, move16_of_usi, pack
from tests.contracts.documented_commands import (
    NOT_EXECUTED,
    NOT_RUN,
    OTHER_PROGRAMS,
    ROOT,
    Block,
    Line,
    blocks_of,
    lines_of,
    pages,
    program_of,
    reason_of,
)
from tests.contracts.short_forms import experiment_of, script, short_experiment, shortened

SHOWN: Mapping[str, list[Line | Block]] = {
    page.relative_to(ROOT).as_posix(): sorted([*lines_of(page), *blocks_of(page)], key=lambda each: each.number)
    for page in pages()
}
REPORT = "GENPOLICY_DOCUMENTED_REPORT"
"""Variable with the name of a file: page, line, time, outcome, command and what it printed, a JSON list each."""
PAGES = {page: shown for page, shown in SHOWN.items() if any(reason_of(each) is None for each in shown)}
"""Pages of which something is run."""


def test_every_reason_is_that_of_something_shown() -> None:
    """No reason outlives what it was written for; and every page is there."""
    shown = [each for page in SHOWN.values() for each in page]
    assert unused(shown) == []
    assert {"README.md", "docs/log.md", "docs/ja/README.md", "configs/experiments/small/table-5.yaml"} <= PAGES.keys()


def unused(shown: Sequence[Line | Block]) -> list[str]:
    """The patterns and programs of which none of what is shown has need."""
    texts = [each.text for each in shown if isinstance(each, Line)]
    codes = [f"{each.page}\n{each.code}" for each in shown if isinstance(each, Block)]
    programs = {program_of(each.words)[0] for each in shown if isinstance(each, Line)}
    patterns = [pattern for pattern in NOT_RUN if not any(re.search(pattern, text) for text in texts)]
    patterns += [pattern for pattern in NOT_EXECUTED if not any(re.search(pattern, code) for code in codes)]
    return patterns + [name for name in OTHER_PROGRAMS if name not in programs]


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
    "runs/labelled": ("data label --data runs/games --oracle stockfish?nodes=2 --out runs/labelled",),
    "runs/labelled-shogi": (
        "data label --data runs/floodgate --oracle fairy-stockfish?nodes=2 --out runs/labelled-shogi",
    ),
    "runs/games": ("data selfplay --game chess --oracle stockfish?nodes=2 --games 3 --out runs/games",),
    **{
        f"runs/{name}": (
            f"data selfplay --game chess --oracle stockfish?nodes=2 --games 3 --seed {seed} --out runs/{name}",
        )
        for seed, name in enumerate(("chess-1", "chess-2", "chess-3", "chess-4", "5000-of-chess-1", "chess-10k"))
    },
    "runs/after": (
        "data label --data runs/games --oracle stockfish?nodes=2 --move-values --out runs/valued",
        "data afterstates --data runs/valued --moves 2 --out runs/after",
    ),
    "runs/imagine": ("train --config chess/demo-imagine --out runs/imagine",),
    "runs/quiet": (
        "data playouts --game connect:rows=4,cols=4,k=3,gravity=false --oracle solver?distance=true --positions 20"
        " --plies 1:12 --quiet --max-best 0.5 --split 0.5/0.1/0.4 --out runs/quiet",
    ),
    "runs/floodgate": (
        "data selfplay --game shogi --oracle fairy-stockfish?nodes=2 --games 3 --split 0.5/0/0.5 --out runs/floodgate",
    ),
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
TSUME = """id,sfen,mate_length
1,4k4/9/4P4/9/9/9/9/9/9 b G 1,1
"""
SFEN = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"
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
    (folder / "runs/chess").mkdir(parents=True)
    games = (f"1. {a} {b} 2. {c} Qh4# 0-1" for a, b, c in map(str.split, MATES))
    text = "".join(f'[White "One"]\n[Black "Other"]\n[Result "0-1"]\n\n{game}\n\n' for game in games)
    for name in ("games.pgn", "Capablanca.pgn", "London1851.pgn"):
        (folder / name).write_text(text)
    (folder / "runs/chess/games.pgn").write_text(text)
    (folder / "puzzles.csv").write_text(PUZZLES)
    (folder / "tsume.csv").write_text(TSUME)
    with zstandard.open(folder / "lichess_db_puzzle.csv.zst", "wt") as packed:
        packed.write(PUZZLES)
    move = move16_of_usi("7g7f")
    scored = binary.Hcpe3Move(move, 50, ((move, 10),))
    binary.write(folder / "a.hcpe3", [binary.Hcpe3Game(pack(HCP, SFEN), 1, 0, (scored,))])
    (folder / "docs/results").mkdir(parents=True)
    (folder / "floodgate/2016").mkdir(parents=True)
    for black, white in itertools.product(range(1, 10), repeat=2):
        moves = f"+{black}7{black}6FU\n-{white}3{white}4FU\n%TORYO\n"
        (folder / f"floodgate/2016/{black}-{white}.csa").write_text(f"V2.2\nN+One\nN-Other\nPI\n+\n{moves}")
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
    return [name for name in named(text) if name != made_by(words)]


def named(text: str) -> list[str]:
    """What of ``GIVEN`` a text names."""
    return [name for name in GIVEN if re.search(rf"(?<![\w-]){name}(?![\w-])", text)]


def made_by(words: list[str]) -> str | None:
    """The folder that a command makes."""
    given = [word.removeprefix("out=") for word in words if word.startswith("out=")]
    return next((after for word, after in itertools.pairwise(words) if word == "--out"), [*given, None][0])


class Given:
    """What pages take as given, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_files(folder)

    def made(self, name: str) -> Path:
        """The folder of one thing."""
        if not (self.folder / name).exists():
            for text in GIVEN[name]:
                words = without_missing_engines(shortened(Line(name, 0, ("genpolicy", *text.split()))))
                for each in needed(words):
                    self.made(each)
                assert run(self.folder, words) == 0, f"given {name}: {' '.join(words)}"
        return self.folder / name

    def make_data(self, words: list[str]) -> None:
        """Make the data sets of an experiment by the commands of its description, in their short form."""
        with contextlib.chdir(self.folder):
            experiment = experiment_of(words)
            source = experiment.file.data
            if all((data_folder(folder) / "dataset.yaml").is_file() for folder in experiment.data_folders()):
                return
        for command in source.make:
            text = command.replace("{folder}", source.folder)
            made = without_missing_engines(shortened(Line(source.folder, 0, ("genpolicy", *text.split()))))
            if made[1] == "import" and "all" not in made:
                made += ["--split", "0.4/0.3/0.3"]
            assert run(self.folder, made) == 0, " ".join(made)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    return Given(tmp_path_factory.mktemp("given"))


def install(page: str, site: Path) -> None:
    """Put the modules that a page shows in a folder, with a distribution for each of its tables of entry points."""
    codes = [block.code for block in blocks_of(ROOT / page)]
    tables = re.findall(r"```toml\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    for number, table in enumerate(tables):
        groups = tomllib.loads(table).get("project", {}).get("entry-points", {})
        named = {value for points in groups.values() for value in points.values()}
        shown = {
            module: code
            for module, name in (value.split(":") for value in named)
            for code in codes
            if re.search(rf"^(class )?{name}\b", code, re.MULTILINE)
        }
        if shown.keys() != {value.split(":")[0] for value in named}:
            continue  # a variant whose module the page does not print
        info = site / f"of_the_page_{number}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: of-the-page-{number}\nVersion: 1.0\n")
        points = (f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in groups.items())
        (info / "entry_points.txt").write_text("".join(points))
        for module, code in shown.items():
            (site / f"{module}.py").write_text(code, encoding="utf-8")


class Page:
    """What a page shows, run in a folder.

    Args:
        page: Its name.
        folder: Where it is run.
        given: What it takes as given.
    """

    def __init__(self, page: str, folder: Path, given: Given) -> None:
        self.page, self.folder, self.given = page, folder, given
        self.names: dict[str, Any] = {"__name__": "__page__"}
        write_files(folder)

    def run(self, shown: Line | Block) -> str | None:
        """Run a command or a block; why it failed, or None."""
        if isinstance(shown, Block):
            return self._block(shown)
        if program_of(shown.words)[0] == "python":
            return self._script(shown)
        words = without_missing_engines(shortened(shown))
        if words[0] == "experiment":  # whose runs and data several pages share
            self.given.make_data(words)
            return self._said(words, run(self.given.folder, words))
        self._take(needed(words))
        if (made := made_by(words)) is not None and shown.command != "loop" and (self.folder / made).is_dir():
            shutil.rmtree(self.folder / made)  # a page may make it in two ways
        return self._said(words, run(self.folder, words))

    def _said(self, words: list[str], status: int | str | None) -> str | None:
        return None if status in (0, None) else f"  as {' '.join(words)}\n  {status}"

    def _take(self, names: list[str]) -> None:
        for name in names:
            if not (self.folder / name).exists():
                source = f"{name}-shogi" if OF_SHOGI.get(self.page) == name else name
                made = self.given.made(source)
                (shutil.copytree if made.is_dir() else shutil.copy)(made, self.folder / name)

    def _script(self, line: Line) -> str | None:
        words = script(line)
        self._take(named(" ".join(words)))
        if "experiments/data" in line.text:
            self.given.make_data(["experiment", "experiments/small/table-5"])
        folder = self.given.folder if "experiments/data" in line.text else self.folder
        done = subprocess.run([sys.executable, *words], cwd=folder, stdin=subprocess.DEVNULL)
        return self._said(words, done.returncode)

    def _block(self, block: Block) -> str | None:
        self._take(named(block.code))
        printed = io.StringIO()
        try:
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
                exec(compile(block.code, f"{block.page}:{block.number}", "exec"), self.names)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        missing = [said for said in PRINTED.findall(block.code) if said not in printed.getvalue()]
        return f"the page says that it prints {missing}, it printed {printed.getvalue()}" if missing else None


EXPERIMENTS = [page for page in SHOWN if re.match(r"configs/experiments/.*(?<!base)\.yaml", page)]
PRINTED = re.compile(r"^print\(.*\)(?:  |\n)# (.+)$", re.MULTILINE)
"""What a block says that it prints."""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_start")
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs(
    page: str, given: Given, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(page, site := tmp_path / "site")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT)]))
    text, failed = (ROOT / page).read_text(encoding="utf-8"), []
    entries: dict[int, Page] = {}
    for shown in PAGES[page]:
        # An entry of the log stands alone; what other pages make, they use further down.
        entry = "\n".join(text.split("\n")[: shown.number]).count("\n## ") if page == "docs/log.md" else 0
        if entry not in entries:
            entries[entry] = Page(page, tmp_path / f"work-{entry}", given)
        command = shown.text if isinstance(shown, Line) else shown.code
        if (reason := reason_of(shown)) is not None:
            note(page, shown.number, "reason", reason, command)
            continue
        capfd.readouterr()
        began = time.monotonic()
        error = entries[entry].run(shown)
        said = "".join(capfd.readouterr())
        note(page, shown.number, f"{time.monotonic() - began:.1f} s", error or "runs", command, said)
        if error is not None:
            failed.append(f"line {shown.number}: {command}\n{error}: {said[-700:]}")
    assert not failed, "\n".join(failed)


def note(*parts: object) -> None:
    """Append a line to the file of ``REPORT``."""
    if path := os.environ.get(REPORT):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(parts, ensure_ascii=False) + "\n")


@pytest.mark.slow
@pytest.mark.usefixtures("warm_start")
@pytest.mark.parametrize("file", EXPERIMENTS)
def test_every_cell_of_an_experiment_can_be_made(file: str, given: Given) -> None:
    """Of which the pages' commands, in their short form, make one or two."""
    words = [
        word
        for word in short_experiment(["experiment", str(ROOT / file)])
        if not word.startswith(("skip=", "compare="))
    ]
    given.make_data(words)
    with contextlib.chdir(given.folder):
        experiment = experiment_of(words)
        jobs = Runner(experiment, Path("planned")).jobs()
        require(experiment, [(job.run, job.plays) for job in jobs], print)


def without_missing_engines(words: list[str]) -> list[str]:
    """A command with alpha-beta in place of engines that are not installed here."""
    path = f"{os.environ.get('PATH', '')}:/usr/games"
    for name in ("stockfish", "fairy-stockfish"):
        if shutil.which(name, path=path) is None:
            words = [re.sub(rf"(engine:)?(?<!-){name}(\?[^ ]*)?", "alphabeta?depth=1", word) for word in words]
    return words
