"""Noise ordered by ply: what is shown, what is noise, and the exact bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy, SamplerConfig
from genpolicy.policies.ply_order import PlyOrder
from genpolicy.sequence import Layout
from genpolicy.testing import check_learner
from genpolicy.values import probability_to_bin
from tests.small_datasets import CONNECT, solved_connect

BOARD = NetworkConfig(geometry="board", num_layers=2, width=32, num_heads=4, head="typed")


@pytest.fixture(scope="module")
def connect_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("horizons"))


def learner(kind: str = "absorbing", paradigm: str = "s-avsav", **options: object) -> DiffusionLearner:
    process = {"kind": kind, "num_timesteps": 4, "order": "ply"}
    torch.manual_seed(0)
    config = DiffusionConfig(**{"network": BOARD, "paradigm": paradigm, "horizon": 2, "process": process, **options})  # type: ignore[arg-type]
    return DiffusionLearner(genpolicy.load_game(CONNECT), config)


def batch_of(made: DiffusionLearner, num: int) -> TokenBatch:
    """Labelled windows of random symbols."""
    layout = made.layout
    chances = torch.from_numpy(layout.admitted[:, : layout.pad].astype("float64"))
    tokens = torch.multinomial(
        chances, num, replacement=True, generator=torch.Generator().manual_seed(3)
    ).T.contiguous()
    given = torch.from_numpy(layout.given.copy()).expand_as(tokens)
    return TokenBatch(tokens, given, ~given, torch.arange(num))


def test_one_block_is_a_question_what_lies_before_it_is_shown_and_nothing_else_is_there() -> None:
    made = learner()
    order, batch = made.by_ply, batch_of(made, 4)
    assert isinstance(order, PlyOrder)
    assert len(order.ends) == 3
    assert order.ends[-1] == made.layout.length
    hidden = torch.tensor([False, True, False, True])
    for block, end in enumerate(order.ends):
        view = order.view(batch, block, hidden)
        blocks = torch.from_numpy(made.layout.blocks)[:end]
        assert int(blocks.max()) == block
        assert view.tokens.shape == view.frozen.shape == view.target.shape == (4, end)
        for row in range(4):
            own, earlier = blocks == block, blocks < block
            values = earlier & order.is_value[:end] & bool(hidden[row])
            assert torch.equal(view.target[row], own)
            assert bool((view.tokens[row][values] == made.layout.mask).all())
            assert torch.equal(view.tokens[row][own], batch.tokens[row][:end][own])
            assert bool(view.frozen[row][earlier & ~values].all())
            assert not bool(view.frozen[row][own | values].any())


def test_blocks_are_drawn_as_stated() -> None:
    order = learner(horizon=3).by_ply
    assert order is not None
    assert order.chances.tolist() == pytest.approx([1, 0.075, 0.1 * 0.625, 0.075, 0.1 * 0.375])
    shares = {"state_share": 0.1, "first_state_share": 0.3, "move_share": 0}
    assert PlyOrder(learner(horizon=3).layout, shares).chances.tolist() == pytest.approx([1, 0.35, 0, 0.05, 0])
    counts = order.drawn(1000, torch.tensor(0.3)).bincount()
    assert (counts / 1000).tolist() == pytest.approx([0.75, *order.chances[1:].tolist()], abs=1e-3)
    alone = PlyOrder(Layout(genpolicy.load_game(CONNECT), "s-a", 1))
    assert alone.chances.tolist() == [1.0]
    assert alone.drawn(9, torch.tensor(0.9)).tolist() == [0] * 9
    with_joint = PlyOrder(learner().layout, {"joint_share": 0.25})
    assert with_joint.drawn(100, torch.tensor(0.5)).bincount().tolist() == [50, 15, 10, 25]
    seldom = PlyOrder(learner().layout, {"state_share": 0.05, "move_share": 0.02})
    assert seldom.drawn(100, torch.tensor(0.5)).bincount().tolist() == [93, 5, 2]


def test_half_of_the_values_are_hidden_and_four_moves_in_five_are_pure_noise() -> None:
    made = learner()
    assert made.by_ply is not None
    batch = batch_of(made, 40)
    draws = torch.rand((4, 40), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    value = made.layout.slot("value", 0)
    assert value is not None
    hidden, sure = (draws[2] < 0.5).tolist(), (draws[3] < 0.8).tolist()
    for part, pure in made.by_ply.split(batch, draws):
        assert pure is not None
        block = int(made.layout.blocks[: part.tokens.shape[1]].max())
        is_move = block != 1
        assert pure.tolist() == [sure[i] and is_move for i in part.indices.tolist()]
        if block > 0:
            masked = part.tokens[:, value.start] == made.layout.mask
            assert masked.tolist() == [hidden[i] for i in part.indices.tolist()]


def test_the_first_move_of_every_record_is_trained_and_the_later_blocks_of_some() -> None:
    made = learner()
    assert made.by_ply is not None
    batch = batch_of(made, 40)
    draws = torch.rand((4, 40), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (first, pure), *later = made.by_ply.split(batch, draws)
    assert first.indices.tolist() == list(range(40))
    assert bool(pure.any())
    assert not bool(pure.all())
    assert [len(part) for part, _ in later] == [6, 4]
    assert [part.tokens.shape[1] for part, _ in [(first, pure), *later]] == made.by_ply.ends
    assert not bool(later[0][1].any())
    indices = torch.cat([part.indices for part, _ in later]).tolist()
    assert len(set(indices)) == 10
    assert set(indices) != set(range(10))  # whatever the order of the batch


@pytest.mark.parametrize("kind", ["absorbing", "multinomial"])
def test_the_bound_of_a_model_that_looks_at_nothing_is_its_likelihood(kind: str) -> None:
    """Then every bound is exact: the estimates' mean is -log p of all that is imagined."""
    made = learner(kind)
    layout, batch = made.layout, batch_of(made, 1)
    admitted = made.admitted.double()
    logits = torch.randn(admitted.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    logits = logits.masked_fill(admitted == 0, -torch.inf)
    exact = -logits.log_softmax(-1).gather(-1, batch.tokens[0][:, None])[:, 0][batch.target[0]].sum()

    class Blind(torch.nn.Module):
        def forward(self, tokens: Tensor, t: Tensor) -> Tensor:
            # A multinomial network predicts what the noised token does not say: x_0 given all others.
            return logits[: tokens.shape[1]].expand(len(tokens), -1, -1)

    made.network = Blind()  # type: ignore[assignment]
    num = 1500
    many = TokenBatch(*(x.expand(num, -1) for x in (batch.tokens, batch.frozen, batch.target)), torch.arange(num))
    estimates = made.elbo(many, torch.Generator().manual_seed(7))
    error = 4 * float(estimates.std()) / num**0.5
    if kind == "absorbing":
        assert float(estimates.mean()) == pytest.approx(float(exact), abs=error)
    else:  # its bound is not tight for a model that ignores the noised token
        assert float(estimates.mean()) > float(exact) - error
    assert layout.blocks.max() == 2


@pytest.mark.thorough  # as test_learners does for diffusion; the order of the plies has its own tests above
def test_it_fits_32_records(connect_data: Dataset) -> None:
    check_learner(
        lambda: learner(paradigm="s-asa", redraw=False, sampler=SamplerConfig("by_ply", 3)),
        connect_data,
        max_updates=800,
        lr=5e-3,
    )


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learner\.process\.order' must be one of joint, ply; got 'plies'"):
        learner(process={"kind": "absorbing", "order": "plies"})


@pytest.mark.parametrize("name", ["joint_share", "state_share", "move_share"])
@pytest.mark.parametrize("share", [-0.1, 0.6, "much"])
def test_a_share_out_of_range_is_refused(name: str, share: object) -> None:
    with pytest.raises(ConfigError, match=rf"learner\.process\.{name}' is a part of the records"):
        learner(process={"kind": "absorbing", "order": "ply", name: share})


def test_shares_that_leave_nothing_for_the_last_are_refused() -> None:
    shares = {"state_share": 0.5, "move_share": 0.4, "joint_share": 0.2}
    with pytest.raises(ConfigError, match="together at most 1"):
        learner(process={"kind": "absorbing", "order": "ply", **shares})


@pytest.mark.parametrize("train_pad", [False, True])
def test_finished_games_become_roots_with_the_value_that_the_rules_give(connect_data: Dataset, train_pad: bool) -> None:
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "ends": True}
    made = learner(process=process, train_pad=train_pad)
    assert made.by_ply is not None
    assert made.by_ply.finished is not None
    game, layout, windows = made.game, made.layout, made.windows(connect_data, "train", seed=0)
    batch = windows.batch(np.arange(len(windows)), 0)
    over = made.by_ply.finished.roots(batch)
    assert over is not None
    by_index = {int(index): row for row, index in enumerate(batch.indices)}
    results = set()
    for row in range(len(over)):
        record = batch.tokens[by_index[int(over.indices[row])]].numpy()
        symbols = record[: layout.state_length]
        viewer = int((symbols == 1).sum() < (symbols == 2).sum())  # the second player has a stone less to move
        viewed = game.tokens.decode(symbols, viewer)
        final = game.play(viewed, int(record[layout.first_action]) - layout.move_offset)
        outcome = game.outcome(final)
        assert outcome is not None
        of_rules = probability_to_bin((1 + outcome) / 2, layout.num_value_bins)  # of the player who would be to move
        assert int(over.tokens[row, layout.first_action + 1]) == layout.value_offset + of_rules
        seen = game.tokens.encode([final], np.array([1 - viewer]))[0]  # by the other, who would be to move
        assert over.tokens[row, : layout.state_length].tolist() == seen.tolist()
        results.add(outcome)
    assert results == {0.0, -1.0}
    assert over.target.sum(1).tolist() == [1 + train_pad] * len(over)
    assert bool((over.tokens[:, layout.first_action] == (layout.pad if train_pad else layout.mask)).all())
    draws = torch.rand((4, len(batch)), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    *_, (last, pure) = made.by_ply.split(batch, draws)
    assert torch.equal(last.tokens, over.tokens)
    assert bool(pure.all())


@pytest.mark.parametrize("factorised_pad", [None, False])
def test_a_finished_game_trains_no_moves_logit(connect_data: Dataset, factorised_pad: bool | None) -> None:
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "ends": True, "state_share": 0, "move_share": 0}
    shape: dict[str, Any] = {"num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 4, "init_std": 0.3}
    network = NetworkConfig(geometry="board", head="typed", factorised_pad=factorised_pad, **shape)
    made = learner(process=process, train_pad=True, network=network)
    windows = made.windows(connect_data, "train", seed=0)
    assert made.by_ply is not None
    assert made.by_ply.finished is not None
    over = made.by_ply.finished.roots(windows.batch(np.arange(len(windows)), 0))
    assert over is not None
    where = torch.zeros_like(over.target)
    where[:, made.layout.first_action] = True
    network_made: Any = made.network
    hidden = network_made.trunk(over.tokens, torch.zeros(len(over)), over.frozen).detach()
    network_made.head.nll(hidden, over.tokens, where).sum().backward()
    moves = network_made.head.moves
    trained = max(float(weight.grad.abs().max()) for weight in [moves.bias, *moves.kinds.parameters()])
    assert (trained < 1e-4) == (factorised_pad is None)
    assert float(moves.pad.weight.grad.abs().max()) > 0.01


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"paradigm": "s-asa"}, "imagines moves, values and states"),
        ({"horizon": 1}, "a horizon of 2"),
        ({"viewer": "absolute"}, "viewer=mover"),
    ],
)
def test_finished_games_need_values_states_and_the_movers_side(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        learner(process={"kind": "absorbing", "order": "ply", "ends": True}, **options)


def test_joint_noise_has_no_share_of_itself_and_horizons_are_not_needed() -> None:
    with pytest.raises(ConfigError, match="joint_share"):
        learner(process={"kind": "absorbing", "joint_share": 0.5})
    with pytest.raises(ConfigError, match="all shorter horizons are trained already"):
        learner(horizons=[1, 2])


def test_one_call_and_the_sampler_see_no_more_than_they_were_trained_on() -> None:
    made, seen = learner(), list[int]()
    forward = made.network.forward
    made.network.forward = lambda tokens, t: seen.append(tokens.shape[1]) or forward(tokens, t)  # type: ignore
    state = made.game.parse()
    assert made.by_ply is not None
    first, board, last = made.by_ply.ends
    for options, expected in (
        ({"sampler": "one_call"}, [first]),
        ({"sampler": "by_ply", "num_steps": 2}, [first, last]),
        ({"sampler": "by_ply", "num_steps": 3}, [first, board, last, first]),
        ({"sampler": "by_ply", "num_steps": 4}, [first, board, board, last, first]),
        ({"sampler": "easy_first", "num_steps": 2}, [last, last]),
        ({"sampler": "by_ply", "num_steps": 2, "candidates": 3}, [first, board, first]),
    ):
        seen.clear()
        (decision,) = DiffusionPolicy(made, **options).decide([state])  # type: ignore[arg-type]
        assert seen == expected
        assert decision.stats["network_calls"] == len(expected)


def test_values_have_a_weight_of_their_own() -> None:
    losses = {}
    for weight in (0.0, 1.0, 3.0):
        made = learner(value_weight=weight, process={"kind": "absorbing", "num_timesteps": 4})
        losses[weight] = made.loss(batch_of(made, 16), torch.Generator().manual_seed(2))[0].item()
    assert losses[0.0] < losses[1.0]
    assert losses[3.0] - losses[0.0] == pytest.approx(3 * (losses[1.0] - losses[0.0]), rel=1e-4)
    with pytest.raises(ConfigError, match=r"learner\.value_weight must be at least 0, got -1"):
        learner(value_weight=-1.0)


def test_pure_noise_is_not_weighed_down() -> None:
    """Linear weights would give the first move, pure noise in most records, 1/T of what a half shown one has."""
    assert learner().process.weighting == "constant"
    asked = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "weighting": "linear"}
    assert learner(process=asked).process.weighting == "linear"
    assert learner(process={"kind": "absorbing", "num_timesteps": 4}).process.weighting == "linear"


