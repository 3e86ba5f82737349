"""The processes that play a tournament's games: each takes a group, plays it and takes the next.

Workers are fresh interpreters (spawned), which do not inherit engines, threads or devices of this process. A worker
that dies ends the tournament with an error that names its exit status; the games that it sent are kept.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from genpolicy.data.oracle import make_oracle
from genpolicy.errors import EngineError
from genpolicy.game import Game
from genpolicy.policies.base import Policy, load_policy
from genpolicy.registry import load_game
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.match import GameResult, GameTask, Match, Warn
from genpolicy_common.children import follow_parent, without_ctrl_c
from genpolicy_common.cluster import Cluster, Crew, Lost, sendable
from genpolicy_common.shipping import fetch, folders_of, replaced
from genpolicy_engines.oracle_policy import OraclePolicy
from genpolicy_evaluation.latency import limited_threads


@dataclass(frozen=True)
class Setup:
    """What a worker needs; plain data, so that it can be sent."""

    game: str
    players: dict[str, str]
    rules: Adjudication
    seed: int
    device: str
    threads: int


class _Stopped(Exception):
    """No further games are needed."""


def open_policy(spec: str, game: Game[Any], device: str) -> Policy:
    """Load the policy of a player.

    Raises:
        ValueError: the policy plays another game, or an error of ``load_policy``.
    """
    return load_policy(spec, game=game, defaults={"device": device, "seed": 0})


@contextmanager
def open_match(setup: Setup, game: Game[Any], warn: Warn) -> Iterator[Match]:
    """Open the players and the judge of a tournament, and close them at the end."""
    with ExitStack() as stack:
        policies = {}
        for name, spec in setup.players.items():
            policies[name] = open_policy(spec, game, setup.device)
            stack.callback(policies[name].close)
        judge = stack.enter_context(make_oracle(setup.rules.judge, game)) if setup.rules.judge else None
        yield Match(game, policies, setup.rules, judge, setup.seed, warn)


def run_groups(
    setup: Setup,
    game: Game[Any],
    groups: Sequence[Sequence[GameTask]],
    *,
    workers: int,
    finished: Callable[[GameResult], bool],
    warn: Warn,
    cluster: Cluster | None = None,
    note: Warn = lambda text: None,
) -> None:
    """Play groups of games in order.

    Args:
        setup: What a worker needs.
        game: The game.
        groups: Games that are played in step.
        workers: Number of processes.
        finished: Called with each finished game; returns whether to continue.
        warn: Called with texts on problems that cost no game.
        cluster: Where the workers run, in place of this machine; it is closed in the end. The group of a worker that
            is lost is played by another.
        note: Told which workers join and which are lost.

    Raises:
        EngineError: a worker of this machine died, or the engines of two workers of a cluster differ.
        ClusterError: workers of a cluster die one after the other.
        ValueError: a policy could not be loaded in a worker.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if cluster is not None:
        _run_cluster(setup, groups, cluster, finished, warn, note)
        return

    def keep(result: GameResult) -> None:
        if not finished(result):
            raise _Stopped

    if workers == 1 or len(groups) == 1:
        # As many threads as in every worker, so that results do not depend on who plays.
        with limited_threads(setup.threads), open_match(setup, game, warn) as match:
            try:
                for group in groups:
                    match.play(group, keep)
            except _Stopped:
                return
        return
    _run_processes(setup, groups, min(workers, len(groups)), finished, warn)


