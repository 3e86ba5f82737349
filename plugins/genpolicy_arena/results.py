"""What a tournament has played, kept so that a kill at any moment loses no game and doubles none.

``tournament.json`` says what is played. ``games.jsonl`` has a line a game, appended when the game ends; a torn last
line is dropped. The games file in the game's usual format (``games.pgn``, ...) is written before the line, which
records how long that file then is: after a kill between the two it is cut back to what the lines know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from genpolicy.facets import writer
from genpolicy.files import full_disk_named, write_atomic
from genpolicy.game import Game, PlayedGame
from genpolicy_arena.match import GameResult

MANIFEST = "tournament.json"
LINES = "games.jsonl"
GAMES = "games"
GROWING = ("rounds",)
"""What may be larger when a tournament goes on."""

_TERMINATION = {
    "rules": "normal",
    "adjudication": "adjudication",
    "limit": "adjudication",
    "forfeit": "rules infraction",
}
"""Values of PGN's Termination tag, which other formats may keep as a comment."""


class Journal:
    """The folder of a tournament; a context manager.

    Args:
        folder: Made if need be.
        game: The game.
        manifest: What is played, plain data: a folder that holds something else is refused.
        specs: How each player is spelled, for the headers of games.

    Raises:
        ValueError: the folder holds another tournament, or something else; or another process is at it.
    """

    def __init__(self, folder: Path, game: Game[Any], manifest: Mapping[str, Any], specs: Mapping[str, str]) -> None:
        self.folder, self.game, self.specs = folder, game, dict(specs)
        self.path = folder / LINES
        suffix = game.files.log_suffix if game.files is not None and "games" in game.files.writes else None
        self.games_path = None if suffix is None else folder / f"{GAMES}{suffix}"
        self.results: dict[int, GameResult] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        self._sizes: list[int | None] = []
        try:
            self.manifest = self._settle_manifest(json.loads(json.dumps(dict(manifest))))
            self._read_lines()
            self._settle_games_file()
            self._file: IO[bytes] = self.path.open("ab", buffering=0)
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()
        self._lock.close()

    def add(self, result: GameResult) -> bool:
        """Keep a game; False where its number is known already, and nothing is written.

        Raises:
            DiskFullError: no space; what was kept is safe.
        """
        if result.number in self.results:
            return False
        size = None
        if self.games_path is not None:
            with full_disk_named(self.games_path):
                writer(self.game, self.games_path, "games").write_game(self.games_path, self.played(result))
                size = self.games_path.stat().st_size
        line = json.dumps({**result.to_dict(), "games_file_bytes": size}, ensure_ascii=False) + "\n"
        with full_disk_named(self.path):
            self._file.write(line.encode())
        self.results[result.number] = result
        return True

    def played(self, result: GameResult) -> PlayedGame:
        """A game with the headers that its format may keep."""
        first, second = self.game.players
        headers = {
            "Event": str(self.manifest.get("event", "genpolicy tournament")),
            "Site": "?",
            "Date": result.finished[:10].replace("-", "."),
            # The pair and the game of the pair: whoever reads the file sees which two share an opening.
            "Round": f"{result.round + 1}.{result.number % 2 + 1}",
            first: result.first,
            second: result.second,
            f"{first}Spec": self.specs.get(result.first, "?"),
            f"{second}Spec": self.specs.get(result.second, "?"),
            "Opening": result.opening,
            "PlyCount": str(len(result.moves)),
            "Termination": _TERMINATION[result.ended],
            "Ended": result.ended,  # Termination's words do not tell a limit of plies from a judge
            "Reason": result.reason,
        }
        moves = tuple(self.game.moves.index(move) for move in result.moves)
        return PlayedGame(str(result.number), result.start, moves, result.result, headers)

    def _settle_manifest(self, wanted: dict[str, Any]) -> dict[str, Any]:
        path = self.folder / MANIFEST
        if not path.exists():
            others = [each.name for each in self.folder.iterdir() if not each.name.startswith(".")]
            if others:
                raise ValueError(f"{self.folder}: holds {others[0]!r} and no tournament; name a new folder with --out")
            write_atomic(path, (json.dumps(wanted, indent=2) + "\n").encode())
            return wanted
        try:
            known = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path}: damaged ({error}); name a new folder with --out") from error
        for key in ("event", "games_at_once"):  # kept from the beginning
            wanted[key] = known.get(key, wanted.get(key))
        for key in sorted(known.keys() | wanted.keys()):
            grows = key in GROWING and wanted.get(key, 0) >= known.get(key, 0)
            if known.get(key) != wanted.get(key) and not grows:
                raise ValueError(
                    f"{self.folder}: holds a tournament with {key} {known.get(key)!r}, not {wanted.get(key)!r}; name a "
                    "new folder with --out, or go on with the same options"
                )
        if known != wanted:
            write_atomic(path, (json.dumps(wanted, indent=2) + "\n").encode())
        return wanted

    def _read_lines(self) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                size = row.pop("games_file_bytes")
                result = GameResult.from_dict(row)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{self.path}:{number}: damaged ({error}); take the line out to play it again"
                ) from error
            self.results[result.number] = result
            self._sizes.append(size)
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))

    def _settle_games_file(self) -> None:
        """Make the games file hold the games of the lines and no others."""
        path = self.games_path
        if path is None:
            return
        size = self._sizes[-1] if self._sizes else 0
        there = path.stat().st_size if path.exists() else 0
        if size is not None and there >= size:
            if there > size:
                with path.open("r+b") as file:
                    file.truncate(size)
            return
        writer(self.game, path, "games").write_games(path, (self.played(result) for result in self.results.values()))
        rows = [{**result.to_dict(), "games_file_bytes": None} for result in self.results.values()]
        if rows:
            rows[-1]["games_file_bytes"] = path.stat().st_size
        write_atomic(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def _lock(folder: Path) -> IO[bytes]:
    """Hold the folder for this process, where the system can.

    Raises:
        ValueError: another process holds it.
    """
    file = (folder / ".lock").open("ab")
    if os.name == "posix":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise ValueError(f"{folder}: another process plays this tournament; wait, or name another --out") from error
    return file
