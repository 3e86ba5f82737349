"""What can be told of a loop's spellings and openings before its first generation, which may take hours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from genpolicy.config import structured
from genpolicy.errors import ConfigError, RegistryError
from genpolicy.policies.base import load_policy
from genpolicy.registry import load_game
from genpolicy.training.config import Budget, RunConfig
from genpolicy.training.setup import make_learner, take_weights
from genpolicy_arena.openings import draw_random


def require_policies(spellings: Mapping[str, str], game: str, learners: Mapping[str, Mapping[str, Any]]) -> None:
    """Open the policies of a loop, with weights that are not trained yet.

    Args:
        spellings: By the key of the loop; ``{NAME}`` stands for a learner's folder.
        game: Specification of the game.
        learners: Their training configurations.

    Raises:
        ConfigError: a learner that cannot be made, is for another game, has no budget or starts from weights that it
            cannot take, or a spelling that cannot be opened.
    """
    rules = load_game(game)
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name for name in learners}
        for name, settings in learners.items():
            with _named(f"learners.{name}"):
                run = structured(RunConfig, dict(settings))
                if run.game and load_game(run.game).spec != rules.spec:
                    raise ConfigError(f"game: the loop plays {rules.spec!r}, this configuration says {run.game!r}")
                Budget.of(run.trainer, num_windows=1)  # raises where there is none
                learner = make_learner(rules, run.learner)
                if run.init_from:
                    take_weights(learner, run.init_from)
                learner.policy().save_pretrained(folders[name])
        for key, spelling in spellings.items():
            with _named(key):
                load_policy(spelling.format_map(folders), game=rules).close()


def require_openings(game: str, num_plies: int) -> None:
    """Draw an opening for the gate.

    Raises:
        ConfigError: so many random moves end the game.
    """
    with _named("gate"):
        draw_random(load_game(game), 1, num_plies, seed=0)


@contextmanager
def _named(key: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, RegistryError) as error:
        raise ConfigError(f"{key}: {error}") from error
