"""Mate problems (tsume): the shortest forced mate by checks, and files of problems.

Every move of the attacker gives check; the defender answers with any legal move, and every answer counts as a ply, an
interposed piece that is merely captured (無駄合) too, as engines count. So the length of a problem is the number of
plies that best play of both sides takes. Mate by a dropped pawn is illegal. The attacker may have no king.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cshogi

from genpolicy.control import FREE
from genpolicy.errors import SourceError
from genpolicy.files import csv_rows, refuse
from genpolicy.game import Game, OnBad, Puzzle
from genpolicy_shogi.files import Source, read_lines
from genpolicy_shogi.replay import Replay

COLUMNS = ("id", "sfen", "moves", "mate_length")
MAX_POSITIONS = 400_000
"""Positions that a search remembers before it forgets all of them (about 100 MB)."""
MAX_CHECKED_PLIES = 13
"""Longest problem whose length is searched when it is read; beyond, a search may take minutes."""
SHORTER = "shorter than stated"
"""Theme of a problem for which its file gives a longer mate than the shortest."""
_SUFFIXES = (".csv", ".sfen", ".txt")
_NEVER = 1 << 20


class MateSearch:
    """Finds shortest mates and remembers what it found from one call to the next.

    A depth-first search of checks and answers, deeper by two plies each time; of every position it keeps the shortest
    mate found and the greatest depth without one, and the move that decided.
    """

    def __init__(self) -> None:
        # By zobrist key: [plies of the shortest mate known, depth that is known to hold none, move to try first].
        self._attack: dict[int, list[int]] = {}
        self._defence: dict[int, list[int]] = {}
        self._check = FREE.check
        self.num_nodes = 0
        """Moves made so far, a measure of work."""

    def distance(self, sfen: str, max_plies: int, check: Callable[[], None] = FREE.check) -> int | None:
        """Plies of the shortest forced mate, odd; None where there is none within ``max_plies``.

        Args:
            sfen: A legal position, the attacker to move.
            max_plies: The longest mate to look for; the work grows fast with it.
            check: Called before each position of the attacker; what it raises ends the search.
        """
        self._check = check
        if len(self._attack) + len(self._defence) > MAX_POSITIONS:
            self._attack.clear()
            self._defence.clear()
        return self._distance(cshogi.Board(sfen), max_plies)

    def line(self, sfen: str, plies: int) -> list[str]:
        """A shortest mate, in USI: the attacker mates as fast as possible and the defender holds out as long.

        Args:
            sfen: A position with a forced mate.
            plies: ``distance`` of it.
        """
        board: Any = cshogi.Board(sfen)
        line: list[int] = []
        while True:
            self._mates(board, plies)
            line.append(self._attack[board.zobrist_hash()][2])
            board.push(line[-1])
            if plies == 1:
                return [cshogi.move_to_usi(move) for move in line]
            held: dict[int, int] = {}
            for move in board.legal_moves:
                board.push(move)
                held[move] = self._distance(board, plies - 2) or 0
                board.pop()
            line.append(max(held, key=held.__getitem__))
            board.push(line[-1])
            plies = held[line[-1]]

    def check_line(self, sfen: str, moves: list[str]) -> None:
        """Check that every move of the attacker keeps the shortest mate, whatever the defender answers.

        Args:
            sfen: A position whose ``distance`` is the number of moves.
            moves: A legal line in USI that ends in mate.

        Raises:
            ValueError: one does not, or a shorter defence is given.
        """
        board: Any = cshogi.Board(sfen)
        for ply, usi in enumerate(moves):
            left = len(moves) - ply - 1  # plies after this one
            board.push(board.move_from_usi(usi))
            if ply % 2 == 0 and not self._is_mated(board, left):
                raise ValueError(f"move {ply + 1} {usi!r} does not force mate within {left} more plies")
            if ply % 2 and left > 1 and self._mates(board, left - 2):
                raise ValueError(
                    f"move {ply + 1} {usi!r} is not a longest defence: it is mate within {left - 2} more plies"
                )

    def _distance(self, board: Any, max_plies: int) -> int | None:
        return next((plies for plies in range(1, max_plies + 1, 2) if self._mates(board, plies)), None)

    def _mates(self, board: Any, depth: int) -> bool:
        """Whether the player to move mates within ``depth`` plies, an odd number."""
        self._check()
        known = self._attack.setdefault(board.zobrist_hash(), [_NEVER, 0, 0])
        if known[0] <= depth:
            return True
        if known[1] >= depth:
            return False
        checks = list(board.check_moves)
        if known[2] in checks:
            checks.remove(known[2])
            checks.insert(0, known[2])
        for move in checks:
            self.num_nodes += 1
            board.push(move)
            mated = self._is_mated(board, depth - 1)
            board.pop()
            if mated:
                known[0], known[2] = depth, move
                return True
        known[1] = depth
        return False

    def _is_mated(self, board: Any, depth: int) -> bool:
        """Whether every answer of the player to move, who is in check, is mated within ``depth`` plies in all."""
        if depth == 0:
            return bool(board.is_game_over())
        known = self._defence.setdefault(board.zobrist_hash(), [_NEVER, -1, 0])
        if known[0] <= depth:
            return True
        if known[1] >= depth:
            return False
        answers = list(board.legal_moves)
        if known[2] in answers:  # what refuted this before, at a lesser depth, likely does again
            answers.remove(known[2])
            answers.insert(0, known[2])
        for move in answers:
            self.num_nodes += 1
            board.push(move)
            mates = self._mates(board, depth - 1)
            board.pop()
            if not mates:
                known[1], known[2] = depth, move
                return False
        known[0] = depth
        return True


def find_files(path: Path) -> list[Source]:
    """The files of problems that a path stands for: a file, or those of a folder.

    Raises:
        SourceError: there are none.
    """
    accepted = f"mate problems come as .csv with columns {', '.join(COLUMNS)}, or as lists of SFENs (.sfen, .txt)"
    if path.is_dir():
        inside = (Source(file) for file in sorted(path.iterdir()) if not file.name.startswith("."))
        found = [source for source in inside if source.suffix in _SUFFIXES]
    elif path.is_file():
        found = [source for source in [Source(path)] if source.suffix in _SUFFIXES]
    else:
        raise SourceError(f"{path}: no such file or folder; {accepted}")
    if not found:
        raise SourceError(f"{path}: holds no file of mate problems; {accepted}")
    return found


def read_puzzles(game: Game[Any], search: MateSearch, source: Source, on_bad: OnBad | None) -> Iterator[Puzzle]:
    """Mate problems of a file, streamed: a CSV with a header, of whose columns ``sfen`` is needed, or a list of SFENs.

    Up to ``MAX_CHECKED_PLIES`` the length is searched, not believed: where there is a mate shorter than the file's, its
    line is the solution and the puzzle gets the theme ``SHORTER``; else the file's own line must force the mate. Longer
    problems are taken as the file has them, their lines unverified.

    Raises:
        SourceError: a problem that is unreadable, illegal, without a mate or with a line that forces none (only without
            ``on_bad``), a header without ``sfen``, or no problem in the file.
    """
    names: list[str] | None = None if source.suffix == ".csv" else ["sfen"]
    count = 0
    lines = read_lines(source)
    for number, line in csv_rows(lines) if source.suffix == ".csv" else lines:
        if not line.strip() or (source.suffix != ".csv" and line.lstrip().startswith("#")):
            continue
        where = f"{source.label}:{number}"
        if names is None:
            try:
                names = [name.lower() for name in _row(line)]
            except ValueError as error:
                raise SourceError(f"{where}: {error}") from error
            if "sfen" not in names:
                raise SourceError(f"{where}: the header has no column sfen; it has {', '.join(names)}")
            continue
        count += 1
        try:
            yield _puzzle(game, search, _cells(line, names), where, number)
        except ValueError as error:
            refuse(SourceError(f"{where}: {error}"), on_bad, error)
    if count == 0:
        raise SourceError(f"{source.label}: holds no problem; expected rows of {', '.join(COLUMNS)}")


def _cells(line: str, names: list[str]) -> dict[str, str]:
    if names == ["sfen"]:
        words = line.split()
        return {"sfen": " ".join(words[1:] if words[0] == "sfen" else words)}
    cells = _row(line)
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} cells for {len(names)} columns ({', '.join(names)})")
    return dict(zip(names, cells, strict=True))


def _row(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))]
    except csv.Error as error:
        raise ValueError(f"not comma-separated values ({error}): {line[:200]!r}") from error


def _puzzle(game: Game[Any], search: MateSearch, row: dict[str, str], where: str, number: int) -> Puzzle:
    text = game.format(game.parse(row["sfen"]))
    moves = row.get("moves", "").split()
    stated = row.get("mate_length", "")
    if stated and not (stated.isascii() and stated.isdigit() and len(stated) < 5 and int(stated) % 2):
        raise ValueError(f"mate_length must be an odd number, got {stated[:20]!r}")
    length = int(stated) if stated else len(moves) or None
    if moves:
        _check_line(text, moves)
        if len(moves) != length:
            raise ValueError(f"mate_length is {length} and there are {len(moves)} moves")
    themes: tuple[str, ...] = ()
    verified = False
    if not moves or length is None or length <= MAX_CHECKED_PLIES:
        found = search.distance(text, min(length or MAX_CHECKED_PLIES, MAX_CHECKED_PLIES))
        if found is None:
            raise ValueError(f"no mate within {length or MAX_CHECKED_PLIES} plies in {text!r}")
        if length is not None and found < length:
            themes = (SHORTER,)
        if not moves or found != length:
            moves = search.line(text, found)
        else:
            search.check_line(text, moves)
        length, verified = found, True
    solution = tuple(game.moves.index(usi) for usi in moves)
    name = row.get("id") or str(number)
    return Puzzle(name, where, text, (), solution, rule="mate", themes=themes, mate_in=length, verified=verified)


def _check_line(text: str, moves: list[str]) -> None:
    """Check that a line is legal, the attacker's moves give check, and it ends in mate.

    Raises:
        ValueError: one of these does not hold.
    """
    replay = Replay(text)
    for ply, usi in enumerate(moves):
        replay.play_usi(usi)
        if ply % 2 == 0 and not replay.board.is_check():
            raise ValueError(f"move {ply + 1} {usi!r} does not give check")
    if len(moves) % 2 == 0 or replay.legal():
        raise ValueError(f"the moves {' '.join(moves)!r} do not mate")
