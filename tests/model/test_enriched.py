"""Policy and value that read imagined codes: the plain policy at a gate of 0, stages, folders, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from genpolicy import load_game, load_policy
from genpolicy.data.records import Dataset
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.game import Game
from genpolicy.networks.config import NetworkConfig
from genpolicy.testing.policies import check_learner, check_policy
from genpolicy.training.config import RunConfig
from genpolicy.training.setup import as_begun, take_weights
from genpolicy_policy_baselines.policy_value import PolicyValueConfig, PolicyValueLearner
from genpolicy_policy_model.code_diffusion import CodeDiffusionConfig, CodeDiffusionLearner
from genpolicy_policy_model.enriched import EnrichedConfig, EnrichedLearner, EnrichedPolicy
from tests.small_datasets import CONNECT, solved_connect

GAME: Game[Any] = load_game(CONNECT)
BOARD: dict[str, Any] = {"geometry": "board", "head": "typed", "num_layers": 1, "num_heads": 2, "move_rank": 8}
WIDE = NetworkConfig(**BOARD, width=32)
CODES: dict[str, Any] = {
    "horizon": 3,
    "num_codes": 9,
    "code_width": 4,
    "token_width": 4,
    "autoencoder_width": 32,
    "process": {"kind": "absorbing", "num_timesteps": 4},
}
T = 4


def codes_of(**changed: Any) -> CodeDiffusionConfig:
    network = {**BOARD, "width": 16, **changed.pop("network", {})}
    return CodeDiffusionConfig(network=NetworkConfig(**network), **{**CODES, **changed})


def learner_of(game: Game[Any] = GAME, gate: float = 0.0, trained: bool = True, **changed: Any) -> EnrichedLearner:
    """Weights as they are drawn; what imagines counts as trained."""
    torch.manual_seed(0)
    made = EnrichedLearner(game, EnrichedConfig(**{"network": WIDE, "codes": codes_of(), **changed}))
    network = made.network
    if network.imagined is not None and network.reader is not None:
        with torch.no_grad():
            network.reader.gate.fill_(gate) if gate else None
            if trained:
                network.imagined.network.autoencoder.codebooks.counts.fill_(1.0)
    return made


def plain_of(game: Game[Any] = GAME) -> PolicyValueLearner:
    torch.manual_seed(0)
    return PolicyValueLearner(game, PolicyValueConfig(network=WIDE))


def imagining_of(game: Game[Any] = GAME, **changed: Any) -> CodeDiffusionLearner:
    torch.manual_seed(5)
    made = CodeDiffusionLearner(game, codes_of(**changed))
    made.network.autoencoder.codebooks.counts.fill_(1.0)
    return made


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("solved"), horizon=1, every=9)


def some_states() -> list[Any]:
    made = [GAME.parse()]
    for move in (4, 0, 8, 2):
        made.append(GAME.play(made[-1], move))
    return made


def numbers(network: Any) -> list[Tensor]:
    """All that the network says of some positions."""
    viewers = np.array([GAME.player(state) for state in some_states()])
    with torch.no_grad():
        moves, wdl, plies = network.judged(plain_of().roots(some_states(), viewers))
    return [moves.groups[0].logits, wdl, plies]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# Laws.


@pytest.mark.parametrize("options", [{}, {"enrich": "none"}], ids=str)
def test_a_run_begins_with_the_plain_policy_bit_for_bit(solved: Dataset, options: dict[str, Any]) -> None:
    """Row 20, law: with a gate of 0, or without enriching; the weights are those of ``policy_value`` at the seed."""
    learner, plain = learner_of(**options), plain_of()
    for calls in (0.0, 1.0):
        learner.at(calls)
        assert same(numbers(learner.network), numbers(plain.network))
    batch: Any = plain.windows(solved, "train", seed=0).batch(np.arange(8), 0)
    drawn = torch.Generator()
    assert torch.equal(learner.loss(batch, drawn)[0], plain.loss(batch, drawn)[0])
    made, expected = (each.policy().decide(some_states()) for each in (learner, plain))
    assert [(d.move, d.policy, d.wdl) for d in made] == [(d.move, d.policy, d.wdl) for d in expected]
    assert (learner.fingerprint == plain.fingerprint) == (options == {"enrich": "none"})


def test_an_open_gate_reads_the_codes_and_nothing_else_of_what_is_imagined() -> None:
    learner = learner_of(gate=1.0)
    network, imagined = learner.network, learner.network.imagined
    assert imagined is not None
    before = numbers(network)
    assert not same(before, numbers(plain_of().network))
    codes = [slot for slot in imagined.layout.slots if slot.kind == "code"]
    assert [place for slot in codes for place in range(slot.start, slot.stop)] == imagined.places.tolist()

    def shift(places: Tensor) -> Any:
        def hook(_: nn.Module, __: Any, hidden: Tensor) -> Tensor:
            return hidden.index_add(1, places, torch.ones_like(hidden[:, places]))

        return hook

    others = torch.tensor([p for p in range(imagined.layout.length) if p not in imagined.places.tolist()])
    for places, changes in ((imagined.places, True), (others, False)):
        handle = imagined.network.trunk.register_forward_hook(shift(places))
        assert same(before, numbers(network)) != changes
        handle.remove()


def test_the_gradient_stops_in_the_first_half_of_the_run(solved: Dataset) -> None:
    learner = learner_of(gate=1.0)
    imagined = learner.network.imagined
    assert imagined is not None
    batch: Any = learner.windows(solved, "train", seed=0).batch(np.arange(8), 0)
    for progress, follows in ((0.0, False), (0.499, False), (0.5, True), (1.0, True)):
        learner.at(progress)
        learner.zero_grad()
        learner.loss(batch, torch.Generator())[0].backward()  # type: ignore[no-untyped-call]
        reached = {name for name, p in imagined.named_parameters() if p.grad is not None and bool(p.grad.any())}
        assert bool(reached) == follows
        assert not any("autoencoder" in name or "head" in name for name in reached)
        reader = learner.network.reader
        assert reader is not None
        assert all(p.grad is not None and bool(p.grad.any()) for p in (reader.gate, reader.query.weight))


@pytest.mark.parametrize(("calls", "most"), [(None, T), (2, 2)])
def test_calls_grow_from_one_by_progress(calls: int | None, most: int) -> None:
    learner = learner_of(calls=calls)
    assert learner.network.imagined is not None
    seen: list[int] = []

    def count(_: nn.Module, given: tuple[Any, ...], __: Any) -> None:
        seen.append(int((given[0] == learner.network.imagined.layout.mask).sum()))  # type: ignore[union-attr]

    learner.network.imagined.network.trunk.register_forward_hook(count)
    found = []
    for progress in np.linspace(0, 1, 21).tolist():
        learner.at(progress)
        seen.clear()
        decision = learner.policy().decide([GAME.parse()])[0]
        found.append(len(seen))
        assert decision.stats["network_calls"] == 1 + len(seen)
        assert seen[0] == 5  # a k a k a
        assert sorted(seen, reverse=True) == seen
        assert len({*seen}) == len(seen)
    assert found == sorted(found)
    assert {*found} == {*range(1, most + 1)}


def test_nothing_is_drawn_and_positions_are_imagined_apart() -> None:
    learner = learner_of(gate=1.0)
    learner.at(1.0)
    imagined = learner.network.imagined
    assert imagined is not None
    viewers = np.array([GAME.player(state) for state in some_states()])
    states = torch.from_numpy(GAME.tokens.encode(some_states(), viewers).astype(np.int64))
    whole = imagined(states, T)
    state = torch.get_rng_state()
    assert torch.equal(imagined(states, T), whole)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(imagined(states[1:2], T), whole[1:2])


def test_optimisers_get_what_learns_and_muon_the_matrices_between(solved: Dataset) -> None:
    learner = learner_of()
    imagined, reader = learner.network.imagined, learner.network.reader
    assert imagined is not None
    assert reader is not None
    groups = learner.param_groups(0.1)
    given = {id(p) for group in groups for p in group["params"]}
    muon = {id(p) for p in groups[0]["muon"]}
    assert given == {id(p) for p in learner.parameters() if p.requires_grad}
    assert not given & {id(p) for p in imagined.network.autoencoder.parameters()}
    assert {id(p) for p in reader.parameters() if p.ndim == 2} <= muon
    blocks = {id(p) for p in imagined.network.trunk.blocks.parameters() if p.ndim == 2}
    assert muon & {id(p) for p in imagined.parameters()} == blocks
    plain = plain_of()
    more = learner.flops_per_record() or 0.0
    assert more > (plain.flops_per_record() or 0.0) == learner_of(enrich="none").flops_per_record()
    assert len(learner.windows(solved, "train", seed=0)) == len(plain.windows(solved, "train", seed=0))


@pytest.mark.slow
def test_laws_of_learners(solved: Dataset) -> None:
    check_learner(learner_of, solved)


def test_laws_of_policies() -> None:
    check_policy(EnrichedPolicy(learner_of(gate=1.0)), some_states()[::2], max_plies=2)


# Folders.


def test_a_folder_is_whole_and_what_imagines_comes_from_code_diffusion(tmp_path: Path) -> None:
    source, learner = imagining_of(), learner_of(gate=1.0, trained=False)
    plain = {name: value.clone() for name, value in learner.state_dict().items() if "imagined" not in name}
    take_weights(learner, str(source.policy().save_pretrained(tmp_path / "codes")))
    assert learner.network.imagined is not None
    for name, value in source.network.state_dict().items():
        assert torch.equal(learner.network.imagined.network.state_dict()[name], value)
    assert all(torch.equal(learner.state_dict()[name], value) for name, value in plain.items())
    learner.at(0.6)
    folder = learner.policy().save_pretrained(tmp_path / "enriched")
    loaded = load_policy(str(folder))
    made, expected = (each.decide(some_states()) for each in (loaded, learner.policy()))
    assert [(d.move, d.policy, d.wdl) for d in made] == [(d.move, d.policy, d.wdl) for d in expected]
    assert made[0].stats["network_calls"] == 4.0
    again = learner_of(trained=False)
    take_weights(again, str(folder))
    assert all(torch.equal(value, learner.state_dict()[name]) for name, value in again.state_dict().items())


def test_the_folder_of_what_imagines_is_not_an_older_one_of_this_kind(tmp_path: Path) -> None:
    """It has no key ``codes``: that does not mean that the learner's own section of that name is incomplete."""
    folder = imagining_of().policy().save_pretrained(tmp_path / "codes")
    section = {"kind": "enriched", "codes": {"network": {"width": 16}}}
    config = RunConfig(learner=section, init_from=str(folder))
    assert as_begun(config, [folder / "config.yaml"]).learner == section


