"""Data sets that are damaged, or made to fill the memory of whoever opens them."""

import dataclasses
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from genpolicy import files as storage
from genpolicy.data.records import SCHEMA, Dataset
from genpolicy.errors import DatasetError
from tests.data.record_sets import make_records, write


@pytest.mark.parametrize("where", [0, 1, 100, -9, -1])
def test_a_truncated_shard_is_named(tmp_path, where) -> None:
    write(tmp_path / "d", make_records(8))
    shard = tmp_path / "d" / "records-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:where])
    for verify in (True, False):
        with pytest.raises(DatasetError, match=r"records-00001.parquet: damaged or truncated.*restore"):
            Dataset.open(tmp_path / "d", verify=verify)


@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 0.99])
def test_a_flipped_byte_is_noticed(tmp_path, part) -> None:
    write(tmp_path / "d", make_records(8))
    shard = tmp_path / "d" / "records-00001.parquet"
    data = bytearray(shard.read_bytes())
    data[int(part * len(data))] ^= 0x10
    shard.write_bytes(data)
    with pytest.raises(DatasetError, match=r"records-00001.parquet: damaged"):
        Dataset.open(tmp_path / "d")


def test_other_damage(tmp_path) -> None:
    folder = tmp_path / "d"
    with pytest.raises(DatasetError, match="no such folder"):
        Dataset.open(folder)
    folder.mkdir()
    with pytest.raises(DatasetError, match=r"holds no dataset\.yaml"):
        Dataset.open(folder)
    folder.rmdir()
    write(folder, make_records(8))
    info = yaml.safe_load((folder / "dataset.yaml").read_text())

    def say(data) -> None:
        (folder / "dataset.yaml").write_text(yaml.safe_dump(data) if isinstance(data, dict) else data)

    say({**info, "format": 99})
    with pytest.raises(DatasetError, match=r"format 99.*upgrade"):
        Dataset.open(folder)
    say({**info, "colour": "blue"})
    with pytest.raises(DatasetError, match="colour"):
        Dataset.open(folder)
    say("a: [unclosed")
    with pytest.raises(DatasetError, match=r"dataset.yaml: unreadable"):
        Dataset.open(folder)
    say("just text")
    with pytest.raises(DatasetError, match="format"):
        Dataset.open(folder)
    say({**info, "shards": []})
    with pytest.raises(DatasetError, match="no finished records"):
        Dataset.open(folder)
    say(info)
    shard = folder / "records-00000.parquet"
    pq.write_table(pa.table({"fen": ["x"] * 4}), shard)
    info["shards"][0]["sha256"] = storage.sha256_of(shard)
    say(info)
    with pytest.raises(DatasetError, match=r"records-00000.parquet: columns are fen"):
        Dataset.open(folder)
    shard.unlink()
    with pytest.raises(DatasetError, match=r"records-00000.parquet: shard is missing"):
        Dataset.open(folder)
    os.mkfifo(shard)
    with pytest.raises(DatasetError, match=r"records-00000.parquet: shard is missing, or not a file"):
        Dataset.open(folder)


def test_a_shard_is_in_its_folder(tmp_path) -> None:
    folder = tmp_path / "data"
    write(folder, make_records(4))
    shard = folder / "records-00000.parquet"
    shard.rename(folder / "other.parquet")
    shard.symlink_to("other.parquet")
    assert Dataset.open(folder).num_records == 4
    (folder / "other.parquet").rename(tmp_path / "elsewhere.parquet")
    shard.unlink()
    shard.symlink_to("../elsewhere.parquet")
    with pytest.raises(DatasetError, match=r"records-00000.parquet: is a link out of the folder, to .*elsewhere"):
        Dataset.open(folder)


def test_a_small_file_of_enormous_records_is_refused_before_they_fill_the_memory(tmp_path) -> None:
    folder, number = tmp_path / "data", 64 * 60
    write(folder, make_records(4))
    shard = folder / "records-00000.parquet"
    columns = {name: pa.nulls(number, SCHEMA.field(name).type) for name in SCHEMA.names}
    columns |= {name: pa.array(["x" * 300_000], pa.string()).take(pa.array([0] * 64)) for name in ("state", "line")}
    columns |= {"ended": pa.array([False] * number), "split": pa.array(["train"] * number)}
    with pq.ParquetWriter(shard, SCHEMA, compression="zstd") as out:
        for _ in range(number // 64):
            out.write_table(pa.table({n: c[:64] for n, c in columns.items()}, schema=SCHEMA))
    info = yaml.safe_load((folder / "dataset.yaml").read_text())
    info["shards"] = [{**info["shards"][0], "rows": number, "sha256": storage.sha256_of(shard)}]
    (folder / "dataset.yaml").write_text(yaml.safe_dump(info))
    assert shard.stat().st_size < 1 << 20
    with pytest.raises(DatasetError, match=r"records-00000.parquet: \d+ of its records take .* do not use it"):
        next(iter(Dataset.open(folder).batches()))


def test_a_record_of_many_megabytes_is_refused_before_it_is_unpacked(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "data"
    write(folder, [dataclasses.replace(make_records(1)[0], state="x" * 40_000_000)])
    assert (folder / "records-00000.parquet").stat().st_size < 1 << 20
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("unpacked"))
    with pytest.raises(DatasetError, match=r"records-00000.parquet: 1 of its records take .* do not use it"):
        next(iter(Dataset.open(folder).batches()))
