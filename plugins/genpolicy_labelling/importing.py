"""Imports positions from files (games, position lists, records) or from a game that can list all of its positions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genpolicy.data.records import Record
from genpolicy.errors import SourceError
from genpolicy.facets import reader
from genpolicy.files import files_of, sha256_of
from genpolicy.game import Game, PlayedGame, Position
from genpolicy_common.arguments import MAX_SHOWN
from genpolicy_labelling.splits import SplitFractions, checked_split
from genpolicy_labelling.writer import DatasetWriter

ALL = "all"
"""Stands for every position of a game that can list them."""


@dataclass
class ImportReport:
    """What an import read and left out."""

    num_games: int = 0
    num_positions: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """Entries left out, by reason, and best moves of a position after its first."""
    shown: list[str] = field(default_factory=list)
    """The first bad entries, with file and line."""


def describe_sources(sources: Sequence[str]) -> list[dict[str, Any]]:
    """File and SHA-256 of every source; a folder or a glob stands for its files.

    Raises:
        SourceError: no such file, or a source is given twice.
    """
    described: list[dict[str, Any]] = []
    seen: set[str] = set()
    for source in sources:
        if (path := os.path.realpath(source)) in seen:
            raise SourceError(f"{source}: given twice, and its games count once; leave one of them out")
        seen.add(path)
        if source == ALL:
            described.append({"file": ALL})
            continue
        files = files_of(Path(source))
        if not files:
            raise SourceError(
                f"{source}: no such file, or no file in it; give a file, a folder or a glob in quotes "
                f"(e.g. 'games/*.pgn'), or {ALL!r} for every position of a small game"
            )
        described += [{"file": str(file), "sha256": sha256_of(file)} for file in files]
    return described


def import_sources(
    game: Game[Any],
    sources: Sequence[str],
    writer: DatasetWriter,
    splits: SplitFractions,
    *,
    skip_bad: bool = False,
    max_games: int | None = None,
    max_positions: int | None = None,
    progress: Callable[[ImportReport], None] = lambda report: None,
) -> ImportReport:
    """Write one record for each position of the sources, in their order.

    Every position of a game in which a move was played becomes a record, draws by rule included. Other positions in
    which the game is over, by rule too, hold nothing to learn; they are left out and counted.

    Args:
        game: Game of the positions.
        sources: Files, folders, globs, or ``"all"``.
        writer: Writes the data set; unit i is entry i of the sources.
        splits: Fractions of the splits. Games are split by their moves, or by their id if they are rows of positions; a
            position without a game keeps its source's split, or else shares one with its symmetric copies.
        skip_bad: Leave unreadable entries out and count them; otherwise the first one is an error.
        max_games: Stop after this many games. Among positions, a game is a run of rows with one game id; positions
            without an id are not counted.
        max_positions: Stop after this many records; the last game is kept whole.
        progress: Called after each entry.

    Raises:
        SourceError: an unreadable entry or a game with a wrong result (without ``skip_bad``), an unknown kind of file,
            or nothing to import.
    """
    report = ImportReport()

    def on_bad(error: SourceError) -> None:
        if not skip_bad:
            raise SourceError(f"{error} (--skip-bad skips such entries)") from error
        report.skipped["unreadable"] += 1
        if len(report.shown) < MAX_SHOWN:
            report.shown.append(str(error))

    entries = _entries(game, sources, on_bad, on_bad if skip_bad else None)
    last_game: str | None = None
    for unit, (prefix, entry) in enumerate(entries):
        game_id = _game_id(prefix, entry)
        if isinstance(entry, Position) and game_id not in (None, last_game):
            if report.num_games == max_games:
                break  # before the first row of the next game
            last_game = game_id
            report.num_games += 1
        if isinstance(entry, PlayedGame):
            try:
                records = list(_game_records(game, entry, game_id, splits))
                report.num_games += 1
            except SourceError as error:
                records = []
                on_bad(error)
        else:
            records = _position_records(game, entry, game_id, splits, report, on_bad)
        if not writer.is_done(unit):
            writer.add(unit, records)
        report.num_positions += len(records)
        progress(report)
        whole = isinstance(entry, PlayedGame)  # a game of several rows may continue in the next one
        if (whole and report.num_games == max_games) or (
            max_positions is not None and report.num_positions >= max_positions
        ):
            break
    if report.num_positions == 0:
        reasons = ", ".join(f"{number} {reason}" for reason, number in report.skipped.items())
        first = f", the first: {report.shown[0]}" if report.shown else ""
        left_out = f" (left out: {reasons}{first})" if reasons else ""
        raise SourceError(
            f"{', '.join(sources)}: nothing to import{left_out}; "
            "give a source with a game, or with a position to move in"
        )
    return report


Entry = PlayedGame | Position


def _entries(
    game: Game[Any],
    sources: Sequence[str],
    on_bad: Callable[[SourceError], None] | None,
    skip_source: Callable[[SourceError], None] | None = None,
) -> Iterator[tuple[str, Entry]]:
    """Entries, each with a prefix that keeps the ids of whole games of several sources apart.

    If a source cannot be read any further, the rest of it is left out and the error is given to ``skip_source``, unless
    it is the only one and nothing of it could be read.
    """
    for number, source in enumerate(sources):
        # One source keeps its own ids; among several, two files may have the same name.
        prefix = f"{number}/" if len(sources) > 1 else ""
        if source == ALL:
            for state in game.positions():
                if game.chance(state) is None:
                    yield prefix, Position(game.format(state), where=ALL)
            continue
        path = Path(source)
        files = reader(game, path, "games", "positions")
        kind = files.source_kind(path)
        opened: Iterator[Entry] = (
            files.open_games(path, on_bad) if kind == "games" else files.open_positions(path, on_bad)
        )
        some = len(sources) > 1
        try:
            for entry in opened:
                some = True
                yield prefix, entry
        except SourceError as error:
            if skip_source is None or not some:
                raise
            skip_source(error)


def _game_id(prefix: str, entry: Entry) -> str | None:
    """The game's id in the data set. The rows of a table keep theirs, since those of one game may lie in several."""
    if entry.game_id is None or (isinstance(entry, Position) and not entry.is_whole_in_source):
        return entry.game_id
    return prefix + entry.game_id


