"""The folder of a tournament: what is played, and the games, so that a kill at any moment loses none and doubles none.

``tournament.json`` says what is played. ``games.jsonl`` has a line for each finished game, and the games file in the
game's usual format (``games.pgn``, ...) has the game itself. While the tournament runs, a finished game is first put
into a store (``genpolicy_common.store``): what a kill left out of the two files is written to them when the tournament
is resumed. A line records the length of the games file after its game, so that what a kill tore there can be cut off.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from genpolicy.facets import writer
from genpolicy.files import full_disk_named, read_json, write_atomic
from genpolicy.folder_lock import FolderLock
from genpolicy.game import Game, PlayedGame
from genpolicy_arena.match import ENDINGS, GameResult, is_text, is_whole
from genpolicy_common.store import Store, remove_store

MANIFEST = "tournament.json"
LINES = "games.jsonl"
GAMES = "games"
JOURNAL_FILE, PURPOSE, TABLE = "journal.sqlite", "an unfinished tournament", "games"
GROWING = ("rounds",)
"""Keys of the manifest that may be larger when a tournament is resumed."""
CHECKSUMS = "checksums"
"""Key of the manifest: checksums of the policies' folders, by player and folder. Earlier versions wrote none."""

_ENTRIES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "event": ("text", is_text),
    "players": ("at least two spellings by name", lambda value: _is_mapping(value, is_text) and len(value) >= 2),
    "rounds": ("a whole number of at least 1", lambda value: is_whole(value, 1)),
    "games_at_once": ("an even number of at least 2", lambda value: is_whole(value, 2) and value % 2 == 0),
    CHECKSUMS: (
        "checksums by player and folder",
        lambda value: _is_mapping(value, lambda sums: _is_mapping(sums, is_text)),
    ),
}
"""Entries of the manifest that are read: what each may be, and a test of it. The others only have to be equal."""


