"""Episodes against the rules: every window is replayed move by move, and its labels are looked up in the records."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genpolicy import load_game
from genpolicy.data.records import Dataset, Record
from genpolicy.data.window_source import build_windows
from genpolicy.data.windows import WindowOptions
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.game import Game
from genpolicy.sequence import Layout
from genpolicy.values import score_to_value
from genpolicy_policy_model.episodes import EpisodeBatch, Episodes
from tests.model.test_vq import batch_of, learner_of
from tests.small_datasets import CONNECT, solved_connect, write_dataset

# On one worker, so that what the module solves is solved once.
pytestmark = pytest.mark.xdist_group("episodes")

GAME: Game[Any] = load_game(CONNECT)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("solved"), horizon=1, every=3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("whole"), horizon=1)


def random_games(num: int, seed: int = 0) -> list[list[Record]]:
    """Games of random moves, each record with a search's policy and value beside the move that was played."""
    draw = random.Random(seed)
    games = []
    for number in range(num):
        state, rows = GAME.parse(), []
        while GAME.outcome(state) is None:
            move = draw.choice(GAME.legal(state).tolist())
            shares = {m: 1 + (m == move) for m in GAME.legal(state).tolist()}
            policy = " ".join(f"{GAME.moves[m]}={share / sum(shares.values()):.6f}" for m, share in shares.items())
            rows.append((GAME.format(state), GAME.moves[move], policy, draw.uniform(-1, 1)))
            state = GAME.play(state, move)
        outcome = GAME.outcome(state)
        assert outcome is not None
        result = outcome if GAME.player(state) == 0 else -outcome
        games.append(
            [
                Record(text, f"g{number}", ply, played=played, result=result, split="train", policy=policy, value=value)
                for ply, (text, played, policy, value) in enumerate(rows)
            ]
        )
    return games


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, list[Record]]:
    records = [record for game in random_games(40) for record in game]
    return write_dataset(tmp_path_factory.mktemp("played"), GAME.spec, records), records


def all_of(episodes: Episodes, epoch: int = 0) -> EpisodeBatch:
    return episodes.batch(np.arange(len(episodes)), epoch)


def absolute(moves: torch.Tensor, viewer: int) -> list[int]:
    return [int(move) for move in GAME.moves.seen_by(moves.numpy(), viewer)]


def tokens_of(state: Any, viewer: int) -> list[int]:
    return [int(token) for token in GAME.tokens.encode([state], [viewer])[0]]


def records_of(data: Dataset, split: str = "train") -> list[Record]:
    return list(data.records(split))


@pytest.mark.parametrize("epoch", [0, 3])
def test_without_moves_a_window_is_that_of_s_a(solved: Dataset, epoch: int) -> None:
    windows = build_windows(solved, "train", GAME, Layout(GAME, "s-a", 1), WindowOptions(redraw=True, seed=5))
    episodes = Episodes(solved, "train", GAME, unroll=0, source="walks", seed=5)
    mine, theirs = all_of(episodes, epoch), windows.batch(np.arange(len(windows)), epoch)
    assert len(episodes) == len(windows)
    for name in ("tokens", "frozen", "target", "indices"):
        assert torch.equal(getattr(mine, name), getattr(theirs, name)), name
    assert torch.equal(mine.states[:, 0], mine.tokens[:, :-1])


@pytest.mark.parametrize("side", ["both", "own"])
def test_a_window_of_a_game_is_the_game(played: tuple[Dataset, list[Record]], side: str) -> None:
    data, records = played
    unroll, layout = 3, Layout(GAME, "s-a", 1)
    batch = all_of(Episodes(data, "train", GAME, unroll=unroll, side=side, targets="search", value="mix:0.25"))
    for row, record in enumerate(records):
        state = GAME.parse(record.state)
        viewer, at, over = GAME.player(state), row, False
        for k in range(unroll + 1):
            if over:
                assert batch.states[row, k].tolist() == [layout.pad] * layout.state_length
                assert batch.value[row, k] == 0
                assert not batch.live[row, k]
            else:
                over = GAME.outcome(state) is not None
                assert batch.states[row, k].tolist() == tokens_of(state, viewer)
                assert bool(batch.live[row, k]) is not over
                check_labels(batch, row, k, None if over else records[at], viewer)
                ended_here = over
            if k == unroll:
                break
            if over:
                assert batch.reward[row, k] == 0
                assert batch.worth[row, k] == 0
                continue
            assert not ended_here
            assert absolute(batch.moves[row, k : k + 1], viewer) == [GAME.moves.index(records[at].played or "")]
            mover = GAME.player(state)
            if side == "own":
                check_worth(
                    batch, row, k, GAME.play(state, GAME.moves.index(records[at].played or "")), records, at + 1
                )
            for _ in range(2 if side == "own" else 1):
                if GAME.outcome(state) is None:
                    state = GAME.play(state, GAME.moves.index(records[at].played or ""))
                    at += 1
            outcome = GAME.outcome(state)
            expected = 0.0 if outcome is None else outcome if GAME.player(state) == mover else -outcome
            assert batch.reward[row, k] == expected


