"""Policy: what chooses moves. Decision: what it chose and why. Saving and loading.

A saved policy is a folder of ``config.yaml`` (with ``policy:``, its entry-point name, and ``format:``, this layout's
version), ``model.safetensors`` where it has weights, and ``provenance.json``. No pickle is ever read.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from genpolicy.config import read_yaml
from genpolicy.errors import CheckpointError, RegistryError
from genpolicy.game import Game
from genpolicy.registry import spelled_pairs

if TYPE_CHECKING:
    from genpolicy.policies.dream import Dream, OnStep
    from genpolicy.policies.learner import Learner

FORMAT_VERSION = 1
"""Raised when a folder written by this code could not be read by older code."""


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
    that one was illegal). Nothing makes them legal; -1 where the policy imagined no move there (the game's end)."""
    states: tuple[str | None, ...] = ()
    """Text of each imagined state, ``states[i]`` after ``line[i]``; None where the tokens stand for no position."""
    stats: Mapping[str, float] = field(default_factory=dict)
    """Numbers for people: ``network_calls``, ``raw_legal`` (1 when the move was legal before the mask), ..."""


def likeliest_first(policy: Mapping[int, float] | None) -> dict[int, float]:
    """A distribution over moves in the order of probability, equal ones by their ids; {} for None."""
    return dict(sorted((policy or {}).items(), key=lambda item: (-item[1], item[0])))


class Policy(ABC):
    """Chooses moves for batches of positions."""

    kind: ClassVar[str]
    """Entry-point name in group ``genpolicy.policies``."""
    spelling: ClassVar[str] = "FOLDER[?key=value&...]"
    """How a command line writes it; for ``genpolicy policies``."""
    game: Game[Any]
    learner: Learner | None = None
    """The learner whose weights it plays with; None where it has none."""

    @abstractmethod
    def decide(self, states: Sequence[Any]) -> list[Decision]:
        """One decision for each position, each independent of the others in the batch.

        Raises:
            ValueError: a position in which the player to move has no legal move.
        """

    def dream(self, state: Any, on_step: OnStep | None = None) -> Dream:
        """A decision with what was imagined on the way: the one that ``decide([state])`` gives for the same seed.

        Args:
            state: A position in which the player to move has a legal move.
            on_step: Called with each step as soon as it is ready; an exception of it ends the dream.

        Raises:
            ValueError: as ``decide``.
        """
        from genpolicy.policies.dream import Dream

        del on_step  # a policy that imagines by steps has its own
        return Dream(state, self.game.player(state), None, (), self.decide([state])[0])

    def seed(self, seed: int) -> None:
        """Make the draws that follow the same as those after any other call with this seed."""
        del seed

    def close(self) -> None:
        """End processes and free memory; safe to call twice."""

    def modes(self) -> dict[str, Policy]:
        """The ways of playing that a table compares, by name, over the same weights: a policy by itself is one."""
        return {"": self}

    def unmasked(self) -> Policy | None:
        """The same policy without its legal mask: ``Decision.line[0]`` is then its raw first action.

        None where there is no mask to take off.
        """
        return None

    @property
    def mask_only_filters(self) -> bool:
        """Whether the move of ``unmasked()`` is the masked one, so that one run measures both.

        So it is for the likeliest move of one call; where a sampler goes on from the first action it is not.
        """
        return False

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """What ``load_policy`` may be told besides ``device`` and ``game``, and ``with_options`` changes."""
        return ()

    @classmethod
    def option_choices(cls) -> dict[str, tuple[str, ...]]:
        """The names that an option may take, of those that are a choice among names; a GUI offers them."""
        return {}

    def with_options(self, **changed: Any) -> Policy:
        """The same policy (weights shared) with other options.

        Raises:
            ValueError: an option that it does not take.
        """
        if changed:
            raise ValueError(f"policy {self.kind!r} takes no option {next(iter(changed))!r} once it is made")
        return self

    @property
    def label(self) -> str:
        """A short name for tables."""
        return self.kind

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the policy to a folder that ``genpolicy.load_policy`` reads.

        Raises:
            ValueError: a policy that has no folder (random, engine, ...): its spelling is all there is.
        """
        raise ValueError(f"policy {self.kind!r} has no folder; write its spelling instead, e.g. --policy {self.kind}")

    @classmethod
    def from_folder(cls, folder: Path, config: dict[str, Any], **options: Any) -> Policy:
        """The policy of a folder whose ``config.yaml`` was read already.

        Raises:
            CheckpointError: damaged, of another game or tokenizer, or newer than this code.
        """
        raise CheckpointError(f"{folder}: policy {cls.kind!r} cannot be loaded from a folder")

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> Policy:
        """The policy of a spelling ``kind[:argument][?key=value&...]``; ``options`` may hold ``game``, ``device``.

        Raises:
            ValueError: an option that the policy does not take.
        """
        raise RegistryError(f"policy {cls.kind!r} is loaded from a folder: write the folder's path")


def load_policy(spec: str | Path, **options: Any) -> Policy:
    """The policy of a folder or of a spelling ``kind[:argument][?key=value&...]``.

    Args:
        spec: A folder with a ``config.yaml``, or a spelling.
        options: ``device`` ("cpu", "cuda", ...), ``seed``, ``game`` (a Game or its specification, for policies that
            have no folder), and what the policy takes itself (``num_steps``, ``sampler``, ...).

    Raises:
        RegistryError: neither a policy's folder nor a spelling of an installed policy.
        CheckpointError: a damaged folder, or one of newer code.
    """
    from genpolicy import registry

    head, _, query = str(spec).partition("?")
    if not head:
        raise RegistryError("the policy is empty: name its folder, or write a spelling such as random")
    path = Path(head)
    typed = {**spelled_options(query), **options}
    if (path / "config.yaml").is_file():
        config = read_policy_config(path)
        policy_class = registry.load("policies", config["policy"])
        loaded: Policy = policy_class.from_folder(path, config, **_as_declared(policy_class, typed))
        return loaded
    if path.is_dir():
        raise CheckpointError(
            f"{path}: holds no config.yaml, so it is no policy's folder (genpolicy train prints the right one)"
        )
    kind, _, argument = head.partition(":")
    if kind not in registry.available("policies") and ("/" in head or path.suffix):
        raise RegistryError(f"{head}: no such folder")
    policy_class = registry.load("policies", kind)
    made: Policy = policy_class.from_spec(argument, _as_declared(policy_class, typed))
    return made


def _as_declared(policy_class: type[Policy], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a policy's constructor declares them, where it declares numbers or truth values.

    Raises:
        ValueError: one is none.
    """
    declared: dict[str, Any] = {}
    for each in reversed(policy_class.__mro__):  # a subclass hands on what it does not declare itself
        if made := vars(each).get("__init__"):
            declared |= {p.name: p.annotation for p in inspect.signature(made).parameters.values()}
    read: dict[str, Any] = {}
    for name, value in options.items():
        kinds = {part.strip() for part in str(declared.get(name, "")).split("|")}
        told = f"policy {policy_class.kind!r}: option {name}"
        if value is None or "str" in kinds:
            read[name] = value
        elif "bool" in kinds:
            read[name] = as_bool(value, told)
        elif "float" in kinds and isinstance(value, (str, bool)):
            raise ValueError(f"{told} is a number, got {value!r}")
        elif "int" in kinds and "float" not in kinds:
            read[name] = as_whole(value, told)
        else:
            read[name] = value
    return read


