"""Policies that declare an option twice or wrongly, and policies whose decisions cannot be played."""

from typing import Any

from genpolicy.options import Option
from genpolicy.policies.base import Decision
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


class IllegalPolicy(RandomPolicy):
    kind = "illegal"

    def decide(self, states: Any, **given: Any) -> Any:
        return [Decision(next(m for m in range(9999) if m not in self.game.legal(state))) for state in states]


class NumberPolicy(RandomPolicy):
    kind = "number_decision"

    def decide(self, states: Any, **given: Any) -> Any:
        return [3 for _ in states]
