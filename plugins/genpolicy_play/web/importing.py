"""A game that somebody pastes or opens, in any of the formats that its game reads and writes."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from genpolicy.game import Game, PlayedGame
from genpolicy_play.web.requests import MAX_MOVES, MAX_NAME, Fields, RequestError

IMPORT_FIELDS = ("game", "text")
MAX_GAME_TEXT = 48 * 1024
"""Characters of a game. The longest on record take a third of it in the wordiest format."""


def imported(game: Game[Any], fields: Fields) -> dict[str, Any]:
    """The first game of a text: where it starts, its moves, who played and when, the result for player 0 (or None).

    Args:
        game: Whose formats are tried.
        fields: ``text``, the content of a file.

    Raises:
        RequestError: no format of the game reads it; the message is that of the format that came furthest.
    """
    text = fields.content("text", most=MAX_GAME_TEXT)
    files = game.files
    suffixes = files.suffixes if files is not None and "games" in files.reads else ()
    if not suffixes:
        raise RequestError(f"{game.view.title} has no format for games; paste a position")
    found: list[PlayedGame] = []
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="genpolicy-") as folder:
        for suffix in suffixes:
            # People leave out the mark of a game without a result, an asterisk in PGN and its relatives.
            for whole in (text, f"{text}\n*\n"):
                path = Path(folder) / f"pasted{suffix}"
                path.write_text(whole, encoding="utf-8")
                read = _first(game, path)
                if isinstance(read, PlayedGame):
                    found.append(read)
                    break
                wrong.append(read)
    best = max(found, key=lambda played: len(played.moves), default=None)
    if best is None:
        names = ", ".join(suffix[1:].upper() for suffix in suffixes)
        why = max(wrong, key=len)
        raise RequestError(f"this is not a game in {names}{why and ': '}{why}")
    if len(best.moves) > MAX_MOVES:
        raise RequestError(f"a game may have at most {MAX_MOVES:,} moves, got {len(best.moves):,}")
    return {
        "game": game.spec,
        "start": None if best.start == game.format(game.parse()) else best.start,
        "moves": [game.moves[move] for move in best.moves],
        "players": [best.headers.get(side, "")[:MAX_NAME] for side in game.players],
        "result": best.result,
        "date": best.headers.get("Date", "")[:MAX_NAME],
    }


def _first(game: Game[Any], path: Path) -> PlayedGame | str:
    """The first game of a file, or what is wrong with it; "" where it does not look like its format at all."""
    assert game.files is not None
    try:
        return next(game.files.open_games(path), None) or ""
    except ValueError as error:
        place, said = re.match(r"(.*?:\d+: )?(?:game \d+ \([^)]*\): )?(.*)", str(error), re.DOTALL).groups()  # type: ignore[union-attr]
        return str(said) if place and "closes the game" not in said else ""
