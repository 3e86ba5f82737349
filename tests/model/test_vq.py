"""The autoencoder of transitions, the learner of a model with codes and its policy."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from benchmarks.plies_ahead import Stretch, look_ahead
from genpolicy import load_game, load_policy
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.game import Game
from genpolicy.networks.config import NetworkConfig
from genpolicy.sequence import Layout
from genpolicy.testing.policies import check_learner, check_policy
from genpolicy.testing.search import check_search_model
from genpolicy_policy_model.episodes import EpisodeBatch
from genpolicy_policy_model.quantise import Codebooks
from genpolicy_policy_model.vq import VQLearner, every, transitions
from genpolicy_policy_model.vq_config import VQConfig
from genpolicy_policy_model.vq_network import AnswerOnSquares
from genpolicy_policy_model.vq_policy import VQPolicy
from genpolicy_policy_model.vq_squares import SquaresAutoencoder, make_autoencoder
from tests.small_datasets import CONNECT, solved_connect, write_dataset

GAME: Game[Any] = load_game(CONNECT)


def config(**changed: Any) -> VQConfig:
    shape = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 8}
    network = NetworkConfig(**{**shape, **changed.pop("network", {})})
    given = {"latent_width": 32, "dynamics_layers": 1, "unroll": 2, "source": "walks", "autoencoder_width": 64}
    return VQConfig(network=network, **{**given, "num_codes": 8, **changed})


def learner_of(seed: int = 0, game: Game[Any] = GAME, **changed: Any) -> VQLearner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VQLearner(game, config(**changed))


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("solved"), horizon=1, every=3)


def batch_of(learner: VQLearner, data: Dataset, num: int = 64) -> EpisodeBatch:
    batch = learner.windows(data, "train", seed=1).batch(np.arange(0, 4 * num, 4), 0)
    assert isinstance(batch, EpisodeBatch)
    return batch


def states() -> list[Any]:
    made = [GAME.parse()]
    for move in (4, 0, 8, 2):
        made.append(GAME.play(made[-1], move))
    return made


# The learner.


def test_codes_are_of_transitions_of_the_game_alone(solved: Dataset) -> None:
    learner = learner_of()
    batch = batch_of(learner, solved)
    known = transitions(batch, learner.layout.mask)
    assert 0 < int(known.sum()) < known.numel()
    for row, k in known.nonzero().tolist():
        assert batch.live[row, k]
        assert int(batch.states[row, k + 1].max()) < learner.layout.move_offset
    stones = (batch.states[known.nonzero(as_tuple=True)] != batch.states[:, 1:][known]).sum(-1)
    assert set(stones.tolist()) <= {1, 2}  # a move, and its answer unless the move ended the game


def test_a_settled_autoencoder_stays_as_it_is(solved: Dataset) -> None:
    learner, generator = learner_of(settle=0.5), torch.Generator().manual_seed(0)
    batch = batch_of(learner, solved)
    own = learner.network.autoencoder
    for progress, moves in ((0.0, True), (0.5, False)):
        learner.at(progress)
        before = {name: value.clone() for name, value in own.state_dict().items()}
        learner.zero_grad()
        loss, parts = learner.loss(batch, generator)
        loss.backward()  # type: ignore[no-untyped-call]
        assert "rebuilt" in parts
        assert any(p.grad is not None for p in own.parameters()) == moves
        assert any(not torch.equal(before[n], v) for n, v in own.state_dict().items()) == moves
    learner.eval()
    measured = []
    for progress in (1.0, 0.0):
        learner.at(progress)
        generator.manual_seed(0)
        measured.append(learner.loss(batch, generator)[0].item())
    assert measured[0] == measured[1]  # of the same parts, or no policy from before could be the best
    before = {name: value.clone() for name, value in own.state_dict().items()}
    learner.loss(batch, generator)
    assert all(torch.equal(before[n], v) for n, v in own.state_dict().items())  # what is measured teaches nothing


@torch.no_grad()
def test_transitions_are_measured_as_they_are_read(solved: Dataset) -> None:
    """A position of chess has some 900 pairs of a move and an answer: those of a split fit into no memory."""
    learner, read, seen = learner_of(num_books=2).eval(), [0], []

    class Read:
        def records(self, split: str) -> Iterator[Record]:
            for record in solved.records(split):
                read[0] += 1
                yield record

    learner.network.autoencoder.register_forward_hook(lambda *_: seen.append(read[0]))
    measured = learner.measure(cast("Dataset", Read()), "train", 200)
    assert seen[0] < seen[-1] == 200
    assert 0 <= measured["rebuilt"] <= 1 <= measured["codes"] <= 8


def test_mixed_precision_trains_codes_that_count_exactly(solved: Dataset) -> None:
    learner = learner_of()
    batch = batch_of(learner, solved)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = learner.loss(batch, torch.Generator().manual_seed(0))
        loss.backward()  # type: ignore[no-untyped-call]
        assert bool(torch.tensor([*learner.metrics(batch, torch.Generator()).values()]).isfinite().all())
    books, generator = Codebooks(1, 2, 2, decay=0.0, revive_below=1e-6), torch.Generator().manual_seed(0)
    vectors = torch.full((1001, 1, 2), 1.0, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        books.update(vectors, torch.zeros(1001, 1, dtype=torch.int64), generator)
    assert float(books.counts[0, 0]) == 1001  # 1000 in bfloat16
    assert books.embeddings[0, 0].tolist() == [1.0, 1.0]


def test_codes_beside_the_games_carry_no_loss(solved: Dataset) -> None:
    """Where nothing is known of what follows, other random codes change no loss of codes."""
    learner = learner_of()
    learner.at(1.0)
    batch = batch_of(learner, solved)
    nowhere = dataclasses.replace(batch, live=torch.zeros_like(batch.live))
    _, parts = learner.loss(nowhere, torch.Generator().manual_seed(0))
    assert float(parts["code"]) == 0
    assert float(parts["end"]) == 0


def test_worth_is_learned_from_what_followed_or_from_the_label_before_it(solved: Dataset) -> None:
    """A model that is sure of a value has no loss where that is the target, and a large one elsewhere."""
    for worth in ("played", "label"):
        learner = learner_of(worth=worth)
        batch = batch_of(learner, solved)
        with torch.no_grad():
            learner.network.worth.out.weight.zero_()
            learner.network.worth.out.bias.copy_(torch.tensor([50.0, 0.0, 0.0]))  # a win
        for name in ("played", "label"):
            before, after = (1.0, -1.0) if name == "label" else (-1.0, 1.0)
            told = {"worth": torch.full_like(batch.worth, before), "reward": torch.full_like(batch.worth, after)}
            told["value"] = torch.zeros_like(batch.value)
            loss = learner.loss(dataclasses.replace(batch, **told), torch.Generator())[1]["worth"]
            assert (float(loss) < 1e-3) == (name == worth)


def test_a_span_of_one_is_the_plain_window_and_two_join_moves(solved: Dataset) -> None:
    learner = learner_of(unroll=1, span=2)
    batch = batch_of(learner, solved, 200)
    assert batch.moves.shape[1] == 2
    assert every(batch, 1) is batch
    joined = every(batch, 2)
    assert joined.moves.shape[1] == 1
    for row in range(200):
        over_first = bool(batch.live[row, 0]) and not bool(batch.live[row, 1])
        follows = batch.states[row, 1 if over_first else 2]
        known = not batch.reward[row].isnan().any()
        if known:
            assert torch.equal(joined.states[row, 1], follows)
            assert torch.equal(joined.worth[row], batch.worth[row, :1])
            assert float(joined.reward[row, 0]) == float(batch.reward[row].sum())
    learner.loss(batch, torch.Generator())[0].backward()  # type: ignore[no-untyped-call]


def test_a_collapsed_codebook_is_named(caplog: pytest.LogCaptureFixture) -> None:
    learner = learner_of()
    learner.network.autoencoder.codebooks.counts[:, 0] = 5.0
    with caplog.at_level(logging.WARNING):
        learner.at(0.1)
        assert not caplog.records
        learner.at(0.5)
        learner.at(0.6)
    assert len(caplog.records) == 1
    assert "a codebook has collapsed: 1.00 of 8 codes" in caplog.text


@pytest.mark.parametrize(("num_codes", "is_named"), [(256, False), (1024, True), (4096, True)])
def test_more_codes_than_transitions_are_named(
    solved: Dataset, caplog: pytest.LogCaptureFixture, num_codes: int, is_named: bool
) -> None:
    made = learner_of(num_codes=num_codes)
    made.windows(solved, "train", seed=0)  # 1,206 windows with 611 distinct transitions
    assert (f"learner.num_codes={num_codes}, but" in caplog.text) == is_named
    caplog.clear()
    made.windows(solved, "test", seed=0)
    assert not caplog.text


def test_two_codes_in_use_have_not_collapsed(caplog: pytest.LogCaptureFixture) -> None:
    learner = learner_of(num_codes=2)
    counts = learner.network.autoencoder.codebooks.counts
    counts.copy_(torch.tensor([[3.0, 5.0]]))
    learner.at(0.5)
    assert not caplog.records
    counts.copy_(torch.tensor([[0.1, 9.9]]))
    learner.at(0.0)
    learner.at(0.5)
    assert "a codebook has collapsed: 1.06 of 2 codes" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("latent", ["vector", "squares"])
def test_laws_of_learners(solved: Dataset, latent: str) -> None:
    check_learner(partial(learner_of, latent=latent), solved)


def test_a_code_is_marked_on_the_squares_as_the_formula_says() -> None:
    answered = learner_of(latent="squares", num_books=2, num_codes=3).network.answered
    assert isinstance(answered, AnswerOnSquares)
    torch.manual_seed(0)
    latent, codes = torch.randn(4, 11, 16), torch.tensor([[0, 0], [2, 1], [1, 2], [2, 2]])
    marked: list[torch.Tensor] = []
    answered.changed = lambda x: marked.append(x) or x  # type: ignore[func-returns-value, method-assign]
    with torch.no_grad():
        answered(latent, codes)
        for row in range(4):
            v = answered.codes.weight[codes[row, 0]] + answered.codes.weight[3 + codes[row, 1]]
            places = []
            for i in range(2):
                query = answered.queries[i](v)
                scores = [answered.by_place[i](v)[n] + query @ answered.keys[i](latent[row, n]) / 4 for n in range(11)]
                places.append(torch.stack(scores).softmax(0))
            left = sum(places[0][n] * latent[row, n] for n in range(11))
            arrive = answered.marks[1] + answered.carried(left)
            for n in range(11):
                expected = latent[row, n] + v + places[0][n] * answered.marks[0] + places[1][n] * arrive
                torch.testing.assert_close(marked[0][row, n], expected)


@pytest.mark.parametrize("plan", [{}, {"plan": "pure", "agent_codes": 4}], ids=["hybrid", "pure"])
def test_a_latent_of_squares_learns_through_codes(solved: Dataset, plan: dict[str, Any]) -> None:
    """Every weight of what marks a code gets a gradient, and the loss falls."""
    learner = learner_of(latent="squares", **plan)
    batch, losses = batch_of(learner, solved), []
    optimizer = torch.optim.Adam(learner.parameters(), lr=5e-3)
    for _ in range(20):
        optimizer.zero_grad()
        loss, _ = learner.loss(batch, torch.Generator().manual_seed(0))
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        for part in (learner.network.answered, learner.network.planned):
            assert part is None or all(p.grad is not None and bool(p.grad.any()) for p in part.parameters())
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def test_what_is_rebuilt_is_measured_over_all_moves_and_answers(solved: Dataset) -> None:
    """An autoencoder that leaves every square as it is rebuilds nothing; a code for all has a perplexity of 1."""
    learner = learner_of().eval()
    own = learner.network.autoencoder
    with torch.no_grad():
        own.stays.fill_(1e4)
        own.codebooks.embeddings.fill_(0.0)
    measured = learner.measure(solved, "test", 5)
    assert measured["rebuilt"] == 0
    assert measured["codes"] == pytest.approx(1.0)
    assert learner_of(span=2).eval().measure(solved, "test", 5) == {}


# The autoencoder of larger boards.


class Remembering(torch.nn.Module):
    """An autoencoder that knows the transitions it was shown, all but the ``wrong``-th of them."""

    def __init__(self, wrong: int | None) -> None:
        super().__init__()
        self.wrong, self.codebooks = wrong, Codebooks(1, 8, 4)
        self.shown: list[tuple[torch.Tensor, ...]] = []

    def codes(self, *transition: torch.Tensor) -> torch.Tensor:
        self.shown.append(transition)
        return torch.full((len(transition[0]), 1), len(self.shown) - 1)

    def likeliest(self, states: torch.Tensor, moves: torch.Tensor, codes: torch.Tensor, _: Any) -> torch.Tensor:
        (number,) = set(codes.flatten().tolist())
        before, by, after = self.shown[number]
        knows = (before == states).all(-1) & (by == moves) & (number != self.wrong)
        return after.where(knows[:, None], states)


@pytest.mark.parametrize(("wrong", "expected"), [(None, [1, 1, 1]), (1, [1, 0, 0])])
def test_plies_ahead_decodes_each_reply_on_the_board_decoded_before(wrong: int | None, expected: list[int]) -> None:
    learner, played = learner_of(), [4, 0, 8, 2, 6, 1]
    made = [GAME.parse()]
    for move in played:
        made.append(GAME.play(made[-1], move))
    learner.network.autoencoder = Remembering(wrong)
    policy = VQPolicy(learner, terminal=False)
    model = policy.search_model()
    assert model is not None
    found = look_ahead(policy, model, [Stretch(made, played, [None] * len(made), "one")])
    assert {ply: marks for (ply, name), marks in found.items() if name == "board"} == {
        2 * reply + 2: [right] for reply, right in enumerate(expected)
    }


def squares_of(game: Game[Any], **changed: Any) -> SquaresAutoencoder:
    shape = {"autoencoder": "squares", "autoencoder_width": 32, "num_books": 2, "code_width": 8, **changed}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = make_autoencoder(Layout(game, "s-a", 1), VQConfig(**shape))
    assert isinstance(made, SquaresAutoencoder)
    return made


def transitions_of(game: Game[Any], num: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Own positions, moves and the own positions after an answer, of random games."""
    draw, rows = np.random.default_rng(0), []
    state = game.parse()
    while len(rows) < num:
        me, move = game.player(state), int(draw.choice(game.legal(state)))
        moved = game.play(state, move)
        after = game.play(moved, int(draw.choice(game.legal(moved)))) if game.outcome(moved) is None else moved
        before, follows = game.tokens.encode([state, after], np.array([me, me])).astype(np.int64)
        rows.append((before, int(game.moves.seen_by(np.array(move), me)), follows))
        state = after if game.outcome(after) is None else game.parse()
    states, moves, afters = (np.array(column) for column in zip(*rows, strict=True))
    return torch.from_numpy(states), torch.from_numpy(moves), torch.from_numpy(afters)


