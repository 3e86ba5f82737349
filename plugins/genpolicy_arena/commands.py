"""``genpolicy tournament``: lets policies and engines play each other, keeps the games and rates the players."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy_common.arguments import (
    add_alias,
    add_cluster,
    add_device,
    add_json,
    first_of,
    say,
    say_device,
    settle_device,
)
from genpolicy_common.option_types import not_negative, positive, wrong

if TYPE_CHECKING:
    from genpolicy.game import Game
    from genpolicy_arena.openings import Opening
    from genpolicy_arena.tournament import TournamentConfig, TournamentOutcome

_NAMED = re.compile(r"([^=?:/\\\s]+)=(.+)")
RANDOM_PLIES = 6


def add_parser(subparsers: Any) -> None:
    """Add ``tournament`` to the command line."""
    parser = subparsers.add_parser(
        "tournament",
        help="let policies and engines play each other, and rate them",
        description="Play a round robin or gauntlet of policies and engines. Each opening is played with both colours.",
        epilog="The same command resumes after Ctrl-C or a kill: no game is lost and none is kept twice.",
    )
    players = parser.add_argument_group("players")
    players.add_argument(
        "--policy",
        action="append",
        nargs="+",
        required=True,
        metavar="[NAME=]P",
        help="folders or spellings of policies, e.g. runs/demo/imagine/policy sf=engine:stockfish?nodes=100",
    )
    players.add_argument("--game", metavar="SPEC", help="the game, if no policy's folder names it, e.g. chess")
    add_device(players)
    players.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the openings and of the players")
    games = parser.add_argument_group("games")
    games.add_argument(
        "--format",
        default="round-robin",
        metavar="F",
        help="round-robin (default) or gauntlet: the first policy against the others",
    )
    games.add_argument(
        "--rounds",
        type=positive,
        default=10,
        metavar="N",
        help="openings, each played twice by every pair (default 10)",
    )
    games.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder of the games")
    games.add_argument(
        "--games-at-once",
        type=positive,
        metavar="N",
        help="games that a process plays in step, an even number (default 16, fewer in small tournaments); 2 for slow "
        "engines",
    )
    _add_openings(parser)
    _add_rules(parser)
    test = parser.add_argument_group("early stop")
    test.add_argument(
        "--sprt",
        nargs="*",
        metavar="KEY=X",
        help="stop a match of two players early by a test: elo0=0 elo1=20 alpha=0.05 beta=0.05 (the first against the "
        "second)",
    )
    test.add_argument(
        "--sprt-on",
        choices=["pairs", "games"],
        help="what the test counts: pairs (pentanomial, default) or games (trinomial)",
    )
    speed = parser.add_argument_group("speed")
    parallel = speed.add_argument(
        "--parallel",
        type=positive,
        metavar="N",
        help="processes (default: one per core; one on devices other than cpu)",
    )
    speed.add_argument(
        "--threads", type=positive, default=1, metavar="N", help="threads for the networks of each process; default 1"
    )
    add_alias(parser, "--workers", parallel)
    add_cluster(speed)
    add_rating_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=run)


def _add_openings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("openings")
    group.add_argument(
        "--openings",
        type=Path,
        metavar="FILE",
        help="book of games, positions or lines of moves; openings are drawn without replacement",
    )
    group.add_argument(
        "--opening-plies",
        type=not_negative,
        metavar="N",
        help="plies used of each game (default 8) or line of moves (default all)",
    )
    group.add_argument(
        "--random-plies",
        type=not_negative,
        metavar="N",
        help="random moves before each game, without a book (default 6)",
    )
    group.add_argument("--reuse-openings", action="store_true", help="use openings again if there are too few")


def _add_rules(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("adjudication")
    group.add_argument("--max-plies", type=positive, default=512, metavar="N", help="longest game (default 512)")
    group.add_argument(
        "--at-limit", default="draw", metavar="W", help="result of the longest games: draw (default) or judge"
    )
    group.add_argument("--judge", metavar="ORACLE", help="engine that ends decided games, e.g. 'stockfish?nodes=10000'")
    group.add_argument(
        "--judge-cp",
        type=positive,
        metavar="CP",
        help="score above which a game is decided (default 1300)",
    )
    group.add_argument(
        "--judge-every",
        type=positive,
        metavar="N",
        help="plies from one evaluation of the judge to the next (default 1)",
    )
    group.add_argument(
        "--adjudicate-win", type=_win, metavar="VALUE:PLIES", help="a win when both players' values agree, e.g. 0.95:6"
    )
    group.add_argument(
        "--adjudicate-draw",
        type=_draw,
        metavar="VALUE:PLIES:FROM",
        help="a draw when both players' values agree, e.g. 0.02:10:80",
    )


def add_rating_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ratings."""
    group = parser.add_argument_group("rating")
    group.add_argument(
        "--model", default="bt", metavar="M", help="bt (Bradley-Terry with draws, default), bayeselo or ordo"
    )
    group.add_argument("--anchor", metavar="NAME=ELO", help="rating of one player; without it the mean rating is 0")
    group.add_argument(
        "--advantage", metavar="ELO", help="worth of the first move, on the scale shown, or fit; default by model"
    )
    group.add_argument("--draw", metavar="X", help="the draw parameter (nu, eloDraw), or fit; default by model")
    group.add_argument("--prior", type=float, metavar="N", help="virtual games of each player; default by model")
    group.add_argument(
        "--bootstrap",
        type=not_negative,
        default=0,
        metavar="N",
        help="bootstrap samples of opening pairs for the intervals, e.g. 1000",
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files that tables are written to."""
    group = parser.add_argument_group("output")
    add_json(group)
    group.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to a Markdown file")


def run(arguments: argparse.Namespace) -> int:
    """``genpolicy tournament``: play or resume, then show the tables."""
    from genpolicy.machine import num_cores
    from genpolicy_arena.tournament import run_tournament
    from genpolicy_common.cluster import open_cluster
    from genpolicy_evaluation.players import find_game

    players = players_of([spec for group in arguments.policy for spec in group])
    options = rating_options(arguments)  # an error in them is reported before hours of play
    if options.anchor is not None and options.anchor[0] not in players:
        raise ValueError(f"--anchor: {options.anchor[0]!r} does not play; the players: {', '.join(players)}")
    game = find_game(arguments.game, list(players.values()))
    settle_device(arguments, players.values())
    config = _config(arguments, game, players)
    if arguments.cluster is None:
        _check_players(config, game)  # on a cluster, engines are on its workers
    say_device(arguments)
    workers = arguments.parallel or (num_cores() if arguments.device == "cpu" else 1)
    with ExitStack() as stack:
        cluster = None
        if arguments.cluster is not None:
            cluster = stack.enter_context(open_cluster(arguments.cluster, arguments.parallel))
        show = stack.enter_context(games_bar())
        speed: dict[str, Any] = {"workers": workers, "threads": arguments.threads, "cluster": cluster}
        outcome = run_tournament(config, game, arguments.out, **speed, progress=show, note=say)
    _report(arguments, config, outcome)
    return 0


def players_of(specs: Sequence[str]) -> dict[str, str]:
    """Name -> spelling; ``name=SPEC`` gives a name, and the other names are derived and distinct.

    Raises:
        ValueError: two players have the same name.
    """
    from genpolicy_evaluation.players import names_of

    matches = [_NAMED.fullmatch(spec) for spec in specs]
    plain = [match.group(2) if match else spec for match, spec in zip(matches, specs, strict=True)]
    derived = iter(names_of([spec for match, spec in zip(matches, specs, strict=True) if match is None]))
    names = [match.group(1) if match else next(derived) for match in matches]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two players are called {name!r}; name them: NAME=SPEC")
    return dict(zip(names, plain, strict=True))


def _config(arguments: argparse.Namespace, game: Game[Any], players: dict[str, str]) -> TournamentConfig:
    from genpolicy_arena.adjudication import Adjudication
    from genpolicy_arena.sprt import parse_sprt
    from genpolicy_arena.tournament import TournamentConfig

    of_judge = {key: value for key in ("judge_cp", "judge_every") if (value := getattr(arguments, key)) is not None}
    for key in of_judge if arguments.judge is None else ():
        raise ValueError(f"--{key.replace('_', '-')} is the judge's: add --judge 'stockfish?nodes=10000'")
    if arguments.sprt_on is not None and arguments.sprt is None:
        raise ValueError("--sprt-on says what a test counts: add --sprt")
    rules = Adjudication(
        judge=arguments.judge,
        **of_judge,
        win=arguments.adjudicate_win,
        draw=arguments.adjudicate_draw,
        max_plies=arguments.max_plies,
        at_limit=arguments.at_limit,
    )
    return TournamentConfig(
        game=game.spec,
        players=players,
        openings=_openings(arguments, game),
        format=arguments.format,
        rules=rules,
        seed=arguments.seed,
        device=arguments.device,
        event=arguments.out.name or "genpolicy tournament",
        sprt=None if arguments.sprt is None else parse_sprt(arguments.sprt),
        paired=arguments.sprt_on != "games",
        group_size=arguments.games_at_once,
    )


def _openings(arguments: argparse.Namespace, game: Game[Any]) -> list[Opening]:
    from genpolicy_arena.openings import draw_from_book, draw_random, read_book

    if arguments.openings is None:
        if arguments.opening_plies is not None:
            raise ValueError("--opening-plies counts plies of a book: give one by --openings, or take --random-plies")
        plies = RANDOM_PLIES if arguments.random_plies is None else arguments.random_plies
        return draw_random(game, arguments.rounds, plies, arguments.seed, reuse=arguments.reuse_openings)
    if arguments.random_plies is not None:
        raise ValueError("--random-plies is for games without a book, and --openings gives one: leave one of them out")
    book = read_book(game, arguments.openings, arguments.opening_plies)
    for text in first_of(book.bad, "{} more"):
        say(f"opening skipped: {text}")
    if book.num_repeated:
        say(f"{book.num_repeated} openings reach another opening's position and are skipped")
    return draw_from_book(
        book, arguments.rounds, arguments.seed, reuse=arguments.reuse_openings, path=arguments.openings
    )


def _check_players(config: TournamentConfig, game: Game[Any]) -> None:
    """Load every player and the judge once, so that errors are reported here and not by a worker."""
    from genpolicy.data.oracle import make_oracle
    from genpolicy_arena.workers import open_policy

    for spec in config.players.values():
        open_policy(spec, game, config.device).close()
    if config.rules.judge is not None:
        make_oracle(config.rules.judge, game).close()


def rating_options(arguments: argparse.Namespace) -> Any:
    """The options of ratings that the command line gives.

    Raises:
        ValueError: an option is out of range.
    """
    from genpolicy_arena.ratings import FitOptions

    anchor = None
    if arguments.anchor is not None:
        name, _, text = arguments.anchor.rpartition("=")
        anchor = (name, _number("--anchor NAME=ELO", text))
    return FitOptions(
        model=arguments.model,
        anchor=anchor,
        advantage=_fit_or_number("--advantage", arguments.advantage),
        draw=_fit_or_number("--draw", arguments.draw),
        prior=arguments.prior,
        bootstrap=arguments.bootstrap,
    )


def _report(arguments: argparse.Namespace, config: TournamentConfig, outcome: TournamentOutcome) -> None:
    from genpolicy_arena.crosstable import (
        crosstable,
        crosstable_figures,
        rating_report,
        superiority_report,
    )
    from genpolicy_arena.match import ENDINGS
    from genpolicy_arena.ratings import fit
    from genpolicy_arena.tournament import rated
    from genpolicy_common.tables import publish

    games = rated(outcome.results)
    ratings = fit(games, rating_options(arguments))
    table = rating_report(ratings, f"{config.event}: {len(games)} games of {config.game}, {config.format}")
    ends = {kind: sum(each.ended == kind for each in outcome.results) for kind in ENDINGS}
    said = ", ".join(f"{words} {ends[kind]}" for kind, (words, _) in ENDINGS.items() if ends[kind])
    table.notes.append(f"ended by: {said}")
    forfeits = [f"game {forfeit.number + 1}: {forfeit.reason}" for forfeit in outcome.forfeits]
    table.notes += first_of(forfeits, "{} more games were forfeited; see games.jsonl")
    table.notes += outcome.warnings
    if outcome.sprt is not None and config.sprt is not None:
        table.notes.append(outcome.sprt.text(config.sprt))
    reports = [table, crosstable(games, [row.name for row in ratings.players])]
    if len(config.players) > 2:
        reports.append(superiority_report(ratings))
    figures = {
        "tournament": {**config.manifest(), "folder": str(arguments.out)},
        "games": len(games),
        "planned": outcome.num_planned,
        "ended": ends,
        "forfeits": [
            {"game": each.number + 1, "by": each.forfeit_by, "reason": each.reason} for each in outcome.forfeits
        ],
        "warnings": outcome.warnings,
        "crosstable": crosstable_figures(games),
        "ratings": ratings.figures(),
        "sprt": None
        if outcome.sprt is None
        else {"llr": outcome.sprt.llr, "verdict": outcome.sprt.verdict, "counts": list(outcome.sprt.counts)},
    }
    publish(reports, figures, arguments)


@contextmanager
def games_bar() -> Iterator[Callable[[int, int, Any], None]]:
    """Show a progress bar of games on stderr."""
    from genpolicy_evaluation.positions import progress_bar

    with progress_bar() as bar:
        task = bar.add_task("games", total=None)

        def show(done: int, planned: int, sprt: Any) -> None:
            text = "games" if sprt is None else f"games, LLR {sprt.llr:.2f}"
            bar.update(task, completed=done, total=planned, description=text)

        try:
            yield show
        except KeyboardInterrupt:
            bar.stop()
            say("stopped; finished games are kept, and the same command resumes")
            raise


def _win(text: str) -> tuple[float, int]:
    value, plies = _parts(text, "VALUE:PLIES, e.g. 0.95:6", 2)
    return float(value), positive(plies)


def _draw(text: str) -> tuple[float, int, int]:
    value, plies, start = _parts(text, "VALUE:PLIES:FROM, e.g. 0.02:10:80", 3)
    return float(value), positive(plies), not_negative(start)


def _parts(text: str, form: str, number: int) -> list[str]:
    parts = text.split(":")
    if len(parts) != number or not re.fullmatch(r"\d*\.?\d+", parts[0]):
        raise wrong(form, text)
    return parts


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a number") from None


def _fit_or_number(option: str, text: str | None) -> Any:
    return text if text in (None, "fit") else _number(option, str(text))
