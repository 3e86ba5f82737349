"""A policy as an oracle: what self-play and Reanalyse write, and that a kill changes nothing of it."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genpolicy import cli, load_game, registry
from genpolicy.control import FREE, Control
from genpolicy.data.oracle import make_oracle
from genpolicy.data.records import Dataset, Record
from genpolicy.data.window_source import build_windows
from genpolicy.data.windows import WindowOptions
from genpolicy.errors import RegistryError
from genpolicy.policies.base import Decision, Policy, load_policy, resolve_game
from genpolicy.sequence import Layout
from genpolicy.shipped import policy_folder
from genpolicy.values import score_to_value
from genpolicy_common.labelled import labelled_positions
from genpolicy_labelling.policy_oracle import PolicyOracle
from tests.small_datasets import CONNECT

GAME = load_game(CONNECT)
SEARCH = "policy:mcts:rollout%3Fsimulations=8"


class CallPolicy(Policy):
    """A policy whose probabilities and values depend on all rows of its call; it can be told to fail at a call."""

    kind = "of_calls"
    calls: list[int] = []  # noqa: RUF012  # rows of each call, of all instances
    fails_at = -1

    def __init__(self, game: Any) -> None:
        self.game = game

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        if len(self.calls) == self.fails_at:
            raise KeyboardInterrupt
        self.calls.append(len(states))
        total = sum(len(self.game.legal(state)) for state in states)
        made = []
        for row, state in enumerate(states):
            legal = self.game.legal(state).tolist()
            shares = np.arange(1.0, len(legal) + 1) + (total + row) % 7
            shares /= shares.sum()
            policy = dict(zip(legal, shares.tolist(), strict=True))
            made.append(Decision(max(policy, key=policy.__getitem__), policy=policy, value=(total % 9) / 10))
        return made

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> CallPolicy:
        return cls(resolve_game(options.get("game"), cls.kind))


@pytest.fixture
def calls() -> Iterator[list[int]]:
    registry.register("policies", CallPolicy.kind)(CallPolicy)
    CallPolicy.calls.clear()
    CallPolicy.fails_at = -1
    yield CallPolicy.calls
    registry.unregister("policies", CallPolicy.kind)


def selfplay(out: Path, *more: str, oracle: str = SEARCH, games: int = 24) -> int:
    words = ["data", "selfplay", "--game", CONNECT, "--oracle", oracle, "--games", str(games), "--random-plies", "0:2"]
    return cli.main([*words, "--error-rate", "0", "--horizon", "4", "--out", str(out), *more])


def shares_of(record: Record) -> dict[str, float]:
    pairs = (entry.partition("=") for entry in (record.policy or "").split())
    return {move: float(share) for move, _, share in pairs}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("played") / "games"
    assert selfplay(folder, "--temperature", "1:4", "--split", "1/0/0") == 0
    return Dataset.open(folder)


def test_a_record_holds_the_policy_over_legal_moves_and_the_value(played: Dataset) -> None:
    for record in played.records():
        state = GAME.parse(record.state)
        shares = shares_of(record)
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)  # six digits of each share are kept
        assert {GAME.moves.index(move) for move in shares} <= set(GAME.legal(state).tolist())
        assert record.value is not None
        assert record.scores == (f"value:{np.float32(record.value):.6g}",)
        for move in record.moves:
            state = GAME.play(state, GAME.moves.index(move))
        assert record.ended == (GAME.outcome(state) is not None)


def test_the_result_of_a_lost_game_is_minus_one_for_its_mover_in_every_row(played: Dataset) -> None:
    by_game: dict[str, list[Record]] = {}
    for record in played.records():
        by_game.setdefault(str(record.game_id), []).append(record)
    ends = {}
    for name, records in by_game.items():
        state = GAME.parse(records[0].state)
        for record in records:
            assert record.state == GAME.format(state)
            state = GAME.play(state, GAME.moves.index(record.played or ""))
        outcome = GAME.outcome(state)
        assert outcome is not None
        ends[name] = outcome if GAME.player(state) == 0 else -outcome
    assert -1 in ends.values()
    windows = build_windows(played, "train", GAME, Layout(GAME, "s-a", 1), WindowOptions(columns=("result", "value")))
    results = windows.column("result", np.arange(len(windows)), 0)
    for result, record in zip(results, played.records(), strict=True):
        mover = GAME.player(GAME.parse(record.state))
        assert result == (ends[str(record.game_id)] if mover == 0 else -ends[str(record.game_id)])


def test_moves_are_drawn_by_the_policy_in_the_first_plies_only(tmp_path: Path, calls: list[int]) -> None:
    words = ["--temperature", "1:1", "--random-plies", "0:0", "--split", "1/0/0"]
    assert selfplay(tmp_path / "a", *words, oracle="policy:of_calls?together=16", games=400) == 0
    counts: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for record in Dataset.open(tmp_path / "a").records():
        shares = shares_of(record)
        if record.ply == 0:
            counts[record.played or ""] += 1
            expected.update(shares)
        else:
            assert shares[record.played or ""] == max(shares.values())
    # Chi-squared with 8 degrees of freedom is above 26 in one of a thousand seeds.
    assert sum((counts[move] - expected[move]) ** 2 / expected[move] for move in expected) < 26
    assert selfplay(tmp_path / "b", "--temperature", "0.001", oracle="policy:of_calls", games=8) == 0
    assert all(
        shares_of(r)[str(r.played)] == max(shares_of(r).values()) for r in Dataset.open(tmp_path / "b").records()
    )


def test_many_positions_are_asked_at_once(tmp_path: Path, calls: list[int]) -> None:
    assert selfplay(tmp_path / "a", "--random-plies", "0:0", oracle="policy:of_calls", games=130) == 0
    assert calls[:2] == [64, 64]
    assert sum(calls) == Dataset.open(tmp_path / "a").num_records
    assert len(calls) <= 3 * 9, "one call for each ply of each group"


@pytest.mark.parametrize("verb", ["selfplay", "label"])
def test_a_kill_changes_nothing(tmp_path: Path, calls: list[int], verb: str) -> None:
    """The answers of this policy depend on the whole call, so only the same calls give the same records."""
    oracle = "policy:of_calls?together=8"
    assert selfplay(tmp_path / "whole", "--temperature", "1:9", oracle=oracle) == 0

    def make(out: Path) -> int:
        if verb == "selfplay":
            return selfplay(out, "--temperature", "1:9", oracle=oracle)
        return cli.main(
            ["data", "label", str(tmp_path / "whole"), "--oracle", oracle, "--share", ".8", "--out", str(out)]
        )

    calls.clear()
    assert make(tmp_path / "undisturbed") == 0
    undisturbed = list(calls)
    calls.clear()
    for _ in range(len(undisturbed)):
        CallPolicy.fails_at = len(calls) + 1
        try:
            status = make(tmp_path / "killed")
        except KeyboardInterrupt:
            continue
        if status == 0:
            break
    assert calls == undisturbed, "what was answered is not asked again"
    assert Dataset.open(tmp_path / "killed").checksum == Dataset.open(tmp_path / "undisturbed").checksum


def test_reanalyse_changes_policy_value_and_label_alone(played: Dataset, tmp_path: Path) -> None:
    label = ["data", "label", str(played.folder), "--horizon", "4", "--seed", "3"]
    newer = "policy:mcts:rollout?simulations=32&seed=5"
    assert cli.main([*label, "--oracle", newer, "--out", str(tmp_path / "all")]) == 0
    assert cli.main([*label, "--oracle", newer, "--share", "0.25", "--out", str(tmp_path / "part")]) == 0
    old, all_new, some_new = (
        list(d.records()) for d in (played, *map(Dataset.open, (tmp_path / "all", tmp_path / "part")))
    )
    for before, after in zip(old, all_new, strict=True):
        labels = {name: getattr(after, name) for name in ("line", "ended", "scores", "policy", "value")}
        assert replace(before, **labels) == after
    assert sum(before.policy != after.policy for before, after in zip(old, all_new, strict=True)) > len(old) / 2
    changed = [before != after for before, after in zip(old, some_new, strict=True)]
    assert 0.1 < np.mean(changed) < 0.4


def test_a_solver_leaves_nothing_of_the_labels_of_a_search(played: Dataset, tmp_path: Path) -> None:
    out = str(tmp_path / "solved")
    assert cli.main(["data", "label", str(played.folder), "--oracle", "solver", "--horizon", "4", "--out", out]) == 0
    solved = Dataset.open(out)
    assert {(record.policy, record.value) for record in solved.records()} == {(None, None)}
    values = [position.value for position in labelled_positions(solved, GAME, "train")]
    assert values == [score_to_value(record.scores[0] or "") for record in solved.records()]


def test_an_answer_is_that_of_the_policy_however_it_is_spelled() -> None:
    states = [GAME.parse(), GAME.play(GAME.parse(), 0)]
    spelled = ["mcts:rollout?simulations=8", "mcts:rollout%3Fsimulations=8", "mcts:rollout?simulations=8&seed=0"]
    lines = []
    for text in spelled:
        with make_oracle(f"policy:{text}", GAME) as oracle:
            lines.append(oracle.analyse(states, 3))
            assert oracle.analyse(states, 3) == lines[-1], "an answer depends on its call alone"
    assert lines[0] == lines[1] == lines[2]
    policy = load_policy("mcts:rollout?simulations=8", game=GAME, seed=0)
    for line, decision in zip(lines[0], policy.decide(states), strict=True):
        assert (line.moves[0], line.policy, line.value) == (decision.move, decision.policy, decision.value)


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (Decision(0, policy={0: 3.0, 1: -2.0}), "gave the probability 3.0 of a3 in '...; a probability lies in [0, 1]"),
        (Decision(0, policy={0: 0.5, 1: 0.4}), "gave probabilities that sum to 0.9 in '...; they must sum to 1"),
        (Decision(0, policy={0: float("nan")}), "gave the probability nan of a3 in '...; a probability lies in [0, 1]"),
        (Decision(0, policy={0: 0.5, 4: 0.5}), "gave a probability of the illegal move b2 in '..."),
        (Decision(0, value=7.0), "gave the value 7.0 in '...; a value lies in [-1, 1]"),
        (Decision(0, value=float("nan")), "gave the value nan in '...; a value lies in [-1, 1]"),
        (Decision(4), "chose the illegal move b2 in '..."),
    ],
    ids=["share", "sum", "nan-share", "illegal-share", "value", "nan-value", "move"],
)
def test_numbers_that_no_policy_may_give_are_not_written(
    decision: Decision, message: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = GAME.play(GAME.parse(), 4)
    monkeypatch.setattr(CallPolicy, "decide", lambda self, states, *, control=FREE: [decision] * len(states))
    expected = re.escape(message).replace(re.escape("..."), ".*")
    with (
        make_oracle("policy:of_calls", GAME) as oracle,
        pytest.raises(RegistryError, match=rf"^policy 'of_calls' \(.*\) {expected}"),
    ):
        oracle.analyse([state], 1)


@pytest.mark.parametrize("shares", [{0: 1.0}, {0: 0.3333, 1: 0.3333, 8: 0.3333}, {}, None], ids=str)
def test_probabilities_of_some_legal_moves_are_enough(
    shares: dict[int, float] | None, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Decision(0, policy=shares, value=1.00001)]
    monkeypatch.setattr(CallPolicy, "decide", lambda self, states, *, control=FREE: made)
    with make_oracle("policy:of_calls", GAME) as oracle:
        (line,) = oracle.analyse([GAME.parse()], 1)
    assert (line.policy, line.value) == (shares or {}, 1.0)


def test_every_call_begins_with_the_same_seed() -> None:
    with make_oracle("policy:random", GAME) as oracle:
        first, again = (oracle.analyse([GAME.parse()] * 6, 1) for _ in range(2))
    assert first == again
    assert len({line.moves for line in first}) > 1, "one position six times in a call is six draws"


@pytest.mark.parametrize(
    "spelling", ["mcts:FOLDER%3Fvalue=even%26simulations=2", "mcts:tic-tac-toe?value=FOLDER&simulations=2"]
)
def test_a_moved_folder_is_the_same_policy_and_a_changed_one_is_not(tmp_path: Path, spelling: str) -> None:
    shipped = policy_folder("tic-tac-toe")
    assert shipped is not None
    told = []
    for name in ("here", "there"):
        folder = shutil.copytree(shipped, tmp_path / name)
        with make_oracle(f"policy:{spelling.replace('FOLDER', str(folder))}", GAME) as oracle:
            told.append(oracle.describe())
    assert told[0] == told[1]
    assert str(tmp_path) not in str(told)
    (tmp_path / "there" / "config.yaml").write_text((tmp_path / "there" / "config.yaml").read_text() + "\n")
    with make_oracle(f"policy:{spelling.replace('FOLDER', str(tmp_path / 'there'))}", GAME) as oracle:
        assert oracle.describe() != told[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--oracle", "policy:"], "needs a policy"),
        (["--oracle", "policy:randon"], "random"),
        (["--oracle", "policy:random", "--processes", "2"], "omit --parallel"),
        (["--oracle", "solver", "--parallel", "2"], "works in one process: omit processes (--parallel)"),
        (["--oracle", "policy:random", "--move-values"], "leave out --move-values"),
        (["--oracle", "policy:random?together=0"], "from 1 to 4096, got '0'"),
        (["--oracle", "policy:random?seed=x"], "seed must be a whole number"),
        (["--oracle", "policy:mcts:rollout?simulation=2"], "simulations"),
        (["--oracle", "policy:chess"], "plays"),
        (["--oracle", "policy:random", "--temperature", "0:4"], "T:PLIES"),
    ],
)
def test_bad_input_is_named(words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["data", "selfplay", "--game", CONNECT, "--games", "2", "--out", str(tmp_path / "out")]
    assert cli.main([*start, *words]) != 0
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "nothing is left behind"


def test_an_oracle_without_a_policy_cannot_draw_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert selfplay(tmp_path / "out", "--temperature", "1:4", oracle="solver", games=2) != 0
    assert "this oracle has none: use policy:SPELLING" in capsys.readouterr().err


def test_bad_share_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "label", "runs/none", "--oracle", "policy:random", "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--share", "1.5"]) != 0
    assert "above 0 and at most 1" in capsys.readouterr().err


def test_each_call_draws_numbers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They depend on the seed and on the positions of the call, so a call that is made again gets the same answer."""
    game, seeds = load_game("connect:rows=3,cols=3,k=3,gravity=false"), []
    first = game.parse()
    second = game.play(first, 4)
    for seed in (3, 4):
        with make_oracle(f"policy:random?seed={seed}", game) as oracle:
            assert isinstance(oracle, PolicyOracle)
            monkeypatch.setattr(oracle.policy, "seed", seeds.append)
            for states in ([first], [second], [first], [first, second]):
                oracle.analyse(states, 1)
    assert seeds[0] == seeds[2]
    assert seeds[4] == seeds[6]
    assert len(set(seeds)) == 6