class TournamentFolder:
    """The folder of a tournament that is played; a context manager. Leaving it without an error removes the store.

    Args:
        folder: Created if it is missing. A tournament of genpolicy 0.1, finished or not, has no store: its games are
            read from their lines.
        game: The game.
        manifest: What is played, plain data; a folder that holds something else is refused.
        specs: Spelling of each player, for the headers of games.

    Raises:
        ValueError: the folder holds another tournament, or something else, or a damaged line or a pipe; a policy's
            folder has changed.
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
        self._line_of: dict[int, int] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for pipe in filter(Path.is_fifo, folder.iterdir()):
            raise ValueError(f"{pipe}: is a pipe, and nothing may be waiting at its other end; delete it")
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

    def where(self, number: int) -> str:
        """File and line that a game was read from, for messages."""
        line = self._line_of.get(number)
        return str(self.folder / JOURNAL_FILE) if line is None else f"{self.path}:{line}"

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
            "Termination": ENDINGS[result.ended][1],
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
        known = read_manifest(path)
        for key in ("event", "games_at_once"):  # kept from the beginning
            wanted[key] = known.get(key, wanted.get(key))
        for key in sorted((known.keys() | wanted.keys()) - {CHECKSUMS}):
            before = known.get(key, 0)
            grows = key in GROWING and isinstance(before, int) and wanted.get(key, 0) >= before
            if known.get(key) != wanted.get(key) and not grows:
                raise ValueError(
                    f"{self.folder}: holds a tournament with {key} {known.get(key)!r}, not {wanted.get(key)!r}; name a "
                    "new folder with --out, or resume it with the same options"
                )
        self._require_same_policies(known, wanted)
        if known != wanted:
            write_atomic(path, (json.dumps(wanted, indent=2) + "\n").encode())
        return wanted

    def _require_same_policies(self, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        if CHECKSUMS not in known:  # as before checksums were kept, or without folders: what is there now counts
            return
        before, now = known[CHECKSUMS], wanted.get(CHECKSUMS, {})
        for name in sorted(before.keys() | now.keys()):
            old, new = before.get(name, {}), now.get(name, {})
            for folder in sorted(old.keys() | new.keys()):
                if old.get(folder) != new.get(folder):
                    raise ValueError(
                        f"{self.folder}: the policy of {name!r} is another one than in the games played so far: the "
                        f"checksum of {folder} was {_short(old.get(folder))} and is {_short(new.get(folder))}. Games "
                        "of two policies are never mixed: name a new folder with --out, or put the policy back"
                    )

    def _resume(self, store: Store) -> None:
        """Read what was played, and make store, lines and games file hold the same games."""
        for key, row in store.items(TABLE):
            try:
                result = _game_of(row, self.manifest["players"])
            except ValueError as error:
                raise self._damaged_game(key, error) from error
            self.results[result.number] = result
        lines = self._read_lines()
        self._line_of = {result.number: line for line, result, _ in lines}
        known = set(self._line_of)
        with store.transaction():
            for line, result, _ in lines:
                if result.number not in self.results:  # a finished tournament, or one of genpolicy 0.1
                    store.put(TABLE, str(result.number), result.to_dict())
                    self.results[result.number] = result
                elif _essence(result) != _essence(self.results[result.number]):
                    raise ValueError(_damaged(self.path, line, f"another game or result than in {JOURNAL_FILE}"))
        if self._cut_games_file(lines[-1][2] if lines else 0):
            for number, result in self.results.items():
                if number not in known:
                    self._require_legal(result)
                    self._write(result)
        else:
            self._rewrite()

    def _read_lines(self) -> list[tuple[int, GameResult, int | None]]:
        """What ``read_lines`` gives of the lines; cuts off a torn last line."""
        whole = whole_lines(self.path)
        lines = list(read_lines(self.path, whole, self.manifest.get("players", {})))
        if self.path.exists() and len(whole) < self.path.stat().st_size:
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
        for result in results:
            self._require_legal(result)
        with full_disk_named(self.games_path):
            writer(self.game, self.games_path, "games").write_games(self.games_path, map(self.played, results))
        lines = [_line(result, None) for result in results[:-1]]
        lines.append(_line(results[-1], self.games_path.stat().st_size))
        write_atomic(self.path, b"".join(lines))
        self._line_of = {result.number: line for line, result in enumerate(results, 1)}

    def _require_legal(self, result: GameResult) -> None:
        """Check a game's moves: the writers of games rely on them.

        Raises:
            ValueError: one of them is illegal, or the first position cannot be read.
        """
        try:
            state = self.game.parse(result.start)
            for ply, text in enumerate(result.moves, 1):
                move = self.game.moves.index(text)
                if move not in self.game.legal(state):
                    raise ValueError(f"move {ply}, {text!r}, is illegal in {self.game.format(state)!r}")
                state = self.game.play(state, move)
        except ValueError as error:
            raise self._damaged_game(result.number, error) from error

    def _damaged_game(self, number: int | str, error: ValueError) -> ValueError:
        """The error about a game of a line or, named by the key of its entry, of the store."""
        if isinstance(number, int) and (line := self._line_of.get(number)) is not None:
            return ValueError(_damaged(self.path, line, error))
        return ValueError(
            f"{self.folder / JOURNAL_FILE}: damaged (game {number}: {error}); delete it, and the games that no line of "
            f"{LINES} has are played again"
        )

    def _write(self, result: GameResult) -> None:
        """Add a game to the games file, then to the lines."""
        size = None
        if self.games_path is not None:
            with full_disk_named(self.games_path):
                writer(self.game, self.games_path, "games").write_game(self.games_path, self.played(result))
                size = self.games_path.stat().st_size
        with full_disk_named(self.path), self.path.open("ab") as file:
            file.write(_line(result, size))


def read_manifest(path: Path) -> dict[str, Any]:
    """What a ``tournament.json`` says.

    Raises:
        ValueError: it is damaged, or an entry has a value that no tournament has.
    """
    try:
        known = read_json(path)
        if not isinstance(known, dict):
            raise ValueError(f"must be a mapping, got {reprlib.repr(known)}")
        for key, (allowed, fits) in _ENTRIES.items():
            if key in known and not fits(known[key]):
                raise ValueError(f"{key} must be {allowed}, got {reprlib.repr(known[key])}")
    except ValueError as error:
        raise ValueError(
            f"{path}: damaged ({error}); put the file back as it was, or play the tournament in a new folder"
        ) from error
    return known


def whole_lines(path: Path) -> bytes:
    """What a ``games.jsonl`` holds, if it exists, without a last line that has no end: it is being written, or torn."""
    if not path.exists():
        return b""
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]


def read_lines(path: Path, data: bytes, players: Container[str]) -> Iterator[tuple[int, GameResult, int | None]]:
    """The games of a ``games.jsonl``, each with its line, from 1, and the length of the games file after it.

    Args:
        path: The file, for messages.
        data: Its content (``whole_lines``).
        players: Names of the tournament's players.

    Raises:
        ValueError: a line is damaged, or a game has two.
    """
    line_of: dict[int, int] = {}
    length = 0
    for line, text in enumerate(data.splitlines(), 1):
        try:
            row = json.loads(text)
            size = row.pop("games_file_bytes", None) if isinstance(row, dict) else None
            result = _game_of(row, players)
            if result.number in line_of:
                raise ValueError(f"game {result.number + 1} has line {line_of[result.number]}, too")
            if size is not None and not is_whole(size, length + 1):
                raise ValueError(
                    f"games_file_bytes must be null or more than {length}, as on the lines before, got "
                    f"{reprlib.repr(size)}"
                )
        except (ValueError, RecursionError) as error:
            raise ValueError(_damaged(path, line, error)) from error
        line_of[result.number] = line
        length = size or length
        yield line, result, size


def _game_of(row: Any, players: Container[str]) -> GameResult:
    """The game that a line or an entry of the store holds.

    Raises:
        ValueError: it holds none, or one of other players.
    """
    if not isinstance(row, dict):
        raise ValueError(f"must be a mapping, got {reprlib.repr(row)}")
    result = GameResult.from_dict(row)
    for key in ("first", "second"):
        if row[key] not in players:
            raise ValueError(f"{key} is {reprlib.repr(row[key])}, which {MANIFEST} does not list as a player")
    return result


def _damaged(path: Path, line: int, error: object) -> str:
    return (
        f"{path}:{line}: damaged ({error}); remove the line and the games file beside it: the tournament's command "
        "writes the file anew and plays what is missing"
    )


def _essence(result: GameResult) -> tuple[object, ...]:
    """What two lines of one game share; a game that was played again has another time."""
    return result.first, result.second, result.start, result.moves, result.result, result.ended


def _is_mapping(value: object, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(is_text(key) and fits(each) for key, each in value.items())


def _short(checksum: str | None) -> str:
    return "unknown" if checksum is None else checksum[:12]


def _line(result: GameResult, games_file_bytes: int | None) -> bytes:
    row = {**result.to_dict(), "games_file_bytes": games_file_bytes}
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()
