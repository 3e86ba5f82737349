"""Names are found by entry point, and what goes wrong is said with the way out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

import genpolicy
from genpolicy import registry
from genpolicy.diffusion import Sampler
from genpolicy.errors import RegistryError
from genpolicy.game import Hints, MoveVocabulary, StateTokenizer
from genpolicy.networks import AttentionBias
from genpolicy.policies.base import Policy
from genpolicy.policies.learner import Learner
from genpolicy.registry import Group, available, load, spelled_pairs, split_spec

pytestmark = pytest.mark.usefixtures("warm_start")


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
    assert split_spec("openspiel:go,komi=7.5") == ("openspiel", {"game": "go", "komi": "7.5"})
    with pytest.raises(ValueError, match="'go' is not one key=value"):
        split_spec("openspiel:game=hex,go")
    with pytest.raises(ValueError, match="'go' is not one key=value"):
        split_spec("openspiel:hex,go")


def test_brackets_hold_a_specification_within_another() -> None:
    assert split_spec("coded:game=[connect:rows=3,cols=3],x=1") == (
        "coded",
        {"game": "connect:rows=3,cols=3", "x": "1"},
    )
    assert split_spec("a:b=[c:d=[e:f=1,g=2]]") == ("a", {"b": "c:d=[e:f=1,g=2]"})
    assert split_spec("a:b=[c][d],e=[]") == ("a", {"b": "[c][d]", "e": ""})
    for unbalanced in ("a:b=[c", "a:b=c]", "a:b=]c[", "a:b=[[c]", "a:[b=c,d]]=e"):
        with pytest.raises(ValueError, match="brackets do not match"):
            split_spec(unbalanced)


def test_brackets_hold_a_query_within_another() -> None:
    assert spelled_pairs("game=a:b=[c?d=1&e=2]&f=%5B%26") == [("game", "a:b=[c?d=1&e=2]"), ("f", "[&")]
    assert spelled_pairs("a=[1&b=2") == [("a", "[1"), ("b", "2")]  # an engine's option may be any text


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


def test_entry_points_are_those_that_importlib_reads() -> None:
    for group in sorted(registry.ONE_OF):
        theirs = {(p.name, p.value, p.dist.name) for p in entry_points(group=f"genpolicy.{group}")}
        ours = {(p.name, p.value, p.dist.name) for p in registry.entry_points(group=f"genpolicy.{group}")}
        assert ours == theirs


def install(folder: Path, name: str, *lines: str) -> None:
    """The metadata of a package, as pip writes it."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_the_first_package_of_a_name_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "a", "some_package", "[other]", "x = y:z", "[genpolicy.games]", "# no", "", "one = m:A [extra]")
    install(tmp_path / "b", "Some.Package", "[genpolicy.games]", "one = m:B", "two = m:B")
    (tmp_path / "b" / "a_file").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "missing")])
    assert {name: point.value for name, point in available("games").items()} == {"one": "m:A [extra]"}
    assert registry.origin("games", "one").endswith("of some-package 1.0")
    install(tmp_path / "b", "another", "[genpolicy.games]", "three = json:loads.__call__")
    assert available("games")["three"].load() == json.loads.__call__


def test_metadata_beside_the_source_is_of_the_package_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """setuptools writes ``NAME.egg-info``, without a version, into the folder of a package that is being developed."""
    for name in ("game_1", "game_2"):
        install(tmp_path / "site", name, "[genpolicy.games]", f"{name} = m:A")
        (tmp_path / "site" / f"{name}-1.0.dist-info").rename(tmp_path / "site" / f"{name}.egg-info")
    install(tmp_path / "installed", "game_1", "[genpolicy.games]", "game_1 = m:A")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(tmp_path / "installed")])
    assert [point.name for point in registry.entry_points(group="genpolicy.games")] == ["game_1", "game_2"]


@pytest.mark.parametrize("group", sorted(registry.ONE_OF))
def test_every_group_takes_what_a_notebook_registers(group: Group) -> None:
    bases = {"learners": Learner, "samplers": Sampler, "biases": AttentionBias}
    thing: Any = type("Thing", (bases.get(group, Policy),), {})
    for _ in range(2):  # a cell that is run again
        assert registry.register(group, "of_a_notebook")(thing) is thing
    assert load(group, "of_a_notebook") is thing
    assert "of_a_notebook" in available(group)
    registry.unregister(group, "of_a_notebook")
    assert "of_a_notebook" not in available(group)


def test_a_registered_name_is_not_taken_from_a_package() -> None:
    with pytest.raises(RegistryError, match=r"game 'connect' is installed already .*genpolicy_connect"):
        registry.register("games", "connect")
    with pytest.raises(RegistryError, match="there is no group 'gmaes'; there are: games"):
        registry.register("gmaes", "x")  # type: ignore[arg-type]


def test_a_game_that_is_registered_again_is_made_anew() -> None:
    for cols in (3, 4):
        registry.register("games", "mine")(lambda cols=cols: load("games", "connect")(cols=cols))
        assert genpolicy.load_game("mine").cols == cols
    registry.unregister("games", "mine")


