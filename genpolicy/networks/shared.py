"""What networks over different sequences have in common, so that one may begin with the weights of another.

A policy that imagines nothing is cheaper to train, and the position and the first move mean the same to it.

Axes: N tokens of a sequence.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from genpolicy.networks.biases import RelativeBias, place_relations, ply_relations
from genpolicy.networks.shown_moves import ShownMoves
from genpolicy.networks.transformer import DenoisingTransformer, Trunk
from genpolicy.registry import keys_of
from genpolicy.sequence import Layout

ALIKE = ("geometry", "num_layers", "width", "num_heads", "positions", "activation", "norm", "board_code")
"""Options of a network without which the same weights mean something else."""


def differing_option(ours: Trunk, theirs: Trunk) -> str:
    """An option of the network by which the same weights mean something else in two trunks; empty for none.

    A bias may have what the other lacks, which begins without effect.
    """
    for option in ALIKE:
        if getattr(ours.config, option) != getattr(theirs.config, option):
            return option
    if not isinstance(ours.bias, type(theirs.bias)):
        return "bias"
    shapes = [{name: each.shape for name, each in trunk.bias.named_parameters()} for trunk in (ours, theirs)]
    if shapes[0] == shapes[1] and type(ours.bias) is type(theirs.bias) and _options(ours) != _options(theirs):
        return "bias_options"
    return ""


def _options(trunk: Trunk) -> dict[str, Any]:
    """All options of a trunk's bias, those at their defaults among them."""
    takes = keys_of(type(trunk.bias), 2)
    return {**{name: each.default for name, each in takes.items()}, **trunk.config.bias_options}


def _lost(ours: DenoisingTransformer, our: Layout, theirs: DenoisingTransformer, shared: set[str]) -> str:
    """A tensor of the other trunk that has no place in ours, although ours has the tokens that it is of."""
    shown = ours.config.shows_moves or not ShownMoves.applies(our)  # then the tokens say what of it there is
    told = ours.trunk.shown is not None and ours.trunk.shown.carry is not None
    for name, _ in theirs.named_parameters():
        lost = (name.startswith("trunk.") and not (shown and name.startswith("trunk.shown."))) or (
            told and name.startswith("head.copies.")
        )
        if lost and name not in shared:
            return name
    return ""


@torch.no_grad()
def take_shared(ours: DenoisingTransformer, our: Layout, theirs: DenoisingTransformer, their: Layout) -> str:
    """Copy what two networks have in common.

    That is tensors of the same name and shape; of symbols of states and moves (and values, if both have as many), of
    plies and of places in the sequence, those that both have; and of relative biases, the relations of the tokens that
    both begin with.

    Returns:
        What prevents it: the symbols, an option of the network, or a tensor that must not differ;
        empty where nothing does.
    """
    if option := differing_option(ours.trunk, theirs.trunk):
        return f"learner.network.{option}"
    if their.state_symbols != our.state_symbols or their.moves.texts != our.moves.texts:
        return "the symbols of states or moves"
    of, to = dict(theirs.named_parameters()), dict(ours.named_parameters())
    same = {name for name in to if name in of and of[name].shape == to[name].shape}
    for name in to:
        if name.startswith("trunk.blocks.") and name not in same:
            return name
    begin = min(our.length, their.length)
    alike = (our.kinds[:begin] == their.kinds[:begin]) & (our.places[:begin] == their.places[:begin])
    begin = begin if alike.all() else int(alike.argmin())
    end = our.code_offset if our.num_value_bins == their.num_value_bins else our.value_offset
    known = range(end)  # symbols of the same ids
    rows = {"trunk.embedding.symbol.weight": ([*known, our.pad, our.mask], [*known, their.pad, their.mask])}
    plies = getattr(ours.trunk.embedding, "plies", torch.zeros(1, dtype=torch.int64))  # none in a plain sequence
    for name, number in (("ply", 1 + int(plies[:begin].max())), ("position", begin)):
        rows[f"trunk.embedding.{name}"] = (list(range(number)), list(range(number)))
    if ours.head.table is not None and theirs.head.table is not None:
        own, others = ours.head.table.symbols[:, None], theirs.head.table.symbols
        index, other = ((own == others) & (own < end)).nonzero()
        rows |= {f"head.table.{part}": (index.tolist(), other.tolist()) for part in ("weight", "bias")}
    if isinstance(ours.trunk.bias, RelativeBias) and isinstance(theirs.trunk.bias, RelativeBias):
        learned = ours.config.positions == "learned"
        for name, relations in (("space", place_relations), ("time", partial(ply_relations, differences=learned))):
            index, other = (relations(layout)[0][:begin, :begin].ravel().tolist() for layout in (our, their))
            rows[f"trunk.bias.{name}"] = (index, other)
    both = to.keys() & of.keys() & rows.keys()
    for name in sorted(both):
        if to[name].shape[1:] != of[name].shape[1:]:
            return name
    if name := _lost(ours, our, theirs, same | both):
        return name
    for name in same - rows.keys():
        to[name].copy_(of[name])
    for name in both:
        # Processes whose noise looks like data have no symbol for a mask.
        pairs = [(i, j) for i, j in zip(*rows[name], strict=True) if i < len(to[name]) and j < len(of[name])]
        index, other = (list(each) for each in zip(*pairs, strict=True)) if pairs else ([], [])
        to[name][index] = of[name][other]
    return ""
