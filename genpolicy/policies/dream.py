"""What a policy imagines while it decides: the tokens after each of its network calls, and their probabilities.

``Policy.dream`` gives a ``Dream``. A policy that imagines by steps (diffusion, Gaussian, autoregressive, direct) has a
``DreamStep`` for each; any other has none, and its ``Decision`` alone.

Axes: R futures imagined at once, N tokens of a sequence, M moves of the vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from genpolicy.diffusion.logits import TypedLogits
    from genpolicy.policies.base import Decision
    from genpolicy.sequence import Layout


@dataclass(frozen=True, eq=False)
class DreamStep:
    """One network call and the sequence after it."""

    layout: Layout
    """What the tokens are."""
    viewer: int
    """Whose side they are seen from, 0 or 1."""
    index: int
    """0, 1, ..."""
    num_steps: int
    """How many there are."""
    time: int
    """Counts down to 0, the last step: diffusion time after the step, or the number of steps left."""
    tokens: NDArray[np.int64]
    """[N] the sequence after this step, ``layout.mask`` where it is still masked; no mask is left at time 0."""
    guess: NDArray[np.int64]
    """[N] the likeliest admitted symbol by the call; given tokens as they are."""
    confidence: NDArray[np.float64]
    """[N] the call's probability, in [0, 1], of the token, or of the guess where the token is masked. A token that was
    decided for good keeps the probability of the call that decided it; 0 where no call was asked about it yet."""
    policy: dict[int, float]
    """Probability of each legal move (absolute ids, sum 1) to be the first action, at this call or, once it is decided
    for good, at the call that decided it."""

    @property
    def masked(self) -> NDArray[np.bool_]:
        """[N] where ``tokens`` is masked."""
        masked: NDArray[np.bool_] = self.tokens == self.layout.mask
        return masked

    @property
    def shown(self) -> NDArray[np.int64]:
        """[N] the tokens, with the guess where they are masked."""
        return np.where(self.masked, self.guess, self.tokens)


@dataclass(frozen=True, eq=False)
class Dream:
    """A decision and the steps by which the policy made it."""

    state: Any
    """The position that was decided on."""
    viewer: int
    """Whose side tokens are seen from, 0 or 1."""
    layout: Layout | None
    """What the tokens are; None for a policy that imagines no sequence."""
    steps: tuple[DreamStep, ...]
    """In order of time, the last one at time 0; () for a policy without steps."""
    decision: Decision
    """As ``decide`` gives it for the same seed."""

    def __repr__(self) -> str:
        return f"<Dream in {len(self.steps)} steps: {self.decision.text}>"


OnStep = Callable[[DreamStep], None]


class Recorder:
    """Records the steps of one position's decision.

    Several futures of one position are recorded side by side; their steps are published at the end, once one of them
    has been chosen.

    Args:
        network_layout: Layout of the network's tokens.
        shown_layout: Layout of the steps: the same tokens or fewer of them, from the first on.
        admitted: [N, K] bool, symbols that each of the network's tokens can hold.
        legal: Absolute ids of the legal moves in order.
        viewer: Whose side tokens are seen from.
        num_steps: How many there will be.
        on_step: Called with each step as soon as it is ready.
    """

    def __init__(
        self,
        network_layout: Layout,
        shown_layout: Layout,
        admitted: Tensor,
        *,
        legal: Sequence[int],
        viewer: int,
        num_steps: int,
        on_step: OnStep | None = None,
    ) -> None:
        self._network_layout, self.layout, self._admitted = network_layout, shown_layout, admitted
        self._viewer, self._num_steps, self._on_step = viewer, num_steps, on_step
        self._legal = np.array(legal, np.int64)
        self._seen = shown_layout.moves.seen_by(self._legal, viewer)
        self._futures: dict[int, list[DreamStep]] = {}
        self.steps: list[DreamStep] = []
        """The steps of the decision so far."""

    def note(
        self,
        time: int,
        tokens: Tensor,
        logits: TypedLogits,
        latest: Tensor,
        asked: Tensor | None = None,
        futures: range | None = None,
    ) -> None:
        """Record a step.

        Args:
            time: Time of the step, as in ``DreamStep``.
            tokens: [R, N] the sequence after it.
            logits: The call's prediction of the clean tokens.
            latest: [R, M] the call's log-probabilities of the first action's moves.
            asked: [R, N] bool, tokens that the call was asked about; the others keep what the step before says of them.
                None: all.
            futures: Which of several futures the rows are; None for the only one.
        """
        from genpolicy.policies.base import legal_probabilities

        clean = logits.restrict(self._admitted)
        guess = clean.per_token(lambda g: g.symbols[g.logits.argmax(-1)])
        shown = guess.where(tokens == self._network_layout.mask, tokens)
        chances = clean.log_prob(shown).double().exp().nan_to_num(0.0)
        layout, given = self.layout, self.layout.given
        arrays = [a.cpu().numpy() for a in (tokens, guess, chances, latest)]
        for row, (kept, guessed, of_token, of_move) in enumerate(zip(*arrays, strict=True)):
            before = self.steps if futures is None else self._futures.setdefault(futures[row], [])
            kept, scores = self._shown(kept), of_move[self._seen]
            step = DreamStep(
                layout,
                self._viewer,
                len(before),
                self._num_steps,
                time,
                kept,
                np.where(given, kept, self._shown(guessed)),
                np.where(given, 1.0, of_token[: layout.length].clip(0.0, 1.0)),
                # A network can put all its probability elsewhere; then nothing tells the legal moves apart.
                legal_probabilities(self._legal, scores if scores.max() != -np.inf else np.zeros(len(scores))),
            )
            if asked is not None:
                step = _keep(step, before[-1] if before else None, asked[row].cpu().numpy())
            if futures is None:
                self._publish(step)
            else:
                before.append(step)

    def choose(self, future: int, first_action: int) -> None:
        """Publish the steps of one of several futures; this symbol becomes its final first action."""
        steps = self._futures[future]
        tokens = steps[-1].tokens.copy()
        tokens[self.layout.first_action] = first_action
        steps[-1] = dataclasses.replace(steps[-1], tokens=tokens)
        for step in steps:
            self._publish(step)

    def _publish(self, step: DreamStep) -> None:
        self.steps.append(step)
        if self._on_step is not None:
            self._on_step(step)

    def _shown(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """The shown part of a row, its mask and PAD those of the shown layout."""
        part = tokens[: self.layout.length].astype(np.int64)
        ends = {self._network_layout.pad: self.layout.pad, self._network_layout.mask: self.layout.mask}
        return np.select([part == old for old in ends], list(ends.values()), part)


def _keep(step: DreamStep, before: DreamStep | None, asked: NDArray[np.bool_]) -> DreamStep:
    """A step that says of the tokens that its call was not asked about what the step before said."""
    asked = asked[: step.layout.length]
    if before is None:
        return dataclasses.replace(step, confidence=np.where(asked | step.layout.given, step.confidence, 0.0))
    policy = step.policy if asked[step.layout.first_action] else before.policy
    return dataclasses.replace(step, confidence=np.where(asked, step.confidence, before.confidence), policy=policy)
