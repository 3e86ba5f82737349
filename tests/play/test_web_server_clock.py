"""The clock of the page as the server sees it: a policy's share of the time, and a game on time as a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from genpolicy import load_game, load_policy
from genpolicy.control import FREE, Control
from genpolicy.policies.base import Decision, Policy
from genpolicy_play.engine.protocol import Go
from genpolicy_play.web.timing import Timing
from tests.play.web_server import TIC_TAC_TOE, Client, serving

GAME = load_game(TIC_TAC_TOE)
CLOCK = {"left": 60_000, "increment": 0, "byoyomi": 0}
"""One minute: the share of a move is two seconds."""


class Time:
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Slow(Policy):
    """Makes network calls that take ``call_s`` each, and checks before each of their parts."""

    kind = "slow"

    def __init__(self, time: Time, call_s: float, calls: int = 10, base: Slow | None = None, *, parts: int = 1) -> None:
        self.game, self.time, self.call_s, self.calls, self.parts = GAME, time, call_s, calls, parts
        self.made: list[int] = [] if base is None else base.made

    @property
    def num_calls(self) -> int:
        return self.calls

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        return self if calls in (None, self.calls) else Slow(self.time, self.call_s, calls or 1, self, parts=self.parts)

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        for made in range(self.calls):
            self.made[-1:] = [made]
            for _ in range(self.parts):
                control.check()
                self.time.now += self.call_s / self.parts
        self.made[-1:] = [self.calls]
        return [Decision(int(GAME.legal(state)[0])) for state in states]


def ask(timing: Timing, policy: Slow, left: int, *, began: float | None = None, increment: int = 0) -> int:
    """Network calls of the decision's last attempt."""
    policy.made.append(0)
    go = Go(time_left=(left, left), increment=(increment, increment))
    timing.dream(policy, GAME.parse(), go, lambda step: None, lambda: None, began)
    return policy.made[-1]


def test_a_policy_decides_as_it_is_set_while_that_fits() -> None:
    time = Time()
    policy, timing = Slow(time, 0.1), Timing(time)
    assert [ask(timing, policy, 60_000) for _ in range(3)] == [10, 10, 10]
    assert time.now == pytest.approx(103.0)


@pytest.mark.parametrize("parts", [1, 4])
def test_a_first_decision_that_is_too_slow_ends_and_the_next_ones_make_as_many_calls_as_fit(parts: int) -> None:
    time = Time()
    policy, timing = Slow(time, 0.5, parts=parts), Timing(time)
    assert ask(timing, policy, 60_000) == 1, "the share was over: one more call"
    assert time.now == pytest.approx(102.5)
    before = time.now
    calls = ask(timing, policy, 60_000)
    assert 1 < calls < 10
    assert time.now - before <= 60 / 30 + 0.5
    assert ask(timing, policy, 600_000) == 10, "with more time it is itself again"


def test_time_in_the_queue_counts_and_no_time_leaves_one_call() -> None:
    time = Time()
    policy, timing = Slow(time, 0.1), Timing(time)
    assert ask(timing, policy, 60_000, began=time.now - 5) == 1
    assert ask(timing, policy, 0) == 1
    assert ask(timing, policy, 4_000, increment=10_000) == 10, "an increment is time as well"


def test_what_ends_a_decision_otherwise_still_does() -> None:
    class Gone(Exception):
        pass

    def gone() -> None:
        raise Gone

    time = Time()
    with pytest.raises(Gone):
        Timing(time).dream(Slow(time, 0.1), GAME.parse(), Go(time_left=(9000, 9000)), lambda step: None, gone)


@pytest.mark.parametrize("spec", ["alphabeta?depth=9", "mcts:heuristic?simulations=5000"])
def test_a_search_answers_with_what_it_has_found(spec: str) -> None:
    game = load_game("chess")
    policy = load_policy(spec, game=game)
    timing = Timing()
    state = game.parse("6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1")
    go = Go(time_left=(3000, 3000))  # 0.1 s a move, and not one of the two is done by then
    dream = timing.dream(policy, state, go, lambda step: None, lambda: None)
    assert dream.decision.move in game.legal(state)
    policy.close()


@pytest.mark.parametrize("spec", ["alphabeta?nodes=100000", "mcts:heuristic?simulations=40000"])
def test_a_search_has_its_time_at_every_move(spec: str) -> None:
    """What is cut at the end of the time counts; the next decision does not pay for it."""
    game = load_game("chess")
    policy, timing, state = load_policy(spec, game=game), Timing(), game.parse()
    go = Go(time_left=(15_000, 15_000))  # half a second a move
    found = [timing.dream(policy, state, go, lambda step: None, lambda: None).decision.stats for _ in range(4)]
    assert min(stats["nodes"] for stats in found) > 50
    assert min(stats["depth"] for stats in found) > 1
    policy.close()


