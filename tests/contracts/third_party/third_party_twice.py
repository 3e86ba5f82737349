"""A policy that declares an option twice, and one whose option contradicts itself."""

from typing import Any

from genpolicy.options import Option
from genpolicy_policy_baselines.simple import RandomPolicy


class TwicePolicy(RandomPolicy):
    kind = "twice"

    @classmethod
    def options(cls, spec: Any = None) -> tuple[Option, ...]:
        return (*super().options(spec), Option("seed", int, 0))


class UnfitPolicy(RandomPolicy):
    kind = "unfit"

    @classmethod
    def options(cls, spec: Any = None) -> tuple[Option, ...]:
        return (*super().options(spec), Option("plies", int, 0, low=1))
