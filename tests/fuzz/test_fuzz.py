"""Mutated texts of every format: only the declared errors come out, each within ten seconds.

``GENPOLICY_FUZZ_TRIALS`` (40 by default) is the number of mutants of each format, ``GENPOLICY_FUZZ_SEED`` their seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.mutation import CORPUS, fuzz
from tests.fuzz.targets import TEXTS, targets

pytest.importorskip("chess", reason="needs the extra [chess]")
pytest.importorskip("cshogi", reason="needs the extra [shogi]")
pytest.importorskip("starlette", reason="needs the extra [web]")

TRIALS = int(os.environ.get("GENPOLICY_FUZZ_TRIALS", "40"))
SEED = int(os.environ.get("GENPOLICY_FUZZ_SEED", "0"))
SLOW = {"run-yaml": 4, "override": 4, "policy-config.yaml": 4, "experiment": 4, "dataset-yaml": 2, "uci": 4, "usi": 4}
"""What a trial costs, in trials of the others."""
GROUPS = ("files", "positions", "yaml", "checkpoints", "spellings", "engine", "web", "tournament")


def run(group: str, scratch: Path, seed: int, trials: int) -> None:
    """Fail with the first text of a group that goes wrong."""
    for target in targets(scratch)[group]():
        _, wrong = fuzz(target, seed, trials // SLOW.get(target.name, 1))
        assert not wrong, f"{target.name}: {wrong[0][1]}\n{wrong[0][0][:2000]!r}"


@pytest.mark.parametrize("group", GROUPS)
def test_mutants_are_read_or_refused(group: str, tmp_path: Path) -> None:
    run(group, tmp_path, SEED, TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_thousands_of_mutants(group: str, tmp_path: Path) -> None:
    run(group, tmp_path, SEED + 1, 3_000)


def test_the_corpus_and_the_examples_belong_to_targets(tmp_path: Path) -> None:
    names = {target.name for make in targets(tmp_path).values() for target in make()}
    assert {path.name for path in CORPUS.iterdir()} <= names
    assert set(TEXTS) <= names
    assert set(SLOW) <= names
