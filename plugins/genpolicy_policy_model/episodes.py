"""Episodes: windows of K moves that follow one another, with all that learning a model of the game takes.

A window begins at any record. ``games`` follows the moves that were played; ``walks`` goes from record to record of the
same split by moves of its own, drawn anew in each epoch: one of the best by ``move_values`` with probability 1/2, else
any legal one.

Axes: B windows, K moves, L tokens of a state, M moves of the vocabulary, N tokens of a sequence, R records, E moves out
of records, P entries of records' policies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.chance import probabilities
from genpolicy.data.array_cache import ArrayFiles, cached
from genpolicy.data.counter_rng import bits, draw
from genpolicy.data.records import Dataset
from genpolicy.data.window_build import BATCH_ROWS, COLUMNS, check_game, records_of, rows_with, starts_of
from genpolicy.data.window_cache import UNKNOWN, WindowCache
from genpolicy.data.window_encoder import (
    Arrays,
    PlayedLine,
    WindowEncoder,
    WindowRecord,
    best_moves_of,
    position_key,
)
from genpolicy.data.windows import TokenBatch, WindowSource
from genpolicy.errors import ConfigError, DatasetError, require_one_of
from genpolicy.game import Game
from genpolicy.sequence import Layout
from genpolicy.values import score_to_value

SIDES = ("both", "own")
SOURCES = ("games", "walks")
TARGETS = ("label", "search", "played")
VALUES = ("label", "result", "search")
VERSION = 2
"""Raised when the cache's content changes for the same inputs."""
_LABEL, _COIN, _MOVE, _AFTER_END = 0, 1 << 34, 1 << 35, 1 << 36  # streams of draws; the first is window_source's


@dataclass(frozen=True)
class EpisodeBatch(TokenBatch):
    """Some windows. What ``TokenBatch`` has is the root and its label, as a window of ``s-a``.

    Everything is seen by the player to move at the root. Where the records end before K moves, states are the layout's
    mask id and numbers NaN. After the end of a game states are PAD, moves random, rewards and values 0.
    """

    states: Tensor
    """[B, K+1, L] int64 token ids; the position in which a game ends is shown."""
    moves: Tensor
    """[B, K] int64 moves."""
    policy: Tensor
    """[B, K+1, M] float32 target probabilities of the moves; all 0 where there are none."""
    value: Tensor
    """[B, K+1] float32 in [-1, 1] for the player to move there; NaN unknown."""
    reward: Tensor
    """[B, K] float32, the result of the game for who moved where a move (and its answer) ends it, else 0."""
    live: Tensor
    """[B, K+1] bool, whether the game goes on there."""
    other: Tensor
    """[B, K+1] bool, whether the player to move there is not the one at the root."""
    chance: Tensor
    """[B, K] bool, whether chance decides what a move leads to."""
    worth: Tensor
    """[B, K] float32 in [-1, 1], with ``side="own"`` the value of what a move leads to, before the answer, for who
    moved; NaN unknown, and with ``side="both"`` until the end of the game."""


