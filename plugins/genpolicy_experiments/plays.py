"""How the policy of a run plays in a cell: with options of its own, or inside another policy, as in a tree search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from genpolicy.policies.base import Policy, load_policy

SPELLING, FOLDER = "policy", "{policy}"


def as_played(policy: Policy, folder: Path, play: Mapping[str, Any]) -> Policy:
    """The policy with a cell's ``play`` settings; whoever asks for it closes it.

    Args:
        policy: Of the run.
        folder: Where it is saved.
        play: Its options; or ``policy`` alone, the spelling of a policy in which ``{policy}`` stands for the folder,
            such as ``mcts:{policy}?simulations=25``.

    Raises:
        ValueError: an option that the policy does not take; options beside a spelling, or one without the folder.
    """
    spelling = play.get(SPELLING)
    if spelling is None:
        return policy.with_options(**play)
    if FOLDER not in str(spelling):
        raise ValueError(f"play.policy is a policy's spelling with {FOLDER} for the run's folder, got {spelling!r}")
    if others := ", ".join(f"play.{key}" for key in play if key != SPELLING):
        raise ValueError(f"play.policy spells all options: write {others} into it")
    head, mark, query = str(spelling).partition("?")
    spelled = head.replace(FOLDER, str(folder)) + mark + query.replace(FOLDER, quote(str(folder)))
    return load_policy(spelled, game=policy.game)
