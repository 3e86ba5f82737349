"""A tokenizer that is handed to a layout, with learned weights and no way back from its codes to positions."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from genpolicy import load_game, registry
from genpolicy.data.window_source import build_windows
from genpolicy.encoding import StateTokenizer, ids_fingerprint
from genpolicy.errors import CheckpointError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.base import read_policy_config
from genpolicy.sequence import Layout
from genpolicy.testing import check_game
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner
from tests.small_datasets import CONNECT, solved_connect

NUM_CODES = 8


class Codes(StateTokenizer[Any]):
    """Two codes a position, by the nearest entry of a codebook to a projection of its tokens."""

    decodes: ClassVar[bool] = False
    symbols = tuple(f"code{i}" for i in range(NUM_CODES))
    rows = cols = hands = np.full(2, -1, np.int16)
    admitted = np.ones((2, NUM_CODES), np.bool_)

    def __init__(self, inner: StateTokenizer[Any], seed: int) -> None:
        self.inner = inner
        self.weights = np.random.default_rng(seed).normal(size=(2, inner.length, NUM_CODES))

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(super().fingerprint.encode() + self.weights.tobytes()).hexdigest()[:16]

    def encode(self, states: Sequence[Any], viewers: Any = None) -> NDArray[np.int16]:
        rows = self.inner.encode(states, viewers).astype(np.float64)
        return np.einsum("bl,clk->bck", rows, self.weights).argmax(-1).astype(np.int16)


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return load_game(CONNECT)


# Of commit 555b2da: saved policies, checkpoints and caches hold these.
@pytest.mark.parametrize(
    ("spec", "tokens", "layouts"),
    [
        (CONNECT, "36c039311585b8c8", ["db060104b26478a2", "c2b87a91a7b4eaeb", "5d6381b6ba06516f"]),
        ("chess", "51aac55709aeb061", ["dde3606ef505d939", "cfbbf76e0d5f2512", "acff44b1ece10113"]),
        ("shogi", "ec8996d379c84033", ["6721e997572cd78f", "611c0eb702adb1ec", "032937c2ed8df1ff"]),
    ],
)
def test_fingerprints_of_the_games_are_those_of_before(spec: str, tokens: str, layouts: list[str]) -> None:
    game = load_game(spec)
    assert ids_fingerprint(game.tokens, game.moves) == tokens
    paradigms = (("s-a", 1), ("s-asa", 4), ("sa-v", 1))
    assert [Layout(game, paradigm, horizon).fingerprint for paradigm, horizon in paradigms] == layouts


def test_a_codebook_that_is_trained_again_changes_fingerprint_and_windows(game: Game[Any], tmp_path: Path) -> None:
    dataset = solved_connect(tmp_path, every=20)
    old, same, new = (Codes(game.tokens, seed) for seed in (1, 1, 2))
    layouts = [Layout(game, "s-asa", 2, tokenizer=codes) for codes in (old, same, new)]
    prints = [layout.fingerprint for layout in layouts]
    assert prints[0] == prints[1] != prints[2]
    assert Layout(game, "s-asa", 2).fingerprint not in prints
    assert [layout.length for layout in layouts] == [2 + 1 + 2 + 1] * 3
    states = [game.parse(record.state) for record in dataset.records("train")]
    players = [game.player(state) for state in states]
    for layout, codes in zip(layouts, (old, same, new), strict=True):
        windows = build_windows(dataset, "train", game, layout)
        shown = windows.batch(np.arange(len(windows)), 0).tokens[:, :2].numpy()
        assert np.array_equal(shown, codes.encode(states, players))
    assert len(list((tmp_path / ".cache").iterdir())) == 2


def test_codes_train_save_and_play_without_texts_of_what_is_imagined(game: Game[Any], tmp_path: Path) -> None:
    dataset = solved_connect(tmp_path / "data", every=10)
    config = OneStepConfig(network=NetworkConfig(num_layers=1, width=16, num_heads=2))
    made = [
        OneStepLearner(game, config, Layout(game, "s-asa", 2, tokenizer=Codes(game.tokens, seed))) for seed in (1, 2)
    ]
    learner = made[0]
    windows = learner.windows(dataset, "train", seed=0)
    loss, _ = learner.loss(windows.batch(np.arange(8), 0), torch.Generator())
    assert torch.isfinite(loss)
    policy = learner.policy()
    decision = policy.decide([game.parse()])[0]
    # No text, unless the untrained network happens to imagine the codes of the true position.
    assert decision.states in ((None,), (game.format(game.play(game.parse(), max(0, decision.line[0]))),))
    folder = policy.save_pretrained(tmp_path / "policy")
    assert learner.fingerprint in (folder / "config.yaml").read_text()
    assert learner.fingerprint != made[1].fingerprint
    with pytest.raises(CheckpointError, match="its tokens are not those"):  # of the game's own tokenizer
        type(policy).from_folder(folder, {**read_policy_config(folder), "game": CONNECT})


class CodedGame(type(load_game(CONNECT))):  # type: ignore[misc]
    """K-in-a-row whose own tokenizer is the learned one."""

    name = "coded"

    def __init__(self) -> None:
        super().__init__(rows="3", cols="3", k="3", gravity="false")
        self.spec = "coded"
        self.tokens = Codes(self.tokens, 1)
        num = len(self.moves)  # a move does not land on a code
        nowhere, kind = np.full(num, -1, np.int16), np.arange(num, dtype=np.int16)
        self.moves = dataclasses.replace(self.moves, source=nowhere, target=nowhere, kind=kind, num_kinds=num)


def test_the_laws_skip_what_needs_decoding(game: Game[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("games", "coded")(CodedGame)
    coded = load_game("coded")
    assert ids_fingerprint(coded.tokens, coded.moves) != ids_fingerprint(game.tokens, game.moves)
    policy = OneStepLearner(coded, OneStepConfig(network=NetworkConfig(num_layers=1, width=16, num_heads=2))).policy()
    states = [coded.parse(), coded.play(coded.parse(), 0)]
    assert [decision.states for decision in policy.decide(states)] == [(), ()]
    with pytest.raises(ValueError, match="Codes has no decode"):
        coded.tokens.decode(np.zeros(2, np.int16))
    check_game(coded, num_games=2)


class Opaque(StateTokenizer[Any]):
    """A game's tokens without the way back."""

    decodes: ClassVar[bool] = False

    def __init__(self, inner: StateTokenizer[Any]) -> None:
        self.inner = inner
        self.symbols, self.admitted = inner.symbols, inner.admitted
        self.rows, self.cols, self.hands = inner.rows, inner.cols, inner.hands

    def encode(self, states: Sequence[Any], viewers: Any = None) -> NDArray[np.int16]:
        return self.inner.encode(states, viewers)


def test_imagined_boards_that_do_not_decode_are_judged_by_the_rules(game: Game[Any]) -> None:
    config = OneStepConfig(network=NetworkConfig(num_layers=1, width=16, num_heads=2))
    opaque = Opaque(game.tokens)
    policy = OneStepLearner(game, config, Layout(game, "s-asa", 3, tokenizer=opaque)).policy()
    root = game.play(game.parse(), 4)  # player 1 is to move
    first = game.play(root, 0)
    second = game.play(first, 1)
    boards = opaque.encode([first, second], [1, 1]).astype(np.int64)
    texts = policy._texts_of
    assert texts(boards, 1, root, (0, 1)) == (game.format(first), game.format(second))
    assert texts(boards, 0, root, (0, 1)) == (None, None)  # seen from the wrong side
    assert texts(boards, 1, root, (2, 1)) == (None, None)  # not what the moves lead to
    assert texts(boards, 1, root, (0, 0)) == (game.format(first), None)  # an illegal move ends the line
    assert texts(boards[::-1], 1, root, (0, 1)) == (None, None)
    assert texts(boards[:1], 1, root, (-1, -1)) == (None,)
