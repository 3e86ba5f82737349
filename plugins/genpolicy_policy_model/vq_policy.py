"""Plays by a model with codes: its likeliest move, the best by the model's worth of moves, or by a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.control import Control
from genpolicy.networks.value_heads import EndHead, finite
from genpolicy.policies.learner import Learner
from genpolicy_policy_model.chance_model import ChanceModel, Judged, Thrown
from genpolicy_policy_model.code_model import Acted, CodeModel
from genpolicy_policy_model.declared import VQ
from genpolicy_policy_model.latent import Floats, LatentModel
from genpolicy_policy_model.policy import ModelPolicy, NetworkDynamics
from genpolicy_policy_model.pure_model import PureModel
from genpolicy_policy_model.vq import VQLearner
from genpolicy_policy_model.vq_network import VQNetwork


class VQPolicy(ModelPolicy):
    """Plays the likeliest move, or the best after one step of a model with codes for what the player does not decide.

    That is the opponent's replies, or what chance decides.

    Args:
        learner: The learner; its weights are shared.
        answers: As in ``CodeModel``.
        least: As in ``CodeModel``.
        options: Arguments of ``ModelPolicy``.
    """

    kind: ClassVar[str] = "vq"
    declaration = VQ
    learner_class: ClassVar[type[Learner]] = VQLearner
    learner: VQLearner

    def __init__(self, learner: VQLearner, *, answers: int = 32, least: float = 0.01, **options: Any) -> None:
        super().__init__(learner, **options)
        self.answers, self.least = int(answers), float(least)

    def own_options(self) -> dict[str, Any]:
        """The constructor's options as they are."""
        return {**super().own_options(), "answers": self.answers, "least": self.least}

    def dynamics(self, control: Control) -> CodedNetwork:
        """The network's functions."""
        return self._kind[1](self, self.learner.network, control)

    @property
    def _kind(self) -> tuple[type[CodeModel], type[CodedNetwork]]:
        config = self.learner.config
        if config.side == "both":
            return ChanceModel, ChanceNetwork
        return (PureModel, PureNetwork) if config.plan == "pure" else (CodeModel, CodedNetwork)

    def _model_kind(self) -> tuple[type[LatentModel], dict[str, Any]]:
        return self._kind[0], {"answers": self.answers, "least": self.least}


class CodedNetwork(NetworkDynamics):
    """The functions of a model with codes as its network computes them; see ``CodedDynamics``.

    A move alone earns nothing and ends no game: the code after it does, also where no answer was possible.

    Args:
        policy: As in ``NetworkDynamics``.
        network: The weights.
        control: Checked on the way.
    """

    def __init__(self, policy: VQPolicy, network: VQNetwork, control: Control) -> None:
        super().__init__(policy, network, control)
        self._coded = network

    @torch.no_grad()
    def act(self, latents: Sequence[Tensor], moves: NDArray[np.int64]) -> Acted:
        """See ``CodedDynamics``.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        network, policy = self._coded, self._policy
        with policy._evaluating(self._control):
            return self._acted(network.step(torch.stack(list(latents)), torch.from_numpy(moves).to(policy.device)))

    def _acted(self, after: Tensor) -> Acted:
        network = self._coded
        codes = finite(network.codes(after), "code").double().softmax(-1)
        worth = finite(network.mean(network.worth, network.worth(after)), "worth")
        nothing = np.zeros(len(after))
        return Acted(list(after), nothing, nothing, codes.cpu().numpy(), worth.double().cpu().numpy())

    @torch.no_grad()
    def answer(self, latents: Sequence[Tensor], codes: NDArray[np.int64]) -> tuple[list[Tensor], Floats, Floats]:
        """See ``CodedDynamics``; without an end head no game is over.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        network, policy = self._coded, self._policy
        with policy._evaluating(self._control):
            after = network.answered(torch.stack(list(latents)), torch.from_numpy(codes).to(policy.device))
            return list(after), *self._judged(after)


class PureNetwork(CodedNetwork):
    """The functions of a model with codes of own moves; see ``PureDynamics``. Arguments as ``CodedNetwork``."""

    @torch.no_grad()
    def choose(self, latents: Sequence[Tensor], codes: NDArray[np.int64]) -> Acted:
        """See ``PureDynamics``.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        policy, planned = self._policy, self._coded.planned
        assert planned is not None
        with policy._evaluating(self._control):
            chosen = torch.from_numpy(codes).to(policy.device)
            return self._acted(planned(torch.stack(list(latents)), chosen[:, None]))

    @torch.no_grad()
    def plan(self, latents: Sequence[Tensor]) -> tuple[Floats, Floats]:
        """See ``PureDynamics``.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        plan = self._coded.plan
        assert plan is not None
        _, values = self.predict(latents)
        with self._policy._evaluating(self._control):
            shares = finite(plan(torch.stack(list(latents))), "plan").double().softmax(-1)
        return shares.cpu().numpy(), values


class ChanceNetwork(CodedNetwork):
    """The functions of a model whose codes stand for chance; see ``ChanceDynamics``. Arguments as ``CodedNetwork``."""

    @torch.no_grad()
    def throw(self, latents: Sequence[Tensor], moves: NDArray[np.int64]) -> Thrown:
        """See ``ChanceDynamics``.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        acted = self.act(latents, moves)
        with self._policy._evaluating(self._control):
            after = torch.stack(list(acted.latents))
            chances = _probability(self._coded.chance, after, "chance")
            return Thrown(acted.latents, chances, acted.codes, acted.values, self._told(after))

    @torch.no_grad()
    def thrown(self, latents: Sequence[Tensor], codes: NDArray[np.int64]) -> tuple[list[Tensor], Judged]:
        """See ``ChanceDynamics``.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        network, policy = self._coded, self._policy
        with policy._evaluating(self._control):
            after = network.answered(torch.stack(list(latents)), torch.from_numpy(codes).to(policy.device))
            return list(after), self._told(after)

    def _told(self, after: Tensor) -> Judged:
        return Judged(*self._judged(after), _probability(self._coded.turn, after, "turn"))


def _probability(head: EndHead | None, latent: Tensor, name: str) -> Floats:
    assert head is not None
    out: Floats = finite(head(latent), name).sigmoid().double().cpu().numpy()
    return out
