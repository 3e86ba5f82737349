"""Things that are not what their entry points say, and things that break their word."""

from __future__ import annotations

from typing import Any

from third_party_learner import LowRankLearner
from third_party_stream import Growing, GrowingLearner

from genpolicy.data.counter_rng import Shuffle
from genpolicy.data.windows import Batch
from genpolicy_policy_baselines.simple import RandomPolicy

NUMBER = 3


class NotALearner:
    pass


def make_number(*arguments: Any, **options: Any) -> int:
    return NUMBER


class NumberPolicy(RandomPolicy):
    """A page offers it untrained, and it makes a number."""

    kind = "number"

    @classmethod
    def from_spec(cls, argument: str, options: Any) -> Any:
        return NUMBER


class NumberWindows(LowRankLearner):
    def windows(self, records: Any, split: str, *, seed: int) -> Any:
        return NUMBER


class NumberLoss(LowRankLearner):
    def loss(self, batch: Any, generator: Any) -> Any:
        return NUMBER


class NumberAsPolicy(LowRankLearner):
    def policy(self) -> Any:
        return NUMBER


class Swelling(Growing):
    """Says how many records it has, and grows."""

    @property
    def num_records(self) -> int:
        return self.size


class Straying(Growing):
    """Shuffles what it had at first, and asks for more."""

    def parts(self, update: int) -> list[Batch]:
        shuffle = Shuffle(4, self.seed)
        return [self.source.batch(shuffle(positions, 0), 0) for positions in self.share.positions(update)]


class SwellingLearner(GrowingLearner):
    stream_class = Swelling


class StrayingLearner(GrowingLearner):
    stream_class = Straying
