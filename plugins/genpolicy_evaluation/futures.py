"""What a policy imagines, step by step: Table 8 and Figure 2 left of Ye et al. 2025 (arXiv:2502.19805).

A line is s_0 a_0 s_1 a_1 ... with s_0 the given position. For step i, over all positions that reach it:

- *valid action*: s_i stands for a position and a_i is legal in it (the imagined s_i, not the true continuation).
- *best action*: by an oracle where one is given: s_i stands for a position and a_i is one of the oracle's best moves in
  it. Else by the record: a_0 .. a_i are the first i + 1 moves of the labelled line (at step 0 any move that ties with
  the best counts); only positions whose label has a move i are counted.
- *valid state*: the tokens of s_i stand for a position, by the game's own test (``StateTokenizer.decode``). At step 0
  always. A game whose tokens do not decode has none: there s_i counts as a position where it is the one after a_{i-1}.
- *match*: s_{i-1} stands for a position, a_{i-1} is legal in it, and s_i is the position after it: in full text, move
  counters included. *match board*: the same by ``Game.key``, move counters left out. Step 0 has none.

A position leaves the count at the step in which an imagined game is over: where s_i stands for a position without legal
moves, or for a draw by rule, there is no a_i, and nothing after it. What follows an s_i that stands for nothing is
counted on (and its a_i is invalid), as everything is asked of every position in the paper. The first action is not
restricted to legal moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genpolicy.data.oracle import Oracle, analysed
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy
from genpolicy.values import score_to_value
from genpolicy_common.labelled import LabelledPosition
from genpolicy_common.tables import Report, positions_text
from genpolicy_evaluation.accuracy import Share
from genpolicy_evaluation.matplotlib_style import check_plot_files, draw_shares, load_pyplot, save_figure
from genpolicy_evaluation.positions import ask, chunks, progress_bar

MEASURES = ("valid_action", "best_action", "valid_state", "match", "match_board")
TITLES = {
    "valid_action": "valid action %",
    "best_action": "best action %",
    "valid_state": "valid state %",
    "match": "match %",
    "match_board": "match board %",
}
ORACLE_CHUNK = 64


@dataclass(frozen=True)
class Futures:
    """One way of playing, measured."""

    policy: str
    mode: str
    steps: tuple[Mapping[str, Share], ...]
    """For each step its shares by measure; one that does not exist at a step has no trials."""

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        steps = [{name: share.figures() for name, share in step.items()} for step in self.steps]
        return {"policy": self.policy, "mode": self.mode, "steps": steps}


class _Tally:
    """Hits by step and measure, with the game that each comes from."""

    def __init__(self) -> None:
        self._hits: dict[tuple[int, str], tuple[list[float], list[str]]] = {}

    def add(self, step: int, measure: str, cluster: str, hit: bool) -> None:
        hits, clusters = self._hits.setdefault((step, measure), ([], []))
        hits.append(float(hit))
        clusters.append(cluster)

    def share(self, step: int, measure: str) -> Share:
        hits, clusters = self._hits.get((step, measure), ([], []))
        return Share.of(np.array(hits), clusters)

    @property
    def num_steps(self) -> int:
        return 1 + max((step for step, _ in self._hits), default=-1)


@dataclass(frozen=True)
class _Asked:
    """An imagined position that the oracle is asked about."""

    state: Any
    step: int
    action: int
    cluster: str


def measure_futures(
    policy: Policy,
    positions: Sequence[LabelledPosition],
    *,
    oracle: Oracle | None = None,
    name: str | None = None,
    mode: str = "",
    show: bool = False,
) -> Futures:
    """Measure what a policy imagines.

    Args:
        policy: Asked without its legal mask, where it has one.
        positions: From ``labelled_positions``, at least one.
        oracle: Judges the best action in imagined positions; None takes the records' lines.
        name: For the table; the policy's label by default.
        mode: For the table.
        show: Show a progress bar.

    Raises:
        ValueError: no positions, or a policy that imagines nothing.
    """
    if not positions:
        raise ValueError("no positions to measure on")
    name = policy.label if name is None else name
    decisions = ask(policy.unmasked() or policy, positions, f"{name} {mode}".strip(), show=show)
    if not any(decision.line for decision in decisions):
        raise ValueError(f"policy {name!r} imagines no line, so it has no future to measure")
    tally, asked = _Tally(), list[_Asked]()
    for position, decision in zip(positions, decisions, strict=True):
        asked += _follow(policy.game, position, decision, tally)
        if oracle is None:
            _compare_with_label(position, decision, tally)
    if oracle is not None:
        _compare_with_oracle(oracle, asked, tally, show)
    steps = [{measure: tally.share(step, measure) for measure in MEASURES} for step in range(tally.num_steps)]
    return Futures(name, mode, tuple(steps))


def _follow(game: Game[Any], position: LabelledPosition, decision: Decision, tally: _Tally) -> list[_Asked]:
    """Count validity and agreement along one line; the imagined positions in which it moves."""
    asked = []
    before: Any = None
    state: Any = position.state
    for step, action in enumerate(decision.line):
        if step > 0:
            if step - 1 >= len(decision.states):
                break  # a paradigm without states imagines moves only
            text = decision.states[step - 1]
            state = None if text is None else game.parse(text)
            if game.tokens.decodes:
                tally.add(step, "valid_state", position.cluster, state is not None)
            true = _after(game, before, decision.line[step - 1])
            both = true is not None and state is not None
            tally.add(step, "match", position.cluster, both and game.format(true) == game.format(state))
            tally.add(step, "match_board", position.cluster, both and game.key(true) == game.key(state))
        elif game.tokens.decodes:
            tally.add(0, "valid_state", position.cluster, True)
        legal: Sequence[int] = [] if state is None else game.legal(state).tolist()
        if state is not None and (len(legal) == 0 or (step > 0 and game.outcome(state) is not None)):
            break
        tally.add(step, "valid_action", position.cluster, action in legal)
        asked.append(_Asked(state, step, action, position.cluster))
        before = state
    return asked


def _after(game: Game[Any], state: Any, action: int) -> Any:
    """The position after an action; None where there is no position or the action is illegal in it."""
    if state is None or action not in game.legal(state):
        return None
    return game.play(state, action)


def _compare_with_label(position: LabelledPosition, decision: Decision, tally: _Tally) -> None:
    agrees = True
    for step, (action, label) in enumerate(zip(decision.line, position.line, strict=False)):
        tally.add(
            step,
            "best_action",
            position.cluster,
            agrees and (action in position.best if step == 0 else action == label),
        )
        # A tied first move leads to positions that the labelled line does not speak of.
        agrees = agrees and action == label


def _compare_with_oracle(oracle: Oracle, asked: Sequence[_Asked], tally: _Tally, show: bool) -> None:
    with progress_bar(show) as progress:
        task = progress.add_task("oracle", total=len(asked))
        for chunk in chunks(asked, ORACLE_CHUNK):
            valid = [each for each in chunk if each.state is not None]
            best = iter(_best_moves(oracle, [each.state for each in valid]))
            for each in chunk:
                hit = each.state is not None and each.action in next(best)
                tally.add(each.step, "best_action", each.cluster, hit)
            progress.advance(task, len(chunk))


def _best_moves(oracle: Oracle, states: Sequence[Any]) -> list[set[int]]:
    """The best moves of each position: those that tie in value where the oracle is exact, else its one move."""
    if not states:
        return []
    best = []
    for line in analysed(oracle, states, 1):
        values = {move: score_to_value(score) for move, score in line.move_values.items()}
        top = {move for move, value in values.items() if value == max(values.values())}
        best.append(top or set(line.moves[:1]))
    return best


def futures_reports(
    rows: Sequence[Futures], positions: Sequence[LabelledPosition], source: str, judge: str
) -> list[Report]:
    """One table for each way of playing, a row a step."""
    reports = []
    for row in rows:
        title = f"Imagined futures of {row.policy}" + (f" ({row.mode})" if row.mode else "") + f" on {source}"
        report = Report(title, ["step", *(TITLES[measure] for measure in MEASURES)])
        for step, shares in enumerate(row.steps):
            report.add(str(step), *(str(shares[measure]) for measure in MEASURES))
        reports.append(report)
    if reports:
        reports[-1].notes = [
            f"{positions_text(len(positions), len({p.cluster for p in positions}))}; no legal mask; best "
            f"action by {judge}.",
            "match: the imagined position is the one after the imagined move, move counters included; match board: "
            "without them.",
        ]
    return reports


def plot_futures(rows: Sequence[Futures], path: Path) -> None:
    """Draw the shares by step to a ``.png``, ``.svg`` or ``.pdf`` file (Figure 2 left of the paper).

    Raises:
        ConfigError: as ``check_plot_files``.
        OSError: as ``save_figure``.
    """
    check_plot_files([path])
    figure, axes = load_pyplot().subplots(1, len(rows), figsize=(5 * len(rows), 4), squeeze=False, sharey=True)
    for axis, row in zip(axes[0], rows, strict=True):
        for measure in MEASURES:
            points = [(i, shares[measure]) for i, shares in enumerate(row.steps) if shares[measure].trials]
            if points:
                steps, drawn = zip(*points, strict=True)
                draw_shares(axis, steps, drawn, marker="o", label=TITLES[measure].removesuffix(" %"))
        axis.set_title(f"{row.policy} ({row.mode})" if row.mode else row.policy)
        axis.set_xlabel("future step")
        axis.set_xticks(range(len(row.steps)))
        axis.set_ylim(-3, 103)
    axes[0][0].set_ylabel("% of positions")
    axes[0][0].legend()
    figure.tight_layout()
    save_figure(figure, [path])
