"""Action accuracy and futures, counted by hand for policies whose answers are written down."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import genpolicy
from genpolicy.cli import main
from genpolicy.data.records import Record
from genpolicy.errors import ConfigError, DatasetError, RegistryError
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy
from genpolicy.registry import load
from genpolicy_common.labelled import LabelledPosition, labelled_positions
from genpolicy_evaluation.accuracy import accuracy_report, measure_accuracy, random_chances
from genpolicy_evaluation.futures import MEASURES, futures_reports, measure_futures, plot_futures
from genpolicy_experiments import worker
from tests.small_datasets import CONNECT, solved_connect, write_dataset


class Scripted(Policy):
    """Answers by the position's text; ``raw`` are the answers without a legal mask."""

    kind: ClassVar[str] = "scripted"

    def __init__(
        self,
        game: Game[Any],
        answers: dict[str, Decision],
        raw: dict[str, Decision] | None = None,
        filters: bool = False,
    ) -> None:
        self.game, self._answers, self._raw, self._filters = game, answers, raw, filters
        self.num_asked = 0

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        self.num_asked += len(states)
        return [self._answers[self.game.format(state)] for state in states]

    def unmasked(self) -> Policy | None:
        return None if self._raw is None else Scripted(self.game, self._raw)

    @property
    def mask_only_filters(self) -> bool:
        return self._filters


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


def after(game: Game[Any], *moves: int) -> Any:
    state = game.parse()
    for move in moves:
        state = game.play(state, move)
    return state


def position(game: Game[Any], state: Any, line: tuple[int, ...], best: set[int], cluster: str) -> LabelledPosition:
    return LabelledPosition(state, line, frozenset(best), len(game.legal(state)), cluster)


def test_accuracy_counts_labels_ties_and_raw_moves(game: Game[Any]) -> None:
    positions = [
        position(game, after(game), (4,), {4, 0}, "g1"),  # 9 legal moves
        position(game, after(game, 4), (0,), {0, 2, 6, 8}, "g1"),  # 8
        position(game, after(game, 4, 0), (8,), {8}, "g2"),  # 7
    ]
    texts = [game.format(p.state) for p in positions]
    masked = [Decision(4, line=(4,)), Decision(2, line=(2,)), Decision(1, line=(1,))]
    raw = [
        Decision(0, line=(0,), stats={"raw_legal": 1.0}),
        Decision(2, line=(4,), stats={"raw_legal": 0.0}),  # an illegal first action, replaced
        Decision(8, line=(8,), stats={"raw_legal": 1.0}),
    ]
    policy = Scripted(game, dict(zip(texts, masked, strict=True)), dict(zip(texts, raw, strict=True)))
    found = measure_accuracy(policy, positions)
    assert found.labelled.value == pytest.approx(1 / 3)
    assert found.best.value == pytest.approx(2 / 3)
    assert found.times_random == pytest.approx(2 / (2 / 9 + 4 / 8 + 1 / 7))
    assert found.raw_labelled is not None
    assert found.raw_best is not None
    assert found.raw_legal is not None
    assert (found.raw_labelled.value, found.raw_best.value) == pytest.approx((1 / 3, 2 / 3))
    assert found.raw_legal.value == pytest.approx(2 / 3)
    labelled, best = random_chances(positions)
    assert labelled.tolist() == pytest.approx([1 / 9, 1 / 8, 1 / 7])
    assert best.tolist() == pytest.approx([2 / 9, 4 / 8, 1 / 7])
    table = accuracy_report([found], positions, "x").markdown()
    assert "| random legal move | - | 12.6 | 28.8 | 1.00 |" in table
    assert "3 positions from 2 games" in table
    assert measure_accuracy(policy, positions, raw=False).raw_legal is None


def test_a_raw_action_of_which_nothing_is_said_is_legal_if_it_is_the_move(game: Game[Any]) -> None:
    positions = [position(game, after(game), (4,), {4}, name) for name in "abc"]
    text = game.format(positions[0].state)
    for decision, legal in ((Decision(4), 1.0), (Decision(4, line=(4,)), 1.0), (Decision(4, line=(-1,)), 0.0)):
        policy = Scripted(game, {text: decision}, {text: decision})
        found = measure_accuracy(policy, positions)
        figures, _ = worker.measure(policy, positions, {})
        assert found.raw_legal is not None
        assert found.raw_best is not None
        assert (found.raw_legal.value, found.raw_best.value) == (legal, legal)
        assert (figures["legal"], figures["raw_best"]) == (legal, legal)
        assert (figures["best"], figures["labelled"]) == (found.best.value, found.labelled.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([Decision(4), Decision(4)], r"chose the illegal move b2 in '.*X.*'"),
        ([Decision(4)], "answered 1 decisions, not one Decision for each of 2 positions"),
        ([4, 0], r"answered \[4, 0\], not one Decision for each of 2 positions"),
        (None, "answered None, not one Decision for each of 2 positions"),
    ],
    ids=["illegal", "few", "numbers", "nothing"],
)
def test_what_no_policy_may_answer_is_not_counted(game: Game[Any], answer: Any, message: str) -> None:
    class Wrong(Scripted):
        def decide(self, states: Sequence[Any]) -> list[Decision]:
            return answer  # type: ignore[no-any-return]

    positions = [position(game, after(game), (4,), {4}, "g"), position(game, after(game, 4), (0,), {0}, "g")]
    with pytest.raises(RegistryError, match=f"^policy Wrong {message}"):
        measure_accuracy(Wrong(game, {}), positions)


