"""DiffuSearch (Ye et al. 2025, arXiv:2502.19805): imagine a future by discrete diffusion, play its first move.

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from genpolicy.control import FREE
from genpolicy.data.records import Dataset
from genpolicy.data.windows import TokenBatch, WindowSource
from genpolicy.diffusion.logits import NEGATIVE_INFINITY, Denoiser, TypedLogits
from genpolicy.diffusion.making import make_process
from genpolicy.diffusion.random import uniforms
from genpolicy.diffusion.ranking import usable_logits
from genpolicy.diffusion.samplers import Sampler, make_sampler, sample_steps, sampler_class
from genpolicy.errors import CheckpointError, ConfigError, require_one_of
from genpolicy.game import Game
from genpolicy.networks.every_block import require_every_block
from genpolicy.networks.prefix import Encoded
from genpolicy.networks.shared import take_shared
from genpolicy.policies import declared
from genpolicy.policies.base import Policy
from genpolicy.policies.dream import Recorder
from genpolicy.policies.first_action import FirstAction, FirstCall, Imagined
from genpolicy.policies.imagined import Imagination, ImaginedModel, Replies, search
from genpolicy.policies.learner import Learner
from genpolicy.policies.ply_order import ORDERS, PlyOrder
from genpolicy.policies.sampling import SamplerConfig as SamplerConfig
from genpolicy.policies.sampling import require_possible
from genpolicy.policies.tokens import NetworkLearner, NetworkLearnerConfig, NetworkPolicy, acting_layout
from genpolicy.policies.weights import CPU_ROWS
from genpolicy.sequence import KINDS, Layout, Slot

if TYPE_CHECKING:
    from genpolicy.search.model import SearchModel


@dataclass
class DiffusionConfig(NetworkLearnerConfig):
    """Options of ``DiffusionLearner``; the defaults are the paper's."""

    paradigm: str = "s-asa"
    """What is imagined; a key of ``genpolicy.sequence.PARADIGMS``."""
    horizon: int = 4
    """Plies imagined."""
    horizons: list[int] = field(default_factory=list)
    """Where given, one model for several horizons: a batch is seen with one of these, drawn anew, and later plies are
    hidden (Ye et al. 2025, Table 6). With rotary positions ``horizon``, a policy's longest, may exceed all of these;
    training refuses it with others."""
    tokens: str = ""
    """The game's tokenizer of states: its own, or one of ``Game.tokenizers``."""
    process: dict[str, Any] = field(default_factory=lambda: {"kind": "absorbing"})
    """``kind``: entry point in group ``genpolicy.processes``; ``order``: ``joint``, noise over the whole future (the
    paper's), or ``ply``, with options of its own (``genpolicy.policies.ply_order``, ``.any_move``, ``.comparison``);
    ``timeless``: whether a process that needs the time may do without ``network.time_conditioning``; the other keys are
    the process's own."""
    value_weight: float = 1.0
    """Of the loss of value tokens against that of all others: a value's gradient is easily several times a move's."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """How the policy plays by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.value_weight < math.inf:
            raise ConfigError(f"learner.value_weight must be at least 0, got {self.value_weight}")
        if self.network.factorised_pad is None and self.process.get("ends"):
            self.network = dataclasses.replace(self.network, factorised_pad=True)


