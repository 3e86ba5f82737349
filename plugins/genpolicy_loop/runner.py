"""Runs the generations of a loop: each stage is a command of genpolicy that resumes by itself, and a ``.done`` file.

Generation g lies in ``OUT/generation-00g``::

    games/           self-play by the newest accepted policy             data selfplay
    again-00k/       records of generation k, partly labelled anew       data label --share   (Reanalyse)
    NAME/            one run for each learner, on the window's union     train --resume
    gate/            games against the policy that played                tournament --sprt
    STAGE.done       JSON: what the stage came to

Everything that a stage does is a function of the configuration and of the stages before it. A loop that was killed
therefore ends with the same weights, to the bit, as one that was not, as long as each stage does (on one CPU).
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from genpolicy import cli
from genpolicy.config import read_yaml, to_yaml
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.files import read_json, write_atomic
from genpolicy.folder_lock import FolderLock
from genpolicy.registry import load_game
from genpolicy_loop.config import LoopConfig, training_settings
from genpolicy_loop.possible import require_openings, require_policies

LOOP_FILE, LOG_FILE = "loop.json", "log.txt"
FREE = ("generations", "out")
"""Keys that may differ when a loop is resumed."""
DONE = ".done"


class StageFailedError(Exception):
    """A stage's command ended with another status than 0; it has said why itself."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True)
class Stage:
    """One command of a generation."""

    generation: int
    name: str
    command: list[str]
    facts: Callable[[], dict[str, Any]] = dict
    """What is written of it in its ``.done`` file when the command has ended."""