@pytest.mark.parametrize("spec", [CONNECT, "chess", "shogi"])
def test_what_neither_changes_nor_is_moved_has_no_part_in_a_code(spec: str) -> None:
    game = load_game(spec)
    own, (states, moves, after) = squares_of(game), transitions_of(game, 40)
    touched = states != after
    for ends in (own.source[moves], own.target[moves]):
        touched.scatter_(1, ends.clamp(max=own.length - 1)[:, None], True)
    others = torch.randint(own.num_symbols, states.shape, generator=torch.Generator().manual_seed(0))
    elsewhere = own.encode(states.where(touched, others), moves, after.where(touched, others))
    assert torch.equal(own.encode(states, moves, after), elsewhere)
    assert not torch.equal(own.codes(states, moves, after)[:-1], own.codes(states, moves, after)[1:])


@pytest.mark.parametrize("kind", ["vector", "squares"])
def test_an_autoencoder_that_has_diverged_is_named(kind: str) -> None:
    own, rows = learner_of(autoencoder=kind).network.autoencoder, transitions_of(GAME, 4)
    with torch.no_grad():
        own.codebooks.embeddings.fill_(1e38)
        for parameter in own.parameters():
            parameter.fill_(1e38)
    with pytest.raises(ValueError, match="code head gives numbers that are not finite"):
        own.codes(*rows)
    with pytest.raises(ValueError, match="position head gives numbers that are not finite"):
        own.likeliest(*rows[:2], torch.zeros(4, 1, dtype=torch.int64), torch.from_numpy(GAME.tokens.admitted))


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [CONNECT, pytest.param("chess", marks=pytest.mark.slow)])
def test_an_autoencoder_of_squares_tells_answers_by_their_codes(spec: str) -> None:
    """Trained on all answers to one move, it rebuilds each of its code, and another answer of the other's code."""
    game = load_game(spec)
    start, own = game.parse(), squares_of(game, num_codes=16, revive_below=0.1)
    move = int(game.legal(start)[0])
    moved = game.play(start, move)
    ends = [game.play(moved, answer) for answer in game.legal(moved).tolist()]
    after = torch.from_numpy(game.tokens.encode(ends, np.zeros(len(ends), np.int64)).astype(np.int64))
    states = torch.from_numpy(game.tokens.encode([start], np.zeros(1, np.int64)).astype(np.int64)).expand(len(ends), -1)
    moves = torch.full((len(ends),), move)
    optimizer, generator = torch.optim.AdamW(own.parameters(), lr=3e-3), torch.Generator().manual_seed(0)
    assert not bool(own(states, moves, after).whole.any())
    for _ in range(600):
        rebuilt = own(states, moves, after)
        optimizer.zero_grad()
        rebuilt.losses.mean().backward()
        optimizer.step()
        own.codebooks.update(rebuilt.vectors, rebuilt.codes, generator)
    codes, admitted = own.codes(states, moves, after), torch.from_numpy(game.tokens.admitted)
    for turn in (0, 1):
        likeliest = own.likeliest(states, moves, codes.roll(turn, 0), admitted)
        assert float((likeliest == after.roll(turn, 0)).all(-1).float().mean()) > 0.9


