"""Work on clusters: the same records and games as on one machine, whoever is killed, and nothing answered twice."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from genpolicy import cli, registry
from genpolicy.control import FREE, Control
from genpolicy.data.records import Dataset
from genpolicy.errors import EngineError
from genpolicy.files import DiskFullError, disk_full
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy
from genpolicy_common.cluster import ClusterError, Crew, Hello, Lost, Versions, open_cluster
from genpolicy_common.shipping import fetch, folders_of, packed, replaced
from genpolicy_labelling.cluster_oracle import ClusterOracle
from tests.cluster.forks import CONTEXT, Broken, Differs, Forks, Logged
from tests.data.journal_files import entries_of
from tests.small_datasets import CONNECT

GAME = registry.load_game(CONNECT)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    registry.register("clusters", "forks")(Forks)
    registry.register("oracles", "logged")(Logged)
    registry.register("oracles", "broken")(Broken)
    registry.register("oracles", "differs")(Differs)
    Forks.started.clear()
    yield
    for process in Forks.started:
        process.kill()
        process.join()
    for group, name in (("clusters", "forks"), ("oracles", "logged"), ("oracles", "broken"), ("oracles", "differs")):
        registry.unregister(group, name)


@pytest.fixture(scope="module")
def positions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("positions") / "all"
    words = ["data", "import", "all", "--game", CONNECT, "--max-positions", "120", "--out", str(folder)]
    assert cli.main(words) == 0
    return folder


def label(positions: Path, out: Path, oracle: str, *more: str) -> int:
    return cli.main(["data", "label", "--data", str(positions), "--oracle", oracle, "--out", str(out), *more])


def selfplay(out: Path, oracle: str, *more: str) -> int:
    words = ["data", "selfplay", "--game", CONNECT, "--oracle", oracle, "--games", "24", "--random-plies", "0:2"]
    return cli.main([*words, "--out", str(out), *more])


def asked(log: Path) -> list[str]:
    return log.read_text().splitlines()


NO_PIPE: Any = None
FORKS = ("--cluster", "forks:here", "--parallel", "2")


def test_labels_are_those_of_one_machine_and_lost_workers_cost_only_what_was_unanswered(
    positions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, log = f"logged?log={tmp_path / 'one'}", tmp_path / "log"
    assert label(positions, tmp_path / "a", one) == 0
    assert label(positions, tmp_path / "b", f"logged?log={log}&kill=1+17+40+60+90", *FORKS) == 0
    assert Dataset.open(tmp_path / "a").checksum == Dataset.open(tmp_path / "b").checksum
    # A worker is killed at a question, before the answer: that question alone is asked twice. Two workers that ask at
    # the same moment count alike, so the number of kills is not always that of the questions named.
    said = capsys.readouterr().err
    kills = len(re.findall(r"is lost \(.+\) after \d+ answers; another takes its work", said))
    assert kills >= 3
    assert f"; {kills} lost" in said
    assert len(asked(log)) == len(asked(tmp_path / "one")) + kills
    assert sorted(set(asked(log))) == sorted(asked(tmp_path / "one"))


def test_games_are_those_of_one_machine_whoever_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, log = f"logged?log={tmp_path / 'one'}", tmp_path / "log"
    assert selfplay(tmp_path / "a", one) == 0
    assert selfplay(tmp_path / "b", f"logged?log={log}&kill=2+30+50+77", *FORKS) == 0
    assert Dataset.open(tmp_path / "a").checksum == Dataset.open(tmp_path / "b").checksum
    kills = capsys.readouterr().err.count("is lost (")
    assert kills >= 2
    assert len(asked(log)) == len(asked(tmp_path / "one")) + kills


@pytest.mark.parametrize("verb", ["label", "selfplay"])
def test_a_call_of_many_positions_is_answered_whole_or_not_at_all(positions: Path, tmp_path: Path, verb: str) -> None:
    def run(out: str, oracle: str, *more: str) -> str:
        data = tmp_path / out
        assert (label(positions, data, oracle, *more) if verb == "label" else selfplay(data, oracle, *more)) == 0
        return Dataset.open(data).checksum

    one = run("a", f"logged?log={tmp_path / 'one'}&together=8")
    assert one == run("b", f"logged?log={tmp_path / 'log'}&together=8&kill=5+33+60", *FORKS)
    # The answers depend on the whole call, so the same records mean that the same calls were made again.
    assert len(asked(tmp_path / "log")) <= len(asked(tmp_path / "one")) + 3 * 16  # label has 16 in a block


@pytest.mark.parametrize("together", [1, 8])
def test_a_killed_command_resumes_and_asks_nothing_that_it_had_kept(
    positions: Path, tmp_path: Path, together: int
) -> None:
    log = tmp_path / "log"
    oracle = f"logged?log={log}&together={together}"
    for first in (70, 30):
        # Two workers have 64 questions at most before the command has read an answer: two blocks of 16 each.
        kill = f"&whom=driver&kill={first + (len(asked(log)) if log.exists() else 0)}"
        driver = CONTEXT.Process(target=label, args=(positions, tmp_path / "b", oracle + kill, *FORKS))
        driver.start()
        driver.join(60)
        assert driver.exitcode == -9
    seen, kept = len(asked(log)), answered_in(tmp_path / "b")
    assert kept
    assert label(positions, tmp_path / "b", oracle, *FORKS) == 0
    assert not {mark(text) for text in asked(log)[seen:]} & kept
    assert label(positions, tmp_path / "a", f"logged?log={tmp_path / 'one'}&together={together}") == 0
    assert Dataset.open(tmp_path / "a").checksum == Dataset.open(tmp_path / "b").checksum


def mark(text: str) -> str:
    """By which the journal knows the position that it has an answer to."""
    key = GAME.key(GAME.parse(text))
    return hashlib.blake2b(key if isinstance(key, bytes) else str(key).encode(), digest_size=4).hexdigest()


def answered_in(folder: Path) -> set[str]:
    entries = list(entries_of(folder))
    answers = {value["position"] for table, _, value in entries if table == "answers"}
    return answers | {mark(row["state"]) for table, _, unit in entries if table == "units" for row in unit["rows"]}


def test_a_policy_travels_by_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, away = tmp_path / "runs", tmp_path / "away"
    folder.mkdir()
    (folder / "config.yaml").write_text("kind: none\n")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 40)
    spelling = f"policy:mcts:{folder}%3Fsimulations=5"
    folders, archive = folders_of([spelling]), packed(str(folder))
    assert list(folders) == [str(folder)]
    assert replaced(spelling, fetch(NO_PIPE, folders)) == spelling  # it is there: nothing is sent
    folder.rename(away)
    for round_ in range(2):
        ours, theirs = Pipe()
        if round_ == 0:
            ours.send(archive)
        places = fetch(theirs, folders)
        assert ours.poll() == (round_ == 0)  # the second time it is in the cache
        kept = Path(places[str(folder)])
        assert {file.name: file.read_bytes() for file in kept.iterdir()} == {
            file.name: file.read_bytes() for file in away.iterdir()
        }
        assert replaced(spelling, places) == f"policy:mcts:{kept}%3Fsimulations=5"
    monkeypatch.setattr("tarfile.TarFile.extractall", _no_space)
    ours.send(archive)
    with pytest.raises(DiskFullError, match=f"no space left.*{'0' * 64}"):
        fetch(theirs, {str(folder): "0" * 64})
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ours.send(archive)
    with pytest.raises(ValueError, match="has changed since the command began"):
        fetch(theirs, {str(folder): "0" * 64})


@pytest.mark.parametrize("damage", ["config.yaml", "model.safetensors", "no model.safetensors", "no config.yaml"])
def test_a_damaged_policy_in_the_cache_is_fetched_anew(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(1000))
    (folder / "config.yaml").write_text(f"kind: none\nweights_sha256: {hashlib.sha256(bytes(1000)).hexdigest()}\n")
    folders, archive = folders_of([str(folder)]), packed(str(folder))
    folder.rename(tmp_path / "away")
    ours, theirs = Pipe()
    ours.send(archive)
    kept = Path(fetch(theirs, folders)[str(folder)])
    name = damage.removeprefix("no ")
    (kept / name).unlink() if name != damage else (kept / name).write_bytes(b"kind: other\n")
    ours.send(archive)
    assert fetch(theirs, folders) == {str(folder): str(kept)}
    assert (kept / name).read_bytes() == (tmp_path / "away" / name).read_bytes()
    assert [each.name for each in kept.parent.iterdir()] == [kept.name]


def _no_space(*arguments: Any, **more: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("spelling", "places", "said"),
    [
        ("mcts:a?simulations=9", {"a": "/c/1"}, "mcts:/c/1?simulations=9"),  # simulations has the letter, too
        ("mix:runs/a,runs/ab", {"runs/a": "/c/1", "runs/ab": "runs/ab"}, "mix:/c/1,runs/ab"),
        ("mix:c,d", {"c": "/c/d", "d": "/c/c"}, "mix:/c/d,/c/c"),
        ("policy:mcts:my%20runs/a%253Fx=1", {"my runs/a": "/c/1"}, "policy:mcts:/c/1%253Fx=1"),
        ("policy:mcts:a%3Fprior=b", {"a": "/c/1", "b": "/c/2"}, "policy:mcts:/c/1%3Fprior=/c/2"),
    ],
)
def test_only_whole_names_of_folders_are_replaced(spelling: str, places: dict[str, str], said: str) -> None:
    assert replaced(spelling, places) == said


def test_a_policy_in_the_cache_is_whole_whenever_another_worker_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checksum is that of a folder's ``config.yaml``, so that file must not be there before all others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("a.bin", "config.yaml", "model.safetensors"):
        (folder / name).write_text(f"{name}: {name}\n")
    folders, archive = folders_of([str(folder)]), packed(str(folder))
    folder.rename(tmp_path / "away")
    (wanted,) = folders.values()
    kept, looked = tmp_path / "cache" / "genpolicy" / "policies" / wanted, []
    written = Path.rename, shutil.copy2

    def look(do: Any) -> Any:
        def doing(*given: Any, **more: Any) -> Any:
            done = do(*given, **more)
            looked.append(sorted(file.name for file in kept.iterdir()) if kept.exists() else [])
            return done

        return doing

    monkeypatch.setattr(Path, "rename", look(written[0]))
    monkeypatch.setattr(shutil, "copy2", look(written[1]))
    ours, theirs = Pipe()
    ours.send(archive)
    fetch(theirs, folders)
    assert looked
    assert all(names in ([], ["a.bin", "config.yaml", "model.safetensors"]) for names in looked)


def test_tournaments_play_the_same_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tournament", "--game", CONNECT, "--policy", "random", "greedy", "--rounds", "6", "--random-plies", "2"]
    words += ["--reuse-openings"]
    assert cli.main([*words, "--out", str(tmp_path / "a"), "--parallel", "1"]) == 0
    assert cli.main([*words, "--out", str(tmp_path / "b"), *FORKS]) == 0
    games = []
    for name in "ab":
        rows = map(json.loads, (tmp_path / name / "games.jsonl").read_text().splitlines())
        games.append(sorted((row["number"], row["start"], row["moves"], row["result"]) for row in rows))
    assert games[0] == games[1]
    assert re.search(r"\d workers? answered: ", capsys.readouterr().err)


class Deadly(Policy):
    """Plays the first legal move, and kills its process where one move is left: other games have ended by then."""

    kind = "deadly"

    def __init__(self, game: Game[Any]) -> None:
        self.game = game

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        if any(len(self.game.legal(state)) == 1 for state in states):
            os.kill(os.getpid(), signal.SIGKILL)
        return [Decision(int(self.game.legal(state)[0])) for state in states]

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> Deadly:
        return cls(GAME)


def test_a_group_that_kills_each_worker_in_its_middle_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.register("policies", "deadly")(Deadly)
    words = ["tournament", "--game", CONNECT, "--policy", "deadly", "random", "--rounds", "8", "--random-plies", "2"]
    try:
        assert cli.main([*words, "--games-at-once", "16", "--out", str(tmp_path / "a"), *FORKS]) == 2
    finally:
        registry.unregister("policies", "deadly")
    assert "5 workers were lost before they had answered anything" in capsys.readouterr().err
    assert (tmp_path / "a" / "games.jsonl").read_text().count("\n") > 0, "games of the group ended before"


@pytest.mark.parametrize("role", ["player", "judge"])
def test_a_tournament_refuses_workers_with_different_engines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    second = "x=oracle:differs" if role == "player" else "greedy"
    words = ["tournament", "--game", CONNECT, "--policy", "random", second, "--rounds", "6", "--random-plies", "2"]
    words += ["--reuse-openings", "--out", str(tmp_path / "a"), *FORKS]
    assert cli.main([*words, *(["--judge", "differs"] if role == "judge" else [])]) == 2
    said = capsys.readouterr().err
    one, other = (each.pid for each in Forks.started)
    host, name = re.escape(socket.gethostname()), "x" if role == "player" else "--judge"
    for late, early in ((one, other), (other, one)):
        if f"name 'fish {late}'" in said:
            message = (
                rf"worker {host}:{late}: its engine for {name} is another one than that of worker {host}:{early}: "
            )
            assert re.search(message + f"name 'fish {late}', not 'fish {early}'", said)
            break
    else:
        pytest.fail(said)


def test_a_worker_without_the_engine_is_named(
    positions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert label(positions, tmp_path / "b", f"broken?here={os.getpid()}", *FORKS) == 2
    said = capsys.readouterr().err
    assert f"worker {socket.gethostname()}:" in said
    assert "engine 'stockfish' not found in PATH; install it" in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda patch: patch.setattr(Versions, "here", staticmethod(lambda: Versions("0.0.1", "3.9"))),
            "has Python 3.9",
        ),
        (lambda patch: patch.setattr("genpolicy_labelling.cluster_oracle.make_oracle", _missing), "not found in PATH"),
        (lambda patch: patch.setattr("genpolicy_labelling.cluster_oracle.fetch", _full), "no space left on the disk"),
    ],
    ids=["version", "engine", "disk"],
)
def test_what_a_worker_lacks_ends_the_command_and_the_same_command_resumes(
    wrong: Any, said: str, positions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine that replaces a lost one has another version, no engine or a full disk; answers so far are kept."""
    log = tmp_path / "log"

    class Replaced(Forks):
        """Its third worker, which comes when both others are lost, is on a machine of its own."""

        def _launch(self, *arguments: Any) -> Any:
            with pytest.MonkeyPatch.context() as patch:
                if len(self.started) >= 2:
                    Versions.here()
                    wrong(patch)
                return super()._launch(*arguments)

    registry.register("clusters", "replaced")(Replaced)
    try:
        oracle = f"logged?log={log}&kill=70+75"
        words = (positions, tmp_path / "b", oracle)
        assert label(*words, "--cluster", "replaced:here", "--parallel", "2") == 2
    finally:
        registry.unregister("clusters", "replaced")
    assert re.search(rf"error: worker \S+:\d+:? .*{re.escape(said)}", capsys.readouterr().err)
    seen, kept = len(asked(log)), answered_in(tmp_path / "b")
    assert kept
    assert label(*words, *FORKS) == 0
    assert not {mark(text) for text in asked(log)[seen:]} & kept
    assert label(positions, tmp_path / "a", f"logged?log={tmp_path / 'one'}") == 0
    assert Dataset.open(tmp_path / "a").checksum == Dataset.open(tmp_path / "b").checksum


