"""Sends the folders of policies to workers that do not have them; a folder travels, and is kept, by its checksum."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import unquote

from genpolicy.config import read_yaml
from genpolicy.files import full_disk_named, sha256_of
from genpolicy.shipped import policy_folder

FOLDER = "folder"
"""Begins the message by which a worker asks for a folder."""
_MARKS = re.compile(r"([:?&=,\[\]]|%(?:25)*(?:3A|3F|26|3D|2C|5B|5D))", re.IGNORECASE)
"""What parts a spelling, as it is or quoted, once or more often."""


def folders_in(spelling: str) -> list[str]:
    """The folders of policies that a spelling names, however deep, longest first; decoded parts of it are looked at."""
    found, seen = set(), ""
    while seen != spelling:
        found |= {part for part in re.split(r"[:?&=,\[\]]", spelling) if part and policy_folder(part) is not None}
        seen, spelling = spelling, unquote(spelling)
    return sorted(found, key=lambda name: (-len(name), name))


def checksum(folder: str) -> str | None:
    """SHA-256 of a policy's ``config.yaml``, which holds the one of its weights; None where there is none."""
    path = policy_folder(folder)
    file = None if path is None else Path(path) / "config.yaml"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file is not None and file.is_file() else None


def folders_of(spellings: Iterable[str]) -> dict[str, str]:
    """Checksums of the folders that spellings name."""
    names = {folder for spelling in spellings for folder in folders_in(spelling)}
    return {name: known for name in sorted(names) if (known := checksum(name)) is not None}


def packed(folder: str) -> bytes:
    """The files of a policy's folder as a tar archive."""
    path, stream = policy_folder(folder), io.BytesIO()
    assert path is not None
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for file in sorted(Path(path).iterdir()):
            if file.is_file():
                archive.add(file, arcname=file.name)
    return stream.getvalue()


def fetch(pipe: Connection, folders: Mapping[str, str]) -> dict[str, str]:
    """On a worker: where it has the folders; what it lacks it asks for by ``(FOLDER, NAME)`` and keeps.

    Args:
        pipe: To the command.
        folders: Checksums by name, as ``folders_of`` gives them.

    Raises:
        ValueError: what came is something else, as when the folder was written to meanwhile.
        DiskFullError: no space for it.
    """
    places: dict[str, str] = {}
    for name, wanted in folders.items():
        if checksum(name) == wanted:
            places[name] = name
            continue
        kept = cache() / wanted
        if not _is_whole(kept):
            pipe.send((FOLDER, name))
            with full_disk_named(kept):
                kept.parent.mkdir(parents=True, exist_ok=True)
            with full_disk_named(kept), tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
                whole = Path(scratch) / "policy"
                with tarfile.open(fileobj=io.BytesIO(pipe.recv())) as archive:
                    archive.extractall(whole, filter="data")
                if checksum(str(whole)) != wanted:
                    raise ValueError(f"policy {name}: has changed since the command began; run the command again")
                move_into_cache(whole, kept, _is_whole)
        places[name] = str(kept)
    return places


def _is_whole(kept: Path) -> bool:
    """Whether a policy in the cache, a folder named by its checksum, is there and undamaged."""
    if checksum(str(kept)) != kept.name:
        return False
    wanted, weights = read_yaml(kept / "config.yaml").get("weights_sha256"), kept / "model.safetensors"
    return wanted is None or (weights.is_file() and sha256_of(weights) == wanted)


def move_into_cache(whole: Path, kept: Path, is_whole: Callable[[Path], bool]) -> None:
    """Move a folder to its place in the cache, at once, since other workers of this machine look there.

    Where one was faster, its folder stays; a damaged one goes to the folder that ``whole`` was in.
    """
    if kept.exists() and not is_whole(kept):
        with suppress(OSError):
            kept.rename(whole.with_name("damaged"))
    with suppress(OSError):
        whole.rename(kept)


def replaced(spelling: str, places: Mapping[str, str]) -> str:
    """A spelling with its folders where a worker has them, or with other names for them."""
    return "".join(places.get(_decoded(part), part) for part in _MARKS.split(spelling))


def _decoded(text: str) -> str:
    while (decoded := unquote(text)) != text:
        text = decoded
    return text


def cache(kind: str = "policies") -> Path:
    """Where a worker keeps what it was sent: ``genpolicy/policies`` in the user's folder of caches, for policies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "genpolicy" / kind
