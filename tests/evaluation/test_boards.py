"""``genpolicy evaluate boards``: shares of right boards, with policies that are known to be right or wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import genpolicy
from genpolicy.cli import main
from genpolicy.control import FREE, Control
from genpolicy.data.records import Dataset
from genpolicy.networks.config import NetworkConfig
from genpolicy.policies.base import Decision, Policy
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from genpolicy_common.labelled import labelled_positions
from genpolicy_evaluation.boards import measure_boards
from tests.small_datasets import CONNECT, solved_connect

RIGHTS = 65  # the first of four tokens
SAMPLE = Path(__file__).parents[2] / "games/genpolicy_chess/sample"


class Imagining(Policy):
    """Plays the first allowed move and imagines the board after it, by the rules but for a mistake."""

    def __init__(self, wrong: str) -> None:
        self.game, self.wrong = genpolicy.load_game("chess"), wrong

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """See above."""
        decisions = []
        for state in states:
            move = control.allowed(state, self.game.legal(state).tolist())[0]
            text: str | None = self.game.format(self.game.play(state, move))
            assert text is not None
            board, rest = text.split(" ", 1)
            if self.wrong == "board":
                text = f"{board.replace('p', 'n', 1)} {rest}"
            if self.wrong == "counter":
                text = f"{board} {rest.rsplit(' ', 1)[0]} 99"
            decisions.append(Decision(move, line=(move,), states=(None if self.wrong == "all" else text,)))
        return decisions


@pytest.mark.parametrize(
    ("wrong", "shares"), [("", (1, 1, 1)), ("counter", (1, 1, 0)), ("board", (1, 0, 0)), ("all", (0, 0, 0))]
)
def test_shares(wrong: str, shares: tuple[int, int, int]) -> None:
    policy = Imagining(wrong)
    positions = labelled_positions(Dataset.open(SAMPLE), policy.game, "test", limit=20)
    for row in measure_boards(policy, positions, name="imagining"):
        assert tuple(share.value for share in row.shares.values()) == shares
        assert row.shares["board"].trials == 20


@pytest.mark.parametrize("paradigm", [pytest.param("s-asa", marks=pytest.mark.thorough), "s-avsav"])
def test_squares_count_although_a_right_makes_the_position_impossible(
    paradigm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boards that are right on every square, but where the king's side may still castle once it no longer may."""
    network = NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2, head="typed")
    config = DiffusionConfig(paradigm=paradigm, horizon=1, viewer="mover", network=network)
    game = genpolicy.load_game("chess")
    policy = DiffusionPolicy(DiffusionLearner(game, config))
    tokenizer, decide = policy.layout.tokenizer, policy.decide

    def played(states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        decisions = []
        for state, decision in zip(states, decide(states, control=control), strict=True):
            (viewer,) = policy.learner.viewers([state])
            row = tokenizer.encode([game.play(state, decision.line[0])], [viewer])[0].copy()
            row[RIGHTS] = tokenizer.symbols.index("castling:K")
            try:
                text: str | None = game.format(tokenizer.decode(row, int(viewer)))
            except ValueError:
                text = None
            decisions.append(replace(decision, states=(text,), state_tokens=(tuple(row.tolist()),)))
        return decisions

    monkeypatch.setattr(policy, "decide", played)
    positions = labelled_positions(Dataset.open(SAMPLE), game, "test", limit=20)
    own, _, _ = measure_boards(policy, positions, name="imagining")
    assert own.shares["board"].value == 1
    assert own.shares["whole"].value <= own.shares["position"].value < 1


def test_boards_of_a_mixture_count_as_those_of_its_policies(tmp_path: Path) -> None:
    """Its decisions hold tokens, and it has no tokenizer of its own to compare them by."""
    alone: Any = genpolicy.load_policy("tic-tac-toe")
    positions = labelled_positions(solved_connect(tmp_path, every=20), alone.game, "test", limit=8)
    mixture = genpolicy.load_policy("mix:tic-tac-toe,tic-tac-toe", game=alone.game)
    for one, other in zip(
        measure_boards(alone, positions, name="alone"), measure_boards(mixture, positions, name="mixture"), strict=True
    ):
        assert other.shares == one.shares


def test_random_moves_are_other_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, played = Imagining(""), list[int]()
    decide = policy.decide

    def watched(states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        decisions = decide(states, control=control)
        played.extend(decision.move for decision in decisions)
        return decisions

    monkeypatch.setattr(policy, "decide", watched)
    measure_boards(policy, labelled_positions(Dataset.open(SAMPLE), policy.game, "test", limit=20), name="imagining")
    assert len(played) == 60
    assert played[:20] != played[20:40]


@pytest.mark.parametrize("paradigm", [pytest.param("s-asa", marks=pytest.mark.thorough), "s-avsav"])
def test_command_line(paradigm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2, head="typed")
    torch.manual_seed(0)
    config = DiffusionConfig(paradigm=paradigm, horizon=2, viewer="mover", network=network)
    folder = DiffusionPolicy(DiffusionLearner(genpolicy.load_game(CONNECT), config)).save_pretrained(tmp_path / "p")
    data = solved_connect(tmp_path / "data", every=20)
    figures = tmp_path / "boards.json"
    arguments = ["evaluate", "boards", "--data", str(data.folder), "--limit", "10", "--json", str(figures)]
    assert main([*arguments, "--policy", str(folder)]) == 0
    assert "random move" in capsys.readouterr().out
    assert [row["moves"] for row in json.loads(figures.read_text())["policies"]] == ["own", "random", "rare"]
    samplers = ["--sampler", "by_ply", "--sampler", "easy_first"]
    assert main([*arguments, "--policy", str(folder), *samplers, "--num-steps", "2"]) == 0
    rows = json.loads(figures.read_text())["policies"]
    assert {row["policy"] for row in rows} == {"p (by_ply)", "p (easy_first)"}
    assert main([*arguments, "--policy", str(folder), "--num-steps", "0"]) == 2
    assert "num_steps" in capsys.readouterr().err
    assert main([*arguments, "--policy", "random"]) == 2
    assert "policy 'random' imagines no board after a move" in capsys.readouterr().err


def test_without_a_mask_random_moves_are_those_drawn_and_an_illegal_own_move_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = genpolicy.load_policy("tic-tac-toe?candidates=2&legal_mask=false")
    game, (some, *_) = (
        policy.game,
        labelled_positions(Dataset.open(SAMPLE), genpolicy.load_game("chess"), "test", limit=1),
    )
    positions = [replace(some, state=game.play(game.parse(), move)) for move in range(9)]
    decide, forced = type(policy).decide, list[bool]()

    def watched(self: Any, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        decisions = decide(self, states, control=control)
        if control is FREE:  # the centre, which is taken in one of the positions
            return [replace(decision, line=(4, *decision.line[1:])) for decision in decisions]
        for state, decision in zip(states, decisions, strict=True):
            forced.append([decision.line[0]] == control.allowed(state, game.legal(state).tolist()))
        return decisions

    monkeypatch.setattr(type(policy), "decide", watched)
    own, _, _ = measure_boards(policy, positions, name="unmasked")
    assert forced == [True] * 18
    assert own.shares["board"].value < 1


@pytest.mark.parametrize("spec", ["mcts:rollout?simulations=2", "alphabeta?depth=1", "oracle:alphabeta?depth=1"])
def test_boards_that_the_rules_make_are_not_measured(spec: str) -> None:
    policy = genpolicy.load_policy(spec, game="chess")
    positions = labelled_positions(Dataset.open(SAMPLE), policy.game, "test", limit=2)
    with pytest.raises(ValueError, match="'search' searches by the rules"):
        measure_boards(policy, positions, name="search")
    policy.close()
