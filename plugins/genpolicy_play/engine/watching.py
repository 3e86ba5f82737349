"""Stops a policy in the middle of its work, and lets it choose among some of the legal moves only."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from genpolicy.policies.base import Policy

CALLS_BETWEEN = 200
"""Calls and returns of functions between two looks."""
LEVELS = 2
"""Of modules inside a network: its trunk and the blocks of that; deeper, looking would cost a tenth of a small call."""


@contextmanager
def watched(policy: Policy, check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` before every part of every network call of a policy; what it raises ends the decision.

    Policies without networks are not touched.
    """
    hooks = []
    for network in _networks(policy):
        parts = dict.fromkeys([network, *_parts(network, LEVELS)])
        hooks += [part.register_forward_pre_hook(lambda *_: check()) for part in parts]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` again and again while Python code runs in this thread; what it raises comes out of that code.

    For work that knows nothing of being stopped and leaves nothing half done behind, such as a search by the rules.
    """
    count = 0

    def look(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += 1
        # A generator that is thrown away, or a destructor, runs at any moment, and what is raised there is lost.
        lost = event != "call" or frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_code.co_name == "__del__"
        if count >= CALLS_BETWEEN and not lost:
            count = 0
            check()

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _parts(module: Any, levels: int) -> Iterator[Any]:
    """The modules inside one that are called, so many levels deep; a list of modules is no level."""
    from torch.nn import ModuleDict, ModuleList

    for child in module.children() if levels else ():
        if isinstance(child, (ModuleList, ModuleDict)):
            yield from _parts(child, levels)
        else:
            yield child
            yield from _parts(child, levels - 1)


def _networks(policy: Policy) -> list[Any]:
    """The torch modules of a policy and of those inside it."""
    evaluator = getattr(policy, "evaluator", None)
    inside = [getattr(evaluator, "prior", None), getattr(evaluator, "value", None)]
    found = []
    for each in [policy, *inside]:
        network = getattr(getattr(each, "learner", None), "network", None)
        if network is not None and hasattr(network, "register_forward_pre_hook"):
            found.append(network)
    return list(dict.fromkeys(found))


class _Restricted:
    """A game in which one position has some of its legal moves only; all else is the game's."""

    def __init__(self, game: Any, root: Any, allowed: Sequence[int]) -> None:
        self._game, self._root = game, root
        self._allowed = np.array(sorted(allowed), np.int64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._game, name)

    def legal(self, state: Any) -> Any:
        """As the game's, but at the root."""
        return self._allowed.copy() if state is self._root else self._game.legal(state)


def restricted_game(game: Any, root: Any, allowed: Sequence[int]) -> Any:
    """A game in which ``root`` (this very object) has only the moves of ``allowed``."""
    return _Restricted(game, root, allowed)


def restricted(policy: Policy, root: Any, allowed: Sequence[int]) -> Policy:
    """The same policy, which chooses among some of the legal moves of one position.

    It is one that asks its own ``game`` for the legal moves; any other one plays on as before.
    """
    chosen = copy.copy(policy)
    chosen.game = restricted_game(policy.game, root, allowed)
    return chosen
