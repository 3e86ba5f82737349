"""How a policy that decides in one go is paced: on a clock that only its network calls advance."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from genpolicy import load_game
from genpolicy.control import FREE, Control
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy
from genpolicy.policies.thinking import Answer
from genpolicy_play.engine import pacing, search
from genpolicy_play.engine.pacing import Pacer
from genpolicy_play.engine.protocol import Go
from genpolicy_play.engine.search import Budget, Search, SearchStopped


class Imagining(Policy):
    """A quick call takes 10 ms; one of a whole decision, which has a row for each candidate, six times as long."""

    def __init__(self, game: Game[Any], clock: list[float], num_calls: int = 5) -> None:
        self.game, self._clock, self._num_calls = game, clock, num_calls

    @property
    def num_calls(self) -> int:
        return self._num_calls

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        fitting = [each for each in (1, 3, 5) if calls is None or each <= calls]
        return self if fitting[-1] == self._num_calls else Imagining(self.game, self._clock, fitting[-1])

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        for _ in range(self._num_calls):
            control.check()
            self._clock[0] += 0.01 if self._num_calls == 1 else 0.06
        stats = {"network_calls": float(self._num_calls)}
        return [Decision(int(self.game.legal(state)[0]), stats=stats) for state in states]


def moves_under(budget_s: float, monkeypatch: pytest.MonkeyPatch, num_moves: int = 30) -> list[tuple[int, float]]:
    """The calls behind each move's answer, and the seconds that it took."""
    clock = [0.0]
    for module in (pacing, search):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    game = load_game("chess")
    pacer, state, moves = Pacer(Imagining(game, clock)), game.parse(), []
    for _ in range(num_moves):
        go = Search(state, game.legal(state).tolist(), go=Go(), budget=Budget(budget_s, 2 * budget_s, 2 * budget_s))
        answers: list[Answer] = []

        def publish(answer: Answer, go: Search = go, answers: list[Answer] = answers) -> None:
            go.best = answer
            answers.append(answer)

        began = clock[0]
        with suppress(SearchStopped):
            pacer.think(state, go, publish)
        moves.append((answers[-1].nodes, clock[0] - began))
    return moves


@pytest.mark.parametrize(
    ("budget_s", "calls"), [(0.5, 1 + 5), (0.25, 1 + 3), (0.1, 1)], ids=["whole", "less deep", "quick"]
)
def test_as_much_of_a_search_is_made_as_fits(budget_s: float, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = moves_under(budget_s, monkeypatch)
    # At the beginning nothing but the quick call is measured; what a search takes is known after three moves. Where it
    # does not fit, it is tried again now and then.
    expected = 0.01 + (0.0 if calls == 1 else 0.06 * (calls - 1))
    fitting = [made == calls and took == pytest.approx(expected) for made, took in moves[3:]]
    assert sum(fitting) >= 0.9 * len(fitting)
