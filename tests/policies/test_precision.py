"""Policies that decide in lower precision: the same weights, nearly the same probabilities."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from genpolicy import load_game, load_policy, registry
from genpolicy.config import structured
from genpolicy.policies.base import Policy

CONNECT = "connect:rows=3,cols=3,k=3,gravity=false"
NETWORK = {"num_layers": 2, "width": 16, "num_heads": 2, "geometry": "board", "head": "typed", "init_std": 0.3}
IMAGINING = {"network": NETWORK, "horizon": 2, "process": {"kind": "absorbing", "num_timesteps": 4}}
CASES = {
    "prefix": ("diffusion", IMAGINING | {"network": NETWORK | {"attention": "prefix"}}),
    "searched": ("diffusion", IMAGINING | {"paradigm": "s-avsav"}),
    "diffusion": ("diffusion", IMAGINING),
    "image": ("image", {"channels": [8, 8], "norm_groups": 4}),
}
SMALL = {"network": {"num_layers": 1, "width": 16, "num_heads": 2}}


def saved(name: str, folder: Path) -> Path:
    kind, section = CASES.get(name, (name, SMALL))
    learner = registry.load("learners", kind)
    if "network" not in {field.name for field in fields(learner.Config)}:
        section = {key: value for key, value in section.items() if key != "network"}
    torch.manual_seed(0)
    made = learner(load_game("chess" if kind == "image" else CONNECT), structured(learner.Config, section))
    policy: Policy = made.policy()
    return policy.save_pretrained(folder)


WITH_DIFFUSERS = ("gaussian", "image")


@pytest.mark.parametrize(
    "name",
    [
        # On one worker, so that diffusers is imported once.
        pytest.param(name, marks=[pytest.mark.xdist_group("diffusers")] * (name in WITH_DIFFUSERS))
        for name in (*CASES, *sorted(registry.available("learners").keys() - CASES.keys()))
    ],
)
def test_a_policy_decides_in_bfloat16(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path / name)
    exact, lower = load_policy(folder, seed=1), load_policy(f"{folder}?precision=bfloat16", seed=1)
    options = {"candidates": 3} if name == "searched" else {"num_steps": 2}
    if options.keys() <= set(exact.option_names()):
        exact, lower = exact.with_options(**options), lower.with_options(**options)
    first = exact.game.parse()
    states = [first, exact.game.play(first, int(exact.game.legal(first)[4]))]
    pairs = list(zip(exact.decide(states), lower.decide(states), strict=True))
    for state, (expected, found) in zip(states, pairs, strict=True):
        assert found.move in exact.game.legal(state)
        if expected.policy is not None:
            assert found.policy == pytest.approx(expected.policy, abs=0.05)
    if pairs[0][0].policy is not None:
        assert any(found.policy != expected.policy for expected, found in pairs), "the precision is the same"
    assert lower.dream(states[0]).decision.move in exact.game.legal(states[0])

    other = lower.with_options(seed=2)
    assert other.precision == "bfloat16"
    assert load_policy(other.save_pretrained(tmp_path / "saved")).precision == "float32", "it is not the weights'"


def test_a_comparator_of_lower_precision_compares_in_it(tmp_path: Path) -> None:
    folder = saved("comparator", tmp_path / "policy")
    exact, lower = load_policy(folder), load_policy(f"{folder}?precision=bfloat16")
    first, second = (exact.game.play(exact.game.parse(), move) for move in (0, 4))
    answers = [policy.comparator()([(first, second)], 0)[0] for policy in (exact, lower)]
    assert answers[0] == pytest.approx(answers[1], abs=0.05)
    assert answers[0] != answers[1]


def test_what_has_no_precision_refuses_it(tmp_path: Path) -> None:
    folder = saved("diffusion", tmp_path / "policy")
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16; got 'int8'"):
        load_policy(f"{folder}?precision=int8")
    with pytest.raises(ValueError, match="precision"):
        load_policy("random?precision=bfloat16", game=CONNECT)
    with pytest.raises(ValueError, match="precision"):
        load_policy(folder).with_options(precision="bfloat16")
