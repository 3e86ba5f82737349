"""How strong the offered policies are: their Elo, as a tournament or its games gave it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genpolicy import registry
from genpolicy.files import read_json
from genpolicy_evaluation.players import names_of

FIGURES = ("elo", "low", "high", "games")


class Ratings:
    """The players of a file that ``genpolicy tournament --json FILE`` or ``genpolicy ratings --json FILE`` wrote.

    Args:
        path: The file.

    Raises:
        ValueError: it cannot be read, or holds no ratings.
        LookupError: its game is not installed.
    """

    def __init__(self, path: Path) -> None:
        try:
            figures = read_json(path)
            game = figures.get("tournament", figures)["game"]
            self._players: Mapping[str, Mapping[str, Any]] = {
                row["name"]: {name: row[name] for name in FIGURES} for row in figures["ratings"]["players"]
            }
        except OSError as error:
            raise ValueError(f"--ratings {path}: {error.strerror}") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"--ratings {path} holds no ratings; genpolicy tournament --json FILE writes them, and so does "
                "genpolicy ratings --json FILE"
            ) from error
        self.path, self.game = path, registry.load_game(game).spec

    def of(self, game: str, spec: str) -> Mapping[str, Any] | None:
        """``{"elo", "low", "high", "games"}`` of a policy, by its specification; None where it was not rated.

        ``low`` and ``high`` are the 95 % interval; None is an end that the games do not bound.
        """
        names = (spec, *names_of([spec])) if game == self.game else ()
        return next((self._players[name] for name in names if name in self._players), None)

    @property
    def names(self) -> str:
        """Whom it rates."""
        return ", ".join(self._players)
