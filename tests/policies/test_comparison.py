"""Comparison training: the loss is the search's own decision, and what it teaches are values alone."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.data.windows import TokenBatch, WindowSource
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.prefix import Encoded
from genpolicy.policies.comparison import LOSS_WEIGHT, Comparison
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, SamplerConfig
from genpolicy.policies.imagined import Imagination, Judged, search
from tests.small_datasets import CONNECT, solved_connect

BOARD = NetworkConfig(geometry="board", num_layers=2, width=32, num_heads=4, head="typed", init_std=0.2)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("comparison"), every=7)


def learner(share: float = 1.0, game: str = CONNECT, candidates: int = 9, **options: Any) -> DiffusionLearner:
    torch.manual_seed(1)
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "compare": share}
    depth, weight = options.pop("depth", 1), options.pop("weight", 16.0)
    sampler = SamplerConfig(name="by_ply", candidates=candidates, depth=depth, weight=weight)
    settings = {"paradigm": "s-avsav", "horizon": 2, "viewer": "mover", "network": BOARD, "process": process, **options}
    return DiffusionLearner(genpolicy.load_game(game), DiffusionConfig(sampler=sampler, **settings))


def comparison_of(made: DiffusionLearner) -> Comparison:
    assert made.by_ply is not None
    assert made.by_ply.compare is not None
    return made.by_ply.compare


def batch_of(made: DiffusionLearner, data: Dataset, num: int = 24) -> TokenBatch:
    windows = made.windows(data, "train", seed=0)
    assert isinstance(windows, WindowSource)
    batch = windows.batch(np.arange(num), 0)
    assert isinstance(batch, TokenBatch)
    return batch


class Ruled(Imagination):
    """A network whose imagined board is the one that the rules give, as are the ends and the moves to choose from."""

    def judge(self, roots: Tensor, encoded: Encoded | None = None) -> Judged:
        judged, legal = super().judge(roots, encoded), legal_of(self.learner, roots)
        return judged._replace(log_policy=judged.log_policy.masked_fill(~legal, -torch.inf), over=~legal.any(1))

    def after(self, roots: Tensor, moves: Tensor, encoded: Encoded | None = None) -> Tensor:
        legal = legal_of(self.learner, roots)
        rows = [
            self.game_after(root, int(move)) if bool(may[move]) else root  # the game is over
            for root, move, may in zip(roots.numpy(), moves, legal, strict=True)
        ]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def game_after(self, root: np.ndarray, move: int) -> np.ndarray:
        game, tokenizer = self.learner.game, self.layout.tokenizer
        state, player = position_of(self.learner, root)
        (after,) = tokenizer.encode([game.play(state, int(game.moves.seen_by(np.array(move), player)))], [player])
        return np.asarray(after)


def position_of(made: DiffusionLearner, root: np.ndarray) -> tuple[Any, int]:
    for player in (0, 1):
        with contextlib.suppress(ValueError):
            state = made.layout.tokenizer.decode(root, player)
            if made.game.player(state) == player:
                return state, player
    raise AssertionError(root)


def legal_of(made: DiffusionLearner, roots: Tensor) -> Tensor:
    legal = torch.zeros((len(roots), len(made.game.moves)), dtype=torch.bool)
    for row, root in enumerate(roots.numpy()):
        try:
            state, player = position_of(made, root)
        except AssertionError:  # a finished game, seen from the side that has moved
            continue
        legal[row, torch.from_numpy(made.game.moves.seen_by(made.game.legal(state), player))] = True
    return legal


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_it_is_what_the_search_would_have_to_pay_for_its_decisions(solved: Dataset, depth: int) -> None:
    made = learner(depth=depth)
    batch, layout = batch_of(made, solved), made.layout
    roots = batch.tokens[:, : layout.state_length]
    with torch.no_grad():
        found = search(Ruled(made), roots, legal_of(made, roots), 9, depth=depth, weight=16.0)
        paid = comparison_of(made).loss(made, batch)
    labels = batch.tokens[:, layout.first_action] - layout.move_offset
    chances = found.score.log_softmax(-1)
    expected = [float(chances[i][found.lines[i, :, 0] == labels[i]]) for i in range(len(batch))]
    assert float(paid) == pytest.approx(-LOSS_WEIGHT * sum(expected) / len(batch), rel=1e-5)


def test_the_labelled_move_is_compared_where_it_is_no_candidate(solved: Dataset) -> None:
    made = learner(candidates=2)
    batch, layout = batch_of(made, solved), made.layout
    model, roots = Ruled(made), batch.tokens[:, : layout.state_length]
    legal, paid = legal_of(made, roots), 0.0
    with torch.no_grad():
        log_policy = model.policy(roots).masked_fill(~legal, -torch.inf)
        for row, root in enumerate(roots):
            label = int(batch.tokens[row, layout.first_action]) - layout.move_offset
            others = [move for move in log_policy[row].argsort(descending=True).tolist() if move != label]
            moves = [label, *[move for move in others if legal[row, move]][:1]]
            after = model.after(root.expand(len(moves), -1), torch.tensor(moves))
            score = log_policy[row, moves] + 16.0 * (1 - model.judge(model.turned(after)).win)
            paid -= LOSS_WEIGHT * float(score.log_softmax(-1)[0]) / len(batch)
        assert float(comparison_of(made).loss(made, batch)) == pytest.approx(paid, rel=1e-5)


def test_it_is_added_to_the_other_losses_of_its_share_of_the_records(solved: Dataset) -> None:
    made, without = learner(0.25), learner(0.0)
    batch = batch_of(made, solved)
    (both, figures), (alone, none) = (one.loss(batch, torch.Generator().manual_seed(0)) for one in (made, without))
    only = comparison_of(made).loss(made, batch)
    assert (both - alone).item() == pytest.approx(only.item(), rel=1e-4)
    assert float(figures["comparison"]) == float(only.detach())
    assert none == {}
    part = comparison_of(learner(1.0)).loss(made, batch.rows(torch.arange(6)))
    assert float(only) == pytest.approx(float(part) * 6 / 24, rel=1e-5)


def test_no_gradient_goes_through_the_policy(solved: Dataset) -> None:
    made = learner(weight=0.0)
    loss = comparison_of(made).loss(made, batch_of(made, solved))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss) > 0
    assert all(p.grad is None or not bool(p.grad.any()) for p in made.parameters())


def test_what_has_no_label_or_an_illegal_one_is_left_out(solved: Dataset) -> None:
    made = learner()
    batch, action = batch_of(made, solved), made.layout.first_action
    some = comparison_of(made).loss(made, batch.rows(torch.arange(12)))
    batch.target[12:18, action] = False
    batch.tokens[18:, action] = made.layout.pad
    assert comparison_of(made).loss(made, batch).item() == pytest.approx(some.item() / 2, rel=1e-5)
    batch.target[:, action] = False
    assert float(comparison_of(made).loss(made, batch)) == 0


def test_it_teaches_the_search(solved: Dataset) -> None:
    made = learner(weight=32.0)
    batch, layout = batch_of(made, solved, 16), made.layout
    roots, labels = batch.tokens[:, : layout.state_length], batch.tokens[:, layout.first_action] - layout.move_offset
    legal, optimizer = legal_of(made, roots), torch.optim.Adam(made.parameters(), lr=2e-3)

    def right() -> float:
        with torch.no_grad():
            found = search(Ruled(made), roots, legal, 9, depth=1, weight=32.0)
        return float((found.lines[:, 0, 0] == labels).float().mean())

    before, losses = right(), []
    for _ in range(30):
        optimizer.zero_grad()
        loss = comparison_of(made).loss(made, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert right() > before


def test_weights_that_are_not_finite_give_a_loss_that_is_not(solved: Dataset) -> None:
    """Training says what to do then; an error of torch's would say nothing."""
    made = learner()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(float("nan"))
    assert not bool(comparison_of(made).loss(made, batch_of(made, solved)).isfinite())


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_small_batches_are_compared_too(solved: Dataset, share: float) -> None:
    made = learner(share)
    loss = comparison_of(made).loss(made, batch_of(made, solved, 1))
    assert float(loss) > 0
    assert loss.dtype == torch.float32


