"""From files, ``key=value`` settings or Python values to a run, for ``genpolicy train`` and ``genpolicy.train``."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genpolicy import registry
from genpolicy.config import Settings, compose, to_dict
from genpolicy.errors import ConfigError
from genpolicy.schema import known_keys
from genpolicy.training.config import RunConfig


def train_from(
    config: str | Path | Mapping[str, Any] | RunConfig | None,
    overrides: Mapping[str, Any],
    out: str | Path | None,
    *,
    resume: bool,
    overwrite: bool,
) -> Path:
    """What ``genpolicy.train`` does."""
    files: list[Path] = []
    given: Mapping[str, Any] = {}
    if isinstance(config, str | Path):
        files = [Path(config)]
    elif config is not None:
        given = config if isinstance(config, Mapping) else to_dict(config)
    # YAML does not read the pairs of escapes by which JSON writes a character beyond 16 bits.
    dumps = functools.partial(json.dumps, default=str, ensure_ascii=False)
    arguments = [f"{key}={dumps(value)}" for key, value in [*given.items(), *overrides.items()]]
    settings, made = configuration(files, arguments, str(out or ""), resume=resume)
    return train(settings, made, files, resume=resume, overwrite=overwrite)


def train(settings: Settings, config: RunConfig, files: list[Path], *, resume: bool, overwrite: bool) -> Path:
    """Train what settings ask for; the folder of the saved policy."""
    from genpolicy.training import loop

    if not config.out:
        config.out = str(Path("runs") / (files[-1].stem if files else str(config.learner.get("kind", "run"))))
    with settings.locating():  # errors of what only the learner, the game or the machine can tell
        return loop.train(config, resume=resume, overwrite=overwrite)


def configuration(
    files: list[Path], overrides: list[str], out: str | None, *, resume: bool
) -> tuple[Settings, RunConfig]:
    """The configuration of a command line; a resumed run takes its own file unless another is given.

    Raises:
        ConfigError: a file, key or value that does not exist or is wrong, or nothing to train.
    """
    if resume and not files:
        folder = out or compose(RunConfig, overrides=[each for each in overrides if each.startswith("out=")]).out
        own = Path(folder) / "config.yaml"
        if folder and own.is_file():
            files = [own]
        elif not any(each.startswith("learner") for each in overrides):  # those may hold a whole new run
            missing = f"no {own}" if folder else "--out FOLDER is missing"
            raise ConfigError(f"--resume: {missing}; name the run to resume")
    if not files and not overrides:
        raise ConfigError("nothing to train: give --config FILE, or a name from 'genpolicy configs'")
    settings = Settings(files, overrides)
    config = settings.fill(RunConfig, elsewhere=lambda: _learner_keys(settings.data))
    if out:
        if any(override.startswith("out=") and config.out != out for override in overrides):
            raise ConfigError(f"two folders for one run: --out {out} and out={config.out}; give one of them")
        config.out = out
    return settings, config


def _learner_keys(data: dict[str, Any]) -> list[str]:
    """Keys of the learner that the settings name, for whoever writes one of them outside its section."""
    section = data.get("learner")
    kind = section.get("kind") if isinstance(section, dict) else None
    if not isinstance(kind, str) or kind not in registry.available("learners"):
        return []
    return list(known_keys(registry.load("learners", kind).Config, "learner"))