def test_one_run_is_enough_where_the_mask_only_filters(game: Game[Any]) -> None:
    positions = [position(game, after(game), (4,), {4}, "g")]
    text = game.format(positions[0].state)
    raw = Decision(4, line=(3,), stats={"raw_legal": 0.0})
    policy = Scripted(game, {}, {text: raw}, filters=True)
    found = measure_accuracy(policy, positions)
    assert policy.num_asked == 0
    assert found.labelled.value == 1.0
    assert found.raw_labelled is not None
    assert found.raw_labelled.value == 0.0


def scripted_futures(game: Game[Any]) -> tuple[Policy, list[LabelledPosition]]:
    """Four lines: perfect; a state of nonsense; an illegal first action; one that wins at once."""
    four, four_zero = game.format(after(game, 4)), game.format(after(game, 4, 0))
    to_win = after(game, 0, 3, 1, 4)  # 2 completes the top row
    positions = [
        position(game, after(game), (4, 0, 8), set(range(9)), "g1"),
        position(game, after(game, 8), (4, 0), {4}, "g1"),
        position(game, after(game, 4, 0), (8, 1, 2), {8}, "g2"),
        position(game, to_win, (2,), {2}, "g2"),
    ]
    answers = [
        Decision(4, line=(4, 0, 8), states=(four, four_zero)),
        Decision(4, line=(4, 1, 2), states=(None, None)),
        Decision(8, line=(4, 1, 2), states=(four, game.format(after(game, 4, 1)))),
        Decision(2, line=(2, -1, -1), states=(game.format(game.play(to_win, 2)), None)),
    ]
    return Scripted(game, {game.format(p.state): a for p, a in zip(positions, answers, strict=True)}), positions


EXPECTED = {  # hits of trials, by step
    "valid_action": [(3, 4), (2, 3), (2, 3)],
    "valid_state": [(4, 4), (3, 4), (2, 3)],
    "match": [None, (2, 4), (2, 3)],
}


def check_shares(found: Any, expected: dict[str, list[tuple[int, int] | None]]) -> None:
    for measure, shares in expected.items():
        for step, share in enumerate(shares):
            got = found.steps[step][measure]
            if share is None:
                assert got.trials == 0
                assert math.isnan(got.value)
            else:
                assert (round(got.value * got.trials), got.trials) == share, (measure, step)


def test_futures_by_the_label(game: Game[Any]) -> None:
    policy, positions = scripted_futures(game)
    found = measure_futures(policy, positions)
    check_shares(found, EXPECTED)
    # Step 1 of the third line equals its label, but what came before does not; the fourth label ends after one move.
    check_shares(found, {"best_action": [(3, 4), (1, 3), (1, 2)], "match_board": EXPECTED["match"]})


def test_futures_by_the_solver(game: Game[Any]) -> None:
    """Tic-tac-toe is a draw: every first move and the corner reply to the centre keep it; an edge reply loses.

    After 4 1 the centre's owner wins, by 0, 2, 6 or 8 (a fork follows); after 8 only the centre holds.
    """
    policy, positions = scripted_futures(game)
    found = measure_futures(policy, positions, oracle=load("oracles", "solver")(game))
    check_shares(found, EXPECTED)
    check_shares(found, {"best_action": [(3, 4), (1, 3), (2, 3)]})


def test_counters_are_told_from_the_board() -> None:
    pytest.importorskip("chess")
    chess = genpolicy.load_game("chess")
    root = chess.parse()
    first, second = chess.moves.index("g1f3"), chess.moves.index("g8f6")
    true = chess.format(chess.play(root, first))
    assert true.endswith(" 1 1")
    wrong_counters = true[:-3] + "0 7"
    policy = Scripted(chess, {chess.format(root): Decision(first, line=(first, second), states=(wrong_counters,))})
    found = measure_futures(policy, [position(chess, root, (first, second), {first}, "g")])
    assert found.steps[1]["match"].value == 0.0
    assert found.steps[1]["match_board"].value == 1.0
    assert found.steps[1]["valid_state"].value == 1.0
    assert found.steps[1]["best_action"].value == 1.0


def test_a_game_whose_tokens_do_not_decode_has_no_valid_states(game: Game[Any], monkeypatch: Any) -> None:
    policy, positions = scripted_futures(game)
    monkeypatch.setattr(type(game.tokens), "decodes", False)
    found = measure_futures(policy, positions)
    assert all(step["valid_state"].trials == 0 for step in found.steps)
    check_shares(found, {measure: EXPECTED[measure] for measure in ("valid_action", "match")})


