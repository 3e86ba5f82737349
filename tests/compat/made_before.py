"""What the maker of the fixtures and their test share: archives, answers of policies as plain data, the machine's bits.

Nothing here imports a module of genpolicy beyond its public names, so it runs with any version of the code.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import lzma
import math
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import genpolicy

DATA = Path(__file__).parent / "data"
UNTIMED = ("ms",)
"""Numbers of ``Decision.stats`` that no two runs have in common."""
TOLERANCE = 1e-5
"""Of probabilities and values where the machine's bits are others. Between AVX2's kernels and those of a processor
without it (``ATEN_CPU_CAPABILITY=default``, oneDNN, MKL and NumPy held to SSE) the largest difference was 1.2e-6."""


# Archives. One file a fixture: git ignores folders called runs/, and equal parts of many small files are packed once.


def pack(archive: Path, folder: Path) -> None:
    """Write a folder's content; the same files give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if not path.is_file():
                continue
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = path.stat().st_size
            entry.mode = 0o644
            with path.open("rb") as file:
                tar.addfile(entry, file)
    archive.write_bytes(lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(name: str, folder: Path) -> Path:
    """Lay a fixture's files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(DATA / f"{name}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder


def read_json(name: str) -> Any:
    """A plain or packed JSON file of the fixtures."""
    data = (DATA / name).read_bytes()
    return json.loads(lzma.decompress(data) if name.endswith(".xz") else data)


def contents(folder: Path) -> dict[str, str]:
    """Path -> SHA-256 of every file below a folder, but for locks and what readers build for themselves."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock" and ".cache" not in path.parts
    }


def rows_digest(folder: Path) -> str:
    """A digest of a finished data set's records: every column of every row, in order, whatever the Parquet writer."""
    import pyarrow.parquet as pq
    import yaml

    rows: list[dict[str, Any]] = []
    for shard in yaml.safe_load((folder / "dataset.yaml").read_text())["shards"]:
        rows += pq.read_table(folder / shard["file"]).to_pylist()
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


# The machine.


def versions() -> dict[str, str]:
    """Versions of what computes; another one may round differently."""
    return {name: importlib.metadata.version(name) for name in ("torch", "numpy", "diffusers")}


