"""A game as a file in one of its own formats."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from genpolicy.game import Game, PlayedGame
from genpolicy_play.web.positions import POSITION_FIELDS, Replayed, outcome_of
from genpolicy_play.web.requests import Fields, RequestError, quoted

EXPORT_FIELDS = (*POSITION_FIELDS, "format", "players", "result")


def exported(game: Game[Any], found: Replayed, fields: Fields) -> tuple[str, bytes]:
    """A file's name and content.

    Raises:
        RequestError: a format that the game does not write, names or a result that are none, or a result that the rules
            contradict.
    """
    suffixes = game.game_suffixes
    suffix = fields.text("format", suffixes[0] if suffixes else "none")
    if suffix not in suffixes:
        there = ", ".join(suffixes) or "none"
        raise RequestError(f"format {quoted(suffix)} is not written for {game.spec}; there are: {there}")
    fields.flag("flip")  # a file has no side from which it is seen
    names = fields.texts("players", most=2, length=100)
    headers = {side: name for side, name in zip(game.players, names, strict=False) if name}
    headers["Date"] = time.strftime("%Y.%m.%d")
    start = game.format(game.parse(found.start))
    played = PlayedGame("web:1", start, found.moves, _result(game, found, fields), headers)
    with tempfile.TemporaryDirectory(prefix="genpolicy-") as folder:
        path = Path(folder) / f"game{suffix}"
        try:
            count = game.write_games(path, [played])
        except ValueError as error:
            raise RequestError(f"the game cannot be written as {suffix}: {error}") from error
        if count != 1:
            raise RequestError(f"{suffix} cannot hold this game (it may need a result)")
        return path.name, path.read_bytes()


def _result(game: Game[Any], found: Replayed, fields: Fields) -> float | None:
    """For player 0: what was sent, else what the rules say."""
    said = fields.whole("result", -1, 1)
    outcome = outcome_of(game, found.state)
    if outcome is None:
        return None if said is None else float(said)
    ruled = {None: 0.0, 0: 1.0, 1: -1.0}[outcome["winner"]]
    # Where moves are left, a draw by repetition may have been played on from, and then given up.
    if said is not None and said != ruled and len(game.legal(found.state)) == 0:
        raise RequestError(f"result {said} contradicts the end of the game ({outcome['reason']})")
    return ruled if said is None else float(said)
