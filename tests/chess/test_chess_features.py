"""The features of a position: each against python-chess, in both views, and the same in training and in play."""

from __future__ import annotations

import itertools
from typing import Any

import chess
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import genpolicy
from genpolicy.config import compose
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import ConfigError
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.sequence import Layout
from genpolicy.shipped import data_folder
from genpolicy_chess.features import ChessFeatures
from genpolicy_policy_baselines.causal import CausalTransformer
from genpolicy_policy_baselines.one_step import OneStepLearner
from tests.small_datasets import CONNECT, write_dataset

GAME = genpolicy.load_game("chess")
FEATURES = ChessFeatures()
SPECIAL = (
    "r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4",  # mate by a queen that a bishop covers
    "4k3/8/5N2/8/8/8/4R3/4K3 b - - 0 1",  # two pieces give check, Black to move
    "4k3/8/8/8/7b/8/5p2/4K3 w - - 0 1",  # a pawn gives check, and the bishop behind it does not
    "4k3/3P4/8/8/8/8/8/4K3 b - - 0 1",  # a white pawn gives check
    "4k3/3p4/8/8/8/8/3P4/4K3 w - - 0 1",  # neither pawn does: they move the other way
    "4k3/8/4q3/8/4P3/8/8/4K3 w - - 0 1",  # a queen with a pawn between
    "2b1k3/8/8/8/8/8/8/2B1K3 w - - 0 1",  # bishops of opposite colours
    "5bk1/8/8/8/8/8/8/2B1K3 w - - 0 1",  # of the same colour
    "2b1k3/8/8/8/8/8/8/2B1KB2 w - - 0 1",  # two against one
)


def sample_positions(count: int) -> list[str]:
    records = Dataset.open(data_folder("sample:chess"), verify=False).records("test")
    return [record.state for record in itertools.islice(records, 0, 7 * count, 7)]


def slow(board: chess.Board, viewer: int) -> NDArray[np.float32]:
    """The features square by square, from python-chess alone."""
    out = np.zeros((77, 14), np.float32)
    kinds = (chess.PAWN, chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN)
    own = [len(board.pieces(kind, board.turn)) for kind in kinds]
    other = [len(board.pieces(kind, not board.turn)) for kind in kinds]
    bishops = [board.pieces(chess.BISHOP, side) for side in (True, False)]
    opposite = False
    if len(bishops[0]) == len(bishops[1]) == 1:
        opposite = (int(bishops[0]) & chess.BB_LIGHT_SQUARES > 0) != (int(bishops[1]) & chess.BB_LIGHT_SQUARES > 0)
    for square in chess.SQUARES:
        row = 7 - chess.square_rank(square) if viewer == 0 else chess.square_rank(square)
        at = 8 * row + chess.square_file(square)
        out[at, :5] = np.array(own) / 8
        out[at, 5:10] = (np.array(own) - other) / 8
        out[at, 10:] = (
            opposite,
            square in board.checkers(),
            board.color_at(square) == board.turn,
            board.color_at(square) == (not board.turn),
        )
    return out


@pytest.mark.parametrize("viewer", [0, 1])
def test_every_feature_is_that_of_python_chess(viewer: int) -> None:
    states = [GAME.parse(text) for text in (*SPECIAL, *sample_positions(60))]
    ids = torch.from_numpy(GAME.tokens.encode(states, [viewer] * len(states)).astype(np.int64))
    got = FEATURES(ids).numpy()
    assert got.shape == (len(states), 77, FEATURES.num_features)
    for state, row in zip(states, got, strict=True):
        np.testing.assert_array_equal(row, slow(state.board, viewer), err_msg=state.board.fen())
    # Each feature occurs, so that none is compared with zeros alone.
    assert (got != 0).any((0, 1)).all()
    assert {state.board.turn for state in states[len(SPECIAL) :]} == {True, False}
    assert [int(row[:, 11].sum()) for row in got[:6]] == [1, 2, 1, 1, 0, 0]


def test_what_is_not_a_piece_counts_as_nothing() -> None:
    """A masked board is an empty one."""
    ids = torch.full((1, 77), len(GAME.tokens.symbols) + 5)
    assert not FEATURES(ids).any()


def learner(**options: Any) -> OneStepLearner:
    shape = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 4}
    network = NetworkConfig(**{**shape, **options})
    torch.manual_seed(0)
    return OneStepLearner(GAME, OneStepLearner.Config(network=network, viewer="mover"))