def _missing(*arguments: Any) -> Any:
    raise EngineError("engine 'stockfish' not found in PATH; install it")


def _full(*arguments: Any, **more: Any) -> Any:
    raise disk_full(Path("kept"))


def _say_what_i_am(pipe: Any, what: str) -> None:
    pipe.send(("ready", {"about": {"name": what, "pid": os.getpid()}, "scale": 1.0, "together": 1}))
    pipe.recv()


def _end(pipe: Any) -> None:
    os._exit(3)


def test_workers_with_another_engine_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genpolicy_labelling.cluster_oracle.serve", lambda pipe, *rest: _say_what_i_am(pipe, "engine"))
    oracle = ClusterOracle("logged?log=x", GAME, Forks("here", 2))
    with pytest.raises(EngineError, match=r"worker \S+: its oracle is another one .* worker \S+: pid \d+, not"):
        list(oracle.run(_one_block(), 4))
    oracle.close()


def _one_block() -> Iterator[Any]:
    def task() -> Any:
        yield GAME.parse()

    yield [task()]


def test_workers_that_end_at_once_are_given_up() -> None:
    crew = Crew(Forks("here", 2), _end)
    for _ in range(4):
        assert isinstance(crew.event()[1], Lost)
    with pytest.raises(ClusterError, match="5 workers were lost before they had answered anything"):
        crew.event()
    crew.close()


