"""A copy of a policy's folder to hand on: weights in half precision, provenance, a model card."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from torch import Tensor

from genpolicy.config import to_dict, to_yaml
from genpolicy.errors import CheckpointError
from genpolicy.files import write_atomic
from genpolicy.policies.base import Policy, load_policy, read_policy_config
from genpolicy.policies.saved import WeightsPolicy
from genpolicy.policies.weights import read_provenance, weights_of


def pack(folder: Path, out: Path, *, half: bool = True, figures: str = "", average: Path | None = None) -> Path:
    """Write a copy of a saved policy with a model card.

    Args:
        folder: The policy's.
        out: The folder of the copy; must not hold a policy yet.
        half: Write the weights in float16, which halves the file; they are computed with in float32 all the same.
        figures: Markdown for the card, such as a table of measurements with the commands that made it.
        average: A policy that this one began with: the weights are the means of both policies' (Wortsman et al. 2022,
            arXiv:2109.01903). What only this one has stays as it is. Options in which the two differ are named in a
            warning, since such a mean may know neither.

    Returns:
        ``out``.

    Raises:
        CheckpointError: a damaged policy, one with other files than weights, or weights too large for float16.
        ValueError: ``out`` holds a policy already, or a file that would be replaced.
    """
    from safetensors.torch import save

    if (out / "config.yaml").exists():
        raise ValueError(f"{out}: holds a policy already; name another folder")
    config = read_policy_config(folder)
    with contextlib.closing(load_policy(folder)) as policy:  # what is damaged is not handed on
        weights = _saved(folder) if average is None else _means(policy, folder, average)
    if half:
        weights = {name: each.half() if each.is_floating_point() else each for name, each in weights.items()}
        if too_large := [
            name for name, each in weights.items() if each.is_floating_point() and not each.isfinite().all()
        ]:
            raise CheckpointError(f"{folder}: {too_large[0]} does not fit into float16; pack it with --float32")
    data = save(weights)
    facts = _without_paths(read_provenance(folder))
    if average is not None:
        facts = {**facts, "averaged_with": read_policy_config(average).get("weights_sha256")}
    copied = {**_without_paths(config), "weights_sha256": hashlib.sha256(data).hexdigest()}
    files = {
        "model.safetensors": data,
        "provenance.json": (json.dumps(facts, indent=2, sort_keys=True) + "\n").encode(),
        "README.md": model_card(config, facts, figures).encode(),
        "config.yaml": to_yaml(copied).encode(),  # the last one, since it makes the folder a policy
    }
    # What a kill or a full disk left of the same copy is no other file's.
    if there := [name for name in files if (out / name).exists() and not _holds(out / name, files[name])]:
        raise ValueError(f"{out}: holds {' and '.join(there)}, which a policy has too; name another folder")
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomic(out / name, content)
    load_policy(out).close()
    return out


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def _saved(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    try:
        weights: dict[str, Tensor] = load_file(folder / "model.safetensors")
    except OSError as error:
        raise CheckpointError(f"{folder}: has no model.safetensors, so it cannot be packed: {error}") from error
    return weights


def _means(policy: Policy, folder: Path, average: Path) -> dict[str, Tensor]:
    """The weights of a policy, each halfway to where those that it began with would be in its own network."""
    with contextlib.closing(load_policy(average, game=policy.game)) as other:
        if not isinstance(policy, WeightsPolicy) or not isinstance(other, WeightsPolicy):
            bare = average if isinstance(policy, WeightsPolicy) else folder
            raise CheckpointError(f"{bare}: has no weights to average; name saved policies of one network")
        if unlike := _unlike(to_dict(policy.learner.config), to_dict(other.learner.config)):
            names = ", ".join(f"learner.{name}" for name in unlike)
            text = f"{average}: differs from {folder} in {names}; measure what the mean of both imagines"
            warnings.warn(text, stacklevel=3)
        network = policy.learner.network
        mine = {name: each.detach().clone() for name, each in weights_of(network).items()}
        try:
            policy.learner.take_weights(other.learner)
        except CheckpointError as error:
            raise CheckpointError(f"{average}: its weights have no mean with those of {folder}: {error}") from error
        theirs = weights_of(network)
    return {
        name: (each + theirs[name].detach()) / 2 if each.is_floating_point() else each for name, each in mine.items()
    }


def _unlike(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Options of the network, and of what it sees and may say, in which two learners differ, as dotted keys."""
    pairs = {name: (mine.get(name), theirs.get(name)) for name in ("viewer", "train_pad", "tokens")}
    networks = (_section(mine, "network"), _section(theirs, "network"))
    pairs |= {f"network.{name}": (value, networks[1].get(name)) for name, value in networks[0].items()}
    return [name for name, (one, other) in pairs.items() if one != other]


