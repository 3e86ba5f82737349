"""What all subcommands have in common: names of arguments and older ones, --json -, plain tables, grouped help."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from genpolicy import cli, registry
from genpolicy.data.records import Dataset
from genpolicy_common import arguments, completion
from genpolicy_common.tables import Report
from tests.small_datasets import CONNECT

pytestmark = pytest.mark.usefixtures("warm_start")

NAMES = [name for name in registry.available("commands") if "." not in name]
PERFT = ("perft", "--game", CONNECT, "--depth", "1")


def parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every subcommand and verb by what is typed."""
    found = {parser.prog: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                found |= parsers(each)
    return found


@pytest.fixture(scope="module")
def whole() -> dict[str, argparse.ArgumentParser]:
    return parsers(cli.make_parser(NAMES))


def option(parser: argparse.ArgumentParser, name: str) -> argparse.Action | None:
    return next((each for each in parser._actions if name in each.option_strings), None)


def test_json_to_standard_output_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*PERFT, "--json", "-"]) == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["nodes"] == 9
    assert out.err == "9\n"


def test_json_goes_to_standard_output_of_every_subcommand_that_has_it(
    whole: dict[str, argparse.ArgumentParser], capsys: pytest.CaptureFixture[str]
) -> None:
    with_json = {words for words, parser in whole.items() if option(parser, "--json") is not None}
    assert {"genpolicy games", "genpolicy data info", "genpolicy evaluate accuracy", "genpolicy show"} <= with_json
    for words in with_json:  # the text says so, and its type takes a minus sign
        json_option = option(whole[words], "--json")
        assert json_option is not None
        assert "- for standard output" in str(json_option.help)
        assert json_option.type("-") == Path("-")  # type: ignore[operator]
    for words in (["data", "info", "--data", "sample:chess"], ["games"], ["env"]):
        assert cli.main([*words, "--json", "-"]) == 0
        assert isinstance(json.loads(capsys.readouterr().out), dict)


def test_nothing_is_written_for_work_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "info", "--data", "no/such", "--json", "-"]) == 2
    assert capsys.readouterr().out == ""


def test_older_names_do_the_same_and_are_not_shown(whole: dict[str, argparse.ArgumentParser]) -> None:
    pairs = [
        ("play", "--from", "--position"),
        ("tournament", "--workers", "--parallel"),
        ("evaluate report", "--workers", "--parallel"),
        ("data label", "--processes", "--parallel"),
        ("data selfplay", "--processes", "--parallel"),
    ]
    for words, old, new in pairs:
        parser = whole[f"genpolicy {words}"]
        before, now = option(parser, old), option(parser, new)
        assert before is not None
        assert now is not None
        assert (before.dest, before.nargs) == (now.dest, now.nargs), words
        assert before.type is (now.type or str)
        assert old not in parser.format_help()
    for words in ("data label", "data info", "data fit-scale", "data export"):
        found = option(whole[f"genpolicy {words}"], "--data")
        assert found is not None
        assert found.dest == "folder"


def test_one_thing_has_one_name(whole: dict[str, argparse.ArgumentParser]) -> None:
    for words, parser in whole.items():
        text = parser.format_help()
        for old in ("--from ", "--workers ", "--processes ", "DATASET"):
            assert old not in text, words
    auto = {words for words, parser in whole.items() if (o := option(parser, "--device")) and o.default == "auto"}
    assert auto == {words for words, parser in whole.items() if option(parser, "--device")}
    assert {"genpolicy play", "genpolicy web", "genpolicy engine", "genpolicy tournament"} <= auto


@pytest.mark.parametrize("words", ["sample:chess", "--data sample:chess", "--rows 0 sample:chess"])
def test_a_data_set_by_either_name(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "info", *words.split()]) == 0
    assert "36000 in 1 shards" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["info"], ["label", "--oracle", "solver", "--out", "o"], ["fit-scale"]])
def test_a_data_set_must_be_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", *words]) == 2
    assert "--data is missing, e.g. --data " in capsys.readouterr().err


def test_the_position_by_either_name(capsys: pytest.CaptureFixture[str]) -> None:
    base = ["play", "--policy", "random", "--game", CONNECT, "--self-play", "1", "--seed", "3"]
    shown = []
    for name in ("--position", "--from"):
        assert cli.main([*base, name, "nonsense"]) == 2
        shown.append(capsys.readouterr().err)
    assert shown[0] == shown[1]
    assert "nonsense" in shown[0]


def table() -> Report:
    report = Report("Title", ["name", "number"], notes=["a note of " + "many words " * 30])
    report.add("将棋", "1")  # two columns wide each
    report.add("a", "1234")
    report.add("long " * 60 + "end", "[b]5\n6")
    return report


def test_a_table_in_a_pipe_is_plain_and_whole() -> None:
    file = io.StringIO()
    table().print(Console(file=file, width=40))
    lines = file.getvalue().splitlines()
    assert lines[0] == "Title"
    assert lines[2].split() == ["将棋", "1"]
    assert lines[3].split() == ["a", "1234"]
    assert lines[4] == "long " * 60 + "end" + "  [b]5 6"
    assert len(lines[3]) == len(lines[4]) == len(lines[2]) + 2
    assert lines[5].startswith("a note of many words")
    assert not set("│┃━─┏└|") & set(file.getvalue())


