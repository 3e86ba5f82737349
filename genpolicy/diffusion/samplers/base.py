"""What samplers share: their options, their grid of times, the arguments and the result of a step.

Axes: B batch, N tokens, K symbols.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from genpolicy import registry
from genpolicy.diffusion.logits import Admitted, Denoiser, Logits, TypedLogits
from genpolicy.diffusion.making import make_process
from genpolicy.diffusion.process import Process
from genpolicy.diffusion.random import Generators, uniforms
from genpolicy.diffusion.ranking import AdmittedParts, usable_logits
from genpolicy.errors import ConfigError, RegistryError, did_you_mean
from genpolicy.files import write_atomic
from genpolicy.options import Option, read_options

CONFIG_FILE = "scheduler_config.json"


@dataclass(frozen=True)
class SamplerOutput:
    """The result of one step."""

    prev_sample: Tensor
    """[B, N] int64 tokens at time s."""
    sampled: Tensor
    """[B, N] int64 the clean tokens that the step imagined; decided and frozen tokens as they were."""
    scores: Tensor
    """[B, N] float64 confidence in ``sampled``, higher is surer; without ranking noise."""


@dataclass(frozen=True)
class Step:
    """The arguments of ``Sampler.step``, checked."""

    logits: TypedLogits
    """The network's prediction, restricted to admitted symbols."""
    clean: TypedLogits
    """Logits of p(x_0 | x_t); other than ``logits`` where a network predicts something else."""
    t: int
    s: int
    xt: Tensor
    """[B, N] int64 tokens at time t."""
    frozen: Tensor
    """[B, N] bool."""
    admitted: Admitted
    """[N, K] or [B, N, K] bool."""
    generator: Generators

    def draws(self, num: int) -> Tensor:
        """[num, B, N] float64 uniforms in [0, 1), each row's from its own generator where there is one a row."""
        return uniforms(num, tuple(self.xt.shape), self.generator, self.xt.device)


