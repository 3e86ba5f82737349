"""Ray: two workers on this machine label with a real engine, and lose nothing when they are killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from genpolicy import cli, registry
from genpolicy.cli import StoppedError, stopped_by_signals
from genpolicy.data.oracle import Oracle, make_oracle
from genpolicy.data.records import Dataset, DatasetInfo
from genpolicy.errors import EngineError
from genpolicy_common.cluster import open_cluster
from genpolicy_engines.oracle import find_engine
from genpolicy_labelling.cluster_oracle import ClusterOracle
from genpolicy_labelling.label import label
from genpolicy_labelling.writer import DatasetWriter

ray = pytest.importorskip("ray", reason="needs the extra [ray]")
pytest.importorskip("chess", reason="needs the extra [chess]")

GAME = registry.load_game("chess")
NODES = "nodes=300"


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    """Ray for all tests of this module: it takes seconds to start."""
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def stockfish() -> str:
    try:
        return find_engine("stockfish")
    except EngineError as error:
        pytest.skip(f"needs Stockfish: {error}")


@pytest.fixture(scope="module")
def positions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred positions of one random game after the other."""
    folder, draw, texts = tmp_path_factory.mktemp("positions"), random.Random(0), set[str]()
    while len(texts) < 100:
        state = GAME.parse()
        for _ in range(draw.randint(4, 40)):
            if GAME.outcome(state) is None:
                state = GAME.play(state, draw.choice(GAME.legal(state).tolist()))
        if GAME.outcome(state) is None:
            texts.add(GAME.format(state))
    (folder / "positions.epd").write_text("\n".join(sorted(texts)))
    words = ["data", "import", str(folder / "positions.epd"), "--game", "chess", "--out", str(folder / "data")]
    assert cli.main(words) == 0
    return folder / "data"


def labelled(folder: Path, oracle: Oracle, source: Dataset, progress: Callable[..., None] = lambda done: None) -> str:
    info = DatasetInfo(game=GAME.spec, made_by="label", oracle=oracle.describe(), command="test")
    with DatasetWriter(folder, info) as writer:
        label(source, writer, GAME, oracle, 4, progress=progress)
        writer.commit_all()
        return ",".join(str(shard["sha256"]) for shard in writer.info.shards)


@pytest.mark.thorough
def test_two_workers_give_the_records_of_one_machine(
    started: None, stockfish: str, positions: Path, tmp_path: Path
) -> None:
    source = Dataset.open(positions)
    with make_oracle(f"{stockfish}?{NODES}", GAME) as oracle:
        here = labelled(tmp_path / "here", oracle, source)
    said: list[str] = []
    with ClusterOracle(f"{stockfish}?{NODES}", GAME, open_cluster("local", 2), single=True, say=said.append) as oracle:
        assert labelled(tmp_path / "there", oracle, source) == here
        assert "answered" in oracle.report()
    assert any("joins" in text for text in said)


@pytest.mark.parametrize(
    "kills", [pytest.param(2, marks=pytest.mark.thorough), pytest.param(50, marks=pytest.mark.slow)]
)
def test_killed_workers_lose_nothing(
    started: None, stockfish: str, positions: Path, tmp_path: Path, kills: int
) -> None:
    source = Dataset.open(positions)
    wait, killed = 100 // (kills + 1), set[str]()

    class Killing(ClusterOracle):
        num_answers = 0

        def _take(self, worker, block, answers):  # type: ignore[no-untyped-def]
            super()._take(worker, block, answers)
            self.num_answers += len(answers)
            # Answers of a worker may come after its death.
            if len(killed) < kills and self.num_answers >= wait and worker.name not in killed:
                self.num_answers = 0
                killed.add(worker.name)
                os.kill(int(worker.name.split(":")[1]), signal.SIGKILL)

    done: list[int] = []
    with Killing(f"{stockfish}?{NODES}", GAME, open_cluster("local", 2), single=True) as oracle:
        labelled(tmp_path / "there", oracle, source, lambda result: done.append(result.number))
        assert len(killed) >= 0.8 * kills
        assert len(killed) - 2 <= oracle._crew.num_lost <= len(killed)  # the end may come before the last loss
    assert sorted(done) == list(range(source.num_records))
    table = Dataset(tmp_path / "there", DatasetInfo.read(tmp_path / "there"))
    assert [record.state for record in table.records()] == [record.state for record in source.records()]
    assert all(record.line for record in table.records())


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("somewhere", "is not an address: give HOST:PORT"),
        ("127.0.0.1:1", "nothing answers there"),
        ("ray://127.0.0.1:1", "nothing answers there"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_named(address: str, says: str, warm_start: None) -> None:
    call = (
        "import sys; from genpolicy_common.cluster import open_cluster, ClusterError\n"
        "try: open_cluster(sys.argv[1])\nexcept ClusterError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", call, address], capture_output=True, text=True, timeout=60)
    assert address in done.stdout
    assert says in done.stdout


