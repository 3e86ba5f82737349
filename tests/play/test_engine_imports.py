"""That an engine greets, and policies without a network are served, without importing torch, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.play.engine_policies import save_diffusion

POLICIES = ["random", "mcts:heuristic"]
MORE = ["greedy", "mcts:rollout", "alphabeta?depth=1", "engine:stockfish?nodes=50"]


@pytest.mark.parametrize("policy", [*POLICIES, *(pytest.param(policy, marks=pytest.mark.thorough) for policy in MORE)])
def test_an_engine_without_a_network_needs_no_torch(policy: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "genpolicy", "engine", "--policy", policy, "--game", "chess"]
    lines = b"uci\nisready\nposition startpos\ngo nodes 5\n"
    done = subprocess.run(command, input=lines, capture_output=True, timeout=120)
    if b"not found in PATH" in done.stderr:
        pytest.skip("needs stockfish")
    assert done.stdout.splitlines()[-1].startswith(b"bestmove ")
    imported = {line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()}
    assert b"numpy" in imported
    assert not {b"torch", b"diffusers"} & imported


@pytest.mark.usefixtures("cold_start")
def test_the_greeting_needs_no_torch(tmp_path: Path) -> None:
    folder = save_diffusion(tmp_path, "chess")
    code = (
        "import sys\n"
        "from genpolicy_play.engine import command, server, host\n"
        "from genpolicy import registry\n"
        "from genpolicy.policies.base import policy_spec\n"
        f"spec = policy_spec({str(folder)!r})\n"
        "host.Host(spec, registry.load_game(spec.game), 'cpu')\n"
        "assert not {'torch', 'diffusers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_web_board_without_a_network_needs_no_torch() -> None:
    pytest.importorskip("starlette", reason="needs the extra [web]")
    code = (
        "import sys\n"
        "from genpolicy_play.web import app, command, serving\n"
        "from genpolicy_play.web.deciding import warm_up\n"
        "from genpolicy_play.web.catalog import make_catalog\n"
        "searches = ['alphabeta?nodes=100', 'mcts:heuristic?simulations=10', 'mcts:rollout?simulations=4']\n"
        "players = ['random', 'greedy', *searches]\n"
        "catalog = make_catalog(players, ['chess', 'shogi'])\n"
        "for offer in catalog.policies.values():\n"
        "    warm_up(offer)\n"
        "    offer.policy.dream(offer.game.parse())\n"
        "assert len(catalog.policies) >= 6\n"
        "assert not {'torch', 'diffusers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_seeds_of_rows_are_the_same_bits() -> None:
    # Worked out by hand from the documented hash, without the class.
    import hashlib

    from genpolicy.policies.seeds import RowSeeds

    def expected(seed: int, count: int, text: str) -> int:
        return int.from_bytes(hashlib.blake2b(f"{seed}\n{count}\n{text}".encode(), digest_size=8).digest(), "big") >> 1

    assert RowSeeds(7).draw(["a", "b", "a"]) == [expected(7, 0, "a"), expected(7, 0, "b"), expected(7, 1, "a")]
