"""Plays by a learned model: its likeliest move, the best one by one step of it, or whatever a search over it finds.

Axes: B batch, M moves of the vocabulary.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.control import FREE, Control
from genpolicy.networks.value_heads import finite
from genpolicy.policies.base import Decision, Policy
from genpolicy.policies.learner import Learner
from genpolicy.policies.saved import WeightsPolicy
from genpolicy_policy_model.declared import MODES, MUZERO
from genpolicy_policy_model.latent import NO_END, Dynamics, Floats, LatentModel
from genpolicy_policy_model.learner import ModelLearner
from genpolicy_policy_model.muzero import MuZeroLearner
from genpolicy_policy_model.networks import JudgingNetwork, ModelNetwork


class ModelPolicy(WeightsPolicy):
    """A policy over a learned model; a subclass supplies the model's functions (``dynamics``).

    ``Decision.policy`` is the model's prior over the legal moves, whichever is played; ``value`` is its value of the
    position, or by ``one_step`` that of the move. ``mcts:FOLDER`` searches the model (``search_model``). Stats:
    ``network_calls`` and ``ms`` (of the batch over its rows).

    Args:
        learner: The learner; its weights are shared.
        mode: ``prior`` plays the likeliest move; ``one_step`` the one that is best by reward and value after it.
        terminal: Whether the model may end a line; None: if it has an end-of-game head.
        top: As in ``LatentModel``.
        options: Arguments of ``WeightsPolicy``.

    Raises:
        ValueError: an option out of range, or ``terminal`` without an end-of-game head.
    """

    declaration = MUZERO
    learner: ModelLearner

    def __init__(
        self,
        learner: ModelLearner,
        *,
        mode: str = "prior",
        terminal: bool | None = None,
        top: int = 64,
        **options: Any,
    ) -> None:
        super().__init__(learner, **options)
        if mode not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}; got {mode!r}")
        has_end = learner.config.end_head
        if terminal and not has_end:
            raise ValueError(NO_END)
        self.mode, self.terminal, self.top = mode, has_end if terminal is None else bool(terminal), int(top)

    def own_options(self) -> dict[str, Any]:
        """The constructor's options as they are."""
        return {**super().own_options(), "mode": self.mode, "terminal": self.terminal, "top": self.top}

    def modes(self) -> dict[str, Policy]:
        """The likeliest move by one call, and the best by one step of the model."""
        if self.mode == "prior":
            return {"one_call": self}
        return {"one_call": self.with_options(mode="prior"), "one_step": self}

    @property
    def num_calls(self) -> int:
        """Network calls of one decision."""
        return 1 if self.mode == "prior" else 2

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        """See ``Policy.with_effort``; one call takes the likeliest move."""
        del plies
        return self.modes()["one_call"] if calls == 1 else self

    @abstractmethod
    def dynamics(self, control: Control) -> Dynamics:
        """The model's functions, which check ``control`` on the way."""

    def search_model(self, name: str | None = None) -> LatentModel | None:
        """The learned model, also by the name ``latent``."""
        if name not in (None, "latent"):
            return None

        def checked(check: Callable[[], None]) -> Dynamics:
            return self.dynamics(Control(check))

        kind, own = self._model_kind()
        return kind(self.game, checked(FREE.check), terminal=self.terminal, top=self.top, on_check=checked, **own)

    def _model_kind(self) -> tuple[type[LatentModel], dict[str, Any]]:
        """The class of ``search_model`` and its own arguments."""
        return LatentModel, {"alternates": self.learner.config.side == "both"}

    def _decide_batch(self, states: Sequence[Any], legal: list[list[int]], seeds: Sequence[int]) -> list[Decision]:
        began = time.perf_counter()
        model = self.search_model()
        assert model is not None
        roots = model.root(states)
        priors = [_among(moves, *roots.choices[row]) for row, moves in enumerate(legal)]
        values: list[dict[int, float]] = [{} for _ in states]
        if self.mode == "one_step":
            pairs = [(row, move) for row, moves in enumerate(legal) for move in moves]
            after = model.expand([roots.embeddings[row] for row, _ in pairs], [move for _, move in pairs])
            numbers = zip(after.rewards, after.discounts, after.values, strict=True)
            for (row, move), (reward, discount, value) in zip(pairs, numbers, strict=True):
                values[row][move] = min(1.0, max(-1.0, reward + discount * value))
        stats = {
            "network_calls": float(model.network_calls),
            "raw_legal": 1.0,
            "ms": 1e3 * (time.perf_counter() - began) / len(states),
        }
        decisions = []
        for row, policy in enumerate(priors):
            worth = values[row]
            move = max(policy, key=lambda each: (worth.get(each, 0.0), policy[each], -each))
            value = worth.get(move, roots.values[row])
            names = self.game.moves.texts
            decisions.append(Decision(move, policy, value, line=(move,), stats=stats, names=names))
        return decisions