class SamplerOptions(dict[str, Any]):
    """What a sampler was made with, by key or by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a sampler's config has no {name!r}; it has: {', '.join(self)}") from None


class Sampler(ABC):
    """The base of samplers: a subclass lists its ``options`` and writes ``advance``.

    Args:
        process: The process whose noise is undone, or its ``config()``.
        last: Places in the sequence, which a sampler with ``decides_last`` decides last.
        blocks: The block of each token (``Layout.blocks``), for a sampler with ``orders_blocks``.
        options: Values of the declared options, which are then in ``self.config``.

    Raises:
        ConfigError: an option that does not exist or is out of range, or a process that the sampler cannot work with.
    """

    options: ClassVar[tuple[Option, ...]] = ()
    """What may be set, each option once, with its type, default and range."""
    decides_last: ClassVar[bool] = False
    """Whether it takes ``last``, places that it decides by the last network call."""
    orders_blocks: ClassVar[bool] = False
    """Whether it takes ``blocks``, which it decides in order, and says by ``blocks_at`` which each call decides."""
    entry: str = ""  # the name by which make_sampler found it
    order = 1
    process: Process
    """The process whose noise is undone."""
    timesteps: Tensor
    """[n+1] int64 grid from T down to 0; step i goes from ``timesteps[i]`` to ``timesteps[i+1]``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared: object = cls.options
        if not isinstance(declared, tuple) or not all(isinstance(option, Option) for option in declared):
            example = '(Option("temperature", float, 1.0),)'
            raise TypeError(f"{cls.__name__}.options is a tuple of Option, for instance {example}, got {declared!r}")
        names = [option.name for option in cls.options]
        if len(set(names)) < len(names):
            raise TypeError(f"{cls.__name__}.options names an option twice: {', '.join(names)}")

    def __init__(
        self,
        process: Process | Mapping[str, Any],
        last: Sequence[int] = (),
        blocks: Sequence[int] = (),
        **options: Any,
    ) -> None:
        values = read_options(f"sampler {type(self).__name__!r}", options, self.options)
        values = {option.name: values.get(option.name, option.default) for option in self.options}
        for name, given, takes, way_out in (
            ("last", last, self.decides_last, "give the places to decide last, e.g. last=[layout.first_action]"),
            ("blocks", blocks, self.orders_blocks, "give the block of each token, e.g. blocks=layout.blocks.tolist()"),
        ):
            if takes != bool(given):
                raise ConfigError(f"{type(self).__name__}: {f'takes no {name}' if given else way_out}")
            if takes:
                values[name] = [int(place) for place in given]
        if isinstance(process, Mapping):
            own = {key: value for key, value in process.items() if key != "num_symbols"}
            process = make_process(own, process["num_symbols"])
        self.config = SamplerOptions(process=process.config(), **values)
        self._split: tuple[Tensor, AdmittedParts] | None = None
        self.adopt(process)
        self.set_timesteps()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write what the sampler was made with to ``scheduler_config.json``, as diffusers' schedulers do."""
        config = {"_class_name": type(self).__name__, **self.config}
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_atomic(Path(folder) / CONFIG_FILE, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """The sampler that was saved in a folder.

        Raises:
            ConfigError: it is another one, or an option that this one does not accept.
        """
        config = json.loads((Path(folder) / CONFIG_FILE).read_text(encoding="utf-8"))
        if config.get("_class_name") != cls.__name__:
            raise ConfigError(f"{folder}/{CONFIG_FILE} holds {config.get('_class_name')}, not {cls.__name__}")
        return cls(**{key: value for key, value in config.items() if not key.startswith("_")})

    @property
    def needs_visible_noise(self) -> bool:
        """Whether it must tell a noised token from a clean one (``Process.noise_is_visible``)."""
        return False

    def adopt(self, process: Process) -> None:
        """Undo the noise of ``process``.

        Raises:
            ConfigError: the sampler cannot work with its noise.
        """
        if self.needs_visible_noise and not process.noise_is_visible:
            raise ConfigError(
                f"{type(self).__name__} with these options needs noise that differs from data, such as a mask, and the "
                f"noise of process {process.kind!r} looks like data; take ancestral, or easy_first with commit=False"
            )
        self.process = process

    def set_timesteps(self, num_steps: int | None = None) -> None:
        """Lay the grid: ``num_steps`` network calls from T to 0, evenly spread and rounded.

        Raises:
            ValueError: not 1..T; None means T.
        """
        last = self.process.num_timesteps
        num = last if num_steps is None else num_steps
        if not 1 <= num <= last:
            raise ValueError(f"num_steps must be 1..{last} (the process's timesteps), got {num_steps}")
        # Integers throughout: points at least one apart stay apart when rounded half up.
        grid = [(2 * last * (num - i) + num) // (2 * num) for i in range(num + 1)]
        self.timesteps = torch.tensor(grid)
        self.num_inference_steps = num

    def parts_of(self, admitted: Admitted) -> Callable[[Logits], TypedLogits]:
        """Splits predictions by what their tokens admit (``AdmittedParts``), which is worked out once for a tensor."""
        if admitted is None or admitted.ndim != 2:
            return TypedLogits.of
        if self._split is None or self._split[0] is not admitted:
            self._split = (admitted, AdmittedParts(admitted))
        return self._split[1]

    def step(
        self,
        logits: Logits,
        t: int,
        s: int,
        xt: Tensor,
        *,
        frozen: Tensor,
        admitted: Admitted = None,
        generator: Generators = None,
    ) -> SamplerOutput:
        """Tokens at time ``s`` from tokens at time ``t``.

        Args:
            logits: The network's prediction of x_0 at (xt, t).
            t: 1..T.
            s: 0..t-1.
            xt: [B, N] int64.
            frozen: [B, N] bool.
            admitted: [N, K] or [B, N, K] bool, the symbols that each token can hold.
            generator: One stream, or one for each row: then a row's result does not depend on the others.

        Raises:
            ValueError: a time out of range, or s not before t.
            RegistryError: ``advance`` broke its contract; the message names the sampler and its package.
        """
        t, s = int(t), int(s)
        if not 0 <= s < t <= self.process.num_timesteps:
            raise ValueError(f"a step goes from t to s with 0 <= s < t <= {self.process.num_timesteps}, got {t} to {s}")
        typed = usable_logits(logits, self.process.num_symbols, admitted)
        clean = self.process.clean_logits(typed, xt, t, admitted=admitted)
        output = self.advance(Step(typed, clean, t, s, xt, frozen, admitted, generator))
        if problem := self._problem(output, s, xt, frozen):
            raise RegistryError(f"{registry.named('samplers', self.entry, self)}: advance {problem}")
        return output

    def _problem(self, output: object, s: int, xt: Tensor, frozen: Tensor) -> str | None:
        """What is wrong with the output of ``advance``; None where nothing is."""
        if not isinstance(output, SamplerOutput):
            return f"gave a {type(output).__name__}, not a SamplerOutput"
        for name in ("prev_sample", "sampled"):
            tokens = vars(output)[name]
            if not isinstance(tokens, Tensor) or (tokens.shape, tokens.dtype) != (xt.shape, torch.int64):
                got = f"{tokens.dtype} {list(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
                return f"gave {name} as {got}, not as torch.int64 {list(xt.shape)}"
        if s == 0 and self.process.noise_is_visible and (self.process.undecided(output.prev_sample) & ~frozen).any():
            return "left noise at time 0"
        return None

    def blocks_at(self, t: int) -> tuple[int, int]:
        """First and last block that the call at time t decides; only asked of a sampler with ``orders_blocks``."""
        raise NotImplementedError(f"{type(self).__name__} orders no blocks")

    @abstractmethod
    def advance(self, step: Step) -> SamplerOutput:
        """Tokens at time ``step.s``: the frozen ones as they were, and at time 0 none that is noise."""


def sampler_class(name: str) -> type[Sampler]:
    """The class of a sampler's name.

    Raises:
        ConfigError: no such sampler; the message names the near one, and all.
        RegistryError: it cannot be imported, or is not a ``Sampler``; the message names its package.
    """
    known = registry.available("samplers")
    if name not in known:
        hint = did_you_mean(name, known)
        raise ConfigError(f"sampler {name!r} does not exist.{hint} There are: {', '.join(known)}")
    found: type[Sampler] = registry.load("samplers", name)
    return found


def make_sampler(
    name: str, process: Process, last: Sequence[int] = (), blocks: Sequence[int] = (), **options: Any
) -> Sampler:
    """A sampler by its entry-point name in group ``genpolicy.samplers``, its grid laid with T steps.

    The other arguments are those of ``Sampler``.

    Raises:
        ConfigError: no such sampler or option (with the near one), an option out of range, or a process that the
            sampler cannot work with.
        RegistryError: the sampler cannot be imported or made, or is not a ``Sampler``.
    """
    found = sampler_class(name)
    with registry.making("samplers", name, ConfigError):
        made = found(process, last, blocks, **read_options(f"sampler {name!r}", options, found.options))
        made.entry = name
    return made


@dataclass(frozen=True)
class SampledStep:
    """One network call and what a sampler made of it."""

    t: int
    s: int
    """The earlier time that it leads to."""
    before: Tensor
    """[B, N] int64 tokens at t."""
    prediction: TypedLogits
    """What the network predicted."""
    logits: TypedLogits
    """The same as the sampler saw it, changed by ``change``."""
    output: SamplerOutput


@torch.no_grad()
def sample_steps(
    model: Denoiser,
    process: Process,
    sampler: Sampler,
    xT: Tensor,
    frozen: Tensor,
    *,
    admitted: Admitted = None,
    generator: Generators = None,
    num_steps: int | None = None,
    change: Callable[[TypedLogits], TypedLogits] = lambda logits: logits,
) -> Iterator[SampledStep]:
    """One network call and one sampler step from each time of the grid to the next; the last one is clean.

    Args:
        model: Predicts x_0.
        process: As the sampler's.
        sampler: From ``make_sampler``.
        xT: [B, N] frozen tokens and pure noise (``process.prior_sample``).
        frozen: [B, N] bool.
        admitted: [N, K] or [B, N, K] bool.
        generator: One stream, or one for each row.
        num_steps: Network calls, 1..T; None means T.
        change: Changes every prediction before the sampler gets it.

    Raises:
        ValueError: ``num_steps`` out of range, or a process other than the sampler's.
    """
    if (process.kind, process.num_symbols, process.num_timesteps) != (
        sampler.process.kind,
        sampler.process.num_symbols,
        sampler.process.num_timesteps,
    ):
        raise ValueError(f"the sampler was made for {sampler.process.config()}, not for {process.config()}")
    sampler.set_timesteps(num_steps)
    parts = sampler.parts_of(admitted)
    xt = xT
    grid = sampler.timesteps.tolist()
    for t, s in itertools.pairwise(grid):
        times = torch.full((xt.shape[0],), t, device=xt.device)
        prediction = usable_logits(model(xt, times), process.num_symbols, None)
        logits = change(prediction)
        out = sampler.step(parts(logits), t, s, xt, frozen=frozen, admitted=admitted, generator=generator)
        yield SampledStep(t, s, xt, prediction, logits, out)
        xt = out.prev_sample


def sample(model: Denoiser, process: Process, sampler: Sampler, xT: Tensor, frozen: Tensor, **options: Any) -> Tensor:
    """Clean tokens [B, N] from noise; arguments and errors are those of ``sample_steps``, which gives every step."""
    for step in sample_steps(model, process, sampler, xT, frozen, **options):
        xT = step.output.prev_sample
    return xT
