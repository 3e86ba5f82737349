"""``genpolicy data afterstates``: positions after valued moves, each a record with its value and no move.

A search judges positions after moves that a good player would not make; games and best lines have few of them, so a
value learned from those alone is untrained where the search asks for it. (*Afterstate* as in Sutton and Barto,
Reinforcement Learning, 2nd edition, section 6.8.)
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from genpolicy.data.records import Dataset, DatasetInfo, Record
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy.values import parse_score, score_to_value
from genpolicy_common.arguments import add_data, require
from genpolicy_labelling import arguments as kinds
from genpolicy_labelling.commands import add_output, finish
from genpolicy_labelling.terminal import command_line, show, stoppable
from genpolicy_labelling.writer import DatasetWriter

BLOCK_RECORDS = 1024
"""Records of the source whose afterstates are written together."""
DEFAULT_MOVES = 4
SEVERAL = "several"
"""In place of a position's split where games of two splits reach it."""


def score_after(text: str, *, same_player: bool = False) -> str:
    """The score of a move as that of the position after it, for the player to move there.

    The moves to a mate are counted down; a value that counts plies (``solver?distance=true``) stays one ply behind.

    Args:
        text: Score text (``genpolicy.values``) of the move, for the player who makes it.
        same_player: Whether that player moves again.

    Raises:
        ValueError: not a score.
    """
    kind, number = parse_score(text)
    # "Mate in n" counts the moves of the side that mates: one of them has been made.
    left = number - 1 if kind == "mate" and number > 0 else number
    after = (left if same_player else -left) or 0  # no -0
    return f"{kind}:{after:.10g}" if kind == "value" else f"{kind}:{after:.0f}"


def afterstates(game: Game[Any], record: Record, num_moves: int, rng: random.Random) -> Iterator[Record]:
    """The positions after a record's best move and others drawn among those it values; finished games are left out.

    Args:
        game: The rules.
        record: One with ``move_values``.
        num_moves: Most moves, the best included.
        rng: Draws the others.

    Raises:
        ValueError: a position, move or score that cannot be read, or a move that is not legal there.
    """
    values = record.scored_moves
    ranked = sorted(values, key=lambda move: -score_to_value(values[move]))
    others = ranked[1:]
    state = game.parse(record.state)
    for text in [*ranked[:1], *rng.sample(others, min(num_moves - 1, len(others)))]:
        after = game.play(state, game.moves.index(text))
        if game.is_over(after):
            continue
        score = score_after(values[text], same_player=game.player(after) == game.player(state))
        yield Record(
            state=game.format(after),
            game_id=record.game_id,
            ply=None if record.ply is None else record.ply + 1,
            scores=(score,),
            split=record.split,
        )


def write(source: Dataset, writer: DatasetWriter, game: Game[Any], num_moves: int, seed: int) -> int:
    """Write the afterstates of a data set.

    Args:
        source: The records.
        writer: Unit i is block i of the source.
        game: Its rules.
        num_moves: As in ``afterstates``.
        seed: What is drawn for a record depends on it and on the record's number alone.

    Returns:
        How many were left out, because another split holds the position or a symmetric copy of it already.

    Raises:
        DatasetError: no record values its moves, or one cannot be read.
    """
    of_split: dict[Any, str | None] = {}
    any_valued = False
    for record in source.records():
        any_valued = any_valued or bool(record.move_values)
        key = game.canonical_key(game.parse(record.state))
        if of_split.setdefault(key, record.split) != record.split:
            of_split[key] = SEVERAL  # of whichever split an afterstate is, another one holds it
    if not any_valued:
        raise DatasetError(
            f"{source.label} has no move values: label it with genpolicy data label --move-values, for example with "
            "--oracle 'stockfish?nodes=8000&multipv=8'"
        )
    num_held_out = 0
    numbered = enumerate(source.records())
    unit = 0
    while block := list(itertools.islice(numbered, BLOCK_RECORDS)):
        found: list[Record] = []
        for number, record in block:
            try:
                made = list(afterstates(game, record, num_moves, random.Random(f"afterstates|{seed}|{number}")))
            except ValueError as error:
                raise DatasetError(f"{source.label}: record {number}: {error}; label the data set again") from error
            kept = [m for m in made if of_split.setdefault(game.canonical_key(game.parse(m.state)), m.split) == m.split]
            num_held_out += len(made) - len(kept)
            found += kept
        if not writer.is_done(unit):
            writer.add(unit, found)
        unit += 1
    return num_held_out


def add_parser(verbs: Any) -> None:
    """Add ``data afterstates``."""
    parser = verbs.add_parser(
        "afterstates",
        help="make records of the positions after valued moves, with their values",
        description="Make a data set of the positions after moves that a data set values (data label --move-values): "
        "each has the value of the move that led there, and no move of its own. Train on both: "
        "'data.folder=[LABELLED,AFTERSTATES]'. Positions that another split of the data set holds, "
        "as they are or as symmetric copies, are left out.",
    )
    add_data(parser, kinds.dataset)
    parser.add_argument(
        "--moves",
        type=kinds.positive,
        default=DEFAULT_MOVES,
        metavar="N",
        help=f"most moves of a position: its best and others drawn among those with values (default {DEFAULT_MOVES})",
    )
    parser.add_argument("--seed", type=kinds.whole, default=0, metavar="N", help="which moves are drawn")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """``genpolicy data afterstates``."""
    from genpolicy.registry import load_game

    require(arguments.folder, "--data", "runs/labelled")
    source = Dataset.open(arguments.folder)
    if source.unfinished:
        raise DatasetError(source.unfinished[0])
    game = load_game(source.game_spec)
    info = DatasetInfo(
        game=game.spec,
        made_by="label",
        oracle=source.info.oracle,
        options={"afterstates": arguments.moves, "seed": arguments.seed, "records": source.checksum},
        sources=[{"file": str(Path(arguments.folder)), "sha256": source.checksum}, *source.info.sources],
        command=command_line(),
    )
    with stoppable(), DatasetWriter(arguments.out, info, journal=False) as writer:
        if not writer.complete:
            num_held_out = write(source, writer, game, arguments.moves, arguments.seed)
            finish(writer, game, {"skipped": {"in another split": num_held_out} if num_held_out else {}})
    dataset = Dataset.open(arguments.out)
    show(dataset, arguments.json)
    return 0
