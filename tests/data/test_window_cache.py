"""The cache of windows: damage, where it lies, several processes, memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genpolicy import load_game, registry
from genpolicy.data import array_cache, window_build
from genpolicy.data.array_cache import ArrayFiles
from genpolicy.data.counter_rng import Shuffle
from genpolicy.data.records import Dataset, Record
from genpolicy.data.window_cache import WindowCache
from genpolicy.data.window_encoder import WindowEncoder
from genpolicy.data.window_source import CachedWindows, build_windows
from genpolicy.data.windows import COLUMNS, WindowOptions
from genpolicy.errors import DatasetError
from genpolicy.files import DiskFullError
from genpolicy.game import Game
from genpolicy.sequence import Layout
from tests.small_datasets import CONNECT, solved_connect, write_dataset

pytestmark = pytest.mark.usefixtures("warm_start")


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return load_game(CONNECT)


def windows(dataset: Dataset, game: Game[Any], layout: Layout, split: str = "train", **options: Any) -> CachedWindows:
    return build_windows(dataset, split, game, layout, WindowOptions(**options))


def fresh(tmp_path: Path) -> tuple[Dataset, Path]:
    return solved_connect(tmp_path / "data", every=20), tmp_path / "data" / ".cache"


@pytest.mark.parametrize("damage", ["flip", "truncate", "meta", "missing"])
def test_a_damaged_cache_is_built_again(game: Game[Any], tmp_path: Path, damage: str) -> None:
    dataset, cache = fresh(tmp_path)
    layout = Layout(game, "s-asa", 2)
    before = windows(dataset, game, layout).batch(np.arange(150), 0).tokens
    (folder,) = cache.iterdir()
    file = folder / ("meta.json" if damage == "meta" else "tokens.bin")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"flip": data, "truncate": data[:-1], "meta": b"{"}[damage])
    assert bool((windows(dataset, game, layout).batch(np.arange(150), 0).tokens == before).all())
    assert json.loads((folder / "meta.json").read_text())["arrays"]["tokens"]["shape"][1] == layout.length


DAMAGES = [('"<i2"', '">i2"'), ('"|i1"', '"|u1"'), ("175\n", "174\n"), ('"crc32"', '"crc33"'), ("{", "[" * 20_000)]


@pytest.mark.parametrize("damage", DAMAGES, ids=["order", "type", "shape", "key", "deep"])
def test_a_cache_whose_description_is_damaged_is_built_again(
    game: Game[Any], tmp_path: Path, damage: tuple[str, str]
) -> None:
    dataset, cache = fresh(tmp_path)
    layout = Layout(game, "s-asa", 2)
    before = windows(dataset, game, layout).batch(np.arange(150), 0).tokens
    (meta,) = cache.glob("*/meta.json")
    text = meta.read_text()
    changed = text.replace(*damage)
    assert changed != text
    meta.write_text(changed)
    assert torch.equal(windows(dataset, game, layout).batch(np.arange(150), 0).tokens, before)
    assert meta.read_text() == text


def test_a_process_that_finds_damage_leaves_what_another_has_built_meanwhile(
    game: Game[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, cache = fresh(tmp_path)
    layout = Layout(game, "s-asa", 2)
    windows(dataset, game, layout)
    (folder,) = cache.iterdir()
    (folder / "tokens.bin").write_bytes(b"")
    read, built = array_cache._checksum, folder / "built-by-another"

    def slow(path: Path) -> int:
        found = read(path)
        if not found and not built.exists():
            monkeypatch.setattr(array_cache, "_checksum", read)
            windows(dataset, game, layout)  # the other process
            built.touch()
        return found

    monkeypatch.setattr(array_cache, "_checksum", slow)
    windows(dataset, game, layout)
    assert built.exists()


def test_a_cache_in_the_place_of_another_is_built_again(game: Game[Any], tmp_path: Path) -> None:
    dataset, cache = fresh(tmp_path)
    layout = Layout(game, "s-asa", 2)
    num_train = len(windows(dataset, game, layout))
    (train,) = cache.iterdir()
    assert len(windows(dataset, game, layout, "test")) != num_train
    (test,) = {*cache.iterdir()} - {train}
    shutil.copytree(test, train, dirs_exist_ok=True)
    assert len(windows(dataset, game, layout)) == num_train


def test_a_cache_from_before_its_description_had_a_checksum_is_used(game: Game[Any], tmp_path: Path) -> None:
    dataset, cache = fresh(tmp_path)
    windows(dataset, game, Layout(game, "s-asa", 2))
    (meta,) = cache.glob("*/meta.json")
    content = json.loads(meta.read_text())
    del content["crc32"]
    meta.write_text(older := json.dumps(content))
    windows(dataset, game, Layout(game, "s-asa", 2))
    assert meta.read_text() == older


def test_the_cache_is_used_again_and_left_alone(game: Game[Any], tmp_path: Path) -> None:
    dataset, cache = fresh(tmp_path)
    windows(dataset, game, Layout(game, "s-asa", 2))
    (folder,) = cache.iterdir()
    written = (folder / "tokens.bin").stat().st_mtime_ns
    windows(dataset, game, Layout(game, "s-asa", 2))
    assert (folder / "tokens.bin").stat().st_mtime_ns == written
    windows(dataset, game, Layout(game, "s-asa", 3))
    windows(dataset, game, Layout(game, "s-asa", 2), viewer="absolute")
    assert len(list(cache.iterdir())) == 3
    windows(dataset, game, Layout(game, "s-asa", 2), columns=("result",))
    windows(dataset, game, Layout(game, "s-asa", 2), columns=("result", "value"))
    assert len(list(cache.iterdir())) == 5


def test_where_the_data_is_read_only_the_users_cache_serves(
    game: Game[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, cache = fresh(tmp_path)
    cache.write_text("a file, so no folder can be made here (root may write anywhere)")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert len(windows(dataset, game, Layout(game, "s-a", 1))) > 0
    assert list((tmp_path / "user" / "genpolicy" / "windows").iterdir())


def test_where_another_user_keeps_the_cache_private_ones_own_serves(
    game: Game[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, cache = fresh(tmp_path)
    cache.write_text("root may look into any folder")
    exists = Path.exists

    def private(path: Path) -> bool:
        if path.parent == cache:
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", private)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert len(windows(dataset, game, Layout(game, "s-a", 1))) > 0


def test_a_shipped_sample_is_cached_where_the_user_may_write(
    game: Game[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, cache = fresh(tmp_path)
    monkeypatch.setattr(dataset, "name", "sample:connect")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert len(windows(dataset, game, Layout(game, "s-a", 1))) > 0
    assert list((tmp_path / "user" / "genpolicy" / "windows").iterdir())
    assert not cache.exists()


@pytest.mark.thorough
def test_several_processes_give_the_same_cache(
    game: Game[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = solved_connect(tmp_path / "data")
    layout = Layout(game, "s-asa", 4)
    every = {"redraw": True, "columns": COLUMNS}
    alone = windows(dataset, game, layout, **every, cache_dir=tmp_path / "alone")
    monkeypatch.setattr(window_build, "PARALLEL_RECORDS", 1)
    monkeypatch.setattr(window_build, "num_cores", lambda: 2)
    together = windows(dataset, game, layout, **every, cache_dir=tmp_path / "together")
    (a,), (b,) = (tmp_path / "alone").iterdir(), (tmp_path / "together").iterdir()
    assert (a / "meta.json").read_text() == (b / "meta.json").read_text()  # it holds the checksums
    assert len(alone) == len(together)


def test_other_tokens_of_a_game_are_encoded_by_several_processes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chess = load_game("chess")
    layout = Layout(chess, "s-asa", 2, tokenizer=chess.tokenizers["plies"])
    start = chess.parse()
    record = Record(state=chess.format(chess.play(start, chess.moves.index("e2e4"))), line="e7e5 g1f3", split="train")
    dataset = write_dataset(tmp_path / "data", "chess", [record] * 40)
    alone = windows(dataset, chess, layout, cache_dir=tmp_path / "alone").batch(np.arange(40), 0).tokens

    def elsewhere(self: WindowEncoder, records: Any) -> Any:
        raise AssertionError(f"{len(records)} records encoded by this process")

    monkeypatch.setattr(window_build, "PARALLEL_RECORDS", 1)
    monkeypatch.setattr(window_build, "BATCH_ROWS", 16)
    monkeypatch.setattr(window_build, "num_cores", lambda: 2)
    monkeypatch.setattr(WindowEncoder, "encode", elsewhere)
    together = windows(dataset, chess, layout, cache_dir=tmp_path / "together")
    assert torch.equal(together.batch(np.arange(40), 0).tokens, alone)


def test_a_game_of_a_notebook_is_encoded_by_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(type(load_game(CONNECT))):  # type: ignore[misc]
        """Three in a row under another name."""

        def __init__(self) -> None:
            super().__init__(3, 3, 3, False)
            self.spec = "own"

    monkeypatch.setattr(registry, "_registered", {})
    registry.register("games", "own")(Own)
    own = load_game("own")
    monkeypatch.setattr(window_build, "PARALLEL_RECORDS", 1)
    monkeypatch.setattr(window_build, "BATCH_ROWS", 2)
    monkeypatch.setattr(window_build, "num_cores", lambda: 2)
    record = Record(state=own.format(own.parse()), line="b2", split="train")
    dataset = write_dataset(tmp_path / "data", "own", [record] * 5)
    assert len(windows(dataset, own, Layout(own, "s-a", 1))) == 5
    registry.unregister("games", "own")


@pytest.mark.thorough
def test_a_bad_record_in_a_worker_is_named_too(
    game: Game[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Record(state=game.format(game.parse()), line="b2", split="train")
    bad = Record(state=game.format(game.play(game.parse(), game.moves.index("a1"))), line="a1", split="train")
    records = [good] * window_build.BATCH_ROWS + [bad]
    monkeypatch.setattr(window_build, "PARALLEL_RECORDS", 1)
    monkeypatch.setattr(window_build, "num_cores", lambda: 2)
    dataset = write_dataset(tmp_path, game.spec, records)
    with pytest.raises(DatasetError, match=r"record train 2048 .*illegal"):
        windows(dataset, game, Layout(game, "s-a", 1))


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Dataset, dict[str, Any]]:
    """A data set that several processes encode; what these were started with."""
    started: dict[str, Any] = {}
    start = subprocess.Popen

    def note(command: list[str], **options: Any) -> Any:
        started.update(json.loads(command[-1]))
        if (left := started.pop("left", None)) is not None:
            (Path(started["scratch"]) / "unfinished-0.npz").symlink_to(left)
        started["session of its own"] = options.get("start_new_session", False)
        started.setdefault("processes", []).append(process := start(command, **options))
        return process

    monkeypatch.setattr(window_build, "PARALLEL_RECORDS", 1)
    monkeypatch.setattr(window_build, "num_cores", lambda: 2)
    monkeypatch.setattr(subprocess, "Popen", note)
    return solved_connect(tmp_path / "data"), started


def test_ctrl_c_does_not_reach_the_processes_that_encode(
    game: Game[Any], workers: tuple[Dataset, dict[str, Any]]
) -> None:
    dataset, started = workers
    windows(dataset, game, Layout(game, "s-a", 1))
    assert started["session of its own"]


def test_a_process_that_encodes_ends_with_the_one_that_wants_it(
    game: Game[Any], workers: tuple[Dataset, dict[str, Any]], tmp_path: Path
) -> None:
    dataset, started = workers
    windows(dataset, game, Layout(game, "s-a", 1))
    for parent, parts in ((os.getppid(), ["part-0.npz", "part-1.npz", "part-2.npz"]), (os.getpid(), [])):
        scratch = tmp_path / str(parent)
        scratch.mkdir()
        window_build._work({**started, "workers": 1, "worker": 0, "scratch": str(scratch), "parent": parent})
        assert sorted(path.name for path in scratch.iterdir()) == parts


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file whose disk is full")
def test_a_disk_that_is_full_for_a_process_that_encodes_is_named(
    game: Game[Any], workers: tuple[Dataset, dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    dataset, started = workers
    started["left"] = "/dev/full"
    with pytest.raises(DiskFullError, match="free some space"):
        windows(dataset, game, Layout(game, "s-a", 1))
    assert "Traceback" not in capfd.readouterr().err


def test_processes_that_encode_have_ended_when_their_folder_is_deleted(
    game: Game[Any], workers: tuple[Dataset, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, started = workers
    still_running: list[Any] = []

    def stop(*_: object) -> None:
        raise DatasetError("stopped")

    def look(*_: object, **__: object) -> None:
        still_running.extend(process for process in started["processes"] if process.returncode is None)

    monkeypatch.setattr(ArrayFiles, "append", stop)
    monkeypatch.setattr(shutil, "rmtree", look)
    with pytest.raises(DatasetError, match="stopped"):
        windows(dataset, game, Layout(game, "s-a", 1))
    assert not still_running


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_reading_a_large_cache_takes_no_memory(tmp_path: Path) -> None:
    rows = np.arange(200_000 * 256, dtype=np.int16).reshape(-1, 256)  # 98 MiB
    rows.tofile(tmp_path / "tokens.bin")
    facts = {"dtype": "<i2", "shape": list(rows.shape)}
    (tmp_path / "meta.json").write_text(json.dumps({"arrays": {"tokens": facts}}))
    cache = WindowCache(tmp_path)
    shuffle = Shuffle(len(rows), 0)
    before = resident_mib()
    highest = before
    for start in range(0, len(rows), 1000):
        indices = shuffle(np.arange(start, start + 1000), 0)
        assert (cache.gather("tokens", indices)[:, 0] == rows[indices, 0]).all()
        highest = max(highest, resident_mib())
    assert highest - before < 30


def resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
