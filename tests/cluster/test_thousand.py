"""The benchmark of a thousand workers in a small form: nothing lost, nothing double, little in work at a time."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from genpolicy import registry
from genpolicy.data.records import Dataset, DatasetInfo, Record
from genpolicy_labelling.cluster_oracle import AHEAD
from genpolicy_labelling.label import BLOCK_RECORDS
from genpolicy_labelling.writer import DatasetWriter
from tests.cluster.forks import answer

FILE = Path(__file__).parents[2] / "benchmarks" / "thousand_workers.py"
WORKERS, RECORDS, DEATHS = 50, 2000, 5


@pytest.fixture(scope="module")
def thousand() -> ModuleType:
    spec = importlib.util.spec_from_file_location("thousand_workers", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_fifty_workers_lose_nothing_and_double_nothing(thousand: ModuleType, tmp_path: Path) -> None:
    game = registry.load_game("connect:rows=3,cols=3,k=3")
    state, moves = game.parse(), game.moves
    states = [game.play(game.play(state, a), b) for a in game.legal(state) for b in game.legal(game.play(state, a))]
    lines = {game.format(each): answer(game, each, 1) for each in states}
    texts = [game.format(states[number % len(states)]) for number in range(RECORDS)]
    records = [
        Record(state=text, line=" ".join(moves[move] for move in lines[text].moves), scores=lines[text].scores)
        for text in texts
    ]
    with DatasetWriter(tmp_path / "from", DatasetInfo(game=game.spec, made_by="test", command="test")) as writer:
        writer.add(0, records)
        writer.finish()
    source = Dataset.open(tmp_path / "from")
    assert thousand.recorded(source, game) == lines
    cluster = thousand.Simulated(WORKERS, lines, [0.001], [0.0] * DEATHS)
    run = thousand.simulate(source, game, cluster, tmp_path / "to", 4, 500)
    assert run.same
    assert run.num_answers == RECORDS
    assert run.num_lost == DEATHS
    # A worker that dies takes along what it was about to send, and no answer is counted before it is sent.
    assert run.sent >= RECORDS
    assert run.most_in_work <= WORKERS * AHEAD * BLOCK_RECORDS
