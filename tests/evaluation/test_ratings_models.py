"""Ratings against published figures, brute force, and simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytest

from genpolicy_arena.rating_fit import MAX_ADVANTAGE
from genpolicy_arena.rating_models import MODELS, Counts, RatingModel
from genpolicy_arena.ratings import FitOptions, RatedGame, Ratings, fit

LN10_400 = math.log(10) / 400


def games(first: str, second: str, wins: int = 0, draws: int = 0, losses: int = 0) -> list[RatedGame]:
    results = [1.0] * wins + [0.0] * draws + [-1.0] * losses
    return [RatedGame(first, second, result) for result in results]


def elo_of(ratings: Ratings) -> dict[str, float]:
    return {row.name: row.elo for row in ratings.players}


# Published figures.


@pytest.mark.parametrize(("result", "first", "second"), [(1.0, 41, -41), (0.0, -5, 5), (-1.0, -48, 48)])
def test_bayeselo_rates_one_game_as_bayeselo_does(result: float, first: int, second: int) -> None:
    """What BayesElo prints for one game of a (White) and b.

    The draw is in the transcript that the tests of the Ruby binding of BayesElo's own sources quote
    (test_cbayeselo.rb: addresult 0 1 1, elo, mm, ratings: b 5, a -5); win and loss are in poprank's test of its
    imitation of BayesElo (test_win 41 / -41, test_loss -48 / 48, test_draw -5 / 5), https://github.com/poprl/poprank.
    """
    ratings = elo_of(fit([RatedGame("a", "b", result)], FitOptions("bayeselo")))
    assert (round(ratings["a"]), round(ratings["b"])) == (first, second)


def test_bayeselo_rates_two_groups_that_never_met_as_bayeselo_does() -> None:
    """The whole transcript: a - b and c - d drawn; BayesElo prints b 5, d 5, a -5, c -5."""
    ratings = fit(games("a", "b", draws=1) + games("c", "d", draws=1), FitOptions("bayeselo"))
    assert {name: round(elo) for name, elo in elo_of(ratings).items()} == {"a": -5, "b": 5, "c": -5, "d": 5}
    assert any("2 groups that never met" in note for note in ratings.notes)


def test_bayeselo_probabilities_are_its_published_formula() -> None:
    """P(WhiteWins) = 1 / (1 + 10^((eloDraw - delta - eloAdvantage) / 400)), Black with the signs turned."""
    model = MODELS["bayeselo"]
    delta, advantage, draw = 50.0, 32.8, 97.3
    wins, draws, losses = model.probabilities(np.array([(delta + advantage) * LN10_400]), draw * LN10_400)
    white = 1 / (1 + 10 ** ((draw - delta - advantage) / 400))
    black = 1 / (1 + 10 ** ((draw + delta + advantage) / 400))
    assert (wins[0], losses[0], draws[0]) == pytest.approx((white, black, 1 - white - black))
    assert (model.default_advantage, model.default_draw, model.default_prior) == (32.8, 97.3, 2.0)


@pytest.mark.parametrize(
    ("points", "played", "advantage", "difference"),
    [(281.5, 500, 22.10, 2310.0 - 2265.4), (251.0, 500, 59.45, 2311.4 - 2310.0), (332.0, 500, 9.44, 1384.0 - 1264.5)],
)
def test_ordo_rates_matches_as_ordo_did(points: float, played: int, advantage: float, difference: float) -> None:
    """Ordo's output for three matches of 500 games, https://github.com/official-stockfish/Stockfish/pull/758.

    It prints ratings, points, games and the advantage of White that it fitted. The points fix the difference where the
    advantage is held; colours alternated. Half points of each colour are as likely as any, so the score is split by
    the model; 0.1 is how finely Ordo prints.
    """
    half = played // 2
    listed = []
    unit = MODELS["ordo"].unit

    def expected(x: float) -> float:
        return 1 / (1 + math.exp(-unit * x))

    white = half * expected(difference + advantage)
    white = round(2 * white) / 2
    for first, second, gained in (("a", "b", white), ("b", "a", half - (points - white))):
        wins = int(gained)
        draws = int(2 * gained) - 2 * wins
        listed += games(first, second, wins, draws, half - wins - draws)
    ratings = elo_of(fit(listed, FitOptions("ordo", advantage=advantage)))
    assert ratings["a"] - ratings["b"] == pytest.approx(difference, abs=0.15)


def test_ordo_scale_is_its_manuals() -> None:
    """ "The rating difference when the winning expectancy is 76% has been set to 202 rating points" (manual, Scale)."""
    ratings = elo_of(fit(games("a", "b", 38, 0, 12) + games("b", "a", 12, 0, 38), FitOptions("ordo", advantage=0.0)))
    assert ratings["a"] - ratings["b"] == pytest.approx(202.0, abs=1e-6)


# Independent computations.


def brute_force(listed: Sequence[RatedGame], chance: Callable[[float, float, float], float]) -> tuple[float, ...]:
    """The three numbers that maximise a likelihood of two players, by a pattern search that knows no derivatives."""
    best = [0.0, 0.0, 0.5]

    def value(at: list[float]) -> float:
        total = 0.0
        for game in listed:
            difference = at[0] if game.first == "a" else -at[0]
            total += math.log(max(1e-300, chance(game.result, difference + at[1], at[2])))
        return total

    step, now = 1.0, value(best)
    while step > 1e-7:
        moved = False
        for index in range(3):
            for sign in (1, -1):
                trial = best.copy()
                trial[index] += sign * step
                if trial[2] > 0 and (found := value(trial)) > now:
                    best, now, moved = trial, found, True
        step = step if moved else step / 2
    return tuple(best)


def davidson(result: float, x: float, nu: float) -> float:
    strong, weak = math.exp(x / 2), math.exp(-x / 2)
    return {1.0: strong, 0.0: nu, -1.0: weak}[result] / (strong + weak + nu)


def rao_kupper(result: float, x: float, kappa: float) -> float:
    win, loss = 1 / (1 + math.exp(kappa - x)), 1 / (1 + math.exp(kappa + x))
    return {1.0: win, 0.0: 1 - win - loss, -1.0: loss}[result]


LISTED = games("a", "b", 17, 9, 6) + games("b", "a", 9, 12, 8)


def test_davidson_is_the_maximum_that_a_search_without_derivatives_finds() -> None:
    difference, advantage, nu = brute_force(LISTED, davidson)
    ratings = fit(LISTED)
    scale = 2 / (2 + nu)  # slope of the expected score at equality over Elo's
    found = elo_of(ratings)
    assert ratings.draw == pytest.approx(nu, abs=1e-4)
    assert ratings.scale == pytest.approx(scale, abs=1e-4)
    assert found["a"] - found["b"] == pytest.approx(scale * difference / LN10_400, abs=0.01)
    assert ratings.advantage == pytest.approx(scale * advantage / LN10_400, abs=0.01)


def test_bayeselo_with_everything_fitted_is_the_maximum_that_a_search_finds() -> None:
    difference, advantage, kappa = brute_force(LISTED, rao_kupper)
    ratings = fit(LISTED, FitOptions("bayeselo", advantage="fit", draw="fit", prior=0.0))
    theta = math.exp(-kappa)
    scale = 4 * theta / (1 + theta) ** 2
    found = elo_of(ratings)
    assert ratings.draw == pytest.approx(kappa / LN10_400, abs=0.02)
    assert found["a"] - found["b"] == pytest.approx(scale * difference / LN10_400, abs=0.02)
    assert ratings.advantage == pytest.approx(scale * advantage / LN10_400, abs=0.02)


@pytest.mark.parametrize("model", list(MODELS.values()), ids=list(MODELS))
def test_derivatives_are_those_of_the_value(model: RatingModel) -> None:
    counts = Counts(np.array([3.0, 1.0]), np.array([2.0, 4.5]), np.array([1.0, 7.0]))
    x, draw, step = np.array([0.4, -1.1]), 0.7, 1e-5
    here = model.curve(x, draw, counts)
    right, left = model.curve(x + step, draw, counts), model.curve(x - step, draw, counts)
    np.testing.assert_allclose(here.dx, (right.value - left.value) / (2 * step), rtol=1e-6)
    np.testing.assert_allclose(here.dxx, (right.dx - left.dx) / (2 * step), rtol=1e-6)
    up, down = model.curve(x, draw + step, counts), model.curve(x, draw - step, counts)
    np.testing.assert_allclose(here.dd, (up.value - down.value) / (2 * step), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(here.ddd, (up.dd - down.dd) / (2 * step), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(here.dxd, (up.dx - down.dx) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("model", ["bt", "ordo"])
def test_expected_scores_are_the_scores_made(model: str) -> None:
    """A law of both: at the maximum each player's expected points, and the first movers', are those it made."""
    listed = LISTED + games("a", "c", 5, 3, 2) + games("c", "a", 2, 2, 7) + games("c", "b", 4, 4, 4)
    ratings = fit(listed, FitOptions(model))
    x = {row.name: row.elo / ratings.scale * MODELS[model].unit for row in ratings.players}
    advantage = ratings.advantage / ratings.scale * MODELS[model].unit
    made, expected = dict.fromkeys([*x, "first"], 0.0), dict.fromkeys([*x, "first"], 0.0)
    for game in listed:
        at = x[game.first] - x[game.second] + advantage
        natural = math.log(ratings.draw) if ratings.draw is not None else 0.0
        wins, draws, _ = MODELS[model].probabilities(np.array([at]), natural)
        score, points = float(wins[0] + draws[0] / 2), (1 + game.result) / 2
        for name, sign in ((game.first, 1), (game.second, -1)):
            made[name] += points if sign > 0 else 1 - points
            expected[name] += score if sign > 0 else 1 - score
        made["first"] += points
        expected["first"] += score
    assert expected == pytest.approx(made, abs=1e-6)


# Simulation.


def simulate(strengths: dict[str, float], advantage: float, nu: float, rounds: int, seed: int) -> list[RatedGame]:
    """Every ordered pair plays, Davidson's model on its own scale in Elo points."""
    random = np.random.default_rng(seed)
    listed = []
    for number in range(rounds):
        for first, own in strengths.items():
            for second, other in strengths.items():
                if first != second:
                    x = (own - other + advantage) * LN10_400
                    chances = [davidson(result, x, nu) for result in (1.0, 0.0, -1.0)]
                    result = float(random.choice([1.0, 0.0, -1.0], p=chances))
                    listed.append(RatedGame(first, second, result, str(number)))
    return listed


