"""A policy over a learner's weights, whatever it does with them: options, batches, saving, loading.

Axes: B batch.
"""

from __future__ import annotations

import hashlib
import json
import platform
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

import genpolicy
from genpolicy import registry
from genpolicy.config import structured, to_dict, to_yaml, with_unsaid
from genpolicy.control import FREE, Control
from genpolicy.errors import CheckpointError
from genpolicy.files import write_atomic
from genpolicy.policies import declared
from genpolicy.policies.base import FORMAT_VERSION, Decision, Policy, legal_of, write_provenance
from genpolicy.policies.seeds import RowSeeds
from genpolicy.policies.weights import (
    CPU_ROWS,
    bounded_by,
    check_between,
    find_device,
    load_weights,
    read_provenance,
    weights_of,
)

if TYPE_CHECKING:
    from genpolicy.policies.learner import Learner


class WeightsPolicy(Policy):
    """A policy over a learner's weights.

    Args:
        learner: Holds the weights, shared and not copied.
        seed: Same seed, same game (see ``genpolicy.policies.seeds``).
        batch_size: Most positions in one network call.
    """

    declaration = declared.WEIGHTS
    learner_class: ClassVar[type[Learner]]
    """What a saved folder's weights are read into."""
    learner: Learner

    batch_size: int

    def __init__(self, learner: Learner, *, seed: int = 0, batch_size: int = 64) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.learner, self.game = learner, learner.game
        self.batch_size = int(batch_size)
        self.provenance: dict[str, Any] = {}
        """Where the weights come from; written to ``provenance.json``."""
        self.folder: Path | None = None
        """Where it was loaded from or saved to last."""
        self.precision: str = declared.PRECISION.default
        """Of the network's products when it decides."""
        self._seeds = RowSeeds(seed)

    def with_options(self, **changed: Any) -> WeightsPolicy:
        """See ``Policy.with_options``; a value out of range is a ``ValueError``, too."""
        made = type(self)(self.learner, **self._options_with(self.read_changes(changed)))
        made.folder, made.provenance, made.precision = self.folder, self.provenance, self.precision
        return made

    def _options_with(self, changed: dict[str, Any]) -> dict[str, Any]:
        """The constructor's options as they are, but for some."""
        return {**self.own_options(), **changed}

    def own_options(self) -> dict[str, Any]:
        """The constructor's options that every policy over weights takes, as they are."""
        return {"seed": self._seeds.seed, "batch_size": self.batch_size}

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next((p.device for p in self.learner.parameters()), torch.device("cpu"))

    @property
    def label(self) -> str:
        """The folder's name where there is one (its run's, if it is called ``policy``), else the kind."""
        if self.folder is None:
            return self.kind
        folder = self.folder.resolve()
        return folder.parent.name if folder.name == "policy" else folder.name

    @property
    def rows_a_position(self) -> int:
        """Rows of a network call that one position takes at most."""
        return 1

    @property
    def positions_a_call(self) -> int:
        """As in ``Policy``; on a CPU ``CPU_ROWS`` rows at most."""
        most = self.batch_size
        return min(most, max(1, CPU_ROWS // self.rows_a_position)) if self.device.type == "cpu" else most

    def seed(self, seed: int) -> None:
        """Make the draws that follow the same as those after any other call with this seed."""
        self._seeds.reset(seed)

    @torch.no_grad()
    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """One decision for each position; ``control.check`` is called before every part of a network call.

        Raises:
            ValueError: a position without legal moves or without an allowed one, or one that the tokenizer cannot hold.
        """
        legal = legal_of(self.game, states, control)
        seeds = self._seeds.draw([self.game.format(state) for state in states])
        with self._evaluating(control):
            decisions: list[Decision] = []
            size = self.positions_a_call
            for start in range(0, len(states), size):
                chunk = slice(start, start + size)
                decisions += self._decide_batch(states[chunk], legal[chunk], seeds[chunk])
            return decisions

    @contextmanager
    def _evaluating(self, control: Control) -> Iterator[None]:
        """The network in evaluation mode and ``precision``, checking ``control``; its mode is restored afterwards."""
        network = self.learner.network
        was_training = network.training
        network.eval()
        hooks = [] if control.check is FREE.check else check_between(network, control.check)
        lower = self.precision != "float32"
        try:
            with torch.autocast(self.device.type, getattr(torch, self.precision)) if lower else nullcontext():
                yield
        finally:
            for hook in hooks:
                hook.remove()
            network.train(was_training)

    @abstractmethod
    def _decide_batch(self, states: Sequence[Any], legal: list[list[int]], seeds: Sequence[int]) -> list[Decision]:
        """Decisions for at most ``batch_size`` positions.

        Args:
            states: B positions.
            legal: Their legal moves, absolute ids in order.
            seeds: One for each row's own draws.
        """

    def _saved_config(self) -> Any:
        """The learner's configuration, with the options that this policy was given since."""
        return self.learner.config

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write ``config.yaml``, ``model.safetensors`` and ``provenance.json``.

        ``config.yaml`` is written last, so a folder without it was written in part and is not a policy's.
        """
        from safetensors.torch import save

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").unlink(missing_ok=True)
        weights = weights_of(self.learner.network)
        data = save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()})
        write_atomic(folder / "model.safetensors", data)
        versions = {"genpolicy": genpolicy.__version__, "torch": torch.__version__, "python": platform.python_version()}
        write_provenance(folder, {"versions": versions, **self.provenance})
        learner = to_dict(self._saved_config())
        config = {
            "policy": self.kind,
            "format": FORMAT_VERSION,
            "game": self.game.spec,
            "layout": self.learner.fingerprint,
            "weights_sha256": hashlib.sha256(data).hexdigest(),
            "network_sha256": _digest(learner.get("network")),
            "learner": learner,
            "play": {key: value for key, value in self.own_options().items() if key not in ("seed", "batch_size")},
        }
        write_atomic(folder / "config.yaml", to_yaml(config).encode())
        self.folder = folder
        return folder

    @classmethod
    def from_folder(cls, folder: Path, config: dict[str, Any], **options: Any) -> WeightsPolicy:
        """See ``Policy.from_folder``; options are ``device``, ``precision``, ``game`` and the constructor's own.

        Raises:
            CheckpointError: damaged, or of another tokenizer.
            ValueError: an option that the policy does not take, or a device that is not there.
        """
        device = find_device(str(options.pop("device", "cpu")))
        options.pop("game", None)  # ``load_policy`` compares it
        precision = declared.PRECISION.read(options.pop("precision", declared.PRECISION.default))
        options = cls.read_changes(options)
        config = {**config, "play": config.get("play") or {}}
        for key, kind in (("game", str), ("layout", str), ("learner", dict), ("play", dict)):
            if not isinstance(config.get(key), kind):
                raise CheckpointError(f"{folder}/config.yaml: it has no {key!r}, so it is damaged")
        with _reading(folder):
            play = cls.read_changes(config["play"])
            for option in cls.options():
                if option.default is not None and play.get(option.name, option.default) is None:
                    raise CheckpointError(f"{folder}/config.yaml: play.{option.name} has no value, so it is damaged")
            game = registry.load_game(config["game"])
            schema = cls.learner_class.Config
            section = with_unsaid(schema, config["learner"])
            learner_config = structured(schema, section, where=f"{folder}/config.yaml", prefix="learner")
            with bounded_by(folder / "model.safetensors"):
                learner = cls.learner_class(game, learner_config)
        if learner.fingerprint != config["layout"]:
            raise CheckpointError(
                f"{folder}: its tokens are not those of the installed {game.spec!r} (layout {config['layout']}, here "
                f"{learner.fingerprint}): install the version of the game that it was trained with, or train it "
                "again"
            )
        load_weights(learner.network, folder / "model.safetensors", config.get("weights_sha256"))
        if config.get("network_sha256") not in (None, _digest(config["learner"].get("network"))):
            raise CheckpointError(
                f"{folder}/config.yaml: learner.network was changed and is not that of the weights: change it back, or "
                "train a policy with these options"
            )
        learner.to(device).eval()
        with _reading(folder):
            policy = cls(learner, **play)
        if options:
            policy = cls(learner, **{**play, **options})
        policy.folder, policy.precision = folder, precision
        policy.provenance = read_provenance(folder)
        return policy


def _digest(section: Any) -> str:
    """SHA-256 of a network's options as a file holds them; some change no tensor's shape, only what it computes."""
    return hashlib.sha256(json.dumps(section, sort_keys=True, default=str).encode()).hexdigest()


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Inside, what is wrong with a folder's configuration is a ``CheckpointError`` that names the folder."""
    try:
        yield
    except CheckpointError:
        raise
    except ValueError as error:
        said = str(error) if str(error).startswith(str(folder)) else f"{folder}/config.yaml: {error}"
        raise CheckpointError(f"{said} (the folder was written by another version, or changed by hand)") from error
