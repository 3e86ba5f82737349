"""The laws that every policy and every learner must pass, ours and third parties' alike.

Axes: B positions of a batch.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genpolicy.control import Control
from genpolicy.data.records import Dataset, Record
from genpolicy.data.windows import WindowSource
from genpolicy.policies.base import Decision, Policy, decide_with, load_policy
from genpolicy.policies.learner import Learner

TOLERANCE = 1e-4
"""Tolerance of probabilities in batches of different sizes: float32 sums in another order."""


def check_policy(
    policy: Policy, states: Sequence[Any], *, finished: Sequence[Any] = (), max_plies: int = 12, seed: int = 0
) -> None:
    """Check the laws of a policy, by some hundred decisions.

    Every move is legal; probabilities are of the legal moves and sum to 1; values lie in [-1, 1]; states are left as
    they were; a row does not depend on the others; the same seed gives the same game; a restricted decision takes an
    allowed move; what was saved and loaded decides the same (where the policy has a folder); a finished game is a
    ValueError; each option is declared once.

    Args:
        policy: What is checked; reseeded on the way.
        states: At least two different positions with legal moves.
        finished: Positions without legal moves.
        max_plies: Length of the games that are compared.
        seed: Seed of all draws.

    Raises:
        AssertionError: a law is broken; the message names it and the position.
        ValueError: fewer than two positions.
    """
    if len(states) < 2:
        raise ValueError(f"check_policy needs at least two positions, got {len(states)}")
    before = [policy.game.format(state) for state in states]
    together = _decide(policy, states, seed)
    _law(len(together) == len(states), policy, f"{len(together)} decisions for {len(states)} positions")
    _law(_decide(policy, states[:0], seed) == [], policy, "an empty batch is not an empty list")
    for state, decision in zip(states, together, strict=True):
        check_decision(policy, state, decision)
    _law([policy.game.format(state) for state in states] == before, policy, "deciding changed a state")
    _check_rows(policy, states, together, seed)
    first, second = (_game(policy, states[0], max_plies, seed) for _ in range(2))
    _law(first == second, policy, f"seed {seed} gave two games: {first} and {second}")
    _check_restricted(policy, states, seed)
    for state in finished:
        _check_refuses(policy, state)
    names = [option.name for option in policy.options()]
    _law(len(set(names)) == len(names), policy, f"an option is declared twice: {names}")
    _check_folder(policy, states, together, seed)


def check_decision(policy: Policy, state: Any, decision: Decision) -> None:
    """Check that a decision is well formed.

    Raises:
        AssertionError: it is not.
    """
    game, text = policy.game, policy.game.format(state)
    legal = [int(move) for move in game.legal(state)]
    _law(decision.move in legal, policy, f"move {decision.move} is illegal in {text!r}")
    if decision.policy is not None:
        _law(sorted(decision.policy) == legal, policy, f"probabilities are not of the legal moves of {text!r}")
        total = sum(decision.policy.values())
        _law(abs(total - 1) < 1e-6, policy, f"probabilities sum to {total} in {text!r}")
        _law(min(decision.policy.values()) >= 0, policy, f"a negative probability in {text!r}")
    if decision.value is not None:
        _law(-1 <= decision.value <= 1, policy, f"value {decision.value} outside [-1, 1] in {text!r}")
    if decision.wdl is not None:
        chances = decision.wdl
        _law(min(chances) >= 0 and abs(sum(chances) - 1) < 1e-6, policy, f"{chances} are not probabilities in {text!r}")
    inside = all(-1 <= move < len(game.moves) for move in decision.line)
    _law(inside, policy, f"the line {decision.line} leaves the vocabulary in {text!r}")
    for imagined in decision.states:
        if imagined is not None:
            game.parse(imagined)
    finite = all(math.isfinite(number) for number in decision.stats.values())
    _law(finite, policy, f"a number in {dict(decision.stats)} is not finite in {text!r}")


def check_learner(
    make: Callable[[], Learner],
    records: Dataset,
    *,
    split: str = "train",
    num_records: int = 32,
    max_updates: int = 600,
    lr: float = 3e-3,
    seed: int = 0,
) -> int:
    """Check that a learner fits a few records perfectly: its policy plays the label (or a move tied with it) in each.

    Args:
        make: Makes a fresh learner; torch's default generator is seeded around it and restored.
        records: Holds at least one labelled record in the split.
        split: Where the records are taken from: its first windows.
        num_records: How many.
        max_updates: AdamW updates after which it has failed.
        lr: Their learning rate.
        seed: Seed of the initial weights and all draws.

    Returns:
        How many updates it took, a multiple of 25.

    Raises:
        AssertionError: the loss is not a finite scalar, or the records were not learnt.
        TypeError: the learner has a stream of its own.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learner = make()
    windows = learner.windows(records, split, seed=seed)
    if not isinstance(windows, WindowSource):
        raise TypeError(
            f"{type(learner).__name__}.windows gave the stream {type(windows).__name__} for split {split!r}"
        )
    indices = np.arange(min(num_records, len(windows)))
    labelled = list(itertools.islice((record for record in records.records(split) if record.line), len(indices)))
    groups = [{**group, "muon": None} for group in learner.param_groups(0.0)]
    optimiser = torch.optim.AdamW(groups, lr=lr)
    generator = torch.Generator().manual_seed(seed)
    policy = learner.policy()
    right = 0
    for update in range(1, max_updates + 1):
        learner.train()
        loss, _ = learner.loss(windows.batch(indices, update), generator)
        if loss.ndim != 0 or not bool(torch.isfinite(loss)):
            raise AssertionError(f"{type(learner).__name__}: update {update} gave the loss {loss}")
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimiser.step()
        if update % 25 == 0:
            right = _num_right(policy, labelled)
            if right == len(labelled):
                return update
    raise AssertionError(
        f"{type(learner).__name__}: {right} of {len(labelled)} records learnt after {max_updates} updates, loss "
        f"{float(loss.detach()):.4f}"
    )