@pytest.mark.parametrize(
    ("model", "number"), [("bt", 400), ("ordo", 150), pytest.param("ordo", 400, marks=pytest.mark.thorough)]
)
def test_intervals_hold_the_truth_as_often_as_they_say(model: str, number: int) -> None:
    """Tournaments of 4 players; with 400, 95 % +- 2.5 of 1,600 intervals is over four standard errors."""
    truth = {"a": 150.0, "b": 40.0, "c": -50.0, "d": -140.0}
    nu, advantage = 0.8, 30.0
    scale = 2 / (2 + nu)
    hits = held = 0
    for seed in range(number):
        ratings = fit(simulate(truth, advantage, nu, 12, seed), FitOptions(model))
        if model == "ordo":
            # Ordo's points of the truth: the expected score of each pair is matched on average, not exactly.
            hits += sum(row.low - 4 <= scale * truth[row.name] <= row.high + 4 for row in ratings.players)
        else:
            hits += sum(
                row.low / ratings.scale <= truth[row.name] <= row.high / ratings.scale for row in ratings.players
            )
        assert ratings.advantage_interval is not None
        low, high = ratings.advantage_interval
        held += low / ratings.scale <= advantage * (scale if model == "ordo" else 1) <= high / ratings.scale
    wider = (400 / number) ** 0.5
    assert 0.95 - 0.025 * wider <= hits / (4 * number) <= 0.95 + 0.03 * wider
    assert 0.95 - 0.04 * wider <= held / number <= 0.95 + 0.03 * wider


