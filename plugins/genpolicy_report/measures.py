"""Measures the parts of a report page and keeps them, so that a page can be resumed or made again.

A part is one measure of one policy. Its key holds everything that determines its figures (the policy's fingerprint, the
data's checksum, the options); a part with an equal key is not measured again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import genpolicy
from genpolicy.errors import EngineError
from genpolicy.files import read_json
from genpolicy.machine import commit
from genpolicy.policies.base import Policy
from genpolicy_arena.match import GameResult
from genpolicy_arena.results import CHECKSUMS, LINES, MANIFEST, read_lines, read_manifest, whole_lines
from genpolicy_common.labelled import LabelledPosition
from genpolicy_common.shipping import folders_of, replaced
from genpolicy_common.store import Store
from genpolicy_common.tables import plain_figures
from genpolicy_evaluation.accuracy import measure_accuracy
from genpolicy_evaluation.latency import measure_latency
from genpolicy_evaluation.players import seed_of
from genpolicy_evaluation.provenance import now
from genpolicy_evaluation.puzzle_tables import BAND, PuzzleResult
from genpolicy_evaluation.puzzles import PuzzleFile, attempt_puzzles

PARTS_FILE, PURPOSE = "parts.sqlite", "parts of a report"


@dataclass(frozen=True)
class Part:
    """Figures and their provenance."""

    figures: Mapping[str, Any]
    """Plain data as in JSON; unknown figures are None."""
    made: Mapping[str, Any]
    """``time``, ``version``, ``commit``, ``seconds``."""


class PartStore:
    """Keeps parts in a folder, in a store (``genpolicy_common.store``).

    genpolicy 0.1 kept a JSON file for each part; such files are still read.

    Args:
        folder: Created when the first part is asked for.
        again: Measure everything anew.
    """

    def __init__(self, folder: Path, *, again: bool = False) -> None:
        self.folder, self._again = folder, again
        self.num_kept = 0
        """Parts that had been measured before."""

    def get(self, measure: str, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]) -> Part:
        """The part of a key: the kept one, or else one of the figures that ``make`` returns, which is then kept.

        Raises:
            StoreError: the store is damaged or of another form.
            ValueError: a part's file of the old form is damaged.
        """
        full = {"measure": measure, "version": genpolicy.__version__, **key}
        digest = hashlib.sha256(json.dumps(full, sort_keys=True).encode()).hexdigest()[:20]
        self.folder.mkdir(parents=True, exist_ok=True)
        with Store(self.folder / PARTS_FILE, PURPOSE) as store:
            kept = None if self._again else store.get(measure, digest) or self._old(f"{measure}-{digest}.json")
        if kept is not None:
            self.num_kept += 1
            return Part(kept["figures"], kept["made"])
        began = time.perf_counter()
        figures = plain_figures(make())
        seconds = round(time.perf_counter() - began, 1)
        made = {"time": now(), "version": genpolicy.__version__, "commit": commit(), "seconds": seconds}
        with Store(self.folder / PARTS_FILE, PURPOSE) as store:
            store.put(measure, digest, {"key": full, "figures": figures, "made": made})
        return Part(figures, made)

    def _old(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        if not path.is_file():
            return None
        try:
            kept = read_json(path)
            return {"figures": kept["figures"], "made": kept["made"]}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: damaged ({error}); delete it to measure it again") from error


@dataclass
class Row:
    """A policy of the page with its measurements."""

    name: str
    spec: str
    fingerprint: str
    parts: dict[str, Part] = field(default_factory=dict)
    """Those of ``accuracy``, ``latency`` and ``puzzles`` that were measured."""
    elo: Mapping[str, Any] | None = None
    """``elo``, ``low``, ``high`` and ``games`` of the tournament, if the policy played in it."""
    failures: list[str] = field(default_factory=list)
    """Texts on parts that could not be measured, and why."""


@dataclass(frozen=True)
class MeasureOptions:
    """How every policy is measured: the data and puzzles, and plain facts about them for the keys of parts."""

    device: str
    seed: int
    threads: int
    calls: int
    """Number of decisions that are timed one by one."""
    positions: Callable[[], Sequence[LabelledPosition]]
    """Called when a part needs them."""
    puzzles: Callable[[], PuzzleFile]
    """Called when a part needs them."""
    data_key: Mapping[str, Any] | None = None
    """None measures neither accuracy nor times."""
    puzzle_key: Mapping[str, Any] | None = None
    """None measures no puzzles."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Facts on the machine that times depend on."""


