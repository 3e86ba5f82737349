"""``genpolicy data playouts``: which positions are kept, their labels and splits, what is said where there are none."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

import genpolicy
from genpolicy.cli import main
from genpolicy.data.oracle import Line, Oracle, analysed
from genpolicy.data.records import Dataset, Record
from genpolicy.game import Game
from genpolicy.registry import load
from genpolicy_labelling import playouts
from genpolicy_labelling.playouts import Wanted, drawn, is_quiet

CONNECT = "connect:rows=3,cols=3,k=3,gravity=false"
COMMAND = ["data", "playouts", "--game", CONNECT, "--oracle", "solver?distance=true", "--plies", "0:8"]


def made(folder: Path, *more: str) -> list[Record]:
    assert main([*COMMAND, *more, "--out", str(folder)]) == 0
    return list(Dataset.open(folder).records())


def wins_at_once(game: Game, state: object) -> bool:
    return any(game.outcome(game.play(state, int(move))) == -1 for move in game.legal(state))


def test_all_positions_up_to_symmetry_are_found_and_labelled(tmp_path: Path) -> None:
    game = genpolicy.load_game(CONNECT)
    records = made(tmp_path / "all", "--positions", "5000")
    running = [state for state in game.positions() if game.outcome(state) is None]
    assert {game.canonical_key(game.parse(record.state)) for record in records} == set(map(game.canonical_key, running))
    assert len(records) == len({game.canonical_key(state) for state in running}), "none twice, none as a mirror image"
    lines = load("oracles", "solver")(game, distance=True).analyse([game.parse(r.state) for r in records], 8)
    assert [record.moves for record in records] == [tuple(game.moves[m] for m in line.moves) for line in lines]


def test_the_quiet_ones_are_those_that_brute_force_finds(tmp_path: Path) -> None:
    game = genpolicy.load_game(CONNECT)
    records = made(tmp_path / "quiet", "--positions", "5000", "--quiet", "--max-best", "0.5")
    solver = load("oracles", "solver")(game, distance=True)
    expected = set()
    for state in game.positions():
        if game.outcome(state) is not None:
            continue
        after = [game.play(state, int(move)) for move in game.legal(state)]
        ends_at_once = any(game.outcome(answer) is not None for answer in after)
        lost_in_two = all(wins_at_once(game, answer) for answer in after if game.outcome(answer) is None)
        if ends_at_once or lost_in_two:
            continue
        values = list(solver.analyse([state], 1, move_values=True)[0].move_values.values())
        if values.count(max(values, key=lambda score: float(score.partition(":")[2]))) <= 0.5 * len(after):
            expected.add(game.canonical_key(state))
    assert {game.canonical_key(game.parse(record.state)) for record in records} == expected
    assert 20 < len(expected) < 400


def test_a_split_is_that_of_any_other_command(tmp_path: Path) -> None:
    records = made(tmp_path / "some", "--positions", "200", "--split", "0.5/0/0.5")
    assert main(["data", "import", "all", "--game", CONNECT, "--split", "0.5/0/0.5", "--out", str(tmp_path / "a")]) == 0
    splits = {record.state: record.split for record in Dataset.open(tmp_path / "a").records()}
    assert [record.split for record in records] == [splits[record.state] for record in records]
    assert {record.split for record in records} == {"train", "test"}


def test_the_same_command_gives_the_same_records_and_another_seed_others(tmp_path: Path) -> None:
    first, again = (made(tmp_path / name, "--positions", "50") for name in "ab")
    assert first == again
    assert made(tmp_path / "c", "--positions", "50", "--seed", "1") != first
    assert main([*COMMAND, "--positions", "50", "--out", str(tmp_path / "a")]) == 0, "finished already"


def test_no_position_is_labelled_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled: list[int] = []

    def counting(oracle: Oracle, states: list[Any], *arguments: Any, **more: Any) -> list[Line]:
        labelled.append(len(states))
        return analysed(oracle, states, *arguments, **more)

    monkeypatch.setattr(playouts, "analysed", counting)
    assert len(made(tmp_path / "few", "--positions", "3")) == 3
    assert len(made(tmp_path / "more", "--positions", "300")) == 300
    assert labelled == [3, 256, 44]


def test_what_cannot_be_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = ["--plies", "0:0", "--quiet", "--max-best", "0.5"]  # all first moves draw
    assert main([*COMMAND, "--positions", "5", *lost, "--out", str(tmp_path / "none")]) == 2
    assert "hold no such position: give other --plies" in capsys.readouterr().err
    assert main([*COMMAND, "--positions", "5", "--max-best", "0", "--out", str(tmp_path / "zero")]) == 2
    assert "--max-best" in capsys.readouterr().err
    assert main([*COMMAND, "--positions", "900", "--out", str(tmp_path / "few")]) == 0
    said = capsys.readouterr().err
    assert "only 627 such positions were found: 5,000 in a row were not new or not kept" in said
    policy = [*COMMAND[:4], "--oracle", "policy:random", "--positions", "5", "--out", str(tmp_path / "policy")]
    assert main(policy) == 2
    assert "use an engine or a solver as the oracle" in capsys.readouterr().err


def test_a_search_that_keeps_nothing_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playouts, "MAX_IDLE", 60)
    wide = ["data", "playouts", "--game", "connect:rows=3,cols=5,k=3,gravity=true", "--oracle", "solver"]
    assert main([*wide, "--max-best", "0.1", "--positions", "10", "--out", str(tmp_path / "none")]) == 2
    assert "hold no such position" in capsys.readouterr().err


def test_an_oracle_that_labels_nothing_is_given_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = ["data", "playouts", "--game", "connect:rows=6,cols=7,k=4,gravity=true"]
    command = [*big, "--oracle", "solver?node_limit=2", "--plies", "1:4", "--positions", "20"]
    assert main([*command, "--out", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert said.count("not labelled: ") == 5
    assert "the oracle labelled none of 20 positions, for the reasons above" in said


def test_positions_without_a_label_are_counted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = ["data", "playouts", "--game", "connect:rows=6,cols=7,k=4,gravity=true", "--plies", "20:38"]
    folder = tmp_path / "some"
    assert main([*big, "--oracle", "solver?node_limit=50", "--positions", "40", "--out", str(folder)]) == 0
    assert set(Dataset.open(folder).info.counts["skipped"]) == {"unlabelled"}
    assert "not labelled: " in capsys.readouterr().err


def test_nature_moves_but_its_positions_are_not_kept() -> None:
    game = genpolicy.load_game("pig:goal=20")
    states = list(itertools.islice(drawn(game, Wanted((0, 6), False, 1.0), random.Random(0)), 50))
    assert len(states) == 50, "nature moves between the players"
    assert all(game.chance(state) is None and game.outcome(state) is None for state in states)
    assert len({game.player(state) for state in states}) == 2
    assert is_quiet(genpolicy.load_game(CONNECT), genpolicy.load_game(CONNECT).parse())
