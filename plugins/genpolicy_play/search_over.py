"""A tree search laid over a policy that is not one."""

from __future__ import annotations

from genpolicy.policies.base import Policy


def search_over(policy: Policy, simulations: int) -> Policy:
    """A tree search with a policy as its prior, and its values where it has some, else the game's own heuristic.

    Raises:
        ValueError: the policy gives no probabilities, or neither it nor the game a value.
    """
    from genpolicy_mcts.evaluators import Heuristic
    from genpolicy_mcts.policy import MctsPolicy, PolicyModel

    prior = policy.with_effort(calls=1)  # a search asks often
    game = policy.game
    decision = prior.decide([game.parse()])[0]
    if decision.policy is None:
        raise ValueError(f"policy {policy.label!r} gives no probabilities of its moves, which a search needs")
    value = prior if decision.value is not None else Heuristic(game)
    return MctsPolicy(game, PolicyModel(game, prior, value), name=policy.label).with_options(simulations=simulations)