def measure_row(row: Row, store: PartStore, options: MeasureOptions, open_policy: Callable[[], Policy]) -> None:
    """Measure the missing parts of a policy.

    An engine that fails is noted as a failure, and the other parts are measured.

    Args:
        row: The policy; its parts and failures are filled in.
        store: Keeps the parts.
        options: How the policy is measured.
        open_policy: Loads the policy; called at most once, and only if a part is missing.
    """
    measures = _Measures(row, options, open_policy)
    own = {"policy": row.fingerprint, "seed": options.seed, "device": options.device}
    timing = {**options.machine, "calls": options.calls, "threads": options.threads}
    parts: dict[str, tuple[Mapping[str, Any] | None, Callable[[], Mapping[str, Any]]]] = {
        "accuracy": (options.data_key, measures.accuracy),
        "latency": (None if options.data_key is None else {**options.data_key, **timing}, measures.latency),
        "puzzles": (options.puzzle_key, measures.puzzles),
    }
    try:
        for name, (key, make) in parts.items():
            if key is not None:
                try:
                    row.parts[name] = store.get(name, {**own, **key}, make)
                except EngineError as error:
                    row.failures.append(f"{name}: {error}")
    finally:
        measures.close()


class _Measures:
    """Measures a policy, which is loaded for the first measure."""

    def __init__(self, row: Row, options: MeasureOptions, open_policy: Callable[[], Policy]) -> None:
        self._row, self._options, self._open = row, options, open_policy
        self._seed = seed_of(row.spec, options.seed)
        self._policy: Policy | None = None

    def _seeded(self) -> Policy:
        if self._policy is None:
            self._policy = self._open()
        self._policy.seed(self._seed)
        return self._policy

    def accuracy(self) -> Mapping[str, Any]:
        return measure_accuracy(
            self._seeded(), self._options.positions(), name=self._row.name, raw=False, show=True
        ).figures()

    def latency(self) -> Mapping[str, Any]:
        calls = self._options.calls
        return measure_latency(
            self._seeded(),
            self._options.positions()[:calls],
            batches=(1,),
            num_calls=calls,
            seed=self._seed,
            name=f"{self._row.name} time",
            show=True,
        ).figures()

    def puzzles(self) -> Mapping[str, Any]:
        policy = self._seeded()
        attempts = attempt_puzzles(policy, self._options.puzzles().puzzles, name=f"{self._row.name} puzzles", show=True)
        figures = PuzzleResult(self._row.name, attempts).figures(policy.game, BAND)
        return {name: value for name, value in figures.items() if name != "attempts"}

    def close(self) -> None:
        if self._policy is not None:
            self._policy.close()


@dataclass(frozen=True)
class PlayedTournament:
    """Manifest and games of a tournament's folder."""

    manifest: Mapping[str, Any]
    results: list[GameResult]

    def player_of(self, row: Row) -> str | None:
        """The name under which a policy played; None if it did not.

        Raises:
            ValueError: a player that is spelled or named like it is, or may be, another policy.
        """
        players: Mapping[str, str] = self.manifest["players"]
        known = self.manifest.get(CHECKSUMS, {})
        folders = folders_of([row.spec])
        ordered = sorted(players.items(), key=lambda each: each[0] != row.name)  # one policy may play under two names
        for name, spec in ordered:
            if replaced(spec, known.get(name, {})) == replaced(row.spec, folders):
                return name
        spelled = [name for name, spec in ordered if _same_policy(spec, row.spec)]
        for name in (*spelled, *({row.name} & players.keys())):
            if name not in known and (name in spelled or not folders):
                return name
            why = "the checksum of a folder differs" if known else "it keeps no checksums, and the spellings differ"
            raise ValueError(f"the tournament's player {name!r} ({players[name]}) is not this policy: {why}")
        return None


def read_tournament(folder: Path) -> PlayedTournament:
    """Read the games of a tournament's folder, which may still be growing.

    Raises:
        ValueError: the folder holds no tournament, no finished game or a damaged file.
    """
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"{folder}: holds no tournament ({MANIFEST}); name the folder of `genpolicy tournament --out`")
    manifest, lines = read_manifest(folder / MANIFEST), folder / LINES
    players = manifest.get("players", {})
    results = [result for _, result, _ in read_lines(lines, whole_lines(lines), players)]
    if not results:
        raise ValueError(f"{folder}: this tournament has no finished game")
    return PlayedTournament({**manifest, "players": players}, results)


def _same_policy(one: str, other: str) -> bool:
    def plain(spec: str) -> tuple[str, str]:
        head, _, query = spec.partition("?")
        return (str(Path(head).resolve()) if Path(head).is_dir() else head), query

    return plain(one) == plain(other)
