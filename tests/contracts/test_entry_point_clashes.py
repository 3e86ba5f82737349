"""Two packages with one entry point, and subcommands that answer oddly: the package is named, the rest works."""

from __future__ import annotations

from pathlib import Path

import pytest

from genpolicy import cli, registry
from genpolicy.errors import RegistryError

MODULE = """
from genpolicy.cli import Command

def add(verb, run):
    def add_parser(subparsers):
        if verb == "leaves":
            raise SystemExit(7)
        subparsers.add_parser(verb).set_defaults(run=run)
    return add_parser

WHOLE = Command("all of 100 %", add("whole", lambda arguments: None))
TEXT = Command("a text", add("text", lambda arguments: "text"))
LEAVES = Command("ends the process", add("leaves", None))
OTHER = Command("another name", add("train", None))
"""


def install(folder: Path, name: str, lines: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(lines)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages that both have a game ``twin``; the second also takes the name ``chess``."""
    install(tmp_path / "a", "first", "[genpolicy.games]\ntwin = collections:OrderedDict\n")
    install(tmp_path / "b", "second", "[genpolicy.games]\ntwin = collections:Counter\nchess = collections:Counter\n")
    for folder in ("a", "b"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    return tmp_path


def test_a_name_that_two_packages_have_is_an_error_that_names_both(two: Path) -> None:
    with pytest.raises(
        RegistryError, match=r"installed twice: .* of (first|second) 1\.0; .* of (second|first) 1\.0; unin"
    ):
        registry.load("games", "twin")
    assert "twin" in registry.available("games")


def test_our_own_name_cannot_be_taken(two: Path) -> None:
    with pytest.warns(UserWarning, match=r"genpolicy's own game 'chess' is used, not chess = .* of second 1\.0"):
        assert registry.load("games", "chess").__module__.startswith("genpolicy_chess")


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = {"whole": "WHOLE", "text": "TEXT", "leaves": "LEAVES", "clash": "OTHER"}
    lines = "".join(f"{name} = odd_commands:{thing}\n" for name, thing in names.items())
    install(tmp_path, "odd", f"[genpolicy.commands]\n{lines}")
    (tmp_path / "odd_commands.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_odd_subcommands_cost_nobody_else(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert "all of 100 %" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["games", "--json", str(odd / "games.json")]) == 0
    assert cli.main(["whole"]) == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text", "of odd 1.0) gave 'text', not an exit status"),
        ("leaves", "of odd 1.0) cannot add its parser: SystemExit: 7"),
        ("clash", "of odd 1.0) cannot add its parser: ValueError: it adds no parser 'clash', only train"),
    ],
)
def test_an_odd_subcommand_is_named(odd: Path, capsys: pytest.CaptureFixture[str], name: str, message: str) -> None:
    assert cli.main([name]) == cli.EXIT_ERROR
    assert message in capsys.readouterr().err
