"""Every command line of the documentation: its options exist and its configuration composes.

They are parsed with the command's own parser; ``test_documented_commands_run.py`` runs them.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from genpolicy import cli, registry
from genpolicy.config import Settings, structured
from genpolicy.shipped import config_file
from genpolicy.training.settings import configuration
from genpolicy_experiments.description import Experiment
from genpolicy_loop.config import LoopConfig
from tests.contracts import documented_commands, test_shipped_configs
from tests.contracts.documented_commands import (
    OTHER_PROGRAMS,
    ROOT,
    Line,
    arguments_of,
    inline_lines,
    lines_of,
    pages,
    program_of,
)

PAGES = {page.relative_to(ROOT).as_posix(): lines_of(page) for page in pages()}
PAGES = {name: lines for name, lines in PAGES.items() if lines}
INLINE = {page.relative_to(ROOT).as_posix(): lines for page in pages() if (lines := inline_lines(page))}
EXPERIMENTS = {ROOT / file for file in test_shipped_configs.EXPERIMENTS}
VALUE = "value-of-the-option"


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
        # test_shipped_configs.py reads each one as it is.
        if parsed.overrides or config_file(parsed.file).resolve() not in EXPERIMENTS:
            Experiment(parsed.file, parsed.overrides)
    elif words[0] == "loop" and str(parsed.file) != "loop.yaml":  # the page shows it
        settings = Settings([parsed.file], parsed.overrides)
        settings.data["out"] = parsed.out or "runs/loop"
        settings.fill(LoopConfig)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.thorough] * (page == "docs/log.md")) for page in PAGES]
)
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
    wrong = []
    for line in (line for lines in PAGES.values() for line in lines):
        program, words = program_of(line.words)
        if program == "make":
            wrong += [f"{line.page}: make {word}" for word in words if "=" not in word and word not in targets]
        elif program in ("python", "pytest") and (files := [word for word in words if word.endswith(".py")]):
            text = "".join((ROOT / file).read_text() for file in files if (ROOT / file).is_file())
            options = [word for word in words if word.startswith("--")] if program == "python" else []
            wrong += [f"{line.page}: {file}" for file in files if not (ROOT / file).is_file()]
            wrong += [f"{line.page}: {files[0]} {option}" for option in options if f'"{option}"' not in text]
        elif program not in ("genpolicy", *OTHER_PROGRAMS) and words[:1] not in (["-m"], ["-c"]):
            wrong.append(f"{line.page}: {line.text}: another program without a reason in OTHER_PROGRAMS")
    assert not wrong


def test_commands_are_read_as_a_shell_would(tmp_path: Path) -> None:
    """Continued lines, comments, variables, loops, texts over several lines, parts of a line."""
    from tests.contracts.documented_commands import commands_of

    block = "G=a:b=1\nX=1 run --game $G \\\n  'p?x=1&y=2'   # why\nfor f in u v; do\n    one $f\ndone\n"
    block += 'python -c "\na b" && c | d; e\n# genpolicy f\n# not a command\n'
    words = [["X=1", "run", "--game", "a:b=1", "p?x=1&y=2"], ["one", "u"], ["one", "v"]]
    assert list(commands_of(block)) == [*words, ["python", "-c", "\na b"], ["c"], ["d"], ["e"], ["genpolicy", "f"]]