def _num_right(policy: Policy, records: Sequence[Record]) -> int:
    """In how many labelled positions a policy plays a best move."""
    decisions = policy.decide([policy.game.parse(record.state) for record in records])
    return sum(d.move in r.best_moves(policy.game) for d, r in zip(decisions, records, strict=True))


def _law(holds: bool, policy: Policy, what: str) -> None:
    if not holds:
        raise AssertionError(f"policy {policy.label!r}: {what}")


def _decide(policy: Policy, states: Sequence[Any], seed: int) -> list[Decision]:
    policy.seed(seed)
    return policy.decide(states)


def _check_rows(policy: Policy, states: Sequence[Any], together: Sequence[Decision], seed: int) -> None:
    """Each row alone, and all of them backwards, as in the whole batch."""
    alone = [_decide(policy, [state], seed)[0] for state in states]
    backwards = _decide(policy, states[::-1], seed)[::-1]
    for state, decision, *others in zip(states, together, alone, backwards, strict=True):
        for other in others:
            text = policy.game.format(state)
            _law(_same(decision, other), policy, f"{text!r} depends on its batch: {decision} and {other}")


def _check_restricted(policy: Policy, states: Sequence[Any], seed: int) -> None:
    """Where one move alone is allowed, here the last legal one, it is chosen."""
    only = {policy.game.format(state): int(policy.game.legal(state)[-1]) for state in states}
    policy.seed(seed)
    control = Control(restrict=lambda state: [only[policy.game.format(state)]])
    for state, decision in zip(states, decide_with(policy, states, control), strict=True):
        text = policy.game.format(state)
        _law(decision.move == only[text], policy, f"chose {decision.move} in {text!r} where {only[text]} was allowed")


def _check_refuses(policy: Policy, state: Any) -> None:
    try:
        policy.decide([state])
    except ValueError:
        return
    raise AssertionError(f"policy {policy.label!r}: no ValueError in the finished {policy.game.format(state)!r}")


def _check_folder(policy: Policy, states: Sequence[Any], together: Sequence[Decision], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            saved = policy.save_pretrained(Path(folder) / "policy")
        except ValueError as error:  # it has no folder
            _law(policy.learner is None, policy, f"it has weights, and cannot be saved: {error}")
            return
        loaded = load_policy(saved)
        _law(loaded.game.spec == policy.game.spec, policy, f"loaded for the game {loaded.game.spec!r}")
        for state, before, after in zip(states, together, _decide(loaded, states, seed), strict=True):
            text = policy.game.format(state)
            _law(_same(before, after), policy, f"saved and loaded it decides otherwise in {text!r}: {before}, {after}")
        loaded.close()


def _same(one: Decision, other: Decision) -> bool:
    """Equal moves, lines and states, and probabilities up to the order of float32 sums; the clock does not count."""
    if (one.move, one.line, one.states) != (other.move, other.line, other.states):
        return False
    if one.policy is None or other.policy is None:
        return one.policy is other.policy
    return all(abs(share - other.policy.get(move, -1.0)) < TOLERANCE for move, share in one.policy.items())


def _game(policy: Policy, state: Any, max_plies: int, seed: int) -> list[int]:
    policy.seed(seed)
    moves: list[int] = []
    game = policy.game
    while len(moves) < max_plies and not game.is_over(state):
        moves.append(policy.decide([state])[0].move)
        state = game.play(state, moves[-1])
    return moves