class Episodes(WindowSource):
    """Windows of K moves of a split.

    With ``side="own"`` a window holds the positions of one player alone: a move and its answer are one step, the
    opponent's moves stand nowhere, and the reward is that player's whoever ended the game.

    In a game with chance a move and nature's moves after it are one step: positions of chance are not shown, no window
    begins at one, and nature's moves stand nowhere. The same player may be to move after it.

    Args:
        records: The data set.
        split: Which of its splits.
        game: Its rules; the sides alternate, or chance decides something.
        unroll: K, at least 0.
        side: ``both`` or ``own``; with chance ``both``.
        source: ``games`` or ``walks``; with chance ``games``, whose records have nature's moves.
        targets: What ``policy`` is: ``label``, even over the best moves; ``search``, the record's own; ``played``.
        value: What ``value`` is: ``label``, the score of the position; ``result``, the game's; ``search``, the
            record's own; ``mix:X``, X of the search's and the rest of the result's.
        seed: Seed of everything drawn, which depends on it, the epoch and the index alone.
        cache_dir: As in ``WindowOptions``.

    Raises:
        ConfigError: a setting that does not exist, or an ``unroll`` that no run of moves in the split reaches.
        DatasetError: records of another game, without what is asked of them, or that the rules refuse.
    """

    def __init__(
        self,
        records: Dataset,
        split: str,
        game: Game[Any],
        *,
        unroll: int,
        side: str = "both",
        source: str = "games",
        targets: str = "label",
        value: str = "label",
        seed: int = 0,
        cache_dir: Path | None = None,
    ) -> None:
        require_one_of("side", side, SIDES)
        require_one_of("source", source, SOURCES)
        require_one_of("targets", targets, TARGETS)
        if unroll < 0:
            raise ConfigError(f"unroll must be at least 0, got {unroll}")
        check_game(records, game)
        if game.has_chance and (side, source) != ("both", "games"):
            raise ConfigError(
                f"side={side}, source={source}: in {game.spec!r} chance decides, so episodes follow both sides "
                "of games that were played; set side=both and source=games (genpolicy data selfplay writes those)"
            )
        if not (game.alternates or game.has_chance):
            raise ConfigError(f"in {game.spec!r} a player may move twice; episodes are of games whose sides alternate")
        self.layout = Layout(game, "s-a", 1)
        self.unroll, self._plies, self._seed = unroll, 2 if side == "own" else 1, seed
        self._mirrored, self._by_best, self._chance = game.moves.mirrored, source == "walks", game.has_chance
        identity = {"episodes": VERSION, "dataset": records.checksum, "game": game.spec, "split": split}
        identity |= {"layout": self.layout.fingerprint, "source": source, "targets": targets, "value": value}
        identity |= {"centipawn_scale": records.centipawn_scale}
        encoder = _Encoder(game, self.layout, source, targets, value, records.centipawn_scale)
        self._cache = WindowCache(
            cached(records, identity, lambda folder: encoder.write(folder, records, split), cache_dir)
        )
        self._natural = self._cache.array("natural") if self._chance else None
        self._begins = None if self._natural is None else np.flatnonzero(~self._natural)
        longest = self._longest()
        if longest < unroll:
            raise ConfigError(
                f"unroll={unroll}: no run of moves in split {split!r} of {records.label} is longer than {longest} "
                f"{'moves and answers' if side == 'own' else 'moves'}; set unroll={longest} at most"
            )

    def __len__(self) -> int:
        return len(self._cache) if self._begins is None else len(self._begins)

    def batch(self, indices: NDArray[np.int64], epoch: int) -> EpisodeBatch:
        """The windows of some indices [B], each in 0..len-1."""
        asked, layout, num_moves = np.asarray(indices, np.int64), self.layout, len(self._mirrored)
        if len(asked) and not 0 <= asked.min() <= asked.max() < len(self):
            raise IndexError(f"window indices lie in 0..{len(self) - 1}, got {asked.min()}..{asked.max()}")
        windows = asked if self._begins is None else self._begins[asked]
        shape = (len(windows), self.unroll + 1)
        viewers = self._cache.gather("players", windows).astype(np.int64)
        states = np.full((*shape, layout.state_length), layout.mask, np.int64)
        states[:, 0] = self._cache.gather("tokens", windows)
        moves = np.empty((len(windows), self.unroll), np.int64)
        policy = np.zeros((*shape, num_moves), np.float32)
        value, reward = np.full(shape, np.nan, np.float32), np.full(moves.shape, np.nan, np.float32)
        live, other, chance = (np.zeros(each, np.bool_) for each in (shape, shape, moves.shape))
        worth = reward.copy()
        here = windows.copy()  # the record that each window stands on, or UNKNOWN
        live[:, 0], ended = True, np.zeros(len(windows), np.bool_)
        for k in range(self.unroll + 1):
            on = np.flatnonzero(here != UNKNOWN)
            value[on, k] = self._cache.gather("values", here[on])
            policy[on, k] = self._policies(here[on], viewers[on])
            if k == self.unroll:
                break
            moves[:, k] = draw(self._seed, epoch, windows, _AFTER_END + k, np.full(len(windows), num_moves))
            states[ended, k + 1], reward[ended, k], value[ended, k + 1] = layout.pad, 0.0, 0.0
            worth[ended, k] = 0.0
            for ply in range(self._plies):
                on = np.flatnonzero(here != UNKNOWN)
                edges = self._drawn(here[on], windows[on], epoch, k * self._plies + ply)
                if ply == 0:
                    moves[on, k] = self._seen(self._cache.gather("move", edges).astype(np.int64), viewers[on])
                if self._chance:
                    chance[on, k] = self._cache.gather("chance", edges)
                    edges = self._settled(edges)
                    here[on[edges == UNKNOWN]] = UNKNOWN
                    on, edges = on[edges != UNKNOWN], edges[edges != UNKNOWN]
                    turned = self._cache.gather("turned", edges)
                else:
                    turned = np.ones(len(on), np.bool_)
                other[on, k + 1] = other[on, k + (ply > 0)] ^ turned
                over = self._cache.gather("over", edges)
                here[on] = np.where(over, UNKNOWN, self._cache.gather("next", edges))
                done, last = on[over], ply == self._plies - 1
                reward[done, k] = (1 - 2 * ply) * self._cache.gather("rewards", edges[over])
                shown = over | last  # the position before an answer is not shown
                states[on[shown], k + 1] = self._cache.children(edges[shown], viewers[on[shown]])
                if last:
                    reward[on[~over], k], live[on[~over], k + 1] = 0.0, True
                else:
                    answers = on[here[on] != UNKNOWN]
                    worth[done, k], worth[answers, k] = reward[done, k], -self._cache.gather("values", here[answers])
                ended[done], value[done, k + 1] = True, 0.0
        rows, target = self._roots(states[:, 0], windows, viewers, epoch)
        given = torch.from_numpy(layout.given).expand(len(windows), -1).clone()
        of = (states, moves, policy, value, reward, live, other, chance, worth)
        return EpisodeBatch(rows, given, target, torch.from_numpy(asked.copy()), *map(torch.from_numpy, of))

    def _settled(self, edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """[B] the last moves of the steps that begin with some: nature's, where chance decides, or ``UNKNOWN``."""
        last = edges.copy()
        waits = np.flatnonzero(self._cache.gather("chance", last))
        while len(waits):
            thrown = self._cache.gather("next", last[waits])
            recorded = thrown != UNKNOWN
            last[waits[~recorded]] = UNKNOWN
            waits = waits[recorded]
            last[waits] = self._cache.gather("starts", thrown[recorded])
            waits = waits[self._cache.gather("chance", last[waits])]
        return last

    def _seen(self, moves: NDArray[np.int64], viewers: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(viewers == 1, self._mirrored[moves], moves)

    def _drawn(self, here: NDArray[np.int64], windows: NDArray[np.int64], epoch: int, ply: int) -> NDArray[np.int64]:
        """[B] the moves out of some records that their windows take."""
        first, count = self._cache.span("starts", here)
        if not self._by_best:
            return first
        best = bits(self._seed, epoch, windows, _COIN + ply) >> np.uint64(63) == 0
        count = np.where(best, self._cache.gather("num_best", here), count)
        return first + draw(self._seed, epoch, windows, _MOVE + ply, count)

    def _policies(self, here: NDArray[np.int64], viewers: NDArray[np.int64]) -> NDArray[np.float32]:
        row, entries = self._cache.entries("policy_starts", here)
        table = np.zeros((len(here), len(self._mirrored)), np.float32)
        moves = self._cache.gather("policy_move", entries).astype(np.int64)
        table[row, self._seen(moves, viewers[row])] = self._cache.gather("policy_share", entries)
        return table

    def _roots(
        self, states: NDArray[np.int64], windows: NDArray[np.int64], viewers: NDArray[np.int64], epoch: int
    ) -> tuple[Tensor, Tensor]:
        """[B, N] the roots with one of their likeliest moves, and what of it is trained on."""
        rows = np.full((len(windows), self.layout.length), self.layout.mask, np.int64)
        rows[:, : self.layout.state_length] = states
        tied = self._cache.gather("policy_tied", windows)
        on = np.flatnonzero(tied)
        entries = self._cache.gather("policy_starts", windows[on])
        entries = entries + draw(self._seed, epoch, windows[on], _LABEL, tied[on])
        moves = self._seen(self._cache.gather("policy_move", entries).astype(np.int64), viewers[on])
        rows[on, self.layout.first_action] = self.layout.move_offset + moves
        target = np.zeros(rows.shape, np.bool_)
        target[on, self.layout.first_action] = True
        return torch.from_numpy(rows), torch.from_numpy(target)

    def _longest(self) -> int:
        """Steps of the longest run of moves, ``unroll`` at most."""
        starts, following = self._cache.array("starts"), self._cache.array("next")
        source = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        goes_on = np.ones(len(following), np.bool_)
        if self._natural is not None:
            last = self._settled(np.arange(len(following)))
            goes_on = (last != UNKNOWN) & ~self._natural[source]
            following = np.where(goes_on, following[last], UNKNOWN)
        for plies in range(self.unroll * self._plies - (self._plies - 1)):  # a game may end before the last answer
            reaches = np.zeros(len(starts) - 1, np.bool_)
            reaches[source[goes_on]] = True
            if not reaches.any():
                return (plies + self._plies - 1) // self._plies
            goes_on = (following != UNKNOWN) & reaches[following]
        return self.unroll


class _Encoder(WindowEncoder):
    """Records as arrays: ``tokens`` [R, L] int16 and ``players`` [R] int8 (who sees them, and moves), ``values`` [R];
    moves out of them ``move`` [E] int32, ``child`` [E, 2, L] int16 (for viewer 0 and 1), ``over``, ``rewards`` [E], the
    best first (``num_best`` [R]) and each in the order of ids; ``policy_move``, ``policy_share`` [P], likeliest first
    (``policy_tied`` [R] of them). ``starts``, ``policy_starts`` [R + 1], ``next`` [E] (a record or ``UNKNOWN``). With
    chance ``natural`` [R] (nature moves there), and of moves ``chance`` (nature moves next) and ``turned`` [E] (another
    player is to move)."""

    def __init__(self, game: Game[Any], layout: Layout, source: str, targets: str, value: str, scale: float) -> None:
        super().__init__(game, layout, "mover", scale=scale)
        self.source, self.targets, self.value = source, targets, value
        kind, _, share = value.partition(":")
        try:
            self.search_share = float(share) if kind == "mix" else {"search": 1.0, "result": 0.0}.get(value)
        except ValueError:
            self.search_share = -1.0
        known = value in VALUES or kind == "mix"
        if not known or (self.search_share is not None and not 0 <= self.search_share <= 1):
            raise ConfigError(f"value must be one of {', '.join(VALUES)}, or mix:X with X in [0, 1]; got {value!r}")

    def write(self, folder: Path, records: Dataset, split: str) -> dict[str, dict[str, Any]]:
        """Fill a folder with the arrays of a split; their facts."""
        files, start, names = ArrayFiles(folder), 0, [*COLUMNS, "played", "result", "policy", "value"]
        for number, part in enumerate(records.parts):
            for batch in part.batches(["game_id", "ply", *names], split, BATCH_ROWS):
                rows = records_of(records, batch, names, f"record {split}", start)
                # Games are named anew in each data set: those of two self-plays with one seed have the same names.
                games = [each and f"{number} {each}" for each in batch.column("game_id").to_pylist()]
                files.append(self.encode_nodes(rows, games, batch.column("ply").to_pylist()))
                start += batch.num_rows
        wanting = "no records" if not start else "no values" if np.isnan(files.read("values")).all() else None
        if wanting is None and files.length("policy_move") == 0:
            wanting = "no moves to learn"
        if wanting is not None:
            raise DatasetError(
                f"{records.label}: split {split!r} has {wanting} (targets={self.targets}, value={self.value}); its "
                f"splits are {records.splits}. genpolicy data label makes labels, data selfplay games with results"
            )
        for name, counts in (("starts", "num_moves"), ("policy_starts", "policy_counts")):
            files.append({name: starts_of(files.read(counts))})
        # The record that each move leads to, the next of its game or one of the position; else ``UNKNOWN``.
        files.append({"next": rows_with(files.read("keys"), files.read("child_keys"))})
        return files.close()

    def encode_nodes(
        self, records: Sequence[WindowRecord], game_ids: Sequence[str | None], plies: Sequence[int | None]
    ) -> Arrays:
        """The arrays of some records.

        Raises:
            DatasetError: a record that the rules refuse, or that lacks what the source takes.
        """
        game, rows = self.game, [PlayedLine(self.game, record, 0) for record in records]
        viewers = np.array([row.players[0] for row in rows], np.int8)
        nodes = [*zip(rows, game_ids, plies, strict=True)]
        exits = [self._moves(*node) for node in nodes]
        out = [(row, move) for row, (moves, _) in zip(rows, exits, strict=True) for move in moves]
        children = [row.child(move) for row, move in out]
        turned = [game.player(state) != row.players[0] for (row, _), state in zip(out, children, strict=True)]
        results = [
            ((game.outcome(state) or 0.0) * (-1 if turns else 1)) if game.is_over(state) else None
            for state, turns in zip(children, turned, strict=True)
        ]
        shown = np.zeros((len(children), 2, self.layout.state_length), np.int16)
        for viewer in (0, 1) if children else ():
            shown[:, viewer] = self._encode_states(children, np.full(len(children), viewer, np.int8))
        if self.source == "games":
            keys = [_key(game_id, ply or 0) for _, game_id, ply in nodes]
            child_keys = [_key(game_id, (ply or 0) + 1) for _, game_id, ply in nodes]
        else:
            keys, child_keys = (
                [position_key(game, s) for s in each] for each in ([r.states[0] for r in rows], children)
            )
        policies = [sorted(self._policy(row).items(), key=lambda pair: (-pair[1], pair[0])) for row in rows]
        of_chance = (
            {}
            if not game.has_chance
            else {
                "natural": np.array([probabilities(game, row.states[0]) is not None for row in rows], np.bool_),
                "chance": np.array(
                    [
                        result is None and probabilities(game, state) is not None
                        for state, result in zip(children, results, strict=True)
                    ],
                    np.bool_,
                ),
                "turned": np.array(turned, np.bool_),
            }
        )
        return {
            **of_chance,
            "tokens": self._encode_states([row.states[0] for row in rows], viewers),
            "players": viewers,
            "values": np.array([self._value(row) for row in rows], np.float32),
            "keys": np.array(keys, np.uint64),
            "num_moves": np.array([len(moves) for moves, _ in exits], np.int32),
            "num_best": np.array([num_best for _, num_best in exits], np.int32),
            "move": np.array([move for _, move in out], np.int32),
            "child": shown,
            "child_keys": np.array(child_keys, np.uint64),
            "over": np.array([result is not None for result in results], np.bool_),
            "rewards": np.array([result or 0.0 for result in results], np.float32),
            "policy_counts": np.array([len(policy) for policy in policies], np.int32),
            "policy_tied": np.array([sum(share == p[0][1] for _, share in p) for p in policies], np.int32),
            "policy_move": np.array([move for policy in policies for move, _ in policy], np.int32),
            "policy_share": np.array([share for policy in policies for _, share in policy], np.float32),
        }

    def _moves(self, row: PlayedLine, game_id: str | None, ply: int | None) -> tuple[list[int], int]:
        """The moves out of a record, and how many of them, in front, are the best."""
        record = row.record
        if self.source == "games":
            if game_id is None or ply is None or record.played is None:
                raise DatasetError(
                    f"{record.where}: it has no game_id, ply or played move, so no game to follow. genpolicy data "
                    "selfplay and data import of games write them; where all moves have values, take source walks"
                )
            return [row.move(record.played)], 1
        if not record.scored_moves:
            raise DatasetError(
                f"{record.where}: it has no move values, which a walk needs; genpolicy data label "
                "--move-values adds them (--oracle alphabeta, an engine or a solver), or set learner.source=games"
            )
        best = best_moves_of(row)
        return [*best, *(m for m in self.game.legal(row.states[0]).tolist() if m not in best)], len(best)

    def _policy(self, row: PlayedLine) -> dict[int, float]:
        if self.targets == "search":
            return row.policy()
        record = row.record
        texts = record.moves[:1] if self.targets == "label" else () if record.played is None else (record.played,)
        valued = self.targets == "label" and record.scored_moves
        moves = best_moves_of(row) if valued else [row.move(text) for text in texts]
        return dict.fromkeys(moves, 1.0 / max(1, len(moves)))

    def _value(self, row: PlayedLine) -> float:
        """For the player to move; NaN where the record has none."""
        searched = self.search_share
        if searched is None:
            score = row.score(0)
            return np.nan if score is None else row.record.read(score_to_value, score, self.scale)
        result = (1 - 2 * row.players[0]) * row.number("result")
        search = row.number("value")
        return float(
            search if searched == 1 else result if searched == 0 else searched * search + (1 - searched) * result
        )


def _key(game_id: str | None, ply: int) -> int:
    """64 bits of a place in a game."""
    return int.from_bytes(hashlib.blake2b(f"{ply} {game_id}".encode(), digest_size=8).digest(), "little")