def _run_processes(
    setup: Setup,
    groups: Sequence[Sequence[GameTask]],
    workers: int,
    finished: Callable[[GameResult], bool],
    warn: Warn,
) -> None:
    context = multiprocessing.get_context("spawn")
    processes, pipes = [], list[Connection]()
    waiting = iter(groups)
    # Fresh interpreters read it when they load numerical libraries, whose idle threads would spin.
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(setup.threads)
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(os.getpid(), setup, theirs), daemon=True)
            with without_ctrl_c():
                process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        running = dict(zip(pipes, processes, strict=True))
        while running:
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                group: Sequence[GameTask] | None = None
                try:
                    kind, value = ready.recv()
                    if kind == "ready":
                        group = next(waiting, None)
                        ready.send(group)
                except (EOFError, BrokenPipeError, ConnectionResetError):
                    process = running[ready]
                    process.join()
                    raise EngineError(
                        f"a worker process ended with status {process.exitcode}; finished games are kept, and "
                        "the same command resumes"
                    ) from None
                if kind == "game":
                    if not finished(value):
                        return
                elif kind == "warning":
                    warn(value)
                elif kind == "error":
                    raise value
                elif group is None:
                    del running[ready]
        for process in processes:
            process.join(timeout=10)  # time to end their engines
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
        for process in processes:
            if process.is_alive():
                process.terminate()  # its engines end with it
        for pipe in pipes:
            pipe.close()


def _run_cluster(
    setup: Setup,
    groups: Sequence[Sequence[GameTask]],
    cluster: Cluster,
    finished: Callable[[GameResult], bool],
    warn: Warn,
    note: Warn,
) -> None:
    judge = [setup.rules.judge] if setup.rules.judge else []
    folders = folders_of([*setup.players.values(), *judge])
    crew: Crew[Sequence[GameTask]] = Crew(cluster, play_on_cluster, setup, folders, say=note, most=len(groups))
    received: set[int] = set()
    with closing(crew):
        crew.waiting.extend(groups)
        while crew.waiting or crew.at_work:
            worker, message = crew.event()
            value: Any
            kind, value = (None, message) if isinstance(message, Lost) else message
            if kind == "engines":
                crew.require_same(worker, {f"its engine for {name}": about for name, about in value.items()}, _SAME)
            elif kind == "game":
                if value.number not in received:  # one that is played again brings the work no further
                    received.add(value.number)
                    crew.credit(worker)
                if not finished(value):
                    return
            elif kind == "warning":
                warn(value)
            elif kind == "ready":
                crew.ready(worker)
            while crew.idle and crew.waiting:
                group = crew.waiting.popleft()
                crew.give(group).send(group)
        note(crew.report())


_SAME = "Install the same on all machines of the cluster; finished games are kept, and the same command resumes"


def play_on_cluster(pipe: Connection, setup: Setup, folders: dict[str, str]) -> None:
    """What a worker of a cluster does: plays groups until the command is gone.

    Args:
        pipe: To the command.
        setup: What it needs.
        folders: Folders of policies among the players, with their checksums.
    """
    places = fetch(pipe, folders)
    players = {name: replaced(spec, places) for name, spec in setup.players.items()}
    judge = setup.rules.judge and replaced(setup.rules.judge, places)
    setup = replace(setup, players=players, rules=replace(setup.rules, judge=judge))
    _play_groups(setup, pipe, lambda match: pipe.send(("engines", _engines_of(match))))


def _engines_of(match: Match) -> dict[str, Any]:
    """What the players that are engines, and the judge, say of themselves."""
    players = {name: each.oracle for name, each in match.policies.items() if isinstance(each, OraclePolicy)}
    oracles = players if match.judge is None else {**players, "--judge": match.judge}
    return {name: oracle.describe() for name, oracle in oracles.items()}


def _play_groups(setup: Setup, pipe: Connection, opened: Callable[[Match], None] = lambda match: None) -> None:
    """Play what comes by the pipe, until that is None; ``opened`` is called before the first game."""
    import torch

    torch.set_num_threads(setup.threads)
    with open_match(setup, load_game(setup.game), lambda text: pipe.send(("warning", text))) as match:
        opened(match)
        while True:
            pipe.send(("ready", None))
            group = pipe.recv()
            if group is None:
                return
            match.play(group, lambda result: pipe.send(("game", result)))


def _work(parent: int, setup: Setup, pipe: Connection) -> None:
    """Run a worker: play groups until there are no more, or the process that started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Windows, where it is not kept from us
    follow_parent(parent)
    try:
        _play_groups(setup, pipe)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone, and the match has closed the engines
    except Exception as error:
        traceback.print_exc() if not isinstance(error, ValueError | OSError | LookupError | EngineError) else None
        pipe.send(("error", sendable(error)))
