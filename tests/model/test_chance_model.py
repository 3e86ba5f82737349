"""Codes for chance: a model that is right about everything is searched as the rules are, and one that is learned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from genpolicy import cli, load_game, load_policy
from genpolicy.data.oracle import make_oracle
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.networks.config import NetworkConfig
from genpolicy.testing.policies import check_learner, check_policy
from genpolicy.testing.search import check_search_model
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.rules import RulesModel
from genpolicy_mcts.selection import MctsConfig
from genpolicy_policy_model.chance_model import ChanceModel, Judged, Thrown
from genpolicy_policy_model.config import MuZeroConfig
from genpolicy_policy_model.episodes import EpisodeBatch
from genpolicy_policy_model.muzero import MuZeroLearner
from genpolicy_policy_model.vq import VQLearner, is_natural, transitions
from genpolicy_policy_model.vq_config import VQConfig
from genpolicy_policy_model.vq_policy import VQPolicy
from tests.model.test_latent_model import evaluator, judge
from tests.small_datasets import CONNECT, write_dataset

PIG = "pig:goal=12,faces=3"
PIGLET = "pig:goal=4,faces=2"
GAME: Game[Any] = load_game(PIG)
Floats = NDArray[np.float64]


class PerfectChance:
    """A code is the number of an outcome, and every head is right; a latent is a position with the root's player."""

    def __init__(self, game: Game[Any], judged: Any = judge) -> None:
        self.game, self.judged = game, judged

    def represent(self, states: Sequence[Any]) -> list[tuple[Any, int]]:
        return [(state, self.game.player(state)) for state in states]

    def throw(self, latents: Sequence[Any], moves: NDArray[np.int64]) -> Thrown:
        game = self.game
        after, judged = self._played(latents, moves.tolist())
        chances, codes, worths = np.zeros(len(after)), np.zeros((len(after), 1, 8)), np.zeros(len(after))
        for row, (state, viewer) in enumerate(after):
            if game.outcome(state) is None and (shares := game.chance(state)) is not None:
                chances[row], codes[row, 0, : len(shares)] = 1, shares
                ends, told = self._played([(state, viewer)] * len(shares), game.legal(state).tolist())
                _, values = self.predict(ends)
                signs = np.where(np.array([game.player(end) == game.player(state) for end, _ in ends]), 1, -1)
                worths[row] = shares @ (told.rewards + signs * values)
        return Thrown(after, chances, codes, worths, judged)

    def thrown(self, latents: Sequence[Any], codes: NDArray[np.int64]) -> tuple[list[Any], Judged]:
        moves = [int(self.game.legal(state)[code]) for (state, _), code in zip(latents, codes[:, 0], strict=True)]
        return self._played(latents, moves)

    def predict(self, latents: Sequence[Any]) -> tuple[Floats, Floats]:
        policy, values = np.zeros((len(latents), len(self.game.moves))), np.zeros(len(latents))
        for row, (state, _) in enumerate(latents):
            if self.game.outcome(state) is None and self.game.chance(state) is None:
                priors, values[row] = self.judged(self.game, state)
                policy[row, [*priors]] = [*priors.values()]
        return policy, values

    def _played(self, latents: Sequence[Any], moves: list[int]) -> tuple[list[Any], Judged]:
        game = self.game
        after, rewards = [], []
        for (state, viewer), move in zip(latents, moves, strict=True):
            ended = game.play(state, move)
            outcome = game.outcome(ended) or 0.0
            after.append((ended, viewer))
            rewards.append(outcome if game.player(ended) == game.player(state) else -outcome)
        ends = [float(game.outcome(state) is not None) for state, _ in after]
        others = [float(game.player(state) != viewer) for state, viewer in after]
        return after, Judged(np.array(rewards), np.array(ends), np.array(others))


