"""``genpolicy train``: from a configuration to a saved policy, whose folder is the last line of stdout."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genpolicy import registry
from genpolicy.config import Settings, known_keys, to_dict, to_yaml
from genpolicy.errors import ConfigError
from genpolicy.training.config import RunConfig

HELP = """\
Train a policy from a configuration. Keys are set by defaults, then --config files, then key=value, for example

  genpolicy train --config run.yaml trainer.max_minutes=5 optim.lr=1e-3 --out runs/mine

The last line of stdout is the folder of the saved policy. An interrupted run is resumed by

  genpolicy train --resume --out runs/mine

and ends with the same weights as if nothing had happened (on the CPU, to the bit; a budget in minutes, whose learning
rate follows the clock, is the exception)."""


def add_parser(subparsers: Any) -> None:
    """Add ``train`` to the command line."""
    parser = subparsers.add_parser(
        "train",
        help="train a policy from a configuration",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="F", help="YAML file or name; a later one overrides"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="one setting, e.g. optim.lr=1e-3")
    parser.add_argument("--out", metavar="FOLDER", help="folder of the run (also out=FOLDER)")
    parser.add_argument("--resume", action="store_true", help="resume the run in the folder")
    parser.add_argument("--overwrite", action="store_true", help="delete an earlier run in the folder")
    parser.add_argument("--print-config", action="store_true", help="print the whole configuration and stop")
    parser.set_defaults(run=run)
    take_settings_anywhere(parser)


def take_settings_anywhere(parser: argparse.ArgumentParser) -> None:
    """Let ``key=value`` stand on both sides of an option; argparse takes the first group only and refuses the rest."""
    parse = parser.parse_known_args

    def parse_known_args(args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parsed, rest = parse(args, namespace)
        parsed.overrides += [argument for argument in rest if "=" in argument and not argument.startswith("-")]
        return parsed, [argument for argument in rest if argument not in parsed.overrides]

    parser.parse_known_args = parse_known_args  # type: ignore[method-assign]


def run(arguments: argparse.Namespace) -> int:
    """The subcommand."""
    settings, config = configuration(arguments.config, arguments.overrides, arguments.out, resume=arguments.resume)
    for argument in settings.repeated:
        print(f"genpolicy train: {argument} is given again further on; the last one counts", file=sys.stderr)
    if arguments.print_config:
        from genpolicy.training.setup import filled_in

        with settings.locating():
            print(to_yaml(filled_in(config)), end="")
        return 0
    folder = _train(settings, config, arguments.config, resume=arguments.resume, overwrite=arguments.overwrite)
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun or accelerate launch started
        print(folder)
    return 0


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
    arguments = [f"{key}={json.dumps(value, default=str)}" for key, value in [*given.items(), *overrides.items()]]
    settings, made = configuration(files, arguments, str(out or ""), resume=resume)
    return _train(settings, made, files, resume=resume, overwrite=overwrite)


def _train(settings: Settings, config: RunConfig, files: list[Path], *, resume: bool, overwrite: bool) -> Path:
    from genpolicy.training.loop import train

    if not config.out:
        config.out = str(Path("runs") / (files[-1].stem if files else str(config.learner.get("kind", "run"))))
    with settings.locating():  # errors of what only the learner, the game or the machine can tell
        return train(config, resume=resume, overwrite=overwrite)


def configuration(
    files: list[Path], overrides: list[str], out: str | None, *, resume: bool
) -> tuple[Settings, RunConfig]:
    """The configuration of a command line; a resumed run takes its own file unless another is given.

    Raises:
        ConfigError: a file, key or value that does not exist or is wrong, or nothing to train.
    """
    if resume and not files:
        own = Path(out or "") / "config.yaml"
        if out and own.is_file():
            files = [own]
        elif not overrides:
            raise ConfigError(f"--resume: {f'no {own}' if out else '--out FOLDER is missing'}; name the run to resume")
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
    if kind not in registry.available("learners"):
        return []
    return list(known_keys(registry.load("learners", str(kind)).Config, "learner"))
