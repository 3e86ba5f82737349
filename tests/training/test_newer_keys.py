"""Keys that are newer than a run or a policy: they mean what the code did that made it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import genpolicy
from genpolicy.config import compose, with_unsaid
from genpolicy.errors import CheckpointError
from genpolicy.networks.config import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from genpolicy.shipped import shipped_policies
from genpolicy.training.config import RunConfig
from genpolicy.training.setup import as_begun, begun_files
from tests.small_datasets import CONNECT

NETWORK: dict[str, Any] = {"geometry": "board", "num_layers": 1, "width": 16, "num_heads": 2, "head": "typed"}


def test_what_an_old_configuration_leaves_unsaid() -> None:
    old = dict.fromkeys(("shown_moves", "shown_outcome", "shown_counts", "shown_pieces", "factorised_pad"), False)
    assert with_unsaid(DiffusionConfig, {"network": {"geometry": "board"}})["network"] == {"geometry": "board", **old}
    said = {"network": {**dict.fromkeys(old, True), "shown_moves": None}}
    assert with_unsaid(DiffusionConfig, said) == said
    assert with_unsaid(DiffusionConfig, {"network": {}}, {"network": {"shown_moves": True}}) == {
        "network": {**old, "shown_moves": True}
    }
    assert with_unsaid(DiffusionConfig, {}) == {"network": old}
    # What goes on from a run that went on from an old one.
    again = with_unsaid(
        DiffusionConfig, {"network": {**old, "shown_outcome": None}}, {"network": {"shown_moves": True}}
    )
    assert again == {
        "network": {"shown_moves": True, "shown_counts": False, "shown_pieces": False, "factorised_pad": False}
    }


@pytest.mark.parametrize(("overrides", "expected"), [([], False), (["learner.network.shown_moves=true"], True)])
def test_a_run_that_is_resumed_keeps_what_it_began_with(overrides: list[str], expected: bool, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"learner": {"kind": "diffusion", "network": NETWORK}}))
    config = compose(RunConfig, overrides=["learner.kind=diffusion", "learner.network.geometry=board", *overrides])
    assert as_begun(config, [file]).learner["network"]["shown_moves"] is expected
    assert as_begun(config, [tmp_path / "none.yaml"]) == config
    file.write_text(yaml.safe_dump({"learner": {"kind": "one_step", "network": NETWORK}}))
    assert as_begun(config, [file]) == config  # another learner's file says nothing of this one


def test_a_run_begins_as_the_policy_does_however_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "old"
    shutil.copytree(shipped_policies()["tic-tac-toe"], folder)
    saved = yaml.safe_load((folder / "config.yaml").read_text())
    del saved["learner"]["network"]["shown_outcome"], saved["learner"]["network"]["factorised_pad"]
    (folder / "config.yaml").write_text(yaml.safe_dump(saved))
    monkeypatch.setattr("genpolicy.shipped.shipped", lambda: {"policy:old-one": folder})
    learner = {"kind": "diffusion", **saved["learner"]}
    for name in (str(folder), "old-one", f"{folder}?seed=1"):
        config = RunConfig(learner=learner, init_from=name)
        network = as_begun(config, begun_files(config, resume=False)).learner["network"]
        assert (network["shown_outcome"], network["factorised_pad"]) == (False, False), name
    with pytest.raises(CheckpointError, match="init_from: "):
        list(begun_files(RunConfig(init_from="hf:"), resume=False))


def test_a_policy_saved_before_has_no_moves_shown(tmp_path: Path) -> None:
    config = DiffusionConfig(paradigm="s-asa", horizon=2, network=NetworkConfig(**NETWORK, shown_moves=False))
    policy = DiffusionPolicy(DiffusionLearner(genpolicy.load_game(CONNECT), config))
    folder = policy.save_pretrained(tmp_path / "policy")
    saved = yaml.safe_load((folder / "config.yaml").read_text())
    del saved["learner"]["network"]["shown_moves"], saved["network_sha256"]
    (folder / "config.yaml").write_text(yaml.safe_dump(saved))
    loaded: Any = genpolicy.load_policy(folder)
    assert loaded.learner.network.trunk.shown is None
    assert loaded.learner.network.state_dict().keys() == policy.learner.network.state_dict().keys()


def test_the_end_of_the_game_is_apart_from_the_moves_where_it_is_trained(tmp_path: Path) -> None:
    process = {"kind": "absorbing", "order": "ply", "ends": True}
    shape: dict[str, Any] = {"paradigm": "s-avsav", "horizon": 2, "train_pad": True}
    game = genpolicy.load_game(CONNECT)

    def learner(process: dict[str, Any]) -> Any:
        return DiffusionLearner(game, DiffusionConfig(**shape, process=process, network=NetworkConfig(**NETWORK)))

    assert not learner({**process, "ends": False}).network.head.moves.factorised_pad
    made = learner(process)
    assert made.network.head.moves.factorised_pad
    folder = DiffusionPolicy(made).save_pretrained(tmp_path / "policy")
    loaded: Any = genpolicy.load_policy(folder)
    assert loaded.learner.network.head.moves.factorised_pad
    saved = yaml.safe_load((folder / "config.yaml").read_text())
    del saved["learner"]["network"]["factorised_pad"], saved["network_sha256"]
    (folder / "config.yaml").write_text(yaml.safe_dump(saved))
    old: Any = genpolicy.load_policy(folder)
    assert not old.learner.network.head.moves.factorised_pad
