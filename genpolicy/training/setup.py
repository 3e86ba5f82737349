"""From a configuration to what the loop works on: game, data set, learner, and what identifies the run."""

from __future__ import annotations

import dataclasses
import inspect
import json
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import torch

import genpolicy
from genpolicy import registry
from genpolicy.config import read_yaml, structured, to_dict, with_unsaid
from genpolicy.data.records import Dataset
from genpolicy.data.stream import MixedWindows, ShuffledWindows, Stream
from genpolicy.data.windows import WindowSource
from genpolicy.encoding import ids_fingerprint
from genpolicy.errors import CheckpointError, ConfigError, DatasetError, RegistryError
from genpolicy.game import Game
from genpolicy.networks.cpu.memory import keep_freed_memory
from genpolicy.policies.base import Policy
from genpolicy.policies.learner import Learner
from genpolicy.shipped import policy_folder
from genpolicy.training.config import DataConfig, RunConfig

CONFIG_FILE = "config.yaml"

# A resumed run may differ in these: folders, budget, what is measured and saved, device.
FREE_KEYS = {
    "": ("out", "init_from"),
    "data": ("folder",),
    "trainer": (
        "max_steps",
        "max_epochs",
        "max_records",
        "max_minutes",
        "eval_every",
        "eval_records",
        "accuracy_records",
        "checkpoint_every",
        "keep",
        "log_every",
        "tensorboard",
        "trackers",
        "device",
        "compile",
        "prefetch",
    ),
}


def open_data(config: RunConfig) -> tuple[Dataset, Game[Any]]:
    """The data set and the game of a configuration.

    Raises:
        ConfigError: no data set is named.
        DatasetError: it is damaged, of another game, or lacks the training split.
    """
    if not config.data.folder:
        raise ConfigError("data.folder is empty: name a data set (genpolicy data import|label|selfplay makes one)")
    dataset = Dataset.open(config.data.folder)
    game = registry.load_game(config.game or dataset.game_spec)
    if game.spec != registry.load_game(dataset.game_spec).spec:
        raise DatasetError(f"{dataset.label}: records of {dataset.game_spec!r}; the configuration says {game.spec!r}")
    splits = dataset.splits
    if not splits.get(config.data.train):
        there = ", ".join(f"{name} {count}" for name, count in splits.items())
        raise DatasetError(f"{dataset.label}: no record in split {config.data.train!r}; it has: {there}")
    return dataset, game


def make_learner(game: Game[Any], section: dict[str, Any]) -> Learner:
    """The learner of a ``learner:`` section, in a process that from now on keeps the memory that it frees.

    Raises:
        ConfigError: no ``kind``, or a key that the learner does not have.
        RegistryError: no such learner is installed, it cannot be made, or it has nothing to train.
    """
    learner_class, config = _learner_config(section)
    keep_freed_memory()
    kind = section["kind"]
    # A RuntimeError may say that memory is short, which the command reports as that.
    with registry.making("learners", kind, ValueError, OSError, RuntimeError):
        learner = learner_class(game, config)
    if not any(parameter.requires_grad for parameter in learner.parameters()):
        raise RegistryError(f"{registry.named('learners', kind, learner)} has no parameter that requires a gradient")
    return learner


def _learner_config(section: dict[str, Any]) -> tuple[type[Learner], Any]:
    options = dict(section)
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigError(f"learner.kind must name a learner: {', '.join(registry.available('learners'))}")
    learner_class: type[Learner] = registry.load("learners", kind)
    if not (isinstance(learner_class.Config, type) and dataclasses.is_dataclass(learner_class.Config)):
        named = registry.named("learners", kind, learner_class)
        raise RegistryError(
            f"{named}: {learner_class.__name__}.Config is {learner_class.Config!r:.80}, not a dataclass"
        )
    return learner_class, structured(learner_class.Config, options, prefix="learner")