def test_the_paper_s_sampler_is_compared_where_it_was_trained_for() -> None:
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "joint_share": 0.2}
    made = learner(process=process, sampler=SamplerConfig("by_ply", 3, candidates=2))
    assert list(DiffusionPolicy(made).modes()) == ["one_call", "easy_first 4", "by_ply 3", "imagined search 2 x 1"]


def test_every_block_is_what_the_network_says_of_it_given_those_before() -> None:
    made = learner()
    policy = DiffusionPolicy(made, sampler="by_ply", num_steps=3, temperature=0.0)
    state = made.game.parse()
    (*_, last) = policy.dream(state).steps
    assert made.by_ply is not None
    row = made.roots([state], made.viewers([state]))
    for end in made.by_ply.ends:
        row[:, :end] = torch.where(row[:, :end] == made.layout.mask, likeliest(made, row[:, :end]), row[:, :end])
    # The reply and its value are the first ones of the board before it, seen by whose turn it is.
    layout, board = made.layout, made.layout.slot("state", 1)
    reply, turned = layout.slot("action", 1), layout.tokenizer.turned
    assert board is not None
    assert reply is not None
    assert turned is not None
    places, symbols = turned
    root = torch.full((1, made.by_ply.ends[0]), layout.mask)
    root[0, : layout.state_length] = torch.from_numpy(symbols[row[0, board.start : board.stop].numpy()[places]])
    first = likeliest(made, root)[0]
    move = int(first[layout.first_action]) - layout.move_offset
    assert move < len(made.game.moves)
    row[0, reply.start] = made.game.moves.mirrored[move] + layout.move_offset
    value, of_root = layout.slot("value", 1), layout.slot("value", 0)
    assert value is not None
    assert of_root is not None
    row[0, value.start] = first[of_root.start]
    assert last.tokens.tolist() == row[0].tolist()