def test_bootstrap_by_pairs_sees_that_games_of_a_pair_depend_on_each_other() -> None:
    """Every game counted five times as one pair: information says the interval shrinks by 5 ** 0.5, pairs say not."""
    single = simulate({"a": 60.0, "b": 0.0}, 0.0, 0.6, 60, 3)
    single = [RatedGame(game.first, game.second, game.result, str(i)) for i, game in enumerate(single)]
    copied = [game for game in single for _ in range(5)]
    true_width = fit(single).players[0].high - fit(single).players[0].low
    naive = fit(copied).players[0]
    paired = fit(copied, FitOptions(bootstrap=300)).players[0]
    assert naive.high - naive.low == pytest.approx(true_width / 5**0.5, rel=0.01)
    assert paired.high - paired.low == pytest.approx(true_width, rel=0.25)


def test_a_bootstrap_sample_that_links_no_groups_is_no_sample() -> None:
    """C and D meet A and B in three pairs; a sample without those says nothing of the difference."""

    def pairs(first: str, second: str, number: int, results: tuple[int, int]) -> list[RatedGame]:
        names = ((first, second), (second, first))
        return [
            RatedGame(*names[game], result, f"{first}{second}{pair}")
            for pair in range(number)
            for game, result in enumerate(results)
        ]

    listed = pairs("A", "B", 50, (1, 1)) + pairs("C", "D", 50, (1, 1)) + pairs("C", "A", 3, (1, 0))
    ratings = fit(listed, FitOptions(anchor=("A", 0.0), bootstrap=200))
    middle = next(row for row in ratings.players if row.name == "C")
    assert middle.low > 100, "no sample in which C is rated in a group of its own, around 0"
    assert "samples lacked a player or a link" in ratings.notes[-1]


