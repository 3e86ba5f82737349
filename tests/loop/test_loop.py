"""A loop of self-play: what its stages are told, that it resumes, and what it refuses."""

from __future__ import annotations

import copy
import json
import random
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from genpolicy import cli
from genpolicy.config import Settings
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError
from genpolicy.folder_lock import FolderLock
from genpolicy_loop.config import LoopConfig, named_by_arguments
from genpolicy_loop.runner import Loop
from tests.faults.nursery import Nursery
from tests.faults.works import LOOP, LOOP_WORK, Bench

PRIOR: dict[str, Any] = LOOP["learners"]["prior"]  # type: ignore[index]


def described(folder: Path, **changed: Any) -> Path:
    settings = {**copy.deepcopy(LOOP), **changed}
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in settings.items() if value is not None}))
    return path


def loop_of(folder: Path, **changed: Any) -> Loop:
    settings = {**copy.deepcopy(LOOP), "out": str(folder / "loop"), **changed}
    return Loop(LoopConfig(**settings))


def finish(loop: Loop, generation: int, name: str, **facts: Any) -> None:
    """Mark a stage as done."""
    loop.folder(generation).mkdir(parents=True, exist_ok=True)
    (loop.folder(generation) / f"{name}.done").write_text(json.dumps(facts))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    if not sys.platform.startswith("linux"):
        pytest.skip("forks")
    with Nursery() as nursery:
        yield Bench(tmp_path_factory.mktemp("faults"), nursery)


@pytest.mark.thorough
def test_a_killed_loop_ends_with_the_same_bits(bench: Bench) -> None:
    number, _ = bench.undisturbed(LOOP_WORK)
    at = random.Random(2).randint(1, number)
    assert bench.disturb(LOOP_WORK, "kill", at) is None, f"killed at operation {at}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("fault", "times"), [("kill", 50), ("full", 10), ("torn", 5), ("broken", 5), ("cut-names", 5)])
def test_a_disturbed_loop_ends_with_the_same_bits(bench: Bench, fault: str, times: int) -> None:
    """Killed, torn, cut off from disk or power at operations spread over the loop, and simply run again."""
    number, _ = bench.undisturbed(LOOP_WORK)
    points = {1 + round((number - 1) * (each + 0.5) / times) for each in range(times)}
    wrong = {at: text for at in sorted(points) if (text := bench.disturb(LOOP_WORK, fault, at))}
    assert wrong == {}