def _answer_once(pipe: Any) -> None:
    pipe.send(("answer", None))
    pipe.recv()


def test_a_machine_that_takes_many_workers_with_it_does_not_end_the_work() -> None:
    crew = Crew(Forks("here", 7), _answer_once)
    for _ in range(7):
        crew.credit(crew.event()[0])
    for process in list(Forks.started):
        process.kill()
    events = [crew.event() for _ in range(14)]
    assert sum(isinstance(message, Lost) for _, message in events) == 7
    assert sum(message == ("answer", None) for _, message in events) == 7
    crew.close()


def test_a_worker_that_waited_long_for_room_has_its_time_when_it_is_alone() -> None:
    """Its time to connect begins when the last other worker ends, not when it was asked for."""
    with Forks("here", 2) as cluster:
        cluster.start(_wait)
        assert isinstance(next(cluster.events(20))[1], Hello)
        late = cluster.start(_wait)
        late.begun -= 1000
        Forks.started[0].kill()
        kinds = set()
        while len(kinds) < 2:
            kinds |= {type(event) for _, event in cluster.events(20)}
        assert kinds == {Lost, Hello}


def test_other_versions_are_named() -> None:
    ours = Versions.here()
    ours.require(Versions.here(), "here:1")
    with pytest.raises(ClusterError, match=r"worker far:7 has Python 3\.9, this machine .*same version"):
        ours.require(Versions(ours.genpolicy, "3.9"), "far:7")
    with pytest.raises(ClusterError, match=r"worker far:7 has genpolicy 0\.0\.1"):
        ours.require(Versions("0.0.1", ours.python), "far:7")


