"""Policy: what chooses moves (a ``Decision``). Saving and loading.

A saved policy is a folder of ``config.yaml`` (with ``policy:``, its entry-point name, and ``format:``, this layout's
version), ``model.safetensors`` where it has weights, and ``provenance.json``. No pickle is ever read.
"""

from __future__ import annotations

import inspect
import json
import os
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from genpolicy import registry
from genpolicy.config import read_yaml
from genpolicy.control import FREE, Control
from genpolicy.errors import CheckpointError, RegistryError, did_you_mean
from genpolicy.files import write_durably
from genpolicy.game import Game
from genpolicy.options import Declaration, Option, PolicySpec, options_of, read_options
from genpolicy.policies.decision import Decision as Decision
from genpolicy.policies.decision import Variation as Variation
from genpolicy.policies.decision import likeliest_first as likeliest_first
from genpolicy.policies.decision import require_decisions
from genpolicy.registry import spelled_pairs
from genpolicy.shipped import policy_folder, shipped_policies

if TYPE_CHECKING:
    from genpolicy.policies.dream import Dream, OnStep
    from genpolicy.policies.learner import Learner
    from genpolicy.policies.thinking import Thinker
    from genpolicy.search.model import Comparator, SearchModel

GENERAL_OPTIONS = ("device", "game")
"""What ``load_policy`` accepts for every policy besides its own options."""
FORMAT_VERSION = 1
"""Increased whenever older code could not read the folders that this code writes."""


