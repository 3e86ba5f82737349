"""The image policy behind the engine, which hides torch's compiler from policies that do without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from genpolicy import load_game
from genpolicy.policies.base import policy_spec
from genpolicy_play.engine.host import Host
from genpolicy_policy_image import ImageConfig, ImageLearner
from tests.play.engine_policies import save_diffusion
from tests.play.engine_session import Session, best

pytestmark = pytest.mark.usefixtures("warm_start")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = ImageConfig(channels=[16], backbone_width=16, backbone_blocks=1, cross_attention_dim=16, num_steps=3)
    return ImageLearner(load_game("shogi"), config).policy().save_pretrained(tmp_path_factory.mktemp("image") / "tiny")


@pytest.mark.parametrize(
    "spelling", ["{}", pytest.param("mcts?prior={}&value=heuristic&simulations=4", marks=pytest.mark.thorough)]
)
def test_is_served_by_itself_and_inside_a_search(spelling: str, folder: Path) -> None:
    with Session("--policy", spelling.format(folder)) as session:
        session.ask("usi", until="usiok")
        session.ask("isready", until="readyok")
        session.send("position startpos moves 7g7f")
        move = best(session.ask("go nodes 3", until="bestmove"))
        game = load_game("shogi")
        state = game.play(game.parse(), game.moves.index("7g7f"))
        assert game.moves.index(move) in game.legal(state)
        assert session.strays() == []
        assert session.end() == 0


def test_other_failures_of_loading_are_not_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(policy_spec(folder), load_game("shogi"), "cpu")
    calls = []

    def fail(*_: object, **__: object) -> None:
        calls.append("load")
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr("genpolicy_play.engine.host.load_policy", fail)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        host.load()
    assert calls == ["load"]


def test_a_policy_that_comes_with_the_program_is_loaded_without_the_compiler(tmp_path: Path, cold_start: None) -> None:
    diffusion = save_diffusion(tmp_path / "diffusion", "shogi")
    code = (
        "import sys; from genpolicy import load_game; from genpolicy.policies.base import policy_spec; "
        "from genpolicy_play.engine.host import Host; "
        "Host(policy_spec(sys.argv[1]), load_game('shogi'), 'cpu').load(); "
        "print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(diffusion)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