def test_chess_is_compared_from_both_sides() -> None:
    made = learner(game="chess", candidates=4, tokens="plies")
    game, layout = made.game, made.layout
    states = [game.parse(), game.play(game.parse(), game.moves.index("e2e4"))]
    rows = torch.full((2, layout.length), layout.mask)
    for row, state in enumerate(states):
        player = game.player(state)
        rows[row, : layout.state_length] = torch.from_numpy(layout.tokenizer.encode([state], [player])[0].astype(int))
        move = game.moves.seen_by(game.legal(state)[:1], player)
        rows[row, layout.first_action] = layout.move_offset + int(move[0])
    target = torch.zeros_like(rows, dtype=torch.bool)
    target[:, layout.first_action] = True
    given = torch.from_numpy(layout.given.copy()).expand_as(rows)
    loss = comparison_of(made).loss(made, TokenBatch(rows, given, target, torch.arange(2)))
    assert 0 < float(loss) < float("inf")
    compared = comparison_of(made)
    roots = compared._roots(TokenBatch(rows, given, target, torch.arange(2)))
    assert [len(root.legal) for root in roots] == [20, 20]
    moves = torch.tensor(np.stack([root.legal for root in roots]))
    after = compared._encoded(*compared._after(roots, moves, torch.ones_like(moves, dtype=torch.bool))).view(2, 20, -1)
    for state, seen, found in zip(states, moves.numpy(), after.numpy(), strict=True):
        player = game.player(state)
        played = [game.play(state, int(move)) for move in game.moves.seen_by(seen, player)]
        assert found.tolist() == layout.tokenizer.encode(played, [1 - player] * 20).tolist()