def require_policy(kind: str, learner: Learner) -> None:
    """See before the training, which may take hours, that a learner's policy can be made, saved and loaded again.

    Raises:
        RegistryError: ``Learner.policy`` gave something else, or a policy whose ``kind`` is not installed.
        ValueError: options that the policy does not take.
    """
    policy: object = learner.policy()
    if not isinstance(policy, Policy):
        raise registry.wrong_thing("learners", kind, policy, "a Policy, in policy()")
    policy_kind = getattr(policy, "kind", None)
    if policy_kind not in registry.available("policies"):
        has = "no kind" if policy_kind is None else f"the kind {policy_kind!r}, which is not installed"
        raise RegistryError(
            f"{registry.named('learners', kind, learner)}: its policy {type(policy).__name__} has {has}, so what is "
            "trained could not be loaded; set kind to the policy's entry-point name in group genpolicy.policies"
        )


def make_stream(kind: str, learner: Learner, dataset: Dataset, data: DataConfig, seed: int) -> Stream:
    """Where a learner's updates come from: its own stream, or its windows in a seeded order.

    Raises:
        ConfigError: shares that do not suit the folders, or of a learner with a stream of its own.
        DatasetError: no windows.
        RegistryError: ``Learner.windows`` gave neither, or takes other arguments.
    """
    learner.trained_split = data.train
    # The parts of a union lie in the order of their checksums, the shares in that of the folders' names.
    parts = [dataset] if data.shares is None else [Dataset.open(folder, verify=False) for folder in data.folders]
    for part in parts if len(parts) > 1 else ():
        part.beside = dataset
    named = registry.named("learners", kind, learner)
    try:
        inspect.signature(learner.windows).bind(parts[0], data.train, seed=seed)
    except TypeError as error:
        raise RegistryError(f"{named}: windows() is called with (records, split, seed=...): {error}") from error
    sources: list[Any] = [learner.windows(part, data.train, seed=seed) for part in parts]
    for part, source in zip(parts, sources, strict=True):
        if not isinstance(source, WindowSource | Stream):
            raise registry.wrong_thing("learners", kind, source, "a WindowSource or a Stream, in windows()")
        if isinstance(source, WindowSource) and not len(source):
            raise DatasetError(f"{part.label}: {named} makes no window of split {data.train!r}, in windows()")
        if data.shares is not None and isinstance(source, Stream):
            raise ConfigError(f"data.shares: the learner {kind!r} has a stream of its own")
    if data.shares is not None:
        return MixedWindows(sources, data.shares, seed)
    return sources[0] if isinstance(sources[0], Stream) else ShuffledWindows(sources[0], seed)


def take_weights(learner: Learner, folder: str) -> None:
    """Start from the weights of a saved policy.

    Raises:
        CheckpointError: it has no weights, or not those that the learner takes.
    """
    from genpolicy.policies.base import load_policy

    try:
        source = load_policy(folder, game=learner.game).learner
    except (RegistryError, ValueError) as error:
        raise CheckpointError(f"init_from: {error}") from error
    if source is None:
        raise CheckpointError(f"init_from: the policy {folder} has no weights to start from")
    if source.game.spec != learner.game.spec:
        raise CheckpointError(f"init_from: {folder} plays {source.game.spec!r}, this run {learner.game.spec!r}")
    if source.predicts_next != learner.predicts_next:
        raise CheckpointError(
            f"init_from: {folder} or this learner is autoregressive, so its tokens predict the next one, and the other "
            "is not: the same weights would mean something else; choose a policy of the learner's kind"
        )
    try:
        learner.take_weights(source)
    except CheckpointError as error:
        raise CheckpointError(f"init_from: {folder}: {error}") from error