def test_a_draw_parameter_is_refused_where_the_model_has_none() -> None:
    with pytest.raises(ValueError, match="model 'ordo' has no draw parameter"):
        fit(games("a", "b", 2, 1, 1), FitOptions(model="ordo", draw=0.5))


# What goes wrong.


def test_a_perfect_score_is_unbounded_and_said() -> None:
    listed = games("a", "b", 4) + games("b", "a", 0, 0, 4) + games("b", "c", 2, 1, 1) + games("c", "b", 2, 1, 1)
    ratings = fit(listed)
    top = ratings.players[0]
    assert (top.name, top.high) == ("a", math.inf)
    assert math.isfinite(top.low)
    assert any("from above, since no point was dropped to players below: a" in note for note in ratings.notes)
    assert any("--prior" in note for note in ratings.notes)
    given = fit(listed, FitOptions(prior=2.0)).players[0]
    assert given.high < 2000


def test_draws_that_run_away_with_strength_are_held_at_their_share() -> None:
    """The best of three draws a quarter and never loses; the others always draw: strength and nu grow together."""
    listed = [
        *games("a", "b", 3, 1) + games("b", "a", 0, 1, 3) + games("a", "c", 3, 1) + games("c", "a", 0, 1, 3),
        *games("b", "c", draws=4) + games("c", "b", draws=4),
    ]
    found = {model: fit(listed, FitOptions(model)) for model in ("bt", "ordo")}
    share = sum(game.result == 0 for game in listed) / len(listed)
    assert found["bt"].draw == pytest.approx(2 * share / (1 - share))
    assert found["bt"].prior == 0
    assert any("fixed at the share of draws" in note for note in found["bt"].notes)
    gaps = {model: elo_of(ratings)["a"] - elo_of(ratings)["b"] for model, ratings in found.items()}
    assert gaps["bt"] == pytest.approx(gaps["ordo"], rel=0.1)  # 87.5 % is 338 Elo by the formula


