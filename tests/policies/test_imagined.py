"""Search in the imagination, against a slow reading of its definition."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import genpolicy
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.game import Game
from genpolicy.networks.config import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from genpolicy.policies.imagined import Imagination, ImaginedModel, Judged, Replies, search
from genpolicy.policies.thinking import Answer
from genpolicy.testing import check_search_model
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.rules import RulesModel
from genpolicy_mcts.selection import MctsConfig
from tests.small_datasets import CONNECT

BOARD = NetworkConfig(geometry="board", num_layers=2, width=32, num_heads=4, head="typed", init_std=0.3)
START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"


def learner(game: str = CONNECT, **options: Any) -> DiffusionLearner:
    torch.manual_seed(1)
    process = options.pop("process", {"kind": options.pop("kind", "absorbing"), "num_timesteps": 4})
    settings = {"paradigm": "s-avsav", "horizon": 2, "process": process, "network": BOARD, "viewer": "mover", **options}
    return DiffusionLearner(genpolicy.load_game(game), DiffusionConfig(**settings))


def positions(game: Game[Any], num: int) -> list[Any]:
    """Positions of one random game after another, whoever is to move."""
    draw, states = np.random.default_rng(0), []
    state = game.parse()
    while len(states) < num:
        states.append(state)
        state = game.play(state, int(draw.choice(game.legal(state))))
        if game.outcome(state) is not None or len(game.legal(state)) < 2:
            state = game.parse()
    return states


class Slow:
    """One position, one candidate at a time; calls of full length unless it was trained on shorter sequences."""

    def __init__(self, made: DiffusionLearner) -> None:
        self.made, self.layout, self.game = made, made.layout, made.game

    def logits(self, root: Tensor, move: int | None) -> Tensor:
        """[N, K] float64 of the whole sequence."""
        plies = 1 if move is None else 2
        end = self.made.end_of(plies) if plies in self.made.config.horizons else self.layout.length
        row = torch.full((1, end), self.layout.mask)
        row[0, : len(root)] = root
        if move is not None:
            row[0, self.layout.first_action] = self.layout.move_offset + move
        with torch.no_grad():
            out = self.made.network(row, torch.full((1,), self.made.process.num_timesteps))
        return TypedLogits.of(out).dense()[0].double()

    def judge(self, root: Tensor) -> tuple[Tensor, float]:
        logits, layout = self.logits(root, None), self.layout
        value = layout.slot("value", 0)
        assert value is not None
        bins = logits[value.start, layout.value_offset : layout.pad].softmax(-1)
        win = sum((i + 0.5) / len(bins) * float(p) for i, p in enumerate(bins))
        return logits[layout.first_action, layout.move_offset : layout.value_offset].log_softmax(-1), win

    def after(self, root: Tensor, move: int) -> Tensor:
        state = self.layout.slot("state", 1)
        assert state is not None
        logits = self.logits(root, move)[state.start : state.stop, : self.layout.move_offset]
        admitted = self.made.admitted[state.start : state.stop, : self.layout.move_offset]
        board = logits.masked_fill(~admitted, -torch.inf).argmax(-1)
        places, symbols = (torch.from_numpy(np.array(t)).long() for t in self.layout.tokenizer.turned or ())
        return symbols[board[places]]

    def scores(self, state: Any, moves: list[int], depth: int, weight: float) -> dict[int, tuple[float, float]]:
        """Score and worth of some moves, as the mover sees them."""
        viewer = self.game.player(state)
        root = torch.from_numpy(self.game.tokens.encode([state], np.array([viewer]))[0].astype(np.int64))
        prior, _ = self.judge(root)
        found = {}
        for move in moves:
            board, played, worths = root, move, []
            for ply in range(1, depth + 1):
                board = self.after(board, played)
                chances, win = self.judge(board)
                played = int(chances.argmax())
                worths.append(1 - win if ply % 2 else win)
            worth = sum(worths) / depth
            found[move] = (float(prior[move]) + weight * worth, worth)
        return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("horizons", [[], [1, 2]])
def test_decisions_are_those_of_the_definition(depth: int, horizons: list[int]) -> None:
    made = learner(horizons=horizons)
    game, num, weight = made.game, 3, 5.0
    policy = DiffusionPolicy(made, candidates=num, depth=depth, weight=weight)
    slow = Slow(made)
    for state in positions(game, 6):
        (decision,) = policy.decide([state])
        viewer = game.player(state)
        legal = game.moves.seen_by(game.legal(state), viewer).tolist()
        root = torch.from_numpy(game.tokens.encode([state], np.array([viewer]))[0].astype(np.int64))
        prior, _ = slow.judge(root)
        likeliest = sorted(legal, key=lambda move: -float(prior[move]))[:num]
        expected = slow.scores(state, likeliest, depth, weight)
        best = max(expected, key=lambda move: expected[move][0])
        assert game.moves.seen_by(np.array([decision.move]), viewer)[0] == best
        assert decision.value == pytest.approx(2 * expected[best][1] - 1, abs=1e-5)
        assert len(decision.line) == depth + 1
        assert len(decision.states) == depth
        assert [v.line[0] for v in decision.variations] == game.moves.seen_by(
            np.array(sorted(expected, key=lambda move: -expected[move][0])), viewer
        ).tolist()
        worths = [expected[int(game.moves.seen_by(np.array(v.line[0]), viewer))][1] for v in decision.variations]
        assert [v.value for v in decision.variations] == pytest.approx([2 * worth - 1 for worth in worths], abs=1e-5)
        assert policy.num_calls == 1 + 2 * depth
        assert decision.stats["network_calls"] == 1 + 2 * depth


class Rotating:
    """A model that can be followed by hand: a move adds 5 where it points, the likeliest move is the largest entry."""

    mirrored = torch.tensor([2, 1, 0, 3])
    learner: Any = type("", (), {"network": type("", (), {"encode": staticmethod(lambda *_: None)})})

    def turned(self, boards: Tensor) -> Tensor:
        return boards[:, [2, 1, 0, 3]]

    def judge(self, roots: Tensor, encoded: None = None) -> Judged:
        return Judged(roots.double().log_softmax(-1), roots[:, 0] / 100.0, torch.zeros(len(roots), dtype=torch.bool))

    def after(self, roots: Tensor, moves: Tensor, encoded: None = None) -> Tensor:
        return roots + 5 * torch.eye(4, dtype=torch.int64)[moves]


def test_lines_and_boards_are_those_that_the_root_sees() -> None:
    """Where the other side's moves have other ids, as they have in chess and shogi."""
    model: Any = Rotating()
    root = torch.tensor([[3, 0, 1, 2]] * 2)
    legal = torch.tensor([[True, False, False, True], [True, True, False, True]])
    found = search(model, root, legal, 9, depth=3, weight=0.0)
    assert found.lines.shape == (2, 3, 4), "no position has more than three moves"
    assert found.lines[0, 2].tolist() == [-1] * 4, "there are two moves only"
    for line, boards, worth in zip(found.lines[0, :2], found.boards[0], found.worth[0], strict=False):
        board, wins = root[0], []
        for ply, move in enumerate(line[:-1].tolist()):
            board = board + 5 * torch.eye(4, dtype=torch.int64)[move]
            assert boards[ply].tolist() == board.tolist()
            seen = model.turned(board[None])[0] if ply % 2 == 0 else board  # by who is to move next
            reply = int(seen.argmax())
            assert line[ply + 1] == (model.mirrored[reply] if ply % 2 == 0 else reply)
            wins.append(1 - float(seen[0]) / 100 if ply % 2 == 0 else float(seen[0]) / 100)
        assert float(worth) == pytest.approx(sum(wins) / 3)
    assert sorted(found.lines[0, :2, 0].tolist()) == [0, 3]


