"""Policies on the Hugging Face Hub: ``hf:OWNER/NAME`` in place of a policy's folder, and sending one there.

Only the files of a policy are fetched (``FILES``), so nothing that could run is. A policy that was fetched once opens
without a network. The address of another hub is read from ``HF_ENDPOINT``, as by huggingface_hub itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from genpolicy.policies.base import load_policy, read_policy_config

FILES = ("config.yaml", "model.safetensors", "provenance.json", "README.md")
"""What a packed policy consists of. The weights are in safetensors, so reading them runs no code."""
SOURCE_FILE = "genpolicy-source"
"""Beside the Hub's own notes on what was fetched: the name that was asked for."""
CACHE = "GENPOLICY_HUB_CACHE"
"""Environment variable: the folder of policies that were fetched."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}(@[A-Za-z0-9._/-]{1,200})?")
"""``OWNER/NAME``, with ``@REVISION`` behind it where it is not the newest that is meant."""


def cache_folder() -> Path:
    """Where fetched policies are kept."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "genpolicy" / "hub"
    return Path(os.environ.get(CACHE) or usual)


@cache
def folder_of(name: str) -> Path:
    """The folder of ``hf:NAME``, fetched once in a process; an entry of the group ``policy_sources``."""
    return pull(name)


def pull(name: str, out: Path | None = None) -> Path:
    """Fetch a policy.

    Args:
        name: ``OWNER/NAME[@REVISION]``.
        out: Where to; None takes ``cache_folder``.

    Returns:
        The policy's folder.

    Raises:
        ValueError: not a name, no such repository, one without a policy, no network and no copy from before, or
            ``out`` holds something else, such as another repository's policy.
    """
    repository, revision = _parts(name)
    folder = out if out is not None else cache_folder() / name.replace("/", "--").replace("@", "--")
    # What was pulled, whole or in part, has this folder.
    if out is not None and out.exists() and not (out / ".cache" / "huggingface").is_dir() and any(out.iterdir()):
        raise ValueError(f"{out}: holds files that were not pulled, which this would replace; choose another folder")
    # Files that a repository lacks, and all of them without a network, would be those of what was pulled there before.
    source = folder / ".cache" / "huggingface" / SOURCE_FILE
    if source.is_file() and (before := source.read_text(encoding="utf-8")) != name:
        raise ValueError(f"{folder}: holds hf:{before}; choose another folder for hf:{name}")
    with _told(name):
        from huggingface_hub import snapshot_download

        try:
            snapshot_download(
                repository,
                revision=revision,
                local_dir=folder,
                allow_patterns=list(FILES),
                endpoint=os.environ.get("HF_ENDPOINT"),
            )
        except Exception as error:
            if not _is_offline(error) or not _is_whole(folder):
                raise
    if not _is_whole(folder):
        raise ValueError(
            f"hf:{name}: holds no policy, which is {FILES[0]} and {FILES[1]}; pickled weights are never read. "
            "genpolicy push uploads one"
        )
    read_policy_config(folder)
    if out is not None:  # in the cache the folder's name says it
        source.write_text(name, encoding="utf-8")
    return folder


def push(folder: Path, name: str, *, private: bool = False) -> str:
    """Upload a policy that ``pack`` wrote, making the repository where there is none.

    Args:
        folder: The policy's.
        name: ``OWNER/NAME``.
        private: Make a new repository private.

    Returns:
        Its address.

    Raises:
        ValueError: not a name, not logged in, or no network.
        CheckpointError: a damaged policy.
    """
    repository, revision = _parts(name)
    load_policy(folder).close()
    with _told(name):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        api.create_repo(repository, private=private, exist_ok=True)
        message = f"A policy of genpolicy for {read_policy_config(folder)['game']}"
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=revision,
            allow_patterns=list(FILES),
            commit_message=message,
        )
    return f"{os.environ.get('HF_ENDPOINT') or 'https://huggingface.co'}/{repository}"


def _is_whole(folder: Path) -> bool:
    return all((folder / file).is_file() for file in FILES[:2])


def _parts(name: str) -> tuple[str, str | None]:
    if not NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"{name!r} does not name a repository; write OWNER/NAME or OWNER/NAME@REVISION")
    repository, _, revision = name.partition("@")
    return repository, revision or None


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Say in one message what went wrong, with the way out.

    Raises:
        ValueError: in place of any error of the network or of the Hub.
    """
    try:
        from huggingface_hub import errors
    except ModuleNotFoundError as error:
        raise ValueError("the Hub needs the module 'huggingface_hub': pip install 'genpolicy[hub]'") from error
    try:
        yield
    except errors.RevisionNotFoundError as error:
        raise ValueError(f"hf:{name}: has no such revision") from error
    except errors.RepositoryNotFoundError as error:
        raise ValueError(
            f"hf:{name}: no such repository, or a private one (for that log in: hf auth login, or set HF_TOKEN)"
        ) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no status"
        hint = "; log in: hf auth login, or set HF_TOKEN" if status in (401, 403) else ""
        raise ValueError(f"hf:{name}: the Hub refused ({status}){hint}") from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"hf:{name}: {_hub()} did not answer as a Hub does; does the network ask for a login first?"
        ) from error
    except Exception as error:  # those of the network have no class in common
        if not _is_offline(error):
            raise
        response = getattr(error.__cause__, "response", None)
        if isinstance(error.__cause__, errors.HfHubHTTPError) and response is not None:
            raise ValueError(f"hf:{name}: the Hub refused ({response.status_code}); try again later") from error
        why = str(error.__cause__ or error).partition("\n")[0]
        raise ValueError(f"hf:{name}: {_hub()} cannot be reached or broke off ({why}); try again") from error


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT") or "huggingface.co"


def _is_offline(error: BaseException) -> bool:
    from huggingface_hub import errors

    offline = (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError, ConnectionError, TimeoutError)
    clients = ("httpx", "httpcore", "requests", "urllib3")  # huggingface_hub's, by its version
    network = isinstance(error, offline) or type(error).__module__.startswith(clients)
    return network and not isinstance(error, errors.HfHubHTTPError)
