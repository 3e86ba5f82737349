"""Search in the imagination under other options than its own: less effort, no mask, a tree that is kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.policies.diffusion import DiffusionPolicy, SamplerConfig
from genpolicy.policies.imagined import Replies
from genpolicy.policies.ply_order import Finished
from genpolicy_connect.tokens import ConnectTokens
from tests.policies.test_imagined import BOARD, learner
from tests.small_datasets import CONNECT


def test_less_effort_is_a_search_of_less_depth() -> None:
    policy = genpolicy.load_policy("tic-tac-toe?candidates=4&depth=3")
    calls = [policy.with_effort(calls=n).num_calls for n in (1, 2, 3, 4, 5, 7, 20)]
    assert calls == [1, 1, 3, 3, 5, 7, 7]
    assert [policy.with_effort(plies=n).num_calls for n in (1, 2, 3, 9)] == [1, 3, 5, 7]
    assert policy.with_effort(calls=9) is policy


def test_the_value_is_that_of_the_move_played_where_the_best_candidate_is_illegal() -> None:
    policy = genpolicy.load_policy("tic-tac-toe?candidates=8&legal_mask=false")
    state = policy.game.parse("XO./.XX/.O. O")
    decision = policy.decide([state])[0]
    values = {line.line[0]: line.value for line in decision.variations}
    assert decision.line[0] not in policy.game.legal(state)
    assert decision.move in policy.game.legal(state)
    assert decision.value == values[decision.move]


def test_a_search_that_imagines_no_legal_move_says_so() -> None:
    policy: Any = genpolicy.load_policy("tic-tac-toe?candidates=1&legal_mask=false")
    full, empty = policy.game.parse("XO./.XX/.O. O"), policy.game.parse()
    taken = next(iter(set(policy.game.legal(empty)) - set(policy.game.legal(full))))
    with torch.no_grad():  # now it wants to go there everywhere
        policy.learner.network.head.moves.bias[taken] = 1000.0
    assert [each.value is None for each in policy.decide([full, empty])] == [True, False]
    with pytest.raises(ValueError, match=r"none of the 1 candidates is legal in .*: take legal_mask"):
        policy.decide([full])
    policy.with_options(legal_mask=True).decide([full])


def test_trees_of_imagined_boards_are_not_kept() -> None:
    with pytest.raises(ValueError, match="reuse=true: this search model does not say"):
        genpolicy.load_policy("mcts:tic-tac-toe?model=imagined&reuse=true&simulations=8")


def test_a_search_without_a_network_has_no_imagination() -> None:
    with pytest.raises(ValueError, match="has no such model"):
        genpolicy.load_policy("mcts:uniform?model=imagined", game=CONNECT)


@pytest.mark.parametrize(
    "option",
    [
        "sampler=easy_first",
        pytest.param("num_steps=3", marks=pytest.mark.thorough),
        pytest.param("temperature=0.5", marks=pytest.mark.thorough),
        "horizon=1",
        "sampler=a0_last&num_futures=2&temperature=1",
    ],
)
def test_an_option_of_the_sampling_turns_off_a_search_that_would_ignore_it(option: str) -> None:
    policy = genpolicy.load_policy("tic-tac-toe")
    assert "imagined search 8 x 1" in policy.modes()
    sampled = genpolicy.load_policy(f"tic-tac-toe?{option}")
    changed = policy.with_options(**dict(part.split("=") for part in option.split("&")))
    for each in (sampled, changed):
        assert not any("search" in mode for mode in each.modes())
    if "num_futures" in option:
        with pytest.raises(ConfigError, match="a search of candidates=4 draws none"):
            genpolicy.load_policy(f"tic-tac-toe?{option}&candidates=4")
    else:
        assert genpolicy.load_policy(f"tic-tac-toe?{option}&candidates=4").num_calls == 3
    assert policy.with_options(seed=3, weight=2.0).num_calls == 3


def test_a_search_turns_off_the_futures_that_a_policy_averages_over_by_itself(tmp_path: Path) -> None:
    """However it is asked for, unless both are."""
    sampling = SamplerConfig("a0_last", temperature=1.0, num_futures=3)
    policy = learner(sampler=sampling).policy()
    folder = policy.save_pretrained(tmp_path / "policy")
    for each in (genpolicy.load_policy(folder, candidates=4), policy.with_options(candidates=4)):
        assert each.num_calls == 3
        assert isinstance(each, DiffusionPolicy)
        assert each.sampling.num_futures == 1
    with pytest.raises(ConfigError, match="a search of candidates=4 draws none"):
        policy.with_options(candidates=4, num_futures=3)
    seeded = policy.with_options(seed=5, candidates=0)
    assert isinstance(seeded, DiffusionPolicy)
    assert seeded.sampling.num_futures == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paradigm": "s-asa"}, r"paradigm 's-asa' has no values .*: take a policy of paradigm s-avsav"),
        ({"paradigm": "s-avav"}, r"paradigm 's-avav' with horizon 2 imagines no board"),
        ({"horizon": 1}, r"with horizon 1 imagines no board after the first move"),
        ({"viewer": "absolute"}, r"learner\.viewer=mover"),
    ],
)
def test_a_policy_that_cannot_search_says_so(options: dict[str, Any], message: str) -> None:
    made = learner(**options)
    DiffusionPolicy(made)
    with pytest.raises(ConfigError, match=message):
        DiffusionPolicy(made, candidates=4)


@pytest.mark.parametrize(
    ("options", "take"),
    [
        ({"paradigm": "s-asa"}, "s-avsav"),
        ({"paradigm": "s-avav"}, "s-avsav and horizon 2 or more"),
        ({"horizon": 1}, "s-avsav and horizon 2 or more"),
    ],
)
def test_what_cannot_be_searched_says_what_helps(options: dict[str, Any], take: str) -> None:
    policy = DiffusionPolicy(learner(**options))
    with pytest.raises(ConfigError, match=f"take a policy of paradigm {take}, or model=rules$"):
        policy.search_model("imagined")
    with pytest.raises(ConfigError, match=f"take a policy of paradigm {take}, or candidates=0$"):
        policy.with_options(candidates=4)


def test_a_game_whose_players_do_not_alternate_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = DiffusionPolicy(learner())
    monkeypatch.setattr(policy.game, "alternates", False)
    with pytest.raises(ConfigError, match=r"need alternating players, .*: take candidates=0$"):
        policy.with_options(candidates=4)
    with pytest.raises(ConfigError, match=r"need alternating players, .*: take model=rules$"):
        policy.search_model("imagined")


@pytest.mark.parametrize(("game", "asks"), [(CONNECT, True), ("pig", False), ("openspiel:mancala", True)])
def test_a_reply_is_asked_from_the_side_of_who_makes_it_or_not_at_all(game: str, asks: bool) -> None:
    """In pig a player moves again after most moves; in mancala, too, but both sides see the same board."""
    if game.startswith("openspiel"):
        pytest.importorskip("pyspiel")
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply"}
    network = NetworkConfig(num_layers=1, width=16, num_heads=2)
    policy = DiffusionPolicy(learner(game, process=process, network=network, sampler=SamplerConfig("by_ply")))
    assert policy.num_calls == policy.num_dream_steps + asks
    again = [
        policy.game.play(state, move)
        for state in [policy.game.parse()]
        for move in policy.game.legal(state).tolist()
        if policy.game.player(policy.game.play(state, move)) == policy.game.player(state)
    ]
    tokens, replies = policy.game.tokens, Replies(policy.learner)
    for state in again:
        player = policy.game.player(state)
        asked = replies.turned(torch.from_numpy(tokens.encode([state], [player]).astype(np.int64)))
        assert asks == np.array_equal(asked, tokens.encode([state], [player]))


@pytest.mark.parametrize(("turned", "found"), [(None, "leaves it out"), (lambda self: ([], []), "has a method")])
def test_a_tokenizer_that_does_not_turn_boards_is_named(
    turned: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConnectTokens, "turned", turned)
    message = rf"'turned', a property that gives \(places, symbols\), and ConnectTokens {found}"
    with pytest.raises(ConfigError, match=message):
        DiffusionPolicy(learner(), candidates=4)
    with pytest.raises(ConfigError, match=message):
        Finished(learner().layout)


@pytest.mark.parametrize("options", [{"candidates": -1}, {"candidates": 2, "depth": 0}, {"weight": -1.0}])
def test_values_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(reversed(options))):
        DiffusionPolicy(learner(), **options)


def test_modes_are_one_call_the_sampler_and_the_search() -> None:
    policy = DiffusionPolicy(learner(), candidates=3, depth=2, sampler="easy_first_commit")
    assert list(policy.modes()) == ["one_call", "easy_first_commit 4", "imagined search 3 x 2"]
    assert policy.with_options(candidates=0).modes().keys() == {"one_call", "easy_first_commit 4"}


def test_its_model_calls_the_network_as_a_decision_does() -> None:
    made = learner(network=dataclasses.replace(BOARD, dropout=0.5)).train()
    policy, state = made.policy(), made.game.parse()
    called: list[tuple[bool, bool]] = []
    made.network.trunk.register_forward_pre_hook(
        lambda trunk, _: called.append((trunk.training, torch.is_autocast_enabled("cpu")))
    )
    for precision in ("float32", "bfloat16"):
        policy.precision = precision
        policy.decide([state])
        model = policy.search_model("imagined")
        assert model is not None
        nodes = model.root([state])
        model.expand(nodes.embeddings, [int(nodes.choices[0].ids[0])])
        assert set(called) == {(False, precision == "bfloat16")}
        called.clear()
    assert made.network.training