def likeliest(made: DiffusionLearner, tokens: Tensor) -> Tensor:
    """The likeliest symbol of each token by one call at the last time, no token PAD."""
    admitted = made.admitted[: tokens.shape[1]].clone()
    admitted[:, made.layout.pad] = False
    with torch.no_grad():
        logits = TypedLogits.of(made.network(tokens, torch.tensor([4]))).restrict(admitted)
    return logits.per_token(lambda group: group.symbols[group.logits.argmax(-1)])


def positions_played(num: int) -> list[tuple[Any, int]]:
    """Positions of a random game of chess, with their moves."""
    game, draw, played = genpolicy.load_game("chess"), np.random.default_rng(0), []
    state = game.parse("r3k2r/1P4p1/8/3pP3/8/8/1p4P1/R3K2R w KQkq d6 0 20")
    while len(played) < num:
        played.append((state, int(draw.choice(game.legal(state)))))
        after = game.play(*played[-1])
        state = after if game.outcome(after) is None else game.parse()
    return played


def movers(num: int) -> list[int]:
    return [genpolicy.load_game("chess").player(state) for state, _ in positions_played(num)]


def chess_windows(viewer: str, tokens: str, num: int = 24) -> tuple[DiffusionLearner, TokenBatch]:
    """Windows of positions of a random game, with their moves, as a data set has them."""
    game = genpolicy.load_game("chess")
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "any_move": 1.0}
    config = DiffusionConfig(
        network=BOARD, paradigm="s-avsav", horizon=2, process=process, tokens=tokens, viewer=viewer
    )
    made = DiffusionLearner(game, config)
    rows = []
    for state, move in positions_played(num):
        seen = game.player(state) if viewer == "mover" else 0
        row = np.full(made.layout.length, made.layout.mask)
        row[: made.layout.state_length] = made.layout.tokenizer.encode([state], [seen])[0]
        row[made.layout.first_action] = made.layout.move_offset + game.moves.seen_by(np.array([move]), seen)[0]
        rows.append(torch.from_numpy(row))
    given = torch.from_numpy(made.layout.given.copy()).expand(num, -1)
    return made, TokenBatch(torch.stack(rows), given, torch.zeros_like(given), torch.arange(num))