def check_worth(batch: EpisodeBatch, row: int, k: int, answered: Any, records: list[Record], at: int) -> None:
    """The value before the answer, for who does not answer: the negative of the next record's, or the result."""
    outcome = GAME.outcome(answered)
    if outcome is not None:
        assert batch.worth[row, k] == -outcome
        return
    value, result = records[at].value, records[at].result
    assert value is not None
    assert result is not None
    of_answering = 0.25 * value + 0.75 * (1 - 2 * GAME.player(answered)) * result
    assert float(batch.worth[row, k]) == pytest.approx(-of_answering, abs=1e-6)


def check_labels(batch: EpisodeBatch, row: int, k: int, record: Record | None, viewer: int) -> None:
    """Policy and value at a state; None: the game is over there."""
    policy, value = batch.policy[row, k], float(batch.value[row, k])
    if record is None:
        assert value == 0
        assert policy.sum() == 0
        return
    mover = GAME.player(GAME.parse(record.state))
    assert record.value is not None
    assert record.result is not None
    assert value == pytest.approx(0.25 * record.value + 0.75 * (1 - 2 * mover) * record.result, abs=1e-6)
    shares = dict(entry.split("=") for entry in (record.policy or "").split())
    seen = {int(GAME.moves.seen_by(np.array(GAME.moves.index(m)), viewer)): float(p) for m, p in shares.items()}
    assert {m: round(float(policy[m]), 5) for m in policy.nonzero()[:, 0].tolist()} == {
        m: round(p, 5) for m, p in seen.items()
    }


