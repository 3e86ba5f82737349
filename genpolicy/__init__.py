"""genpolicy: train, compare and play generative policies for board games.

Importing this package imports no game, no torch model and no plugin; each is found by its entry point when asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would take as long as all else that ``genpolicy --help`` does
if TYPE_CHECKING:
    from typing import Any

    from genpolicy.game import Game
    from genpolicy.policies.base import Policy

__version__ = "0.1.0"
__all__ = ["__version__", "load_game", "load_policy"]


def load_game(spec: str) -> Game[Any]:
    """The game of a specification such as ``"chess"`` or ``"connect:rows=3,cols=3,k=3,gravity=false"``.

    Raises:
        RegistryError: no game of that name is installed (the message names the near ones and the extra to install).
        ValueError: an argument of the specification is unknown or out of range.
    """
    from genpolicy.registry import load_game as load

    return load(spec)


def load_policy(spec: str, **options: Any) -> Policy:
    """The policy saved in a folder, or spelled like ``"random"`` or ``"engine:stockfish?nodes=1000"``.

    Args:
        spec: A folder written by ``Policy.save_pretrained`` or a spelling ``name[:argument][?key=value&...]``.
        options: ``device`` (default ``"cpu"``) and what the policy itself accepts; overrides what the folder says.

    Raises:
        RegistryError: no policy of that name, or not a policy's folder.
        CheckpointError: the folder is damaged, of another game or tokenizer, or newer than this code.
    """
    from genpolicy.policies.base import load_policy as load

    return load(spec, **options)
