"""What models of a game still know some plies ahead: they are told the moves of games that were played.

Run ``python benchmarks/plies_ahead.py POLICY ... [--data sample:chess] [--split test] [--limit N] [--plies 8]``. Each
policy has a model that ``mcts`` searches (an imagining policy, ``muzero``, ``unizero``, ``vq``), the data set games
with every move. Told the moves up to a ply, how often is

    board    the model's position the true one, counters and rights included (of models that have positions, and of
             ``vq``, whose autoencoder decodes its codes one after the other)
    legal    its likeliest move legal there
    label    its likeliest move the one that the position there is labelled with

``vq`` is told a reply as the codes that its autoencoder gives it, so only plies of its own moves count. Intervals are
95 %, bootstrap by game.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.game import Game
from genpolicy.policies.base import Policy
from genpolicy.search.model import SearchModel
from genpolicy.shipped import data_folder
from genpolicy_evaluation.intervals import cluster_bootstrap

RUN = "looks at policies, which are its arguments"
MEASURES = ("board", "legal", "label")


@dataclass(frozen=True)
class Stretch:
    """A part of a game."""

    states: list[Any]
    played: list[int]
    """From each but the last."""
    labels: list[int | None]
    """Of each; None without a label."""
    game: str


def stretches(data: Dataset, game: Game[Any], split: str, plies: int) -> Iterator[Stretch]:
    """One from each record that as many others of its game follow."""
    for name, records in itertools.groupby(data.records(split), lambda record: record.game_id):
        rows = list(records)
        states = [game.parse(record.state) for record in rows]
        for start in range(len(rows) - plies):
            end = start + plies + 1
            part = rows[start:end]
            if name is None or any(b.ply != (a.ply or 0) + 1 or a.played is None for a, b in itertools.pairwise(part)):
                continue
            yield Stretch(
                states=states[start:end],
                played=[game.moves.index(record.played or "") for record in part[:-1]],
                labels=[game.moves.index(record.line.split()[0]) if record.line else None for record in part],
                game=name,
            )


class Reader:
    """Reads the same games for a model of codes, whose autoencoder turns replies into codes and codes into boards.

    Args:
        policy: Has the autoencoder.
        parts: What is read.
    """

    def __init__(self, policy: Any, parts: Sequence[Stretch]) -> None:
        self._tokens, self._moves, self._parts = policy.game.tokens, policy.game.moves, parts
        self._autoencoder = policy.learner.network.autoencoder
        self._viewers = np.array([policy.game.player(part.states[0]) for part in parts])
        self._boards = self._true(0)

    def _true(self, ply: int) -> torch.Tensor:
        states = [part.states[ply] for part in self._parts]
        return torch.from_numpy(self._tokens.encode(states, self._viewers).astype(np.int64))

    @torch.no_grad()
    def reply(self, ply: int) -> list[int]:
        """The model's choices for the replies that led to a ply, which are decoded on the boards decoded so far."""
        played = np.array([part.played[ply - 2] for part in self._parts])
        moves = torch.from_numpy(self._moves.seen_by(played, self._viewers))
        codes = self._autoencoder.codes(self._true(ply - 2), moves, self._true(ply))
        admitted = torch.from_numpy(self._tokens.admitted)
        self._boards = self._autoencoder.likeliest(self._boards, moves, codes, admitted)
        digits = self._autoencoder.codebooks.num_codes ** np.arange(codes.shape[1] - 1, -1, -1)
        return [int(number) for number in codes.numpy() @ digits]

    def right(self, ply: int) -> list[float]:
        """Whether each decoded board is the true position at a ply, in all its tokens."""
        return (self._boards == self._true(ply)).all(-1).float().tolist()


def look_ahead(policy: Policy, model: SearchModel, parts: Sequence[Stretch]) -> dict[tuple[int, str], list[float]]:
    """Tell the model what was played, and compare what it holds at each ply with the rules.

    Returns:
        By ply and measure: 1 or 0 of each part, NaN where it does not apply.
    """
    game, found = policy.game, {}
    is_coded = hasattr(getattr(policy.learner, "network", None), "autoencoder")
    reader = Reader(policy, parts) if is_coded else None
    nodes = model.root([part.states[0] for part in parts])
    for ply in range(1, len(parts[0].states)):
        is_reply = any(nodes.chance)  # a node that the model holds to be finished says that no code follows
        told = reader.reply(ply) if reader and is_reply else [part.played[ply - 1] for part in parts]
        nodes = model.expand(nodes.embeddings, told)
        if any(nodes.chance):
            continue
        marks: dict[str, list[float]] = {name: [] for name in MEASURES}
        for row, part in enumerate(parts):
            state, label, choices = part.states[ply], part.labels[ply], nodes.choices[row]
            likeliest = -1 if choices.priors is None else int(choices.ids[np.argmax(choices.priors)])
            marks["legal"].append(float(likeliest in game.legal(state)))
            marks["label"].append(np.nan if label is None else float(likeliest == label))
            if type(model).position is not SearchModel.position:
                board = model.position(nodes.embeddings[row])
                marks["board"].append(float(board is not None and game.format(board) == game.format(state)))
        if reader:
            marks["board"] = reader.right(ply)
        found.update({(ply, name): values for name, values in marks.items() if values})
    return found


def main() -> None:
    """Print a table for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", metavar="POLICY")
    parser.add_argument("--data", default="sample:chess")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--plies", type=int, default=8)
    args = parser.parse_args()
    dataset = Dataset.open(data_folder(args.data))
    game = genpolicy.load_game(dataset.game_spec)
    parts = list(stretches(dataset, game, args.split, args.plies))
    if not parts:
        raise SystemExit(
            f"{args.data}: no {args.plies + 1} consecutive records of a game in split {args.split!r}; take fewer "
            "--plies, or a data set of played games"
        )
    drawn = np.random.default_rng(0).permutation(len(parts))[: args.limit]
    parts = [parts[i] for i in sorted(drawn.tolist())]
    for spec in args.policies:
        policy = genpolicy.load_policy(spec, game=game)
        model = policy.search_model("imagined") or policy.search_model()
        if model is None:
            raise SystemExit(
                f"{spec} has no model of its own: name a muzero, unizero or vq policy, or one that imagines values and "
                "states"
            )
        found = look_ahead(policy, model, parts)
        print(f"{spec}: {len(parts)} parts of {len({part.game for part in parts})} games", flush=True)
        for ply in sorted({ply for ply, _ in found}):
            print(f"  {ply}", *(_cell(name, found[ply, name], parts) for name in MEASURES if (ply, name) in found))


def _cell(name: str, marks: Sequence[float], parts: Sequence[Stretch]) -> str:
    rows = np.flatnonzero(~np.isnan(marks))
    values = np.array(marks)[rows]
    low, high = cluster_bootstrap(values, [parts[row].game for row in rows.tolist()])
    return f"  {name} {100 * values.mean():5.1f} [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    main()
