"""``genpolicy data playouts``: labelled positions of random games, or of those alone in which looking ahead pays.

On a small board most random positions are won by the next move or lost whatever is played, so that a policy that looks
ahead has nothing to show. ``quiet`` and ``max_best`` leave such positions out.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from genpolicy.chance import settled
from genpolicy.data.oracle import Oracle, analysed, make_oracle
from genpolicy.data.records import Dataset, DatasetInfo, Record
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy_common.arguments import MAX_SHOWN, say
from genpolicy_labelling import arguments as kinds
from genpolicy_labelling.commands import add_game, add_output, add_split, finish
from genpolicy_labelling.label import make_record
from genpolicy_labelling.splits import SplitFractions
from genpolicy_labelling.terminal import command_line, progress, show, stoppable
from genpolicy_labelling.writer import DatasetWriter

BLOCK_RECORDS = 256
"""Most positions that are labelled together; without ``max_best`` no more than are missing."""
MAX_IDLE = 5_000
"""Playouts in a row that find nothing new, or labelled positions that are not kept, before the search for more is given
up."""
MAX_ERRORS = 8
"""Positions that the oracle fails to label, and none that it labels, before it is given up."""


@dataclass(frozen=True)
class Wanted:
    """Which positions are kept."""

    plies: tuple[int, int]
    """Range of the number of random moves."""
    quiet: bool
    """Whether positions are left out in which a move ends the game, or every move lets the other player win at once."""
    max_best: float
    """Largest share of the legal moves that may be best, in (0, 1]."""


def is_quiet(game: Game[Any], state: Any) -> bool:
    """Whether no move ends the game, and some move leaves the other player without a win by the next.

    Args:
        game: Its players alternate.
        state: A position in which the game runs.
    """
    after = [game.play(state, int(move)) for move in game.legal(state)]
    if any(game.outcome(answer) is not None for answer in after):
        return False
    return any(game.mate_distance(answer, 1) is None for answer in after)


def drawn(game: Game[Any], wanted: Wanted, rng: random.Random) -> Iterator[Any]:
    """Positions of random playouts, none twice and none beside a symmetric copy, until no new one is found.

    Args:
        game: The rules.
        wanted: All but ``max_best`` is seen to.
        rng: Draws the moves, nature's among them, which do not count as plies.
    """
    seen: set[str] = set()
    idle = 0
    while idle < MAX_IDLE:
        idle += 1
        state, _ = settled(game, game.parse(), rng)
        for _ in range(rng.randint(*wanted.plies)):
            state, _ = settled(game, game.play(state, int(rng.choice(game.legal(state)))), rng)
            if game.outcome(state) is not None:
                break
        if game.outcome(state) is not None:
            continue
        key = game.canonical_key(state)
        if key in seen:
            continue
        seen.add(key)
        if wanted.quiet and not is_quiet(game, state):
            continue
        idle = 0
        yield state


def write(
    writer: DatasetWriter,
    game: Game[Any],
    oracle: Oracle,
    wanted: Wanted,
    num: int,
    splits: SplitFractions,
    *,
    horizon: int = 8,
    seed: int = 0,
    progress: Callable[[int], None] = lambda found: None,
) -> Counter[str]:
    """Write labelled positions until there are ``num`` of them.

    Args:
        writer: Unit i is what is kept of block i.
        game: The rules.
        oracle: Labels the positions and values their moves.
        wanted: Which are kept.
        num: How many.
        splits: Of positions with their symmetric copies.
        horizon: Most moves of a line.
        seed: Of the playouts.
        progress: Called with the positions found so far.

    Returns:
        What was left out, by reason.

    Raises:
        DatasetError: no position is like that, or the oracle cannot label them.
    """
    left_out: Counter[str] = Counter()
    states = drawn(game, wanted, random.Random(f"playouts|{seed}"))
    found = unit = idle = asked = 0
    while found < num and idle < MAX_IDLE:
        size = BLOCK_RECORDS if wanted.max_best < 1 else min(BLOCK_RECORDS, num - found)
        if not (block := list(itertools.islice(states, size))):
            break
        lines = analysed(oracle, block, horizon, move_values=True)
        kept: list[Record] = []
        for state, line in zip(block, lines, strict=True):
            record = make_record(game, state, line)
            if line.error is not None:
                left_out["unlabelled"] += 1
                if left_out["unlabelled"] <= MAX_SHOWN:
                    say(f"not labelled: {line.error}")
            elif len(record.best_moves(game)) > wanted.max_best * len(game.legal(state)):
                left_out["too many best moves"] += 1
            elif found + len(kept) < num:
                kept.append(replace(record, split=splits.of_position(game, state)))
        found += len(kept)
        idle = 0 if kept else idle + len(block)
        asked += len(block)
        if left_out["unlabelled"] == asked >= MAX_ERRORS:
            raise DatasetError(f"{game.spec}: the oracle labelled none of {asked} positions, for the reasons above")
        if not writer.is_done(unit):
            writer.add(unit, kept)
        unit += 1
        progress(found)
    if not found:
        raise DatasetError(
            f"{game.spec}: random playouts of {wanted.plies[0]} to {wanted.plies[1]} plies hold no such "
            "position: give other --plies, a larger --max-best, or omit --quiet"
        )
    return left_out


def add_parser(verbs: Any) -> None:
    """Add ``data playouts``."""
    parser = verbs.add_parser(
        "playouts",
        help="label positions of random games, optionally only quiet ones",
        description="Make a data set of labelled positions from random games, none twice and none beside a symmetric "
        "copy. With --quiet and --max-best only those in which looking ahead pays. A command that was stopped begins "
        "again.",
    )
    add_game(parser)
    parser.add_argument(
        "--oracle",
        type=kinds.words,
        required=True,
        metavar="SPEC",
        help="labels the positions and values their moves, e.g. 'solver?distance=true'",
    )
    parser.add_argument("--positions", type=kinds.positive, required=True, metavar="N", help="number of positions")
    parser.add_argument(
        "--plies",
        type=kinds.plies,
        default=(1, 12),
        metavar="LOW:HIGH",
        help="range of the number of random moves before a position (default 1:12)",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="leave out positions in which a move ends the game, or every move lets the other player win at once",
    )
    parser.add_argument(
        "--max-best",
        type=kinds.share,
        default=1.0,
        metavar="X",
        help="leave out positions in which more than this share of the legal moves is best (default 1)",
    )
    parser.add_argument("--horizon", type=kinds.positive, default=8, metavar="N", help="moves in a line (default 8)")
    parser.add_argument("--seed", type=kinds.whole, default=0, metavar="N", help="seed of the games (default 0)")
    add_split(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """``genpolicy data playouts``."""
    from genpolicy.registry import load_game

    game = load_game(arguments.game)
    wanted = Wanted(arguments.plies, arguments.quiet, arguments.max_best)
    splits = SplitFractions.parse(arguments.split, arguments.split_seed)
    if wanted.quiet and not game.alternates:
        raise DatasetError(f"{game.spec}: --quiet needs players that alternate; leave it out")
    with stoppable(), make_oracle(arguments.oracle, game) as oracle:
        asked = {name: getattr(arguments, name) for name in ("positions", "quiet", "max_best", "horizon", "seed")}
        info = DatasetInfo(
            game=game.spec,
            made_by="label",
            oracle=oracle.describe(),
            options={"playouts": list(wanted.plies), **asked, **splits.options()},
            command=command_line(),
        )
        with DatasetWriter(arguments.out, info, journal=False) as writer:
            if not writer.complete:
                num = arguments.positions
                with progress() as bar:
                    task = bar.add_task("labelling", total=num, unit="positions")
                    left_out = write(
                        writer,
                        game,
                        oracle,
                        wanted,
                        num,
                        splits,
                        horizon=arguments.horizon,
                        seed=arguments.seed,
                        progress=lambda found: bar.update(task, completed=found),
                    )
                finish(writer, game, {"skipped": dict(left_out)})
    dataset = Dataset.open(arguments.out)
    if dataset.num_records < arguments.positions:
        say(f"only {dataset.num_records:,} such positions were found: {MAX_IDLE:,} in a row were not new or not kept")
    show(dataset, arguments.json)
    return 0