class DiffusionLearner(NetworkLearner):
    """Trains a network to restore noised futures.

    Raises:
        ConfigError: a process, a sampler or an option of theirs that does not exist.
    """

    Config: ClassVar[type[Any]] = DiffusionConfig
    config: DiffusionConfig

    def __init__(self, game: Game[Any], config: DiffusionConfig) -> None:
        layout = self.layout_of(game, config)
        options = dict(config.process)
        order, timeless = options.pop("order", ORDERS[0]), options.pop("timeless", False)
        require_one_of("key 'learner.process.order'", order, ORDERS)
        by_ply = PlyOrder.taken_from(options, game, layout, config.viewer, used=order == "ply")
        if order == "ply":
            options.setdefault("weighting", "constant")  # linear weighs pure noise, as most blocks are, by 1/T
            if config.horizons:
                raise ConfigError("learner.horizons: under order=ply all shorter horizons are trained already")
        process = make_process(options, layout.num_symbols)
        if process.needs_time and not config.network.time_conditioning and timeless is not True:
            raise ConfigError(
                f"tokens noised by process {process.kind!r}, as configured, do not show the time: set "
                "learner.network.time_conditioning=true, or learner.process.timeless=true to train without it"
            )
        super().__init__(game, config, layout, process.input_symbols)
        self.process, self.by_ply = process, by_ply
        if by_ply is not None and by_ply.one_pass:
            require_every_block(self.network)
        for horizon in sorted(set(config.horizons)):
            self.end_of(horizon)
        is_value = torch.from_numpy(layout.kinds == KINDS.index("value"))
        self.token_weights = torch.where(is_value, config.value_weight, 1.0) if config.value_weight != 1 else None

    @classmethod
    def layout_of(cls, game: Game[Any], config: Any) -> Layout:
        """The tokens of the network's sequences under some options."""
        tokenizer = game.tokenizer(config.tokens)
        return acting_layout(game, config.paradigm, config.horizon, admit_pad=config.train_pad, tokenizer=tokenizer)

    def meaning(self) -> dict[str, Any]:
        """Also what the logits stand for and, if the network is told the time, the number of timesteps."""
        found = {**super().meaning(), "process.prediction_type": self.process.prediction_type}
        if self.config.network.time_conditioning:
            found["process.num_timesteps"] = self.process.num_timesteps
        return found

    def flops_per_record(self) -> float | None:
        """As for every network learner; of sequences that are cut in training, the mean."""
        if self.by_ply is not None:
            return self.flops_of(*self.by_ply.cost())
        if not self.config.horizons:
            return super().flops_per_record()
        lengths = [self.end_of(horizon) for horizon in self.config.horizons]
        return self.flops_of(sum(lengths) / len(lengths), sum(n**2 for n in lengths) / len(lengths))

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """As for every network learner.

        Raises:
            ConfigError: the last plies have position embeddings that no horizon would train.
        """
        trained, longest = self.config.horizons, self.config.horizon
        if trained and longest > max(trained) and self.config.network.positions != "rotary":
            raise ConfigError(
                f"learner.horizon={longest} is beyond learner.horizons={trained}, so its last plies would not be "
                "trained: set learner.network.positions=rotary, or a horizon among them"
            )
        return super().windows(records, split, seed=seed)

    def take_weights(self, source: Learner) -> None:
        """Those of a policy of the same layout and network, or what a policy over another sequence shares with this one
        (``genpolicy.networks.shared``): S-A, say, before it learns to imagine.

        Raises:
            CheckpointError: networks of another width or depth, other symbols or another viewer.
        """
        all_in_network = all(name.startswith("network.") for name, _ in self.named_parameters())
        # Networks over the same sequence may yet have other heads, such as board_values.
        is_same = source.fingerprint == self.fingerprint and source.state_dict().keys() == self.state_dict().keys()
        if not all_in_network or not isinstance(source, NetworkLearner) or is_same:
            super().take_weights(source)
            return
        self.require_same_meaning(source)
        if differing := take_shared(self.network, self.layout, source.network, source.layout):
            raise CheckpointError(f"it and this learner differ in {differing}; give the learner the same as it has")

    def loss(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The process's loss at one random time a row, and with one random horizon where there are several."""
        if self.by_ply is not None:
            return self.by_ply.loss(self, batch, generator)
        if self.config.horizons:
            (drawn,) = uniforms(1, (1,), generator, batch.tokens.device)
            batch = batch.first(self.end_of(self.config.horizons[int(float(drawn) * len(self.config.horizons))]))
        return self.loss_at(batch, generator), {}

    def loss_at(
        self, batch: TokenBatch, generator: torch.Generator, times: Tensor | None = None, model: Denoiser | None = None
    ) -> Tensor:
        """The process's loss at some times, drawn ones if None, by the network or what stands for it."""
        n, of_token = batch.tokens.shape[1], self.token_weights
        weights = None if of_token is None else of_token[:n].to(batch.tokens.device)
        given = {"times": times, "weights": weights}  # a process of somebody else's need not know of these
        given = {name: value for name, value in given.items() if value is not None}
        return self.process.loss(model or self.network, batch, generator, admitted=self.admitted[:n], **given)

    def end_of(self, horizon: int) -> int:
        """Number of tokens of a sequence with this many plies imagined.

        Raises:
            ConfigError: none, or more than the layout holds.
        """
        if not 1 <= horizon <= self.config.horizon:
            raise ConfigError(f"a horizon of this model is 1..{self.config.horizon} (learner.horizon), got {horizon}")
        return self.layout.over(self.game, horizon).length

    @torch.no_grad()
    def elbo(self, batch: TokenBatch, generator: torch.Generator) -> Tensor:
        """[B] bound on -log p(future | position) in nats, one random time a row: unbiased, so average many."""
        views = [batch] if self.by_ply is None else self.by_ply.views(batch)
        bounds = [
            self.process.elbo(self.network, view, generator, admitted=self.admitted[: view.tokens.shape[1]])
            for view in views
        ]
        return torch.stack(bounds).sum(0)


CHOSEN = tuple(each.name for each in dataclasses.fields(SamplerConfig) if each.name not in ("name", "options"))
"""Fields that are options of the policy by the same name."""
SAMPLING = ("sampler", "num_steps", "temperature", "num_futures", "horizon")
"""Options that say how a future is sampled."""


class DiffusionPolicy(NetworkPolicy):
    """Imagines the future with a sampler and plays its first action.

    Arguments are those of ``NetworkPolicy``, those of ``SamplerConfig`` (``sampler`` is its ``name``), and what the
    sampler takes itself (``rate``, ``score``, ``noise``, ``commit``). None takes what the learner's configuration says.
    A search uses nothing of ``SAMPLING``, so where one of these is given, ``candidates=None`` takes 0.

    Raises:
        ConfigError: no such sampler or option of one.
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "diffusion"
    declaration = declared.DIFFUSION
    learner_class: ClassVar[type[NetworkLearner]] = DiffusionLearner
    learner: DiffusionLearner

    def __init__(
        self,
        learner: DiffusionLearner,
        *,
        sampler: str | None = None,
        seed: int = 0,
        legal_mask: bool = True,
        batch_size: int = 64,
        **options: Any,
    ) -> None:
        super().__init__(learner, seed=seed, legal_mask=legal_mask, batch_size=batch_size)
        preset, own = learner.config.sampler, {"sampler": sampler, **{key: options.pop(key, None) for key in CHOSEN}}
        given = {key: value for key, value in own.items() if value is not None}
        if given.get("candidates", 0) > 0:
            given.setdefault("num_futures", 1)  # a search averages over none, whatever a decision without one does
        elif not given.keys().isdisjoint(SAMPLING):
            given.setdefault("candidates", 0)
        if (name := given.pop("sampler", preset.name)) != preset.name:  # it takes no options of the configured one
            preset = dataclasses.replace(preset, name=name, temperature=None, num_futures=1, options={})
        self.sampling = dataclasses.replace(preset, **given, options={**preset.options, **options})
        self._plies = learner.config.horizon if self.sampling.horizon is None else self.sampling.horizon
        self._end = learner.end_of(self._plies)
        if learner.by_ply is not None and self.sampling.name == "one_call":
            # Noise ordered by ply is not trained on what lies after the block that is decided, here the first.
            self._plies, self._end = 1, learner.end_of(1)
        self._sampler = self._make_sampler()
        require_possible(self.sampling, self._sampler)
        self._imagination = Imagination(learner) if self.sampling.candidates else None
        self._replies = Replies.of(learner, self._sampler)

    @property
    def num_calls(self) -> int:
        """Network calls of one decision, all futures or candidates of a position in one."""
        if self._imagination is not None:
            return 1 + 2 * self.sampling.depth
        firsts = (self._sampler.blocks_at(t)[0] for t in self._sampler.timesteps[:-1].tolist())
        return self.num_dream_steps + (0 if self._replies is None else self._replies.num_calls(firsts))

    @property
    def rows_a_position(self) -> int:
        """See ``WeightsPolicy``: candidates, or futures."""
        return max(1, self.sampling.candidates, self.sampling.num_futures)

    @property
    def num_dream_steps(self) -> int:
        """See ``NetworkPolicy.num_dream_steps``; a reply's own call belongs to the step that it replies in."""
        return len(self._sampler.timesteps) - 1

    def modes(self) -> dict[str, Policy]:
        """One call's marginal, the paper's sampler where noise is ordered otherwise, the sampler as set, the search."""
        now, by_ply = self.sampling, self.learner.by_ply
        if now.name == "one_call" and not now.candidates:
            return {"one_call": self}
        modes: dict[str, Policy] = {"one_call": self.with_options(sampler="one_call", candidates=0)}
        if by_ply is not None and by_ply.joint:
            steps = self.learner.process.num_timesteps
            paper = self.with_options(sampler="easy_first", num_steps=steps, candidates=0, temperature=now.temperature)
            modes[f"easy_first {steps}"] = paper
        if now.name != "one_call":
            sampled = self.with_options(candidates=0) if now.candidates else self
            modes[f"{now.name} {len(self._sampler.timesteps) - 1}"] = sampled
        if now.candidates:
            modes[f"imagined search {now.candidates} x {now.depth}"] = self
        return modes

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        """See ``Policy.with_effort``; one call is the marginal's move. A search becomes less deep, or one call."""
        if calls == 1:
            return self.modes()["one_call"]
        if self._imagination is not None:
            depth = self.sampling.depth
            if calls is not None:
                depth = min(depth, (calls - 1) // 2)
            if plies is not None:
                depth = min(depth, plies - 1)
            if depth < 1:
                return self.modes()["one_call"]
            return self if depth == self.sampling.depth else self.with_options(depth=depth)
        fewer = self if plies is None else self.with_options(horizon=min(plies, self.learner.config.horizon))
        if calls is None:
            return fewer
        steps = range(min(calls, self.learner.process.num_timesteps), 0, -1)  # replies may need calls of their own
        made = (fewer.with_options(num_steps=num) for num in steps)
        return next((each for each in made if each.num_calls <= calls), self.modes()["one_call"])

    @property
    def about(self) -> str:
        """See ``Policy``; a search in the imagination does something else than the sampler."""
        return super().about if self._imagination is None else self._imagination.about

    def search_model(self, name: str | None = None) -> SearchModel | None:
        """See ``Policy.search_model``; ``imagined`` is its imagination, by default the rules are searched."""
        if name != "imagined":
            return None
        evaluating = functools.partial(self._evaluating, FREE)
        return ImaginedModel(Imagination(self.learner, "model=rules"), evaluating=evaluating)

    @property
    def mask_only_filters(self) -> bool:
        """Whether it plays the likeliest move by one call."""
        return self._imagination is None and self.num_calls == 1 and self._sampler.config.get("temperature") == 0

    def _options_with(self, changed: dict[str, Any]) -> dict[str, Any]:
        names = ("num_steps", "horizon", "candidates", "depth", "weight")
        now: dict[str, Any] = {name: getattr(self.sampling, name) for name in names}
        # What sampling and a search do not share is left to the constructor where the other one is asked for.
        if changed.get("sampler", self.sampling.name) == self.sampling.name:
            temperature = self.sampling.temperature
            now = {**now, **self.sampling.options, "sampler": self.sampling.name, "temperature": temperature}
            if not changed.get("candidates"):
                now["num_futures"] = self.sampling.num_futures
        if not changed.keys().isdisjoint(SAMPLING):
            del now["candidates"]
        return {**self.own_options(), **now, **changed}

    def _predict(self, tokens: Tensor, t: Tensor, encoded: Encoded | None = None) -> TypedLogits:
        by_ply, network, length = self.learner.by_ply, self.learner.network, self.layout.length
        if by_ply is None and self._end < length:  # as such a network has always played, to the bit
            visible = (torch.arange(length, device=tokens.device) < self._end).expand(length, length)
            return TypedLogits.of(network.denoise(tokens, t, encoded, visible))
        end, first = self._end, -1
        if by_ply is not None and self._sampler.orders_blocks:
            first, last = self._sampler.blocks_at(int(t[0]))
            end = min(end, by_ply.ends[last])
        logits = TypedLogits.of(network.denoise(tokens[:, :end], t, encoded))
        # The tokens after it are frozen or left as noise, so nothing reads a prediction of them.
        logits = dataclasses.replace(logits, num_tokens=self.layout.length)
        return logits if self._replies is None else self._replies.put(logits, tokens, first)

    def _imagined_slots(self) -> Sequence[Slot]:
        end = self._end if self._imagination is None else self.layout.first_action + 1  # the candidates have the rest
        return [slot for slot in self.layout.slots if slot.stop <= end]

    def _shown_layout(self) -> Layout:
        return self.layout if self._end == self.layout.length else self.layout.over(self.game, self._plies)

    def _imagine(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        """Fill in a batch of roots; where several futures are imagined, the move is their mean's likeliest."""
        if self._imagination is not None:
            return self._searched(self._imagination, tokens, first_action)
        number = self.sampling.num_futures
        if number == 1:
            return self._sampled(tokens, seeds, first_action, recorder)
        # Not all in one call: a saved policy may ask for many.
        at_once = max(1, CPU_ROWS // len(tokens)) if tokens.device.type == "cpu" else number
        parts: list[Imagined] = []
        for start in range(0, number, at_once):
            copies = range(start, min(start + at_once, number))
            each = [seed + copy for seed in seeds for copy in copies]
            repeated = tokens.repeat_interleave(len(copies), dim=0)
            parts.append(self._sampled(repeated, each, first_action.repeated(len(copies)), recorder, copies))
        chances = torch.cat([part.latest.exp().view(len(tokens), -1, part.latest.shape[-1]) for part in parts], dim=1)
        futures = torch.cat([part.tokens.view(len(tokens), -1, tokens.shape[1]) for part in parts], dim=1)
        move = chances.mean(1).argmax(-1)
        rows = torch.arange(len(tokens), device=tokens.device)
        likes_it_best = chances[rows, :, move].argmax(-1)
        chosen = futures[rows, likes_it_best].clone()
        chosen[:, self.layout.first_action] = move + self.layout.move_offset
        if recorder is not None:  # of one position
            recorder.choose(int(likes_it_best[0]), int(chosen[0, self.layout.first_action]))
        one, step = parts[0], min(at_once, number)
        first_call = FirstCall(one.first_call.marginal[::step], one.first_call.best[::step])
        return Imagined(chosen, first_call, one.latest[::step], one.num_calls)

    def _searched(self, model: Imagination, tokens: Tensor, first_action: FirstAction) -> Imagined:
        """The best of the candidates, and what was imagined of all."""
        layout, sampling = self.layout, self.sampling
        roots = tokens[:, : layout.state_length]
        found = search(model, roots, first_action.legal, sampling.candidates, sampling.depth, sampling.weight)
        filled = tokens.clone()
        filled[:, layout.first_action] = found.lines[:, 0, 0] + layout.move_offset
        first = FirstCall(found.log_policy, found.log_policy.argmax(-1) + layout.move_offset)
        latest = torch.full_like(found.log_policy, NEGATIVE_INFINITY)
        latest.scatter_reduce_(1, found.lines[:, :, 0].clamp(min=0), found.score, "amax")
        return Imagined(filled, first, latest.log_softmax(-1), self.num_calls, found)

    def _sampled(
        self,
        tokens: Tensor,
        seeds: Sequence[int],
        first_action: FirstAction,
        recorder: Recorder | None,
        copies: range | None = None,
    ) -> Imagined:
        """As ``_imagine``, one future for each row.

        Args:
            tokens: [B, N], each root as often as there are ``copies``, in adjacent rows.
            seeds: One for each row.
            first_action: Of the same rows.
            recorder: As in ``_imagine``.
            copies: Which of a root's futures its rows are; None where each root has only one.
        """
        same = 1 if copies is None else len(copies)
        process, admitted = self.learner.process, self.learner.admitted
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        beyond = torch.arange(self.layout.length, device=tokens.device) >= self._end
        given = torch.from_numpy(self.layout.given.copy()).to(tokens.device)
        frozen = (given | beyond).expand_as(tokens)
        noise = process.prior_sample(tokens, given.expand_as(tokens), admitted=admitted, generator=generators)
        first_call, step, encoded = None, None, self.learner.network.encode(tokens[::same], same)
        for step in sample_steps(
            functools.partial(self._predict, encoded=encoded),
            process,
            self._sampler,
            noise,
            frozen,
            admitted=admitted,
            generator=generators,
            num_steps=self.sampling.num_steps,
            change=first_action.masked,
        ):
            first_call = first_call or first_action.first_call(step.prediction)
            if recorder is not None:
                usable = usable_logits(step.logits, process.num_symbols, admitted)
                clean = process.clean_logits(usable, step.before, step.t, admitted=admitted)
                asked = None
                if self._sampler.orders_blocks:  # what is decided stays, and the network is not trained to say it again
                    first, last = self._sampler.blocks_at(step.t)
                    blocks = torch.as_tensor(self.layout.blocks, device=tokens.device)
                    asked = process.undecided(step.before) & (first <= blocks) & (blocks <= last)
                latest = first_action.moves(step.logits)
                recorder.note(step.s, step.output.prev_sample, clean, latest, asked, copies)
        assert step is not None
        assert first_call is not None
        return Imagined(step.output.prev_sample, first_call, first_action.moves(step.logits), self.num_calls)

    def _make_sampler(self) -> Sampler:
        own = dict(self.sampling.options)
        if self.sampling.temperature is not None:
            own["temperature"] = self.sampling.temperature
        made = sampler_class(self.sampling.name)
        if made.decides_last:
            own.setdefault("last", [self.layout.first_action])
        if made.orders_blocks:
            inside = np.arange(self.layout.length) < self._end
            own.setdefault("blocks", np.where(inside, self.layout.blocks, -1).tolist())
        sampler = make_sampler(self.sampling.name, self.learner.process, **own)
        sampler.set_timesteps(self.sampling.num_steps)
        return sampler

    def _saved_config(self) -> DiffusionConfig:
        return dataclasses.replace(self.learner.config, sampler=self.sampling)


DiffusionLearner.policy_class = DiffusionPolicy