def perfect(game: Game[Any], judged: Any = judge) -> ChanceModel:
    return ChanceModel(game, PerfectChance(game, judged), least=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("chance", ["neutral", "adversarial", "cooperative"])
@pytest.mark.parametrize("text", ["0 0 0 A choose", "5 7 3 B choose", "9 1 2 A choose"])
def test_perfect_codes_are_searched_as_the_rules_are(chance: Any, text: str) -> None:
    """Visit for visit, below the root too."""
    config = MctsConfig(simulations=300, leaves=1, chance=chance)
    rules, codes = (
        Mcts(model, config).search([GAME.parse(text)])[0]
        for model in (RulesModel(GAME, evaluator(GAME)), perfect(GAME))
    )
    assert codes.visits == rules.visits
    assert codes.value == pytest.approx(rules.value, abs=1e-9)
    assert codes.tree.visits == rules.tree.visits
    assert codes.tree.chance == rules.tree.chance
    np.testing.assert_allclose(codes.tree.values, rules.tree.values, atol=1e-9)


@pytest.mark.parametrize(
    ("simulations", "within"), [(1500, 0.05), pytest.param(20_000, 0.02, marks=pytest.mark.thorough)]
)
def test_neutral_codes_come_to_the_solution(simulations: int, within: float) -> None:
    """The rules' expectimax, which value iteration gives; the worst and the best of all throws lie around it."""
    game = load_game(PIGLET)

    def even(game: Any, state: Any) -> tuple[dict[int, float], float]:
        legal = game.legal(state).tolist()
        return dict.fromkeys(legal, 1 / len(legal)), 0.0

    exact = make_oracle("pig", game).win_probability(game.parse())  # type: ignore[attr-defined]
    values = {
        chance: Mcts(perfect(game, even), MctsConfig(simulations=simulations, chance=chance))
        .search([game.parse()])[0]
        .value
        for chance in ("adversarial", "neutral", "cooperative")
    }
    assert exact == pytest.approx(4 / 7)
    assert values["neutral"] == pytest.approx(2 * exact - 1, abs=within)
    assert values["adversarial"] < values["neutral"] < values["cooperative"]


def test_perfect_codes_pass_the_laws_of_search_models() -> None:
    texts = ["0 0 0 A choose", "5 7 3 B choose"]
    check_search_model(perfect(GAME), [GAME.parse(text) for text in texts])
    model = perfect(GAME)
    root = model.root([GAME.parse(text) for text in texts])
    after = model.expand([*root.embeddings, root.embeddings[1]], [0, 0, 1])
    assert [*after.chance] == [True, True, False]
    assert [*after.discounts] == [1.0, 1.0, -1.0]
    both = model.expand([after.embeddings[0], after.embeddings[2]], [0, 0])  # a code and a move in one batch
    assert [*both.chance] == [False, True]
    assert [*both.discounts] == [-1.0, 1.0]  # the 1 loses the turn


# What is learned.


def config(**changed: Any) -> VQConfig:
    network = NetworkConfig(geometry="sequence", head="typed", num_layers=1, width=16, num_heads=2, move_rank=0)
    given = {"latent_width": 32, "dynamics_layers": 1, "unroll": 2, "side": "both", "autoencoder_width": 64}
    return VQConfig(network=network, **{**given, "num_codes": 4, **changed})


def learner_of(seed: int = 0, game: Game[Any] = GAME, **changed: Any) -> VQLearner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VQLearner(game, config(**changed))


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    out = tmp_path_factory.mktemp("games") / "d"
    words = ["--game", PIG, "--oracle", "pig", "--games", "20", "--horizon", "1", "--error-rate", "0.2:0.8"]
    assert cli.main(["data", "selfplay", *words, "--out", str(out)]) == 0
    return Dataset.open(out)


def batch_of(learner: VQLearner, data: Dataset) -> EpisodeBatch:
    source = learner.windows(data, "train", seed=1)
    batch = source.batch(np.arange(len(source)), 0)
    assert isinstance(batch, EpisodeBatch)
    return batch


def test_codes_are_of_what_was_thrown_alone(games: Dataset) -> None:
    """A move after which nothing is thrown leads on without a code: other random codes there change no loss."""
    learner = learner_of(unroll=1)
    learner.at(1.0)
    batch = batch_of(learner, games)
    coded, _ = learner._rebuilt(batch, learns=False, generator=torch.Generator())
    known = transitions(batch, learner.layout.mask)
    rolls = GAME.moves.index("roll")
    assert torch.equal(coded, known & (batch.moves == rolls))
    assert 0 < int(coded.sum()) < int(known.sum())
    learner.requires_grad_(False)
    codes = torch.zeros((*batch.moves.shape, 1), dtype=torch.int64)
    held = (known & ~coded)[:, 0]
    rows = [learner._model_loss(_of(batch, held), code[held], coded[held])[1] for code in (codes, codes + 1)]
    assert all(float(rows[0][name]) == float(rows[1][name]) for name in rows[0])
    assert float(rows[0]["code"]) == 0
    assert set(rows[0]) >= {"chance", "turn"}


def _of(batch: EpisodeBatch, rows: torch.Tensor) -> EpisodeBatch:
    return EpisodeBatch(**{name: value[rows] for name, value in vars(batch).items()})


def test_what_an_exact_head_says_costs_nothing(games: Dataset) -> None:
    """Heads whose log-odds are those of the labels have no loss: they are read at the right places."""
    learner = learner_of(unroll=2)
    batch = batch_of(learner, games)
    known = transitions(batch, learner.layout.mask)
    right = [batch.chance, batch.other[:, 1:]]
    for name, labels in zip(("chance", "turn"), right, strict=True):
        head = getattr(learner.network, name)
        head.forward = lambda _, labels=labels: 100.0 * (2.0 * labels.T.flatten() - 1)
    _, parts = learner.loss(batch, torch.Generator().manual_seed(0))
    assert float(parts["chance"]) == pytest.approx(0, abs=1e-6)
    assert float(parts["turn"]) == pytest.approx(0, abs=1e-6)
    assert bool((batch.other[:, 1:] & known).any())


@pytest.mark.slow
def test_laws_of_learners(games: Dataset) -> None:
    check_learner(learner_of, games)


def test_all_outcomes_are_measured(games: Dataset) -> None:
    measured = learner_of().eval().measure(games, "train", 40)
    assert 0 <= measured["rebuilt"] <= 1
    assert 1 <= measured["codes"] <= 4


def test_positions_of_chance_alone_have_no_move_to_measure(games: Dataset, tmp_path: Path) -> None:
    natural = [r for r in games.records("train") if is_natural(GAME, GAME.parse(r.state))][:3]
    thrown = write_dataset(tmp_path / "thrown", GAME.spec, natural)
    assert learner_of().eval().measure(thrown, "train", 40) == {}


@pytest.mark.parametrize(("mode", "books"), [("prior", 1), ("one_step", 2)])
def test_laws_of_policies_and_models(mode: str, books: int) -> None:
    policy = VQPolicy(learner_of(num_books=books), mode=mode)
    states = [GAME.parse(text) for text in ("0 0 0 A choose", "5 7 3 B choose")]
    check_policy(policy, states, max_plies=4)
    model = policy.search_model()
    assert isinstance(model, ChanceModel)
    check_search_model(model, states, max_nodes=30)


def test_a_search_takes_the_codes_of_a_folder(tmp_path: Path) -> None:
    folder = learner_of(latent="squares").policy().save_pretrained(tmp_path / "policy")
    state = GAME.parse("5 7 3 B choose")
    for more in ("", "&chance=adversarial&answers=2&least=0.2", "&root=gumbel"):
        assert load_policy(f"mcts:{folder}?simulations=6{more}").decide([state])[0].move in (0, 1)


@pytest.mark.parametrize("name", ["chance", "turn"])
def test_a_head_that_gives_nan_is_named(name: str) -> None:
    learner = learner_of()
    with torch.no_grad():
        getattr(learner.network, name).out.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=f"the network's {name} head gives numbers that are not finite"):
        VQPolicy(learner, mode="one_step").decide([GAME.parse()])


def test_sides_that_do_not_fit_the_game_are_named() -> None:
    with pytest.raises(ConfigError, match=r"learner\.side=own: chance decides in 'pig.*set learner\.side=both"):
        learner_of(side="own")
    with pytest.raises(ConfigError, match=r"learner\.side=both: .*'connect.* has no chance; set learner\.side=own"):
        learner_of(game=load_game(CONNECT))
    with pytest.raises(ConfigError, match=r"span=2 with side=both.*set span=1"):
        config(span=2)
    with pytest.raises(ConfigError, match=r"chance decides in 'pig.*learner\.kind=vq and learner\.side=both"):
        MuZeroLearner(GAME, MuZeroConfig())


def test_records_without_dice_are_named(tmp_path: Path) -> None:
    words = ["data", "import", "all", "--game", PIG, "--out", str(tmp_path / "all")]
    assert cli.main(words) == 0
    with pytest.raises(ConfigError, match=r"learner\.side=both, source=walks: .*source=games"):
        learner_of(source="walks").windows(Dataset.open(tmp_path / "all"), "train", seed=0)