@pytest.mark.parametrize(
    ("viewer", "tokens"), [("mover", ""), ("mover", "plies"), ("absolute", ""), ("absolute", "plies")]
)
def test_the_board_after_any_move_is_the_one_that_the_rules_give(viewer: str, tokens: str) -> None:
    made, batch = chess_windows(viewer, tokens)
    game, layout = made.game, made.layout
    change = made.by_ply.any_move if made.by_ply is not None else None
    assert change is not None
    draws = torch.rand(len(batch), generator=torch.Generator().manual_seed(0))
    changed, state = change(batch, draws), layout.slot("state", 1)
    assert state is not None
    length, moved = layout.state_length, 0
    target = changed.target[:, state.start : state.stop].numpy()
    for row, old, known, true in zip(changed.tokens.numpy(), batch.tokens.numpy(), target, movers(24), strict=True):
        seen = true if viewer == "mover" else 0
        root = layout.tokenizer.decode(row[:length], seen)
        move = int(game.moves.seen_by(row[layout.first_action] - layout.move_offset, seen))
        assert move in game.legal(root)
        moved += row[layout.first_action] != old[layout.first_action]
        expected = layout.tokenizer.encode([game.play(root, move)], [seen])[0]
        assert row[state.start : state.stop][known].tolist() == expected[known].tolist()
        assert row[:length].tolist() == old[:length].tolist()
    assert moved > len(batch) / 2
    # The tokens without plies do not say who the mover is, on whom the number of the next move depends.
    assert (~target).sum(1).tolist() == [int(viewer == "mover" and not tokens)] * len(batch)
    assert torch.equal(change(batch, draws).tokens, changed.tokens)
    loss, _ = made.loss(batch, torch.Generator().manual_seed(0))  # of boards alone, since no move has a label
    assert 0 < loss.item() < float("inf")