def _among(moves: Sequence[int], ids: NDArray[np.int64], priors: Floats | None) -> dict[int, float]:
    """Probabilities of some of a root's moves; even where the model gives them none."""
    shares = dict(zip(ids.tolist(), np.full(len(ids), 1.0) if priors is None else priors.tolist(), strict=True))
    total = sum(shares[move] for move in moves)
    return {move: shares[move] / total if total > 0 else 1.0 / len(moves) for move in moves}


class MuZeroPolicy(ModelPolicy):
    """Plays the likeliest move, or the best after one step of a learned model (MuZero)."""

    kind: ClassVar[str] = "muzero"
    learner_class: ClassVar[type[Learner]] = MuZeroLearner
    learner: MuZeroLearner

    def dynamics(self, control: Control) -> NetworkDynamics:
        """Representation, dynamics and heads."""
        return NetworkDynamics(self, self.learner.network, control)


class JudgedByHeads:
    """What the heads of a learned model's network say of latents.

    Args:
        policy: Says where the weights are, and how positions are read.
        network: The weights.
        control: Checked on the way.
    """

    def __init__(self, policy: ModelPolicy, network: JudgingNetwork, control: Control) -> None:
        self._policy, self._heads, self._control = policy, network, control

    @property
    def has_end(self) -> bool:
        """Whether the model can tell that a game is over."""
        return bool(self._policy.learner.config.end_head)

    def _judged(self, after: Tensor) -> tuple[Floats, Floats]:
        """Rewards that led to latents, and probabilities that the game is over."""
        heads = self._heads
        rewards = finite(heads.mean(heads.reward, heads.reward(after)), "reward")
        ends = torch.zeros_like(rewards) if heads.end is None else finite(heads.end(after), "end").sigmoid()
        return rewards.double().cpu().numpy(), ends.double().cpu().numpy()

    def _predicted(self, logits: Tensor, latents: Tensor) -> tuple[Floats, Floats]:
        """[B, M] probabilities by logits of moves, and [B] values of latents."""
        policy = finite(logits, "policy").double().softmax(-1).cpu().numpy()
        values = finite(self._heads.mean(self._heads.value, self._heads.value(latents)), "value")
        return policy, values.double().cpu().numpy()


class NetworkDynamics(JudgedByHeads):
    """The functions of a learned model as its network computes them; arguments as ``JudgedByHeads``."""

    def __init__(self, policy: ModelPolicy, network: ModelNetwork, control: Control) -> None:
        super().__init__(policy, network, control)
        self._network = network

    @torch.no_grad()
    def represent(self, states: Sequence[Any]) -> list[Tensor]:
        """[B] latents [N, W] of positions."""
        game, policy = self._policy.game, self._policy
        players = np.array([game.player(state) for state in states], np.int64)
        rows = policy.learner.layout.tokenizer.encode(states, players).astype(np.int64)
        with policy._evaluating(self._control):
            return list(self._network.represent(torch.from_numpy(rows).to(policy.device)))

    @torch.no_grad()
    def step(self, latents: Sequence[Tensor], moves: NDArray[np.int64]) -> tuple[list[Tensor], Floats, Floats]:
        """See ``genpolicy_policy_model.latent.Dynamics``; without an end head no game is over.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        policy, network = self._policy, self._network
        with policy._evaluating(self._control):
            after = network.step(torch.stack(list(latents)), torch.from_numpy(moves).to(policy.device))
            return list(after), *self._judged(after)

    @torch.no_grad()
    def predict(self, latents: Sequence[Tensor]) -> tuple[Floats, Floats]:
        """See ``genpolicy_policy_model.latent.Dynamics``.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        with self._policy._evaluating(self._control):
            stacked = torch.stack(list(latents))
            return self._predicted(self._network.policy(stacked), stacked)