def _wait(pipe: Any) -> None:
    pipe.recv()


def test_nobody_joins_without_a_token() -> None:
    with Forks("here", 1) as cluster:
        address = cluster._listener.getsockname()
        for first in (b"\0\0\0\x20" + b"x" * 32, b"\0\0\0\x04\x80\x04N.", b"GET / HTTP/1.0\r\n\r\n" + b" " * 99, b""):
            with socket.create_connection(address) as stranger:
                stranger.sendall(first)
                stranger.shutdown(socket.SHUT_WR)
                list(cluster.events(0.2))
        slow = socket.create_connection(address)
        slow.sendall(b"x" * 7)  # and nothing more: nobody waits for it
        list(cluster.events(0.2))
        worker = cluster.start(_wait)
        met, hello = next(cluster.events(20))
        assert (met is worker, isinstance(hello, Hello), len(cluster.workers)) == (True, True, 1)
        Forks.started[-1].kill()
        lost, event = next(cluster.events(20))
        assert (lost is worker, isinstance(event, Lost)) == (True, True)
        slow.close()


@pytest.mark.parametrize("text", ["", " ", "forks:"])
def test_an_empty_address_is_refused(text: str) -> None:
    with pytest.raises((ValueError, ClusterError), match="must be local or the address"):
        open_cluster(text)
