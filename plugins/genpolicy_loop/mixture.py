"""A mixture of two policies: a share of the positions is decided by the second one, the others by the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import unquote

from genpolicy.control import FREE, Control
from genpolicy.options import Option, PolicySpec, with_defaults
from genpolicy.policies import declared
from genpolicy.policies.base import Decision, Policy, decide_with, load_policy
from genpolicy.policies.seeds import RowSeeds

ALPHA = Option(
    "alpha", float, 0.5, low=0, high=1, help="share of the positions that the second policy decides", basic=True
)


class MixturePolicy(Policy):
    """Lets one of two policies, drawn at random, decide each position.

    The draw depends on the seed, on the position and on how often it was decided before (``RowSeeds``), not on the
    other positions of a batch. A mixture within a mixture has draws of its own. At ``alpha`` 0 the decisions are those
    of the first policy alone, at 1 those of the second. A decision keeps what its policy gave: probabilities, value,
    line.

    Args:
        first: Decides with probability 1 - alpha.
        second: Decides with probability alpha.
        alpha: In [0, 1].
        seed: Seed of the draws, and of both policies.

    Raises:
        ValueError: alpha out of range, or policies of two games.
    """

    kind: ClassVar[str] = "mix"
    spelling: ClassVar[str] = "mix:A,B[?alpha=X] (? and , in A and B are written %3F and %2C)"
    starts_cold: ClassVar[bool] = False

    def __init__(self, first: Policy, second: Policy, alpha: float = 0.5, seed: int = 0) -> None:
        if first.game.spec != second.game.spec:
            raise ValueError(f"mix: {first.label} plays {first.game.spec!r}, {second.label} {second.game.spec!r}")
        self.first, self.second, self.alpha = first, second, float(ALPHA.read(alpha))
        self.game = first.game
        inner = [policy.depth for policy in (first, second) if isinstance(policy, MixturePolicy)]
        self.depth: int = 1 + max(inner, default=0)
        """Mixtures within each other, this one included."""
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """See ``Policy.seed``."""
        self._seeds = RowSeeds(seed)
        self.first.seed(seed)
        self.second.seed(seed)

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """One decision for each position, by the policy that is drawn for it."""
        texts = [self.game.format(state) for state in states]
        # An inner mixture has the same seed: by the same text it would draw the same number for the same position.
        seeds = self._seeds.draw(texts if self.depth == 1 else [f"{self.depth}\n{text}" for text in texts])
        takes_second = [seed < self.alpha * 2**63 for seed in seeds]
        decisions: dict[int, Decision] = {}
        for policy, wanted in ((self.first, False), (self.second, True)):
            rows = [row for row, second in enumerate(takes_second) if second == wanted]
            if rows:
                made = decide_with(policy, [states[row] for row in rows], control)
                decisions.update(zip(rows, made, strict=True))
        return [decisions[row] for row in range(len(states))]

    @property
    def label(self) -> str:
        """Both labels and the share of the second."""
        return f"mix-{self.alpha:g}:{self.first.label},{self.second.label}"

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """See ``Policy.options``."""
        return with_defaults((ALPHA, declared.SEED), {} if spec is None else spec.settings)

    def with_options(self, **changed: Any) -> MixturePolicy:
        """The same two policies with another share or seed."""
        return type(self)(
            self.first, self.second, **{"alpha": self.alpha, "seed": self._seeds.seed, **self.read_changes(changed)}
        )

    def close(self) -> None:
        """Close both policies."""
        self.first.close()
        self.second.close()

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> MixturePolicy:
        """``mix:A,B?alpha=0.5``; ``%2C`` and ``%3F`` in A and B stand for a comma and a question mark.

        Raises:
            ValueError: not two policies, or an option that they do not take.
        """
        parts = argument.split(",")
        if len(parts) != 2 or not all(parts):
            raise ValueError(f"mix needs two policies, {cls.spelling}; got {argument!r}")
        general = {key: options[key] for key in ("game", "device", "seed") if options.get(key) is not None}
        first = load_policy(unquote(parts[0]), **general)
        try:
            second = load_policy(unquote(parts[1]), **general)
        except BaseException:
            first.close()
            raise
        own = {key: value for key, value in options.items() if key in ("alpha", "seed") and value is not None}
        return cls(first, second, **own)