def _game_records(game: Game[Any], played: PlayedGame, game_id: str | None, splits: SplitFractions) -> Iterator[Record]:
    """One record for each move.

    Raises:
        SourceError: the result contradicts the position in which the game ended.
    """
    # By content, so that a game which two files hold is in one split.
    split = splits.of(f"game|{played.start}|{' '.join(map(str, played.moves))}")
    state = game.parse(played.start)
    for ply, move in enumerate(played.moves):
        yield Record(
            state=game.format(state),
            game_id=game_id,
            ply=ply,
            played=game.moves[move],
            result=played.result,
            split=split,
        )
        state = game.play(state, move)
    # Where there are legal moves, the players may have continued beyond a drawn repetition, and one then resigned.
    if played.result is None or len(game.legal(state)) > 0 or (outcome := game.outcome(state)) is None:
        return
    ruled = outcome if game.player(state) == 0 else -outcome
    if played.result != ruled:
        raise SourceError(
            f"{played.where or played.game_id}: the result {played.result:g} for {game.players[0]} contradicts the end "
            f"of the game ({ruled + 0.0:g} by the rules), in {game.format(state)!r}"
        )


def _position_records(
    game: Game[Any],
    position: Position,
    game_id: str | None,
    splits: SplitFractions,
    report: ImportReport,
    on_bad: Callable[[SourceError], None],
) -> list[Record]:
    state = game.parse(position.text)
    if game.is_over(state) and (position.played is None or len(game.legal(state)) == 0):
        report.skipped["game over"] += 1
        return []
    if position.game_id is not None:
        split: str | None = splits.of(f"game|{position.game_id}")
    else:
        try:
            split = checked_split(position.split) or splits.of_position(game, state)
        except ValueError as error:
            on_bad(SourceError(f"{position.where}: {error}"))
            return []
    if position.num_other_best:
        report.skipped["further best moves"] += position.num_other_best
    line, ended = _to_the_end(game, state, position.line)
    return [
        Record(
            state=position.text,
            game_id=game_id,
            ply=position.ply,
            line=" ".join(line) or None,
            ended=bool(line) and (ended or position.ended),
            scores=position.scores[: max(1, len(line))],
            played=position.played,
            result=position.result,
            split=split,
            policy=position.policy,
        )
    ]


def _to_the_end(game: Game[Any], state: Any, line: Sequence[str]) -> tuple[Sequence[str], bool]:
    """A line up to the end of the game (draws by rule included, as in labelling), and whether it reaches that end."""
    for played, text in enumerate(line, start=1):
        state = game.play(state, game.moves.index(text))
        if game.outcome(state) is not None:
            return line[:played], True
    return line, False


def read_openings(game: Game[Any], source: str) -> tuple[str, ...]:
    """Texts of the positions of a file; for a file of games, the position in which each game ends.

    Raises:
        SourceError: the file is unreadable, or holds no position to begin from.
    """
    texts: dict[str, None] = {}
    for _, entry in _entries(game, [source], None):
        if isinstance(entry, Position):
            texts[entry.text] = None
            continue
        state = game.parse(entry.start)
        for move in entry.moves:
            state = game.play(state, move)
        texts[game.format(state)] = None
    playable = tuple(text for text in texts if game.outcome(game.parse(text)) is None)
    if not playable:
        raise SourceError(f"{source}: holds no position in which a game can begin")
    return playable