@pytest.mark.parametrize("group", ["learners", "policies", "samplers", "biases"])
def test_a_thing_of_another_kind_is_refused(group: Group) -> None:
    registry.register(group, "wrong")(int)
    with pytest.raises(RegistryError, match=r"'wrong' \(.*'builtins:int'.* not a subclass of"):
        load(group, "wrong")
    registry.unregister(group, "wrong")


def test_a_constructor_that_fails_and_one_that_forgets_are_named() -> None:
    connect = load("games", "connect")

    class Failing(connect):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.undefined.use()

    class Forgetful(connect):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.spec = "forgetful"

    for made, message in (
        (Failing, "game 'mine' cannot be made .*test_registry:.*AttributeError: .*undefined"),
        (Forgetful, "Forgetful does not set moves; Forgetful does not set tokens"),
    ):
        registry.register("games", "mine")(made)
        with pytest.raises(RegistryError, match=message):
            genpolicy.load_game("mine")
    registry.unregister("games", "mine")


@pytest.mark.parametrize(
    ("member", "thing", "message"),
    [
        ("tokens", StateTokenizer, r"Mine\.tokens is the class StateTokenizer, not a StateTokenizer: call it"),
        ("hints", Hints, r"Mine\.hints is the class Hints, not a Hints: call it, hints = Hints\(\)"),
        ("moves", MoveVocabulary, r"Mine\.moves is the class MoveVocabulary, not a MoveVocabulary: call it"),
        ("moves", ("a", "b"), r"Mine\.moves is a tuple, not a MoveVocabulary$"),
        ("tokens", None, r"Mine does not set tokens"),
    ],
)
def test_a_part_of_a_game_that_is_of_another_kind_is_named(member: str, thing: Any, message: str) -> None:
    class Mine(load("games", "connect")):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, member, thing)

    registry.register("games", "mine")(Mine)
    with pytest.raises(RegistryError, match=message):
        genpolicy.load_game("mine")
    registry.unregister("games", "mine")


def test_broken_packages_are_named_and_the_rest_works(tmp_path: Path) -> None:
    """Each kind of breakage that a package may bring, in one that is installed beside ours."""
    (tmp_path / "broken_module.py").write_text("import sys\nsys.exit('no licence')\n")
    (tmp_path / "wrong_things.py").write_text(
        "from genpolicy.cli import Command\nnumber = 3\ndef parser(subparsers): raise KeyError('x')\n"
        "HELP = Command('fails when it is used', parser)\n"
    )
    install(
        *(tmp_path, "broken", "[genpolicy.games]", "draughts = broken_module:Game", "counter = collections:Counter"),
        *("[genpolicy.policies]", "nothing = wrong_things:absent", "three = wrong_things:number"),
        *("[genpolicy.commands]", "wrong = wrong_things:number", "fails = wrong_things:HELP"),
        *("nosuch.verb = wrong_things:HELP", "evaluate.verb = wrong_things:HELP"),
        *("[genpolicy.options]", "policies.nobody = wrong_things:number"),
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "1000"}

    def said(*words: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "genpolicy", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    said("games", "--json", str(tmp_path / "games.json"))
    games = (tmp_path / "games.json").read_text()
    assert '"moves": 4685' in games  # shogi
    assert "'draughts' cannot be imported (draughts = 'broken_module:Game' in group 'genpolicy.games' of" in games
    assert "SystemExit: no licence" in games
    assert "made a Counter, not a Game" in games
    said("policies", "--json", str(tmp_path / "policies.json"))
    policies = (tmp_path / "policies.json").read_text()
    assert '"policy": "alphabeta"' in policies
    assert "AttributeError: module 'wrong_things' has no attribute 'absent'" in policies
    assert "is 3, not a subclass of genpolicy.policies.base.Policy" in policies
    assert "options of something that is not installed (policies.nobody = " in policies
    overview = " ".join(said("--help").split())
    assert "train a policy" in overview
    assert "fails when it is used" in overview
    assert re.search(r"wrong .*made a int, not a genpolicy\.cli\.Command", overview)
    assert re.search(r"nosuch\.verb .*there is no subcommand 'nosuch' \(nosuch\.verb = .* of broken 1\.0", overview)
    assert "subcommand 'fails' (fails = 'wrong_things:HELP' in group" in said("fails", status=2)
    assert "warning: subcommand 'evaluate.verb' (" in (verbs := said("evaluate", "--help"))
    assert "accuracy" in verbs


@pytest.mark.usefixtures("cold_start")
def test_the_overview_imports_nothing_slow() -> None:
    code = "import sys; from genpolicy.cli import main; main(['--help']); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for module in ("importlib.metadata", "dataclasses", "inspect", "typing", "pathlib", "torch", "numpy", "yaml"):
        assert f"'{module}'" not in loaded


@pytest.mark.usefixtures("cold_start")
def test_importing_the_package_imports_no_plugin_and_no_torch() -> None:
    code = "import sys, genpolicy, genpolicy.registry, genpolicy.testing; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = ("chess", "connect", "openspiel", "pig", "shogi")
    games = tuple(f"'genpolicy_{name}'" for name in names)
    for module in ("'torch'", "'chess'", "'cshogi'", "'diffusers'", *games):
        assert module not in loaded
