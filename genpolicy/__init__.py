"""genpolicy: train, compare and play generative policies for board games.

Importing this package imports no game, no plugin, and neither torch nor numpy; whatever is slow to import is imported
when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would take as long as all else that ``genpolicy --help`` does
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from genpolicy.diffusion.process import Process
    from genpolicy.game import Game
    from genpolicy.policies.base import Policy
    from genpolicy.policies.learner import Learner
    from genpolicy.registry import load_game
    from genpolicy.training.config import RunConfig

__version__ = "0.2.0"
__all__ = ["Game", "Learner", "Policy", "Process", "__version__", "load_game", "load_policy", "train"]

_HOME = {
    "Game": "genpolicy.game",
    "Learner": "genpolicy.policies.learner",
    "Policy": "genpolicy.policies.base",
    "Process": "genpolicy.diffusion.process",
    "load_game": "genpolicy.registry",
}
"""Where what is loaded late of the public interface is defined."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'genpolicy' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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


def train(
    config: str | Path | Mapping[str, Any] | RunConfig | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Path:
    """Train a policy, as ``genpolicy train`` does; the folder of the policy, which ``load_policy`` reads.

    For example ``train("chess/demo", {"trainer.max_records": 100}, out="runs/x")``.

    Args:
        config: A YAML file, a name, or the settings; None where ``overrides`` hold all, or to resume a run.
        overrides: Settings by dotted key, over those of ``config``.
        out: Folder of the run; None takes that of the settings, or one named after the file in ``runs/``.
        resume: Resume the run in the folder.
        overwrite: Delete an earlier run in the folder.

    Raises:
        ConfigError: a key that does not exist, a wrong value, or a configuration that cannot be run.
        CheckpointError: the folder holds another run, or a checkpoint cannot be written.
        DatasetError: the data set cannot be used.
        TrainingError: the loss is not a finite number any more.
    """
    from genpolicy.training.settings import train_from

    return train_from(config, overrides or {}, out, resume=resume, overwrite=overwrite)