def test_without_enriching_it_goes_on_from_policy_value(tmp_path: Path) -> None:
    plain = plain_of()
    with torch.no_grad():
        next(plain.network.wdl.parameters()).add_(0.1)
    learner = learner_of(enrich="none")
    take_weights(learner, str(plain.policy().save_pretrained(tmp_path / "plain")))
    assert same(numbers(learner.network), numbers(plain.network))


def test_codes_that_are_not_numbers_are_named() -> None:
    learner = learner_of(gate=1.0)
    learner.at(0.6)
    assert learner.network.imagined is not None
    with torch.no_grad():
        for parameter in learner.network.imagined.network.head.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(ValueError, match="code head gives numbers that are not finite"):
        learner.policy().decide(some_states())


def test_codes_that_were_never_trained_are_an_error(solved: Dataset) -> None:
    learner = learner_of(trained=False)
    batch: Any = learner.windows(solved, "train", seed=0).batch(np.arange(4), 0)
    with pytest.raises(ConfigError, match="never trained; set init_from=FOLDER of a policy of kind code_diffusion"):
        learner.loss(batch, torch.Generator())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_codes": 8, "code_width": 2}, r"set learner\.codes\.num_codes=8, learner\.codes\.code_width=2$"),
        ({"num_books": 2}, r"set learner\.codes\.num_books=2$"),
        ({"network": {"width": 32}}, r"set learner\.codes\.network\.width=32$"),
        (
            {"process": {"kind": "absorbing", "num_timesteps": 5, "schedule": "quadratic"}},
            r"set learner\.codes\.process\.num_timesteps=5, learner\.codes\.process\.schedule=quadratic$",
        ),
        ({"process": {"kind": "absorbing"}}, r"set no learner\.codes\.process\.num_timesteps$"),
    ],
    ids=str,
)
def test_codes_of_another_autoencoder_or_network_are_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError, match="imagines other codes or in another way: " + said):
        learner_of().take_weights(imagining_of(**changed))