def model_card(config: Mapping[str, Any], provenance: Mapping[str, Any], figures: str = "") -> str:
    """The ``README.md`` of a policy, with the fields that the Hub reads at its head.

    Args:
        config: The policy's ``config.yaml``.
        provenance: Its ``provenance.json``; what it lacks is left out.
        figures: Markdown under "Figures".
    """
    learner, run, data = _section(config, "learner"), _section(provenance, "config"), _section(provenance, "dataset")
    parts = data.get("parts") or [{**data, "oracle": provenance.get("oracle")}]  # a union of data sets lists its own
    parts = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    versions = provenance.get("versions")
    facts = {
        "paradigm": learner.get("paradigm"),
        "records seen": provenance.get("records_seen"),
        "updates": provenance.get("step"),
        "data": ", ".join(filter(None, (str(part.get("folder") or _folder(run)) for part in parts))),
        "records of the data": data.get("records"),
        "checksum of the data": data.get("checksum"),
        "labelled by": ", ".join(dict.fromkeys(_oracle(_section(part, "oracle")) for part in parts)),
        "commit": provenance.get("commit"),
        "made with": ", ".join(f"{name} {version}" for name, version in versions.items())
        if isinstance(versions, Mapping)
        else None,
    }
    rows = [f"| {name} | {_cell(value)} |" for name, value in facts.items() if value not in (None, "")]
    game = config["game"].partition(":")[0]
    needed = [extra for extra in metadata("genpolicy").get_all("Provides-Extra") or [] if extra == game]
    extras = ",".join(["web", *needed])  # an extra of a game's name is what its rules need
    head = ["---", "library_name: genpolicy", "tags:", "- board-games", f"- {game}", "---"]
    parts = [
        *head,
        f"\n# A {config['policy']} policy for {config['game']}\n",
        f"Trained with genpolicy. It plays, and shows what it imagines, after `pip install 'genpolicy[{extras}]'`:\n",
        "    genpolicy web --policy FOLDER\n",
        "| | |\n|---|---|",
        *rows,
        *(["\n## Figures\n", figures.strip()] if figures else []),
        "\n`config.yaml` holds the whole configuration, `provenance.json` the run. No file holds code.\n",
    ]
    return "\n".join(parts)


def _folder(run: Mapping[str, Any]) -> str:
    return str(_section(run, "data").get("folder") or "")


def _section(facts: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A section of what another version, or somebody else, may have written; empty where it is something else."""
    section = facts.get(key)
    return section if isinstance(section, Mapping) else {}


def _oracle(oracle: Mapping[str, Any]) -> str:
    limits = (f"{name}={value}" for name, value in _section(oracle, "limits").items())
    return " ".join([str(oracle.get("name", "")), *limits]).strip()


_PATH_KEYS = frozenset({"folder", "out", "init_from", "cache_dir", "teacher"})
_MARKS = re.compile(r"([:?&=,\[\]]|%(?:25)*(?:3A|3F|26|3D|2C|5B|5D))", re.IGNORECASE)
"""What parts a policy's spelling, as it is or quoted, once or more often."""
_BEGINS_PATH = re.compile(r"/(?!/)|~")  # two slashes follow the colon of an address


def _cell(value: object) -> str:
    return (f"{value:,}" if isinstance(value, int) else str(value)).replace("|", "\\|").replace("\n", " ")


def _without_paths(facts: Any, key: str = "") -> Any:
    """The same, with each local path cut to its name: where things lie on one computer is nobody else's business.

    Args:
        facts: A configuration or provenance, or a part of one.
        key: Of the part; says whether a text that is not an absolute path may be a path. ``sample:chess`` and
            ``hf:OWNER/NAME`` are none.
    """
    if isinstance(facts, Mapping):
        return {name: _without_paths(value, str(name)) for name, value in facts.items()}
    if isinstance(facts, list | tuple):
        return [_without_paths(value, key) for value in facts]
    if not isinstance(facts, str):
        return facts
    if (key in _PATH_KEYS and not facts.startswith(("sample:", "hf:"))) or Path(facts).is_absolute():
        return Path(facts).name
    return "".join(Path(part).name if _BEGINS_PATH.match(part) else part for part in _MARKS.split(facts))
