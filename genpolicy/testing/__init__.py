"""The laws that every game, process, sampler and policy must pass, ours and third parties' alike.

Each check raises AssertionError with the law, the object and the position; none needs pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genpolicy.testing.games import check_game, perft
    from genpolicy.testing.policies import check_learner, check_policy
    from genpolicy.testing.processes import check_process, check_sampler
    from genpolicy.testing.search import check_search_model

__all__ = [
    "check_game",
    "check_learner",
    "check_policy",
    "check_process",
    "check_sampler",
    "check_search_model",
    "perft",
]

_HOME = {
    "check_game": "games",
    "perft": "games",
    "check_process": "processes",
    "check_sampler": "processes",
    "check_policy": "policies",
    "check_learner": "policies",
    "check_search_model": "search",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
