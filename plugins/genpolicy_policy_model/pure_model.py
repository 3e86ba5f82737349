"""PureModel: a model with codes in which own moves below the root are codes, too (VQPure of Ozair et al. 2021).

The root chooses among its legal moves. Below it a search chooses among codes of own moves, and codes of the other
side's answers follow them (arXiv:2106.04615), so it never asks which moves there are.

Axes: B batch, A codes of own moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from genpolicy.search.model import Choices, LazyChoices, Nodes
from genpolicy_policy_model.code_model import Acted, CodedDynamics, CodeModel, joint
from genpolicy_policy_model.latent import Floats


class PureDynamics(CodedDynamics, Protocol):
    """A learned model's functions over latents, which are opaque; what it predicts of moves is read at the root."""

    def choose(self, latents: Sequence[Any], codes: NDArray[np.int64]) -> Acted:
        """What follows codes [B] of own moves."""
        ...

    def plan(self, latents: Sequence[Any]) -> tuple[Floats, Floats]:
        """[B, A] probabilities of codes of own moves, and [B] values."""
        ...


class Planned(NamedTuple):
    """An embedding of the search in which a code of an own move comes next."""

    latent: Any
    viewer: int


class PureModel(CodeModel):
    """What a search asks of a model with codes of own moves; arguments are those of ``CodeModel``."""

    def _expansions(self) -> dict[type[Any], Any]:
        return {**super()._expansions(), Planned: self._after_plans}

    def _after_plans(self, embeddings: Sequence[Planned], choices: NDArray[np.int64]) -> Nodes:
        return self._acted(self._pure.choose([embedding.latent for embedding in embeddings], choices), embeddings)

    def _to_choose(
        self, latents: Sequence[Any], viewers: NDArray[np.int64], ended: NDArray[np.bool_]
    ) -> tuple[list[Any], LazyChoices, Floats]:
        shares, values = self._pure.plan(latents)
        made = [Planned(*pair) for pair in zip(latents, viewers.tolist(), strict=True)]
        return made, LazyChoices(len(viewers), partial(self._plans, shares, ended)), values

    def _plans(self, shares: Floats, ended: NDArray[np.bool_], row: int) -> Choices:
        """The ``top`` likeliest codes of a node, in the order of their ids; none after the end."""
        if ended[row]:
            return Choices(np.empty(0, np.int64), None)
        ids, priors = joint(shares[row : row + 1], self.top, 0.0)
        return Choices(ids, priors / priors.sum())

    @property
    def _pure(self) -> PureDynamics:
        return cast("PureDynamics", self.coded)