def test_a_later_move_is_that_of_the_board_before_it() -> None:
    """Its own block tells only whether the game is over by then; who moves sees the board from his side."""
    made = learner("chess", process={"kind": "absorbing", "num_timesteps": 4, "order": "ply"}, train_pad=True)
    layout, replies = made.layout, Replies(made)
    later = layout.slot("action", 1)
    board = layout.slot("state", 1)
    assert later is not None
    assert board is not None
    roots = torch.from_numpy(made.game.tokens.encode(positions(made.game, 2)).astype(np.int64))
    tokens = torch.full((2, layout.length), layout.mask)
    tokens[:, : layout.state_length], tokens[:, board.start : board.stop] = roots, roots.flip(0)
    with torch.no_grad():
        made_of = TypedLogits.of(made.network(tokens, None))
        before = made_of.map(lambda g: g.logits + 12.0 * (g.symbols == layout.pad))  # perhaps the game is over
        after = replies.put(before, tokens, int(layout.blocks[later.start])).dense().double().log_softmax(-1)
        policy = replies.policy(replies.turned(roots.flip(0)))
        assert replies.put(before, tokens, 0) is before
    own = before.dense().double().log_softmax(-1)
    assert (own[:, later.start, layout.pad] > -4).all()
    others = torch.from_numpy(layout.blocks != layout.blocks[later.start])
    torch.testing.assert_close(after[:, others], own[:, others])
    of_moves = slice(layout.move_offset, layout.value_offset)
    torch.testing.assert_close(after[:, later.start, layout.pad], own[:, later.start, layout.pad])
    mirrored = torch.from_numpy(made.game.moves.mirrored.copy())
    expected = own[:, later.start, of_moves].logsumexp(-1, keepdim=True) + policy[:, mirrored]
    torch.testing.assert_close(after[:, later.start, of_moves], expected, rtol=1e-4, atol=1e-5)