@pytest.mark.parametrize("model", list(MODELS))
def test_the_better_of_two_that_never_lost_is_rated_above(model: str) -> None:
    """A likelihood that only flattens out has no maximum, however near to zero its gradient is."""
    for wins, draws, others in [(1, 1, 1), (1, 4, 6), (2, 2, 4), (3, 5, 2)]:
        listed = games("a", "b", wins, draws) + games("b", "a", 0, draws, others)
        found = fit(listed, FitOptions(model, draw=None if model == "ordo" else "fit"))
        best, worst = found.players
        assert (best.name, worst.name) == ("a", "b")
        assert best.elo > 20, f"{wins}, {draws}, {others}"
        assert best.high - best.low > 40
        assert found.draw is None or found.draw < 1000


def test_groups_that_never_met_do_not_compare() -> None:
    ratings = fit(LISTED + games("c", "d", 5, 2, 3) + games("d", "c", 4, 2, 4))
    los = {
        (one.name, other.name): ratings.los[i, j]
        for i, one in enumerate(ratings.players)
        for j, other in enumerate(ratings.players)
    }
    assert math.isnan(los["a", "c"])
    assert los["a", "b"] > 0.5 > los["b", "a"]
    assert los["a", "b"] + los["b", "a"] == pytest.approx(1)
    found = elo_of(ratings)
    assert found["a"] + found["b"] == pytest.approx(0, abs=1e-6)
    assert found["c"] + found["d"] == pytest.approx(0, abs=1e-6)


def test_an_anchor_moves_the_scale_and_takes_the_doubt() -> None:
    free, held = fit(LISTED), fit(LISTED, FitOptions(anchor=("b", 2000.0)))
    rows = {row.name: row for row in held.players}
    assert rows["b"].elo == rows["b"].low == rows["b"].high == 2000
    assert rows["a"].elo - 2000 == pytest.approx(elo_of(free)["a"] - elo_of(free)["b"])
    free_row = next(row for row in free.players if row.name == "a")
    assert rows["a"].high - rows["a"].low == pytest.approx(2 * (free_row.high - free_row.low))  # of a difference of two


def test_no_colour_in_common_leaves_the_advantage_out() -> None:
    ratings = fit(games("a", "b", 6, 2, 2))
    assert ratings.advantage == 0
    assert any("both colours" in note for note in ratings.notes)


@pytest.mark.parametrize("prior", [None, 1.0])
@pytest.mark.parametrize("model", list(MODELS))
def test_virtual_games_do_not_tell_what_the_advantage_is(model: str, prior: float | None) -> None:
    """Whoever won every game gets virtual games with both colours, though nobody changed colours."""
    listed = games("hero", "x", wins=20) + games("hero", "y", wins=10, losses=10)
    ratings = fit(listed, FitOptions(model, advantage="fit", prior=prior))
    assert ratings.advantage == 0
    assert any("both colours" in note for note in ratings.notes)
    assert elo_of(ratings) == pytest.approx(elo_of(fit(listed, FitOptions(model, advantage=0.0, prior=prior))))


@pytest.mark.parametrize("model", list(MODELS))
def test_odd_tournaments_are_rated_all_the_same(model: str) -> None:
    """All drawn, all won by the first mover, one game, one loser: finite numbers and a note, never a crash."""
    for listed in (
        games("a", "b", draws=3),
        games("a", "b", 3) + games("b", "a", 3),
        games("a", "b", 1),
        games("a", "b", 5) + games("a", "c", 5) + games("b", "c", 5) + games("c", "d", 5),
        games("a", "b", 9) + games("b", "a", 0, 0, 9) + games("c", "d", draws=2),
        games("a", "b", 6) + games("b", "a", 2, 0, 4),  # the information is singular where it is not quite one
    ):
        ratings = fit(listed, FitOptions(model))
        assert all(math.isfinite(row.elo) for row in ratings.players)
        assert ratings.figures()["players"]


def test_what_cannot_be_rated_is_an_error() -> None:
    with pytest.raises(ValueError, match="no finished game"):
        fit([])
    with pytest.raises(ValueError, match=r"anchor 'z' played no game; the players: a, b"):
        fit(LISTED, FitOptions(anchor=("z", 0.0)))
    with pytest.raises(ValueError, match=r"one of bt, bayeselo, ordo, got 'elo'"):
        FitOptions("elo")
    with pytest.raises(ValueError, match="cannot be rated"):
        fit([RatedGame("a", "a", 1.0)])


