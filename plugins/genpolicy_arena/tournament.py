"""Round robins and gauntlets, played by several processes and kept in a folder.

A game's number determines its round (and so its opening), its pairing and its colours. Games are played in groups of
consecutive numbers (see ``match``), which processes take one after the other, so results do not depend on the number of
processes. After a kill, groups that were not finished are played again; the games of them that are known are not kept
twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from genpolicy.game import Game
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.match import GameResult, GameTask
from genpolicy_arena.openings import Opening
from genpolicy_arena.ratings import RatedGame
from genpolicy_arena.results import CHECKSUMS, TournamentFolder
from genpolicy_arena.sprt import SprtConfig, SprtState, state_of
from genpolicy_arena.workers import Setup, run_groups
from genpolicy_common.cluster import Cluster
from genpolicy_common.shipping import folders_of

FORMATS = ("round-robin", "gauntlet")
Note = Callable[[str], None]


@dataclass(frozen=True)
class TournamentConfig:
    """Everything that decides the games."""

    game: str
    """The game's specification."""
    players: dict[str, str]
    """Name -> folder or spelling, in order; in a gauntlet the first one plays the others."""
    openings: list[Opening] = field(default_factory=list)
    """One for each round."""
    format: str = "round-robin"
    rules: Adjudication = field(default_factory=Adjudication)
    seed: int = 0
    device: str = "cpu"
    """Device of the networks."""
    event: str = "genpolicy tournament"
    """Name for the headers of games."""
    sprt: SprtConfig | None = None
    """Test that stops a tournament of two players early (sequential probability ratio test), if any."""
    paired: bool = True
    """The test counts pairs of games, else single games."""
    group_size: int | None = None
    """Games that are played in step, an even number, so that pairs stay together. More make batches larger; fewer leave
    less to play again after a kill. None chooses by the size of the tournament."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {self.format!r}")
        if len(self.players) < 2:
            raise ValueError(f"a tournament needs at least two players, got {len(self.players)}")
        if self.sprt is not None and len(self.players) != 2:
            raise ValueError(f"--sprt tests two players against each other, got {len(self.players)}")
        if self.group_size is not None and (self.group_size < 2 or self.group_size % 2):
            raise ValueError(f"games at once must be an even number of at least 2, got {self.group_size}")
        if not self.openings:
            raise ValueError("a tournament needs at least one round (one opening)")

    @property
    def pairings(self) -> list[tuple[str, str]]:
        """Pairs of players that meet."""
        names = list(self.players)
        if self.format == "gauntlet":
            return [(names[0], other) for other in names[1:]]
        return list(itertools.combinations(names, 2))

    def tasks(self) -> list[GameTask]:
        """All games by number: by round, then by pairing, then by colours."""
        tasks: list[GameTask] = []
        for number, opening in enumerate(self.openings):
            for one, other in self.pairings:
                pair = f"{number}|{one}|{other}"
                for first, second in ((one, other), (other, one)):
                    tasks.append(GameTask(len(tasks), number, pair, first, second, opening))
        return tasks

    def games_at_once(self) -> int:
        """Games in a group; few in a small tournament, so that there are groups for all processes."""
        return self.group_size or max(2, min(16, 2 * (len(self.openings) * len(self.pairings) // 8)))

    @cached_property
    def checksums(self) -> dict[str, dict[str, str]]:
        """Checksums of the folders of policies when first asked for, by player (or ``--judge``) and folder."""
        spellings = {**self.players, "--judge": self.rules.judge or ""}
        found = {name: folders_of([spelling]) for name, spelling in spellings.items()}
        return {name: checksums for name, checksums in found.items() if checksums}

    def manifest(self) -> dict[str, Any]:
        """Content of ``tournament.json``; tournaments with equal manifests and openings play the same games."""
        rows = asdict(self.rules)
        return {
            "event": self.event,
            "game": self.game,
            "format": self.format,
            "players": self.players,
            "rules": {key: list(value) if isinstance(value, tuple) else value for key, value in rows.items()},
            "seed": self.seed,
            "rounds": len(self.openings),
            "games_at_once": self.games_at_once(),
            "sprt": None if self.sprt is None else asdict(self.sprt),
            "paired": self.paired,
            **({CHECKSUMS: self.checksums} if self.checksums else {}),
        }


@dataclass
class TournamentOutcome:
    """The games of a tournament and what came up."""

    results: list[GameResult]
    """Finished games by number."""
    num_planned: int
    sprt: SprtState | None
    warnings: list[str]

    @property
    def forfeits(self) -> list[GameResult]:
        """Games lost by a crash, a hang or an illegal move."""
        return [result for result in self.results if result.ended == "forfeit"]


def rated(results: Sequence[GameResult]) -> list[RatedGame]:
    """Games in the form that ratings take."""
    return [RatedGame(each.first, each.second, each.result, each.pair) for each in results]


class SprtWatch:
    """Runs the test over games in the order of their numbers, in whichever order they end.

    Its verdict is therefore the same for any number of processes.

    Args:
        config: The tournament; it has a test.
    """

    def __init__(self, config: TournamentConfig) -> None:
        assert config.sprt is not None
        self.test, self.paired = config.sprt, config.paired
        self.player = next(iter(config.players))
        self._games: dict[int, GameResult] = {}
        self._next = 0
        self._counts = [0] * (5 if self.paired else 3)
        self._played: set[tuple[tuple[str, str, tuple[str, ...]], ...]] = set()
        self.state = state_of(self.test, self._counts)

    def add(self, result: GameResult) -> None:
        """Add a game; the test advances over the games whose predecessors are all known."""
        self._games[result.number] = result
        size = 2 if self.paired else 1
        while self.state.verdict is None and all(self._next + i in self._games for i in range(size)):
            games = [self._games[self._next + i] for i in range(size)]
            points = [(1 + each.result) / 2 for each in games]
            total = sum(p if each.first == self.player else 1 - p for p, each in zip(points, games, strict=True))
            self._counts[round(2 * total)] += 1
            self._played.add(tuple((each.first, each.start, each.moves) for each in games))
            self._next += size
            self.state = state_of(self.test, self._counts)

    @property
    def warning(self) -> str | None:
        """A text if the test counted the same game, or pair of games, more than once."""
        counted, distinct = sum(self._counts), len(self._played)
        if counted == distinct:
            return None
        kind = "pairs of games" if self.paired else "games"
        return (
            f"the test counted {counted} {kind}, {distinct} of them distinct: it takes repeats for independent "
            "results, so its verdict is less certain than it says; play from more openings"
        )


def _check_known(played: TournamentFolder, tasks: Sequence[GameTask]) -> None:
    """Check that the games played so far are games of this tournament.

    Raises:
        ValueError: one of them is not, as when a book was changed or the players come in another order.
    """
    moves = played.game.moves
    for number, known in played.results.items():
        if number >= len(tasks):
            raise ValueError(
                f"{played.where(number)}: game {number + 1} is none of this tournament's {len(tasks)} games. Name a "
                "new folder with --out"
            )
        task = tasks[number]
        planned = task.opening
        opening = (known.start, known.moves[: known.opening_plies])
        if opening != (planned.start, tuple(moves[move] for move in planned.moves)):
            raise ValueError(
                f"{played.where(number)}: game {number + 1} began from another opening than in this tournament: were "
                "--openings, their file or --random-plies changed? Name a new folder with --out"
            )
        meeting = (known.first, known.second, known.round, known.pair)
        if meeting != (task.first, task.second, task.round, task.pair):
            raise ValueError(
                f"{played.where(number)}: game {number + 1} is {known.first!r} against {known.second!r} in round "
                f"{known.round + 1}, and in this tournament it is {task.first!r} against {task.second!r} in round "
                f"{task.round + 1}: were the players given in another order? Give them in that of before, or name a "
                "new folder with --out"
            )


def run_tournament(
    config: TournamentConfig,
    game: Game[Any],
    folder: Path,
    *,
    workers: int = 1,
    threads: int = 1,
    progress: Callable[[int, int, SprtState | None], None] = lambda done, planned, sprt: None,
    note: Note = lambda text: None,
    cluster: Cluster | None = None,
) -> TournamentOutcome:
    """Play the missing games of a tournament.

    Args:
        config: The tournament.
        game: Its game.
        folder: Where games are kept (``TournamentFolder``); a tournament that was stopped is resumed.
        workers: Number of processes; 1 plays in this process.
        threads: Threads for a network in each process. Another number may change the last digits of its outputs.
        progress: Called with the number of finished games, of planned games, and the state of the test, at the
            beginning and after each game.
        note: Called with texts for the user: forfeits, a judge that fails, workers of a cluster.
        cluster: Where the workers run, in place of processes of this machine; it is closed in the end.

    Raises:
        ValueError: the folder holds something else; a policy cannot be loaded or plays another game.
        LockedError: another process plays there.
        ClusterError: the cluster's workers cannot be used.
        EngineError: an engine cannot be started, or a worker process died.
    """
    tasks = config.tasks()
    warnings: dict[str, int] = {}

    def warn(text: str) -> None:
        warnings[text] = warnings.get(text, 0) + 1
        if warnings[text] == 1:
            note(text)

    with TournamentFolder(folder, game, config.manifest(), config.players) as played:
        _check_known(played, tasks)
        watch = SprtWatch(config) if config.sprt is not None else None
        for result in played.results.values():
            if watch is not None:
                watch.add(result)
        size = int(played.manifest["games_at_once"])
        groups = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        missing = [group for group in groups if any(task.number not in played.results for task in group)]
        progress(len(played.results), len(tasks), None if watch is None else watch.state)

        def finished(result: GameResult) -> bool:
            """Keep a game; False to stop."""
            if played.add(result):
                if result.ended == "forfeit":
                    note(f"game {result.number + 1}: {result.reason}")
                if watch is not None:
                    watch.add(result)
                progress(len(played.results), len(tasks), None if watch is None else watch.state)
            return watch is None or watch.state.verdict is None

        if missing and (watch is None or watch.state.verdict is None):
            setup = Setup(config.game, config.players, config.rules, config.seed, config.device, threads)
            run_groups(setup, game, missing, workers=workers, finished=finished, warn=warn, cluster=cluster, note=note)
        results = [played.results[number] for number in sorted(played.results)]
    counted = [text if times == 1 else f"{text} ({times} times)" for text, times in warnings.items()]
    if watch is not None and watch.warning is not None:
        counted.append(watch.warning)
    return TournamentOutcome(results, len(tasks), None if watch is None else watch.state, counted)
