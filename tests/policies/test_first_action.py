"""What predictions say of the first action: masks and records, on numbers written by hand."""

from __future__ import annotations

import math

import pytest
import torch

from genpolicy import load_game
from genpolicy.diffusion.logits import LogitGroup, TypedLogits
from genpolicy.policies.first_action import FirstAction
from genpolicy.sequence import Layout

CONNECT = "connect:rows=3,cols=3,k=3,gravity=false"


@pytest.fixture(name="layout")
def first_move() -> Layout:
    return Layout(load_game(CONNECT), "s-a", 1)


def dense(layout: Layout, scores: dict[int, float]) -> TypedLogits:
    """One group of all tokens: ``scores`` by symbol at every token, else 0."""
    row = torch.zeros(layout.num_symbols)
    for symbol, score in scores.items():
        row[symbol] = score
    return TypedLogits.of(row.expand(1, layout.length, -1))


def typed(layout: Layout, scores: dict[int, float]) -> TypedLogits:
    """The same in groups: the state's tokens over their symbols, the first action over the rest."""
    whole = dense(layout, scores).groups[0].logits
    action, symbols = torch.tensor([layout.first_action]), torch.arange(layout.num_symbols)
    others = torch.tensor([place for place in range(layout.length) if place != layout.first_action])
    tail = symbols[layout.move_offset :]
    groups = (
        LogitGroup(others, symbols, whole[:, others]),
        LogitGroup(action, tail, whole[:, action][..., layout.move_offset :]),
    )
    return TypedLogits(groups, layout.length, layout.num_symbols)


@pytest.mark.parametrize("make", [dense, typed])
def test_the_first_call_is_read_before_the_mask(layout: Layout, make: object) -> None:
    assert callable(make)
    offset = layout.move_offset
    prediction = make(layout, {offset + 2: math.log(5), offset + 7: math.log(3)})
    legal = torch.zeros(1, 9, dtype=torch.bool)
    legal[0, [3, 7]] = True
    first_action = FirstAction(layout, torch.from_numpy(layout.admitted), legal)
    first = first_action.first_call(prediction)
    assert first.best.tolist() == [offset + 2]
    # Seven moves of weight 1, one of 5, one of 3; a state's symbols are not admitted there, and PAD is not a move.
    assert first.marginal.exp()[0, 2].item() == pytest.approx(5 / 15)
    assert first.marginal.exp().sum().item() == pytest.approx(1.0)
    moves = first_action.moves(first_action.masked(prediction)).exp()[0]
    assert moves.tolist() == pytest.approx([0, 0, 0, 0.25, 0, 0, 0, 0.75, 0])


@pytest.mark.parametrize("make", [dense, typed])
def test_masking_changes_nothing_but_the_first_action(layout: Layout, make: object) -> None:
    assert callable(make)
    prediction = make(layout, {0: 1.0, layout.move_offset: 2.0})
    before = [group.logits.clone() for group in prediction.groups]
    legal = torch.tensor([[False] * 8 + [True]])
    masked = FirstAction(layout, torch.from_numpy(layout.admitted), legal).masked(prediction)
    for group, old in zip(prediction.groups, before, strict=True):
        torch.testing.assert_close(group.logits, old)
    others = [place for place in range(layout.length) if place != layout.first_action]
    torch.testing.assert_close(masked.dense()[:, others], prediction.dense()[:, others])
    only = masked.dense()[0, layout.first_action].exp()
    assert only[layout.move_offset + 8].item() == pytest.approx(1.0)
    free = FirstAction(layout, torch.from_numpy(layout.admitted), None)
    assert free.masked(prediction) is prediction


def test_rows_are_repeated_side_by_side(layout: Layout) -> None:
    legal = torch.eye(9, dtype=torch.bool)[:2]
    twice = FirstAction(layout, torch.from_numpy(layout.admitted), legal).repeated(2)
    prediction = TypedLogits.of(torch.zeros(4, layout.length, layout.num_symbols))
    assert twice.moves(twice.masked(prediction)).argmax(-1).tolist() == [0, 0, 1, 1]
