"""Scores, values and bins against facts computed outside this project, and their laws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genpolicy.values import (
    bin_to_probability,
    centipawns_to_probability,
    parse_score,
    probability_to_bin,
    probability_to_value,
    rank_correlation,
    score_to_value,
    value_to_probability,
)

# Centipawns, win probability, its bin of 128: Lichess's fit, bins as searchless_chess (Ruoss et al. 2024) counts them.
FACTS = [
    (-10000, 1.1102230246251565e-16, 0),
    (-2000, 0.000633156230422427, 0),
    (-1300, 0.00827092177857075, 1),
    (-1000, 0.024552563658567783, 3),
    (-500, 0.1369283400318172, 17),
    (-300, 0.2488744990616516, 31),
    (-200, 0.3237883625149461, 41),
    (-100, 0.4089741028083871, 52),
    (-50, 0.454103562397001, 58),
    (-25, 0.47700323643230064, 61),
    (-10, 0.49079583987119135, 62),
    (-4, 0.49631798655933523, 63),
    (-1, 0.49907948104001076, 63),
    (0, 0.5, 63),
    (1, 0.5009205189599892, 64),
    (4, 0.5036820134406647, 64),
    (10, 0.5092041601288086, 65),
    (25, 0.5229967635676993, 66),
    (50, 0.545896437602999, 69),
    (100, 0.5910258971916128, 75),
    (200, 0.676211637485054, 86),
    (300, 0.7511255009383484, 96),
    (500, 0.8630716599681828, 110),
    (1000, 0.9754474363414323, 124),
    (1300, 0.9917290782214293, 126),
    (2000, 0.9993668437695776, 127),
]


@pytest.mark.parametrize(("centipawns", "probability", "index"), FACTS)
def test_facts(centipawns: int, probability: float, index: int) -> None:
    # 1e-10: the far tail differs in the last bits of the subtraction, nothing else does.
    assert centipawns_to_probability(centipawns) == pytest.approx(probability, abs=1e-10)
    assert probability_to_bin(centipawns_to_probability(centipawns)) == index
    assert score_to_value(f"cp:{centipawns}") == pytest.approx(2 * probability - 1, abs=1e-10)


def test_bins_are_closed_on_the_right_and_cover_everything() -> None:
    assert [probability_to_bin(k / 128) for k in range(1, 129)] == list(range(128))
    assert [probability_to_bin(math.nextafter(k / 128, 1)) for k in range(128)] == list(range(128))
    assert probability_to_bin(0.0) == 0
    assert [bin_to_probability(i, 4) for i in range(4)] == [0.125, 0.375, 0.625, 0.875]
    assert [probability_to_bin(bin_to_probability(i)) for i in range(128)] == list(range(128))


@pytest.mark.parametrize("probability", [-0.1, 1.1, math.nan])
def test_a_probability_outside_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
        probability_to_bin(probability)


@pytest.mark.parametrize("value", [-1.0, -0.25, 0.0, 0.5, 1.0])
def test_changing_sides_is_a_change_of_sign(value: float) -> None:
    assert probability_to_value(value_to_probability(value)) == value
    assert value_to_probability(-value) == 1 - value_to_probability(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mate:3", 1.0),
        ("mate:-1", -1.0),
        ("mate:0", -1.0),  # the player to move is mated
        ("value:1", 1.0),
        ("value:-0.5", -0.5),
        ("cp:0", 0.0),
    ],
)
def test_mates_and_values(text: str, value: float) -> None:
    assert score_to_value(text) == value


@pytest.mark.parametrize("centipawns", [-32000, -317, 1, 88, 32000, 10**9])
def test_a_negated_score_is_the_other_sides(centipawns: int) -> None:
    assert score_to_value(f"cp:{-centipawns}") == pytest.approx(-score_to_value(f"cp:{centipawns}"), abs=1e-12)


@pytest.mark.parametrize(
    "text", ["", "31", "cp", "cp:", "cp:1.5", "mate:x", "value:1.5", "value:nan", "pawn:1", "cp:1:2"]
)
def test_what_is_no_score_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="is not a score") as caught:
        parse_score(text)
    assert repr(text) in str(caught.value)


def test_rank_correlation_against_its_closed_form() -> None:
    one, other = np.array([3.0, 1.0, 2.0, 5.0]), np.array([1.0, 2.0, 3.0, 9.0])
    assert rank_correlation(one, other) == pytest.approx(1 - 6 * (4 + 1 + 1 + 0) / (4 * 15))  # 1 - 6 sum d^2 / n(n^2-1)
    assert rank_correlation(one, one**3) == pytest.approx(1)
    assert rank_correlation(one, -one) == pytest.approx(-1)
    ties = np.array([0.0, 0.0, 1.0, 1.0])  # ranks 1.5, 1.5, 3.5, 3.5
    assert rank_correlation(ties, np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(4 / math.sqrt(4 * 5))