def test_a_policy_with_an_autoencoder_of_squares_trains_and_searches(solved: Dataset, tmp_path: Path) -> None:
    learner = learner_of(autoencoder="squares", autoencoder_width=16, autoencoder_layers=1)
    loss, _ = learner.loss(batch_of(learner, solved), torch.Generator().manual_seed(0))
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in learner.network.autoencoder.parameters() if p.requires_grad)
    folder = learner.policy().save_pretrained(tmp_path / "policy")
    assert load_policy(f"mcts:{folder}?simulations=4").decide([GAME.parse()])[0].move in GAME.legal(GAME.parse())
    with pytest.raises(ConfigError, match="autoencoder_width of autoencoder=squares is a multiple of 16, got 24"):
        config(autoencoder="squares", autoencoder_width=24)
    with pytest.raises(ConfigError, match=r"autoencoder must be one of vector, squares; got 'square'\. Did you mean"):
        config(autoencoder="square")
    with pytest.raises(ConfigError, match="autoencoder_layers must be at most 1,000, got 100,000"):
        config(autoencoder_layers=100_000)


# The policy and its model.


@pytest.mark.parametrize(
    ("mode", "changed"),
    [("prior", {}), ("one_step", {"num_books": 2}), ("one_step", {"latent": "squares"})],
    ids=["prior", "one step", "squares"],
)
def test_laws_of_policies_and_models(mode: str, changed: dict[str, Any]) -> None:
    policy = VQPolicy(learner_of(**changed), mode=mode)
    check_policy(policy, states(), max_plies=4)
    model = policy.search_model()
    assert model is not None
    check_search_model(model, states(), max_nodes=30)