def test_a_later_value_is_that_of_the_board_before_it() -> None:
    made = learner("chess", process={"kind": "absorbing", "num_timesteps": 4, "order": "ply"})
    layout, replies = made.layout, Replies(made)
    value, board = layout.slot("value", 1), layout.slot("state", 1)
    assert value is not None
    assert board is not None
    boards = torch.from_numpy(made.game.tokens.encode(positions(made.game, 2)).astype(np.int64))
    tokens = torch.full((2, layout.length), layout.mask)
    tokens[:, board.start : board.stop] = boards
    with torch.no_grad():
        before = TypedLogits.of(made.network(tokens, None))
        after = replies.put(before, tokens, int(layout.blocks[value.start])).dense().double().softmax(-1)
        win = Imagination(made).judge(replies.turned(boards)).win
    shares = after[:, value.start, layout.value_offset : layout.code_offset]
    centres = (torch.arange(shares.shape[1]) + 0.5) / shares.shape[1]
    torch.testing.assert_close(shares @ centres.double(), win, rtol=1e-4, atol=1e-5)


def test_the_board_after_a_move_is_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the network is sure that the game is over, no square becomes PAD."""
    made = learner(train_pad=True)
    real, pad = made.network.denoise, made.layout.pad

    def sure_of_the_end(*given: Any) -> TypedLogits:
        return TypedLogits.of(real(*given)).map(lambda g: g.logits + 100.0 * (g.symbols == pad))

    monkeypatch.setattr(made.network, "denoise", sure_of_the_end)
    roots = torch.from_numpy(made.game.tokens.encode(positions(made.game, 2)).astype(np.int64))
    with torch.no_grad():
        assert (Imagination(made).after(roots, torch.tensor([0, 1])) < made.layout.move_offset).all()


def test_a_board_with_padding_is_turned_like_any_other() -> None:
    """A young network imagines PAD on squares; the symbols of other tokens turn with the sides."""
    replies = Replies(learner(train_pad=True))
    pad, length = replies.layout.pad, replies.layout.state_length
    boards = torch.zeros(2, length, dtype=torch.int64)
    boards[1, 0] = pad
    turned = replies.turned(boards)
    assert int((turned == pad).sum()) == 1
    assert torch.equal(replies.turned(turned), boards)


@pytest.mark.parametrize("kind", ["absorbing", "multinomial"])
def test_no_row_depends_on_the_others(kind: str) -> None:
    policy = DiffusionPolicy(learner(kind=kind), candidates=4, weight=8.0)
    states = positions(policy.game, 8)
    together = policy.decide(states)
    for state, decision in zip(states, together, strict=True):
        (alone,) = policy.decide([state])
        assert alone.move == decision.move
        assert alone.line == decision.line
        assert alone.value == pytest.approx(decision.value, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"candidates": 8, "depth": 1}, 128),
        ({"num_futures": 3, "temperature": 1.0, "sampler": "a0_last"}, 126),
        ({}, 48),
    ],
)
def test_calls_on_a_cpu_have_at_most_128_rows(options: dict[str, Any], most: int) -> None:
    made = learner()
    policy = DiffusionPolicy(made, batch_size=64, **options)
    rows: list[int] = []
    handle = made.network.trunk.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    states = positions(made.game, 48)
    together = policy.decide(states)
    handle.remove()
    assert max(rows) == most
    assert len(together) == len(states)


def test_more_candidates_than_legal_moves_are_all_of_them() -> None:
    policy = DiffusionPolicy(learner(), candidates=64, weight=4.0)
    for state, decision in zip(found := positions(policy.game, 5), policy.decide(found), strict=True):
        assert decision.policy is not None
        assert set(decision.policy) == set(policy.game.legal(state).tolist())
        assert max(decision.policy, key=lambda move: decision.policy[move]) == decision.move  # type: ignore[index]
    rows: list[int] = []
    policy.learner.network.trunk.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    policy.decide([last := found[-1]])
    assert max(rows) == len(policy.game.legal(last)) < 9, "no more are imagined"


def test_without_weight_it_plays_the_likeliest_move_of_one_call() -> None:
    made = learner()
    searching, one_call = (
        DiffusionPolicy(made, candidates=5, weight=0.0),
        DiffusionPolicy(made, sampler="one_call", num_steps=1, candidates=0),
    )
    states = positions(made.game, 12)
    for mask in (True, False):
        moves = [
            [d.line[0] for d in each.with_options(legal_mask=mask).decide(states)] for each in (searching, one_call)
        ]
        assert moves[0] == moves[1]


def test_the_imagined_line_is_shown() -> None:
    policy = DiffusionPolicy(learner("chess"), candidates=3, depth=1)
    state = policy.game.parse(START)
    (decision,) = policy.decide([state])
    assert decision.line[0] == decision.move
    assert len(decision.line) == 2
    assert len(decision.states) == 1
    assert [len(variation.line) for variation in decision.variations] == [2, 2, 2]
    answer = Answer.of(decision, num_variations=2)
    assert answer.variations[0].line == decision.line
    assert answer.variations[1] == decision.variations[1]


def test_the_imagination_is_a_search_model(tmp_path: Path) -> None:
    policy = DiffusionPolicy(learner())
    game = policy.game
    assert policy.search_model() is None
    model = policy.search_model("imagined")
    assert model is not None
    check_search_model(model, positions(game, 4), max_nodes=60)
    folder = policy.save_pretrained(tmp_path / "policy")
    searching = genpolicy.load_policy(f"mcts:{folder}?model=imagined&simulations=20")
    for state, decision in zip(found := positions(game, 3), searching.decide(found), strict=True):
        assert decision.move in game.legal(state)
        assert decision.stats["network_calls"] > 3
        assert decision.variations[0].line == decision.line
        assert all(len(each.states) == 1 and each.value is not None for each in decision.variations)
    with pytest.raises(ValueError, match=r"model=dreamt: .* has no such model; model=rules searches the rules"):
        genpolicy.load_policy(f"mcts:{folder}?model=dreamt")


def test_expanded_boards_are_the_likeliest_ones() -> None:
    made = learner()
    model, slow, game = ImaginedModel(Imagination(made)), Slow(made), made.game
    for state in positions(game, 4):
        nodes = model.root([state])
        move = int(nodes.choices[0].ids[0])
        (board,) = model.expand(nodes.embeddings, [move]).embeddings
        seen = int(game.moves.seen_by(np.array(move), game.player(state)))
        assert torch.equal(board.tokens, slow.after(nodes.embeddings[0].tokens, seen))
        assert board.player == 1 - game.player(state)


def test_a_tree_search_calls_a_cpu_with_at_most_128_rows() -> None:
    made = learner()
    model = ImaginedModel(Imagination(made))
    rows: list[int] = []
    handle = made.network.trunk.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    states = positions(made.game, 150)
    nodes = model.root(states)
    moves = [int(each.ids[0]) for each in nodes.choices]
    after = model.expand(nodes.embeddings, moves)
    handle.remove()
    assert rows == [128, 22] * 3
    assert model.network_calls == 3  # as an answer counts them: calls that wait for each other
    for row in (0, 127, 128, 149):
        alone = model.expand([nodes.embeddings[row]], [moves[row]])
        assert torch.equal(alone.embeddings[0].tokens, after.embeddings[row].tokens)
        assert alone.values[0] == pytest.approx(after.values[row], abs=1e-5)


class Table(torch.nn.Module):
    """A perfect denoiser of ``s-avsav``: the rules' board after a given move, and of a position whatever is drawn for
    its key, as ``judged`` says. Of a finished game it says PAD and the result."""

    def __init__(self, made: DiffusionLearner) -> None:
        super().__init__()
        self.layout, self.game = made.layout, made.game

    def judged(self, state: Any) -> tuple[np.ndarray[Any, Any], int]:
        """[legal moves] their probabilities, and the bin of the win probability."""
        draw = np.random.default_rng([ord(letter) for letter in str(self.game.key(state))])
        weights = draw.random(len(self.game.legal(state))) + 0.05
        return weights / weights.sum(), int(draw.integers(self.layout.num_value_bins))

    def evaluate(self, states: Any) -> Any:
        """As ``RulesModel`` asks, priors and values in [-1, 1]."""
        rows = [(self.game.legal(state).tolist(), *self.judged(state)) for state in states]
        priors = [dict(zip(moves, shares.tolist(), strict=True)) for moves, shares, _ in rows]
        return priors, [2 * (place + 0.5) / self.layout.num_value_bins - 1 for _, _, place in rows]

    def encode(self, tokens: Tensor, copies: int = 1) -> None:
        """Nothing is kept."""

    def denoise(self, tokens: Tensor, t: Tensor | None, encoded: Any, visible: Tensor | None = None) -> TypedLogits:
        layout, game = self.layout, self.game
        value, after = layout.slot("value", 0), layout.slot("state", 1)
        assert value is not None
        assert after is not None
        chances = torch.full((*tokens.shape, layout.num_symbols), 1e-30, dtype=torch.float64)
        for row, ids in enumerate(tokens.tolist()):
            stones = np.array(ids[: layout.state_length])
            mover = int((stones[:-1] == 1).sum() < (stones[:-1] == 2).sum())  # own stones and those of the other side
            state = game.tokens.decode(stones, mover)
            if (outcome := game.outcome(state)) is not None:
                chances[row, layout.first_action, layout.pad] = 1.0
                place = min(int((1 + outcome) / 2 * layout.num_value_bins), layout.num_value_bins - 1)
                chances[row, value.start, layout.value_offset + place] = 1.0
                continue
            shares, place = self.judged(state)
            moves = game.moves.seen_by(game.legal(state), mover)
            chances[row, layout.first_action, layout.move_offset + moves] = torch.from_numpy(shares)
            chances[row, value.start, layout.value_offset + place] = 1.0
            move = ids[layout.first_action] - layout.move_offset
            if move < len(game.moves):
                played = game.play(state, int(game.moves.seen_by(np.array(move), mover)))
                board = game.tokens.encode([played], np.array([mover]))[0].tolist()
                chances[row, range(after.start, after.stop), board] = 1.0
        return TypedLogits.of(chances.log())


@pytest.mark.parametrize("num_moves", [0, 1])
def test_a_perfect_denoiser_is_the_rules(num_moves: int) -> None:
    """The same visits, as long as no line comes to the end of a game, which the imagination knows by values alone."""
    made = learner("connect:rows=4,cols=4,k=4,gravity=false")
    table, state = Table(made), made.game.parse()
    made.network = table  # type: ignore[assignment]
    for move in (4, 0)[:num_moves]:
        state = made.game.play(state, move)
    config = MctsConfig(simulations=60, leaves=1)
    by_rules = Mcts(RulesModel(made.game, table.evaluate), config).search([state])[0]
    imagined = Mcts(ImaginedModel(Imagination(made)), config).search([state])[0]
    assert imagined.visits == by_rules.visits
    assert imagined.line == by_rules.line
    assert imagined.value == pytest.approx(by_rules.value, abs=1e-6)
    assert 3 <= by_rules.depth < 7 - num_moves  # seven plies end a game


ENDS = {"process": {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "ends": True}, "train_pad": True}


@pytest.mark.parametrize("moves", [[], [4, 0], [4, 0, 8], [4, 0, 8, 2, 1]])
def test_a_perfect_denoiser_that_knows_ends_is_the_rules(moves: list[int]) -> None:
    """The same visits to the end of the game, for the middle of the last bin stands for a win."""
    made = learner("connect:rows=3,cols=3,k=3,gravity=false", **ENDS)
    table, state = Table(made), made.game.parse()
    made.network = table  # type: ignore[assignment]
    for move in moves:
        state = made.game.play(state, move)
    edge = 1 - 1 / made.layout.num_value_bins
    config = MctsConfig(simulations=200, leaves=1)
    by_rules = Mcts(Edged(made.game, table.evaluate, edge), config).search([state])[0]
    imagined = Mcts(ImaginedModel(Imagination(made)), config).search([state])[0]
    assert imagined.visits == by_rules.visits
    assert imagined.line == by_rules.line
    assert imagined.value == pytest.approx(by_rules.value, abs=1e-6)


class Edged(RulesModel):
    """Results as the bins of a value tell them: a draw is the middle of the bin above 0."""

    def __init__(self, game: Game[Any], evaluate: Any, edge: float) -> None:
        super().__init__(game, evaluate)
        self.edge = edge

    def expand(self, embeddings: Any, choices: Any) -> Any:
        nodes = super().expand(embeddings, choices)
        ended = [discount == 0 for discount in nodes.discounts]
        results = [self.edge * r if r else self.edge - 1 for r in nodes.rewards]
        rewards = [result if end else 0.0 for result, end in zip(results, ended, strict=True)]
        return dataclasses.replace(nodes, rewards=rewards)


def test_a_reply_is_not_imagined_where_the_game_is_over() -> None:
    made = learner("connect:rows=3,cols=3,k=3,gravity=false", **ENDS)
    made.network = Table(made)  # type: ignore[assignment]
    state = made.game.parse()
    for move in (0, 3, 1, 4):
        state = made.game.play(state, move)
    won = DiffusionPolicy(made, candidates=9, depth=1, weight=32.0).decide([state])[0]
    assert won.line == (2, -1)
    assert won.value == pytest.approx(1 - 1 / made.layout.num_value_bins)


class Ending(Rotating):
    """Over where the entry that ``moves`` points to has grown."""

    def judge(self, roots: Tensor, encoded: None = None) -> Judged:
        return super().judge(roots)._replace(over=roots[:, 1] > 4)


def test_a_line_keeps_the_worth_of_its_end() -> None:
    model: Any = Ending()
    for depth in (1, 2, 3):
        found = search(model, torch.tensor([[3, 0, 1, 2]]), torch.tensor([[False, True, False, False]]), 1, depth=depth)
        assert found.lines[0, 0].tolist() == [1] + [-1] * depth
        assert float(found.worth[0, 0]) == pytest.approx(1 - 1 / 100)  # of the first board, whatever comes after it


def test_only_a_network_that_was_trained_on_ends_knows_them() -> None:
    """PAD may be likely where it was never trained."""
    made = learner(train_pad=True)
    real, pad = made.network.denoise, made.layout.pad
    made.network.denoise = lambda *given: TypedLogits.of(real(*given)).map(  # type: ignore[method-assign]
        lambda g: g.logits + 100.0 * (g.symbols == pad)
    )
    roots = torch.from_numpy(made.game.tokens.encode(positions(made.game, 2)).astype(np.int64))
    with torch.no_grad():
        assert not Imagination(made).judge(roots).over.any()
