"""Engines that misbehave and clients that send half a request, a few of them; ``make torture`` has the others."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [web]")

from tests.faults.processes import KINDS, HalfRequests, HostileEngines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.name)
@pytest.mark.parametrize(
    ("first", "number"), [(0, 2), pytest.param(100, 40, marks=pytest.mark.thorough)], ids=["few", "many"]
)
def test_what_other_processes_do_costs_no_answer(
    make: type[HostileEngines] | type[HalfRequests], first: int, number: int
) -> None:
    kind = make()
    try:
        assert [wrong for seed in range(first, first + number) if (wrong := kind.trial(seed))] == []
    finally:
        kind.close()
