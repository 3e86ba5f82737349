"""Descriptions that cannot be run are refused by one message before anything is; what is trained on is not measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from genpolicy.cli import main
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import ConfigError
from genpolicy.registry import load_game
from genpolicy.sequence import Layout
from genpolicy_common.labelled import labelled_positions
from genpolicy_experiments.description import Experiment
from genpolicy_experiments.possible import require
from genpolicy_experiments.runner import Runner, play_name
from tests.small_datasets import write_dataset

pytestmark = pytest.mark.xdist_group("experiment-descriptions")
GAME = "connect:rows=3,cols=3,k=3,gravity=false"
NETWORK = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 8}
DIFFUSION = {"learner.kind": "diffusion", "learner.process": {"kind": "absorbing"}, "learner.redraw": False}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Labelled data sets of all positions by the fractions of their splits; two plies a line."""
    folder = tmp_path_factory.mktemp("descriptions")

    def make(split: str) -> Path:
        out = folder / split.replace("/", "-")
        if not out.exists():
            assert main(["data", "import", "all", "--game", GAME, "--split", split, "--out", f"{out}-raw"]) == 0
            label = ["data", "label", f"{out}-raw", "--oracle", "solver", "--horizon", "2", "--out", str(out)]
            assert main(label) == 0
        return out

    return make


@pytest.fixture(scope="module")
def data(labelled: Callable[[str], Path]) -> Path:
    return labelled("0.2/0.1/0.7")


def describe(folder: Path, data: Any, **changes: Any) -> Path:
    description: dict[str, Any] = {
        "name": "small",
        "data": data if isinstance(data, dict) else {"folder": str(data)},
        "run": {"learner.network": NETWORK, "learner.kind": "one_step", "trainer": {"batch_size": 32}},
        "axes": {"x": {"a": {}}},
        "seeds": [0],
        "budget": {"records": 64},
        "evaluate": {"positions": 20},
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**description, **changes}, sort_keys=False))
    return path