def test_codes_imagined_ply_by_ply_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"take a code_diffusion policy with kind=absorbing and order=joint"):
        learner_of().take_weights(imagining_of(process={"kind": "absorbing", "order": "ply"}))


def test_a_folder_of_another_game_or_without_codes_is_named(tmp_path: Path) -> None:
    other = load_game("connect:rows=3,cols=4,k=3,gravity=false")
    with pytest.raises(CheckpointError, match=r"codes are those of 'connect:rows=3,cols=4.* this learner's of"):
        learner_of().take_weights(imagining_of(other))
    folder = imagining_of(other).policy().save_pretrained(tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"init_from: .*plays 'connect:rows=3,cols=4"):
        take_weights(learner_of(), str(folder))
    folder = plain_of().policy().save_pretrained(tmp_path / "plain")
    with pytest.raises(CheckpointError, match=r"differ in learner\.viewer.*set learner\.viewer=mover"):
        learner_of(viewer="absolute").take_weights(imagining_of())
    with pytest.raises(CheckpointError, match="a PolicyValueLearner imagines no codes; init_from takes a policy of"):
        take_weights(learner_of(), str(folder))


def test_a_folder_of_other_codes_is_refused_by_its_fingerprint(tmp_path: Path) -> None:
    folder = learner_of().policy().save_pretrained(tmp_path / "enriched")
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("num_codes: 9", "num_codes: 8"))
    with pytest.raises(CheckpointError, match="its tokens are not those"):
        load_policy(str(folder))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"enrich": "add"}, "enrich must be one of none, cross; got 'add'"),
        ({"calls": 0}, r"calls must be 1..4 \(learner.codes.process.num_timesteps\), got 0"),
        ({"calls": 5}, "calls must be 1..4"),
        ({"codes": codes_of(horizon=1)}, "horizon=1 imagines a move and no code"),
        ({"codes": codes_of(process={"kind": "absorbing", "order": "ply"})}, "got kind=absorbing and order=ply"),
        (
            {"codes": codes_of(process={"kind": "multinomial", "timeless": True})},
            "from masks, all together.* got kind=multinomial",
        ),
    ],
    ids=str,
)
def test_settings_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        learner_of(**changed)


def test_players_must_take_turns() -> None:
    with pytest.raises(ConfigError, match=r"in 'pig.*may move twice"):
        learner_of(load_game("pig"))