@pytest.mark.parametrize(
    "changed", [{}, {"latent": "squares"}, {"latent": "squares", "plan": "pure", "agent_codes": 4}]
)
def test_a_search_takes_the_codes_of_a_folder(tmp_path: Path, changed: dict[str, Any]) -> None:
    folder = learner_of(**changed).policy().save_pretrained(tmp_path / "policy")
    for more in ("", "&chance=adversarial", "&chance=cooperative", "&answers=2&least=0.2", "&root=gumbel"):
        decision = load_policy(f"mcts:{folder}?simulations=12{more}").decide([GAME.parse()])[0]
        assert decision.move in GAME.legal(GAME.parse())
    with pytest.raises(CheckpointError, match="this policy plays 'connect:rows=3"):
        load_policy(f"mcts:{folder}?simulations=2", game="connect:rows=4,cols=4,k=3,gravity=false")


@pytest.mark.parametrize("name", ["code", "worth"])
def test_a_head_that_gives_nan_is_named(name: str) -> None:
    learner = learner_of()
    head = {"code": learner.network.code, "worth": learner.network.worth}[name]
    with torch.no_grad():
        head.out.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=f"the network's {name} head gives numbers that are not finite"):
        VQPolicy(learner, mode="one_step").decide([GAME.parse()])