def test_rare_moves_are_drawn_more_often_and_the_same_again() -> None:
    game = genpolicy.load_game("chess")
    learner_of = {
        rare: DiffusionLearner(
            game,
            DiffusionConfig(
                network=BOARD,
                paradigm="s-avsav",
                horizon=2,
                process={"kind": "absorbing", "num_timesteps": 4, "order": "ply", "any_move": 1.0, "rare_moves": rare},
                tokens="plies",
                viewer="mover",
            ),
        )
        for rare in (0.0, 1.0, 0.5)
    }
    state = game.parse("5r2/1k4p1/1p6/2pnPPPp/pP5P/P1p5/2P1Q3/K2R3R b - b3 0 32")  # a4b3 takes en passant
    layout, shares = learner_of[0.0].layout, dict[float, float]()
    row = torch.full((1, layout.length), layout.mask)
    row[:, : layout.state_length] = torch.from_numpy(layout.tokenizer.encode([state], [1]).astype(np.int64))
    given = torch.from_numpy(layout.given.copy())
    num = 400
    batch = TokenBatch(
        row.expand(num, -1), given.expand(num, -1), torch.zeros(num, layout.length, dtype=torch.bool), torch.arange(num)
    )
    draws = (torch.arange(num) + 0.5) / num
    for rare, made in learner_of.items():
        assert made.by_ply is not None
        assert made.by_ply.any_move is not None
        changed = made.by_ply.any_move(batch, draws).tokens
        assert torch.equal(changed, made.by_ply.any_move(batch, draws).tokens)
        moves = game.moves.seen_by(changed[:, layout.first_action].numpy() - layout.move_offset, 1)
        assert set(moves.tolist()) == set(game.legal(state).tolist())
        shares[rare] = float((moves == game.moves.index("a4b3")).mean())
    assert shares[0.0] < 0.05
    assert 0.2 < shares[1.0] < 0.5
    assert shares[0.5] == pytest.approx((shares[0.0] + shares[1.0]) / 2, abs=0.01)