def label(**settings: Any) -> dict[str, Any]:
    """One cell with these settings; dots are written as double underscores."""
    return {"axes": {"x": {"a": {key.replace("__", "."): value for key, value in settings.items()}}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (label(trainer__max_records=64), "axes.x.a: trainer.max_records has no effect"),
        (label(trainer__max_records=64), "budget: {records: 64}, or budget.records: 64 in a label"),
        ({"run": {"trainer": {"max_minutes": 1}}}, "run: trainer.max_minutes has no effect"),
        (label(trainer={"seed": 3}), "trainer.seed has no effect: write seeds: [3]"),
        (label(out="there"), "out has no effect: the folder is given by the command's --out"),
        (label(play={"num_steps": 1}), "by dotted keys, e.g. play.num_steps"),
        ({"run": {"play.num_steps": 1}}, "by dotted keys, e.g. play.num_steps"),
        (label(budget__minutes=1), "budget.minutes is of another kind than the file's budget of records"),
        (label(budget__records=-1), "axes.x.a: budget.records must be a whole number above 0"),
        ({"budget": {"records": math.inf}}, "budget.records must be a whole number above 0"),
        ({"budget": {"records": math.nan}}, "budget.records must be a whole number above 0"),
        ({"budget": {"records": 0.5}}, "budget.records must be a whole number above 0"),
        ({"budget": {"flops": -1}}, "budget.flops must be a number above 0"),
        ({"budget": {"minutes": math.nan}}, "budget.minutes must be a number above 0"),
        ({"axes": {"x": {"a": {1: "y"}}}}, "axes.x.a: keys must be names such as learner.horizon, got 1"),
        ({"axes": {"x": {1: {}, "1": {}}}}, "Conflicting integer and string keys: 1 and '1'"),
        ({"axes": {"x": {"two\nlines": {}}}}, "write one line of text"),
        ({"axes": {"x": ["a"]}}, "key 'axes.x' must hold labels with settings"),
        ({"seeds": 3}, "key 'seeds' must be a list, e.g. seeds=[3]"),
        ({"metrics": "best"}, "key 'metrics' must be a list, e.g. metrics=[best]"),
        ({"compare": 3}, "key 'compare' must be a list, got 3"),
        ({"axes": ["a"]}, "key 'axes' is a section of keys, got ['a']"),
        ({"run": [1]}, "key 'run' is a section of keys, got [1]"),
        ({"published": {"values": [1]}}, "key 'published.values' is a section of keys, got [1]"),
        ({"published": {"values": {"a": math.nan}}}, "must be a finite number, got nan"),
        ({"skip": ["ok"]}, "small.yaml"),
        ({"skip": "ok"}, "small.yaml"),
        ({"seeds": [-1]}, "seeds must be whole numbers from 0 to"),
        ({"seeds": [10**30]}, "small.yaml"),
        ({"threads": 0}, "threads must be a whole number of at least 1; got 0"),
        ({"parallel": -2}, "parallel must be a whole number of at least 1, or null; got -2"),
        ({"evaluate": {"positions": 0}}, "evaluate.positions must be a whole number of at least 1, or null; got 0"),
        ({"metrics": []}, "metrics is empty"),
        ({"metrics": ["best", "best"]}, "'best' is listed twice"),
        ({"plots": [{}]}, "a plot needs an x"),
        ({"plots": [{"x": "x", "by": "records"}]}, "'records'"),
        ({"plots": [{"x": "x", "by": "future_step"}]}, "'future_step'"),
        ({"plots": [{"x": "records", "by": "records"}]}, "by 'records' is not an axis"),
        ({"plots": [{"x": "x", "log": True}]}, "not all labels of axis 'x' are numbers above 0"),
        (
            {"axes": {"x": {"1": {}, "2": {}}, "z": {"a": {}, "b": {}}}, "plots": [{"x": "x"}]},
            "cells '1 / a' and '1 / b' would be at the same place of a line",
        ),
        (
            {
                "axes": {"x": {"1": {}, "2": {}}},
                "evaluate": {"futures": True},
                "plots": [{"x": "future_step", "y": "match"}],
            },
            "cells '1' and '2' would be at the same place of a line",
        ),
        ({"name": "a/b"}, "name must be usable as a file name"),
        ({"name": ".."}, "name must be usable as a file name"),
        ({"name": "a\0b"}, "a text with control characters"),
        ({"name": "x" * 300}, "name must be usable as a file name"),
        ({"data": {"folder": "nowhere", "make": ['data import "x']}}, "close the quotation mark"),
    ],
)
def test_what_is_wrong_by_itself_is_refused_when_it_is_read(
    changes: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = describe(tmp_path, **{"data": "nowhere", **changes})
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "small.yaml" in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (label(play__batch_size="abc"), "option batch_size is a whole number, got 'abc'"),
        (label(learner__kind="gaussian", learner__horizon=2, learner__process={"width": "x"}), "learner.process.width"),
        ({"budget": {"flops": 1}}, "budget.flops 1 is less than one update of 32 records"),
        (label(**DIFFUSION, learner__horizon=3), "learner.horizon 3 goes beyond the 2 plies that"),
        (
            label(**DIFFUSION, learner__horizon=2, learner__horizons=[1]),
            "it would play with horizon 2, but is trained on learner.horizons [1]",
        ),
        (label(**DIFFUSION, learner__horizon=10**9), "a sequence of more than 20,000 tokens"),
        (label(data__train="validatoin"), "no record in split 'validatoin'"),
        (label(data=5), "cell 'a': key 'data' holds settings, got 5"),
        (label(trainer=[1]), "cell 'a': key 'trainer' holds settings, got [1]"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_is_run(
    changes: dict[str, Any], message: str, tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = describe(tmp_path, data, **changes)
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("runs/*"))


def _require(experiment: Experiment, tmp_path: Path) -> list[str]:
    said: list[str] = []
    require(experiment, [(job.run, job.plays) for job in Runner(experiment, tmp_path / "out").jobs()], said.append)
    return said


def test_the_file_in_the_documentation_can_be_run(tmp_path: Path, data: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    file = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    file["run"]["learner.horizon"] = 2  # as the data is labelled
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(file, sort_keys=False))
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({"learner": {"network": NETWORK}}))
    experiment = Experiment(tmp_path / "file.yaml", [f"data.folder={data}", "seeds=[0]"])
    assert _require(experiment, tmp_path) == []
    assert len(experiment.cells) == 4


def test_rotary_positions_and_trained_horizons_may_be_played(tmp_path: Path, data: Path) -> None:
    mixed = {**DIFFUSION, "learner.horizon": 2, "learner.horizons": [1]}
    rotary = {**mixed, "learner.network.positions": "rotary"}
    labels = {"shorter": {**mixed, "play.horizon": 1}, "rotary": {**rotary, "play.horizon": 2}}
    assert _require(Experiment(describe(tmp_path, data, axes={"x": labels})), tmp_path) == []


def test_a_label_can_have_a_budget_of_its_own(tmp_path: Path, data: Path) -> None:
    labels = {"64": {}, "96": {"budget.records": 96}, "also 64": {"budget.records": 64}}
    experiment = Experiment(describe(tmp_path, data, axes={"records": labels}))
    first, more, same = (experiment.planned(cell, 0) for cell in experiment.cells)
    assert (first.config["trainer"]["max_records"], first.budget) == (64, {"records": 64})
    assert (more.config["trainer"]["max_records"], more.budget) == (96, {"records": 96})
    assert first.key == same.key != more.key


def test_a_label_s_section_keeps_what_every_run_has_and_a_dotted_key_replaces(tmp_path: Path, data: Path) -> None:
    # A label's section once replaced the run's: networks of the default geometry were trained without a word.
    run = {
        "learner": {"kind": "diffusion", "network": NETWORK, "process": {"kind": "absorbing", "weighting": "linear"}}
    }
    labels = {
        "deep": {"learner": {"network": {"num_layers": 3}}},
        "visible": {"learner.process": {"kind": "multinomial"}},
    }
    deep, visible = Experiment(describe(tmp_path, data, run=run, axes={"x": labels})).cells
    experiment = Experiment(tmp_path / "small.yaml")
    learner = experiment.configuration(deep, 0)["learner"]
    assert learner == {**run["learner"], "network": {**NETWORK, "num_layers": 3}}
    assert experiment.configuration(visible, 0)["learner"]["process"] == {"kind": "multinomial"}


def test_sections_of_two_axes_are_merged(tmp_path: Path, data: Path) -> None:
    run = {"learner": {"kind": "one_step", "network": NETWORK}}
    wide, deep = {"learner": {"network": {"width": 32}}}, {"learner": {"network": {"num_layers": 3}}}
    experiment = Experiment(describe(tmp_path, data, run=run, axes={"x": {"wide": wide}, "y": {"deep": deep}}))
    network = experiment.configuration(experiment.cells[0], 0)["learner"]["network"]
    assert network == {**NETWORK, "width": 32, "num_layers": 3}


def test_axes_that_are_fixed_skipped_or_lines_do_not_crowd_a_plot(tmp_path: Path) -> None:
    axes = {"x": {"1": {}, "2": {}}, "z": {"a": {}, "b": {}}}
    plots = [{"x": "x", "by": "z"}, {"x": "x", "where": {"z": "a"}}, {"x": "records", "by": "z"}]
    assert len(Experiment(describe(tmp_path, "nowhere", axes=axes, plots=plots)).cells) == 4
    skipped = Experiment(describe(tmp_path, "nowhere", axes=axes, plots=[{"x": "x"}], skip=[{"z": "b"}]))
    assert [cell.name for cell in skipped.cells] == ["1 / a", "2 / a"]


@pytest.mark.parametrize(
    ("settings", "learner"),
    [
        ([{"learner.horizon": 1}, {"learner": {"horizon": 2}}, {"learner.horizon": 3}], {"horizon": 3}),
        ([{"learner": {"horizon": 1}}, {"learner.horizon": 2}, {"learner": {"horizon": 3}}], {"horizon": 3}),
        (
            [{"learner.process": {"kind": "a"}}, {"learner.process.x": 1}, {"learner.process": {"kind": "b"}}],
            {"process": {"kind": "b"}},
        ),
    ],
)
def test_the_last_of_three_axes_wins(settings: list[Any], learner: dict[str, Any], tmp_path: Path) -> None:
    axes = {name: {"x": each} for name, each in zip("abc", settings, strict=True)}
    experiment = Experiment(describe(tmp_path, "nowhere", axes=axes, run={}))
    assert experiment.configuration(experiment.cells[0], 0)["learner"] == learner


def test_an_empty_section_has_no_settings(tmp_path: Path, data: Path) -> None:
    path = describe(tmp_path, data, run={"learner.kind": "one_step", "trainer": None, "data": None})
    experiment = Experiment(path)
    configuration = experiment.configuration(experiment.cells[0], 0)
    assert configuration["trainer"] == {"max_records": 64, "seed": 0}
    assert configuration["data"] == {"folder": str(data)}


def test_a_policy_to_begin_with_may_have_a_number_for_a_name(tmp_path: Path, data: Path) -> None:
    experiment = Experiment(describe(tmp_path, data, **label(init_from=20260701)))
    assert experiment.planned(experiment.cells[0], 0).config["init_from"] == 20260701


def test_what_is_removed_may_hold_nothing(tmp_path: Path, data: Path) -> None:
    axes = {"x": {"a": {"without": ["data.validation"]}}}
    path = describe(tmp_path, data, axes=axes, run={"learner.kind": "one_step", "data.validation": None})
    experiment = Experiment(path)
    assert "validation" not in experiment.configuration(experiment.cells[0], 0)["data"]


@pytest.mark.parametrize("label", ["1:3", "no", "007", "1e-3", ".inf"])
def test_a_label_that_yaml_reads_as_something_else_is_refused(
    label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = describe(tmp_path, "nowhere", axes={"x": {"other": {}}})
    text = path.read_text()
    path.write_text(text.replace("other:", f"{label}:"))
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 2
    assert f"YAML reads the key {label} as" in (said := capsys.readouterr().err)
    assert f"quote it: '{label}'" in said
    path.write_text(text.replace("other:", f"'{label}':"))
    assert [cell.name for cell in Experiment(path).cells] == [label]


def test_published_values_of_a_label_that_is_a_number(tmp_path: Path) -> None:
    published = {"source": "a paper", "values": {4: {"best": 41.3}}}
    experiment = Experiment(describe(tmp_path, "nowhere", axes={"x": {4: {}}}, published=published))
    assert list(experiment.file.published.values) == ["4"]


def test_a_key_is_removed_behind_an_option_too(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["experiment", str(describe(tmp_path, data)), "--out", str(tmp_path / "out")]
    assert main([*command, "~budget", "budget.steps=4", "--plan"]) == 0
    assert "a, seed 0: to do" in capsys.readouterr().out


def test_a_folder_in_which_no_policy_can_lie_is_refused(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", str(describe(tmp_path, data)), "--out", str(tmp_path / "why?")]) == 2
    assert "'?' begins its options" in capsys.readouterr().err
    assert not (tmp_path / "why?").exists()


def test_a_run_that_begins_with_other_weights_is_another_run(tmp_path: Path, data: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    keys = set()
    for text in ("policy: x\nweights_sha256: 1\n", "policy: x\nweights_sha256: 2\n"):
        (base / "config.yaml").write_text(text)
        experiment = Experiment(describe(tmp_path, data, **label(init_from=str(base))))
        keys.add(experiment.planned(experiment.cells[0], 0).key)
    assert len(keys) == 2
    assert experiment.data_notes == [
        f"NOT CHECKED: whether measured positions are among those that {base} was trained on, with whose weights these "
        "begin: a."
    ]


def test_the_bound_is_a_column_and_no_other_measurement(tmp_path: Path) -> None:
    with_it, without = (
        Experiment(describe(tmp_path, "nowhere", metrics=["best"], evaluate={"positions": 20, "bound": bound}))
        for bound in (True, False)
    )
    assert (with_it.file.metrics, without.file.metrics) == (["best", "bound"], ["best"])
    assert play_name(with_it, with_it.cells[0]) == play_name(without, without.cells[0])


def test_a_policy_that_a_cell_plays_with_is_part_of_the_measurement(tmp_path: Path) -> None:
    value = tmp_path / "value"
    value.mkdir()
    spelling = f"mcts:{{policy}}?simulations=5&value={quote(str(value), safe='')}"
    axes = {"how": {"plain": {}, "searched": {"play.policy": spelling}}}
    experiment = Experiment(describe(tmp_path, "nowhere", axes=axes))
    names = []
    for text in ("policy: x\nweights_sha256: 1\n", "policy: x\nweights_sha256: 2\n"):
        (value / "config.yaml").write_text(text)
        names.append([play_name(experiment, cell) for cell in experiment.cells])
    (plain, searched), (same, other) = names
    assert plain == same
    assert searched != other


def test_measured_positions_are_found_without_a_line_and_with_other_counters(tmp_path: Path) -> None:
    start = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - "
    other = start.replace("KQkq", "-")
    records = [Record(state=f"{each}0 1", line="e2e4", split="test") for each in (start, other)]
    unlabelled = Record(state=f"{start.replace('RNB', 'R1B')}0 1", split="test")  # not measured
    measured = write_dataset(tmp_path / "measured", "chess", [*records, unlabelled]).folder
    trained = [Record(state=f"{start}8 12", scores=("cp:20",), split="train"), replace(unlabelled, split="train")]
    data = {"data.folder": str(write_dataset(tmp_path / "trained", "chess", trained).folder)}
    experiment = Experiment(describe(tmp_path, measured, run=data))
    (note,) = experiment.data_notes
    assert note.startswith("NOT HELD OUT: 1 of the 2 measured positions (split 'test'")
    assert Experiment(describe(tmp_path, measured, run=data)).data_notes == [note]  # from the cache


def test_only_positions_that_are_measured_are_counted(tmp_path: Path, data: Path) -> None:
    path = describe(tmp_path, data, run={"data.train": "test", "learner.kind": "one_step"})
    (note,) = Experiment(path).data_notes
    assert note.startswith("NOT HELD OUT: 20 of the 20 measured positions (split 'test'")
    other = write_dataset(tmp_path / "one", GAME, [replace(record, split="train") for record in _measured(data)[3:]])
    (note,) = Experiment(describe(tmp_path, data, run={"data.folder": str(other.folder)})).data_notes
    assert note.startswith("NOT HELD OUT: 17 of the 20 measured positions")


def test_a_turned_copy_is_not_held_out_where_training_turns_positions(tmp_path: Path, data: Path) -> None:
    """The test split of the data holds no copy of what is trained on; here it is trained on turned."""
    game = load_game(GAME)
    turned = [
        replace(record, state=game.format(game.symmetries[0].state(game.parse(record.state))), line=None, split="train")
        for record in _measured(data)
    ]
    own = {record.state for record in _measured(data)}
    other = write_dataset(tmp_path / "turned", GAME, [record for record in turned if record.state not in own])
    run = {"data.folder": str(other.folder)}
    assert Experiment(describe(tmp_path, data, run=run)).data_notes == []
    (note,) = Experiment(describe(tmp_path, data, run={**run, "learner.augment": True})).data_notes
    assert note.startswith(f"NOT HELD OUT: {other.num_records} of the 20 measured positions (split 'test'")
    assert "as they are or turned, on which these are trained" in note


def _measured(data: Path) -> list[Record]:
    """The records of the 20 positions that ``describe`` measures on."""
    game = load_game(GAME)
    states = [game.format(each.state) for each in labelled_positions(Dataset.open(data), game, "test", limit=20)]
    return [record for record in Dataset.open(data).records("test") if record.state in states]


@pytest.mark.thorough
def test_positions_that_are_measured_and_trained_on_are_counted(
    tmp_path: Path, data: Path, labelled: Callable[[str], Path]
) -> None:
    other = labelled("0.5/0.1/0.4")
    axes = {"data": {"own": {}, "other": {"data.folder": str(other)}, "both": {"data.folder": [str(data), str(other)]}}}
    experiment = Experiment(describe(tmp_path, data, axes=axes, evaluate={}))
    measured = {record.state for record in Dataset.open(data).records("test")}
    both = measured & {record.state for record in Dataset.open(other).records("train")}
    assert 0 < len(both) < len(measured)
    note, of_both = experiment.data_notes
    assert of_both.endswith(f"split 'train' of {data} + {other}, on which these are trained: both.")
    assert note.startswith(f"NOT HELD OUT: {len(both):,} of the {len(measured):,} measured positions (split 'test'")
    assert note.endswith("are trained: other.")
    assert _require(experiment, tmp_path) == [note, of_both]
    # The same last part of the hash is the test split of both.
    axes = {"x": {"a": {"data.folder": str(labelled("0.1/0.2/0.7"))}}}
    quiet = Experiment(describe(tmp_path, data, axes=axes, evaluate={}))
    assert quiet.data_notes == []


def test_no_layout_is_longer_than_attention_can_be() -> None:
    game: Any = load_game(GAME)
    # One action, then a state and an action a ply.
    most = 1 + (20_000 - 1) // (game.tokens.length + 1)
    with pytest.raises(ConfigError, match=f"more than 20,000 tokens; take at most {most}"):
        Layout(game, "s-asa", most + 1)
    assert Layout(game, "s-aa", 100).length == game.tokens.length + 100


def test_a_command_that_is_not_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = describe(tmp_path, {"folder": str(tmp_path / "none"), "make": [{"a": "b"}]})
    assert main(["experiment", str(path), "--plan"]) == 2
    assert "data.make" in capsys.readouterr().err


def test_data_to_train_on_that_is_not_made_yet_is_made_by_the_experiment(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = describe(tmp_path, data, axes={"x": {"a": {"data.folder": f"{tmp_path}/later"}}})
    for option in ("--plan", "--table-only"):
        assert main(["experiment", str(path), "--out", str(tmp_path / "out"), option]) == 2
        assert f"{tmp_path}/later: no data set; genpolicy experiment FILE makes it" in capsys.readouterr().err


def test_an_experiment_on_a_shipped_sample_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "experiments/small/bias", "--out", str(tmp_path), "--plan"]) == 0
    assert "smolgen, seed 2: to do" in capsys.readouterr().out
