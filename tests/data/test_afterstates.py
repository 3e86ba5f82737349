"""Positions after valued moves: their values, their splits, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

import genpolicy
from genpolicy.cli import main
from genpolicy.data.records import Dataset, Record
from genpolicy.registry import load
from genpolicy.values import score_to_value
from genpolicy_labelling.afterstates import score_after
from tests.small_datasets import CONNECT, solved_connect, write_dataset


@pytest.mark.parametrize(
    ("before", "after", "again"),
    [
        ("cp:31", "cp:-31", "cp:31"),
        ("cp:0", "cp:0", "cp:0"),
        ("mate:3", "mate:-2", "mate:2"),  # two more of our moves mate
        ("mate:1", "mate:0", "mate:0"),
        ("mate:-2", "mate:2", "mate:-2"),  # they mate by their next two
        ("value:0.5", "value:-0.5", "value:0.5"),
        ("value:0.123456789", "value:-0.123456789", "value:0.123456789"),
        ("cp:1200000", "cp:-1200000", "cp:1200000"),
    ],
)
def test_a_score_is_seen_from_the_other_side(before: str, after: str, again: str) -> None:
    assert score_after(before) == after
    assert score_after(before, same_player=True) == again
    if before != "mate:1":
        assert score_to_value(after) == pytest.approx(-score_to_value(before))


def test_every_afterstate_has_the_value_that_the_solver_gives_it(tmp_path: Path) -> None:
    solved, out = solved_connect(tmp_path / "solved").folder, tmp_path / "after"
    command = ["data", "afterstates", "--data", str(solved), "--moves", "9", "--out", str(out)]
    assert main(command) == 0
    game = genpolicy.load_game(CONNECT)
    found = list(Dataset.open(out).records())
    states = [game.parse(record.state) for record in found]
    lines = load("oracles", "solver")(game).analyse(states, 1)
    assert len(found) > 9_000
    assert all(record.line is None for record in found)
    assert [record.scores[0] for record in found] == [line.scores[0] for line in lines]
    splits = {game.key(game.parse(record.state)): record.split for record in Dataset.open(solved).records()}
    assert [record.split for record in found] == [splits[game.key(state)] for state in states]
    assert main(command) == 0, "the same command again finds it finished"
    assert main([*command, "--moves", "0"]) == 2


@pytest.mark.parametrize("holders", [["test"], ["test", "train"], ["train", "test"]], ids=" then ".join)
def test_a_symmetric_copy_of_a_position_of_another_split_is_left_out(tmp_path: Path, holders: list[str]) -> None:
    game = genpolicy.load_game(CONNECT)
    corner = game.format(game.play(game.parse(), game.moves.index("c3")))
    records = [
        Record(game.format(game.parse()), move_values="a1=value:0 b2=value:0", split="train"),
        *(Record(corner, line="b2", split=split) for split in holders),
    ]
    data, out = write_dataset(tmp_path / "data", CONNECT, records).folder, tmp_path / "after"
    assert main(["data", "afterstates", "--data", str(data), "--out", str(out)]) == 0
    centre = game.play(game.parse(), game.moves.index("b2"))
    assert [record.state for record in Dataset.open(out).records()] == [game.format(centre)]


def test_a_data_set_without_values_of_moves_names_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = Record(state="X../.O./... X", line="c1", split="train")
    data = write_dataset(tmp_path / "lines", CONNECT, [record]).folder
    assert main(["data", "afterstates", str(data), "--out", str(tmp_path / "out")]) == 2
    assert "label it with genpolicy data label --move-values" in capsys.readouterr().err


def test_an_unfinished_data_set_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = solved_connect(tmp_path / "solved", every=50).folder
    info = folder / "dataset.yaml"
    info.write_text(info.read_text().replace("complete: true", "complete: false"))
    assert main(["data", "afterstates", "--data", str(folder), "--out", str(tmp_path / "after")]) == 2
    assert ": unfinished, " in capsys.readouterr().err
    assert not (tmp_path / "after").exists()