def test_the_terminal_has_its_frame() -> None:
    file = io.StringIO()
    table().print(Console(file=file, width=60, force_terminal=True))
    assert "┃" in file.getvalue()


def test_a_pipe_is_as_wide_as_any_other() -> None:
    texts = []
    for columns in ("20", "300"):
        done = subprocess.run(
            [sys.executable, "-m", "genpolicy", "games"], capture_output=True, text=True, env={"COLUMNS": columns}
        )
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert "connect:rows=6,cols=7,k=4,gravity=true" in texts[0]


def test_help_groups_what_belongs_together(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("commands", "hello")(cli.Command("greet", lambda subparsers: subparsers.add_parser("hello")))
    own = cli.Command("greet us", lambda subparsers: subparsers.add_parser("hi"), group="company")
    registry.register("commands", "hi")(own)
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["options:", *(f"{group}:" for group in (*cli.GROUPS, "company", "other")), "examples:"]
    of_other = text.partition("\nother:")[2].partition("\n\n")[0]
    assert "  hello " in of_other
    assert "  hi " in text.partition("\ncompany:")[2].partition("\n\n")[0]
    assert text.count("\n  genpolicy ") == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "acuracy"], "no verb 'acuracy'. Did you mean: 'accuracy'? There are: accuracy, futures"),
        (["data", "lable", "--data", "x"], "no verb 'lable'. Did you mean: 'label'?"),
        (["games", "chess"], "unrecognized arguments: chess"),
        (["train", "--confg=x"], "genpolicy train: no option --confg. Did you mean: '--config'? --help lists them"),
        (
            ["show", "--polcy", "chess", "--out", "a.svg"],
            "genpolicy show: no option --polcy. Did you mean: '--policy'?",
        ),
        (["evaluate", "accuracy", "--limt", "3"], "genpolicy evaluate accuracy: no option --limt."),
        (["--vrsion"], "genpolicy: no option --vrsion. Did you mean: '--version'?"),
        (["games", "--js", "-"], ""),
    ],
)
def test_wrong_verbs_and_options_are_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == (2 if message else 0)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["experiment", "loop"])
def test_settings_are_not_required(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name]) == 2
    assert capsys.readouterr().err.endswith("the following arguments are required: FILE\n")


def test_a_verb_for_a_subcommand_without_verbs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that adds one is named; the verb is refused, and the subcommand itself still works."""
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("commands", "games.hello")(cli.Command("greet", lambda subparsers: None))
    assert cli.main(["games", "hello"]) == 2
    err = capsys.readouterr().err
    assert "'games.hello'" in err
    assert "'games' takes no verbs" in err
    assert cli.main(["games"]) == 0


def test_auto_says_where_networks_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        given = argparse.Namespace(device="auto")
        arguments.settle_device(given, ["random", "chess"])
        assert given.device == device
        assert capsys.readouterr().err == ""  # not before everything has been checked
        arguments.say_device(given)
        assert capsys.readouterr().err == f"genpolicy: networks run on {device} (--device)\n"
    for device, policy in (("auto", "random"), ("cpu", "chess")):  # no network, or nothing to choose
        given = argparse.Namespace(device=device)
        arguments.settle_device(given, [policy])
        arguments.say_device(given)
        assert given.device == "cpu"
        assert capsys.readouterr().err == ""


def test_tournaments_options_stand_in_groups(whole: dict[str, argparse.ArgumentParser]) -> None:
    text = whole["genpolicy tournament"].format_help()
    headings = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    groups = ["options", "players", "games", "openings", "adjudication", "early stop", "speed", "rating", "output"]
    assert headings == groups
    assert text.partition("options:")[2].partition("players:")[0].count("  -") == 1  # --help alone


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(whole: dict[str, argparse.ArgumentParser], tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    done = subprocess.run(
        [sys.executable, "-m", "genpolicy", "completion", "bash"], capture_output=True, text=True, check=True
    )
    script = tmp_path / "genpolicy.bash"
    script.write_text(done.stdout)

    def completes(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        code = f". {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_genpolicy; echo ${{COMPREPLY[@]}}"
        return set(subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split())

    assert completes("genpolicy", "tour") == {"tournament"}
    assert completes("genpolicy", "evaluate", "accuracy", "--poli") == {"--policy"}
    assert completes("genpolicy", "play", "--fr") == set()  # an older name
    assert {"accuracy", "futures", "report"} <= completes("genpolicy", "evaluate", "")


def test_completion_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "zsh"]) == 2
    assert "pip install 'genpolicy[completion]'" in capsys.readouterr().err
    assert cli.main(["completion", "fish"]) == 2
    assert completion.HOW.count("genpolicy completion") == 2


def test_an_example_record_stays_on_its_lines_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--plies", "0:0", "--out", str(tmp_path / "solved")]
    assert cli.main(["data", "playouts", "--game", CONNECT, "--oracle", "solver", "--positions", "1", *out]) == 0
    (record,) = Dataset.open(tmp_path / "solved").records()
    assert record.move_values is not None
    assert len(record.move_values) > 80, "the width of a terminal that is none"
    capsys.readouterr()
    assert cli.main(["data", "info", "--data", str(tmp_path / "solved")]) == 0
    assert f"\n  move_values: {record.move_values}\n" in capsys.readouterr().out
