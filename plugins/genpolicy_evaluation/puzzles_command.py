"""``genpolicy evaluate puzzles``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from genpolicy_common.arguments import add_json, settle_device
from genpolicy_evaluation.players import add_policy_arguments, find_game, opened_players, specs_of


def add_puzzles_parser(measures: Any) -> None:
    """Add ``puzzles`` to the measures of ``genpolicy evaluate``."""
    parser = measures.add_parser("puzzles", help="how many puzzles are solved, and the corresponding rating")
    add_policy_arguments(parser)
    parser.add_argument("--game", metavar="SPEC", help="the game, if no policy's folder names it, e.g. chess")
    parser.add_argument("--puzzles", type=Path, required=True, metavar="FILE", help="e.g. Lichess's puzzles as .csv")
    parser.add_argument("--limit", type=int, metavar="N", help="measure on N puzzles, drawn by the seed")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad rows out and count them")
    parser.add_argument("--band", type=int, default=200, metavar="N", help="width of a rating band; default 200")
    parser.add_argument(
        "--longer",
        type=int,
        default=4,
        metavar="PLIES",
        help="how much longer than the shortest mate still counts as any mate, in mate problems; default 4",
    )
    add_json(parser)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to a Markdown file")
    parser.set_defaults(run=run_puzzles)


def run_puzzles(arguments: argparse.Namespace) -> int:
    """Let policies solve puzzles and show the tables; 2 where one of them could not be measured."""
    from genpolicy.errors import EngineError
    from genpolicy.files import sha256_of
    from genpolicy_common.tables import publish
    from genpolicy_evaluation.puzzle_tables import PuzzleResult, puzzle_reports
    from genpolicy_evaluation.puzzles import attempt_puzzles, read_puzzle_file

    if arguments.band < 1:
        raise ValueError(f"--band must be at least 1, got {arguments.band}")
    if arguments.longer < 0:
        raise ValueError(f"--longer must be at least 0 plies, got {arguments.longer}")
    specs = specs_of(arguments)
    settle_device(arguments, specs)
    game = find_game(arguments.game, specs)
    found = read_puzzle_file(
        game, arguments.puzzles, skip_bad=arguments.skip_bad, limit=arguments.limit, seed=arguments.seed
    )
    for text in found.shown:
        print(text, file=sys.stderr)
    with opened_players(game, arguments) as players:
        results, given_up = [], dict[str, str]()
        for player in players:
            try:
                attempts = attempt_puzzles(
                    player.policy, found.puzzles, longer=arguments.longer, name=player.name, show=True
                )
            except EngineError as error:  # one policy's failure takes nothing from the others
                given_up[player.name] = str(error)
            else:
                results.append(PuzzleResult(player.name, attempts))
    reports = []
    if results:
        reports = puzzle_reports(results, str(arguments.puzzles), longer=arguments.longer, band=arguments.band)
        reports[0].notes += [f"{name} could not be measured: {reason}" for name, reason in given_up.items()]
        if found.num_bad:
            reports[0].notes.append(f"{found.num_bad} bad rows of the file were left out.")
    is_file = arguments.puzzles.is_file()
    facts = {
        "file": str(arguments.puzzles),
        "sha256": sha256_of(arguments.puzzles) if is_file else None,
        "game": game.spec,
        "puzzles": len(found.puzzles),
        "in_file": found.num_read,
        "bad_rows": found.num_bad,
        "limit": arguments.limit,
        "longer": arguments.longer,
        "seed": arguments.seed,
    }
    policies = [result.figures(game, arguments.band) for result in results]
    failures = [{"policy": name, "reason": reason} for name, reason in given_up.items()]
    publish(reports, {"puzzles": facts, "policies": policies, "not_measured": failures}, arguments)
    for name, reason in given_up.items():
        print(f"genpolicy: not measured: {name}: {reason}", file=sys.stderr)
    return 2 if given_up else 0