class Policy(ABC):
    """Chooses moves for batches of positions."""

    kind: ClassVar[str]
    """Entry-point name in group ``genpolicy.policies``."""
    spelling: ClassVar[str] = "FOLDER[?key=value&...]"
    """How a command line writes it; for ``genpolicy policies``."""
    is_prior: ClassVar[bool] = True
    """Whether decisions give probabilities of the legal moves, so that a tree search can be laid over the policy."""
    dreams: ClassVar[bool] = False
    """Whether ``dream`` has steps to show."""
    starts_cold: ClassVar[bool] = True
    """Whether the first decision takes longer than the later ones, so that a server makes one before it serves."""
    takes_others: ClassVar[bool] = False
    """Whether it accepts options that it does not declare, such as those of the engine that it starts."""
    declaration: ClassVar[Declaration] = Declaration(lambda spec: ())
    """What ``options`` gives. A class whose module imports torch has it in another module, where an entry
    ``policies.KIND`` of group ``genpolicy.options`` names it, too."""
    game: Game[Any]
    learner: Learner | None = None
    """The learner whose weights it plays with; None where it has none."""
    batch_size: int | None = None
    """Most positions in one network call; None where they are not cut into batches."""

    @property
    def positions_a_call(self) -> int | None:
        """Most positions in one network call on the policy's device; None where they are not cut into batches."""
        return self.batch_size

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label!r} for {self.game.spec}>"

    @property
    def about(self) -> str:
        """What it does, in a sentence for people; by default the first line of its class's documentation."""
        return next(iter((self.__doc__ or "").strip().splitlines()), "").replace("``", "")

    @abstractmethod
    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """One decision for each position, each independent of the others in the batch.

        Args:
            states: Positions in which the player to move has a legal move.
            control: May end the work early and restricts the moves to choose from. Callers of third-party policies use
                ``decide_with``, which also works where ``decide`` lacks this argument.

        Raises:
            ValueError: a position in which the player to move has no legal move, or none that is allowed.
        """

    def dream(self, state: Any, on_step: OnStep | None = None, *, control: Control = FREE) -> Dream:
        """The decision that ``decide([state])`` gives for the same seed, with the steps that led to it.

        Args:
            state: A position in which the player to move has a legal move.
            on_step: Called with each step as soon as it is ready; an exception that it raises ends the dream.
            control: As in ``decide``.

        Raises:
            ValueError: as ``decide``.
        """
        from genpolicy.policies.dream import Dream

        return Dream(state, self.game.player(state), None, (), decide_with(self, [state], control)[0])

    @property
    def imagines(self) -> bool:
        """Whether the states of its decisions are its own guesses; False if they come from the rules."""
        return True

    def thinker(self) -> Thinker | None:
        """Improves an answer for as long as it is given; None for a policy that decides in one go."""
        return None

    @property
    def num_calls(self) -> int:
        """Network calls of one decision; 1 where it makes none, or a number that depends on the position."""
        return 1

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        """The same policy (weights shared), as near as it comes to an effort; itself where that changes nothing.

        Args:
            calls: Network calls of a decision; 1 asks for the quickest way of playing, None for no change.
            plies: Plies imagined; None for no change.
        """
        return self

    def evaluate(self, states: Sequence[Any], *, control: Control = FREE) -> tuple[list[float], int] | None:
        """Values of positions as ``Decision.value``, and how many network calls they took, where that costs less than
        deciding; None where a search has to take the decisions' own."""
        return None

    def seed(self, seed: int) -> None:
        """Make the draws that follow the same as those after any other call with this seed."""

    def close(self) -> None:
        """End processes and free memory; safe to call twice."""

    def modes(self) -> dict[str, Policy]:
        """The ways of playing that a table compares, by name, over the same weights; by default the policy alone."""
        return {"": self}

    def search_model(self, name: str | None = None) -> SearchModel | None:
        """What a tree search over the policy expands.

        Args:
            name: One of several models that it may have; None asks for its own choice.

        Returns:
            None where the game's rules are searched, judged by the policy's decisions, or where it has no such model.
        """
        return None

    def comparator(self) -> Comparator | None:
        """Tells which of two positions is better, for alpha-beta; None for a policy that cannot."""
        return None

    def unmasked(self) -> Policy | None:
        """The policy without its legal mask (``Decision.line[0]`` is its raw first action); None where it has none."""
        return None

    @property
    def mask_only_filters(self) -> bool:
        """Whether the move of ``unmasked()`` is the masked one, so that one run measures both.

        This holds for the likeliest move of one call, but not where a sampler continues from the first action.
        """
        return False

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """The options that ``load_policy`` accepts besides ``device`` and ``game``, and ``with_options`` changes.

        Args:
            spec: One particular policy, whose folder or spelling may narrow ranges and change defaults; None for the
                class.
        """
        return cls.declaration.options(spec)

    @classmethod
    def untrained(cls, game: Game[Any]) -> tuple[str, ...]:
        """Spellings that play a game without training, offered by a page that was started without a policy.

        Args:
            game: Where it lacks what a spelling needs, that one is left out.
        """
        return ()

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """The names of the options that ``with_options`` changes."""
        return tuple(option.name for option in cls.options() if not option.fixed)

    def with_options(self, **changed: Any) -> Policy:
        """The same policy (weights shared) with other options.

        Raises:
            ValueError: an option that it does not take.
        """
        if changed:
            raise ValueError(f"policy {self.kind!r} takes no option {next(iter(changed))!r} once it is made")
        return self

    @classmethod
    def read_changes(cls, changed: Mapping[str, Any]) -> dict[str, Any]:
        """What ``with_options`` was given, as the options' types.

        Raises:
            ValueError: an option that it does not take or that is fixed, or a value that one does not accept.
        """
        return read_options(f"policy {cls.kind!r}", changed, [each for each in cls.options() if not each.fixed])

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


def legal_of(game: Game[Any], states: Sequence[Any], control: Control = FREE) -> list[list[int]]:
    """The moves to choose from in each position as plain integers: the legal ones that are allowed.

    Raises:
        ValueError: a position without legal moves, named in the message, or without an allowed one.
    """
    rows = []
    for state in states:
        legal = [int(move) for move in game.legal(state)]
        if not legal:
            raise ValueError(f"the game is over in {game.format(state)!r}: the player to move has no legal move")
        rows.append(control.allowed(state, legal))
    return rows


def decide_with(policy: Policy, states: Sequence[Any], control: Control) -> list[Decision]:
    """``policy.decide(states, control=control)``, also where the policy's ``decide`` takes no ``control``.

    Such a policy is stopped before and after its decisions only, and where it chooses a move that is not allowed, the
    best allowed one is taken (see ``best_allowed``).

    Raises:
        RegistryError: the policy gives something else than one decision for each position.
        ValueError: as ``Policy.decide``.
    """
    if _takes_control(type(policy)):
        return require_decisions(policy, states, policy.decide(states, control=control))
    control.check()
    decisions = require_decisions(policy, states, policy.decide(states))
    control.check()
    return [best_allowed(policy, *pair, control) for pair in zip(states, decisions, strict=True)]