def test_training_and_play_see_the_same(tmp_path: Any) -> None:
    """From records through windows, and from states that were played on: the features are those of python-chess."""
    texts = [SPECIAL[1], *sample_positions(5)]
    line = [GAME.moves[int(GAME.legal(GAME.parse(text))[0])] for text in texts]
    pairs = zip(texts, line, strict=True)
    records = [Record(state=text, game_id=None, line=move, split="train") for text, move in pairs]
    made = learner(features=True)
    embedded: Any = made.network.trunk.embedding.features
    seen: list[Tensor] = []
    embedded.of_root.register_forward_hook(lambda _module, _ids, out: seen.append(out))
    windows: Any = made.source(write_dataset(tmp_path / "data", "chess", records), "train", seed=0)
    made.loss(windows.batch(np.arange(len(windows)), 0), torch.Generator().manual_seed(0))
    policy = made.policy()
    policy.decide([GAME.parse(text) for text in texts])
    boards = [GAME.parse(text).board for text in texts]
    expected = np.stack([slow(board, int(board.turn == chess.BLACK)) for board in boards])
    trained, played = seen
    np.testing.assert_array_equal(trained.numpy(), expected)
    np.testing.assert_array_equal(played.numpy(), expected)


def test_they_begin_without_effect_and_then_have_one() -> None:
    """The other weights are drawn as without features, so that runs with and without begin as the same network."""
    plain, told = learner(), learner(features=True)
    weights = told.network.state_dict()
    assert set(weights) - set(plain.network.state_dict()) == {"trunk.embedding.features.into"}
    layout = plain.layout
    ids = torch.from_numpy(GAME.tokens.encode([GAME.parse(SPECIAL[1])], [1]).astype(np.int64))
    tokens = torch.cat([ids, torch.full((1, layout.length - 77), layout.mask)], 1)
    before = plain.network.trunk(tokens, None)
    assert torch.equal(told.network.trunk(tokens, None), before)
    features: Any = told.network.trunk.embedding.features
    into = features.into
    torch.nn.init.normal_(into, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(told.network.trunk(tokens, None), before)
    muon = {id(p) for p in told.param_groups(0.1)[0]["muon"]}
    assert id(into) not in muon  # an input layer, which AdamW moves


@pytest.mark.parametrize(("kind", "attention"), [(DenoisingTransformer, "prefix"), (CausalTransformer, "full")])
def test_squares_of_the_root_alone_are_told(kind: type[DenoisingTransformer], attention: str) -> None:
    """Embeddings differ by the linear map on the root's squares, and nowhere else; the cached prefix has it, too."""
    layout = Layout(GAME, "s-asa", 2)
    config = NetworkConfig(
        geometry="board", num_layers=1, width=16, num_heads=2, move_rank=4, features=True, attention=attention
    )
    net = kind(layout, config, generator=torch.Generator().manual_seed(0)).double()
    features: Any = net.trunk.embedding.features
    torch.nn.init.normal_(features.into, generator=torch.Generator().manual_seed(1))
    ids = torch.from_numpy(GAME.tokens.encode([GAME.parse(text) for text in SPECIAL[:2]]).astype(np.int64))
    tokens = torch.cat([ids, torch.full((2, 1), layout.mask), ids, torch.full((2, 1), layout.mask)], 1)
    whole = net.trunk.embedding(tokens)
    difference = whole - _without(net, tokens)
    torch.testing.assert_close(difference[:, :77], FEATURES(ids).double() @ features.into)
    assert not difference[:, 77:].any()
    encoded = net.encode(tokens)
    if encoded is not None:
        torch.testing.assert_close(net.trunk(tokens, None, encoded=encoded), net.trunk(tokens, None))


def _without(net: DenoisingTransformer, tokens: Tensor) -> Tensor:
    embedding: Any = net.trunk.embedding
    features, embedding.features = embedding.features, None
    try:
        out: Tensor = embedding(tokens)
    finally:
        embedding.features = features
    return out


def test_a_saved_policy_keeps_them(tmp_path: Any) -> None:
    made = learner(features=True)
    into: Any = made.network.trunk.embedding.features
    torch.nn.init.normal_(into.into, generator=torch.Generator().manual_seed(0))
    state = GAME.parse(SPECIAL[1])
    before = made.policy()
    before.save_pretrained(tmp_path / "policy")
    after = genpolicy.load_policy(tmp_path / "policy")
    assert [d.policy for d in after.decide([state])] == [d.policy for d in before.decide([state])]


def test_a_configuration_without_the_key_has_none() -> None:
    old = compose(NetworkConfig, overrides=["geometry=board", "num_layers=1", "width=16", "num_heads=2"])
    assert old.features is False


def test_a_game_without_features_is_refused_with_the_way_out() -> None:
    config = NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2, features=True)
    layout = Layout(genpolicy.load_game(CONNECT), "s-a", 1)
    with pytest.raises(ConfigError, match=r"features=true: ConnectTokens supplies no.*set network\.features=false"):
        DenoisingTransformer(layout, config)
    with pytest.raises(ConfigError, match=r"features needs geometry=board.*got 'sequence'"):
        NetworkConfig(features=True)


@pytest.mark.slow
def test_a_network_with_features_is_compiled() -> None:
    made = learner(features=True).network
    ids = torch.from_numpy(GAME.tokens.encode([GAME.parse(text) for text in SPECIAL]).astype(np.int64))
    tokens = torch.cat([ids, torch.full((len(ids), 1), made.num_symbols)], 1)
    expected = made(tokens)
    made.compile(fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(made(tokens).groups[0].logits, expected.groups[0].logits)
