"""A third party's package with one of everything: installed, trained, saved, loaded, played, served, drawn.

The package is tests/contracts/third_party; nothing but its entry points tells genpolicy of it. Some of its things are
broken, and everything else works beside them.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess
import pytest

from genpolicy import cli, load_game, load_policy, registry
from genpolicy.cli import Command
from genpolicy.data.records import Dataset
from genpolicy.diffusion import Absorbing, make_sampler
from genpolicy.errors import RegistryError
from genpolicy.testing import check_game, check_learner, check_policy, check_sampler
from tests.play.engine_session import Session, best
from tests.small_datasets import write_dataset

# On one worker, so that what the module trains is trained once.
pytestmark = [pytest.mark.usefixtures("warm_start"), pytest.mark.xdist_group("third-party")]

HERE = Path(__file__).parent / "third_party"
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
SAMPLE = Path(__file__).parents[2] / "games/genpolicy_chess/sample"
CODED = "coded:game=[chess]"
POLICIES = ("low_rank", "growing", "pooled", "coded")
NETWORK = [f"learner.network.{each}" for each in ("num_layers=1", "width=16", "num_heads=2", "geometry=sequence")]
DIFFUSION = ["learner.kind=diffusion", "learner.horizon=1", "learner.process.num_timesteps=4", *NETWORK]
MISSING = "needs the module 'a_library_that_nobody_has'"
AFTER_E4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which the package is installed, as pip leaves one; on the path of this process."""
    folder = tmp_path_factory.mktemp("site")
    for module in HERE.glob("*.py"):
        shutil.copy(module, folder)
    info = folder / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n")
    groups = PROJECT["entry-points"].items()
    (info / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in of.items()) for group, of in groups)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        registry.load_game.cache_clear()
        yield folder
    for name in [name for name in sys.modules if name.startswith("third_party_")]:
        del sys.modules[name]
    registry.load_game.cache_clear()


