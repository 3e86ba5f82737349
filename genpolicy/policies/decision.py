"""What a policy answers: a move, and what it knows and imagined of it; seen to be what callers can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from genpolicy import registry
from genpolicy.errors import RegistryError

if TYPE_CHECKING:
    from genpolicy.policies.base import Policy


@dataclass(frozen=True)
class Variation:
    """One move and the line expected after it."""

    line: tuple[int, ...]
    """Absolute ids, the move first; the later ones need not be legal."""
    value: float | None = None
    """In [-1, 1] for the player to move at the root."""
    mate_plies: int | None = None
    """Plies to a certain mate, negative where the player to move is mated; None where none is known."""
    states: tuple[str | None, ...] = ()
    """Text of each imagined state, ``states[i]`` after ``line[i]``; None where the tokens stand for no position."""
    wdl: tuple[float, float, float] | None = None
    """As ``Decision.wdl``."""


@dataclass(frozen=True)
class Decision:
    """A policy's answer for one position."""

    move: int
    """Absolute move id, legal in the position."""
    policy: dict[int, float] | None = None
    """Probability of each legal move (absolute ids, sum 1), where the policy has one."""
    value: float | None = None
    """In [-1, 1] for the player to move, where the policy has one."""
    line: tuple[int, ...] = ()
    """The imagined moves, absolute ids, beginning with the first imagined action (which may differ from ``move`` where
    that one was illegal). They need not be legal; -1 where the policy imagined the game's end instead of a move."""
    states: tuple[str | None, ...] = ()
    """Text of each imagined state, ``states[i]`` after ``line[i]``; None where the tokens stand for no position."""
    variations: tuple[Variation, ...] = ()
    """What was imagined of several moves, the best first; () where ``line`` is all there is."""
    stats: Mapping[str, float] = field(default_factory=dict)
    """Numbers for people: ``network_calls``, ``raw_legal`` (1 when the move was legal before the mask), ``plies_left``
    (expected to the end of the game), ..."""
    state_tokens: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)
    """Tokens of ``states``, also of those that stand for no position, by the policy's tokenizer as its viewer sees them
    (``NetworkLearner.viewers``); () from a policy that has none."""
    wdl: tuple[float, float, float] | None = None
    """Probabilities that the player to move wins, draws and loses (sum 1), where the policy tells them apart."""
    names: Sequence[str] = field(default=(), repr=False, compare=False)
    """Protocol texts of all moves by id (``game.moves.texts``), for ``text``; () from a policy that leaves them out."""

    @property
    def text(self) -> str:
        """The move with its probability and the value, as far as there are some: ``e2e4, 34.1 %, value +0.12``."""
        said = [self.names[self.move] if self.names else f"move {self.move}"]
        said += [] if self.policy is None else [f"{100 * self.policy.get(self.move, 0.0):.1f} %"]
        return ", ".join(said if self.value is None else [*said, f"value {self.value:+.2f}"])


def likeliest_first(policy: Mapping[int, float] | None) -> dict[int, float]:
    """A distribution over moves in the order of probability, equal ones by their ids; {} for None."""
    return dict(sorted((policy or {}).items(), key=lambda item: (-item[1], item[0])))


def require_decisions(policy: Policy, states: Sequence[Any], answer: Any) -> list[Decision]:
    """The answer, where it is one decision for each position.

    Raises:
        RegistryError: it is something else; the message names the policy's package.
    """
    wanted = (
        "one Decision for one position" if len(states) == 1 else f"one Decision for each of {len(states)} positions"
    )
    if not isinstance(answer, list | tuple) or not all(isinstance(each, Decision) for each in answer):
        raise RegistryError(f"{_owner(policy)} answered {answer!r:.80}, not {wanted}")
    if len(answer) != len(states):
        raise RegistryError(f"{_owner(policy)} answered {len(answer)} decisions, not {wanted}")
    return list(answer)


def require_legal(policy: Policy, states: Sequence[Any], decisions: Sequence[Decision]) -> None:
    """See that the move of each decision is legal.

    Raises:
        RegistryError: one is not; the message names the policy's package and the position.
    """
    game = policy.game
    for state, decision in zip(states, decisions, strict=True):
        move = decision.move
        if move not in game.legal(state):
            named = game.moves[move] if 0 <= move < len(game.moves) else f"of id {move}"
            raise RegistryError(f"{_owner(policy)} chose the illegal move {named} in {game.format(state)!r}")


def _owner(policy: Policy) -> str:
    return registry.named("policies", policy.kind, policy)