@lru_cache(maxsize=256)
def _takes_control(policy_class: type[Policy]) -> bool:
    parameters = inspect.signature(policy_class.decide).parameters.values()
    return any(parameter.name == "control" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def best_allowed(policy: Policy, state: Any, decision: Decision, control: Control) -> Decision:
    """A decision that was made among all legal moves, or another one where its move is not allowed.

    The other move is the likeliest allowed one. If the decision gives the allowed moves no probability, it is the move
    after which the position is worth least to the other side: its result, or the policy's own value of it (0 where it
    has none).
    """
    if control.restrict is None:
        return decision
    game = policy.game
    allowed = control.allowed(state, game.legal(state).tolist())
    if decision.move in allowed:
        return decision
    # How far a mate or the end is belongs to the move that is not played.
    stats = {name: number for name, number in decision.stats.items() if name not in ("mate_plies", "plies_left")}
    chances = {move: (decision.policy or {}).get(move, 0.0) for move in allowed}
    if (total := sum(chances.values())) > 0:
        chances = {move: chance / total for move, chance in chances.items()}
        best = max(allowed, key=lambda move: chances[move])
        return Decision(best, policy=chances, stats=stats, names=decision.names)
    worth: dict[int, float] = {}
    for move in allowed:
        after = game.play(state, move)
        result = game.outcome(after)
        if result is None:
            result = decide_with(policy, [after], Control(control.check))[0].value
        worth[move] = 0.0 if result is None else result * (1 if game.player(after) == game.player(state) else -1)
    best = max(allowed, key=lambda move: worth[move])
    return Decision(best, value=worth[best], line=(best,), stats=stats, names=decision.names)


def load_policy(spec: str | Path, *, defaults: Mapping[str, Any] | None = None, **options: Any) -> Policy:
    """The policy of a folder or of a spelling ``kind[:argument][?key=value&...]``.

    Args:
        spec: A folder with a ``config.yaml``, the name of a shipped policy such as ``chess``, or a spelling.
        defaults: Settings such as a program's ``--device``; a spelling's own override them, ``options`` both.
        options: ``device`` ("cpu", "cuda", ...), ``seed``, ``game`` (a Game or its specification, for policies that
            have no folder), and the policy's own (``Policy.options``).

    Raises:
        RegistryError: neither a policy's folder nor a spelling of an installed policy.
        CheckpointError: a damaged folder, one of newer code, or a policy of another game than ``game``.
        ValueError: an option that the policy does not take, or a value that the option does not accept.
    """
    written = spelled_options(str(spec).partition("?")[2]) if defaults else {}
    read = policy_spec(spec, **{key: each for key, each in (defaults or {}).items() if key not in written}, **options)
    own = {key: value for key, value in read.settings.items() if key not in GENERAL_OPTIONS}
    general = {key: value for key, value in read.settings.items() if key in GENERAL_OPTIONS}
    policy_class = registry.load("policies", read.kind)
    # The policy itself refuses values outside the ranges that a spec narrows; a spec may also add options.
    by_name = {each.name: each for spec in (read, None) for each in options_of("policies", read.kind, spec)}
    seed = None if "seed" in by_name else own.pop("seed", None)
    own = read_options(f"policy {read.kind!r}", own, by_name.values(), others=policy_class.takes_others)
    if read.config is not None:
        made = policy_class.from_folder(Path(read.argument), dict(read.config), **general, **own)
    else:
        made = policy_class.from_spec(read.argument, {**general, **own})
    if not isinstance(made, Policy):
        raise registry.wrong_thing("policies", read.kind, made, "a Policy")
    if (wanted := general.get("game")) is not None:
        game = registry.load_game(wanted) if isinstance(wanted, str) else wanted
        if made.game.spec != game.spec:
            made.close()
            raise CheckpointError(f"{spec}: this policy plays {made.game.spec!r}, not {game.spec!r}")
    if seed is not None:
        made.seed(int(seed))
    return made


def policy_spec(text: str | Path, game: Game[Any] | str | None = None, **options: Any) -> PolicySpec:
    """What can be known of a policy before it is loaded; torch is not imported.

    Args:
        text: As for ``load_policy``.
        game: The game or its specification, where the user named one.
        options: More settings; they win over those of the text.

    Raises:
        RegistryError: neither a policy's folder nor a spelling of an installed policy.
        CheckpointError: a damaged folder, or one of newer code.
    """
    head, _, query = str(text).partition("?")
    if not head:
        raise RegistryError("the policy is empty: name its folder, or write a spelling such as random")
    settings = {**spelled_options(query), **options, **({} if game is None else {"game": game})}
    path = Path(head)
    if (folder := policy_folder(head)) is not None:
        config = read_policy_config(folder)
        return PolicySpec(config["policy"], str(text), str(folder), settings, config, config.get("game"))
    if os.path.isdir(path):  # unlike Path.is_dir, it says no of a name that is too long to be one
        raise CheckpointError(f"{path}: holds no config.yaml: not a policy's folder (genpolicy train prints one)")
    kind, _, argument = head.partition(":")
    if kind not in registry.available("policies"):
        if "/" in head or path.suffix:
            raise RegistryError(f"{head}: no such folder")
        kinds, shipped = registry.available("policies"), shipped_policies()
        raise RegistryError(
            f"no policy {head!r}.{did_you_mean(kind, (*shipped, *kinds))} Name a folder, a shipped policy "
            f"({', '.join(shipped)}) or a spelling by one of: {', '.join(kinds)}"
        )
    named = [argument, *(each for key, each in settings.items() if key != "game" and isinstance(each, str))]
    folders = [each for each in named if policy_folder(each.partition("?")[0]) is not None]
    inside = tuple(policy_spec(each) for each in dict.fromkeys(folders))
    known = settings.get("game") or next((each.game for each in inside), None)
    known = known if known is None or isinstance(known, str) else known.spec
    return PolicySpec(kind, str(text), argument, settings, None, known, inside)


def read_policy_config(folder: Path) -> dict[str, Any]:
    """The ``config.yaml`` of a policy's folder, its format checked.

    Raises:
        CheckpointError: unreadable, no ``policy`` key, or written by newer code; or a file of the folder is a link that
            leads out of it, to what its sender may not have.
    """
    inside = os.path.realpath(folder)
    for path in folder.iterdir():
        if path.is_symlink() and Path(inside) not in Path(target := os.path.realpath(path)).parents:
            raise CheckpointError(f"{path}: is a link out of the folder, to {target}; put the file itself there")
    try:
        config = read_yaml(folder / "config.yaml")
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(config.get("policy"), str) or not isinstance(config.get("format"), int):
        raise CheckpointError(f"{folder}/config.yaml: no 'policy' and 'format' in it, so it is not a policy's folder")
    if not isinstance(game := config.get("game"), str | None):
        raise CheckpointError(f"{folder}/config.yaml: game must be a text, got {reprlib.repr(game)}")
    if config["format"] > FORMAT_VERSION:
        raise CheckpointError(
            f"{folder}: written in format {config['format']}, this code reads up to {FORMAT_VERSION}: upgrade genpolicy"
        )
    return config


def write_provenance(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``provenance.json``: where weights come from (data checksums, records seen, versions, commit)."""
    text = json.dumps(dict(facts), indent=2, sort_keys=True, default=str) + "\n"
    write_durably(folder / "provenance.json", text.encode())


def resolve_game(game: Game[Any] | str | None, spelling: str) -> Game[Any]:
    """The game that a policy without a folder plays.

    Raises:
        ValueError: none was given.
    """
    if game is None:
        raise ValueError(f"policy {spelling!r} works for any game: name one (--game NAME, or game=...)")
    return registry.load_game(game) if isinstance(game, str) else game


def legal_probabilities(legal: NDArray[np.int64], scores: NDArray[np.floating[Any]]) -> dict[int, float]:
    """Softmax of ``scores`` (log-probabilities of the legal moves, in their order) as move id -> probability.

    Raises:
        ValueError: the highest score is not a finite number.
    """
    highest = np.max(scores)
    if not np.isfinite(highest):
        raise ValueError(f"the policy cannot decide: a move's score is not a number ({highest}); it has diverged")
    weights = np.exp(scores.astype(np.float64) - highest)
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
        with suppress(ValueError):
            return kind(text)
    return text