class Loop:
    """The stages of a loop, and which of them are done.

    Args:
        config: What is run.
        where: Words that its commands of games and labels take, besides: which cluster they run on. They decide nothing
            of what these come to.

    Raises:
        ConfigError, RegistryError: a game or a learner's configuration that cannot be read.
    """

    def __init__(self, config: LoopConfig, where: Sequence[str] = ()) -> None:
        self.config, self.out, self._where = config, Path(config.out), list(where)
        self.game = load_game(config.game).spec
        self.learners: dict[str, dict[str, Any]] = {}
        for name, given in config.learners.items():
            self.learners[name] = training_settings(name, given)

    def folder(self, generation: int) -> Path:
        """The folder of a generation, counted from 1."""
        return self.out / f"generation-{generation:03d}"

    def done(self, generation: int, name: str) -> dict[str, Any] | None:
        """What a finished stage came to; None for one that has not finished.

        Raises:
            ConfigError: its ``.done`` file cannot be read.
        """
        path = self.folder(generation) / f"{name}{DONE}"
        try:
            facts = read_json(path)
            if not isinstance(facts, dict):
                raise ValueError(f"it holds {facts!r:.40} instead of a mapping")
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ConfigError(f"{path}: damaged ({error}); delete it, and its stage is checked again") from error
        return facts

    def accepted(self, generation: int) -> int:
        """The newest generation up to this one whose policy plays; 0 means that of ``start``."""
        while generation > 0 and not (self.done(generation, "gate") or {}).get("accepted", True):
            generation -= 1
        return generation

    def policy(self, generation: int) -> str:
        """Spelling of the policy that a generation has learnt, as a search; of generation 0, ``start``."""
        return self._spelled(self.config.search, generation) if generation else self.config.start

    def player(self, generation: int) -> str:
        """Spelling of the policy that plays the games of a generation."""
        config, newest = self.config, self.accepted(generation - 1)
        search = self.policy(newest)
        share = config.alpha[min(generation, len(config.alpha)) - 1] if config.alpha and newest else 0.0
        if share == 0:
            return search
        imagine = self._spelled(config.imagine, newest)
        return imagine if share == 1 else f"mix:{_quoted(search)},{_quoted(imagine)}?alpha={share:g}"

    def stages(self, generation: int) -> Iterator[Stage]:
        """The stages of a generation in order; a stage's command is known when those before it are done."""
        config, folder = self.config, self.folder(generation)
        oracle = ["--oracle", self._oracle(self.player(generation), generation), "--horizon", str(config.horizon)]
        options = ("games", "random_plies", "error_rate", "temperature", "max_plies", "split")
        words = [w for name in options for w in (f"--{name.replace('_', '-')}", str(getattr(config, name)))]
        games = folder / "games"
        seeds = ["--seed", str(self._seed(generation))]
        command = ["data", "selfplay", "--game", self.game, *oracle, *words, *seeds, "--out", str(games), *self._where]
        yield Stage(generation, "games", command, lambda: self._games(generation))
        window = [games]
        newest = self.accepted(generation - 1)
        for old in range(max(1, generation - config.window + 1), generation):
            again = self._records(old, generation)
            window.append(again)
            if again.parent == folder:
                words = [str(self._records(old, generation - 1)), "--share", f"{config.reanalyse:g}", *seeds]
                oracle = ["--oracle", self._oracle(self.policy(newest), generation), "--horizon", str(config.horizon)]
                yield Stage(
                    generation, again.name, ["data", "label", *words, *oracle, "--out", str(again), *self._where]
                )
        for name in self.learners:
            yield Stage(generation, name, self._train(name, generation, newest, window))
        if config.gate is not None and newest:
            yield Stage(generation, "gate", self._gate(generation, newest), lambda: self._verdict(generation))

    def run(self, say: Callable[[str], None]) -> None:
        """Run the stages that are not done.

        Args:
            say: Told what begins and what a stage came to.

        Raises:
            StageFailedError: a command failed, was interrupted or stopped; it has said why.
            ConfigError: the folder holds a loop of other settings, a policy that it spells cannot be opened, or
                the gate has no opening to play.
            LockedError: another process runs it.
            DatasetError: no game of the window was won by anybody.
        """
        if not (self.out / LOOP_FILE).exists():
            spelled = {key: getattr(self.config, key) for key in ("start", "search", "imagine")}
            require_policies({key: text for key, text in spelled.items() if text}, self.game, self.learners)
            if self.config.gate is not None:
                require_openings(self.game, self.config.gate.random_plies)
        self.out.mkdir(parents=True, exist_ok=True)
        with FolderLock(self.out, "runs a loop", "name another folder in out"):
            self._begin()
            for generation in range(1, self.config.generations + 1):
                for stage in self.stages(generation):
                    facts = self.done(generation, stage.name)
                    if facts is None:
                        say(f"generation {generation}/{self.config.generations}, {stage.name}")
                        facts = self._run(stage)
                        said = ", ".join(f"{key} {value}" for key, value in facts.items() if key != "command")
                        say(f"generation {generation}/{self.config.generations}, {stage.name}: {said}")
                    if stage.name == "games":
                        self._require_decisive(generation)

    def _begin(self) -> None:
        """Write what is run, or compare it with what was begun, and write the learners' configurations."""
        settings = {**{k: v for k, v in vars(self.config).items() if k not in FREE}, "learners": self.learners}
        gate = self.config.gate
        settings = json.loads(json.dumps({**settings, "gate": None if gate is None else vars(gate)}))
        path = self.out / LOOP_FILE
        if path.exists():
            try:
                begun = dict(read_json(path))
            except (ValueError, TypeError) as error:
                raise ConfigError(f"{path}: damaged ({error}); name another folder in out") from error
            for key in {**begun, **settings}:
                if begun.get(key) != settings.get(key):
                    raise ConfigError(
                        f"{self.out}: holds a loop that was begun with {key}={begun.get(key)!r}, not "
                        f"{settings.get(key)!r}; name another folder in out, or resume with the same settings (only "
                        f"{' and '.join(FREE)} may change)"
                    )
        elif others := sorted(p.name for p in self.out.iterdir() if not p.name.startswith(".")):
            raise ConfigError(
                f"{self.out}: holds {', '.join(others[:3])} and no {LOOP_FILE}; name another folder in out"
            )
        else:
            write_atomic(path, json.dumps(settings, indent=1).encode())
        for name, learner in self.learners.items():
            path = self.out / f"{name}.yaml"
            if not path.exists():
                write_atomic(path, to_yaml(learner).encode())
            elif read_yaml(path) != json.loads(json.dumps(learner)):
                raise ConfigError(
                    f"{path}: is not what the loop was begun with; delete it, and it is written as it was, or name "
                    "another folder in out"
                )

    def _run(self, stage: Stage) -> dict[str, Any]:
        folder, began = self.folder(stage.generation), time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(f"$ genpolicy {shlex.join(stage.command)}\n")
            log.flush()
            with contextlib.redirect_stdout(log):
                status = cli.main(stage.command)
        if status:
            raise StageFailedError(status)
        facts = {**stage.facts(), "seconds": round(time.monotonic() - began, 1)}
        path = folder / f"{stage.name}{DONE}"
        write_atomic(path, json.dumps({**facts, "command": shlex.join(stage.command)}, indent=1).encode())
        return facts

    def _spelled(self, spelling: str, generation: int) -> str:
        return spelling.format_map({name: str(self.folder(generation) / name / "policy") for name in self.learners})

    def _oracle(self, spelling: str, generation: int) -> str:
        return f"policy:{_quoted(spelling)}?seed={self._seed(generation)}&together={self.config.together}"

    def _seed(self, generation: int) -> int:
        return 1000 * self.config.seed + generation

    def _records(self, old: int, generation: int) -> Path:
        """The newest form, when a generation has been reached, of the records of an older one."""
        last = min(generation, old + self.config.window - 1)
        if last <= old or self.config.reanalyse == 0:
            return self.folder(old) / "games"
        return self.folder(last) / f"again-{old:03d}"

    def _train(self, name: str, generation: int, newest: int, window: list[Path]) -> list[str]:
        out = self.folder(generation) / name
        words = [
            f"data.folder={json.dumps([str(folder) for folder in window], ensure_ascii=False)}",
            f"trainer.seed={self._seed(generation)}",
        ]
        if newest:
            words.append(f"init_from={self.folder(newest) / name / 'policy'}")
        return ["train", "--config", str(self.out / f"{name}.yaml"), *words, "--out", str(out), "--resume"]

    def _gate(self, generation: int, newest: int) -> list[str]:
        gate, folder = self.config.gate, self.folder(generation)
        assert gate is not None
        players = [f"new={self.policy(generation)}", f"old={self.policy(newest)}"]
        words = ["tournament", "--game", self.game, "--policy", *players, "--rounds", str(gate.rounds)]
        words += ["--random-plies", str(gate.random_plies), "--sprt", f"elo0={gate.elo0:g}", f"elo1={gate.elo1:g}"]
        words += ["--seed", str(self._seed(generation)), *(self._where or ["--workers", "1"]), "--reuse-openings"]
        return [*words, "--out", str(folder / "gate"), "--json", str(folder / "gate.json")]

    def _verdict(self, generation: int) -> dict[str, Any]:
        """Accepted by the test, or by at least half the points where it came to no end."""
        figures = read_json(self.folder(generation) / "gate.json")
        verdict, counts = figures["sprt"]["verdict"], figures["sprt"]["counts"]
        score = sum(i * count for i, count in enumerate(counts)) / max(1, (len(counts) - 1) * sum(counts))
        return {
            "accepted": verdict == "H1" or (verdict is None and score >= 0.5),
            "score": round(score, 4),
            "verdict": verdict,
        }

    def _games(self, generation: int) -> dict[str, Any]:
        results = self._results(self.folder(generation) / "games")
        return {"records": results.pop("records"), **results}

    def _results(self, folder: Path) -> dict[str, int]:
        table = Dataset.open(folder, verify=False).columns(["game_id", "result"])
        results = dict(zip(table["game_id"].to_pylist(), table["result"].to_pylist(), strict=True))
        counts = {
            name: sum(result == value for result in results.values())
            for name, value in (("first_won", 1.0), ("drawn", 0.0), ("second_won", -1.0))
        }
        return {"records": table.num_rows, "games": len(results), **counts}

    def _require_decisive(self, generation: int) -> None:
        """Check that somebody has won a game of the window.

        Raises:
            DatasetError: nobody has, so there is nothing to learn a value from.
        """
        window = range(max(1, generation - self.config.window + 1), generation + 1)
        games: Mapping[int, dict[str, Any]] = {each: self.done(each, "games") or {} for each in window}
        if not any(facts.get("first_won") or facts.get("second_won") for facts in games.values()):
            raise DatasetError(
                f"{self.folder(generation)}: no game of the generations {window.start} to {generation} has a "
                "winner, so there is nothing to learn: name another folder in out, and raise games, max_plies, "
                "random_plies or the plies of temperature, or let a stronger policy start"
            )


def _quoted(spelling: str) -> str:
    return quote(spelling, safe=":/")


def show_stage(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)