def by_both_colours(first: str, second: str, wins: int, drawn: int, losses: int) -> list[RatedGame]:
    """Half of each result with each colour; ``games`` with both."""
    half = games(first, second, wins // 2, drawn // 2, losses // 2)
    return half + [RatedGame(second, first, -game.result) for game in half]


@pytest.mark.parametrize("model", ["bt", "bayeselo"])
def test_one_lost_game_of_a_newcomer_leaves_the_draw_parameter_of_the_others(model: str) -> None:
    """For 900 : 90 : 10 Davidson's nu is 90 / sqrt(900 * 10) exactly; c's single game says next to nothing of draws."""
    match = by_both_colours("a", "b", 900, 90, 10)
    free = FitOptions(model, advantage="fit", draw="fit", prior=0.0)
    alone, joined = fit(match, free), fit([*match, RatedGame("c", "b", -1.0)], free)
    if model == "bt":
        assert alone.draw == pytest.approx(90 / math.sqrt(9000), rel=1e-6)
    assert joined.draw == pytest.approx(alone.draw, rel=0.02)
    one, other = elo_of(alone), elo_of(joined)
    assert other["a"] - other["b"] == pytest.approx(one["a"] - one["b"], rel=0.01)
    assert not any("fixed at the share" in note for note in joined.notes)
    assert any("1 virtual game of each of these players" in note for note in joined.notes)
    assert next(row for row in joined.players if row.name == "c").low == -math.inf


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("draw", [None, "fit"])
def test_an_advantage_given_back_as_it_was_printed_gives_the_same_ratings(
    model: str, draw: Literal["fit"] | None
) -> None:
    draw = draw if MODELS[model].has_draw_parameter else None
    for options in (FitOptions(model, draw=draw), FitOptions(model, draw=draw, advantage="fit")):
        found = fit(LISTED, options)
        again = fit(LISTED, FitOptions(model, draw=draw, advantage=found.advantage))
        assert again.advantage == pytest.approx(found.advantage, abs=1e-6)
        assert elo_of(again) == pytest.approx(elo_of(found), abs=1e-4)
        assert again.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-6)


def test_a_given_advantage_is_on_the_scale_of_the_ratings() -> None:
    assert fit(LISTED, FitOptions(advantage=30.0)).advantage == pytest.approx(30.0)
    assert fit(LISTED, FitOptions("bayeselo", advantage=30.0, draw="fit")).advantage == pytest.approx(30.0)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("advantage", [MAX_ADVANTAGE, -MAX_ADVANTAGE])
def test_an_advantage_at_the_end_of_its_range_is_taken_on_any_scale(model: str, advantage: float) -> None:
    assert fit(LISTED, FitOptions(model, advantage=advantage)).advantage == pytest.approx(advantage)


def test_ordo_is_not_certain_of_players_that_always_drew() -> None:
    """Ten draws may hide three decided games; a hundred hide no more, so their interval is far narrower."""
    few = fit(games("a", "b", draws=10), FitOptions("ordo", advantage=0.0))
    many = fit(games("a", "b", draws=100), FitOptions("ordo", advantage=0.0))
    widths = [ratings.players[0].high - ratings.players[0].low for ratings in (few, many)]
    assert widths[0] == pytest.approx(10 * widths[1], rel=1e-6)
    assert 50 < widths[0] < 300
    assert few.los[0, 1] == pytest.approx(0.5)
    assert any("as wide as if three had been: a; b" in note for note in few.notes)
    assert not fit(LISTED, FitOptions("ordo")).notes


@pytest.mark.parametrize("model", ["bt", "bayeselo"])
def test_drawn_games_under_a_model_without_draws_are_refused(model: str) -> None:
    with pytest.raises(ValueError, match=r"draw parameter of 0 .* 1 of 2 were: give --draw"):
        fit(games("a", "b", 1, 1), FitOptions(model, draw=0.0))
