"""Finds by name what packages ship: configurations (``chess/demo``), samples of data (``sample:chess``), policies.

A game's package may have a folder ``configs``, whose ``NAME.yaml`` is called ``GAME/NAME``, a data set in a folder
``sample``, and saved policies in ``policies/NAME``, which are called ``NAME``. A file that exists comes before a name.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from genpolicy import registry
from genpolicy.errors import ConfigError, DatasetError, did_you_mean

_HERE = Path(__file__).parent
_OWN = _HERE / "configs" if (_HERE / "configs").is_dir() else _HERE.parent / "configs"  # of a wheel, of a checkout


def shipped() -> dict[str, Path]:
    """Files of configurations and folders of samples and of policies (``policy:NAME``) by name; no game is imported."""
    known = {path.relative_to(_OWN).with_suffix("").as_posix(): path for path in _OWN.rglob("*.yaml")}
    for game, point in registry.available("games").items():
        with suppress(ImportError, ValueError):  # a class of a script, or what was uninstalled by halves
            spec = find_spec(point.value.partition(":")[0].partition(".")[0])
            for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
                known |= {f"{game}/{path.stem}": path for path in folder.glob("configs/*.yaml")}
                known |= {f"sample:{game}": path for path in folder.glob("sample")}
                known |= {f"policy:{path.parent.name}": path.parent for path in folder.glob("policies/*/config.yaml")}
    return dict(sorted(known.items()))


def config_file(name: str | Path, beside: Path = Path()) -> Path:
    """The file of a configuration: a path, relative to a folder, or a name; ConfigError if neither exists."""
    path, key = beside / name, Path(name).as_posix().removesuffix(".yaml")
    known = {} if path.exists() and not path.is_dir() else shipped()
    if not path.exists() and key not in known:
        folder = key.partition("/")[0] + "/"
        near = [each for each in known if each.startswith(folder)] or [each for each in known if "/" in each]
        hint = did_you_mean(key.removeprefix("configs/"), known)
        raise ConfigError(f"{path}: no such file.{hint} There are, by name: {', '.join(near)}")
    return known.get(key, path)


def data_folder(name: str | Path) -> Path:
    """The folder of a data set: a path, or ``sample:GAME``; DatasetError if that game has no sample."""
    if not str(name).startswith("sample:"):
        return Path(name)
    known = {key: path for key, path in shipped().items() if key.startswith("sample:")}
    if str(name) not in known:
        raise DatasetError(f"{name}: no such sample.{did_you_mean(name, known)} There are: {', '.join(known)}")
    return known[str(name)]


def policy_folder(name: str | Path) -> Path | None:
    """The folder of a saved policy; None for anything that is not one.

    Args:
        name: A path, of the run that trained it too; the name of a shipped policy; or ``SOURCE:NAME``, where an entry
            of the group ``policy_sources`` called SOURCE turns NAME into a folder.

    Raises:
        ValueError: the source does not have it.
    """
    path, (source, colon, rest) = Path(name), str(name).partition(":")
    for folder in (path / "policy", path):
        if os.path.isfile(folder / "config.yaml"):  # unlike Path.is_file, it says no of a name that is too long
            return folder
    if colon and source in registry.available("policy_sources"):
        return Path(registry.load("policy_sources", source)(rest))
    return shipped().get(f"policy:{name}")


def shipped_policies() -> dict[str, Path]:
    """Folders of the shipped policies by name."""
    return {name.partition(":")[2]: path for name, path in shipped().items() if name.startswith("policy:")}