@pytest.mark.thorough
def test_a_token_that_is_missing_is_named(tmp_path: Path) -> None:
    call = (
        "import sys; from genpolicy_common.cluster import open_cluster, ClusterError\n"
        "try: open_cluster(sys.argv[1])\nexcept ClusterError as error: print(error)"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", call, address], env=environment, capture_output=True, text=True, timeout=120
        )
    assert f"--cluster {address}: Token authentication is enabled but no authentication token was found" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_spelling_of_an_address_labels(started: None, tmp_path: Path) -> None:
    """``HOST:PORT`` with the token and without it, and ``ray://`` by a server for clients; ``auto`` takes whatever runs
    on the machine, and so is not tested."""
    address = ray.get_runtime_context().gcs_address
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words = ["data", "label", "--data", str(tmp_path / "all"), "--oracle", "solver"]
    small = "connect:rows=3,cols=3,k=3"
    assert cli.main(["data", "import", "all", "--game", small, "--max-positions", "50", "--out", words[3]]) == 0
    assert cli.main([*words, "--out", str(tmp_path / "here")]) == 0
    call = [sys.executable, "-c", "import sys; from genpolicy.cli import main; sys.exit(main())", *words]
    without = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    done = subprocess.run(
        [*call, "--out", str(tmp_path / "none"), "--cluster", address], env=without, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "give RAY_AUTH_MODE=token" in done.stderr
    server_call = [sys.executable, "-m", "ray.util.client.server", "--address", address, "--host", "127.0.0.1"]
    clients = subprocess.Popen([*server_call, "--port", str(port), "--mode", "proxy"])
    try:
        for name, spelling in (("direct", address), ("client", f"ray://127.0.0.1:{port}")):
            deadline = time.monotonic() + 60
            while name == "client" and not listens(port):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            there = tmp_path / name
            done = subprocess.run(
                [*call, "--out", str(there), "--cluster", spelling, "--parallel", "2"], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            assert Dataset.open(there).checksum == Dataset.open(tmp_path / "here").checksum
    finally:
        clients.terminate()
        clients.wait(60)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_workers_that_wait_for_room_do_not_each_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from genpolicy_ray import cluster as module

    clock, cancelled = [0.0], []

    def wait(handles: list[object], *, timeout: float) -> tuple[list[object], list[object]]:
        clock[0] += timeout  # none of them ends by itself
        return [], handles

    monkeypatch.setattr(module.ray, "is_initialized", lambda: True)  # Ray itself has no part in this
    monkeypatch.setattr(module.ray, "remote", lambda **_: lambda _: SimpleNamespace(remote=lambda *_: object()))
    monkeypatch.setattr(module.ray, "wait", wait)
    monkeypatch.setattr(module.ray, "cancel", lambda handle, force: cancelled.append(handle))
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    cluster = module.RayCluster("local", 30)
    for _ in range(cluster.num_places):
        cluster.start(print)
    cluster.close()
    assert len(cancelled) == 30
    assert clock[0] <= module.CLOSE_S, "all of them have this long together"


def test_sigterm_while_ray_starts_is_left_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ended with status 15 and did not say how to resume: Ray's own handler had the signal."""
    from genpolicy_ray import cluster as module

    def init(*_: object, **__: object) -> None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))  # as Ray does
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(module.ray, "init", init)
    with stopped_by_signals(), pytest.raises(StoppedError, match="SIGTERM"):
        module.RayCluster("local")


def test_without_ray_the_extra_is_named(warm_start: None) -> None:
    call = (
        "import sys; sys.modules['ray'] = None\nfrom genpolicy_common.cluster import open_cluster\n"
        "from genpolicy.errors import RegistryError\n"
        "try: open_cluster('local')\nexcept RegistryError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=60)
    assert "pip install 'genpolicy[ray]'" in done.stdout, done
