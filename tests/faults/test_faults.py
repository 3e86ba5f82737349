"""Commands that are killed, cut off from power or from disk at any operation, and then simply run again."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from genpolicy.data.records import Dataset
from tests.faults.nursery import Nursery
from tests.faults.works import LOOP_WORK, WORKS, Bench

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and reads /proc/self/fd"),
    pytest.mark.xdist_group("faults"),  # on one worker, so that the nursery imports torch once
]
QUICK = (pytest.param("import", marks=pytest.mark.thorough), "selfplay", "label", "train", "tournament")
SAMPLE = 1
"""Points of each, three with the thorough tests; the full sweep is marked slow."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Nursery() as nursery:
        yield Bench(tmp_path_factory.mktemp("faults"), nursery)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("number", [SAMPLE, pytest.param(3, marks=pytest.mark.thorough)])
def test_the_result_is_that_of_an_undisturbed_run(bench: Bench, number: int, name: str) -> None:
    work = WORKS[name]
    for fault, at in itertools.islice(bench.points(work, seed=1), number):
        assert bench.disturb(work, fault, at) is None, f"{fault} at operation {at}"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("name", "fault"), [(work.name, fault) for work in WORKS.values() for fault in work.faults])
def test_the_result_is_that_of_an_undisturbed_run_at_every_point(bench: Bench, name: str, fault: str) -> None:
    work = WORKS[name]
    number, _ = bench.undisturbed(work)
    wrong = {at: text for at in range(1, number + 1) if (text := bench.disturb(work, fault, at))}
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_loop_that_is_disturbed_ends_as_one_that_was_not(bench: Bench) -> None:
    for fault, at in itertools.islice(bench.points(LOOP_WORK, seed=1), 12):
        assert bench.disturb(LOOP_WORK, fault, at) is None, f"{fault} at operation {at}"


def test_a_power_cut_loses_what_was_not_synced(bench: Bench, tmp_path: Path) -> None:
    work = WORKS["import"]
    number, _ = bench.undisturbed(work)
    root = bench.folder / "work"
    lost = []
    for at in (1, number // 2, number - 1, number):
        bench.clear()
        bench.nursery.run(work.arguments, root, "cut", at)
        lost.append(not (root / "out" / "dataset.yaml").exists())
    assert lost[0]
    assert not lost[-1]
    assert lost == sorted(lost, reverse=True), "what was synced once stays"
    assert Dataset.open(root / "out").num_records > 0
