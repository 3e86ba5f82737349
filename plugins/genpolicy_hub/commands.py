"""``genpolicy pack``, ``push`` and ``pull``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from genpolicy_hub import PACK, PULL, PUSH


def add_pack(subparsers: Any) -> None:
    """Add ``pack`` to the command line."""
    parser = subparsers.add_parser("pack", help=PACK.help, description=_pack.__doc__)
    _add_policy(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder of the copy")
    _add_packing(parser)
    parser.set_defaults(run=_pack)


def add_push(subparsers: Any) -> None:
    """Add ``push`` to the command line."""
    parser = subparsers.add_parser("push", help=PUSH.help, description=_push.__doc__)
    _add_policy(parser)
    parser.add_argument("name", metavar="OWNER/NAME", help="the repository; created if it does not exist")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    _add_packing(parser)
    parser.set_defaults(run=_push)


def add_pull(subparsers: Any) -> None:
    """Add ``pull`` to the command line."""
    parser = subparsers.add_parser("pull", help=PULL.help, description=_pull.__doc__)
    parser.add_argument("name", metavar="OWNER/NAME[@REVISION]", help="the repository")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the copy; default: the user's cache")
    parser.set_defaults(run=_pull)


def _add_policy(parser: argparse.ArgumentParser) -> None:
    hidden, text = argparse.SUPPRESS, "a policy's folder, the folder of the run that trained it, or a shipped name"
    parser.add_argument("--policy", dest="folder", metavar="P", help=text)
    parser.add_argument("folder", nargs="?", default=hidden, help=hidden)  # as it was written before


def _add_packing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--float32", action="store_true", help="do not convert the weights to float16")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="Markdown to put into the model card")
    text = "average the weights with those of the policy that this one began with (init_from)"
    parser.add_argument("--average", metavar="P", help=text)


def _packed(arguments: argparse.Namespace, out: Path) -> Path:
    from genpolicy_hub.packing import pack

    if arguments.folder is None:
        raise ValueError("--policy is missing, e.g. --policy runs/mine")
    folder = _saved("--policy", arguments.folder)
    try:
        figures = arguments.figures.read_text(encoding="utf-8") if arguments.figures else ""
    except UnicodeDecodeError as error:
        raise ValueError(f"--figures {arguments.figures}: is not text in UTF-8 ({error})") from error
    average = arguments.average and _saved("--average", arguments.average)
    return pack(folder, out, half=not arguments.float32, figures=figures, average=average)


def _saved(option: str, text: str) -> Path:
    from genpolicy.policies.base import policy_spec

    spec = policy_spec(text)
    if spec.config is None or spec.settings:
        raise ValueError(
            f"{option} {text}: is not a saved policy; name its folder, the folder of the run that trained it, or a "
            "shipped name, without options"
        )
    return Path(spec.argument)


def _pack(arguments: argparse.Namespace) -> int:
    """Copies a policy's folder, with weights in float16 and a model card made from its provenance."""
    out = _packed(arguments, arguments.out)
    print(f"{out}: {sum(file.stat().st_size for file in out.iterdir()) / 1e6:.1f} MB")
    return 0


def _push(arguments: argparse.Namespace) -> int:
    """Packs a policy and uploads it. Log in before: hf auth login, or set HF_TOKEN."""
    from genpolicy_hub.hub import push

    with tempfile.TemporaryDirectory() as folder:
        print(push(_packed(arguments, Path(folder) / "policy"), arguments.name, private=arguments.private))
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    """Downloads a policy. genpolicy web --policy hf:OWNER/NAME does so automatically."""
    from genpolicy_hub.hub import pull

    print(pull(arguments.name, arguments.out))
    return 0