@pytest.fixture(scope="module")
def data(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """The same 120 labelled positions, as chess and as coded chess."""
    home = tmp_path_factory.mktemp("data")
    sample = Dataset.open(SAMPLE)
    records = [record for split in ("train", "test") for record in list(sample.records(split))[:60]]
    return {game: write_dataset(home / str(number), game, records) for number, game in enumerate(("chess", CODED))}


@pytest.fixture(scope="module")
def policies(data: dict[str, Dataset], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of trained policies: one of each learner, one with the bias and the sampler, one of the wrapped game."""
    home = tmp_path_factory.mktemp("runs")
    settings = {
        "low_rank": ["learner.kind=low_rank", "learner.rank=8"],
        "growing": ["learner.kind=growing"],
        "pooled": [*DIFFUSION, "learner.network.bias=pooled", "learner.network.bias_options.inner=4"],
        "coded": DIFFUSION,
    }
    settings["pooled"].append("learner.sampler.name=left_to_right")
    for name in POLICIES:
        assert trained(data[CODED if name == "coded" else "chess"], home / name, *settings[name]) == 0, name
    return {name: home / name / "policy" for name in POLICIES}


def trained(records: Dataset, out: Path, *settings: str) -> int:
    """The exit status of ``genpolicy train``."""
    words = [f"data.folder={records.folder}", "data.validation=test", "trainer.max_steps=4", "trainer.batch_size=8"]
    words += ["trainer.device=cpu", "trainer.log_every=1", "trainer.tensorboard=false", *settings]
    return cli.main(["train", *words, "--out", str(out)])


def points_of(module: str) -> list[str]:
    """The entry points that name a module of the package."""
    of = ((group, entry) for group, entries in PROJECT["entry-points"].items() for entry in entries.items())
    return [f"{group}:{name}" for group, (name, value) in of if value.partition(":")[0] == module]


@pytest.mark.parametrize(
    ("module", "num_points", "most_lines"),
    [
        ("third_party_sampler", 1, 40),
        ("third_party_bias", 1, 40),
        ("third_party_command", 3, 40),  # a subcommand, and the same as a verb of two others (one does not exist)
        ("third_party_learner", 2, 120),  # the learner, and the policy that plays with its weights
        ("third_party_stream", 2, 80),
        ("third_party_coded", 1, 130),
    ],
)
def test_each_is_one_file_and_its_entry_points(
    module: str, num_points: int, most_lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a contributor writes; no file of genpolicy is touched."""
    source = (HERE / f"{module}.py").read_text()
    count = len(source.splitlines())
    with capsys.disabled():
        print(f"\n{module}.py: {count} lines, {', '.join(points_of(module))}", end="")
    assert len(points_of(module)) == num_points
    assert count <= most_lines
    names = {node.module or "" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    known = {"genpolicy", "torch", "einops", "third_party_learner", *sys.stdlib_module_names, "numpy"}
    assert {name.partition(".")[0] for name in names} <= known


def test_the_laws_hold_for_each(site: Path, data: dict[str, Dataset], policies: dict[str, Path]) -> None:
    check_game(load_game(CODED), num_games=1, positions_per_game=2)
    check_sampler(make_sampler("left_to_right", Absorbing(num_symbols=5, num_timesteps=20)))
    learner = registry.load("learners", "low_rank")
    game = load_game("chess")
    check_learner(lambda: learner(game, learner.Config()), data["chess"], num_records=8, lr=0.03)
    for name in POLICIES:
        policy = load_policy(policies[name])
        check_policy(policy, [policy.game.parse(), policy.game.parse(AFTER_E4)], max_plies=2)


def test_what_they_are_made_of_is_saved(policies: dict[str, Path]) -> None:
    config = (policies["pooled"] / "config.yaml").read_text()
    assert "bias: pooled" in config
    assert "inner: 4" in config
    assert "left_to_right" in config
    assert "game: coded:game=[chess]" in (policies["coded"] / "config.yaml").read_text()


def test_the_stream_grew(policies: dict[str, Path]) -> None:
    log = (policies["growing"].parent / "metrics.jsonl").read_text().splitlines()
    sizes = [row["train/size"] for row in map(json.loads, log) if "train/size" in row]
    assert sizes == [4, 5, 6, 7]


@pytest.mark.parametrize("name", POLICIES)
def test_each_plays_on_the_command_line(
    name: str, policies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["play", "--policy", str(policies[name]), "--opponent", "random", "--self-play", "1", "--max-plies", "4"]
    assert cli.main(words) == 0
    assert "game 1" in capsys.readouterr().out


@pytest.mark.parametrize("name", POLICIES)
def test_each_is_drawn(name: str, policies: dict[str, Path], tmp_path: Path) -> None:
    assert cli.main(["show", "--policy", str(policies[name]), "--out", str(tmp_path / "plan.svg")]) == 0
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")


def test_the_sampler_plays_with_saved_weights(
    policies: dict[str, Path], data: dict[str, Dataset], tmp_path: Path
) -> None:
    words = ["evaluate", "accuracy", "--policy", str(policies["coded"]), "--data", str(data[CODED].folder)]
    words += ["--split", "test", "--limit", "8", "--sampler", "easy_first", "--sampler", "left_to_right"]
    assert cli.main([*words, "--json", str(tmp_path / "a.json")]) == 0
    assert "left_to_right" in (tmp_path / "a.json").read_text()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in ("growing", "low_rank"))) for name in POLICIES]
)
def test_each_plays_as_an_engine(name: str, policies: dict[str, Path]) -> None:
    with Session("--policy", str(policies[name])) as engine:
        options = engine.ask("uci", until="uciok")
        if name in ("low_rank", "growing"):
            assert any(line.startswith("option name sharpness type string default 1") for line in options)
            engine.send("setoption name Sharpness value 2.5")
        else:
            assert any(" var left_to_right" in line for line in options if line.startswith("option name Sampler"))
            engine.send("setoption name Sampler value left_to_right")
        engine.ask("isready", until="readyok")
        lines = engine.ask("position startpos moves e2e4", "go nodes 1")
        assert chess.Move.from_uci(best(lines)) in chess.Board(AFTER_E4).legal_moves
        engine.send("quit")
        assert engine.process.wait(20) == 0


@pytest.mark.parametrize(
    ("name", "message"), [("illegal", "chose the illegal move"), ("number_decision", "answered [3], not one Decision")]
)
def test_an_engine_plays_a_legal_move_whatever_its_policy_answers(site: Path, name: str, message: str) -> None:
    with Session("--policy", name, "--game", "chess") as engine:
        engine.ask("uci", until="uciok")
        engine.ask("isready", until="readyok")
        lines = engine.ask("position startpos moves e2e4", "go nodes 1")
        assert chess.Move.from_uci(best(lines)) in chess.Board(AFTER_E4).legal_moves
        assert any(f"policy '{name}'" in line and "third-party 1.0" in line and message in line for line in lines)
        engine.send("quit")
        assert engine.process.wait(20) == 0


