"""The reference of the plugins: a page for each group of entry points, made from docstrings and declared options.

What a user names is there: learners with their settings, policies and samplers with their options, processes, biases,
oracles. The library's own have their page in the library's reference and are linked.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from genpolicy import registry
from genpolicy.errors import NotInstalledError
from genpolicy.options import Option, options_of

ROOT = Path(__file__).parents[2]
GROUPS = {
    "learners": "A learner is what `genpolicy train` trains: `learner.kind` names it, its settings are keys there.",
    "policies": "A policy is what decides: `--policy` names it, with options behind `?` ([how](../../policies.md)).",
    "processes": "A process noises tokens: `learner.process.kind` names it, its arguments are the keys beside it.",
    "samplers": "A sampler denoises tokens: the option `sampler` names it ([your own](../../your-own-sampler.md)).",
    "biases": "An attention bias is added to the attention's scores: `learner.network.bias` names it.",
    "oracles": "An oracle labels positions: `--oracle` names it, with options behind `?`.",
}
"""Groups of entry points and what their page begins with."""
MODULES = ("genpolicy_play.notebook",)
"""Modules of plugins that people import."""


def on_config(config: Any) -> Any:
    """Add the pages to the reference."""
    for section in config.nav:
        if "Reference" in section:
            pages = [{name.capitalize(): _page(name)} for name in GROUPS]
            section["Reference"].append({"Plugins": [*pages, *({name: _page(name)} for name in MODULES)]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Write the pages."""
    for group, text in GROUPS.items():
        files.append(
            File.generated(config, _page(group), content=f"# {group.capitalize()}\n\n{text}\n{_entries(group)}")
        )
    for name in MODULES:
        files.append(File.generated(config, _page(name), content=f"# {name}\n\n::: {name}\n"))
    return files


def _page(name: str) -> str:
    return f"reference/plugins/{name}.md"


def _entries(group: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    by_class: dict[str, list[str]] = {}
    for name, value in project["entry-points"][f"genpolicy.{group}"].items():
        by_class.setdefault(value, []).append(name)
    seen: set[str] = set()
    ordered = sorted(by_class.items(), key=lambda each: each[1])
    return "".join(_entry(group, names, value, seen) for value, names in ordered)


def _entry(group: str, names: list[str], value: str, seen: set[str]) -> str:
    """The section of a class.

    Args:
        group: Its group.
        names: What users call it.
        value: ``module:Class``.
        seen: Settings that stand on the page already; those of this class are added.
    """
    module, _, found = value.partition(":")
    parts = [f"\n## {', '.join(names)}\n", _described(module, found)]
    try:
        if group == "learners":
            config = registry.load("learners", names[0]).Config
            path = f"{config.__module__}.{config.__qualname__}"
            told = f"\nIts settings are those of [`{config.__qualname__}`][{path}].\n"
            parts.append(told if path in seen else _described(config.__module__, config.__qualname__, members=True))
            seen.add(path)
        elif group in ("policies", "samplers"):
            parts.append(_table(options_of(group, names[0])))
    except NotInstalledError as error:  # a package that an extra installs
        parts.append(f"\nIts options are not listed here: {error}\n")
    return "\n".join(parts)


def _described(module: str, name: str, *, members: bool = False) -> str:
    """The docstring of a class, or a link to the library's page that has it."""
    if module.partition(".")[0] == "genpolicy":
        return f"[`{name}`][{module}.{name}] of `{module}`.\n"
    shown = f"      {'inherited_members: true' if members else 'members: false'}\n"
    return f"::: {module}.{name}\n    options:\n      show_root_heading: true\n      heading_level: 3\n{shown}"


def _table(options: tuple[Option, ...]) -> str:
    if not options:
        return "\nIt has no options.\n"
    rows = [
        f"| `{each.name}` | {_values(each)} | {_default(each)} | {each.help.replace('|', '&#124;')} |"
        for each in options
    ]
    return "\n".join(["\n| option | values | default | |", "|---|---|---|---|", *rows, ""])


def _values(option: Option) -> str:
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    if option.type not in (int, float):
        return {bool: "true, false", str: "text"}[option.type]
    ends = [f"{sign} {end:g}" for sign, end in (("≥", option.low), ("≤", option.high)) if abs(end) != float("inf")]
    return " ".join(["whole number" if option.type is int else "number", *ends])


def _default(option: Option) -> str:
    default = option.default
    return "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"