def identity(config: RunConfig, dataset: Dataset, learner: Learner) -> dict[str, Any]:
    """What a checkpoint and the run that resumes from it must agree in."""
    parts = list(dataset.parts)
    if config.data.shares is not None:
        parts.sort(key=lambda part: config.data.folders.index(part.name))  # the order that the shares have
    checksums = [part.checksum for part in parts]
    return {
        "tokenizer": ids_fingerprint(learner.game.tokens, learner.game.moves),
        "layout": learner.fingerprint,
        "dataset": checksums[0] if len(checksums) == 1 else checksums,
        "config": {**compared(config), "game": learner.game.spec},
    }


def compared(config: RunConfig) -> dict[str, Any]:
    """The settings as JSON gives them back (tuples are lists), without those that a resumed run may change."""
    settings: dict[str, Any] = json.loads(json.dumps(to_dict(config)))
    for section, keys in FREE_KEYS.items():
        for key in keys:
            (settings[section] if section else settings).pop(key)
    return settings


def completed(saved: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's ``identity`` with the keys that the configuration has gained since, at their defaults.

    The default of a new key means what the code did before there was one.
    """
    try:
        config = structured(RunConfig, saved["config"])
        schema = registry.load("learners", config.learner["kind"]).Config
        config = dataclasses.replace(config, learner=with_unsaid(schema, config.learner))
        return {**saved, "config": compared(filled_in(config))}
    except (ConfigError, RegistryError, KeyError):
        return saved  # it names keys or a learner that no longer exist, so it differs anyway


def as_begun(config: RunConfig, files: Iterable[Path]) -> RunConfig:
    """The configuration of a run that continues an older run or policy: newer keys are set to what the older code did.

    A key that the configuration sets itself stays.

    Args:
        config: A run.
        files: ``config.yaml`` of what it may continue; the first with a learner of the same kind counts.
    """
    kind = config.learner.get("kind")
    if not isinstance(kind, str) or kind not in registry.available("learners"):
        return config
    for file in filter(Path.is_file, files):
        whole: dict[str, Any] = {}
        with suppress(ConfigError):  # a run's checkpoints have its settings, too; a policy is refused when opened
            whole = read_yaml(file)
        saved = whole.get("learner")
        if isinstance(saved, dict) and saved.get("kind", whole.get("policy")) == kind:
            learner = with_unsaid(registry.load("learners", kind).Config, saved, config.learner)
            return dataclasses.replace(config, learner=learner)
    return config


def begun_files(config: RunConfig, *, resume: bool) -> Iterator[Path]:
    """For ``as_begun``, of a run that continues itself (``resume``) or the policy of ``init_from``.

    Raises:
        CheckpointError: the source of the policy does not have it.
    """
    if resume:
        yield Path(config.out) / CONFIG_FILE
    if config.init_from:
        yield Path(config.init_from) / CONFIG_FILE  # of a run's folder, which says the learner's kind
        try:
            folder = policy_folder(config.init_from.partition("?")[0])
        except (RegistryError, ValueError) as error:
            raise CheckpointError(f"init_from: {error}") from error
        if folder is not None:
            yield folder / CONFIG_FILE


def _origin(dataset: Dataset) -> dict[str, Any]:
    facts = {"folder": dataset.name, "checksum": dataset.checksum, "records": dataset.num_records}
    if len(dataset.parts) == 1:
        return facts
    return {**facts, "parts": [{**_origin(part), "oracle": part.info.oracle} for part in dataset.parts]}


def provenance(config: RunConfig, dataset: Dataset, facts: dict[str, Any]) -> dict[str, Any]:
    """Where a saved policy's weights come from."""
    return {
        **facts,
        "dataset": _origin(dataset),
        "oracle": dataset.info.oracle,
        "config": to_dict(config),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of genpolicy, Python, torch and NumPy."""
    return {
        "genpolicy": genpolicy.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def filled_in(config: RunConfig) -> RunConfig:
    """The configuration with every key of its learner written out and checked.

    Raises:
        ConfigError, RegistryError: as ``make_learner``.
    """
    _, made = _learner_config(config.learner)
    return dataclasses.replace(config, learner={"kind": config.learner["kind"], **to_dict(made)})
