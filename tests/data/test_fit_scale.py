"""Fitting the scale of centipawns: what made-up games with a known scale give back."""

from __future__ import annotations

import math

import numpy as np
import pytest

import genpolicy
from genpolicy.data.records import DatasetInfo, Record
from genpolicy.errors import DatasetError
from genpolicy_labelling.fit_scale import fit_dataset, fit_scale, log_loss
from genpolicy_labelling.writer import DatasetWriter

SCALE = 0.0021


def drawn_games(num_games: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One position a game, whose result follows the model with ``SCALE``."""
    rng = np.random.default_rng(seed)
    centipawns = rng.normal(0, 600, num_games)
    wins = rng.random(num_games) < 1 / (1 + np.exp(-SCALE * centipawns))
    return centipawns, wins.astype(float), np.arange(num_games)


def test_the_scale_that_drew_the_results_is_found() -> None:
    centipawns, results, games = drawn_games(20_000)
    scale, low, high = fit_scale(centipawns, results, games)
    assert low < SCALE < high
    assert high - low < 0.1 * SCALE  # 20,000 games tell it to a few percent
    assert scale == pytest.approx(SCALE, rel=0.05)


def test_nothing_near_is_likelier() -> None:
    centipawns, results, games = drawn_games(500, seed=1)
    scale, _, _ = fit_scale(centipawns, results, games)
    best = log_loss(centipawns, results, scale)
    assert all(log_loss(centipawns, results, scale * factor) > best for factor in (0.9, 0.99, 1.01, 1.1))


def test_a_loss_by_hand() -> None:
    # P(win at 100 cp) with scale ln(3)/100 is 3/4; a draw is half a win and half a loss.
    scale = math.log(3) / 100
    expected = -(math.log(0.75) + math.log(0.25) + 0.5 * math.log(0.75) + 0.5 * math.log(0.25)) / 3
    assert log_loss(np.array([100.0, 100.0, 100.0]), np.array([1.0, 0.0, 0.5]), scale) == pytest.approx(expected)


def test_copies_of_a_game_do_not_narrow_the_interval() -> None:
    centipawns, results, games = drawn_games(300, seed=2)
    once = fit_scale(centipawns, results, games)
    tenfold = fit_scale(np.tile(centipawns, 10), np.tile(results, 10), np.tile(games, 10))
    assert tenfold == pytest.approx(once)


@pytest.mark.parametrize("centipawns", [[0.0, 0.0], [50.0, -50.0]])
def test_what_has_no_scale_is_said(centipawns: list[float]) -> None:
    with pytest.raises(ValueError, match="no scale fits best"):
        fit_scale(np.array(centipawns), np.array([1.0, 0.0]), np.array([0, 1]))


def test_results_of_the_wrong_side_are_said() -> None:
    centipawns, results, games = drawn_games(300, seed=3)
    with pytest.raises(ValueError, match="the better score wins no more often; are the results right"):
        fit_scale(centipawns, 1 - results, games)


def test_a_resample_whose_results_all_differ_from_the_scores_lies_below() -> None:
    """Two of three games are won by the better score: some resamples hold the third alone."""
    _, low, high = fit_scale(np.array([50.0, 60.0, 55.0]), np.array([1.0, 1.0, 0.0]), np.arange(3))
    assert (low, high) == (-math.inf, math.inf)


def write(folder, records: list[Record]) -> None:
    info = DatasetInfo(game="connect:cols=3,gravity=false,k=3,rows=3", made_by="import")
    with DatasetWriter(folder, info) as writer:
        for number, record in enumerate(records):
            writer.add(number, [record])
        writer.commit_all()
        writer.finish({})


def test_a_data_set_is_read_from_the_side_to_move(tmp_path) -> None:
    game = genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false")
    first = game.parse()
    second = game.play(first, int(game.legal(first)[0]))
    texts = [game.format(first), game.format(second)]
    centipawns, results, _ = drawn_games(400, seed=3)
    records = [
        # The results are for player 0; every second position has player 1 to move.
        Record(texts[i % 2], f"g{i}", 0, scores=(f"cp:{round(cp)}",), result=(2 * won - 1) * (-1) ** (i % 2))
        for i, (cp, won) in enumerate(zip(centipawns, results, strict=True))
    ]
    mates = [Record(texts[0], f"m{i}", 0, scores=("mate:1",), result=-1.0) for i in range(50)]
    write(tmp_path / "made", records + mates)
    fit = fit_dataset(tmp_path / "made")
    expected, low, high = fit_scale(np.round(centipawns), results, np.arange(400))
    assert (fit.games, fit.positions) == (400, 400)
    assert (fit.scale, fit.low, fit.high) == pytest.approx((expected, low, high))
    assert fit.low < SCALE < fit.high
    assert fit.log_loss < fit.log_loss_before
    write(tmp_path / "few", records[:5])
    with pytest.raises(DatasetError, match=r"few.*5 games have cp scores.*selfplay"):
        fit_dataset(tmp_path / "few")
