"""``genpolicy evaluate report``: accuracy, puzzles, Elo and cost of a list of policies on one page."""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import shutil
import sys
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy_arena.commands import add_rating_arguments, games_bar, rating_options
from genpolicy_common.arguments import add_alias, add_device, add_json, say, say_device, settle_device
from genpolicy_evaluation.players import find_game, names_of, specs_of

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset
    from genpolicy.game import Game
    from genpolicy.policies.base import Policy
    from genpolicy_common.labelled import LabelledPosition
    from genpolicy_evaluation.puzzles import PuzzleFile
    from genpolicy_report.measures import PlayedTournament, Row


def add_report_parser(measures: Any) -> None:
    """Add ``report`` to the measures of ``genpolicy evaluate``."""
    parser = measures.add_parser(
        "report",
        help="write one page with accuracy, puzzles, Elo and cost of a list of policies",
        epilog="Measurements are kept beside the page (PAGE_files), so the same command resumes where it was stopped.",
    )
    parser.add_argument(
        "--policy", action="append", nargs="+", required=True, metavar="P", help="folders or spellings of policies"
    )
    parser.add_argument("--game", metavar="SPEC", help="the game, if neither data nor policies name it")
    parser.add_argument("--out", type=Path, required=True, metavar="PAGE", help="the page: .html or .md")
    parser.add_argument("--title", help="title of the page")
    parser.add_argument("--data", metavar="FOLDER", help="data set for accuracy and time, e.g. sample:GAME")
    parser.add_argument("--split", default="test", help="split of the data set; default test")
    parser.add_argument("--limit", type=int, metavar="N", help="maximum number of its positions, drawn by the seed")
    parser.add_argument(
        "--calls", type=int, default=30, metavar="N", help="number of decisions timed one by one; default 30"
    )
    parser.add_argument("--puzzles", type=Path, metavar="FILE", help="file of puzzles")
    parser.add_argument("--puzzle-limit", type=int, metavar="N", help="maximum number of puzzles, drawn by the seed")
    parser.add_argument("--skip-bad", action="store_true", help="leave out and count bad rows of puzzles")
    played = parser.add_mutually_exclusive_group()
    played.add_argument("--tournament", type=Path, metavar="FOLDER", help="Elo from this tournament's games")
    played.add_argument(
        "--play", type=int, metavar="ROUNDS", help="Elo from a round robin played now, with this many openings"
    )
    parser.add_argument("--openings", type=Path, metavar="FILE", help="book for --play; default random openings")
    parser.add_argument("--max-plies", type=int, metavar="N", help="longest game of --play; default 512")
    parallel = parser.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="processes of --play; default 1"
    )
    add_alias(parser, "--workers", parallel)
    add_rating_arguments(parser)
    add_device(parser)
    parser.add_argument("--threads", type=int, metavar="N", help="threads of a network; default torch's own")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of positions, puzzles, games and all draws; default 0"
    )
    parser.add_argument("--again", action="store_true", help="measure everything again")
    add_json(parser)
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> int:
    """``genpolicy evaluate report``: measure what is missing and write the page."""
    from genpolicy_common.tables import write_json
    from genpolicy_evaluation.latency import limited_threads
    from genpolicy_report.measures import PartStore, measure_row
    from genpolicy_report.page import Page, check_page, side_folder, write_page
    from genpolicy_report.tables import main_charts, main_table, provenance, puzzle_blocks

    check_page(arguments.out)
    _check_options(arguments)
    settle_device(arguments, specs_of(arguments))
    sources = _Sources(arguments)
    rows = _rows(arguments)
    side = side_folder(arguments.out)
    store = PartStore(side / "parts", again=arguments.again)
    with limited_threads(arguments.threads) as threads:
        options = sources.options(threads)
        _try_policies(rows, sources.game, arguments)
        say_device(arguments)
        for row in rows:
            measure_row(row, store, options, lambda row=row: _open(row.spec, sources.game, arguments))  # type: ignore[misc]
            # The page is written after every policy, so that it can be read during a long run.
            page = Page(
                _title(arguments, sources.game), _lead(rows, sources.game), [main_table(rows, sources.game.published)]
            )
            write_page(page, arguments.out)
    tournament, tables = _tournament(arguments, sources.game, rows, side)
    facts = sources.facts(threads, tournament)
    blocks = [
        main_table(rows, sources.game.published),
        main_charts(rows, sources.game.published),
        *puzzle_blocks(rows),
        *tables,
        *provenance(rows, facts),
    ]
    page = Page(
        _title(arguments, sources.game), _lead(rows, sources.game), [block for block in blocks if block is not None]
    )
    write_page(page, arguments.out)
    write_json(arguments.json, _figures(rows, sources.game, facts))
    kept = f" ({store.num_kept} parts were measured before)" if store.num_kept else ""
    print(f"{arguments.out}{kept}")
    failures = [f"{row.name}: {failure}" for row in rows for failure in row.failures]
    for failure in failures:
        print(f"genpolicy: not measured: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _check_options(arguments: argparse.Namespace) -> None:
    if arguments.data is None and arguments.puzzles is None and arguments.tournament is None and arguments.play is None:
        raise ValueError("nothing to measure: give --data, --puzzles, --tournament or --play")
    for option in ("limit", "puzzle_limit", "calls", "play", "max_plies", "parallel"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            raise ValueError(f"--{option.replace('_', '-')} must be at least 1, got {value}")
    if arguments.play is not None and len(specs_of(arguments)) < 2:
        raise ValueError("--play needs at least two policies to play each other")
    ratings = dict.fromkeys(("anchor", "advantage", "draw", "prior", "bootstrap"), ("play", "tournament"))
    for option, parts in {
        "openings": ("play",),
        "max_plies": ("play",),
        "puzzle_limit": ("puzzles",),
        **ratings,
    }.items():
        if getattr(arguments, option) and all(getattr(arguments, part) is None for part in parts):
            name, needed = option.replace("_", "-"), " or --".join(parts)
            raise ValueError(f"--{name} has no effect without --{needed}: add that, or leave it out")
    options = rating_options(arguments)  # errors in them are reported before hours of measuring
    if arguments.play is not None and options.anchor is not None:
        names = names_of(specs_of(arguments))
        if options.anchor[0] not in names:
            raise ValueError(f"--anchor: {options.anchor[0]!r} does not play; the players: {', '.join(names)}")


class _Sources:
    """The data and puzzles of a page, each read when it is first needed.

    Args:
        arguments: The command line.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        from genpolicy import load_game
        from genpolicy.data.records import Dataset

        self._arguments = arguments
        self.dataset: Dataset | None = None if arguments.data is None else Dataset.open(arguments.data)
        self.game: Game[Any]
        if self.dataset is not None and arguments.game is None:
            self.game = load_game(self.dataset.game_spec)
        else:
            self.game = find_game(arguments.game, specs_of(arguments))
        if self.dataset is not None and self.dataset.game_spec != self.game.spec:
            raise ValueError(f"{arguments.data}: holds {self.dataset.game_spec!r}, not {self.game.spec!r}")

    @cached_property
    def positions(self) -> list[LabelledPosition]:
        from genpolicy_common.labelled import labelled_positions

        assert self.dataset is not None
        arguments = self._arguments
        return labelled_positions(self.dataset, self.game, arguments.split, limit=arguments.limit, seed=arguments.seed)

    @cached_property
    def puzzles(self) -> PuzzleFile:
        from genpolicy_evaluation.puzzles import read_puzzle_file

        arguments = self._arguments
        puzzles = read_puzzle_file(
            self.game, arguments.puzzles, skip_bad=arguments.skip_bad, limit=arguments.puzzle_limit, seed=arguments.seed
        )
        for text in puzzles.shown:
            print(text, file=sys.stderr)
        return puzzles

    def options(self, threads: int) -> Any:
        """How every policy is measured."""
        from genpolicy_evaluation.provenance import machine_facts, source_fingerprint
        from genpolicy_report.measures import MeasureOptions

        arguments, dataset = self._arguments, self.dataset
        data_key = puzzle_key = None
        if dataset is not None:
            data_key = {"data": dataset.checksum, "split": arguments.split, "limit": arguments.limit}
        if arguments.puzzles is not None:
            _ = self.puzzles  # a bad row is reported before hours of measuring
            sha256 = source_fingerprint(arguments.puzzles)
            puzzle_key = {"game": self.game.spec, "puzzles": sha256, "limit": arguments.puzzle_limit}
        return MeasureOptions(
            device=arguments.device,
            seed=arguments.seed,
            threads=threads,
            calls=arguments.calls,
            positions=lambda: self.positions,
            puzzles=lambda: self.puzzles,
            data_key=data_key,
            puzzle_key=puzzle_key,
            machine={name: machine_facts(arguments.device)[name] for name in ("processor", "cores", "torch")},
        )

    def facts(self, threads: int, tournament: PlayedTournament | None) -> dict[str, Any]:
        """The provenance of the page."""
        from genpolicy.machine import commit
        from genpolicy_evaluation.provenance import machine_facts, now, source_fingerprint

        arguments = self._arguments
        facts: dict[str, Any] = {
            "command": f"genpolicy {shlex.join(sys.argv[1:])}",
            "made": now(),
            "game": self.game.spec,
            "commit": commit(),
            **machine_facts(arguments.device),
            "threads": threads,
            "seed": arguments.seed,
        }
        if self.dataset is not None:
            facts["data"] = f"{arguments.data}, split {arguments.split}, checksum {self.dataset.checksum}"
            facts["labels"] = _labels(self.dataset)
        if arguments.puzzles is not None:
            puzzles = self.puzzles
            facts["puzzles"] = (
                f"{arguments.puzzles}, sha256 {source_fingerprint(arguments.puzzles)}; {len(puzzles.puzzles)} of "
                f"{puzzles.num_read}, {puzzles.num_bad} bad rows left out"
            )
        if tournament is not None:
            facts["tournament"] = f"{len(tournament.results)} games, {tournament.manifest.get('rules')}"
        return facts


def _labels(dataset: Dataset) -> str | None:
    oracle = getattr(dataset.info, "oracle", None)
    return str(oracle) if oracle else None


def _rows(arguments: argparse.Namespace) -> list[Row]:
    from genpolicy_evaluation.provenance import policy_fingerprint
    from genpolicy_report.measures import Row

    specs = specs_of(arguments)
    return [Row(name, spec, policy_fingerprint(spec)) for name, spec in zip(names_of(specs), specs, strict=True)]


def _open(spec: str, game: Game[Any], arguments: argparse.Namespace) -> Policy:
    from genpolicy_arena.workers import open_policy

    return open_policy(spec, game, arguments.device)


def _try_policies(rows: list[Row], game: Game[Any], arguments: argparse.Namespace) -> None:
    """Load every policy once, so that a wrong one is named before hours of measuring."""
    for row in rows:
        _open(row.spec, game, arguments).close()


def _tournament(
    arguments: argparse.Namespace, game: Game[Any], rows: list[Row], side: Path
) -> tuple[PlayedTournament | None, list[Any]]:
    """Play or read the tournament, note each policy's Elo, and return the tournament and its tables."""
    from genpolicy_arena.crosstable import crosstable, rating_report
    from genpolicy_arena.ratings import fit
    from genpolicy_arena.tournament import rated
    from genpolicy_report.measures import read_tournament
    from genpolicy_report.tables import tournament_tables

    if arguments.play is not None:
        folder = _play(arguments, game, rows, side)
    elif arguments.tournament is not None:
        folder = arguments.tournament
    else:
        return None, []
    tournament = read_tournament(folder)
    if tournament.manifest.get("game") != game.spec:
        raise ValueError(f"{folder}: a tournament of {tournament.manifest.get('game')!r}, not {game.spec!r}")
    games = rated(tournament.results)
    ratings = fit(games, rating_options(arguments))
    by_name = {player.name: player for player in ratings.players}
    for row in rows:
        try:
            player = by_name.get(tournament.player_of(row) or "")
        except ValueError as error:
            row.failures.append(f"Elo: {error}")
            continue
        if player is not None:
            row.elo = {"elo": player.elo, "low": player.low, "high": player.high, "games": player.games}
    table = rating_report(ratings, f"Tournament: {len(games)} games")
    forfeits = [result for result in tournament.results if result.ended == "forfeit"]
    if forfeits:
        table.notes.append(f"{len(forfeits)} games were lost by a failure; the first: {forfeits[0].reason}")
    return tournament, tournament_tables([table, crosstable(games, [player.name for player in ratings.players])])


def _play(arguments: argparse.Namespace, game: Game[Any], rows: list[Row], side: Path) -> Path:
    """Play the tournament and return its folder, one for each list of policies, openings and rules."""
    from genpolicy_arena.adjudication import Adjudication
    from genpolicy_arena.openings import draw_from_book, draw_random, read_book
    from genpolicy_arena.tournament import TournamentConfig, run_tournament

    if arguments.openings is None:
        openings = draw_random(game, arguments.play, RANDOM_PLIES, arguments.seed)
    else:
        book = read_book(game, arguments.openings)
        openings = draw_from_book(book, arguments.play, arguments.seed, reuse=False, path=arguments.openings)
    config = TournamentConfig(
        game=game.spec,
        players={row.name: row.spec for row in rows},
        openings=openings,
        rules=Adjudication(max_plies=arguments.max_plies or MAX_PLIES),
        seed=arguments.seed,
        device=arguments.device,
        event=f"{arguments.out.name}: tournament",
    )
    facts = json.dumps([config.manifest(), [asdict(opening) for opening in openings]], sort_keys=True, default=str)
    folder = side / f"tournament-{hashlib.sha256(facts.encode()).hexdigest()[:10]}"
    if arguments.again:
        shutil.rmtree(folder, ignore_errors=True)
    with games_bar() as progress:
        run_tournament(
            config,
            game,
            folder,
            workers=arguments.parallel,
            threads=arguments.threads or 1,
            progress=progress,
            note=say,
        )
    return folder


RANDOM_PLIES = 6
"""Random moves before each game of ``--play`` without a book."""
MAX_PLIES = 512


def _title(arguments: argparse.Namespace, game: Game[Any]) -> str:
    return arguments.title or f"Policies of {game.spec}"


def _lead(rows: list[Row], game: Game[Any]) -> list[str]:
    return [
        f"{len(rows)} polic{'y' if len(rows) == 1 else 'ies'} of {game.spec}, measured alike on the same positions."
    ]


def _figures(rows: list[Row], game: Game[Any], facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "policies": [
            {
                "policy": row.name,
                "spec": row.spec,
                "fingerprint": row.fingerprint,
                **{name: {**part.figures, "made": part.made} for name, part in row.parts.items()},
                "elo": row.elo,
                "failures": row.failures,
            }
            for row in rows
        ],
        "published": [vars(result) for result in game.published],
        "provenance": facts,
    }
