"""A game as a file in one of its own formats."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from genpolicy.facets import writer
from genpolicy.game import Game, PlayedGame
from genpolicy_play.terminal import ending_of
from genpolicy_play.web.positions import POSITION_FIELDS, Replay
from genpolicy_play.web.requests import MAX_NAME, Fields, RequestError, quoted
from genpolicy_play.web.timing import MAX_CLOCK_MS

EXPORT_FIELDS = (*POSITION_FIELDS, "format", "players", "result", "date", "clock", "on_time")


def exported(game: Game[Any], replay: Replay, fields: Fields) -> tuple[str, bytes]:
    """A file's name and content.

    Raises:
        RequestError: a format that the game does not write, malformed names or result, or a result that contradicts
            the rules.
    """
    suffixes = game.files.suffixes if game.files is not None else ()
    suffix = fields.text("format", suffixes[0] if suffixes else "none")
    if suffix not in suffixes:
        there = ", ".join(suffixes) or "none"
        raise RequestError(f"format {quoted(suffix)} is not written for {game.spec}; there are: {there}")
    fields.flag("flip")  # checked, and of no effect on a file
    names = fields.texts("players", most=2, length=MAX_NAME)
    headers = {side: name for side, name in zip(game.players, names, strict=False) if name}
    if date := fields.text("date", time.strftime("%Y.%m.%d")):
        headers["Date"] = date
    if control := time_control(fields):
        headers["TimeControl"] = control
    if fields.flag("on_time"):
        headers["Termination"] = "time forfeit"  # PGN's word, which the other formats translate
    start = game.format(game.parse(replay.start))
    played = PlayedGame("web:1", start, replay.moves, _result(game, replay, fields), headers)
    with tempfile.TemporaryDirectory(prefix="genpolicy-") as folder:
        path = Path(folder) / f"game{suffix}"
        try:
            count = writer(game, path, "games").write_games(path, [played])
        except ValueError as error:
            raise RequestError(f"the game cannot be written as {suffix}: {error}") from error
        if count != 1:
            raise RequestError(f"{suffix} cannot hold this game (it may need a result)")
        return path.name, path.read_bytes()


def time_control(fields: Fields) -> str | None:
    """The clock of a game in seconds: PGN's ``300`` or ``180+2``; with byoyomi ``600+30+0``, in the order of CSA 3.

    Raises:
        RequestError: malformed, out of range, or not in whole seconds.
    """
    sent = fields.mapping("clock")
    if not sent:
        return None
    clock = Fields(sent, ("base", "increment", "byoyomi"))
    base, increment, byoyomi = (_seconds(clock, name) for name in ("base", "increment", "byoyomi"))
    if byoyomi:
        return f"{base}+{byoyomi}+{increment}"
    return f"{base}+{increment}" if increment else str(base)


def _seconds(clock: Fields, name: str) -> int:
    seconds, rest = divmod(clock.whole(name, 0, MAX_CLOCK_MS) or 0, 1000)
    if rest:
        raise RequestError(f"{name} must be whole seconds, a multiple of 1000 ms; files have no place for less")
    return seconds


def _result(game: Game[Any], replay: Replay, fields: Fields) -> float | None:
    """The result for player 0: the one sent, else the one by the rules."""
    sent = fields.whole("result", -1, 1)
    ending = ending_of(game, replay.state)
    if ending is None:
        return None if sent is None else float(sent)
    ruled = {None: 0.0, 0: 1.0, 1: -1.0}[ending.winner]
    # Where there are legal moves, the players may have continued beyond a drawn repetition, and one then resigned.
    if sent is not None and sent != ruled and len(game.legal(replay.state)) == 0:
        raise RequestError(f"result {sent} contradicts the end of the game ({ending.reason})")
    return ruled if sent is None else float(sent)
