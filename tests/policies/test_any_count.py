"""Windows that begin with other counts of moves, of which games show few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import genpolicy
from genpolicy.data.windows import TokenBatch
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.policies.any_move import MAX_COUNT
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from tests.small_datasets import CONNECT

FEN = "r3k2r/pp3ppp/2n2n2/8/8/2N2N2/PP3PPP/R3K2R w KQkq - 4 12"


def learner(any_count: float, game: str = "chess") -> DiffusionLearner:
    network = NetworkConfig(geometry="board", num_layers=1, width=32, num_heads=4, head="typed")
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "any_move": 1.0, "any_count": any_count}
    tokens = "plies" if game == "chess" else ""
    config = DiffusionConfig(network=network, paradigm="s-avsav", horizon=2, process=process, tokens=tokens)
    return DiffusionLearner(genpolicy.load_game(game), config)


def windows(made: DiffusionLearner, num: int) -> TokenBatch:
    """One position ``num`` times."""
    layout, game = made.layout, made.game
    row = torch.full((num, layout.length), layout.mask)
    root = layout.tokenizer.encode([game.parse(FEN)], [0])[0]
    row[:, : layout.state_length] = torch.from_numpy(root.astype(np.int64))
    row[:, layout.first_action] = layout.move_offset
    given = torch.from_numpy(layout.given.copy()).expand(num, -1)
    return TokenBatch(row, given, torch.zeros_like(given), torch.arange(num))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_counts_are_drawn_and_the_rules_go_on_from_them(share: float) -> None:
    made, num = learner(share), 200
    change = made.by_ply.any_move if made.by_ply is not None else None
    assert change is not None
    assert change.num_draws == (3 if share else 0)
    batch, generator = windows(made, num), torch.Generator().manual_seed(0)
    draws = torch.rand(num, generator=generator, dtype=torch.float64)
    counts = torch.rand(change.num_draws, num, generator=generator, dtype=torch.float64) if share else None
    changed = change(batch, draws, counts)
    layout, game, others, clocks, plies = made.layout, made.game, 0, set(), set()
    state = layout.slot("state", 1)
    assert state is not None
    for row in changed.tokens.numpy():
        (root,) = decoded(made, row[: layout.state_length])
        viewer = game.player(root)
        move = int(game.moves.seen_by(row[layout.first_action] - layout.move_offset, viewer))
        after = layout.tokenizer.encode([game.play(root, move)], [viewer])[0]
        assert row[state.start : state.stop].tolist() == after.tolist()
        board = root.board
        assert board.board_fen() in (FEN.split()[0], FEN.split()[0].swapcase())
        others += (board.halfmove_clock, board.ply()) != (4, 22)
        clocks.add(board.halfmove_clock)
        plies.add(board.ply())
    # Clocks of 100 are draws and the clock is at most the number of plies; there the window keeps its counts.
    assert others == 0 if share == 0 else share / 3 < others / num <= share + 0.1
    assert max(clocks) < 100
    assert max(plies) < MAX_COUNT
    if share:
        assert max(clocks) > 50
        assert max(plies) > 300
    assert torch.equal(change(batch, draws, counts).tokens, changed.tokens)
    loss, _ = made.loss(batch, torch.Generator().manual_seed(0))
    assert loss.isfinite()


def decoded(made: DiffusionLearner, row: NDArray[np.int64]) -> list[Any]:
    """The positions that a root stands for: one, since plies tell who moves."""
    found = []
    for viewer in (0, 1):
        try:
            found.append(made.layout.tokenizer.decode(row, viewer))
        except ValueError:
            continue
    return found


def test_counts_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ConfigError, match="any_count' is a part of the boards"):
        learner(1.5)
    with pytest.raises(ConfigError, match=r"count no moves; set learner\.process\.any_count=0"):
        learner(0.5, CONNECT)
