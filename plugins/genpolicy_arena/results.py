"""The folder of a tournament: what is played, and the games, so that a kill at any moment loses none and doubles none.

``tournament.json`` says what is played. ``games.jsonl`` has a line for each finished game, and the games file in the
game's usual format (``games.pgn``, ...) has the game itself. While the tournament runs, a finished game is first put
into a store (``genpolicy_common.store``): what a kill left out of the two files is written to them when the tournament
is resumed. A line records the length of the games file after its game, so that what a kill tore there can be cut off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genpolicy.facets import writer
from genpolicy.files import full_disk_named, write_atomic
from genpolicy.folder_lock import FolderLock
from genpolicy.game import Game, PlayedGame
from genpolicy_arena.match import GameResult
from genpolicy_common.store import Store, remove_store

MANIFEST = "tournament.json"
LINES = "games.jsonl"
GAMES = "games"
JOURNAL_FILE, PURPOSE, TABLE = "journal.sqlite", "an unfinished tournament", "games"
GROWING = ("rounds",)
"""Keys of the manifest that may be larger when a tournament is resumed."""

_TERMINATION = {
    "rules": "normal",
    "adjudication": "adjudication",
    "limit": "adjudication",
    "forfeit": "rules infraction",
}
"""Values of PGN's Termination tag, which other formats may keep as a comment."""


class TournamentFolder:
    """The folder of a tournament that is played; a context manager. Leaving it without an error removes the store.

    Args:
        folder: Created if it is missing. A tournament of genpolicy 0.1, finished or not, has no store: its games are
            read from their lines.
        game: The game.
        manifest: What is played, plain data; a folder that holds something else is refused.
        specs: Spelling of each player, for the headers of games.

    Raises:
        ValueError: the folder holds another tournament, or something else, or a damaged line.
        StoreError: the store is damaged or of another form.
        LockedError: another process plays there.
    """

    def __init__(self, folder: Path, game: Game[Any], manifest: Mapping[str, Any], specs: Mapping[str, str]) -> None:
        self.folder, self.game, self.specs = folder, game, dict(specs)
        self.path = folder / LINES
        suffix = game.files.log_suffix if game.files is not None and "games" in game.files.writes else None
        self.games_path = None if suffix is None else folder / f"{GAMES}{suffix}"
        self.results: dict[int, GameResult] = {}
        """Finished games by number, in the order in which they were finished."""
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(folder, "plays a tournament", "choose another folder with --out")
        self._store: Store | None = None
        try:
            self.manifest = self._settle_manifest(json.loads(json.dumps(dict(manifest))))
            self._store = Store(folder / JOURNAL_FILE, PURPOSE)
            self._resume(self._store)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> TournamentFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._close(remove=kind is None)  # the files hold every game

    def _close(self, *, remove: bool = False) -> None:
        if self._store is not None:
            self._store.close()
        if remove:
            remove_store(self.folder / JOURNAL_FILE)
        self._lock.release()

    def add(self, result: GameResult) -> bool:
        """Keep a game; False if its number is known already, and nothing is written.

        Raises:
            DiskFullError: no space; what was kept is safe.
            LockedError: another process plays there, since the lock was lost.
        """
        self._lock.require()
        if result.number in self.results:
            return False
        assert self._store is not None
        self._store.put(TABLE, str(result.number), result.to_dict())
        self.results[result.number] = result
        self._write(result)
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
            known = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: damaged ({error}); name a new folder with --out") from error
        for key in ("event", "games_at_once"):  # kept from the beginning
            wanted[key] = known.get(key, wanted.get(key))
        for key in sorted(known.keys() | wanted.keys()):
            before = known.get(key, 0)
            grows = key in GROWING and isinstance(before, int) and wanted.get(key, 0) >= before
            if known.get(key) != wanted.get(key) and not grows:
                raise ValueError(
                    f"{self.folder}: holds a tournament with {key} {known.get(key)!r}, not {wanted.get(key)!r}; name a "
                    "new folder with --out, or resume it with the same options"
                )
        if known != wanted:
            write_atomic(path, (json.dumps(wanted, indent=2) + "\n").encode())
        return wanted

    def _resume(self, store: Store) -> None:
        """Read what was played, and make store, lines and games file hold the same games."""
        for _, row in store.items(TABLE):
            result = GameResult.from_dict(row)
            self.results[result.number] = result
        lines = self._read_lines()
        with store.transaction():
            for result, _ in lines:
                if result.number not in self.results:  # a finished tournament, or one of genpolicy 0.1
                    store.put(TABLE, str(result.number), result.to_dict())
                    self.results[result.number] = result
        known = {result.number for result, _ in lines}
        if self._cut_games_file(lines[-1][1] if lines else 0):
            for number, result in self.results.items():
                if number not in known:
                    self._write(result)
        else:
            self._rewrite()

    def _read_lines(self) -> list[tuple[GameResult, int | None]]:
        """The games that have a line, each with the length of the games file after it; cuts off a torn last line."""
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                size = row.pop("games_file_bytes")
                lines.append((GameResult.from_dict(row), size))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{self.path}:{number}: damaged ({error}); remove the line; the same command writes it or "
                    "plays it again"
                ) from error
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        return lines

    def _cut_games_file(self, size: int | None) -> bool:
        """Cut the games file to the length that it has after the last line's game; False if it is not that long."""
        path = self.games_path
        if path is None:
            return True
        there = path.stat().st_size if path.exists() else 0
        if size is None or there < size:
            return False
        if there > size:
            with path.open("r+b") as file:
                file.truncate(size)
        return True

    def _rewrite(self) -> None:
        """Write the games file and the lines anew."""
        assert self.games_path is not None
        results = list(self.results.values())
        with full_disk_named(self.games_path):
            writer(self.game, self.games_path, "games").write_games(self.games_path, map(self.played, results))
        lines = [_line(result, None) for result in results[:-1]]
        lines.append(_line(results[-1], self.games_path.stat().st_size))
        write_atomic(self.path, b"".join(lines))

    def _write(self, result: GameResult) -> None:
        """Add a game to the games file, then to the lines."""
        size = None
        if self.games_path is not None:
            with full_disk_named(self.games_path):
                writer(self.game, self.games_path, "games").write_game(self.games_path, self.played(result))
                size = self.games_path.stat().st_size
        with full_disk_named(self.path), self.path.open("ab") as file:
            file.write(_line(result, size))


def _line(result: GameResult, games_file_bytes: int | None) -> bytes:
    row = {**result.to_dict(), "games_file_bytes": games_file_bytes}
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()
