"""How often the best move is found, by how many plies away the game's end is: where looking ahead is needed.

Two rows need no network: a random legal move, and the rules looked ahead for two plies. What they find does not show
that a policy looks ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from genpolicy import registry
from genpolicy.game import Game
from genpolicy_common.labelled import LabelledPosition, labelled_positions
from genpolicy_common.tables import Report
from genpolicy_experiments.description import Experiment
from genpolicy_experiments.runner import Result
from genpolicy_experiments.statistics import Mean, mean_over_seeds
from genpolicy_experiments.tables import number

MOST_LATER = 0.5
"""With a larger share of labelled lines that stop before the end of the game, as in chess, the table is left out."""
FEWEST = 20
"""Positions of a column, at least; the others share one."""


def by_end(experiment: Experiment, results: Sequence[Result]) -> Report | None:
    """The table: a row for each cell, a column for each number of plies to the end of the labelled line.

    Returns:
        None where fewer than half of the lines reach the end, or a game's players do not take turns.
    """
    game, evaluate = registry.load_game(experiment.dataset.game_spec), experiment.file.evaluate
    if not game.alternates or game.has_chance:
        return None
    positions = labelled_positions(experiment.dataset, game, evaluate.split, limit=evaluate.positions)
    plies = [len(position.line) if position.ended else None for position in positions]
    if plies.count(None) > MOST_LATER * len(plies):
        return None
    groups = _groups(plies)
    report = Report(
        "Best move % by plies to the end of the game",
        [*(experiment.file.axes or ["run"]), "all", *(f"{name} ({len(rows)})" for name, rows in groups.items())],
        labels=max(1, len(experiment.file.axes)),
    )
    everything = {"all": list(range(len(positions))), **groups}

    def add(labels: Sequence[str], means: Sequence[Mean | None]) -> None:
        missing = [""] * (report.labels - len(labels))
        report.add(*labels, *missing, *("-" if mean is None else number("best", mean) for mean in means))

    alone = {
        "a random legal move": np.array([len(p.best) / p.num_legal for p in positions]),
        "two plies of rules, no network": np.array([two_plies(game, p) for p in positions]),
    }
    for name, share in alone.items():
        add([name], [mean_over_seeds([float(share[rows].mean())]) for rows in everything.values()])
    for cell in experiment.cells:
        found = [np.load(r.hits, allow_pickle=False)["best"] for r in results if r.cell == cell and r.hits is not None]
        add(
            list(cell.labels.values()) or ["all"],
            [
                mean_over_seeds([float(hits[rows].mean()) for hits in found], (0.0, 1.0)) if found else None
                for rows in everything.values()
            ],
        )
    report.notes = [
        "By the labelled line, which is a quickest win or a longest loss; numbers of positions in parentheses. Two "
        "plies of rules: one of the moves that win at once, else one after which the other player cannot, by chance."
    ]
    return report


def two_plies(game: Game[Any], position: LabelledPosition) -> float:
    """Share of best moves among those that are best by the rules and two plies, where what lies beyond is even."""
    worth = {}
    for move in game.legal(position.state).tolist():
        after = game.play(position.state, move)
        ended = game.outcome(after)
        if ended is None:
            ended = 0.0 if game.mate_distance(after, 1) is None else 1.0
        worth[move] = -ended
    top = {move for move, value in worth.items() if value == max(worth.values())}
    return len(top & position.best) / len(top)


def _groups(plies: Sequence[int | None]) -> dict[str, list[int]]:
    """Positions by plies to the end, nearest first; then those of rare numbers and of lines that stop before it."""
    common = sorted(ply for ply, count in Counter(plies).items() if ply is not None and count >= FEWEST)
    groups = {str(ply): [row for row, other in enumerate(plies) if other == ply] for ply in common}
    others = [row for row, ply in enumerate(plies) if ply not in common]
    return {**groups, **({"others": others} if others else {})}
