"""Intervals against published values and exact enumeration; tables as text."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from genpolicy_common.tables import Report, percent, percent_with_interval, positions_text, write_json, write_markdown
from genpolicy_evaluation.intervals import cluster_bootstrap, share_interval, wilson


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        # Newcombe 1998 (Statistics in Medicine 17:857-872), Table I, method 3: 81/263, 15/148, 0/20, 1/29.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_matches_published_intervals(hits: int, trials: int, low: float, high: float) -> None:
    assert wilson(hits, trials) == pytest.approx((low, high), abs=5e-5)


def test_wilson_of_nothing_and_nonsense() -> None:
    assert all(math.isnan(end) for end in wilson(0, 0))
    with pytest.raises(ValueError, match=r"hits must lie in 0\.\.3, got 4"):
        wilson(4, 3)


def test_bootstrap_percentiles_match_exact_enumeration() -> None:
    """Four games of unequal length: all 4^4 draws of games, each equally likely."""
    hits = [1, 0, 1, 1, 0, 0, 0, 1, 1, 1]
    games = ["a", "a", "a", "b", "b", "c", "d", "d", "d", "d"]
    by_game = {g: [h for h, name in zip(hits, games, strict=True) if name == g] for g in "abcd"}
    ratios = []
    for draw in product("abcd", repeat=4):
        pooled = [h for g in draw for h in by_game[g]]
        ratios.append(sum(pooled) / len(pooled))
    exact = np.percentile(ratios, [2.5, 97.5])
    found = cluster_bootstrap(hits, games, num_resamples=20000)
    assert found == pytest.approx(tuple(exact), abs=0.03)


def test_positions_of_one_game_do_not_count_as_independent() -> None:
    """Ten games that are all right or all wrong: the interval is that of ten trials and not of a thousand."""
    hits = np.repeat([1, 0, 1, 0, 1, 0, 1, 0, 1, 0], 100)
    games = [str(i // 100) for i in range(1000)]
    low, high = cluster_bootstrap(hits, games)
    assert high - low > 0.5
    low, high = cluster_bootstrap(hits, [str(i) for i in range(1000)])
    assert high - low < 0.08


def test_a_share_of_all_or_none_is_not_certain() -> None:
    """58 games of five positions, 99.5 % of which are hits: in a quarter of the samples all are."""
    draws, games = np.random.default_rng(0), [str(i // 5) for i in range(290)]
    samples = [(draws.random(290) < 0.995).astype(float) for _ in range(200)]
    held = [low <= 0.995 <= high for low, high in (share_interval(hits, games) for hits in samples)]
    assert np.mean(held) >= 0.93
    assert share_interval(np.ones(290), games) == wilson(290, 290)
    assert share_interval(np.zeros(290), games) == wilson(0, 290)
    some = [1.0, 0.0] * 145
    assert share_interval(some, games) == cluster_bootstrap(some, games)
    assert all(math.isnan(end) for end in share_interval([1.0, 1.0], ["a", "a"]))


def test_the_note_names_both_kinds_of_interval_of_a_share() -> None:
    assert positions_text(290, 58).endswith("95 %, bootstrap by game, Wilson's at 0 and 100 %")
    assert positions_text(58, 58).endswith("95 %, bootstrap by position, Wilson's at 0 and 100 %")
    assert "Wilson" not in positions_text(5, 1)  # of one game there is no interval


def test_a_pair_of_positions_depends_on_both_its_games() -> None:
    """25 games, easy or hard; each of 30 positions in each is paired with one of any game.

    The first position's game alone makes an interval that holds the true share in 3 of 4 samples.
    """
    draws, own = np.random.default_rng(0), np.repeat(np.arange(25), 30)

    def sample() -> tuple[list[tuple[str, str]], np.ndarray]:
        easy, other = draws.normal(size=25), draws.permutation(own)
        hits = draws.random(len(own)) < 1 / (1 + np.exp(-2 - easy[own] - easy[other]))
        return [(str(a), str(b)) for a, b in zip(own, other, strict=True)], hits.astype(float)

    share = np.mean([sample()[1].mean() for _ in range(2000)])
    intervals = [cluster_bootstrap(hits, games, num_resamples=200) for games, hits in (sample() for _ in range(60))]
    assert np.mean([low <= share <= high for low, high in intervals]) >= 0.86  # 0.95 less three standard errors
    games, hits = sample()
    assert cluster_bootstrap(hits, games) == cluster_bootstrap(hits, [(b, a) for a, b in games])


def test_a_pair_within_one_game_is_drawn_as_often_as_the_game() -> None:
    hits, games = [1, 0, 1, 1, 0, 1], list("aabbcd")
    assert cluster_bootstrap(hits, [(game, game) for game in games]) == cluster_bootstrap(hits, games)
    assert all(math.isnan(end) for end in cluster_bootstrap([1.0, 0.0], [("a", "a"), ("a", "a")]))
    assert share_interval([1.0, 1.0], [("a", "b"), ("a", "c")]) == wilson(2, 2)


def test_one_game_has_no_interval() -> None:
    assert all(np.isnan(cluster_bootstrap([1.0, 0.0, 1.0], ["a", "a", "a"])))
    assert percent_with_interval(0.25, cluster_bootstrap([1.0, 0.0], ["a", "a"])) == "25.0"


def test_bootstrap_of_a_ratio() -> None:
    hits, chance = [1, 1, 0, 1], [0.5, 0.5, 0.25, 0.25]
    low, high = cluster_bootstrap(hits, list("abcd"), chance)
    assert low <= 3 / 1.5 <= high


def test_bootstrap_is_reproducible_and_checks_lengths() -> None:
    hits, games = [1, 0, 1, 1], list("aabc")
    assert cluster_bootstrap(hits, games, seed=1) == cluster_bootstrap(hits, games, seed=1)
    assert all(math.isnan(end) for end in cluster_bootstrap([], []))
    with pytest.raises(ValueError, match="4 hits, 4 weights and 3 games"):
        cluster_bootstrap(hits, games[:3])


def test_tables_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("A | B", ["policy", "hits"], notes=["two games"])
    report.add("a|b", percent_with_interval(0.5, (0.25, 0.75)))
    report.add("c", percent(math.nan))
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        report.add("only one")
    write_markdown(tmp_path / "t.md", [report])
    lines = (tmp_path / "t.md").read_text().splitlines()
    assert lines[2:6] == ["| policy | hits |", "| :-- | --: |", "| a\\|b | 50.0 [25.0, 75.0] |", "| c | - |"]
    assert lines[-1] == "- two games"
    report.print()
    assert "50.0 [25.0, 75.0]" in capsys.readouterr().out


def test_labels_and_words_are_flush_left_and_numbers_flush_right(capsys: pytest.CaptureFixture[str]) -> None:
    for told, rule in (({"labels": 2}, "| :-- | :-- | --: |"), ({"words": True}, "| :-- | :-- | :-- |")):
        report = Report("", ["policy", "horizon", "hits"], [["a", "4", "50.0"]], **told)
        assert rule in report.markdown()
        report.print()
        assert "a       4        " in capsys.readouterr().out


def test_json_has_null_for_what_was_not_counted(tmp_path: Path) -> None:
    write_json(tmp_path / "f.json", {"a": math.nan, "b": [1.0, (math.inf, 2)]})
    assert json.loads((tmp_path / "f.json").read_text()) == {"a": None, "b": [1.0, [None, 2]]}
