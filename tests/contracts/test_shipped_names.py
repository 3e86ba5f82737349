"""Configurations and samples that packages ship are found by name, from any folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from genpolicy import registry
from genpolicy.cli import main
from genpolicy.config import Settings, compose
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.policies.base import load_policy, policy_spec
from genpolicy.shipped import config_file, data_folder, shipped
from genpolicy.training.config import RunConfig
from genpolicy_common.configs import first_sentence
from genpolicy_play.commands import policy_for
from genpolicy_play.web.catalog import make_catalog
from tests.play.engine_policies import save_diffusion

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_shipped_configuration_has_its_name() -> None:
    files = (ROOT / "configs").rglob("*.yaml")
    assert {name for name in shipped() if "/" in name} == {
        path.relative_to(ROOT / "configs").as_posix().removesuffix(".yaml") for path in files
    }
    assert {"chess/demo", "connect/s-a-3x3", "experiments/small/claims"} <= set(shipped())


def test_a_copy_of_a_training_configuration_serves_from_any_folder(tmp_path: Path) -> None:
    """``genpolicy configs NAME > mine.yaml``: what it is based on has to be named, not lie beside it."""
    for name, path in shipped().items():
        if "/" in name and not name.startswith("experiments/"):
            (tmp_path / "mine.yaml").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
            assert Settings(["mine.yaml"]).data == Settings([name]).data, name


@pytest.mark.parametrize("name", ["chess/demo", "chess/demo.yaml"])
def test_a_configuration_is_composed_by_name(name: str) -> None:
    assert compose(RunConfig, [name]).data.folder == "sample:chess"


def test_a_shipped_policy_is_small_enough_to_ship() -> None:
    folders = [folder for name, folder in shipped().items() if name.startswith("policy:")]
    sizes = {folder.name: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}
    assert {"chess", "shogi", "tic-tac-toe"} <= sizes.keys()
    assert max(sizes.values()) <= 6_000_000, sizes


def test_a_file_comes_before_a_name() -> None:
    Path("chess/demo").mkdir(parents=True)  # a folder is not a file
    assert compose(RunConfig, ["chess/demo"]).game == "chess"
    Path("chess/demo").rmdir()
    Path("chess/demo").write_text("game: connect\n")
    assert compose(RunConfig, ["chess/demo"]).game == "connect"


def test_a_file_may_be_based_on_a_name() -> None:
    Path("mine.yaml").write_text("base: chess/demo\noptim: {lr: 0.5}\n")
    config = compose(RunConfig, ["mine.yaml"])
    assert (config.game, config.optim.lr, config.optim.name) == ("chess", 0.5, "muon")


@pytest.mark.parametrize(
    ("name", "meant", "listed", "absent"),
    [
        ("chess/dmo", "'chess/demo'", "chess/diffusearch-10k", "shogi/demo"),
        ("configs/chess/demo-s-a.yaml", "'chess/demo-s-a'", "shogi/demo", None),  # the path of a checkout
        ("mine.yaml", None, "experiments/small/claims", None),
    ],
)
def test_a_missing_name_lists_what_there_is(name: str, meant: str | None, listed: str, absent: str | None) -> None:
    with pytest.raises(ConfigError, match="no such file") as caught:
        config_file(name)
    message = str(caught.value)
    assert (f"Did you mean: {meant}?" in message) if meant else ("Did you mean" not in message)
    assert f" {listed}" in message
    assert absent is None or absent not in message


def test_a_sample_is_opened_by_name() -> None:
    sample = Dataset.open("sample:chess", verify=False)
    assert sample.folder == ROOT / "games/genpolicy_chess/sample"
    assert (sample.name, sample.label) == ("sample:chess", "sample:chess")
    assert data_folder("runs/mine") == Path("runs/mine")


@pytest.mark.parametrize(("name", "meant"), [("sample:ches", "'sample:chess'"), ("sample:connect", "")])
def test_a_missing_sample_lists_what_there_is(name: str, meant: str) -> None:
    with pytest.raises(
        DatasetError, match=rf"{name}: no such sample\..*{meant}.*There are: sample:chess, sample:shogi"
    ):
        Dataset.open(name)


def test_the_path_of_a_checkout_is_answered_by_the_way_to_the_sample() -> None:
    with pytest.raises(DatasetError, match=r"no such folder.*sample:GAME"):
        Dataset.open("games/genpolicy_chess/sample")


def test_another_package_ships_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site/othello_game"
    for name in ("configs", "sample"):
        (package / name).mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('nobody imports this to find a name')\n")
    (package / "configs/quick.yaml").write_text("game: othello\n")
    info = tmp_path / "site/othello_game-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: othello-game\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[genpolicy.games]\nothello = othello_game.rules:Othello\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    assert compose(RunConfig, ["othello/quick"]).game == "othello"
    assert data_folder("sample:othello") == package / "sample"
    assert "chess/demo" in shipped()


def test_a_policy_that_a_package_ships_opens_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    game = "connect:rows=3,cols=3,k=3,gravity=false"
    package = tmp_path / "site/noughts_game"
    save_diffusion(package / "policies/noughts", game)
    (package / "__init__.py").write_text("raise ImportError('nobody imports this to find a name')\n")
    info = tmp_path / "site/noughts_game-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noughts-game\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[genpolicy.games]\nnoughts = noughts_game.rules:Noughts\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    policy = load_policy("noughts?num_steps=2")
    assert (policy.label, policy.game.spec, policy_spec("noughts").label) == ("noughts", game, "noughts")
    assert load_policy("mcts:noughts?simulations=2&value=rollout").game.spec == game
    assert policy_for(game) == "noughts"
    (tmp_path / "noughts").mkdir()  # a folder without a policy does not hide it
    monkeypatch.chdir(tmp_path)
    assert load_policy("noughts").label == "noughts"
    catalog = make_catalog([], [game])
    assert next(iter(catalog.policies.values())).label == "noughts", "what dreams comes first"
    catalog.close()
    assert main(["play", "--game", "connect:rows=2,cols=2,k=2"]) == 2
    assert "no policy is shipped for 'connect:rows=2,cols=2,k=2'; shipped are: " in capsys.readouterr().err


def test_the_folder_of_a_run_stands_for_its_policy(tmp_path: Path) -> None:
    save_diffusion(tmp_path / "run/policy", "connect:rows=3,cols=3,k=3,gravity=false")
    (tmp_path / "run/config.yaml").write_text("game: connect\n")
    assert load_policy(tmp_path / "run?num_steps=2").label == policy_spec(tmp_path / "run").label == "run"


def test_a_game_of_a_script_ships_nothing() -> None:
    registry.register("games", "nameless")(type("Nameless", (), {"__module__": "__main__"}))
    try:
        with pytest.raises(DatasetError, match="no such sample"):
            data_folder("sample:nameless")
    finally:
        registry.unregister("games", "nameless")


def test_commands_take_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", "sample:chess"]) == 0
    assert "sample:chess" in capsys.readouterr().out
    assert main(["train", "--config", "chess/demo", "--print-config"]) == 0
    assert "folder: sample:chess" in capsys.readouterr().out
    assert main(["experiment", "experiments/small/tabel-5", "--plan"]) == 2
    assert "Did you mean: 'experiments/small/table-5'?" in capsys.readouterr().err


def test_configs_lists_and_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configs"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in shipped())
    assert main(["configs", "chess/demo"]) == 0
    assert capsys.readouterr().out == (ROOT / "configs/chess/demo.yaml").read_text()
    assert main(["configs", "chess/dmo"]) == 2


def test_every_configuration_begins_with_what_it_is() -> None:
    assert [n for n, path in shipped().items() if "/" in n and not first_sentence(path.read_text())] == []
    assert (
        first_sentence("# What it is (A et al. 2025): in\n# two lines. More.\nseed: 1\n")
        == "What it is (A et al. 2025): in two lines"
    )