def test_a_search_without_time_answers_with_its_first_thought() -> None:
    """A whole one would take hours."""
    game = load_game("chess")
    policy = load_policy("mcts:rollout?simulations=1000000", game=game)
    timing = Timing()
    for _ in range(2):
        dream = timing.dream(policy, game.parse(), Go(time_left=(0, 0), byoyomi=1), lambda step: None, lambda: None)
        assert dream.decision.move in game.legal(game.parse())
    policy.close()


def test_a_search_under_a_clock_is_no_more_than_it_is_set_to() -> None:
    game = load_game("chess")
    go = Go(time_left=(3_600_000, 3_600_000))
    for spec, most in (("mcts:heuristic?simulations=30", 31), ("alphabeta?depth=2", 1000)):
        policy = load_policy(spec, game=game)
        dream = Timing().dream(policy, game.parse(), go, lambda step: None, lambda: None)
        assert 0 < dream.decision.stats["nodes"] <= most
        assert dream.decision.move == policy.decide([game.parse()])[0].move
        policy.close()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(["random"], ["chess", "shogi", TIC_TAC_TOE]) as made:
        yield made


def test_a_decision_takes_a_clock(client: Client) -> None:
    for clock in (CLOCK, {"left": 0, "byoyomi": 30_000}, None, {}):
        reply = client.decide(TIC_TAC_TOE, "random", clock=clock)
        assert reply.status == 200, reply.body


@pytest.mark.parametrize(
    ("game", "start", "can_win"),
    [
        ("chess", None, [True, True]),
        ("chess", "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", [True, False]),
        ("shogi", "4k4/9/9/9/9/9/9/9/4K4 b - 1", [True, True]),  # there time always loses
        (TIC_TAC_TOE, None, [True, True]),
    ],
)
def test_a_position_says_who_can_still_win(client: Client, game: str, start: str | None, can_win: list[bool]) -> None:
    reply = client.post("/api/position", {"game": game, "start": start, "moves": []})
    assert reply.json["can_win"] == can_win


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        ({"increment": 1}, "needs 'left'"),
        ({"left": -1}, "left must be a whole number from 0"),
        ({"left": 1e12}, "left must be a whole number from 0"),
        ({"left": 1000, "right": 2}, 'field "right" does not exist'),
        ([1000], "clock must be an object"),
        ({"left": 1000, "byoyomi": "30"}, "byoyomi must be a whole number"),
    ],
)
def test_a_malformed_clock_is_refused(client: Client, clock: object, words: str) -> None:
    reply = client.decide(TIC_TAC_TOE, "random", clock=clock)
    assert reply.status == 400
    assert words in reply.error


@pytest.mark.parametrize(
    ("game", "suffix", "moves", "clock", "lines"),
    [
        ("chess", ".pgn", ["e2e4"], (180, 2, 0), ['[TimeControl "180+2"]', '[Termination "time forfeit"]', "1-0"]),
        ("chess", ".pgn", ["e2e4"], (300, 0, 0), ['[TimeControl "300"]', "1. e4 1-0"]),
        ("shogi", ".kif", ["7g7f"], (600, 0, 30), ["持ち時間：10分+30秒", "2 切れ負け", "まで1手で先手の勝ち"]),
        ("shogi", ".kif", ["7g7f"], (90, 5, 0), ["持ち時間：1分30秒（1手ごとに5秒加算）", "切れ負け"]),
        ("shogi", ".csa", ["7g7f"], (600, 0, 30), ["$TIME_LIMIT:00:10+30", "%TIME_UP"]),
    ],
)
def test_a_game_on_time_is_saved(
    client: Client, game: str, suffix: str, moves: list[str], clock: tuple[int, int, int], lines: list[str]
) -> None:
    limits = dict(zip(("base", "increment", "byoyomi"), (1000 * each for each in clock), strict=True))
    fields = {"game": game, "moves": moves, "format": suffix, "result": 1, "clock": limits, "on_time": True}
    reply = client.post("/api/export", fields)
    assert reply.status == 200, reply.body
    text = reply.body.decode("cp932" if suffix == ".kif" else "utf-8")
    assert [line for line in lines if line not in text] == [], text
    back = client.post("/api/import", {"game": game, "text": text})
    assert back.json["moves"] == moves


@pytest.mark.parametrize("clock", [{"base": 59_999}, {"base": 60_000, "increment": 500}, {"base": 0, "byoyomi": 1}])
def test_a_file_has_no_place_for_parts_of_a_second(client: Client, clock: dict[str, int]) -> None:
    reply = client.post("/api/export", {"game": "chess", "moves": ["e2e4"], "format": ".pgn", "clock": clock})
    assert reply.status == 400
    (wrong,) = (name for name, value in clock.items() if value % 1000)
    assert f"{wrong} must be whole seconds" in reply.error
