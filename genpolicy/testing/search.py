"""The laws that every search model must pass, ours and third parties' alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from genpolicy.search.model import Choices, Nodes, SearchModel

TOLERANCE = 1e-4
"""Tolerance of values in batches of different sizes: float32 sums in another order."""


def check_search_model(model: SearchModel, states: Sequence[Any], *, max_nodes: int = 100, seed: int = 0) -> None:
    """Check the laws of a search model, on a random tree below some states.

    Choices are different ids with a distribution over them; values, rewards and discounts lie in [-1, 1]; where the
    discount is not 0 there is a choice; a row does not depend on the others of its batch; a second call gives the same.

    Args:
        model: What is checked.
        states: Roots, at least one.
        max_nodes: How many nodes are checked.
        seed: Seed of the tree.

    Raises:
        AssertionError: a law is broken; the message names it.
    """
    draw = np.random.default_rng(seed)
    nodes = model.root(states)
    seen = 0
    while seen < max_nodes:
        pairs: list[tuple[Any, int]] = []
        for row in range(len(nodes.embeddings)):
            choices = nodes.choices[row]
            _check_node(nodes, row, choices)
            if nodes.discounts[row] != 0:
                chosen = draw.choice(choices.ids, size=min(3, len(choices.ids)), replace=False)
                pairs += [(nodes.embeddings[row], int(choice)) for choice in chosen]
        seen += len(nodes.embeddings)
        pairs = pairs[: max(1, max_nodes - seen)]
        if not pairs:
            return
        nodes = model.expand([embedding for embedding, _ in pairs], [choice for _, choice in pairs])
        _law(len(nodes.embeddings) == len(pairs), f"{len(nodes.embeddings)} nodes for {len(pairs)} choices")
        for row in sorted({0, len(pairs) // 2, len(pairs) - 1}):
            _check_alone(nodes, row, model.expand([pairs[row][0]], [pairs[row][1]]))


def _check_node(nodes: Nodes, row: int, choices: Choices) -> None:
    for name in ("values", "rewards", "discounts"):
        number = getattr(nodes, name)[row]
        _law(-1 <= number <= 1, f"{name}: {number} outside [-1, 1]")
    ids, priors = choices
    _law(len(set(ids.tolist())) == len(ids), f"a choice is listed twice: {ids}")
    _law(nodes.discounts[row] == 0 or len(ids) > 0, "no choices, and the discount is not 0")
    if priors is not None and len(ids):
        _law(priors.shape == ids.shape, f"{priors.shape} priors for {ids.shape} choices")
        _law(abs(float(priors.sum()) - 1) < TOLERANCE and float(priors.min()) >= 0, f"priors {priors}")


def _check_alone(nodes: Nodes, row: int, alone: Nodes) -> None:
    for name in ("values", "rewards", "discounts", "chance"):
        one, other = getattr(nodes, name)[row], getattr(alone, name)[0]
        _law(abs(float(one) - float(other)) < TOLERANCE, f"{name} depends on the batch, or changes: {one} and {other}")
    (ids, priors), (ids_alone, priors_alone) = nodes.choices[row], alone.choices[0]
    _law(ids.tolist() == ids_alone.tolist(), f"choices depend on the batch, or change: {ids} and {ids_alone}")
    _law((priors is None) == (priors_alone is None), "priors depend on the batch")
    if priors is not None and priors_alone is not None:
        _law(bool(np.allclose(priors, priors_alone, atol=TOLERANCE)), f"priors depend on the batch: {priors}")


def _law(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"search model: {what}")
