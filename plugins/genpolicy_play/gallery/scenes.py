"""What a gallery shows: positions, and the policies that imagine them, as a YAML file says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.registry import load_game

SHIPPED = Path(__file__).parent / "dreams.yml"


@dataclass
class Column:
    """A policy that imagines the position of a scene."""

    policy: str = ""
    """Its folder, name or spelling."""
    title: str = ""
    """What stands above it; the policy's label where it is empty."""
    text: str = ""
    """A sentence below the title."""


@dataclass
class Scene:
    """A position and the policies beside each other."""

    title: str = ""
    text: str = ""
    game: str = "chess"
    position: str = ""
    """FEN, SFEN, ...; the initial one where it is empty."""
    moves: list[str] = field(default_factory=list)
    """Played from the position first, in any notation that the game reads."""
    flip: bool = False
    """The second player is below."""
    seed: int = 0
    columns: list[Column] = field(default_factory=list)


@dataclass
class Gallery:
    """The content of a page."""

    title: str = "Recorded dreams"
    text: str = ""
    lang: str = "en"
    scenes: list[Scene] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.scenes:
            raise ConfigError("a gallery needs at least one entry in 'scenes'")
        for number, scene in enumerate(self.scenes, 1):
            if not scene.columns:
                raise ConfigError(f"scene {number} ({scene.title!r}) needs at least one entry in 'columns'")
            if nameless := [column for column in scene.columns if not column.policy]:
                raise ConfigError(f"scene {number} ({scene.title!r}): column {nameless[0].title!r} names no policy")


def state_of(scene: Scene) -> tuple[Game[Any], Any]:
    """The game and the position of a scene.

    Raises:
        ValueError: no position of the game, an illegal move, or the game is over in it.
        LookupError: no such game.
    """
    game = load_game(scene.game)
    state = game.parse(scene.position or None)
    for typed in scene.moves:
        state = game.play(state, game.move_from_text(state, typed))
    if game.is_over(state):
        raise ValueError(
            f"scene {scene.title!r}: the game is over in {game.format(state)!r} ({game.view.ending(state)}): nothing "
            "is left to imagine"
        )
    if game.chance(state) is not None:
        raise ValueError(f"scene {scene.title!r}: chance decides in {game.format(state)!r}: add moves")
    return game, state