def test_a_loop_runs_and_more_generations_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = described(tmp_path, generations=1), tmp_path / "loop"
    assert cli.main(["loop", str(file), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == str(out / "generation-001/prior/policy")
    assert "generation 1/1, games: records" in said.err
    log = (out / "generation-001/log.txt").read_text()
    assert log.count("$ genpolicy ") == 2
    first = (out / "generation-001/prior/policy/model.safetensors").read_bytes()
    assert cli.main(["loop", str(file), "--out", str(out)]) == 0
    assert (out / "generation-001/log.txt").read_text() == log, "what is done is not done again"
    assert cli.main(["loop", str(file), "generations=2", "--out", str(out)]) == 0
    again = out / "generation-002/again-001"
    old, new = (list(Dataset.open(folder).records()) for folder in (out / "generation-001/games", again))
    assert [record.state for record in old] == [record.state for record in new]
    share = sum(a.policy != b.policy for a, b in zip(old, new, strict=True)) / len(old)
    assert 0.2 < share < 0.8
    trained = json.loads((out / "generation-002/prior/policy/provenance.json").read_text())["dataset"]["parts"]
    assert {Path(part["folder"]).name for part in trained} == {"games", "again-001"}
    assert (out / "generation-001/prior/policy/model.safetensors").read_bytes() == first
    capsys.readouterr()
    assert cli.main(["loop", str(file), "generations=3", "--out", str(out), "--status"]) == 0
    assert "to do" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_signal_between_two_stages_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loop was gone without a word."""
    monkeypatch.setattr(Loop, "stages", lambda loop, generation: signal.raise_signal(signal.SIGTERM))
    assert cli.main(["loop", str(described(tmp_path)), "--out", str(tmp_path / "loop")]) == 128 + signal.SIGTERM
    said = capsys.readouterr().err
    assert "the loop stops here; what is finished is kept, and the same command resumes" in said


def test_the_window_and_the_newest_labels(tmp_path: Path) -> None:
    loop = loop_of(tmp_path, window=3)
    stages = {stage.name: stage.command for stage in loop.stages(5)}
    assert list(stages) == ["games", "again-003", "again-004", "prior"]
    root = tmp_path / "loop"
    assert stages["again-003"][2] == str(root / "generation-004/again-003"), "labelled anew in generation 4 already"
    assert stages["again-004"][2] == str(root / "generation-004/games")
    folders = json.loads(next(w for w in stages["prior"] if w.startswith("data.folder=")).partition("=")[2])
    assert folders == [str(root / f"generation-005/{name}") for name in ("games", "again-003", "again-004")]
    assert f"init_from={root / 'generation-004/prior/policy'}" in stages["prior"]
    plain = {stage.name: stage.command for stage in loop_of(tmp_path, window=3, reanalyse=0.0).stages(5)}
    assert list(plain) == ["games", "prior"]
    folders = json.loads(next(w for w in plain["prior"] if w.startswith("data.folder=")).partition("=")[2])
    assert folders == [str(root / f"generation-00{number}/games") for number in (5, 3, 4)]


def test_a_loop_may_lie_in_a_folder_with_a_name_beyond_16_bits(tmp_path: Path) -> None:
    train = next(stage.command for stage in loop_of(tmp_path / "𠮷").stages(1) if stage.name == "prior")
    settings = Settings([], [word for word in train if word.startswith("data.folder=")])
    assert settings.data["data"]["folder"] == [str(tmp_path / "𠮷/loop/generation-001/games")]


def test_a_rejected_policy_neither_plays_nor_is_continued(tmp_path: Path) -> None:
    loop = loop_of(tmp_path, gate={"rounds": 2})
    for generation, accepted in ((1, None), (2, True), (3, False)):
        if accepted is not None:
            finish(loop, generation, "gate", accepted=accepted)
    assert [loop.accepted(generation) for generation in range(5)] == [0, 1, 2, 2, 4]
    train = next(stage.command for stage in loop.stages(4) if stage.name == "prior")
    assert f"init_from={tmp_path / 'loop/generation-002/prior/policy'}" in train
    assert loop.player(4) == str(tmp_path / "loop/generation-002/prior/policy")


@pytest.mark.parametrize(
    ("verdict", "counts", "accepted", "score"),
    [
        ("H1", [0, 0, 1, 2, 9], True, 11 / 12),
        ("H0", [9, 2, 1, 0, 0], False, 1 / 12),
        ("H0", [0, 0, 4, 1, 0], False, 0.55),  # stronger, though by less than elo0 asks for
        (None, [1, 0, 2, 0, 1], True, 0.5),
        (None, [1, 1, 2, 0, 1], False, 0.45),
        (None, [1, 2, 3], True, 2 / 3),  # counted by games
    ],
)
def test_a_verdict_of_the_gate(
    verdict: str | None, counts: list[int], accepted: bool, score: float, tmp_path: Path
) -> None:
    loop = loop_of(tmp_path)
    loop.folder(2).mkdir(parents=True)
    (loop.folder(2) / "gate.json").write_text(json.dumps({"sprt": {"verdict": verdict, "counts": counts}}))
    assert loop._verdict(2) == {"accepted": accepted, "score": pytest.approx(score, abs=1e-4), "verdict": verdict}


def test_a_gate_plays_and_decides(tmp_path: Path) -> None:
    file = described(tmp_path, generations=2, gate={"rounds": 2, "random_plies": 1})
    assert cli.main(["loop", str(file), "--out", str(tmp_path / "loop")]) == 0
    verdict = json.loads((tmp_path / "loop/generation-002/gate.done").read_text())
    assert not (tmp_path / "loop/generation-001/gate.done").exists(), "there is nobody to play against"
    assert verdict["accepted"] == (
        verdict["verdict"] == "H1" or (verdict["verdict"] is None and verdict["score"] >= 0.5)
    )


def test_the_second_phase_mixes_by_generation(tmp_path: Path) -> None:
    loop = loop_of(
        tmp_path, search="mcts:{prior}?simulations=4", imagine="{prior}?temperature=1", alpha=[0, 0, 0.25, 1]
    )
    folder = tmp_path / "loop/generation-00"
    assert loop.player(1) == LOOP["start"]
    assert loop.player(2) == f"mcts:{folder}1/prior/policy?simulations=4"
    mixed = f"mcts:{folder}2/prior/policy%3Fsimulations%3D4,{folder}2/prior/policy%3Ftemperature%3D1"
    assert loop.player(3) == f"mix:{mixed}?alpha=0.25"
    assert loop.player(4) == f"{folder}3/prior/policy?temperature=1"
    assert loop.player(9) == f"{folder}8/prior/policy?temperature=1", "the last share stays"
    oracle = next(loop.stages(3)).command[5]
    assert shlex.split(oracle) == [oracle]


@pytest.mark.parametrize("by_argument", [False, True])
def test_settings_over_a_named_configuration_change_it(by_argument: bool, tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(yaml.safe_dump(PRIOR))
    over, arguments = {"base": str(base), "trainer": {"max_steps": 9}}, ["learners.prior.trainer.max_steps=9"]
    file = described(tmp_path, out=str(tmp_path), learners={"prior": str(base) if by_argument else over})
    loop = Loop(named_by_arguments(file, arguments * by_argument).fill(LoopConfig))
    assert loop.learners["prior"] == {**PRIOR, "trainer": {**PRIOR["trainer"], "max_steps": 9}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{0}=other", "{0}.trainer.max_steps=9"], {"base": "other", "trainer": {"max_steps": 9}}),
        (["{0}.trainer.max_steps=9", "{0}=other"], "other"),
        (["{0}={{trainer: {{max_steps: 9}}}}"], {"base": "file", "trainer": {"max_steps": 9}}),
        (["~{0}", "{0}.trainer.max_steps=9"], {"trainer": {"max_steps": 9}}),
        (["~learners", "{0}.trainer.max_steps=9"], {"trainer": {"max_steps": 9}}),
    ],
)
def test_arguments_change_what_a_learner_was_named_last(
    arguments: list[str], expected: str | dict[str, Any], tmp_path: Path
) -> None:
    file = described(tmp_path, out=str(tmp_path), learners={"prior": "file"})
    settings = named_by_arguments(file, [each.format("learners.prior") for each in arguments])
    assert settings.data["learners"] == {"prior": expected}
    settings = named_by_arguments(file, ["learners.new=other", "learners.new.trainer.max_steps=9"])
    assert settings.data["learners"]["new"] == {"base": "other", "trainer": {"max_steps": 9}}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"game": None}, "game is missing"),
        ({"learners": None}, "learners is missing"),
        ({"search": "mcts:{policy}"}, r"\{policy\} is not a learner; there are: prior"),
        ({"search": "mcts:rollout"}, "names no learner"),
        ({"search": "mcts:{prior"}, "write {NAME}"),
        ({"reanalyse": 1.5}, "reanalyse lies in"),
        ({"games": 0}, "games must be at least 1"),
        ({"alpha": [0.5]}, "needs both imagine and alpha"),
        ({"alpha": [2.0], "imagine": "{prior}"}, "every share lies in"),
        ({"learners": {"games": {"learner": {}}}, "search": "{games}"}, "none of games"),
        ({"learners": {"again-001": {"learner": {}}}, "search": "{again-001}"}, "none of games, again"),
        ({"learners": {"prior": "no-such.yaml"}}, "no-such.yaml"),
        ({"learners": {"prior": {"base": 3}}}, r"learners\.prior\.base is a path or a list of paths, got 3"),
        ({"gate": {"elo0": 5.0, "elo1": 5.0}}, "gate: elo0 must be below"),
        ({"gams": 5}, "Did you mean: 'games'"),
        ({"game": "chss"}, "chess"),
        ({"start": "chess"}, "plays"),
        ({"start": "mcts:rollout?simulations=0"}, "simulations"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"gate": {"elo1": 1e9}}, "gate: elo0 and elo1 must lie within"),
        ({"max_plies": 1}, "has a winner, so there is nothing to learn"),
    ],
)
def test_bad_input_is_named(
    changed: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = described(tmp_path, **changed)
    assert cli.main(["loop", str(file), "--out", str(tmp_path / "loop")]) == 2
    said = capsys.readouterr().err
    assert re.search(says.replace("{NAME}", r"\{NAME\}"), said), said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("temperature: 0:6", "temperature: takes T:PLIES with T above 0"),
        ("random_plies: 2:1", "random_plies: takes LOW:HIGH"),
        ("error_rate: 2", "error_rate: takes LOW:HIGH"),
        ("split: 0.5/0.4", "split: split must be train/validation/test"),
        ("split: 0/1/0", "split: no game would be trained on"),
    ],
)
def test_settings_of_selfplay_are_read_before_anything_begins(
    written: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = written.partition(":")[0]
    file = described(tmp_path, **{key: None})
    file.write_text(f"{file.read_text()}{written}\n")
    assert cli.main(["loop", str(file), "--out", str(tmp_path / "loop")]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not (tmp_path / "loop").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"search": "mcts:{prior}?simulation=2&value=even"}, r"search: .*simulation.*simulations"),
        ({"start": "mcts:rolout"}, r"start: .*rolout"),
        ({"gate": {"random_plies": 9}}, r"gate: 200 draws of 9 random plies gave no opening"),
        ({"start": "{prior}"}, r"start: '\{prior\}': plays the first generation, before a learner has weights"),
        ({"start": "mcts:{other}"}, r"start: 'mcts:\{other\}': plays the first generation"),
        ({"imagine": "{prior}?tempreature=1", "alpha": [0.0, 1.0]}, r"imagine: .*tempreature"),
        ({"learners": {"prior": PRIOR | {"game": "chess"}}}, r"learners.prior: game: .*'connect.*'chess'"),
        ({"learners": {"prior": PRIOR | {"init_from": "nowhere"}}}, r"learners.prior: init_from: no policy 'nowhere'"),
        ({"learners": {"prior": PRIOR | {"trainer": {"batch_size": 8}}}}, r"learners.prior: the run has no end"),
    ],
)
def test_a_typo_in_a_spelling_is_named_before_the_first_game(
    changed: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The search plays from the second generation on, hours later."""
    out = tmp_path / "loop"
    assert cli.main(["loop", str(described(tmp_path, **changed)), "--out", str(out)]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not out.exists()


def test_a_folder_of_another_loop_or_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = loop_of(tmp_path)
    loop.out.mkdir()
    loop._begin()
    with pytest.raises(ConfigError, match="was begun with games=6, not 7"):
        loop_of(tmp_path, games=7)._begin()
    (learner,) = loop.out.glob("*.yaml")
    written = learner.read_text()
    learner.write_text(written.replace("lr: 0.01", "lr: 0.1"))
    assert learner.read_text() != written
    with pytest.raises(ConfigError, match=rf"{learner.name}: is not what the loop was begun with; delete it"):
        loop_of(tmp_path)._begin()
    learner.unlink()
    loop_of(tmp_path)._begin()
    assert learner.read_text() == written
    loop_of(tmp_path)._begin()
    begun = (loop.out / "loop.json").read_text()
    for damaged in ("{", "3", "[1]", "[" * 100_000):
        (loop.out / "loop.json").write_text(damaged)
        with pytest.raises(ConfigError, match=r"loop\.json: damaged .*; name another folder in out"):
            loop_of(tmp_path)._begin()
    (loop.out / "loop.json").write_text(begun)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(ConfigError, match=r"holds cat\.jpg and no loop\.json"):
        loop_of(tmp_path, out=str(tmp_path / "photos"))._begin()
    with pytest.raises(ValueError, match=r"out must be a path without '\?'"):
        loop_of(tmp_path, out="runs/what?")
    finish(loop, 1, "games")
    for damaged in ("{", "[]", "[" * 100_000):
        (loop.folder(1) / "games.done").write_text(damaged)
        with pytest.raises(ConfigError, match=r"games\.done: damaged"):
            loop.done(1, "games")
    with FolderLock(loop.out, "runs a loop", "name another folder in out"):
        assert cli.main(["loop", str(described(tmp_path)), "--out", str(loop.out)]) == 2
    assert "another process runs a loop there" in capsys.readouterr().err
