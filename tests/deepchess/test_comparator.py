"""DeepChess: bits of positions, the laws of a comparison, both stages, and search by comparing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import CheckpointError, ConfigError, DatasetError
from genpolicy.networks.config import NetworkConfig
from genpolicy.testing import check_policy
from genpolicy.training.config import TrainerConfig
from genpolicy.training.measure import Validation
from genpolicy_alphabeta.policy import AlphaBetaPolicy
from genpolicy_alphabeta.search import AlphaBeta
from genpolicy_policy_deepchess.config import ComparatorConfig
from genpolicy_policy_deepchess.features import bit_table, bits_of
from genpolicy_policy_deepchess.learner import ComparatorLearner
from genpolicy_policy_deepchess.policy import ComparatorPolicy, NetworkComparator
from genpolicy_policy_deepchess.windows import Pairs, Positions
from tests.small_datasets import CONNECT, write_dataset

SMALL = ComparatorConfig(widths=[24, 16], head=[16], min_ply=0)
TRUNK = replace(
    SMALL, encoder="trunk", network=NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2, head="typed")
)


def learner(config: ComparatorConfig = SMALL, game: str = CONNECT) -> ComparatorLearner:
    torch.manual_seed(0)
    return ComparatorLearner(genpolicy.load_game(game), config)


def walk(game: Any, num: int, seed: int = 0) -> list[Any]:
    """Positions of random games."""
    random, states = np.random.default_rng(seed), []
    state = game.parse()
    while len(states) < num:
        states.append(state)
        legal = game.legal(state)
        state = (
            game.play(state, int(random.choice(legal))) if game.outcome(state) is None and len(legal) else game.parse()
        )
    return states


def test_the_bits_of_chess_are_the_papers_773() -> None:
    game = genpolicy.load_game("chess")
    table, count = bit_table(game, ["ep:"])
    assert count == 773
    assert bit_table(game)[1] == 783
    states = walk(game, 1000)
    tokens = torch.from_numpy(game.tokens.encode(states).astype(np.int64))
    bits = bits_of(tokens, torch.from_numpy(table), count)
    for state, row in zip(states, bits.numpy(), strict=True):
        board: chess.Board = state.board
        by_hand = np.zeros((64, 12))
        for square, piece in board.piece_map().items():
            by_hand[square ^ 56, "PNBRQKpnbrqk".index(piece.symbol())] = 1
        rights = [
            board.has_kingside_castling_rights(chess.WHITE),
            board.has_queenside_castling_rights(chess.WHITE),
            board.has_kingside_castling_rights(chess.BLACK),
            board.has_queenside_castling_rights(chess.BLACK),
        ]
        assert row.tolist() == [*by_hand.flatten().tolist(), float(not board.turn), *map(float, rights)]


@pytest.mark.parametrize("name", [CONNECT, "shogi"])
def test_bits_tell_positions_apart_in_other_games(name: str) -> None:
    if name == "shogi":
        pytest.importorskip("cshogi")
    game = genpolicy.load_game(name)
    table, count = bit_table(game)
    states = {game.key(state): state for state in walk(game, 60)}
    rows = bits_of(
        torch.from_numpy(game.tokens.encode(list(states.values())).astype(np.int64)), torch.from_numpy(table), count
    )
    assert len({tuple(row.tolist()) for row in rows}) == len(states)


@pytest.mark.parametrize("config", [SMALL, TRUNK])
def test_the_laws_of_a_comparison(config: ComparatorConfig) -> None:
    """Antisymmetric, opposite for the two players, and the same for the position with the colours exchanged."""
    made = learner(config, "chess")
    game = made.game
    states = walk(game, 12)
    mirrored = [game.parse(state.board.mirror().fen()) for state in states]
    compare = made.policy().comparator()
    assert compare is not None
    pairs, images = list(pairwise(states)), list(pairwise(mirrored))
    forward = compare(pairs, 0)
    assert any(abs(answer) > 1e-7 for answer in forward)
    assert compare([(b, a) for a, b in pairs], 0) == [-answer for answer in forward]
    assert compare(pairs, 1) == [-answer for answer in forward]
    assert compare(images, 1) == pytest.approx(forward, abs=1e-6)
    one_sided = learner(replace(config, antisymmetric=False, mirror=False), "chess").policy().comparator()
    assert one_sided([(states[0], states[3])], 0) != [-x for x in one_sided([(states[3], states[0])], 0)]


def test_orders_are_opposites_whatever_they_are_asked_with() -> None:
    made = learner()
    pairs = list(pairwise(walk(made.game, 40)))
    compare = NetworkComparator(made)
    one_by_one = [compare([pair], 0)[0] for pair in pairs]
    assert compare([(b, a) for a, b in pairs], 0) == [-answer for answer in one_by_one]


def test_what_is_prepared_answers_the_same_and_is_read_once() -> None:
    made = learner()
    states = walk(made.game, 9)
    cold, warm = NetworkComparator(made, 100), NetworkComparator(made, 100)
    warm.prepare(states)
    read = warm.num_encoded
    pairs = list(pairwise(states))
    assert warm(pairs, 0) == pytest.approx(cold(pairs, 0), abs=1e-6)
    assert warm.num_encoded == read
    small = NetworkComparator(made, 2)
    assert small(pairs, 0) == pytest.approx(cold(pairs, 0), abs=1e-6)


def test_weights_that_compare_by_nan_are_refused() -> None:
    made = learner()
    states = walk(made.game, 3)
    with torch.no_grad():
        for weights in made.network.parameters():
            weights.fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        NetworkComparator(made, 100)([(states[0], states[1])], 0)


def test_a_position_of_another_game_is_named(tmp_path: Path) -> None:
    made = learner()
    chess_game = genpolicy.load_game("chess")
    with pytest.raises(ValueError, match=f"a ChessState is not a position of {made.game.spec!r}"):
        NetworkComparator(made)([(made.game.parse(), chess_game.parse())], 0)
    made.policy().save_pretrained(folder := tmp_path / "policy")
    with pytest.raises(CheckpointError, match=f"plays {made.game.spec!r}, not 'chess'"):
        genpolicy.load_policy(f"alphabeta?comparator={folder}", game="chess")


def positions(values: Sequence[float]) -> Positions:
    num = len(values)
    return Positions(np.zeros((num, 2, 3), np.int16), np.array(values), np.array([str(i) for i in range(num)]))


def test_pairs_differ_by_the_gap_are_drawn_anew_and_depend_on_seed_epoch_and_index_alone() -> None:
    values = np.linspace(-1, 1, 41)
    pairs = Pairs(positions(list(values)), 0.5, seed=3)
    index = np.arange(len(pairs))
    first, second = pairs.pairs(index, 0)
    assert bool((np.abs(values[first] - values[second]) >= 0.5 - 1e-9).all())
    again = pairs.pairs(index[::-1].copy(), 0)
    assert np.array_equal(again[0][::-1], first)
    assert np.array_equal(again[1][::-1], second)
    other = pairs.pairs(index, 1)
    assert not np.array_equal(other[1], second)
    batch = pairs.batch(index, 0)
    assert batch.first_better.tolist() == [float(values[a] > values[b]) for a, b in zip(first, second, strict=True)]
    drawn = np.concatenate([np.abs(np.subtract(*pairs.pairs(index, epoch))) for epoch in range(200)])
    assert set(drawn.tolist()) == set(range(10, 41))  # every partner at the gap or beyond it


def test_scores_are_those_of_the_player_to_move_and_values_player_0s(tmp_path: Path) -> None:
    x, o = ".../.../... X", "X../.../... O"
    records = [
        Record(state=x, line="b2", game_id="g", ply=0, scores=("value:0.5",), split="test"),
        Record(state=o, line="b2", game_id="g", ply=1, scores=("value:0.25",), split="test"),
        Record(state=o, line="b2", game_id="h", ply=1, scores=("value:-1",), split="test"),
    ]
    data = write_dataset(tmp_path, CONNECT, records)
    positions = Positions.read(data, "test", genpolicy.load_game(CONNECT), replace(SMALL, min_gap=0.1))
    assert positions.value.tolist() == [0.5, -0.25, 1.0]


def test_pairs_of_results_are_a_won_and_a_lost_game() -> None:
    pairs = Pairs(positions([1, 1, -1, 1]), 2.0, seed=0)
    first, second = pairs.pairs(np.arange(len(pairs)), 5)
    assert all(2 in pair for pair in zip(first.tolist(), second.tolist(), strict=True))


def games(folder: Path, results: Sequence[float | None], split: str = "train") -> Dataset:
    game = genpolicy.load_game(CONNECT)
    records = []
    for number, result in enumerate(results):
        for ply, state in enumerate(walk(game, 6, seed=number)):
            if game.outcome(state) is None:
                score = f"value:{result}" if result is not None else None
                line = game.moves[int(game.legal(state)[0])]
                records.append(
                    Record(game.format(state), str(number), ply, line, scores=(score,), result=result, split=split)
                )
    return write_dataset(folder, CONNECT, records)


def test_both_stages_train_and_the_second_starts_from_the_firsts_encoder(tmp_path: Path) -> None:
    data = games(tmp_path / "data", [1.0, -1.0, 0.0, 1.0, -1.0])
    first = learner(replace(SMALL, stage="autoencoder"))
    source = first.windows(data, "train", seed=0)
    batch = source.batch(np.arange(len(source)), 0)
    bits = first.network.encoder.bits(batch.first.flatten(0, 1))  # type: ignore[operator]
    share = bits.mean(0).clamp(1e-6, 1 - 1e-6)
    entropy = -(share * share.log() + (1 - share) * (1 - share).log()).mean()
    optimiser = torch.optim.Adam(first.parameters(), 1e-2)
    for _ in range(200):
        loss, figures = first.loss(batch, torch.Generator())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(figures["bit_nats"]) < float(entropy)  # better than each bit's own frequency
    second = learner()
    second.take_weights(first)
    for name, tensor in first.network.encoder.state_dict().items():
        assert torch.equal(tensor, second.network.encoder.state_dict()[name])
    with pytest.raises(CheckpointError, match="the same learner"):
        learner(replace(SMALL, widths=[20, 16])).take_weights(first)
    pairs = second.windows(data, "train", seed=0)
    batch = pairs.batch(np.arange(len(pairs)), 0)
    optimiser = torch.optim.Adam(second.parameters(), 1e-2)
    for _ in range(150):
        loss, figures = second.loss(batch, torch.Generator())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(figures["ordered"]) > 0.9
    measured = second.measure(data, "train", 50)
    assert set(measured) == {"pairs_ordered", "intransitive_per_1000"}
    assert measured["pairs_ordered"] > 0.8


def test_a_trunk_under_which_the_same_weights_mean_something_else_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"differ in the network's norm \(encoder\.trunk\)"):
        learner(replace(TRUNK, network=replace(TRUNK.network, norm="post"))).take_weights(learner(TRUNK))


def test_tables_of_its_attention_bias_are_named() -> None:
    made = learner(TRUNK)
    bias = made.network.encoder.get_submodule("trunk.bias")
    assert {id(p) for p in made.param_groups(0.1)[0]["tables"]} == {id(p) for p in bias.parameters()}


def test_a_student_learns_its_teachers_answers(tmp_path: Path) -> None:
    data = games(tmp_path / "data", [1.0, -1.0])
    teacher = learner()
    teacher.policy().save_pretrained(tmp_path / "teacher")
    student = learner(replace(SMALL, widths=[8], head=[8], teacher=str(tmp_path / "teacher")))
    source = student.windows(data, "train", seed=0)
    batch = source.batch(np.arange(len(source)), 0)
    chance = torch.sigmoid(teacher.network(batch.first, batch.second)).detach()
    logit = student.network(batch.first, batch.second)
    expected = -(chance * logit.sigmoid().log() + (1 - chance) * (1 - logit.sigmoid()).log()).mean()
    assert student.loss(batch, torch.Generator())[0].item() == pytest.approx(expected.item(), abs=1e-5)
    assert "_teacher" not in dict(student.named_modules())
    wrong = learner(replace(SMALL, teacher="random"))
    with pytest.raises(ConfigError, match="is not a comparator"):
        wrong.loss(batch, torch.Generator())


def test_a_first_stage_compares_nothing(tmp_path: Path) -> None:
    first = learner(replace(SMALL, stage="autoencoder"))
    policy = first.policy()
    folder = str(policy.save_pretrained(tmp_path / "first"))
    for ask in (
        policy.comparator,
        lambda: policy.decide([policy.game.parse()]),
        lambda: genpolicy.load_policy(f"alphabeta?comparator={folder}", game=policy.game).decide([policy.game.parse()]),
        lambda: learner(replace(SMALL, teacher=folder))._teacher,
    ):
        with pytest.raises(ConfigError, match=r"compares nothing yet: train the second with learner.stage=compare"):
            ask()


def test_a_first_stage_whose_accuracy_is_asked_is_refused_before_training(tmp_path: Path) -> None:
    data = games(tmp_path / "data", [1.0, -1.0])
    first = learner(replace(SMALL, stage="autoencoder"))
    with pytest.raises(ConfigError, match=r"set trainer\.accuracy_records=0"):
        Validation(first, data, "train", TrainerConfig(), 0, 1)
    assert Validation(first, data, "train", TrainerConfig(accuracy_records=0), 0, 1).num_windows


def test_it_plays_and_is_saved(tmp_path: Path) -> None:
    policy = learner().policy()
    running = [state for state in walk(policy.game, 9) if policy.game.outcome(state) is None]
    check_policy(policy, running)
    policy.save_pretrained(tmp_path / "policy")
    loaded = genpolicy.load_policy(str(tmp_path / "policy"))
    assert isinstance(loaded, ComparatorPolicy)
    assert [d.move for d in loaded.decide(running)] == [d.move for d in policy.decide(running)]
    check_policy(loaded, running)


def pair_by_pair(compare: NetworkComparator) -> tuple[Callable[..., list[float]], list[int]]:
    """A comparator that is never told which positions belong together, and how many pairs it was asked about."""
    asked = [0]

    def better(pairs: Sequence[tuple[Any, Any]], player: int) -> list[float]:
        asked[0] += len(pairs)
        return [compare([pair], player)[0] for pair in pairs]

    return better, asked


@pytest.mark.parametrize("name", [CONNECT, "chess"])
def test_positions_are_compared_together_and_decisions_are_those_of_pair_by_pair(name: str) -> None:
    made = learner(game=name).eval()
    game, policy = made.game, made.policy()
    num_calls = num_pairs = 0
    for state in [state for state in walk(game, 40) if game.outcome(state) is None][::3]:
        better, asked = pair_by_pair(NetworkComparator(made))
        after = {move: game.play(state, move) for move in game.legal(state).tolist()}
        if not any(game.outcome(child) for child in after.values()):
            best, *rest = after
            for move in rest:
                best = move if better([(after[move], after[best])], game.player(state))[0] > 0 else best
            decision = policy.decide([state])[0]
            assert decision.move == best
            assert decision.stats["network_calls"] <= len(after)
        together = NetworkComparator(made)
        found = AlphaBeta(game, depth=2, comparator=together, quiescence=0).search(state)
        asked[0] = 0
        assert AlphaBeta(game, depth=2, comparator=better, quiescence=0).search(state).line == found.line
        num_calls, num_pairs = num_calls + together.num_calls, num_pairs + asked[0]
    assert num_calls < num_pairs


def test_it_takes_a_win_and_avoids_a_loss_at_once() -> None:
    policy = learner().policy()
    game = policy.game
    for state in [state for state in walk(game, 200) if game.outcome(state) is None]:
        wins = [
            move
            for move in game.legal(state).tolist()
            if (result := game.outcome(game.play(state, move))) is not None and result == -1
        ]
        if wins:
            assert policy.decide([state])[0].move in wins


class Perfect:
    """Compares by the values of perfect play."""

    def __init__(self, game: Any) -> None:
        self.game, self.prepared = game, 0
        self.values: dict[Any, float] = {}

    def value(self, state: Any, player: int) -> float:
        own = self.own_value(state)
        return own if self.game.player(state) == player else -own

    def own_value(self, state: Any) -> float:
        key = self.game.key(state)
        if key not in self.values:
            outcome = self.game.outcome(state)
            after = () if outcome is not None else [self.game.play(state, int(move)) for move in self.game.legal(state)]
            self.values[key] = max((-self.own_value(child) for child in after), default=outcome)
        return self.values[key]

    def prepare(self, states: Sequence[Any]) -> None:
        self.prepared += len(states)

    def __call__(self, pairs: Sequence[tuple[Any, Any]], player: int) -> list[float]:
        return [self.value(a, player) - self.value(b, player) for a, b in pairs]


def test_alpha_beta_by_a_perfect_comparator_plays_every_position_perfectly_and_prepares_what_it_compares() -> None:
    game = genpolicy.load_game(CONNECT)
    perfect = Perfect(game)
    states = [state for state in game.positions() if game.outcome(state) is None]
    found = AlphaBetaPolicy(game, depth=2, comparator=perfect).decide(states)
    assert perfect.prepared > 0
    plain = AlphaBetaPolicy(game, depth=2, comparator=perfect.__call__).decide(states)
    assert [decision.move for decision in plain] == [decision.move for decision in found]
    for state, decision in zip(states, found, strict=True):
        player = game.player(state)
        assert perfect.value(game.play(state, decision.move), player) == perfect.value(state, player)


def test_a_game_that_looks_the_same_to_both_players_is_not_mirrored() -> None:
    """With ``mirror`` every answer was 0 there, and nothing was learned."""
    pytest.importorskip("pyspiel", reason="open_spiel is not installed: pip install 'genpolicy[openspiel]'")
    with pytest.raises(ConfigError, match=r"learner.mirror=true: the tokens of 'openspiel:tic_tac_toe' are the same"):
        learner(game="openspiel:tic_tac_toe")
    compare = NetworkComparator(learner(replace(SMALL, mirror=False), "openspiel:tic_tac_toe").eval())
    game = genpolicy.load_game("openspiel:tic_tac_toe")
    assert compare([(game.parse(), game.parse("4"))], 0)[0] != 0


def test_ties_are_not_circles(tmp_path: Path) -> None:
    made = learner(replace(SMALL, pairs="result"))
    data = games(tmp_path, [1.0, -1.0, 1.0, -1.0])
    with torch.no_grad():
        for parameter in made.network.head.parameters():
            parameter.zero_()
    assert made.measure(data, "train", 100)["intransitive_per_1000"] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"encoder": "mpl"}, "Did you mean: 'mlp'"),
        ({"widths": []}, "widths"),
        ({"dropout": 1.0}, "dropout"),
        ({"min_gap": 0.0}, r"min_gap must be in \(0, 2\]"),
        ({"stage": "autoencoder", "encoder": "trunk"}, "trains learner.encoder=mlp"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        replace(SMALL, **options)


@pytest.mark.parametrize("attention", ["full", "prefix"])
def test_a_trunk_that_is_told_a_time_is_refused_before_it_is_trained(attention: str) -> None:
    timed = replace(TRUNK.network, time_conditioning=True, attention=attention)
    with pytest.raises(ConfigError, match=r"learner\.network\.time_conditioning=true: .* set it to false"):
        learner(replace(TRUNK, network=timed))
    learner(replace(SMALL, network=timed))  # Pos2Vec has no trunk


def test_a_text_to_drop_that_no_symbol_begins_with_is_named(caplog: pytest.LogCaptureFixture) -> None:
    made = learner(replace(SMALL, drop=["foo:"]))
    assert f"learner.drop: no symbol of {made.game.spec!r} begins like 'foo:'" in caplog.text


def test_data_without_decisive_games_or_scores_is_named(tmp_path: Path) -> None:
    drawn = games(tmp_path / "drawn", [0.0, 0.0])
    with pytest.raises(DatasetError, match="results: import decisive games"):
        learner(replace(SMALL, pairs="result")).windows(drawn, "train", seed=0)
    bare = games(tmp_path / "bare", [None, None])
    with pytest.raises(DatasetError, match="scores: label it"):
        learner().windows(bare, "train", seed=0)
    with pytest.raises(DatasetError, match="results: import decisive games"):
        learner(replace(SMALL, pairs="result")).windows(bare, "train", seed=0)
    with pytest.raises(DatasetError, match=r"lower learner\.min_ply"):
        learner(replace(SMALL, pairs="result", min_ply=90)).windows(drawn, "train", seed=0)


def test_a_position_split_draws_positions_of_all_games_apart(tmp_path: Path) -> None:
    data = games(tmp_path / "data", [1.0, -1.0] * 10)
    config = replace(SMALL, pairs="result", split_by="position")
    game = genpolicy.load_game(CONNECT)
    parts = {split: Positions.read(data, split, game, config) for split in ("train", "test")}
    assert set(parts["train"].games) & set(parts["test"].games)  # what makes it leak
    whole = Positions.read(data, "train", game, replace(config, split_by="game"))
    assert len(parts["train"].value) + len(parts["test"].value) <= len(whole.value)
