"""Time as a condition of every block (adaLN-Zero): the identity at first, then its formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from genpolicy import load_game, load_policy
from genpolicy.config import structured
from genpolicy.errors import ConfigError
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from tests.networks.small_networks import layout_of
from tests.networks.small_networks import network as stirred
from tests.small_datasets import CONNECT

BOARD: dict[str, Any] = {"geometry": "board", "head": "typed", "num_layers": 2, "width": 16, "num_heads": 2}


def test_blocks_are_the_identity_at_first() -> None:
    layout = layout_of()
    config = NetworkConfig(**BOARD, move_rank=4, time_conditioning="adaln")
    trunk = DenoisingTransformer(layout, config, generator=torch.Generator().manual_seed(0)).trunk.eval()
    x, condition = torch.randn(3, layout.length, 16), torch.randn(3, 1, 16)
    for block in trunk.blocks:
        assert torch.equal(block(x, None, condition=condition), x)
    tokens = torch.full((2, layout.length), layout.mask)
    tokens[:, : layout.state_length] = 1
    embedded = trunk.embedding(tokens)
    assert trunk.shown is not None
    torch.testing.assert_close(trunk(tokens, torch.tensor([1, 7])), trunk.norm(trunk.shown(embedded, tokens)))


def test_a_block_is_modulated_by_time_and_root() -> None:
    """Against the formula of DiT, written out; the condition is the time and the mean of what is given."""
    layout = layout_of()
    net = stirred(layout, **{**BOARD, "num_layers": 1, "geometry": "sequence"}, time_conditioning="adaln")
    trunk, block = net.trunk, net.trunk.blocks[0]
    tokens, t = torch.full((2, layout.length), layout.mask), torch.tensor([3, 9])
    tokens[:, : layout.state_length] = torch.arange(layout.state_length) % 3
    x = trunk.embedding(tokens)
    condition = trunk.time(t) + trunk.pooled(x[:, : layout.state_length].mean(1, keepdim=True))  # type: ignore[misc]
    shift, scale, gate, *mlp = block.modulation.out(F.silu(condition)).chunk(6, dim=-1)  # type: ignore[union-attr,operator]
    x = x + gate * block.attention(block.norm_attention(x) * (1 + scale) + shift, None)  # type: ignore[operator]
    x = x + mlp[2] * block.mlp(block.norm_mlp(x) * (1 + mlp[1]) + mlp[0])  # type: ignore[operator]
    torch.testing.assert_close(trunk(tokens, t), trunk.norm(x))
    assert not torch.allclose(trunk(tokens, t), trunk(tokens, t + 5))
    with pytest.raises(ConfigError, match="needs the timesteps"):
        net(tokens)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time_conditioning": "adalm"}, "time_conditioning must be true, false or adaln, got 'adalm'"),
        ({"time_conditioning": "adaln", "attention": "prefix"}, "needs attention=full and norm=pre, got 'prefix'"),
        ({"time_conditioning": "adaln", "norm": "post"}, "needs attention=full and norm=pre, got 'full' and 'post'"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        NetworkConfig(**options)


def test_older_values_are_read_as_before() -> None:
    for value in (False, True):
        read = structured(NetworkConfig, {"time_conditioning": value})
        assert read.time_conditioning is value
        net = stirred(layout_of(), time_conditioning=value)
        assert not any("modulation" in name or "pooled" in name for name in net.state_dict())
    with pytest.raises(ConfigError, match=r"time_conditioning"):
        structured(NetworkConfig, {"time_conditioning": "often"})


def test_a_folder_keeps_it(tmp_path: Path) -> None:
    game = load_game(CONNECT)
    network = NetworkConfig(**BOARD, move_rank=4, time_conditioning="adaln", init_std=0.3)
    config = DiffusionConfig(horizon=2, network=network, process={"kind": "multinomial", "num_timesteps": 4})
    learner = DiffusionLearner(game, config)
    with torch.no_grad():
        for block in learner.network.trunk.blocks:
            block.modulation.out.weight.normal_(0.0, 0.3)  # type: ignore[union-attr,operator]
    policy = learner.policy()
    loaded = load_policy(str(policy.save_pretrained(tmp_path / "policy")))
    one, two = (each.decide([game.parse()])[0] for each in (policy, loaded))
    assert (one.line, one.policy) == (two.line, two.policy)
