"""Every format of text or file that is read, as a target of the fuzzers; made on demand, since some need extras."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from genpolicy import load_game
from genpolicy.config import compose, to_dict, to_yaml
from genpolicy.data.records import DatasetInfo
from genpolicy.errors import (
    CheckpointError,
    ConfigError,
    DatasetError,
    IllegalMoveError,
    RegistryError,
    SourceError,
)
from genpolicy.game import Game
from genpolicy.policies.base import load_policy, policy_spec
from genpolicy.policies.weights import load_weights, read_provenance
from genpolicy.training.checkpoint import (
    Checkpoint,
    load_latest,
    pack_optimizer,
    save_checkpoint,
    unpack_optimizer,
)
from genpolicy.training.config import OptimConfig, RunConfig
from genpolicy.training.metrics_log import RunningMeans
from genpolicy.training.optim import make_optimizers
from genpolicy.training.resuming import require_usable
from tests.fuzz.malicious_folders import good_policy
from tests.fuzz.mutation import Target
from tests.small_datasets import CONNECT

TEXTS = yaml.safe_load((Path(__file__).parent / "examples.yaml").read_text(encoding="utf-8"))
"""Valid texts by format."""
BUG = re.compile(r"\b(?:Key|Index|Type|Attribute|Runtime|Assertion|Overflow|Recursion|ZeroDivision)Error\b")
PLIES = 20
"""Of what was read, this much is played."""


def encoded(name: str) -> tuple[bytes, ...]:
    """The examples of a format."""
    return tuple(text if isinstance(text, bytes) else text.encode() for text in TEXTS[name])


def file_targets(scratch: Path) -> Iterator[Target]:
    """Files of games, positions and puzzles; books of openings."""
    from genpolicy_arena.openings import read_book

    for name, game, suffix, kind in (
        ("pgn", "chess", ".pgn", "games"),
        ("epd", "chess", ".epd", "positions"),
        ("lichess-evaluations", "chess", ".jsonl", "positions"),
        ("chess-puzzles", "chess", ".csv", "puzzles"),
        ("kif", "shogi", ".kif", "games"),
        ("ki2", "shogi", ".ki2", "games"),
        ("csa", "shogi", ".csa", "games"),
        ("usi-list", "shogi", ".txt", "games"),
        ("sfen-list", "shogi", ".sfen", "positions"),
        ("hcpe", "shogi", ".hcpe", "positions"),
        ("hcpe3", "shogi", ".hcpe3", "games"),
        ("psv", "shogi", ".psv", "positions"),
        ("tsume", "shogi", ".csv", "puzzles"),
        ("connect-games", CONNECT, ".games", "games"),
    ):
        path = scratch / f"{name}{suffix}"
        yield Target(name, encoded(name), partial(_read_file, load_game(game), path, kind), (SourceError,))
    chess, book = load_game("chess"), scratch / "book.txt"

    def read(data: bytes) -> None:
        book.write_bytes(data)
        for opening in read_book(chess, book).openings:
            _use(chess, opening.play(chess))

    yield Target("opening-book", encoded("opening-book"), read, (SourceError,))


def _read_file(game: Game[Any], path: Path, kind: str, data: bytes) -> None:
    path.write_bytes(data)
    bad: list[SourceError] = []
    open_files = {"games": game.files.open_games, "positions": game.files.open_positions}  # type: ignore[union-attr]
    entries: Any = open_files.get(kind, game.files.open_puzzles)(path, bad.append)  # type: ignore[union-attr]
    for entry in entries:
        if kind == "positions":
            _use(game, game.parse(entry.text))
            continue
        state = game.parse(entry.start)
        moves = entry.moves if kind == "games" else (*entry.setup, *entry.solution)
        for move in moves[:PLIES]:
            assert move in game.legal(state), f"an illegal move {game.moves[move]} was let through"
            state = game.play(state, move)
        _use(game, state)
    assert all(isinstance(error, SourceError) for error in bad)


def _use(game: Game[Any], state: Any) -> None:
    """Do with a position what comes after it is read."""
    again = game.parse(game.format(state))
    assert game.format(again) == game.format(state)
    game.tokens.encode([state], [0])
    if game.outcome(state) is None and len(legal := game.legal(state)):
        game.tokens.encode([game.play(state, int(legal[0]))], [1])


def position_targets() -> Iterator[Target]:
    """Texts of positions."""
    for name, game in (("fen", "chess"), ("sfen", "shogi"), ("connect-position", CONNECT)):
        yield Target(name, encoded(name), partial(_read_position, load_game(game)), (ValueError,))


def _read_position(game: Game[Any], data: bytes) -> None:
    state = game.parse(data.decode(errors="replace"))
    try:
        _use(game, state)
    except ValueError as error:
        raise AssertionError(f"read, and then refused: {error}") from error


def yaml_targets(scratch: Path) -> Iterator[Target]:
    """Configurations, experiments, data sets and saved policies."""
    from genpolicy_experiments.description import Experiment

    folder = good_policy(scratch / "policy")
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}

    def run(data: bytes) -> None:
        (scratch / "run.yaml").write_bytes(data)
        compose(RunConfig, [scratch / "run.yaml"])

    def experiment(data: bytes) -> None:
        (scratch / "experiment.yaml").write_bytes(data)
        Experiment(scratch / "experiment.yaml")

    def dataset(data: bytes) -> None:
        (scratch / "dataset.yaml").write_bytes(data)
        DatasetInfo.read(scratch)

    def policy(data: bytes) -> None:
        (folder / "config.yaml").write_bytes(data)
        load_policy(folder)

    def provenance(data: bytes) -> None:
        (folder / "provenance.json").write_bytes(data)
        read_provenance(folder)

    learner = load_policy(folder).learner
    assert learner is not None

    def weights(data: bytes) -> None:
        (folder / "model.safetensors").write_bytes(data)
        load_weights(learner.network, folder / "model.safetensors", None)

    example = to_yaml(RunConfig(learner={"kind": "diffusion", "horizon": 1})).encode()
    yield Target("run-yaml", (example, *encoded("run-yaml")), run, (ConfigError,))
    yield Target(
        "override",
        encoded("override"),
        lambda data: compose(RunConfig, overrides=[data.decode(errors="replace")]),
        (ConfigError,),
    )
    yield Target("experiment", encoded("experiment"), experiment, (ConfigError, DatasetError, RegistryError))
    yield Target("dataset-yaml", encoded("dataset-yaml"), dataset, (DatasetError,))
    yield Target("policy-config.yaml", (contents["config.yaml"],), policy, (CheckpointError, RegistryError))
    yield Target("policy-provenance.json", (contents["provenance.json"],), provenance, (CheckpointError,))
    yield Target("policy-safetensors", (contents["model.safetensors"],), weights, (CheckpointError,))


def checkpoint_target(scratch: Path) -> Target:
    """The ``state.json`` of a checkpoint, with and without a checksum; what was read is resumed from."""
    network = torch.nn.Linear(2, 2)
    optimizer = make_optimizers([{"params": list(network.parameters())}], OptimConfig())["adamw"]
    network(torch.ones(2)).sum().backward()
    optimizer.step()
    packed, plain = pack_optimizer(optimizer.state_dict(), "adamw")
    identity = {"tokenizer": "0", "config": to_dict(RunConfig(learner={"kind": "diffusion", "horizon": 1}))}
    identity = json.loads(json.dumps(identity))
    state = {
        "identity": identity,
        "optimizer": {"adamw": plain},
        "seconds": 1.5,
        "best": {"loss": 2.25, "step": 2, "windows": 16},
        "ema_updates": 0,
        "num_processes": 1,
        "recent": {"sums": {"loss": 4.5}, "counts": {"loss": 2}, "records": 32},
        "commits": ["0123abc"],
        "run": identity["config"],
    }
    tensors = {"model": dict(network.state_dict()), "optimizer": packed, "random": {"0.torch": torch.get_rng_state()}}
    folder = save_checkpoint(scratch / "checkpoints", Checkpoint(3, tensors, state))
    checked = (folder / "state.json").read_bytes()
    old = {key: value for key, value in json.loads(checked).items() if key not in ("sha256", "commits")}

    def read(data: bytes) -> None:
        (folder / "state.json").write_bytes(data)
        usable = partial(require_usable, identity=identity, optimizers={"adamw": optimizer}, averaged=False)
        found = load_latest(folder.parent, lambda _: None, usable)
        assert found is not None
        fresh = make_optimizers([{"params": list(network.parameters())}], OptimConfig())["adamw"]
        fresh.load_state_dict(unpack_optimizer(found.tensors["optimizer"], found.state["optimizer"]["adamw"], "adamw"))
        fresh.step()
        means = RunningMeans(torch.device("cpu"))
        means.restore(found.state.get("recent", means.state()))
        means.take()

    examples = (checked, (json.dumps(old, indent=1, sort_keys=True) + "\n").encode())
    return Target("checkpoint-state.json", examples, read, (CheckpointError,))


def spelling_targets() -> Iterator[Target]:
    """What names a policy, and what an engine says."""
    from genpolicy_engines.protocol import USI, parse_search

    def spelled(data: bytes) -> None:
        text = data.decode(errors="replace")
        if "engine" not in text and "\0" not in text:  # that would start a program
            policy_spec(text, CONNECT)

    def answer(data: bytes) -> None:
        for dialect in ({}, {"dialect": USI}):
            result = parse_search(data + b"\nbestmove e2e4 ponder e7e5", **dialect)
            assert "\n" not in repr(result)
        parse_search(b"bestmove x\n" + data.replace(b"\n", b" ") + b"\nbestmove (none)")

    yield Target("policy-spelling", encoded("policy-spelling"), spelled, (ValueError, RegistryError, IllegalMoveError))
    yield Target("engine-answer", encoded("engine-answer"), answer, ())


def engine_target(name: str) -> Target:
    """The lines of a GUI to our engine, in this process: a whole session for each text."""
    from genpolicy_play.engine.host import Host
    from genpolicy_play.engine.process import Output
    from genpolicy_play.engine.protocol import DIALECTS
    from genpolicy_play.engine.server import Server

    game = load_game({"uci": "chess", "usi": "shogi"}[name])

    class Heard(Output):
        """Keeps the lines."""

        def __init__(self) -> None:
            super().__init__(-1)
            self.lines: list[str] = []

        def send(self, *lines: str) -> None:
            self.lines += lines

    def session(data: bytes) -> None:
        heard, left = Heard(), list[int]()
        host = Host(policy_spec("random", game), game, "cpu")
        lines = data.replace(b"quit", b"quiet").split(b"\n")
        number = sum(words[0] == b"isready" for words in map(bytes.split, lines) if words)
        status = Server(host, DIALECTS[game.protocol], heard, left.append).run([*lines, b"stop", b"isready"])
        host.close()
        assert (status, left) == (0, []), f"ended with {status}, {left}"
        assert heard.lines.count("readyok") >= number + 1, "an isready was not answered"
        assert not (bugs := [line for line in heard.lines if BUG.search(line)]), bugs[0]

    return Target(name, encoded(name), session, ())


def web_targets() -> Iterator[Target]:
    """Requests to the web board's application, behind its guard, without a socket; games that are imported there."""
    from genpolicy_play.web.app import make_app
    from genpolicy_play.web.catalog import make_catalog
    from genpolicy_play.web.middleware import Hosts
    from genpolicy_play.web.queue import DecisionQueue

    app = make_app(make_catalog(["random"], ["chess", "shogi", CONNECT]), DecisionQueue(), Hosts("127.0.0.1"))
    # A thread of its own: browser tests leave a loop running in this one.
    apart, loop = ThreadPoolExecutor(1), asyncio.new_event_loop()

    def ask(path: str, body: bytes) -> tuple[int, bytes]:
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        headers.append((b"content-length", b"%d" % len(body)))
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {"headers": headers, "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1)}
        scope |= {"http_version": "1.1", "root_path": ""}
        said: list[dict[str, Any]] = []
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if pending:
                return pending.pop()
            await asyncio.sleep(3600)
            raise AssertionError("nobody waits that long")

        async def send(message: dict[str, Any]) -> None:
            said.append(message)

        apart.submit(loop.run_until_complete, app(scope, receive, send)).result()  # type: ignore[arg-type]
        status = said[0]["status"]
        assert status < 500, f"status {status}: {said[1:2]}"
        content = b"".join(message.get("body", b"") for message in said)
        assert status < 400 or list(json.loads(content)) == ["error"], content
        return status, content

    def post(data: bytes) -> None:
        line, _, body = data.partition(b"\n")
        ask(re.sub(r"[^ -~]", "", line.decode(errors="replace")) or "/", body)

    def read(game: Game[Any], data: bytes) -> None:
        body = json.dumps({"game": game.spec, "text": data.decode(errors="replace")}).encode()
        status, content = ask("/api/import", body)
        if status != 200:
            return
        found = json.loads(content)
        state = game.parse(found["start"])
        for move in found["moves"]:
            state = game.play(state, game.moves.index(move))
        _use(game, state)

    yield Target("http", encoded("http"), post, ())
    for name, spec, formats in (
        ("import-chess", "chess", ("pgn",)),
        ("import-shogi", "shogi", ("kif", "ki2", "csa")),
        ("import-connect", CONNECT, ("connect-games",)),
    ):
        texts = tuple(text for form in formats for text in encoded(form))
        yield Target(name, texts, partial(read, load_game(spec)), ())


class _Read(Exception):
    """Ends a tournament as soon as its files are read."""


def tournament_targets(scratch: Path) -> Iterator[Target]:
    """The games of a tournament that is resumed, and rated."""
    from genpolicy_arena.openings import draw_random
    from genpolicy_arena.ratings_command import read_games
    from genpolicy_arena.tournament import TournamentConfig, run_tournament

    game, folder = load_game(CONNECT), scratch / "cup"
    config = TournamentConfig(game.spec, {"a": "random", "b": "random?seed=1"}, draw_random(game, 3, 2, 0))
    run_tournament(config, game, folder)
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    # The same seed, the same mutants: what the clock wrote is replaced.
    rows = [json.loads(line) for line in kept["games.jsonl"].splitlines()]
    times = {"seconds": [0.5, 0.25], "finished": "2025-01-02T03:04:05"}
    kept["games.jsonl"] = "".join(json.dumps({**row, **times}) + "\n" for row in rows).encode()

    def stop(*_: Any) -> None:
        raise _Read

    def resume(name: str, data: bytes) -> None:
        for path in folder.iterdir():
            path.unlink()
        for other, content in {**kept, name: data}.items():
            # Without the file of games that is written anew, from the lines that were read.
            if other != "games.games":
                (folder / other).write_bytes(content)
        read_games(game, [folder], Counter())
        with suppress(_Read):
            run_tournament(config, game, folder, progress=stop)

    for name in ("games.jsonl", "tournament.json"):
        yield Target(f"tournament-{name}", (kept[name],), partial(resume, name), (ValueError,))


def targets(scratch: Path) -> dict[str, Callable[[], Sequence[Target]]]:
    """All targets, by the name of their group."""
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return {
        "files": lambda: list(file_targets(scratch)),
        "positions": lambda: list(position_targets()),
        "yaml": lambda: list(yaml_targets(scratch)),
        "checkpoints": lambda: [checkpoint_target(scratch)],
        "spellings": lambda: list(spelling_targets()),
        "engine": lambda: [engine_target("uci"), engine_target("usi")],
        "web": lambda: list(web_targets()),
        "tournament": lambda: list(tournament_targets(scratch)),
    }