def test_what_has_no_board_after_its_move_refuses_any_move() -> None:
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply"}
    for options, paradigm, message in (
        ({"any_move": 2.0}, "s-avsav", "any_move' is a part of the boards"),
        ({"any_move": 0.5}, "s-aa", "imagines the state after its move"),
        ({"any_move": 0.5, "one_pass": 0.5}, "s-avsav", "not beside"),
        ({"any_move": 0.5, "order": "joint"}, "s-avsav", "only under learner.process.order=ply"),
        ({"rare_moves": 0.5}, "s-avsav", "of learner.process.any_move, which is 0"),
        ({"rare_moves": 2.0, "any_move": 0.5}, "s-avsav", "rare_moves' is a part of the moves"),
    ):
        with pytest.raises(ConfigError, match=message):
            learner(paradigm=paradigm, process={**process, **options})
    pytest.importorskip("pyspiel", reason="open_spiel is not installed: pip install 'genpolicy[openspiel]'")
    config = DiffusionConfig(network=BOARD, paradigm="s-avsav", horizon=2, process={**process, "any_move": 0.5})
    without = DiffusionLearner(genpolicy.load_game("openspiel:tic_tac_toe"), config)
    assert without.by_ply is not None
    assert without.by_ply.any_move is not None
    with pytest.raises(ConfigError, match=r"do not lead back to a position.* set learner\.process\.any_move=0"):
        without.by_ply.any_move(batch_of(without, 4), torch.zeros(4))