def probe() -> str:
    """A digest of the bits that this machine's kernels give for fixed inputs.

    Two processors, or two builds of torch, sum in another order, with or without fused multiply-add, and their exp and
    log end in other digits. It asks torch, NumPy and the C library alone and none of our code, so that a change of ours
    can never pass for a change of the machine.
    """
    digest = hashlib.sha256()

    def take(values: Tensor) -> None:
        digest.update(values.detach().contiguous().numpy().tobytes())

    def numbers(*shape: int) -> Tensor:
        count = math.prod(shape)
        return (((torch.arange(count) * 7919) % 1009 - 504).float() / 256).reshape(shape)

    for rows in (1, 3, 6, 16, 64):
        for length, width in ((10, 4), (21, 8), (36, 16)):
            x = numbers(rows, length, width).requires_grad_()
            hidden = functional.layer_norm(x, (width,), numbers(width), numbers(width))
            query, key, value = functional.linear(hidden, numbers(3 * width, width), numbers(3 * width)).chunk(3, -1)
            heads = [each.reshape(rows, length, 2, width // 2).transpose(1, 2) for each in (query, key, value)]
            seen = functional.scaled_dot_product_attention(*heads, attn_mask=numbers(2, length, length))
            hidden = x + seen.transpose(1, 2).reshape(x.shape)
            hidden = hidden + functional.linear(
                functional.gelu(functional.linear(hidden, numbers(4 * width, width))), numbers(width, 4 * width)
            )
            logits = hidden @ numbers(19, width).T
            loss = functional.cross_entropy(logits.flatten(0, 1), torch.arange(rows * length) % 19)
            loss.backward()  # type: ignore[no-untyped-call]
            assert x.grad is not None
            for each in (logits, logits.double().log_softmax(-1), loss, x.grad):
                take(each)
    image = numbers(2, 8, 8, 8)
    image = functional.conv2d(functional.silu(functional.group_norm(image, 4)), numbers(12, 8, 3, 3), padding=1)
    take(image)
    doubles = numbers(500).double().numpy()
    digest.update(np.exp(doubles).tobytes() + np.log(np.abs(doubles) + 1).tobytes() + (doubles @ doubles).tobytes())
    for each in doubles.tolist():
        digest.update(np.array([math.exp(each), math.log(1 + abs(each)), math.tanh(each), 10**each]).tobytes())
    return digest.hexdigest()


# Answers of policies. Numbers are written as ``float.hex`` does, whose digits are the bits.


def state_of(game: Any, spelled: str) -> Any:
    """The position of ``text`` or ``text | move move``; an empty text is the initial position."""
    text, _, moves = spelled.partition("|")
    state = game.parse(text.strip() or None)
    for move in moves.split():
        state = game.play(state, game.moves.index(move))
    return state


def _move_text(game: Any, move: int) -> str | None:
    return None if move < 0 else str(game.moves[move])


def plain(game: Any, decision: Any) -> dict[str, Any]:
    """A decision as JSON holds it, moves by their names."""
    policy = decision.policy
    return {
        "move": _move_text(game, decision.move),
        "policy": None if policy is None else {str(game.moves[move]): float(p).hex() for move, p in policy.items()},
        "value": None if decision.value is None else float(decision.value).hex(),
        "line": [_move_text(game, move) for move in decision.line],
        "states": list(decision.states),
        "stats": {name: float(x).hex() for name, x in sorted(decision.stats.items()) if name not in UNTIMED},
    }


def answers(case: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """What a case's policy answers, call by call."""
    policy = genpolicy.load_policy(case["spec"], **case.get("options", {}))
    try:
        policy.seed(case["seed"])
        game = policy.game
        return [[plain(game, d) for d in policy.decide([state_of(game, s) for s in call])] for call in case["asked"]]
    finally:
        policy.close()


def dreams(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a case's policy imagines step by step, position by position."""
    policy = genpolicy.load_policy(case["spec"], **case.get("options", {}))
    try:
        policy.seed(case["seed"])
        game, told = policy.game, []
        for spelled in case["dreamt"]:
            heard: list[int] = []
            dream = policy.dream(state_of(game, spelled), lambda step, heard=heard: heard.append(step.index))
            assert heard == [step.index for step in dream.steps]
            steps = [
                {
                    "time": step.time,
                    "of": step.num_steps,
                    "tokens": _digest(step.tokens),
                    "guess": _digest(step.guess),
                    "confidence": float(np.mean(step.confidence)).hex(),
                    "policy": {str(game.moves[move]): float(p).hex() for move, p in step.policy.items()},
                }
                for step in dream.steps
            ]
            told.append({"viewer": dream.viewer, "steps": steps, "decision": plain(game, dream.decision)})
        return told
    finally:
        policy.close()


def _digest(tokens: Iterable[int]) -> str:
    return hashlib.sha256(np.array(list(tokens), "<i8").tobytes()).hexdigest()[:16]


FLOATS = ("policy", "value", "stats", "confidence")
"""Keys below which numbers stand; all else is compared as it is."""


def differences(was: Any, now: Any, *, bits: bool, where: str = "", floats: bool = False) -> list[str]:
    """Where two answers differ; [] where they do not.

    What the old answer does not have (a new number among the stats) does not count as a difference.

    Args:
        was: As recorded.
        now: As now.
        bits: Compare numbers bit for bit, else within ``TOLERANCE``.
        where: The way here, for the text.
        floats: Texts here are numbers.
    """
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        if missing := sorted(set(was) - set(now)):
            return [f"{where}: {missing} missing"]
        pairs: Sequence[tuple[Any, Any, Any]] = [(key, was[key], now[key]) for key in was]
    elif isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            return [f"{where}: {len(was)} entries, now {len(now)}"]
        pairs = [(index, one, other) for index, (one, other) in enumerate(zip(was, now, strict=True))]
    else:
        close = was == now
        if not close and floats and not bits and isinstance(was, str) and isinstance(now, str):
            close = math.isclose(float.fromhex(was), float.fromhex(now), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return [] if close else [f"{where}: {was!r}, now {now!r}"]
    return [
        text
        for key, one, other in pairs
        for text in differences(one, other, bits=bits, where=f"{where}/{key}", floats=floats or key in FLOATS)
    ]
