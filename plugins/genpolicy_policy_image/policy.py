"""Plays a move whose image a diffusion draws, or the likeliest one by a single call.

Axes: B batch, K cells, C planes of an image, H rows, W columns.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.diffusion.ranking import LEAST_TEMPERATURE
from genpolicy.errors import require_one_of
from genpolicy.policies.base import Decision, Policy, legal_probabilities
from genpolicy.policies.learner import Learner
from genpolicy.policies.saved import WeightsPolicy
from genpolicy_policy_image.config import CHOICES, ImageConfig
from genpolicy_policy_image.declared import IMAGE
from genpolicy_policy_image.learner import ImageLearner
from genpolicy_policy_image.schedulers import sampling_scheduler


class ImagePolicy(WeightsPolicy):
    """Generates or classifies images of policy planes and plays the move they show.

    ``Decision.policy`` is what one call at pure noise says of the legal moves: the softmax of a classifier or of the
    x_0 prediction; of a noise prediction the clean image that it implies, read as probabilities. ``Decision.line`` is
    the move that was drawn or taken, -1 where its cell holds no legal move (only without the legal mask). Stats:
    ``network_calls``; ``raw_legal``, 1 where that move was legal without a legal mask (under the mask: where the
    likeliest cell of the one call was legal); ``legal_mass``, probability on legal moves before the mask; ``ms``.

    Args:
        learner: An ``ImageLearner``; its weights are shared.
        temperature: 0 takes the likeliest move by one call. Above 0 a diffusion draws the move, and the softmax of each
            call is divided by it; a noise prediction has no softmax and draws at 1 only. None is as configured.
        scheduler: ``ddpm``, ``ddim`` or ``dpmsolver++``; None is as configured.
        num_steps: Network calls of a drawn move; None is as configured.
        matched: Whether the sampler has the schedule of the training (``ImageConfig.matched``); None is as configured.
        legal_mask: Only legal moves are drawn or taken. Without it an illegal move is ``line[0] = -1`` and ``move`` is
            the likeliest legal one.
        options: Arguments of ``WeightsPolicy``.

    Raises:
        ConfigError: no such scheduler.
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "image"
    declaration = IMAGE
    learner_class: ClassVar[type[Learner]] = ImageLearner
    learner: ImageLearner

    def __init__(
        self,
        learner: ImageLearner,
        *,
        temperature: float | None = None,
        scheduler: str | None = None,
        num_steps: int | None = None,
        matched: bool | None = None,
        legal_mask: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(learner, **options)
        config = learner.config
        self.temperature = float(config.temperature or 0.0) if temperature is None else float(temperature)
        self.scheduler = config.scheduler if scheduler is None else scheduler
        self.num_steps = config.num_steps if num_steps is None else num_steps
        self.matched = bool(config.matched if matched is None else matched)
        self.legal_mask = legal_mask
        require_one_of("scheduler", self.scheduler, CHOICES["scheduler"])
        if not 1 <= self.num_steps <= config.num_timesteps:
            raise ValueError(f"num_steps must be 1..{config.num_timesteps}, got {self.num_steps}")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be at least 0 (0 takes the likeliest), got {temperature}")
        if config.prediction == "eps" and self.temperature not in (0.0, 1.0):
            raise ValueError(
                f"a noise prediction draws at temperature 1 or takes the likeliest at 0, got {temperature}"
            )

    def own_options(self) -> dict[str, Any]:
        """The constructor's options as they are."""
        own = {"temperature": self.temperature, "scheduler": self.scheduler, "num_steps": self.num_steps}
        return {**super().own_options(), **own, "matched": self.matched, "legal_mask": self.legal_mask}

    def modes(self) -> dict[str, Policy]:
        """The likeliest move by one call, and the drawn one."""
        if self.temperature == 0:
            return {"one_call": self}
        name = "drawn" if self._classifies else f"{self.scheduler} {self.num_steps}"
        return {"one_call": self.with_options(temperature=0.0), name: self}

    @property
    def num_calls(self) -> int:
        """Network calls of one decision."""
        return 1 if self.temperature == 0 or self._classifies else self.num_steps

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        """See ``Policy.with_effort``; one call takes the likeliest move."""
        if calls == 1:
            return self.modes()["one_call"]
        return self if calls is None else self.with_options(num_steps=min(calls, self.learner.config.num_timesteps))

    def unmasked(self) -> WeightsPolicy | None:
        """The same without the legal mask; None where it has none."""
        return self.with_options(legal_mask=False) if self.legal_mask else None

    @property
    def mask_only_filters(self) -> bool:
        """Whether the likeliest move is played instead of sampled."""
        return self.temperature == 0

    @property
    def _classifies(self) -> bool:
        return self.learner.config.prediction == "classify"

    def _decide_batch(self, states: Sequence[Any], legal: list[list[int]], seeds: Sequence[int]) -> list[Decision]:
        began = time.perf_counter()
        learner = self.learner
        ids = [np.array(row, np.int64) for row in legal]
        allowed = torch.from_numpy(learner.cells.legal(list(states), ids)).to(self.device)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        planes = torch.from_numpy(learner.game.planes(states)).to(self.device)
        draw = _Draw(self, learner.network.features(planes), allowed, generators)
        drawn = draw.move()
        ms = 1e3 * (time.perf_counter() - began) / len(states)
        first, chosen = draw.first_call.cpu().numpy(), drawn.cpu().numpy()
        decisions = []
        for i, state in enumerate(states):
            cells = learner.cells.of(ids[i], learner.game.player(state))
            decision = self._decision(ids[i], cells, first[i], int(chosen[i]))
            stats = {**decision.stats, "network_calls": float(draw.calls), "ms": ms}
            decisions.append(dataclasses.replace(decision, stats=stats))
        return decisions

    def _decision(
        self, ids: NDArray[np.int64], cells: NDArray[np.int64], first: NDArray[np.float64], chosen: int
    ) -> Decision:
        """One row's answer: its legal moves and their cells, log-probabilities [K] of one call, the chosen cell."""
        policy = legal_probabilities(ids, first[cells])
        at = np.flatnonzero(cells == chosen)
        drawn = int(ids[at[0]]) if len(at) else -1
        best = int(np.argmax(first)) if self.legal_mask else chosen
        stats = {
            "raw_legal": float(np.isin(best, cells)),
            "legal_mass": float(min(1.0, np.exp(first[cells]).sum())),
        }
        # Probabilities at the floor of an estimate tie but for the order of sums: they tie for us, too.
        move = drawn if drawn >= 0 else max(policy, key=lambda each: (round(policy[each], 9), -each))
        return Decision(move, policy=policy, line=(drawn,), stats=stats, names=self.game.moves.texts)

    def _saved_config(self) -> ImageConfig:
        return dataclasses.replace(
            self.learner.config,
            temperature=self.temperature,
            scheduler=self.scheduler,
            num_steps=self.num_steps,
            matched=self.matched,
        )


class _Draw:
    """One batch's way from noise to moves.

    Args:
        policy: Its options and its network.
        features: [B, F, H, W] of the positions.
        legal: [B, K] cells of the legal moves.
        generators: One a row, on the CPU, so that a row does not depend on the others nor on the device.
    """

    def __init__(
        self, policy: ImagePolicy, features: Tensor, legal: Tensor, generators: Sequence[torch.Generator]
    ) -> None:
        self._policy, self._features, self._legal = policy, features, legal
        self._generators = list(generators)
        self._learner, self._config = policy.learner, policy.learner.config
        self.calls = 0
        self.first_call = torch.empty(0)
        """[B, K] float64 log-probabilities of the cells, before the legal mask, by the first call."""

    def move(self) -> Tensor:
        """[B] the cells that are played, or would be if they were legal."""
        temperature = self._policy.temperature
        if self._config.prediction == "classify":
            images = self._learner.blank(len(self._features))
            self._ask(images, self._learner.last_timestep(len(images)))
            scores = self._masked(self.first_call)
            return self._drawn(scores / max(temperature, LEAST_TEMPERATURE)) if temperature else scores.argmax(-1)
        images = torch.cat([torch.randn(1, *self._image_shape, generator=g) for g in self._generators])
        images = images.to(self._features)
        if temperature == 0:
            self._ask(images, self._learner.last_timestep(len(images)))
            return self._masked(self.first_call).argmax(-1)
        return self._sampled(images)

    @property
    def _image_shape(self) -> tuple[int, int, int]:
        return (self._learner.code.num_planes, *self._learner.cells.shape[1:])

    def _sampled(self, images: Tensor) -> Tensor:
        ours = self._policy
        scheduler = sampling_scheduler(self._config, ours.scheduler, ours.num_steps, matched=ours.matched)
        takes_generator = "generator" in inspect.signature(scheduler.step).parameters
        more = {"generator": self._generators} if takes_generator else {}
        images = images * scheduler.init_noise_sigma
        for timestep in scheduler.timesteps:
            output = self._ask(images, torch.full((len(images),), int(timestep), device=images.device))
            images = scheduler.step(output, timestep, images, **more).prev_sample.to(images.dtype)
        return self._masked(self._learner.code.scores(images).double()).argmax(-1)

    def _ask(self, images: Tensor, timesteps: Tensor) -> Tensor:
        """The scheduler's input: the noise, or the mean clean image under the softmax."""
        code = self._learner.code
        out = self._learner.network(images, timesteps, self._features)
        self.calls += 1
        if self._config.prediction == "eps":
            if self.calls == 1:
                signal = self._learner.signal[timesteps][:, None, None, None]
                self.first_call = code.log_probabilities((images - (1 - signal).sqrt() * out) / signal.sqrt())
            return torch.as_tensor(out)
        logits = out.flatten(1).double()
        if self.calls == 1:
            self.first_call = logits.log_softmax(-1)
        logits = self._masked(logits) / max(self._policy.temperature or 1.0, LEAST_TEMPERATURE)
        return code.mean(logits.softmax(-1).to(images.dtype))

    def _masked(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(~self._legal, -torch.inf) if self._policy.legal_mask else scores

    def _drawn(self, scores: Tensor) -> Tensor:
        """[B] cells drawn from the softmax of scores [B, K], each row by its own generator."""
        shares = scores.softmax(-1).cpu()
        rows = [torch.multinomial(row, 1, generator=g) for row, g in zip(shares, self._generators, strict=True)]
        return torch.cat(rows).to(self._features.device)