def test_each_plays_on_the_page(policies: dict[str, Path]) -> None:
    pytest.importorskip("starlette", reason="needs the extra [web]")
    from tests.play.web_server import serving

    with serving([*policies.values(), "random?game=chess"], []) as client:
        said = client.get("/api/offers").json
        assert {game["spec"]: game["title"] for game in said["games"]} == {"chess": "Chess", CODED: "Chess, coded"}
        assert {policy["label"] for policy in said["policies"]} == {*POLICIES, "random"}
        for name in POLICIES:
            reply = client.decide(CODED if name == "coded" else "chess", name, ["e2e4"])
            assert reply.status == 200, reply.body
            board = chess.Board(AFTER_E4)
            assert chess.Move.from_uci(reply.lines[-1]["decision"]["move"]) in board.legal_moves
        for chosen in ("broken_sampler", "wrong_sampler", "twice"):
            reply = client.decide("chess", "pooled", options={"sampler": chosen})
            assert reply.status == 400
            assert "third-party 1.0" in reply.error
        assert client.decide("chess", "pooled", options={"sampler": "left_to_right"}).status == 200


def said(*words: str, status: int = 0) -> str:
    """What the command says in a process of its own, which knows of the package by the path alone."""
    done = subprocess.run(
        [sys.executable, "-m", "genpolicy", *words],
        env={**os.environ, "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_the_subcommand_runs(site: Path) -> None:
    assert said("mobility", "--game", CODED) == "White has 20 moves\n"
    overview = " ".join(said("--help").split())
    assert "mobility count the legal moves of the initial position" in overview
    assert "wrong_command (not usable: subcommand 'wrong_command' (wrong_command = 'third_party_w" in overview
    assert "broken_command (not usable: subcommand 'broken_command' needs the module 'a_library_that_n" in overview
    assert "nobody.mobility (not usable: there is no subcommand 'nobody' (nobody.mobility = 'third_" in overview
    assert "train train a policy from a configuration" in overview


def test_a_verb_is_added_to_a_subcommand_of_ours(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "mobility", "--game", "chess"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "White has 20 moves\n"
    assert "warning: subcommand 'data.broken_verb' needs the module 'a_library_that_nobody_has'" in printed.err
    assert "third-party 1.0" in printed.err


def test_broken_games_and_policies_are_listed_beside_the_others(site: Path, tmp_path: Path) -> None:
    for command in ("games", "policies"):
        assert cli.main([command, "--json", str(tmp_path / command)]) == 0
    games = {row["game"]: row for row in json.loads((tmp_path / "games").read_text())["games"]}
    assert games["chess"]["moves"] == 1968
    assert "'a_library_that_nobody_has'" in games["broken_game"]["error"]
    assert "third-party 1.0" in games["broken_game"]["error"]
    assert "made a int, not a Game" in games["wrong_game"]["error"]
    rows = json.loads((tmp_path / "policies").read_text())["policies"]
    policies = {row.get("policy", row.get("options")): row for row in rows}
    assert "about" in policies["random"]
    assert "about" in policies["low_rank"]
    assert "'a_library_that_nobody_has'" in policies["broken_policy"]["error"]
    assert "not a subclass of" in policies["wrong_policy"]["error"]
    assert "third-party 1.0) declares the option 'seed' twice" in policies["twice"]["error"]
    assert "third-party 1.0) cannot declare its options: ValueError: plies must be" in policies["unfit"]["error"]
    assert "not installed" in policies["samplers.nobody"]["error"]


@pytest.mark.thorough
def test_the_page_names_what_it_cannot_offer(site: Path) -> None:
    pytest.importorskip("starlette", reason="needs the extra [web]")
    from tests.play.web_server import serving

    with serving([], []) as client:
        offers = client.get("/api/offers").json
        assert {"chess", "shogi"} <= {game["spec"] for game in offers["games"]}
        assert any("broken_game" in note and "third-party 1.0" in note for note in offers["notes"])
        assert {policy["label"] for policy in offers["policies"]} >= {"random", "greedy"}
        for message in (
            r"made a int, not a Game",
            r"'broken_policy' needs the module .*third-party 1\.0",
            r"'wrong_policy' \(.*third-party 1\.0\) is the class NotALearner",
            r"'twice' \(.*third-party 1\.0\) declares the option 'seed' twice",
            r"'number' \(.*third-party 1\.0\) made a int, not a Policy",
        ):
            assert any(re.search(message, note) for note in offers["notes"]), message


@pytest.mark.parametrize(
    ("words", "named", "reason"),
    [
        ("play --game chess --policy twice --self-play 1", "policy 'twice'", "declares the option 'seed' twice"),
        ("play --game chess --policy illegal --self-play 1", "policy 'illegal'", "chose the illegal move"),
        (
            "play --game chess --policy number_decision --self-play 1",
            "policy 'number_decision'",
            "answered [3], not one",
        ),
        (
            "play --game chess --policy unfit --self-play 1",
            "policy 'unfit'",
            "cannot declare its options: ValueError: plies",
        ),
        ("play --game chess --policy number --self-play 1", "policy 'number'", "made a int, not a Policy"),
        ("play --game chess --policy broken_policy --self-play 1", "policy 'broken_policy'", MISSING),
        ("play --policy {pooled}?sampler=twice --self-play 1", "sampler 'twice'", "names an option twice: temperature"),
        ("play --policy {pooled}?sampler=wrong_sampler --self-play 1", "sampler 'wrong_sampler'", "not a subclass of"),
        ("play --policy {pooled}?sampler=broken_sampler --self-play 1", "sampler 'broken_sampler'", MISSING),
        ("perft --depth 1 --game wrong_game", "game 'wrong_game'", "made a int, not a Game"),
        ("perft --depth 1 --game broken_game", "game 'broken_game'", MISSING),
        ("data label {data} --oracle wrong_oracle --out o", "oracle 'wrong_oracle'", "made a int, not a genpolicy"),
        ("data label {data} --oracle broken_oracle --out o", "oracle 'broken_oracle'", MISSING),
        ("wrong_command", "subcommand 'wrong_command'", "made a int, not a genpolicy.cli.Command"),
        ("broken_command", "subcommand 'broken_command'", MISSING),
        ("learner.kind=wrong_learner", "learner 'wrong_learner'", "is the class NotALearner, not a subclass of"),
        ("learner.kind=broken_learner", "learner 'broken_learner'", MISSING),
        ("learner.kind=number_windows", "learner 'number_windows'", "made a int, not a WindowSource or a Stream, in w"),
        ("learner.kind=number_loss", "learner 'number_loss'", "made a int, not a pair of loss and numbers, in loss()"),
        ("learner.kind=number_as_policy", "learner 'number_as_policy'", "made a int, not a Policy, in policy()"),
        ("{diffusion} learner.network.bias=wrong_bias", "attention bias 'wrong_bias'", "not a subclass of"),
        ("{diffusion} learner.network.bias=broken_bias", "attention bias 'broken_bias'", MISSING),
        ("learner.kind=diffusion learner.process.kind=wrong_process", "process 'wrong_process'", "made a int, not a"),
        ("learner.kind=diffusion learner.process.kind=broken_process", "process 'broken_process'", MISSING),
        ("play --policy {pooled}?sampler=none --self-play 1", "sampler 'none'", "advance gave a NoneType, not a Sampl"),
        ("play --policy {pooled}?sampler=short --self-play 1", "sampler 'short'", "gave sampled as torch.int64 [1, "),
        ("play --policy {pooled}?sampler=floats --self-play 1", "sampler 'floats'", "prev_sample as torch.float32 [1"),
        ("play --policy {pooled}?sampler=noisy --self-play 1", "sampler 'noisy'", "advance left noise at time 0"),
        ("play --policy {pooled}?sampler=raising --self-play 1", "sampler 'raising'", "cannot be made"),
        (
            "play --policy {pooled}?sampler=idle --self-play 1",
            "sampler 'idle'",
            "TypeError: Can't instantiate abstract",
        ),
        ("data label {data} --oracle raising_oracle --out o", "oracle 'raising_oracle'", "made (raising_oracle = "),
        ("data label {data} --oracle number_lines --out o", "oracle 'number_lines'", "analyse gave 3, not a list of"),
        ("data label {data} --oracle number_in_lines --out o", "oracle 'number_in_lines'", "analyse gave [3], not a l"),
        ("data label {data} --oracle three --out o", "fallback for oracles 'a_number'", "made a int, not a name with"),
        ("data label {data} --oracle four --out o", "fallback for oracles 'a_number'", "KeyError: 'four'"),
        ("{diffusion} learner.network.bias=number_static", "attention bias 'number_static'", "made a int, not a tenso"),
        ("{diffusion} learner.network.bias=flat_static", "attention bias 'flat_static'", "not a tensor [1, 2, "),
        ("{diffusion} learner.network.bias=raising_bias", "attention bias 'raising_bias'", "KeyError: 'raised'"),
        ("learner.kind=no_parts", "learner 'no_parts'", "its stream NoParts made None for update 1, not a list of B"),
        ("learner.kind=number_parts", "learner 'number_parts'", "its stream NumberParts made [3] for update 1, not a"),
    ],
)
def test_what_is_wrong_is_named_with_its_package(
    words: str,
    named: str,
    reason: str,
    data: dict[str, Dataset],
    policies: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line that names the entry point and its distribution, and exit status 2; settings alone are a training."""
    monkeypatch.chdir(tmp_path)
    given = words.format(pooled=policies["pooled"], data=data["chess"].folder, diffusion=" ".join(DIFFUSION)).split()
    status = trained(data["chess"], Path("run"), *given) if "learner.kind=" in given[0] else cli.main(given)
    printed = capsys.readouterr().err.splitlines()[-1]
    assert status == 2
    assert printed.startswith(f"genpolicy: error: {named} "), printed
    assert reason in printed
    assert "third-party 1.0" in printed


def test_a_stream_that_grows_past_what_it_said_is_an_error(
    data: dict[str, Dataset], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(data["chess"], tmp_path / "run", "learner.kind=swelling") == 2
    printed = capsys.readouterr().err
    assert "third-party 1.0): its stream Swelling said num_records=4 when training began and says 5 after" in printed


def test_a_shuffle_position_out_of_range_is_an_error(data: dict[str, Dataset], tmp_path: Path) -> None:
    with pytest.raises(IndexError, match=r"positions lie in 0\.\.3, got 0\.\.7"):
        trained(data["chess"], tmp_path / "run", "learner.kind=straying")


@pytest.fixture
def notebook(site: Path) -> Iterator[None]:
    """What a notebook does: imports, and registers by decorators. Nothing of it is installed."""
    from third_party_bias import PooledBias
    from third_party_command import MOBILITY
    from third_party_learner import LowRankPolicy
    from third_party_sampler import LeftToRight
    from third_party_stream import GrowingLearner

    from tests.contracts.third_party.third_party_coded import CodedGame

    @registry.register("learners", "noted")
    class Noted(GrowingLearner):
        def policy(self) -> LowRankPolicy:
            return NotedPolicy(self)

    @registry.register("policies", "noted")
    class NotedPolicy(LowRankPolicy):
        kind = "noted"
        learner_class = Noted

    @registry.register("games", "noted")
    class NotedGame(CodedGame):
        name = "noted"

        def __init__(self, game: str) -> None:
            super().__init__(game)
            self.spec = f"noted:game=[{self.inner.spec}]"

    registry.register("samplers", "noted")(LeftToRight)
    registry.register("biases", "noted")(PooledBias)
    registry.register("commands", "noted")(Command(MOBILITY.help, MOBILITY.parser))
    yield
    for group in ("learners", "policies", "games", "samplers", "biases", "commands"):
        registry.unregister(group, "noted")


def test_a_notebook_registers_the_same_without_a_package(
    notebook: None, data: dict[str, Dataset], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    game = load_game("noted:game=[chess]")
    records = write_dataset(tmp_path / "data", game.spec, list(data["chess"].records()))
    assert trained(records, tmp_path / "learner", "learner.kind=noted") == 0
    own = ["learner.sampler.name=noted", "learner.network.bias=noted"]
    assert trained(records, tmp_path / "diffusion", *DIFFUSION, *own) == 0
    for name in ("learner", "diffusion"):
        folder = tmp_path / name / "policy"
        policy = load_policy(folder)
        assert policy.game is game
        (decision,) = policy.decide([game.parse(AFTER_E4)])
        assert decision.move in game.legal(game.parse(AFTER_E4))
        assert cli.main(["show", "--policy", str(folder), "--out", str(tmp_path / "plan.svg")]) == 0
    with pytest.raises(RegistryError, match=r"sampler 'left_to_right' is installed already .*third-party 1\.0"):
        registry.register("samplers", "left_to_right")


def test_the_laws_refuse_what_breaks_them(policies: dict[str, Path]) -> None:
    """What a third party runs on its own policy finds what loading cannot see."""
    low_rank = registry.load("policies", "low_rank")
    learner = load_policy(policies["low_rank"]).learner
    states = [learner.game.parse(), learner.game.parse(AFTER_E4)]

    class Headstrong(low_rank):  # type: ignore[misc, valid-type]
        def decide(self, states: Any, *, control: Any = None) -> Any:
            return super().decide(states)

    with pytest.raises(AssertionError, match=r"chose \d+ in .* where \d+ was allowed"):
        check_policy(Headstrong(learner), states, max_plies=2)

    class Twice(low_rank):  # type: ignore[misc, valid-type]
        @classmethod
        def options(cls, spec: Any = None) -> Any:
            return super().options(spec) * 2

    with pytest.raises(AssertionError, match=r"an option is declared twice"):
        check_policy(Twice(learner), states, max_plies=2)
