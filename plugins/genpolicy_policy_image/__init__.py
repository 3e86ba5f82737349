"""The image policy: a move as an image of policy planes, denoised by diffusers' UNets.

Published without success for shogi (a 27x9x9 image of dlshogi's labels), kept here with everything that made it fail as
a switch, beside what repairs it: see docs/image-policy.md. It plays every game that supplies ``Game.planes`` and
``Game.move_planes``.
"""

from typing import TYPE_CHECKING, Any

from genpolicy_policy_image.config import ImageConfig

if TYPE_CHECKING:
    from genpolicy_policy_image.learner import ImageLearner
    from genpolicy_policy_image.policy import ImagePolicy

__all__ = ["ImageConfig", "ImageLearner", "ImagePolicy"]


def __getattr__(name: str) -> Any:
    # Both import torch, and the options of the policy (``declared``) are read without it.
    if name == "ImageLearner":
        from genpolicy_policy_image.learner import ImageLearner

        return ImageLearner
    if name == "ImagePolicy":
        from genpolicy_policy_image.policy import ImagePolicy

        return ImagePolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