def test_futures_of_a_policy_that_imagines_one_move_have_one_step(game: Game[Any]) -> None:
    policy = genpolicy.load_policy("random", game=game)
    found = measure_futures(policy, [position(game, after(game), (4, 0), {4}, "g")])
    assert len(found.steps) == 1
    assert found.steps[0]["valid_action"].value == 1.0


def test_futures_without_a_line_are_an_error(game: Game[Any]) -> None:
    policy = Scripted(game, {game.format(after(game)): Decision(4)})
    with pytest.raises(ValueError, match="imagines no line"):
        measure_futures(policy, [position(game, after(game), (4,), {4}, "g")])
    with pytest.raises(ValueError, match="no positions"):
        measure_futures(policy, [])
    with pytest.raises(ValueError, match="no positions"):
        measure_accuracy(policy, [])


def test_futures_table_and_plot(game: Game[Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    policy, positions = scripted_futures(game)
    found = measure_futures(policy, positions)
    rows = [found, dataclasses.replace(found, mode="again")]
    reports = futures_reports(rows, positions, "x", "the labelled line")
    assert [len(report.rows) for report in reports] == [3, 3]
    num_games = len({each.cluster for each in positions})
    assert reports[1].notes[0].startswith(f"{len(positions)} positions from {num_games} games; intervals: 95 %")
    assert reports[0].rows[0][0] == "0"
    assert set(found.figures()["steps"][0]) == set(MEASURES)
    for name, magic in (("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")):
        plot_futures(rows, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(magic)
    with pytest.raises(ConfigError, match=r"plot\.xyz"):
        plot_futures(rows, tmp_path / "plot.xyz")


def test_labelled_positions_of_a_split(game: Game[Any], tmp_path: Path) -> None:
    values = " ".join(f"{game.moves[move]}=value:{0 if move in (0, 4) else -1}" for move in range(9))
    start = game.format(after(game))
    records = [
        Record(state=start, game_id="a", line=f"{game.moves[4]} {game.moves[0]}", move_values=values, split="test"),
        Record(state=game.format(after(game, 4)), game_id="a", split="test"),  # nobody labelled it
        Record(state=game.format(after(game, 4, 0)), line=game.moves[8], split="test"),
        Record(state=start, game_id="b", line=game.moves[4], split="train"),
    ]
    data = write_dataset(tmp_path / "data", game.spec, records)
    first, second = labelled_positions(data, game, "test")
    assert (first.line, first.best, first.num_legal, first.cluster) == ((4, 0), {0, 4}, 9, "a")
    assert (second.line, second.best, second.num_legal) == ((8,), {8}, 7)
    assert second.cluster != first.cluster
    assert len(labelled_positions(data, game, "test", limit=1)) == 1
    with pytest.raises(
        DatasetError, match=r"no labelled position in split 'validation'.*train 1 \(name another .*--split"
    ):
        labelled_positions(data, game, "validation")
    imported = write_dataset(tmp_path / "imported", game.spec, records[1:2])
    with pytest.raises(DatasetError, match=r"split 'test'; its splits: test 1 \(genpolicy data label makes labels\)"):
        labelled_positions(imported, game, "test")
    with pytest.raises(ValueError, match="limit must be at least 1"):
        labelled_positions(data, game, "test", limit=0)


@pytest.mark.parametrize(("line", "message"), [("x9", "not a move"), (None, "illegal")])
def test_labels_that_cannot_be_played_are_named(
    game: Game[Any], tmp_path: Path, line: str | None, message: str
) -> None:
    text = game.moves[4] if line is None else line
    record = Record(state=game.format(after(game, 4)), line=text, split="test")
    data = write_dataset(tmp_path, game.spec, [record])
    with pytest.raises(DatasetError, match=message):
        labelled_positions(data, game, "test")


@pytest.mark.parametrize("measure", ["accuracy", "latency", "report"])
def test_a_seed_that_is_spelled_is_the_policys_own(measure: str, tmp_path: Path) -> None:
    data, figures = solved_connect(tmp_path / "data", horizon=1, every=7).folder, tmp_path / "figures.json"
    shares = []
    for options in (["random?seed=1"], ["random?seed=2"], ["random", "--seed", "1"]):
        call = ["evaluate", measure, "--data", str(data), "--json", str(figures), "--policy", *options]
        more = {"latency": ["--batches", "1"], "report": ["--out", str(tmp_path / "page.md")]}
        assert main([*call, *more.get(measure, [])]) == 0
        found = json.loads(figures.read_text())
        (row,) = found["points" if measure == "latency" else "policies"]
        shares.append(row["accuracy" if measure == "report" else "labelled"])
        shares[-1] = shares[-1].get("labelled", shares[-1])["accuracy"]
    assert shares[0] != shares[1]
    assert shares[0] == shares[2]


def test_calls_of_a_search_are_those_of_a_decision(tmp_path: Path) -> None:
    """A tree search asks about many positions in one call; its decisions each count all of them."""
    policy = genpolicy.load_policy("mcts:tic-tac-toe?simulations=4", game=CONNECT)
    positions = labelled_positions(solved_connect(tmp_path, every=20), policy.game, "train")
    few, many = (measure_accuracy(policy, positions[:number], raw=False).network_calls for number in (4, 40))
    assert few == many <= 6
