"""More than 200 policy folders that a stranger might send, and a program that opens them all under watch.

``python -m tests.fuzz.malicious_folders FOLDER [EVERY]`` saves one good policy, changes a copy of it in each way (or in
every second one, ...), loads the copy and prints a line of JSON: what was raised, seconds, memory, and what it touched.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import re
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.small_datasets import CONNECT

CANARY = "GENPOLICY_CANARY"
"""An environment variable, a module on the path and the start of file names, none of which may be touched."""
Change = Callable[[Path], object]
TAGS = (
    "!!python/object/apply:canary_module.boom []",
    "!!python/name:canary_module.boom",
    "!!python/module:canary_module",
    "!!python/object/new:canary_module.Boom {}",
    f"!include {CANARY}",
    "!!binary aGVsbG8=",
    "!!set {a, b}",
    "!!timestamp 2001-12-14",
)
REFERENCES = (
    f"${{oc.env:{CANARY}}}",
    f"${{oc.env:{CANARY},none}}",
    f"${{oc.decode:${{oc.env:{CANARY}}}}}",
    f"a${{oc.create:${{oc.env:{CANARY}}}}}",
    "${game}",
    "${learner.network}",
    "${..width}",
    "${oc.select:game}",
)
TARGETS = ("{_target_: canary_module.boom}", "{_target_: os.system, _args_: [touch canary]}", "canary_module:Boom")
NUMBERS = ("-1", ".nan", ".inf", "1e999", "9" * 400, str(2**63), str(10**9), "9" * 5000)
TEXTS = ("x" * 100_000, "[" * 90 + "]" * 90, "\\0", '"\\x1b[2J"', "[]", "{a: 1}", "{}")
NUMERIC = ("width", "num_layers", "num_heads", "mlp_ratio", "dropout", "init_std", "horizon")
NAMES = (
    "geometry",
    "positions",
    "bias",
    "head",
    "paradigm",
    "kind",
    "name",
    "viewer",
    "future",
    "legal_mask",
    "policy",
)
INSTALLED = (".py", ".pyc", ".so", ".dist-info/METADATA", ".dist-info/entry_points.txt")
"""Ends of the files that imports and messages about packages open."""
WATCHED = ("subprocess.", "os.system", "os.exec", "os.fork", "os.spawn", "os.posix", "socket.", "pickle.find_class")
CHANGES_FILES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "shutil.rmtree")


def bombs() -> Iterator[tuple[str, str]]:
    """Texts that grow when their aliases are followed, or that are deep, long or endless."""
    letters = "abcdefghij"
    for name, first, level in (
        ("lists", "[x, x]", lambda a: f"[{', '.join(9 * ['*' + a])}]"),
        ("mappings", "{x: 1}", lambda a: "{" + ", ".join(f"{i}: *{a}" for i in range(9)) + "}"),
        ("merges", "{x: 1}", lambda a: "{" + f"<<: [{', '.join(9 * ['*' + a])}], {a}{a}: 1" + "}"),
    ):
        pairs = itertools.pairwise(letters)
        lines = [f"a: &a {first}", *(f"{b}: &{b} {level(a)}" for a, b in pairs)]
        yield f"bomb of {name}", "\n".join(lines) + "\n"
    yield "alias to itself", "bias_options: &a [*a]\n"
    yield "thousands of aliases", "a: &a x\nb: [" + ", ".join(20_000 * ["*a"]) + "]\n"
    yield "undefined alias", "a: *b\n"
    for name, text in (("[", "[" * 50_000), ("{", "{a: " * 50_000), ("- ", "- " * 20_000), ("closed", "[" * 500)):
        yield f"deep {name}", f"a:\n  {text}{']' * 500 if name == 'closed' else ''}\n"
    yield "many keys", "".join(f"k{i}: 1\n" for i in range(200_000))
    yield "long list", "a: [" + "1, " * 1_000_000 + "1]\n"
    yield "long key", "k" * 3_000_000 + ": 1\n"
    yield "long text", "a: " + "x" * 20_000_000 + "\n"
    yield "sexagesimal", "a: " + ":".join(["59"] * 50_000) + "\n"


def texts(config: str) -> Iterator[tuple[str, str | bytes]]:
    """Names and texts of hostile ``config.yaml``."""
    for name, bomb in bombs():
        yield f"{name}, behind", config + bomb
        yield f"{name}, before", bomb + config
    keys = [match[1] for match in re.finditer(r"(?m)^ *(\w+): \S", config)]
    for key in keys:
        for values in (TAGS[len(key) % 6 :][:2], REFERENCES[len(key) % 4 :][:2], TARGETS[len(key) % 3 :][:1]):
            for value in values:
                if (key, value) != ("cache_dir", TARGETS[2]):  # a folder for training, which playing does not use
                    yield f"{key}: {value}", _set(config, key, value)
    for key in ("value_weight", "depth", "weight", "move_rank"):
        yield from ((f"{key}: {value[:9]}", _set(config, key, value)) for value in ("-1", ".nan", "[1]"))
    for key in NUMERIC:
        yield from ((f"{key}: {value[:9]}", _set(config, key, value)) for value in NUMBERS)
    for key in (*NAMES, "game", "layout", "legal_mask"):
        yield from ((f"{key}: {value[:9]!r}", _set(config, key, value)) for value in TEXTS)
    for key, value in (
        ("num_timesteps", "1000000000"),
        ("num_timesteps", "-5"),
        ("num_timesteps", "2.5"),
        ("schedule", "canary_module"),
        ("_target_", "canary_module.boom"),
        ("order", "[]"),
    ):
        yield f"process {key} {value}", config.replace("kind: absorbing", f"kind: absorbing\n    {key}: {value}")
    for line in ("num_futures: 1", "depth: 1", "candidates: 0", "num_steps:", "horizon: 1"):
        key = line.partition(":")[0]
        yield from ((f"{key}: {value[:9]}", _set(config, key, value)) for value in ("-1", ".nan", str(10**9), "[1]"))
    for horizon in (400, 1800):
        long = _set(config, "horizon", str(horizon))
        yield f"{horizon} plies", long
        yield f"{horizon} plies on a board", long.replace("geometry: sequence", "geometry: board")
    board = _set(config, "geometry", "board")
    for key, value in (("num_layers", "1000000000"), ("num_layers", "3000"), ("board_code", "100000000")):
        yield f"board, {key}: {value}", _set(board, key, value)
    for more in ("learner: {}", "- x"):
        yield f"more: {more}", config + more + "\n"
    for play in ("num_steps: 1000000000000", "batch_size: -3", "device: cuda:99", "../x: 1", "temperature: .nan"):
        yield f"play: {play}", config.replace("legal_mask: true", play)
    for game in ("rows=100000,cols=100000", "rows=255,cols=255", "rows=-1", f"rows={'9' * 5000}", f"book={CANARY}"):
        yield f"game: {game[:20]}", _set(config, "game", f"'connect:{game}'")
    yield "a million horizons", config.replace("horizons: []", f"horizons: [{', '.join(9000 * ['1'])}]")
    yield (
        "thin layers",
        config.replace("width: 8", "width: 1")
        .replace("num_heads: 2", "num_heads: 1")
        .replace("num_layers: 1", "num_layers: 1000000000"),
    )
    yield from (("UTF-16", config.encode("utf-16")), ("Latin-1", b"\xe9: 1\n" + config.encode()), ("NUL", b"\0" * 99))
    yield from (("empty", ""), ("two documents", config + "---\n" + config), ("YAML 9.9", "%YAML 9.9\n---\n" + config))
    yield from (
        ("a list", "- 1\n"),
        ("a word", CANARY),
        ("doubled", config + "policy: random\n"),
        ("tab", "\t" + config),
    )


def _set(config: str, key: str, value: str) -> str:
    return re.sub(rf"(?m)^( *{key}:).*", lambda match: f"{match[1]} {value}", config, count=1)


def headers(weights: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of hostile ``model.safetensors``."""
    length = struct.unpack("<Q", weights[:8])[0]
    header, data = json.loads(weights[8 : 8 + length]), weights[8 + length :]
    first = next(name for name, entry in header.items() if len(set(entry["shape"])) > 1)

    def packed(changed: dict[str, Any] | bytes, data: bytes = data) -> bytes:
        text = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        return struct.pack("<Q", len(text)) + text + data

    for size in (0, 1, 2**31, 2**62, 2**63, 2**64 - 1, length + len(data), length - 3):
        yield f"header of {size} bytes", struct.pack("<Q", size) + weights[8:]
    begin, end = header[first]["data_offsets"]
    shape = header[first]["shape"]
    for key, value in (
        *[("data_offsets", pair) for pair in ([end, begin], [begin, end + 4], [0, 2**62], [-4, end], [begin], [4, 4])],
        *[("data_offsets", pair) for pair in ([begin, float("nan")], None, "0", [2**64, 2**64 + 4])],
        *[("shape", each) for each in ([2**62, 4], [2**32, 2**32], [-1], [], [0], shape[::-1], [10**30], "1", None)],
        *[("dtype", kind) for kind in ("BOOL", "U8", "I64", "F64", "F16", "F8_E4M3", "F4", "C64", "I32", "X9", "f32")],
        ("dtype", None),
    ):
        yield f"{key} {value}", packed({**header, first: {**header[first], key: value}})
    for kind, size in (("I32", 4), ("BOOL", 1), ("U8", 1), ("C64", 8)):
        changed, at = {}, 0
        for name, entry in header.items():
            number = (entry["data_offsets"][1] - entry["data_offsets"][0]) // 4
            changed[name] = {**entry, "dtype": kind, "data_offsets": [at, at := at + size * number]}
        yield f"all {kind}", packed(changed, bytes(at))
    yield "overlapping", packed({name: {**entry, "data_offsets": [0, 4]} for name, entry in header.items()})
    yield "one too many", packed({**header, "canary": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    yield "one too few", packed({name: entry for name, entry in header.items() if name != first})
    many = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(200_000)}
    yield "200,000 names", packed(many, b"")
    yield "deep", packed(b'{"a":' * 100_000)
    yield "metadata", packed({**header, "__metadata__": {"a": [1]}})
    twice = {first: {**header[first], "shape": [1]}}
    yield "doubled name", packed(json.dumps(header).encode()[:-1] + b"," + json.dumps(twice).encode()[1:])
    yield "blanks", packed(json.dumps(header).encode() + b" " * 100_000_001)
    yield "not a number", packed(header, b"\xff" * len(data))
    yield "not UTF-8", packed(b'{"\xff": 1}')
    yield "a list", packed(b"[]")
    yield from (("empty", b""), ("too long", weights + b"x" * 64), ("too short", weights[:-8]))
    yield "a pickle", pickle.dumps(Boom())
    yield "an archive", b"PK\x03\x04" + pickle.dumps(Boom()) * 9


class Boom:
    """Pickled, it makes a folder when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (f"{CANARY}-pickled",)


def changes(good: Path) -> Iterator[tuple[str, Change]]:
    """Names and what makes a copy of a good folder malicious."""

    def written(name: str, content: str | bytes) -> Change:
        return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def linked(name: str, target: str) -> Change:
        def change(folder: Path) -> None:
            (folder / name).unlink()
            (folder / name).symlink_to(target)

        return change

    def unlinked(name: str, make: Callable[[Path], None]) -> Change:
        def change(folder: Path) -> None:
            (folder / name).unlink()
            make(folder / name)

        return change

    config, weights = (good / "config.yaml").read_text(), (good / "model.safetensors").read_bytes()
    for name, text in texts(config):
        yield f"config.yaml: {name}", written("config.yaml", text)
    unsigned = re.sub(r"(?m)^weights_sha256: .*\n", "", config)
    for name, data in headers(weights):

        def both(folder: Path, data: bytes = data) -> None:
            (folder / "model.safetensors").write_bytes(data)
            digest = hashlib.sha256(data).hexdigest()
            (folder / "config.yaml").write_text(unsigned + f"weights_sha256: {digest}\n")

        yield f"model.safetensors: {name}", both
    yield "checksum of another file", written("config.yaml", unsigned + f"weights_sha256: {'0' * 64}\n")
    yield "checksum that is a list", written("config.yaml", unsigned + "weights_sha256: [1]\n")
    for name in ("config.yaml", "model.safetensors", "provenance.json"):
        for target in (str(good / name), "/dev/zero", "/etc/passwd", "/proc/self/environ", "../good"):
            yield f"{name} is a link to {target}", linked(name, target)
    for name in ("config.yaml", "model.safetensors"):
        yield f"{name} is a link to itself", linked(name, name)
        yield f"{name} is a pipe", unlinked(name, os.mkfifo)
        yield f"{name} is a folder", unlinked(name, Path.mkdir)
    deep = '{"a":' * 200_000
    surrogate = '{"command": "\\ud800"}'
    for name, text in (
        *(("deep", deep), ("long", " " * 30_000_000), ("digits", "9" * 5000), ("cut", '{"a')),
        ("surrogate", surrogate),
    ):
        yield f"provenance.json: {name}", written("provenance.json", text)
    yield "provenance.json: not UTF-8", written("provenance.json", b"\xff\xfe")


class Watch:
    """What this process reads, opens and starts, but for imports of installed modules."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.on = folder, list[str](), False
        names: Any = os.environ
        names._data = _Names(names._data, self)
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit event (https://docs.python.org/3/library/audit_events.html)."""
        if not self.on:
            return
        if event == "open":
            path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else ""
            inside = Path(path).resolve().is_relative_to(self.folder) or path.endswith(INSTALLED)
            if path and (not inside or "canary" in path.lower()):
                self.seen.append(f"opens {path}")
        elif event == "import" and "canary" in str(arguments[0]):
            self.seen.append(f"imports {arguments[0]}")
        elif event.startswith(WATCHED) or event in CHANGES_FILES:
            self.seen.append(f"{event} {arguments}")


class _Names(dict[Any, Any]):
    """The environment, which notes whose value is read."""

    def __init__(self, names: dict[Any, Any], watch: Watch) -> None:
        super().__init__(names)
        self.watch = watch

    def __getitem__(self, name: Any) -> Any:
        if self.watch.on and CANARY in os.fsdecode(name):
            self.watch.seen.append(f"reads ${os.fsdecode(name)}")
        return super().__getitem__(name)


def good_policy(folder: Path) -> Path:
    """A tiny untrained policy, saved."""
    from genpolicy import load_game
    from genpolicy.networks import NetworkConfig
    from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner

    network = NetworkConfig(num_layers=1, width=8, num_heads=2)
    learner = DiffusionLearner(load_game(CONNECT), DiffusionConfig(network=network, horizon=1))
    return learner.policy().save_pretrained(folder)


def peak_mb() -> float:
    """Most memory that this process has had since it was last asked to forget, in megabytes."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def main(root: Path, every: int = 1) -> None:
    """Open the folders; a line of JSON for each."""
    import genpolicy

    good = good_policy(root / "good")
    genpolicy.load_policy(good)  # what it imports is imported now
    watch = Watch(root / "one")
    # Opening anything but a regular file may block for ever, so these are always tried.
    chosen = (each for i, each in enumerate(changes(good)) if i % every == 0 or " is a " in each[0])
    for number, (name, change) in enumerate(chosen):
        folder = Path(shutil.copytree(good, root / "one" / str(number)))
        change(folder)
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten: see proc(5)
        before, start, watch.on = peak_mb(), time.monotonic(), True
        error: BaseException | None = None
        try:
            genpolicy.load_policy(folder)
        except Exception as caught:
            error = caught
        watch.on = False
        line = {
            "name": name,
            "error": type(error).__name__ if error else None,
            "message": str(error)[:2000],
            "length": len(str(error)),
            "seconds": time.monotonic() - start,
            "grown_mb": peak_mb() - before,
            "seen": watch.seen,
        }
        print(json.dumps(line), flush=True)
        watch.seen = []
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *map(int, sys.argv[2:]))
