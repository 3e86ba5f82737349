"""Windows of games with dice: a move and what was thrown after it are one step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genpolicy import load_game
from genpolicy.chance import drawn
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.game import Game
from genpolicy.sequence import Layout
from genpolicy_policy_model.episodes import EpisodeBatch, Episodes
from tests.small_datasets import write_dataset

GAME: Game[Any] = load_game("pig:goal=9,faces=3")


def random_games(num: int) -> list[Record]:
    """Games of random moves; nature's rows have what was thrown and nothing else."""
    draw, records = random.Random(4), []
    for number in range(num):
        state, ply, rows = GAME.parse(), 0, []
        while GAME.outcome(state) is None:
            move, natural = drawn(GAME, state, draw), GAME.chance(state) is not None
            value = None if natural else draw.uniform(-1, 1)
            rows.append((GAME.format(state), ply, GAME.moves[move], value))
            state, ply = GAME.play(state, move), ply + 1
        result = 1.0 if GAME.player(state) == 0 else -1.0
        records += [
            Record(text, f"g{number}", ply, played=played, result=result, split="train", value=value)
            for text, ply, played, value in rows
        ]
    return records


def episodes_of(folder: Path, records: list[Record], unroll: int = 3) -> Episodes:
    data: Dataset = write_dataset(folder, GAME.spec, records)
    return Episodes(data, "train", GAME, unroll=unroll, targets="played", value="search")


def all_of(episodes: Episodes) -> EpisodeBatch:
    return episodes.batch(np.arange(len(episodes)), 0)


def test_a_window_is_the_game_without_its_dice(tmp_path: Path) -> None:
    records = random_games(30)
    batch, pad = all_of(episodes_of(tmp_path, records)), Layout(GAME, "s-a", 1).pad
    begins = [at for at, record in enumerate(records) if GAME.chance(GAME.parse(record.state)) is None]
    assert len(batch) == len(begins) < len(records)
    seen = set()
    for row, at in enumerate(begins):
        state, over = GAME.parse(records[at].state), False
        viewer = GAME.player(state)
        for k in range(4):
            if over:
                assert batch.states[row, k].tolist() == [pad] * 5
                assert not batch.live[row, k]
                continue
            over = GAME.outcome(state) is not None
            assert batch.states[row, k].tolist() == GAME.tokens.encode([state], [viewer])[0].tolist()
            assert bool(batch.live[row, k]) is not over
            if over:
                assert float(batch.value[row, k]) == 0
                continue
            mover = GAME.player(state)
            assert bool(batch.other[row, k]) == (mover != viewer)
            assert float(batch.value[row, k]) == pytest.approx(records[at].value)
            if k == 3:
                break
            move = GAME.moves.index(records[at].played or "")
            assert int(batch.moves[row, k]) == move
            state, at = GAME.play(state, move), at + 1
            assert bool(batch.chance[row, k]) == (GAME.chance(state) is not None)
            if GAME.chance(state) is not None:
                state, at = GAME.play(state, GAME.moves.index(records[at].played or "")), at + 1
            won = GAME.outcome(state)
            expected = 0.0 if won is None else won if GAME.player(state) == mover else -won
            assert float(batch.reward[row, k]) == expected
            seen.add((bool(batch.chance[row, k]), bool(batch.other[row, k]), expected))
    assert seen == {(True, False, 0.0), (True, True, 0.0), (False, False, 0.0), (False, True, 0.0), (True, False, 1.0),
                    (True, True, 1.0)}  # fmt: skip


def test_what_was_thrown_and_not_recorded_is_not_known(tmp_path: Path) -> None:
    records = random_games(1)
    natural = [at for at, record in enumerate(records) if GAME.chance(GAME.parse(record.state)) is not None]
    del records[natural[2]]
    batch, mask = all_of(episodes_of(tmp_path, records, unroll=1)), Layout(GAME, "s-a", 1).mask
    (row,) = np.flatnonzero((batch.states[:, 1] == mask).all(-1).numpy())
    texts = [record.state for record in records if GAME.chance(GAME.parse(record.state)) is None]
    assert texts[row] == records[natural[2] - 1].state
    assert not batch.live[row, 1]
    assert bool(batch.reward[row].isnan().all())


def test_the_longest_run_counts_moves_alone(tmp_path: Path) -> None:
    records = random_games(30)
    moves: dict[str | None, int] = {}
    for record in records:
        moves[record.game_id] = moves.get(record.game_id, 0) + (GAME.chance(GAME.parse(record.state)) is None)
    longest = max(moves.values())
    episodes_of(tmp_path / "a", records, longest)
    with pytest.raises(ConfigError, match=f"no run of moves .* longer than {longest} moves"):
        episodes_of(tmp_path / "b", records, longest + 3)


def test_dice_that_no_record_holds_are_refused(tmp_path: Path) -> None:
    records = random_games(2)
    data = write_dataset(tmp_path, GAME.spec, records)
    wrongs: list[dict[str, Any]] = [{"side": "own"}, {"source": "walks"}]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=r"in 'pig.*chance decides.*set side=both and source=games"):
            Episodes(data, "train", GAME, unroll=1, **wrong)
    lost = [Record(r.state, r.game_id, r.ply, played=None, result=r.result, split="train") for r in records]
    with pytest.raises(DatasetError, match="no game_id, ply or played move"):
        Episodes(write_dataset(tmp_path / "lost", GAME.spec, lost), "train", GAME, unroll=1)