def test_a_draw_by_rule_ends_a_line_though_moves_are_left() -> None:
    made = learner(game="chess", candidates=2, depth=2)
    game, compared = made.game, comparison_of(made)
    taken = game.parse("8/8/3k4/8/3K4/8/8/8 w - - 0 1")  # two kings: nobody can win
    with torch.no_grad():
        judged = Imagination(made).judge(compared._encoded([taken], [0]))
        states, ended = compared._replied([taken], [0], judged.log_policy)
    assert len(game.legal(taken)) > 0
    assert ended.tolist() == [True]
    assert states == [taken]


def test_what_it_cannot_train_is_refused(solved: Dataset) -> None:
    with pytest.raises(ConfigError, match=r"compare' is a part of the records, from 0 to 1; got 2"):
        learner(2.0)
    with pytest.raises(ConfigError, match=r"only under learner\.process\.order=ply"):
        learner(process={"kind": "absorbing", "num_timesteps": 4, "compare": 0.5})
    with pytest.raises(ConfigError, match="compare: the game has chance"):
        learner(game="pig")
    for few in (0, 1):
        made = learner(candidates=few)
        with pytest.raises(ConfigError, match=r"set learner\.sampler\.candidates to 2 or more, got"):
            made.loss(batch_of(made, solved), torch.Generator())
    made = learner(paradigm="s-asa")
    with pytest.raises(ConfigError, match=r"has no values .*, or learner\.process\.compare=0$"):
        made.loss(batch_of(made, solved), torch.Generator())


def test_tokens_that_lead_back_to_no_position_are_refused() -> None:
    pytest.importorskip("pyspiel", reason="open_spiel is not installed: pip install 'genpolicy[openspiel]'")
    made = learner(game="openspiel:tic_tac_toe")
    rows = torch.zeros((1, made.layout.length), dtype=torch.int64)
    batch = TokenBatch(rows, rows.bool(), rows.bool(), torch.arange(1))
    with pytest.raises(ConfigError, match=r"do not lead back to a position.* set learner\.process\.compare=0"):
        comparison_of(made).loss(made, batch)
