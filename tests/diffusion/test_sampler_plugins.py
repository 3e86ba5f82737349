"""Samplers of third parties: found by entry point or by decorator, named with their package where they are wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from genpolicy import declared_samplers, registry
from genpolicy.diffusion import Absorbing, Multinomial, Sampler, SamplerOutput, Step, make_sampler
from genpolicy.diffusion.ranking import likeliest_symbols
from genpolicy.diffusion.samplers import sample_steps, sampler_class
from genpolicy.errors import ConfigError, RegistryError
from genpolicy.options import Option, options_of
from genpolicy.testing import check_sampler

OWN = """
from collections import Counter

from genpolicy.diffusion import Sampler
from genpolicy.options import Option


class Likeliest(Sampler):
    options = (Option("patience", int, 2, low=1, high=9),)

    def advance(self, step):
        return None


class Twice(Sampler):
    options = (Option("patience", int, 2), Option("patience", int, 3))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with samplers of which one is sound."""
    (tmp_path / "own_samplers.py").write_text(OWN.split("class Twice")[0])
    (tmp_path / "own_twice.py").write_text(OWN)
    info = tmp_path / "own_samplers-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-samplers\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(
        "[genpolicy.samplers]\nlikeliest = own_samplers:Likeliest\ncounter = own_samplers:Counter\n"
        "twice = own_twice:Twice\nabsent = own_samplers:Absent\nbroken = no_such_module_at_all:Sampler\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_an_entry_point_is_all_that_a_sampler_needs(installed: None) -> None:
    sampler = make_sampler("likeliest", Absorbing(3, 4), patience="3")
    assert type(sampler).__name__ == "Likeliest"
    assert sampler.config.patience == 3
    assert options_of("samplers", "likeliest") == sampler.options
    with pytest.raises(ConfigError, match=r"sampler 'likeliest' takes no option 'patients'.*Did you mean: 'patience'"):
        make_sampler("likeliest", Absorbing(3, 4), patients=3)
    with pytest.raises(ConfigError, match=r"sampler 'likeliest': .*patience must be at least 1 and at most 9, got 10"):
        make_sampler("likeliest", Absorbing(3, 4), patience=10)
    with pytest.raises(ConfigError, match=r"Did you mean: 'likeliest'.*ancestral.*likeliest.*stochastic"):
        make_sampler("likelyest", Absorbing(3, 4))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("counter", r"own_samplers:Counter.* of own-samplers 1\.5\) is the class Counter, not a subclass of .*Sampler"),
        (
            "twice",
            r"own_twice:Twice.* of own-samplers 1\.5\): TypeError: Twice.options names an option twice",
        ),
        ("absent", r"own_samplers:Absent.* of own-samplers 1\.5\): AttributeError"),
        ("broken", r"needs the module 'no_such_module_at_all'.* of own-samplers 1\.5"),
    ],
)
def test_a_wrong_sampler_is_named_and_the_others_work(installed: None, name: str, message: str) -> None:
    with pytest.raises(RegistryError, match=message):
        make_sampler(name, Absorbing(3, 4))
    assert make_sampler("easy_first", Absorbing(3, 4)).config.rate == "linear"


@pytest.mark.parametrize("options", [{"rate": 1}, Option("rate", float, 1.0), (Option, "rate"), ["rate"]])
def test_options_of_another_kind_are_named(options: object) -> None:
    with pytest.raises(TypeError, match=r"Mine\.options is a tuple of Option, for instance \(Option\(.*\),\), got "):
        type("Mine", (Sampler,), {"options": options})


def test_what_advance_gives_is_checked(installed: None) -> None:
    process = Absorbing(3, 4)
    xt = torch.full((1, 4), 3)
    sampler = make_sampler("likeliest", process)
    message = r"sampler 'likeliest' \(.* of own-samplers 1\.5\): advance gave a NoneType, not a SamplerOutput"
    with pytest.raises(RegistryError, match=message):
        sampler.step(torch.zeros(1, 4, 3), 2, 1, xt, frozen=xt < 3)
    with pytest.raises(RegistryError, match="sampler Likeliest: advance gave a NoneType"):
        type(sampler)(process).step(torch.zeros(1, 4, 3), 2, 1, xt, frozen=xt < 3)
    with pytest.raises(TypeError, match="abstract"):
        type("Idle", (Sampler,), {})(process)


def test_a_notebook_registers_a_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})

    @registry.register("samplers", "left_to_right")
    class LeftToRight(Sampler):
        """Decides the first masked tokens of a row, as many as the grid asks for."""

        options = (Option("reverse", bool, False),)

        @property
        def needs_visible_noise(self) -> bool:
            return True

        def advance(self, step: Step) -> SamplerOutput:
            masked = self.process.undecided(step.xt) & ~step.frozen
            sampled = torch.where(masked, likeliest_symbols(step.clean), step.xt)
            left = (~step.frozen).sum(1) * step.s // self.process.num_timesteps
            place = (~step.frozen).flip(1).cumsum(1).flip(1)  # counted from the end of the row
            prev = torch.where(masked & (place <= left[:, None]), self.process.mask, sampled)
            return SamplerOutput(prev_sample=prev, sampled=sampled, scores=torch.zeros(step.xt.shape).double())

    process = Absorbing(3, 4)
    sampler = make_sampler("left_to_right", process, reverse="yes")
    assert sampler.config.reverse is True
    logits = torch.tensor([[0.0, 1.0, 0.0]]).expand(4, 3)
    steps = sample_steps(
        lambda tokens, t: logits.expand(len(tokens), -1, -1),
        process,
        sampler,
        torch.full((1, 4), 3),
        torch.zeros(1, 4).bool(),
    )
    seen = [step.output.prev_sample[0].tolist() for step in steps]
    assert seen == [[1, 3, 3, 3], [1, 1, 3, 3], [1, 1, 1, 3], [1, 1, 1, 1]]
    with pytest.raises(ConfigError, match="noise of process 'multinomial' looks like data"):
        make_sampler("left_to_right", Multinomial(3, 4))


def test_lists_apart_from_the_classes_are_those_of_the_classes() -> None:
    for name in registry.available("samplers"):
        assert options_of("samplers", name) == sampler_class(name).options, name
        made = sampler_class(name)
        sampler = made(Absorbing(5, 20), [0] * made.decides_last, [0] * made.orders_blocks)
        assert {option.name: sampler.config[option.name] for option in sampler.options} == {
            option.name: option.default for option in sampler.options
        }
        assert sampler.needs_visible_noise == (name in declared_samplers.NEED_VISIBLE_NOISE), name


def test_options_are_listed_without_torch() -> None:
    code = (
        "import sys; from genpolicy.options import options_of;"
        "print([option.name for option in options_of('samplers', 'remasking')]);"
        "print([name for name in ('torch', 'numpy', 'diffusers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["['eta', 'sigma', 'temperature']", "[]"]


def test_presets_are_defaults_that_can_be_overridden() -> None:
    process = Absorbing(3, 4)
    assert make_sampler("easy_first_commit", process).config.commit is True
    assert make_sampler("easy_first_commit", process, commit=False).config.commit is False
    assert make_sampler("stochastic", process).config.noise == 0.5


def test_only_a_sampler_that_decides_last_takes_last() -> None:
    with pytest.raises(ConfigError, match="AncestralSampler: takes no last"):
        make_sampler("ancestral", Absorbing(3, 4), last=[0])
    with pytest.raises(ConfigError, match="AncestralSampler: takes no blocks"):
        make_sampler("ancestral", Absorbing(3, 4), blocks=[0])
    with pytest.raises(ConfigError, match=r"ByPlySampler: give the block of each token, e\.g\. blocks=layout"):
        make_sampler("by_ply", Absorbing(3, 4))


def test_a_sampler_works_with_a_process_that_is_not_installed() -> None:
    class Unregistered(Absorbing):
        kind = "unregistered"

    process = Unregistered(3, 4)
    assert make_sampler("ancestral", process).process is process


class AnyOrder(Sampler):
    """Draws which tokens it decides from the generator of the whole process."""

    def advance(self, step: Step) -> SamplerOutput:
        noise = self.process.undecided(step.xt) & ~step.frozen
        sampled = torch.where(noise, likeliest_symbols(step.clean), step.xt)
        kept = noise & (torch.rand(step.xt.shape) < 0.5) & torch.tensor(step.s > 0)
        return SamplerOutput(torch.where(kept, step.xt, sampled), sampled, torch.zeros(step.xt.shape))


def test_an_order_of_deciding_by_other_draws_than_the_rows_breaks_a_law() -> None:
    with pytest.raises(AssertionError, match="with 10 calls: the same generators give the same sample"):
        check_sampler(AnyOrder(Absorbing(num_symbols=5, num_timesteps=20)))
