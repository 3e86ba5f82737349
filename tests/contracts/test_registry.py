"""Names are found by entry point, and what goes wrong is said with the way out."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import genpolicy
from genpolicy import registry
from genpolicy.errors import RegistryError
from genpolicy.registry import Group, available, load, split_spec


def test_built_in_plugins_are_registered() -> None:
    assert {"chess", "connect"} <= set(available("games"))
    assert {"diffusion", "one_step"} <= set(available("learners"))
    assert {"random", "engine", "diffusion"} <= set(available("policies"))
    assert {"absorbing"} <= set(available("processes"))
    assert {"solver", "stockfish"} <= set(available("oracles"))


def test_a_misspelt_name_is_named_with_the_near_one() -> None:
    with pytest.raises(
        RegistryError, match=r"no entry 'ches' in group 'genpolicy\.games'.*Did you mean: 'chess'.*connect"
    ):
        genpolicy.load_game("ches")
    with pytest.raises(LookupError):  # the built-in that it is
        load("oracles", "nothing of the kind")


@pytest.mark.parametrize("spec", ["connect:rows", "connect:rows=3,rows=4", "connect:=3,rows"])
def test_a_specification_that_is_none(spec: str) -> None:
    with pytest.raises(ValueError, match="is not one key=value"):
        genpolicy.load_game(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("connect:row=3", r"no argument 'row'\. Did you mean: 'rows'\? It takes: rows, cols, k, gravity$"),
        ("connect:rows=3,zzz=3", r"no argument 'zzz'\. It takes: rows, cols, k, gravity$"),
        ("chess:rows=3", r"no argument 'rows'\. It takes: none$"),
    ],
)
def test_an_argument_that_a_game_does_not_take(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        genpolicy.load_game(spec)
    assert "__init__" not in str(caught.value)


def test_specifications_are_split() -> None:
    assert split_spec("chess") == ("chess", {})
    assert split_spec("connect: rows=3 , k = 2,") == ("connect", {"rows": "3", "k": "2"})


def points(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    def found(*, group: str) -> list[EntryPoint]:
        return [EntryPoint(name, value, group) for name, value in values.items()]

    monkeypatch.setattr(registry, "entry_points", found)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch, draughts="no_such_module_anywhere:Game")
    with pytest.raises(RegistryError, match=r"game 'draughts' needs the module 'no_such_module_anywhere'.*install"):
        load("games", "draughts")


def test_an_entry_that_makes_no_game(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch, counter="collections:Counter")
    with pytest.raises(RegistryError, match="made a Counter, not a Game"):
        genpolicy.load_game("counter")


def test_nothing_installed_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch)
    with pytest.raises(RegistryError, match="pip install"):
        load("policies", "random")


@pytest.mark.parametrize("group", ["games", "learners", "policies", "processes", "oracles"])
def test_every_entry_point_leads_somewhere(group: Group) -> None:
    for name in available(group):
        thing: Any = load(group, name)
        assert callable(thing), name


def test_importing_the_package_imports_no_plugin_and_no_torch() -> None:
    code = "import sys, genpolicy, genpolicy.registry, genpolicy.testing; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    games = ("'genpolicy_chess'", "'genpolicy_connect'", "'genpolicy_shogi'")
    for module in ("'torch'", "'chess'", "'cshogi'", "'diffusers'", *games):
        assert module not in loaded
