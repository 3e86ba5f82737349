"""What a loop of self-play is: its players, its learners, its generations."""

from __future__ import annotations

import argparse
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from genpolicy.config import Settings
from genpolicy.errors import ConfigError
from genpolicy_arena.sprt import SprtConfig
from genpolicy_labelling import arguments

_SPECIAL = re.compile(r"[?&,%=:\[\]{}\s]")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
RESERVED = ("games", "again", "gate")
_READERS: Mapping[str, Callable[[str], Any]] = {
    "temperature": arguments.temperature,
    "random_plies": arguments.plies,
    "error_rate": arguments.rates,
    "split": arguments.fractions,
}
"""What reads the settings that are handed to ``genpolicy data selfplay``."""


@dataclass
class GateConfig:
    """A test that a new policy has to pass before it plays."""

    rounds: int = 100
    """Most openings, each played with both colours."""
    elo0: float = 0.0
    """Elo difference of the hypothesis by which the new policy is rejected."""
    elo1: float = 30.0
    """Elo difference of the one by which it is accepted."""
    random_plies: int = 2
    """Random moves before each game."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.random_plies < 0:
            raise ValueError(
                f"gate.rounds must be at least 1 and gate.random_plies 0, got {self.rounds} and {self.random_plies}"
            )
        try:
            SprtConfig(self.elo0, self.elo1)
        except ValueError as error:
            raise ValueError(str(error).replace("sprt:", "gate:", 1)) from None


@dataclass
class LoopConfig:
    """A loop of self-play."""

    game: str = ""
    """Specification of the game."""
    out: str = ""
    """Folder of the loop."""
    learners: dict[str, Any] = field(default_factory=dict)
    """Name -> the configuration that ``genpolicy train`` takes: a file, the name of a shipped one, or the settings
    themselves, over those of a ``base`` if they name one. Each is trained in every generation on the same records."""
    search: str = ""
    """Spelling of the policy that plays; ``{NAME}`` stands for the folder of a learner's policy."""
    start: str = "mcts:rollout?simulations=16"
    """Spelling of the policy that plays the first generation, without weights."""
    imagine: str = ""
    """Spelling of the policy that takes over in the second phase, such as ``{NAME}``; empty where there is none."""
    alpha: list[float] = field(default_factory=list)
    """Share of the positions that ``imagine`` decides, generation by generation, in [0, 1]; the last one stays."""
    generations: int = 8
    """May be raised later."""
    games: int = 2000
    """Games of a generation."""
    window: int = 4
    """Generations whose records are trained on, the newest included."""
    reanalyse: float = 0.25
    """Part of the older records in the window that the newest policy labels anew, in [0, 1]."""
    temperature: str = "1:6"
    """``T:PLIES`` of ``genpolicy data selfplay``."""
    random_plies: str = "0:1"
    """``LOW:HIGH`` random moves that begin a game."""
    error_rate: str = "0"
    """``LOW:HIGH``, the part of random moves in a game."""
    max_plies: int = 200
    horizon: int = 4
    """Moves in a label's line."""
    split: str = "0.95/0.05/0"
    """Parts of the games that are trained on, validated on and tested on."""
    together: int = 64
    """Positions that the playing policy is asked about in one call."""
    gate: GateConfig | None = None
    """None accepts every policy."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("game", "out", "search", "learners"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing: a loop needs game, out, learners and search")
        if found := _SPECIAL.search(self.out):
            raise ValueError(
                f"out must be a path without {found.group()!r}, which has a meaning in a policy's spelling; got "
                f"{self.out!r}"
            )
        for name in ("generations", "games", "window", "max_plies", "horizon", "together"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name, read in _READERS.items():
            text = getattr(self, name)
            try:
                read(text)
            except argparse.ArgumentTypeError as error:
                raise ValueError(f"{name}: {error}") from None
        if float(self.split.partition("/")[0]) == 0:
            raise ValueError(f"split: no game would be trained on; got {self.split!r}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        if not 0 <= self.reanalyse <= 1:
            raise ValueError(f"reanalyse lies in [0, 1], got {self.reanalyse}")
        for name in self.learners:
            if not _NAME.fullmatch(name) or name in RESERVED or name.startswith("again-"):
                raise ValueError(
                    f"learners: {name!r} must be lower-case letters, digits, - and _, and none of "
                    f"{', '.join(RESERVED)} and again-..., which are other stages"
                )
        if "{" in self.start:
            raise ValueError(
                f"start: {self.start!r}: plays the first generation, before a learner has weights; write a policy "
                "without {NAME}, such as mcts:rollout?simulations=16"
            )
        for key in ("search", "imagine"):
            _check_names(key, getattr(self, key), self.learners)
        if bool(self.alpha) != bool(self.imagine):
            raise ValueError("a second phase needs both imagine and alpha; give both, or neither")
        if not all(0 <= share <= 1 for share in self.alpha):
            raise ValueError(f"alpha: every share lies in [0, 1], got {self.alpha}")


def _check_names(key: str, spelling: str, learners: dict[str, Any]) -> None:
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(spelling) if name is not None]
    except ValueError as error:
        raise ValueError(f"{key}: {spelling!r}: {error}; write {{NAME}} for a learner's folder") from None
    for name in names:
        if name not in learners:
            raise ValueError(f"{key}: {{{name}}} is not a learner; there are: {', '.join(learners)}")
    if spelling and not names:
        raise ValueError(f"{key}: {spelling!r} names no learner, so nothing would be learned; write {{NAME}} in it")


def training_settings(name: str, given: Any) -> dict[str, Any]:
    """The settings that a learner is trained with.

    Args:
        name: Of the learner.
        given: Its configuration, as ``LoopConfig.learners`` has it.

    Raises:
        ConfigError: it is neither a text nor settings, or a file that it names cannot be read.
    """
    if not isinstance(given, str | dict):
        raise ConfigError(f"learners.{name} must be a configuration's file or its settings, got {given!r}")
    settings = {"base": given} if isinstance(given, str) else dict(given)
    base = settings.pop("base", [])
    files = [base] if isinstance(base, str) else base
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise ConfigError(f"learners.{name}.base is a path or a list of paths, got {base!r}")
    merged = OmegaConf.merge(Settings(files).data, settings)
    return cast(dict[str, Any], OmegaConf.to_container(merged))


def named_by_arguments(file: str | Path, overrides: Sequence[str]) -> Settings:
    """The settings of a loop's file and arguments; an argument below a learner's name changes what that one names.

    ``learners.policy.trainer.max_steps=9`` where the file says ``policy: connect/policy-value-3x3`` is
    ``policy: {base: connect/policy-value-3x3, trainer: {max_steps: 9}}``.

    Raises:
        ConfigError: as ``Settings``.
    """
    named: dict[str, Any] = {}
    for number in range(len(overrides) + 1):  # each may name another configuration, or none
        settings = Settings([file], overrides[:number])
        given = settings.data.get("learners")
        learners = given if isinstance(given, dict) else {}
        named = {name: named.get(name) if isinstance(said, dict) else said for name, said in learners.items()}
    for name, said in learners.items():
        if isinstance(said, dict) and isinstance(named[name], str):
            said.setdefault("base", named[name])
    return settings
