"""The page "your own sampler, your own attention bias" runs as it stands: installed as packages and in a notebook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("warm_start")

PAGE = Path(__file__).parents[2] / "docs/your-own-sampler.md"

PLAY = """
import genpolicy, torch
from genpolicy.config import structured
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.options import options_of

game = genpolicy.load_game("connect:rows=3,cols=3,k=3")
network = {"num_layers": 2, "width": 16, "num_heads": 2, "geometry": "board", "head": "typed", "move_rank": 4}
for own in ({}, {"bias": "pooled", "bias_options": {"inner": 4}}):
    config = structured(DiffusionConfig, {"horizon": 2, "network": {**network, **own}})
    torch.manual_seed(0)
    DiffusionLearner(game, config).policy().save_pretrained("policy" + own.get("bias", ""))
for folder in ("policy", "policypooled"):
    for name in ("left_to_right", "hesitant"):
        policy = genpolicy.load_policy(folder, sampler=name, temperature=0.5)
        (decision,) = policy.decide([game.parse()])
        print(folder, name, len(decision.line))
print([option.name for option in options_of("samplers", "left_to_right")])
print(tuple(policy.learner.network.trunk.bias.maps.shape)[:2])
"""


SHORTER = """
import numpy, torch, genpolicy
from genpolicy.config import structured
from genpolicy.data.windows import TokenBatch
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner

game = genpolicy.load_game("connect:rows=3,cols=3,k=3")
network = {"num_layers": 2, "width": 16, "num_heads": 2, "geometry": "board", "head": "typed", "bias": "pooled"}
ply = {"kind": "absorbing", "order": "ply"}
for attention, options in (
    ("full", {"process": ply}),
    ("full", {"horizons": [1, 2]}),
    ("prefix", {}),
    ("block_causal", {"process": {**ply, "one_pass": True}}),
):
    config = structured(DiffusionConfig, {"horizon": 2, "network": {**network, "attention": attention}, **options})
    learner = DiffusionLearner(game, config)
    tokens = torch.from_numpy(numpy.argmax(learner.layout.admitted, axis=1))[None].repeat(3, 1)
    given = torch.from_numpy(learner.layout.given.copy()).expand_as(tokens)
    batch = TokenBatch(tokens, given, ~given, torch.arange(len(tokens)))
    loss, _ = learner.loss(batch, torch.Generator().manual_seed(0))
    loss.backward()
    (decision,) = learner.policy().decide([game.parse()])
    print(attention, bool(loss.isfinite()), decision.move in game.legal(game.parse()))
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's modules, and a distribution for each of its tables of entry points."""
    folder = tmp_path_factory.mktemp("site")
    for block in blocks("python"):
        if block.startswith("# ") and (name := block.splitlines()[0].removeprefix("# ")).endswith(".py"):
            (folder / name).write_text(block)
    for number, block in enumerate(blocks("toml")):
        project = tomllib.loads(block)
        ((group, points),) = project["project"]["entry-points"].items()
        if group == "genpolicy.options":
            continue  # the variant with a module apart, which the page does not print
        info = folder / f"own_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: own-{number}\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def run(site: Path, code: str, where: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=where)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pages_sampler_keeps_the_laws_and_plays_with_its_bias(site: Path, tmp_path: Path) -> None:
    assert {path.name for path in site.glob("*.py")} == {"left_to_right.py", "pooled_bias.py"}
    laws = next(block for block in blocks("python") if "check_sampler(" in block)
    notebook = next(block for block in blocks("python") if "@register" in block)
    out = run(site, "\n".join([laws, notebook, notebook, PLAY]), tmp_path).splitlines()
    assert out[:4] == [
        f"{folder} {name} 2" for folder in ("policy", "policypooled") for name in ("left_to_right", "hesitant")
    ]
    assert out[4:] == ["['temperature']", "(2, 4)"]


def test_a_package_is_one_file_of_forty_lines() -> None:
    module, project = blocks("python")[0], blocks("toml")[0]
    assert len(module.splitlines()) <= 35
    assert len(project.splitlines()) <= 15


def test_the_pages_bias_takes_shorter_futures(site: Path, tmp_path: Path) -> None:
    kinds = ("full", "full", "prefix", "block_causal")
    assert run(site, SHORTER, tmp_path).splitlines() == [f"{kind} True True" for kind in kinds]
