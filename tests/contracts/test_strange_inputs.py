"""What a reviewer found by hand: inputs that hung, filled the memory, or were believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from genpolicy.cli import main
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import DatasetError
from genpolicy.policies.weights import find_device
from genpolicy.training.checkpoint import Checkpoint, load_latest, save_checkpoint
from genpolicy.training.config import TrainerConfig
from genpolicy_chess.pgn import _without_suffix
from tests.fuzz.malicious_folders import good_policy
from tests.small_datasets import CONNECT, write_dataset


@pytest.mark.parametrize(
    ("word", "bare"),
    [("e4", "e4"), ("exd6e.p.+", "exd6"), ("exd6ep", "exd6"), ("Qh7#!?", "Qh7"), ("e" + "+" * 10**6 + "x", None)],
)
def test_what_follows_a_move_in_a_pgn_is_taken_off_in_linear_time(word: str, bare: str | None) -> None:
    assert _without_suffix(word) == (bare or word)


def test_a_flipped_format_is_damage_and_the_checkpoint_before_is_taken(tmp_path: Path) -> None:
    for step in (1, 2):
        last = save_checkpoint(tmp_path, Checkpoint(step, {"model": {"w": torch.ones(2)}}, {"seed": 0}))
    state = json.loads((last / "state.json").read_text())
    (last / "state.json").write_text(json.dumps(state | {"format": 3}))
    said: list[str] = []
    found = load_latest(tmp_path, said.append)
    assert found is not None
    assert found.num_updates == 1
    assert "damaged" in said[0]


def test_a_pipe_as_a_data_set_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dataset.yaml")
    with pytest.raises(DatasetError, match="pipe"):
        Dataset.open(tmp_path)


@pytest.mark.parametrize("name", ["meta", "hpu", "xla", "vulkan"])
def test_devices_that_cannot_play_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not supported"):
        find_device(name)


def test_a_seed_beyond_64_bits_is_named() -> None:
    with pytest.raises(ValueError, match=r"trainer\.seed"):
        TrainerConfig(seed=1 << 64)


def test_perft_without_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perft", "--game", "chess", "--depth", "1200"]) == 2
    assert "--depth" in capsys.readouterr().err


def test_control_characters_of_files_do_not_reach_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    obeyed = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e"
    players = f'[White "{obeyed}a"]\n[Black "{obeyed}b"]\n[Result "1-0"]\n\n'
    (tmp_path / "names.pgn").write_text(f"{players}1. e4 e5 1-0\n\n{players}1. Ke9 1-0\n")
    assert main(["ratings", str(tmp_path / "names.pgn"), "--game", "chess"]) == 0
    write_dataset(tmp_path / "data", CONNECT, [Record(".../.../... X", line=obeyed, ended=False, split="train")])
    facts = tmp_path / "data" / "dataset.yaml"
    facts.write_text(facts.read_text().replace("complete: true", "complete: false"))  # it has no counts
    assert main(["data", "info", str(tmp_path / "data")]) == 0
    folder = good_policy(tmp_path / "policy")
    more = {obeyed: torch.zeros(1), "x" * 10_000: torch.zeros(1)}
    save_file(load_file(folder / "model.safetensors") | more, folder / "model.safetensors")
    assert main(["play", "--policy", str(folder), "--self-play", "1"]) == 2
    said = "".join(capsys.readouterr())
    assert said.count("red") >= 4
    assert "left out" in said
    assert "is not known" in said
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said)
    assert len(said) < 4_000


def test_a_record_without_a_position_is_not_that_of_the_initial_one(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path, CONNECT, [Record(".../.../... X", split="train")]).folder
    shard = folder / "records-00000.parquet"
    table = pq.read_table(shard)
    at = table.schema.get_field_index("state")
    pq.write_table(table.set_column(at, pa.field("state", pa.string()), pa.nulls(1, pa.string())), shard)
    with pytest.raises(DatasetError, match=r"records-00000\.parquet: a record has no 'state'"):
        next(Dataset.open(folder, verify=False).records())


def test_the_message_about_a_long_line_is_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.epd").write_text("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - bm " + '"a' * 199_999 + "\n")
    command = ["data", "import", str(tmp_path / "e.epd"), "--game", "chess", "--out", str(tmp_path / "x")]
    for more in ([], ["--skip-bad"]):
        assert main([*command, *more]) == 2
        said = capsys.readouterr().err
        assert "e.epd:1" in said
        assert "neither counters nor operations" in said
        assert len(said) < 20_000
