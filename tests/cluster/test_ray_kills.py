"""Fifty-two kills on Ray, of workers and of the command in turns, while it labels and while it plays a tournament.

Nothing that was kept is lost, nothing is there twice, and in the end the set is that of one machine without a kill.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genpolicy import cli, registry
from genpolicy.data.records import Dataset, DatasetInfo
from genpolicy_labelling.writer import DatasetWriter
from tests.data.journal_files import entries_of

ray = pytest.importorskip("ray", reason="needs the extra [ray]")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

COMMAND = [sys.executable, "-c", "import sys; from genpolicy.cli import main; sys.exit(main())"]
KILLS = 26
"""Of each work."""
POSITIONS = 1000
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a cluster of Ray with two processors, which commands join and leave."""
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


class Killer:
    """Runs a command again and again, and kills in each run one of its workers and then itself, both at work.

    Args:
        words: The command.
        folder: Where its log is kept.
        num_kept: How much it has finished, read beside it.
    """

    def __init__(self, words: list[str], folder: Path, num_kept: Callable[[], int]) -> None:
        self.words, self.num_kept = words, num_kept
        self._log = folder / "log.txt"
        self.kept: list[int] = []
        """After each kill of the command."""
        self.hits: Counter[str] = Counter()
        self.workers: set[int] = set()

    def run(self) -> None:
        """Kill twice."""
        with self._log.open("wb") as log:
            command = subprocess.Popen([*COMMAND, *self.words], stdout=log, stderr=log)
        try:
            self._wait(command, lambda: self.num_kept() > self._last + 5)
            victim = self._joined()[0]
            os.kill(victim, signal.SIGKILL)
            self._wait(command, lambda: f":{victim} is lost (" in self._said())
            (answers,) = re.findall(rf":{victim} is lost \(.+\) after (\d+) answers", self._said())
            self.hits["worker after its first answer" if int(answers) else "worker before its first answer"] += 1
            number = self.num_kept()
            self._wait(command, lambda: self.num_kept() > number)
        finally:
            command.kill()
        assert command.wait() == -signal.SIGKILL, self._said()
        self.hits["command"] += 1
        self.workers.update(self._joined())
        assert self.num_kept() >= self._last
        self.kept.append(self.num_kept())
        print(f"{dict(self.hits)}, kept {self.kept[-1]}", flush=True)

    @property
    def _last(self) -> int:
        return self.kept[-1] if self.kept else 0

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    def _joined(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"worker \S+:(\d+) joins", self._said())]

    def _wait(self, command: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert command.poll() is None, f"it has ended: {self._said()}"
            assert time.monotonic() < deadline, self._said()
            time.sleep(0.02)

    def end(self) -> str:
        """Let the command finish; what it says. No worker of the killed ones is left."""
        done = subprocess.run([*COMMAND, *self.words], capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + PATIENCE_S
        while left := [pid for pid in self.workers if _is_worker(pid)]:
            assert time.monotonic() < deadline, f"workers {left} of killed commands are there still"
            time.sleep(0.1)
        return done.stderr


def _is_worker(pid: int) -> bool:
    try:
        return "ray::" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def report(killer: Killer, what: str, number: int) -> None:
    hits = ", ".join(f"{count} x {name}" for name, count in killer.hits.items())
    print(f"\n{what}: {number}; kills that hit: {hits}; kept after each kill of the command: {killer.kept}")


def num_answered(folder: Path) -> int:
    """Positions that are finished; the answers of a finished unit stay in the journal until it is in a shard."""
    entries = entries_of(folder)
    units = {key: len(unit["rows"]) for table, key, unit in entries if table == "units"}
    return sum(units.values()) + sum(table == "answers" and key.split()[0] not in units for table, key, _ in entries)


def test_labels_after_kills_are_those_of_one_machine(address: str, tmp_path: Path) -> None:
    pytest.importorskip("chess", reason="needs the extra [chess]")
    info = DatasetInfo(game=registry.load_game("chess").spec, made_by="test", command="test")
    with DatasetWriter(tmp_path / "positions", info) as writer:
        writer.add(0, list(itertools.islice(Dataset.open("sample:chess").records(), POSITIONS)))
        writer.finish()
    there = tmp_path / "there"
    words = ["data", "label", "--data", str(tmp_path / "positions"), "--horizon", "2"]
    words += ["--oracle", "alphabeta?nodes=100"]
    killer = Killer(
        [*words, "--out", str(there), "--cluster", address, "--parallel", "2"], tmp_path, lambda: num_answered(there)
    )
    while killer.hits.total() < KILLS:
        killer.run()
    said = killer.end()
    report(killer, "positions", POSITIONS)
    (answers,) = re.findall(r"workers? answered: (.*)", said)
    asked = sum(int(each.split()[-1]) for each in answers.partition(";")[0].split(","))
    assert asked == POSITIONS - killer.kept[-1]  # what was kept is not asked for again
    assert cli.main([*words, "--out", str(tmp_path / "here")]) == 0
    made = Dataset.open(there)
    assert made.num_records == POSITIONS
    assert made.checksum == Dataset.open(tmp_path / "here").checksum


def test_games_after_kills_are_those_of_one_machine(address: str, tmp_path: Path) -> None:
    there = tmp_path / "there"
    words = ["tournament", "--game", "connect", "--policy", "alphabeta?depth=4", "alphabeta?depth=3", "--rounds", "150"]
    words += ["--random-plies", "4", "--games-at-once", "2"]
    killer = Killer(
        [*words, "--out", str(there), "--cluster", address, "--parallel", "2"], tmp_path, lambda: len(games(there))
    )
    while killer.hits.total() < KILLS:
        killer.run()
    killer.end()
    report(killer, "games", len(games(there)))
    assert cli.main([*words, "--out", str(tmp_path / "here"), "--parallel", "1"]) == 0
    assert len(games(there)) == 300
    assert sorted(games(there)) == sorted(games(tmp_path / "here"))


def games(folder: Path) -> list[tuple[int, str, str, float]]:
    """The finished games, in whole lines."""
    file = folder / "games.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(row["number"], row["start"], " ".join(row["moves"]), row["result"]) for row in rows]
