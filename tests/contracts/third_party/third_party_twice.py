"""A policy that declares an option twice."""

from typing import Any

from genpolicy.options import Option
from genpolicy.policies.simple import RandomPolicy


class TwicePolicy(RandomPolicy):
    kind = "twice"

    @classmethod
    def options(cls, spec: Any = None) -> tuple[Option, ...]:
        return (*super().options(spec), Option("seed", int, 0))
