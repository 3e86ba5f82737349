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


@torch.no_grad()
def take_shared(ours: DenoisingTransformer, our: Layout, theirs: DenoisingTransformer, their: Layout) -> str:
    """Copy what two networks have in common.

    That is tensors of the same name and shape; of symbols of states and moves, of plies and of places in the sequence,
    those that both have; and of relative biases, the relations of the tokens that both begin with.

    Returns:
        What prevents it: the symbols, or the first tensor of the blocks that differs; empty where nothing does.
    """
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
    moves = range(our.value_offset)
    rows = {"trunk.embedding.symbol.weight": ([*moves, our.pad, our.mask], [*moves, their.pad, their.mask])}
    for name, number in (("ply", 1 + our.plies[:begin].max()), ("position", begin)):
        rows[f"trunk.embedding.{name}"] = (list(range(number)), list(range(number)))
    if ours.head.table is not None and theirs.head.table is not None:
        own, others = ours.head.table.symbols[:, None], theirs.head.table.symbols
        index, other = ((own == others) & (own < our.value_offset)).nonzero()
        rows |= {f"head.table.{part}": (index.tolist(), other.tolist()) for part in ("weight", "bias")}
    if isinstance(ours.trunk.bias, RelativeBias) and isinstance(theirs.trunk.bias, RelativeBias):
        learned = ours.config.positions == "learned"
        for name, relations in (("space", place_relations), ("time", partial(ply_relations, differences=learned))):
            index, other = (relations(layout)[0][:begin, :begin].ravel().tolist() for layout in (our, their))
            rows[f"trunk.bias.{name}"] = (index, other)
    for name in same - rows.keys():
        to[name].copy_(of[name])
    for name in to.keys() & of.keys() & rows.keys():
        index, other = rows[name]
        to[name][index] = of[name][other]
    return ""