def as_bool(value: Any, name: str) -> bool:
    """The truth value of an option: a bool, 0 or 1, or true, false, yes, no, on, off.

    Raises:
        ValueError: something else; the message begins with ``name``.
    """
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError(f"{name} must be true or false (or yes, no, on, off, 1, 0), got {value!r}")


def as_whole(value: Any, name: str) -> int:
    """The whole number of an option; 20.0 is one, too.

    Raises:
        ValueError: something else; the message begins with ``name``.
    """
    is_whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole:
        raise ValueError(f"{name} is a whole number, got {value!r}")
    return int(value)


def read_policy_config(folder: Path) -> dict[str, Any]:
    """The ``config.yaml`` of a policy's folder, its format checked.

    Raises:
        CheckpointError: unreadable, no ``policy`` key, or written by newer code.
    """
    try:
        config = read_yaml(folder / "config.yaml")
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(config.get("policy"), str) or not isinstance(config.get("format"), int):
        raise CheckpointError(f"{folder}/config.yaml: no 'policy' and 'format' in it, so it is no policy's folder")
    if config["format"] > FORMAT_VERSION:
        raise CheckpointError(
            f"{folder}: written in format {config['format']}, this code reads up to {FORMAT_VERSION}: upgrade genpolicy"
        )
    return config


def write_provenance(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``provenance.json``: where weights come from (data checksums, records seen, versions, commit)."""
    (folder / "provenance.json").write_text(json.dumps(dict(facts), indent=2, sort_keys=True, default=str) + "\n")


def resolve_game(game: Game[Any] | str | None, spelling: str) -> Game[Any]:
    """The game that a policy without a folder plays.

    Raises:
        ValueError: none was given.
    """
    from genpolicy.registry import load_game

    if game is None:
        raise ValueError(f"policy {spelling!r} plays any game: say which (--game chess, or game=...)")
    return load_game(game) if isinstance(game, str) else game


def legal_probabilities(legal: NDArray[np.int64], scores: NDArray[np.floating[Any]]) -> dict[int, float]:
    """Softmax of ``scores`` (log-probabilities of the legal moves, in their order) as move id -> probability."""
    weights = np.exp(scores.astype(np.float64) - np.max(scores))
    weights /= weights.sum()
    return {int(move): float(weight) for move, weight in zip(legal, weights, strict=True)}


def spelled_options(query: str) -> dict[str, Any]:
    """Options of ``key=value&...``, numbers and booleans as such."""
    return {key: _plain(value) for key, value in spelled_pairs(query)}


def _plain(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
