"""A stranger's search policy in the engine: its options, its thinking and its answers, by what it declares alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.play.engine_session import Session, before_bestmove, best

pytestmark = pytest.mark.usefixtures("warm_start")

POLICY = '''
import sys, time
from genpolicy import registry
from genpolicy.control import FREE
from genpolicy.options import Option
from genpolicy.policies.base import Decision, Policy, Variation
from genpolicy.policies.thinking import Answer


@registry.register("policies", "counter")
class Counter(Policy):
    """Plays its legal moves one after another, the later the better."""

    kind = "counter"
    is_prior = False

    def __init__(self, game, width):
        self.game, self.width = game, width

    @classmethod
    def options(cls, spec=None):
        return (Option("width", int, 3, low=1, high=9, label="Width"), Option("nodes", int, low=1))

    @classmethod
    def from_spec(cls, argument, options):
        return cls(options["game"], options.get("width", 3))

    def with_options(self, **changed):
        return Counter(self.game, self.read_changes(changed).get("width", self.width))

    def decide(self, states, *, control=FREE):
        return [Decision(control.allowed(state, self.game.legal(state).tolist())[0]) for state in states]

    def thinker(self):
        return self

    def think(self, state, limits, publish, *, control=FREE):
        allowed = control.allowed(state, self.game.legal(state).tolist())
        nodes = 0
        while limits.nodes is None or nodes < limits.nodes:
            control.check()
            if limits.is_own and nodes == self.width or limits.remaining_s() == 0.0:
                return
            publish(Answer((Variation((allowed[nodes % len(allowed)],), 0.25),), nodes + 1, depth=nodes + 1))
            nodes += 1
            time.sleep(0.001)


from genpolicy.cli import main
sys.exit(main(["engine", *sys.argv[1:]]))
'''


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(command=[sys.executable, "-c", POLICY, "--policy", "counter", "--game", "chess"]) as session:
        lines = session.ask("uci", until="uciok")
        assert "option name Width type spin default 3 min 1 max 9" in lines
        assert not any("Simulations" in line or "nodes" in line for line in lines), "it is a search, and go sets nodes"
        session.ask("isready", until="readyok")
        yield session
        assert session.strays() == []
        assert session.end() == 0


def test_its_answers_are_reported_as_it_publishes_them(session: Session) -> None:
    lines = session.ask("position startpos", "go nodes 1000")
    reported = before_bestmove(lines)
    assert len(reported) > 1, "some before the last"
    assert "depth 1000 multipv 1 score cp " in reported[-1]
    assert " nodes 1000 " in reported[-1]
    assert best(lines) == reported[-1].split(" pv ")[1]


def test_its_own_limits_and_its_options_hold(session: Session) -> None:
    assert " nodes 3 " in before_bestmove(session.ask("go"))[-1]
    session.send("setoption name Width value 5")
    assert " nodes 5 " in before_bestmove(session.ask("go"))[-1]
    said = session.ask("setoption name Width value 10", "isready", until="readyok")
    assert any("Width must be" in line and "stays as it was" in line for line in said)
    session.ask("setoption name Width value 3", "isready", until="readyok")


def test_it_is_stopped_timed_and_restricted(session: Session) -> None:
    session.send("go infinite")
    session.until("info depth")
    assert best(session.ask("stop"))
    assert best(session.ask("go movetime 50"))
    for _ in range(3):
        assert best(session.ask("go nodes 7 searchmoves e2e4 d2d4")) in ("e2e4", "d2d4")
    assert not any("legal move is played" in line for line in session.lines)