def test_own_steps_of_both_players_are_the_game_again(played: tuple[Dataset, list[Record]]) -> None:
    data, records = played
    batch = all_of(Episodes(data, "train", GAME, unroll=4, side="own", targets="played", value="result"))
    start = 0
    for game in random_games(40):
        moves: list[list[int]] = []
        for root in (0, 1):  # the first position of each player holds all own moves of that player
            steps = (len(game) - root + 1) // 2
            unrolled = min(steps, 4)
            moves.append(absolute(batch.moves[start + root, :unrolled], root))
        merged = [moves[ply % 2][ply // 2] for ply in range(min(len(game), 8))]
        assert merged == [GAME.moves.index(record.played or "") for record in game[:8]]
        start += len(game)
    assert start == len(records)


def test_games_of_one_name_in_two_data_sets_are_kept_apart(tmp_path: Path) -> None:
    """Two self-plays with one seed name their games alike."""
    names = [f"part-{seed}" for seed in (1, 2)]
    for seed, name in enumerate(names):
        write_dataset(tmp_path / name, GAME.spec, [record for game in random_games(5, seed) for record in game])
    union = Dataset.open([tmp_path / name for name in names])
    together = all_of(Episodes(union, "train", GAME, unroll=3, targets="search", value="result"))
    alone = [all_of(Episodes(part, "train", GAME, unroll=3, targets="search", value="result")) for part in union.parts]
    for name in ("states", "policy", "value"):
        expected = torch.cat([getattr(batch, name) for batch in alone])
        torch.testing.assert_close(getattr(together, name), expected, rtol=0, atol=0, equal_nan=True)


def test_a_gap_ends_what_is_known(tmp_path: Path) -> None:
    game = max(random_games(10), key=len)
    data = write_dataset(tmp_path, GAME.spec, [record for record in game if record.ply != 2])
    batch = all_of(Episodes(data, "train", GAME, unroll=2, targets="played", value="result"))
    layout = Layout(GAME, "s-a", 1)
    assert batch.states[1, 1].tolist() == tokens_of(GAME.parse(game[2].state), 1)  # by the rules, without a label
    assert bool(batch.live[1, 1])
    assert bool(batch.value[1, 1].isnan())
    assert batch.policy[1, 1].sum() == 0
    assert batch.states[1, 2].tolist() == [layout.mask] * layout.state_length
    assert bool(batch.reward[1, 1].isnan())
    assert not batch.live[1, 2]


@pytest.mark.parametrize("side", ["both", "own"])
def test_a_walk_follows_the_rules_and_its_own_split(whole: Dataset, side: str) -> None:
    """Each step's moves are found again by the rules alone, from the tokens of the state after it."""
    episodes = Episodes(whole, "train", GAME, unroll=4, side=side, source="walks", seed=2)
    batch, layout = all_of(episodes, 1), Layout(GAME, "s-a", 1)
    labels = {GAME.key(GAME.parse(record.state)): record for record in records_of(whole)}
    seen = {"ended": 0, "cut": 0, "lived": 0}
    for row, record in list(enumerate(records_of(whole)))[::4]:
        state = GAME.parse(record.state)
        viewer = GAME.player(state)
        for k in range(4):
            (move,) = absolute(batch.moves[row, k : k + 1], viewer)
            if batch.reward[row, k].isnan():
                assert not batch.live[row, k + 1]
                break
            assert GAME.key(state) in labels  # no move is made where another split's label would be shown
            after = GAME.play(state, move)
            if side == "own" and (outcome := GAME.outcome(after)) is not None:
                assert batch.worth[row, k] == -outcome
            elif side == "own":
                answering = labels[GAME.key(after)]  # or the walk had been cut
                scores = [score_to_value(score) for score in answering.scored_moves.values()]
                assert float(batch.worth[row, k]) == pytest.approx(-max(scores))
            candidates = [after]
            if side == "own" and GAME.outcome(after) is None:
                candidates = [GAME.play(after, answer) for answer in GAME.legal(after).tolist()]
            shown = batch.states[row, k + 1].tolist()
            (state,) = [each for each in candidates if tokens_of(each, viewer) == shown]
            if (outcome := GAME.outcome(state)) is not None:
                mover = viewer if side == "own" or k % 2 == 0 else 1 - viewer
                assert batch.reward[row, k] == (outcome if GAME.player(state) == mover else -outcome)
                assert batch.states[row, k + 2 :].eq(layout.pad).all()
                assert not batch.live[row, k + 1 :].any()
                seen["ended"] += 1
                break
            known = labels.get(GAME.key(state))
            seen["lived" if known else "cut"] += 1
            value = batch.value[row, k + 1]
            assert bool(value.isnan()) == (known is None)
            if known is not None:
                best = GAME.moves.seen_by(np.array(sorted(known.best_moves(GAME))), viewer)
                assert sorted(batch.policy[row, k + 1].nonzero()[:, 0].tolist()) == sorted(best.tolist())
                scores = [score_to_value(score) for score in known.scored_moves.values()]
                assert float(value) == pytest.approx(max(scores))
    assert min(seen.values()) > 25, seen


def test_half_of_a_walks_moves_are_drawn_among_the_best(whole: Dataset) -> None:
    """P(best) = 1/2 + 1/2 * best / legal, so the count over all records lies within four standard deviations."""
    batch = all_of(Episodes(whole, "train", GAME, unroll=1, source="walks"))
    expected = variance = hits = 0.0
    for row, record in enumerate(records_of(whole)):
        state = GAME.parse(record.state)
        best = record.best_moves(GAME)
        chance = 0.5 + 0.5 * len(best) / len(GAME.legal(state))
        expected, variance = expected + chance, variance + chance * (1 - chance)
        hits += absolute(batch.moves[row], GAME.player(state))[0] in best
    assert abs(hits - expected) < 4 * variance**0.5


def test_draws_depend_on_seed_epoch_and_index_alone(solved: Dataset) -> None:
    def of(seed: int, epoch: int, indices: Sequence[int]) -> torch.Tensor:
        episodes = Episodes(solved, "train", GAME, unroll=3, source="walks", seed=seed)
        return episodes.batch(np.array(indices), epoch).moves

    chosen = [7, 3, 300, 41]
    whole = of(1, 2, range(400))
    assert torch.equal(of(1, 2, chosen), whole[chosen])
    assert not torch.equal(of(1, 3, range(400)), whole)
    assert not torch.equal(of(2, 2, range(400)), whole)


def test_a_cut_shard_is_named(tmp_path: Path) -> None:
    data = solved_connect(tmp_path, horizon=1, every=40)
    shard = tmp_path / "records-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-200])
    with pytest.raises(DatasetError, match=r"records-00000\.parquet"):
        Episodes(data, "train", GAME, unroll=1, source="walks")


def test_more_moves_than_the_games_have_is_an_error(played: tuple[Dataset, list[Record]]) -> None:
    data, _ = played
    longest = max(len(game) for game in random_games(40))
    assert longest == 9
    Episodes(data, "train", GAME, unroll=9, targets="played", value="result")
    with pytest.raises(ConfigError, match=r"unroll=12: no run of moves .* longer than 9 moves; set unroll=9"):
        Episodes(data, "train", GAME, unroll=12, targets="played", value="result")
    with pytest.raises(ConfigError, match=r"longer than 5 moves and answers"):
        Episodes(data, "train", GAME, unroll=6, side="own", targets="played", value="result")


def test_records_without_what_is_asked_are_named(solved: Dataset, played: tuple[Dataset, list[Record]]) -> None:
    games, _ = played
    with pytest.raises(DatasetError, match=r"no game_id.*data selfplay.*data import.*walks"):
        Episodes(solved, "train", GAME, unroll=1)
    with pytest.raises(DatasetError, match=r"no move values.*data label --move-values .*alphabeta.*source=games"):
        Episodes(games, "train", GAME, unroll=1, source="walks")
    with pytest.raises(DatasetError, match=r"has no moves to learn \(targets=label"):
        Episodes(games, "train", GAME, unroll=1, value="result")
    with pytest.raises(DatasetError, match=r"has no values \(targets=played, value=label"):
        Episodes(games, "train", GAME, unroll=1, targets="played")
    with pytest.raises(DatasetError, match="not of"):
        Episodes(games, "train", load_game("connect:rows=4,cols=4,k=3,gravity=false"), unroll=1)
    with pytest.raises(DatasetError, match="has no records"):
        Episodes(games, "validation", GAME, unroll=1, targets="played", value="result")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"side": "mine"}, "side must be one of both, own"),
        ({"source": "walk"}, "source must be one of games, walks"),
        ({"targets": "best"}, "targets must be one of label, search, played"),
        ({"value": "mix:2"}, r"mix:X with X in \[0, 1\]; got 'mix:2'"),
        ({"value": "score"}, "value must be one of label, result, search"),
        ({"unroll": -1}, "unroll must be at least 0"),
    ],
)
def test_settings_that_do_not_exist(solved: Dataset, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Episodes(solved, "train", GAME, **{"unroll": 1, "source": "walks", **changed})


def test_a_window_of_chess_is_seen_by_the_player_to_move_at_its_root() -> None:
    """In chess a move has another id for each side."""
    pytest.importorskip("chess")
    game: Game[Any] = load_game("chess")
    data = Dataset.open("sample:chess", verify=False)
    batch = Episodes(data, "test", game, unroll=2, targets="played", value="result").batch(np.arange(60), 0)
    records = [record for record, _ in zip(data.records("test"), range(62), strict=False)]
    known = 0
    for row, record in enumerate(records[:60]):
        viewer = game.player(game.parse(record.state))
        for k in range(2):
            here = records[row + k]
            if here.game_id != record.game_id or here.ply != (record.ply or 0) + k:
                break
            known += 1
            seen = int(game.moves.seen_by(np.array(game.moves.index(here.played or "")), viewer))
            assert int(batch.moves[row, k]) == seen
            assert batch.policy[row, k].nonzero().tolist() == [[seen]]
            assert int(batch.tokens[row, -1]) == seen + Layout(game, "s-a", 1).move_offset or k
            after = game.play(game.parse(here.state), game.moves.index(here.played or ""))
            assert batch.states[row, k + 1].tolist() == game.tokens.encode([after], [viewer])[0].tolist()
    assert known > 100


def test_a_game_in_which_a_player_may_move_twice_is_refused(solved: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    game = load_game(CONNECT)
    monkeypatch.setattr(game, "alternates", False)
    with pytest.raises(ConfigError, match="a player may move twice"):
        Episodes(solved, "train", game, unroll=1, source="walks")


@pytest.mark.parametrize("kind", ["vector", "squares"])
def test_windows_whose_next_positions_are_all_unknown_are_measured(solved: Dataset, kind: str) -> None:
    """As the last windows of a small split of walks may be."""
    learner = learner_of(autoencoder=kind, autoencoder_width=16, autoencoder_layers=1)
    batch = batch_of(learner, solved, 3)
    unknown = batch.states.index_fill(1, torch.tensor([1, 2]), learner.layout.mask)
    batch = dataclasses.replace(batch, states=unknown, reward=torch.full_like(batch.reward, torch.nan))
    loss, parts = learner.loss(batch, torch.Generator().manual_seed(0))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.isfinite()
    assert parts["rebuilt"] == 0
    assert all(each.isnan() for each in learner.metrics(batch, torch.Generator()).values())  # nothing to measure
