"""The sampler by_ply: which blocks each call decides."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import genpolicy
from genpolicy.diffusion import Absorbing, Multinomial, make_sampler, sample
from genpolicy.diffusion.samplers import sample_steps
from genpolicy.sequence import Layout

BLOCKS = [-1, -1, 0, 0, 1, 1, 1, 1, 2, 2]


def masks_left(num_steps: int, blocks: Sequence[int] = BLOCKS) -> list[list[int]]:
    """For each call, the number of masks in each block after it; what a call is sure of, the next is unsure of."""
    process = Absorbing(5, 12)
    sampler = make_sampler("by_ply", process, blocks=blocks)
    seen: list[list[int]] = []
    frozen = torch.tensor(blocks)[None] < 0
    start = torch.where(frozen, 1, process.mask)
    sureness = torch.arange(1.0, 1 + len(blocks))

    def turning(x: Tensor, t: Tensor) -> Tensor:
        sure = sureness if len(seen) % 2 else sureness.flip(0)
        return sure[None, :, None] * torch.nn.functional.one_hot(torch.tensor(2), 5)

    for step in sample_steps(turning, process, sampler, start, frozen, num_steps=num_steps):
        masked = step.output.prev_sample[0] == process.mask
        seen.append([int(masked[torch.tensor(blocks) == block].sum()) for block in range(3)])
    return seen


@pytest.mark.parametrize(
    ("num_steps", "expected"),
    [
        (1, [[0, 0, 0]]),
        (2, [[0, 4, 2], [0, 0, 0]]),
        (3, [[0, 4, 2], [0, 0, 2], [0, 0, 0]]),
        (5, [[0, 4, 2], [0, 2, 2], [0, 1, 2], [0, 0, 2], [0, 0, 0]]),
    ],
)
def test_each_block_gets_a_call_and_the_largest_the_rest(num_steps: int, expected: list[list[int]]) -> None:
    assert masks_left(num_steps) == expected


def test_blocks_of_one_size_share_the_other_calls() -> None:
    calls = [[0, 3, 3], [0, 1, 3], [0, 0, 3], [0, 0, 1], [0, 0, 0]]
    assert masks_left(5, [0, 0, 1, 1, 1, 2, 2, 2]) == calls


def test_later_calls_see_what_was_decided() -> None:
    """Each block copies the one before it plus one, so that a sample is right only if it was written in order."""
    for process in (Absorbing(6, 12), Multinomial(6, 12)):
        blocks = torch.tensor([0, 1, 2])

        def follow(tokens: Tensor, t: Tensor, num: int = process.num_symbols) -> Tensor:
            before = torch.cat([torch.full_like(tokens[:, :1], 1), tokens[:, :-1]], dim=1)
            return 20.0 * torch.nn.functional.one_hot((before + 1) % num, num).double()

        sampler = make_sampler("by_ply", process, blocks=blocks.tolist())
        frozen = torch.zeros(4, 3, dtype=torch.bool)
        start = process.prior_sample(frozen.long(), frozen, generator=torch.Generator().manual_seed(1))
        done = sample(follow, process, sampler, start, frozen, num_steps=3)
        assert done.tolist() == [[2, 3, 4]] * 4


@pytest.mark.parametrize(
    ("paradigm", "expected"),
    [
        ("s-asa", "s:-1 a:0 s:1 a:2 s:3 a:4"),
        ("s-avsav", "s:-1 a:0 v:0 s:1 a:2 v:2 s:3 a:4 v:4"),
        ("s-ass", "s:-1 a:0 s:1 s:2"),
        ("s-aa", "s:-1 a:0 a:1 a:2"),
        ("s-avav", "s:-1 a:0 v:0 a:1 v:1 a:2 v:2"),
    ],
)
def test_blocks_are_moves_with_their_values_and_states(paradigm: str, expected: str) -> None:
    layout = Layout(genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false"), paradigm, 3)
    found = []
    for slot in layout.slots:
        (block,) = set(layout.blocks[slot.start : slot.stop].tolist())
        found.append(f"{slot.kind[0]}:{block}")
    assert " ".join(found) == expected
