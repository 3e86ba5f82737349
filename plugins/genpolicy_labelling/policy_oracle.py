"""A policy as an oracle: its move and line are the label, its probabilities and value the record's policy and value.

Spelled ``policy:SPELLING``, for example ``policy:mcts:runs/a/policy?simulations=50``. So self-play by a search writes
what AlphaZero-like learners train on, and labelling old records with a newer policy is Reanalyse (Schrittwieser et al.
2021, arXiv:2104.06294).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from genpolicy.data.oracle import Line, Oracle
from genpolicy.errors import EngineError
from genpolicy.game import Game
from genpolicy.policies.decision import Decision
from genpolicy_common.shipping import folders_of, replaced

PREFIX = "policy:"
MAX_TOGETHER = 4096


class PolicyOracle(Oracle):
    """Labels positions with a policy's decisions.

    Before each call the policy is seeded with a digest of ``seed`` and the positions of the call, so that an answer
    depends on these alone and draws of one call are not those of the next.

    Args:
        game: The game.
        policy: Folder or spelling of the policy; ``%3F`` in it stands for ``?``.
        seed: Seed of its draws.
        together: Positions of one call, as far as there are so many: games of a group, records of a block.
        options: Options of the policy.

    Raises:
        ValueError: an option that the policy does not take, a policy of another game, or a number out of range.
        RegistryError: no such policy.
    """

    def __init__(
        self, game: Game[Any], policy: str = "", seed: int | str = 0, together: int | str = 64, **options: Any
    ) -> None:
        from genpolicy.policies.base import load_policy

        if not policy:
            raise ValueError("oracle 'policy' needs a policy: policy:FOLDER, or a spelling such as policy:mcts:FOLDER")
        if "processes" in options:
            raise ValueError(
                "a policy labels in one process, many positions at once: omit --parallel (together=N sets how many)"
            )
        self.game, self.text = game, unquote(policy)
        self.seed, self.num_together = _whole("seed", seed, 0), _whole("together", together, 1)
        self.options = {key: str(value) for key, value in sorted(options.items())}
        head, _, query = self.text.partition("?")
        more = "&".join(f"{key}={value}" for key, value in self.options.items())
        self.policy = load_policy(head + "?" * bool(query or more) + "&".join(filter(None, (query, more))), game=game)

    def describe(self) -> dict[str, Any]:
        """The policy; a folder in its spelling or options stands as the checksum of what it holds, so it may move."""
        folders = folders_of([self.text, *self.options.values()])
        names = {folder: f"weights-{checksum[:12]}" for folder, checksum in folders.items()}
        return {
            "name": "policy",
            "policy": replaced(self.text, names),
            "weights": sorted(set(folders.values())),
            "seed": self.seed,
            "together": self.num_together,
            **{key: replaced(value, names) for key, value in self.options.items()},
        }

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        """One line for each state; see ``Oracle``.

        Raises:
            EngineError: values of all moves are asked for, which a policy does not give.
            RegistryError: an illegal move, or probabilities or a value that are impossible.
        """
        from genpolicy_common.decisions import all_decided

        if move_values:
            raise EngineError(
                "a policy gives probabilities of the moves, not their values: use an engine or a solver as the oracle; "
                "of selfplay and label, leave out --move-values"
            )
        self.policy.seed(self._seed_of(states))
        decisions = all_decided(self.policy, states)
        return [self._line(*pair, horizon) for pair in zip(states, decisions, strict=True)]

    def _seed_of(self, states: Sequence[Any]) -> int:
        digest = hashlib.blake2b(str(self.seed).encode(), digest_size=4)
        for state in states:
            digest.update(b"\n" + self.game.format(state).encode())
        return int.from_bytes(digest.digest(), "little") >> 1

    def _line(self, state: Any, decision: Decision, horizon: int) -> Line:
        """The decision's move and what was imagined after it, as far as that is legal."""
        game, moves = self.game, [decision.move]
        state = game.play(state, decision.move)
        imagined = decision.line[1:horizon] if decision.line[:1] == (decision.move,) else ()
        for move in imagined:
            if game.outcome(state) is not None or move not in game.legal(state):
                break
            state = game.play(state, move)
            moves.append(move)
        value = None if decision.value is None else min(1.0, max(-1.0, float(decision.value)))
        return Line(
            tuple(moves),
            scores=() if value is None else (f"value:{value:.6g}",),
            ended=game.outcome(state) is not None,
            policy=decision.policy or {},
            value=value,
        )

    def close(self) -> None:
        """Close the policy."""
        self.policy.close()


def policy_as_oracle(name: str, query: str, game: Game[Any]) -> tuple[str, dict[str, Any]] | None:
    """The oracle and options that ``policy:SPELLING`` stands for; None for another name."""
    del query, game
    return ("policy", {"policy": name.removeprefix(PREFIX)}) if name.startswith(PREFIX) else None


def _whole(name: str, value: int | str, least: int) -> int:
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number <= (MAX_TOGETHER if name == "together" else 2**31 - 1):
        takes = f"from 1 to {MAX_TOGETHER}" if name == "together" else "of at least 0"
        raise ValueError(f"{name} must be a whole number {takes}, got {value!r}")
    return number
