"""Things that are of the right class and give wrong answers, or cannot be made."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from third_party_stream import Growing, GrowingLearner

from genpolicy.data.oracle import Oracle
from genpolicy.diffusion import Sampler
from genpolicy.diffusion.samplers import OneCallSampler
from genpolicy.networks import AttentionBias


class NoneSampler(Sampler):
    def advance(self, step: Any) -> Any:
        return None


class ShortSampler(OneCallSampler):
    def advance(self, step: Any) -> Any:
        output = super().advance(step)
        return dataclasses.replace(output, sampled=output.sampled[:, :-1])


class FloatSampler(OneCallSampler):
    def advance(self, step: Any) -> Any:
        output = super().advance(step)
        return dataclasses.replace(output, prev_sample=output.prev_sample.float())


class NoisySampler(OneCallSampler):
    def advance(self, step: Any) -> Any:
        return dataclasses.replace(super().advance(step), prev_sample=step.xt)


class RaisingSampler(NoneSampler):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise KeyError("raised")


class IdleSampler(Sampler):
    """It has no ``advance``."""


class NumberStatic(AttentionBias):
    def static(self) -> Any:
        return 3


class FlatStatic(AttentionBias):
    def static(self) -> Any:
        return torch.zeros(3)


class RaisingBias(AttentionBias):
    def __init__(self, layout: Any, config: Any) -> None:
        raise KeyError("raised")


class NumberOracle(Oracle):
    answer: Any = 3

    def __init__(self, game: Any) -> None:
        self.game = game

    def describe(self) -> dict[str, Any]:
        return {"name": type(self).__name__}

    def analyse(self, states: Any, horizon: int, *, move_values: bool = False) -> Any:
        return list(self.answer) if isinstance(self.answer, tuple) else self.answer


class NumbersOracle(NumberOracle):
    answer = (3,)


def raise_key_error(game: Any) -> Any:
    raise KeyError("raised")


def a_number(name: str, query: str, game: Any) -> Any:
    """Leaves all names but two to others."""
    if name == "four":
        raise KeyError(name)
    return 3 if name == "three" else None


class NoParts(Growing):
    answer: Any = None

    def parts(self, update: int) -> Any:
        return list(self.answer) if isinstance(self.answer, tuple) else self.answer


class NumberParts(NoParts):
    answer = (3,)


class NoPartsLearner(GrowingLearner):
    stream_class = NoParts


class NumberPartsLearner(GrowingLearner):
    stream_class = NumberParts
