"""What networks over different sequences have in common, so that one may begin with the weights of another.

A policy that imagines nothing is cheaper to train, and the position and the first move mean the same to it.

Axes: N tokens of a sequence.
"""

from __future__ import annotations

from functools import partial

import torch

from genpolicy.networks.biases import RelativeBias, place_relations, ply_relations
from genpolicy.networks.transformer import DenoisingTransformer
from genpolicy.sequence import Layout

ALIKE = ("geometry", "num_layers", "width", "num_heads", "positions", "activation", "norm")
"""Options of a network without which the same weights mean something else."""


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
    for option in ALIKE:
        if getattr(ours.config, option) != getattr(theirs.config, option):
            return f"learner.network.{option}"
    if not isinstance(ours.trunk.bias, type(theirs.trunk.bias)):  # what ours has beyond theirs begins without effect
        return "learner.network.bias"
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
    for name in same - rows.keys():
        to[name].copy_(of[name])
    for name in both:
        # Processes whose noise looks like data have no symbol for a mask.
        pairs = [(i, j) for i, j in zip(*rows[name], strict=True) if i < len(to[name]) and j < len(of[name])]
        index, other = (list(each) for each in zip(*pairs, strict=True)) if pairs else ([], [])
        to[name][index] = of[name][other]
    return ""