# Bad input.


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"latent": "square"}, "latent must be one of squares, vector.*Did you mean"),
        ({"side": "mine"}, "side must be one of both, own"),
        ({"codebook": "emma"}, "codebook must be one of ema, gradient.*Did you mean"),
        ({"num_codes": 1}, "num_codes must be at least 2"),
        ({"num_codes": 1 << 20, "num_books": 4}, "take fewer books"),
        ({"span": 0}, "span must be at least 1"),
        ({"decay": 1.0}, "decay lies in"),
        ({"worth": "labels"}, "worth must be one of played, label.*Did you mean"),
        ({"worth": "label", "side": "both"}, "worth=label takes side=own"),
        ({"consistency": 1.0}, "consistency is an option of muzero"),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**changed)


def test_labels_of_one_player_alone_are_named(solved: Dataset, tmp_path: Path) -> None:
    first = [record for record in solved.records("train") if GAME.player(GAME.parse(record.state)) == 0]
    data = write_dataset(tmp_path, GAME.spec, first)
    with pytest.raises(ConfigError, match=r"worth=label: split 'train' .* does not value the positions"):
        learner_of(unroll=1, worth="label").windows(data, "train", seed=0)
    assert len(learner_of(unroll=1).windows(data, "train", seed=0))
    assert len(learner_of(unroll=1, worth="label").windows(solved, "train", seed=0))
    measured = learner_of(unroll=1, worth="label").source(data, "train", seed=0)  # as a small split of walks would be
    assert len(measured) == len(first)


def test_longer_windows_than_the_games_and_games_without_turns_are_named(
    solved: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"learner\.unroll=8: no run of moves"):
        learner_of(unroll=8).windows(solved, "train", seed=0)
    with pytest.raises(ConfigError, match=r"learner\.unroll=4 takes runs of 8 own moves: .*; set unroll=2 at most"):
        learner_of(unroll=4, span=2).windows(solved, "train", seed=0)
    assert len(learner_of(unroll=2, span=2).windows(solved, "train", seed=0))
    # No unroll helps, least of all where what is measured has one code, whatever the option says.
    with pytest.raises(ConfigError, match=r"learner\.span=6 takes runs of 6 own .*; set span=\d, or make that split"):
        learner_of(unroll=2, span=6).source(solved, "train", seed=0)
    twice = load_game(CONNECT)
    monkeypatch.setattr(twice, "alternates", False)
    with pytest.raises(ConfigError, match=r"learner\.kind=vq: in 'connect.*may move twice"):
        learner_of(game=twice)
