"""Parts of the engine by themselves: limits of time, reading lines, options against the policies, scores."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from genpolicy import load_game, registry
from genpolicy.declared_samplers import NEED_VISIBLE_NOISE
from genpolicy.errors import ConfigError
from genpolicy.networks import NetworkConfig
from genpolicy.options import Option
from genpolicy.policies.base import Decision, Variation, policy_spec
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.policies.thinking import Answer
from genpolicy.values import centipawns_to_probability, probability_to_value
from genpolicy_common.arguments import device_for
from genpolicy_play.engine import options
from genpolicy_play.engine.command import read_lines
from genpolicy_play.engine.host import Host
from genpolicy_play.engine.info import MAX_CENTIPAWNS, centipawns, info_lines, legality_text
from genpolicy_play.engine.process import Output, Timekeeper
from genpolicy_play.engine.protocol import (
    DIALECTS,
    UCI,
    USI,
    Go,
    Position,
    PositionReader,
    read_go,
    read_position,
    read_setoption,
)
from genpolicy_play.engine.search import make_budget
from genpolicy_play.engine.server import Server

words = str.split
MOVES = frozenset(["e2e4", "g1f3"])


CASES = json.loads((Path(__file__).parent / "option_lines.json").read_text())


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["name"])
def test_gui_options_are_those_of_the_first_release(case: dict[str, Any], tmp_path: Path) -> None:
    # Written by the engine of commit 555b2da, but for two facts that it had wrong: value policies evaluate 16 positions
    # at once, and the image policy's "matched" is a truth value.
    for name, config in CASES["folders"].items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(config)
    spec = policy_spec(case["policy"].format(folder=tmp_path), case["game"])
    host = Host(spec, load_game(case["game"]), "cpu")
    dialect = DIALECTS[host.game.protocol]
    lines = {dialect.option_name(option.name): options.declaration(option) for option in host.options}
    del lines["Threads"], lines["Device"]  # they depend on the machine
    gumbel = (
        "root",
        "num_considered",
        "gumbel_scale",
        "value_scale",
        "maxvisit_init",
        "rescale",
        "chance",
        "normalise",
    )
    for newer in ("churn", "kernel", "lookahead", *gumbel):  # of the sampler flow, of S-V and of Gumbel search
        lines.pop(newer, None)
    assert lines.keys() == case["options"].keys()
    for name, line in case["options"].items():
        # The members of a combo may come in another order, since samplers are found by entry point.
        # "by_ply" and "flow" are newer.
        now = lines[name].replace(" var by_ply", "").replace(" var flow", "")
        assert sorted(now.split()) == sorted(line.split()), name


def test_texts_of_a_gui_are_read_as_the_options_types() -> None:
    steps = Option("Steps", int, 8, low=1, high=8, usual_high=1000)
    assert options.read_text(steps, " 3 ") == 3
    noise, sampler = Option("noise", float, low=0), Option("Sampler", str, "b", choices=("a", "b"))
    assert options.read_text(noise, "<empty>") is None
    assert options.read_text(noise, "0.5") == 0.5
    assert options.read_text(sampler, "A") == "a"
    assert options.read_text(Option("name", str), "") is None
    for option, text in [(steps, "0"), (steps, "9"), (steps, ""), (noise, "nan"), (noise, "-1"), (sampler, "c")]:
        with pytest.raises(ValueError, match=option.name):
            options.read_text(option, text)


def test_samplers_are_offered_where_they_work() -> None:
    game = load_game("chess")
    refused = []
    for sampler in registry.available("samplers"):
        config = DiffusionConfig(
            horizon=1,
            process={"kind": "multinomial", "num_timesteps": 4},
            network=NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=1, head="typed", move_rank=4),
        )
        try:
            DiffusionLearner(game, config).policy().with_options(sampler=sampler)
        except ConfigError:
            refused.append(sampler)
    assert set(refused) == set(NEED_VISIBLE_NOISE)


def test_positions_are_read_as_guis_write_them() -> None:
    reader = PositionReader(load_game("chess"))
    castle = "r3k2r/pppppppp/8/8/8/8/PPPPPPPP/R3K2R w KQkq -"
    for moves, board in [
        (("e1h1", "e8a8"), "2kr3r/pppppppp/8/8/8/8/PPPPPPPP/R4RK1 w"),
        (("e1g1", "e8c8"), "2kr3r/pppppppp/8/8/8/8/PPPPPPPP/R4RK1 w"),
        (("O-O-O",), "r3k2r/pppppppp/8/8/8/8/PPPPPPPP/2KR3R b"),
    ]:
        assert reader.set(Position(castle, moves)) is None
        assert reader.game.format(reader.state).startswith(board)
    assert reader.set(Position("8/P6k/8/8/8/8/8/K7 w - - 0 1", ("a7a8Q",))) is None
    good = reader.state
    for moves in (("a1b1", "a1b1"), ("e1h1",), ("0000",), ("a1a1",), ("",)):
        complaint = reader.set(Position("8/P6k/8/8/8/8/8/K7 w - - 0 1", moves))
        assert complaint is not None
        assert repr(moves[-1]) in complaint
    endless = tuple(["a1b1", "h7g6", "b1a1", "g6h7"] * 1001)  # the states of 20,000 plies took 3.9 GB
    complaint = reader.set(Position("8/P6k/8/8/8/8/8/K7 w - - 0 1", endless))
    assert complaint == "position: 4004 moves; at most 4000 are followed"
    assert reader.state is good


@pytest.mark.parametrize("player", [0, 1])
def test_no_budget_uses_more_than_there_is(player: int) -> None:
    for left in (0, 1, 5, 20, 100, 1_000, 60_000, 10**7):
        for increment in (0, 10, 1_000):
            for byoyomi in (None, 0, 100, 5_000):
                for moves_to_go in (None, 1, 2, 40):
                    go = Go(
                        time_left=(left, left),
                        increment=(increment, increment),
                        byoyomi=byoyomi,
                        moves_to_go=moves_to_go,
                    )
                    found = make_budget(go, player, 30)
                    assert found is not None
                    # The increment of this move comes after it; only a clock that stands at nothing lives off it.
                    most = left + (byoyomi or 0) or increment
                    assert 0 <= found.soft_s <= found.hard_s <= most / 1e3
                    assert found.hard_s <= found.last_s
                    assert found.last_s <= max(0.0, most - min(30, 0.15 * most)) / 1e3 or most == 0, "a clock overrun"
                    if most >= 100:
                        assert found.hard_s <= (most - 10) / 1e3


def test_a_clock_lasts_for_a_game() -> None:
    left = 60_000.0
    for _ in range(200):  # moves of one side, no increment, each taking all its soft time
        found = make_budget(Go(time_left=(int(left), 0)), 0, 30)
        assert found is not None
        left -= 1e3 * found.soft_s
        assert left > 0
    assert make_budget(Go(), 0, 30) is None
    assert make_budget(Go(time_left=(None, 500)), 0, 30) is None


@pytest.mark.parametrize(("increment", "lag_ms", "least_ms"), [(10, 2, 60), (100, 25, 400), (100, 30, 300)])
def test_a_clock_with_increment_keeps_a_reserve_whatever_each_line_takes(
    increment: int, lag_ms: int, least_ms: int
) -> None:
    left = 60_000.0
    for _ in range(400):
        found = make_budget(Go(time_left=(int(left), None), increment=(increment, 0)), 0, 30)
        assert found is not None
        left -= 1e3 * found.soft_s + lag_ms
        assert left > least_ms, "one late line would lose the game"
        left += increment


def test_go_is_read_with_its_noise() -> None:
    go = read_go(words("wtime 1000 btime -5 searchmoves e2e4 g1f3 winc x nodes 0 foo depth"), UCI, MOVES)
    assert go.time_left == (1000, 0)
    assert go.search_moves == ("e2e4", "g1f3")
    assert go.nodes == 1
    assert go.depth is None
    assert len(go.complaints) == 3  # winc x, foo, depth
    go = read_go(words("btime 7 wtime 9 byoyomi 100"), USI, MOVES)
    assert go.time_left == (7, 9), "in shogi Black moves first"
    assert read_go(["mate", "infinite"], USI, MOVES).mate == 0
    assert read_go(["nodes", "9" * 30], UCI, MOVES).nodes is None


def test_names_and_values_may_hold_blanks() -> None:
    assert read_setoption(words("name Move Overhead value 1 2")) == ("Move Overhead", "1 2")
    assert read_setoption(words("name value value value")) == ("value", "value")
    assert read_setoption(["name", "Clear"]) == ("Clear", None)
    assert read_setoption(["name"]) is None
    assert read_position([]) is None
    assert read_position(["moves", "e2e4"]) is None
    assert read_position(["startpos", "e2e4"]) is None


def test_centipawns_come_back_as_they_went() -> None:
    for cp in (-2500, -300, -31, 0, 1, 87, 900, 2500):
        assert centipawns(probability_to_value(centipawns_to_probability(cp))) == cp
    assert centipawns(1.0) == MAX_CENTIPAWNS
    assert centipawns(-1.0) == -MAX_CENTIPAWNS


def test_lines_say_what_is_legal_and_no_more() -> None:
    game = load_game("chess")
    start = game.parse()
    ids = [game.moves.index(text) for text in ("e2e4", "e7e5", "e4e5")]  # the last one is illegal
    after = game.play(start, ids[0])
    texts = (game.format(after), game.format(after), None)
    found = Answer.of(Decision(ids[0], value=0.5, line=tuple(ids), states=texts), 7, 1)
    (line,) = info_lines(game, UCI, start, found, 0.5, num_variations=1, wdl=True)
    assert line == "info depth 2 multipv 1 score cp 298 wdl 750 0 250 nodes 7 nps 14 time 500 pv e2e4 e7e5"
    assert legality_text(game, start, found) == (
        "imagined e2e4 e7e5 e4e5: 2 of 3 moves legal, 1 of 3 positions as the rules give them"
    )


@pytest.mark.parametrize(
    ("wdl", "said"),
    [
        ((0.5, 0.3, 0.2), "500 300 200"),
        ((0.0, 1.0, 0.0), "0 1000 0"),
        ((0.4995, 0.001, 0.4995), "500 1 499"),  # rounded, they still come to a thousand
        ((0.4995001, 0.5005001, 0.0), "500 500 0"),  # they sum to 1 within a rounding error
    ],
)
def test_draws_are_told_where_the_policy_knows_them(wdl: tuple[float, float, float], said: str) -> None:
    game = load_game("chess")
    start = game.parse()
    move = game.moves.index("e2e4")
    found = Answer.of(Decision(move, value=wdl[0] - wdl[2], wdl=wdl, line=(move,)), 1, 1)

    def line(state: Any, answer: Answer, *, wdl: bool) -> str:
        return info_lines(game, UCI, state, answer, 0.5, num_variations=1, wdl=wdl)[0]

    assert f" wdl {said} nodes" in line(start, found, wdl=True)
    assert "wdl" not in line(start, found, wdl=False)
    mated = game.parse("rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2")
    mate = game.moves.index("d8h4")
    over = Answer.of(Decision(mate, value=wdl[0] - wdl[2], wdl=wdl, line=(mate,)), 1, 1)
    assert "score mate 1 wdl 1000 0 0" in line(mated, over, wdl=True)  # what the rules say is certain


@pytest.mark.parametrize(("plies", "uci", "usi"), [(1, 1, 1), (3, 2, 3), (5, 3, 5), (-2, -1, -2), (-4, -2, -4)])
def test_mates_are_counted_as_each_protocol_counts(plies: int, uci: int, usi: int) -> None:
    for dialect, name, number in ((UCI, "chess", uci), (USI, "shogi", usi)):
        game = load_game(name)
        state = game.parse()
        found = Answer((Variation((int(game.legal(state)[0]),), mate_plies=plies),))
        (line,) = info_lines(game, dialect, state, found, 0.1, num_variations=1, wdl=False)
        assert f" score mate {number} nodes" in line


def test_lines_are_cut_where_they_end(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\r\n\n" + b"x" * 200_000 + b"\n" + b"y" * (9 << 20) + b"\nlast")
    descriptor = os.open(file, os.O_RDONLY)
    lines = list(read_lines(descriptor))
    assert [None if line is None else len(line) for line in lines] == [3, 0, 200_000, None, 4]
    os.close(descriptor)


def test_calls_are_made_in_the_order_of_their_times() -> None:
    made: list[tuple[str, float]] = []
    failed: list[Exception] = []
    done = threading.Event()
    keeper = Timekeeper(failed.append)
    began = time.perf_counter()

    def call(name: str) -> None:
        made.append((name, time.perf_counter() - began))

    with keeper._changed:  # none is made before all are there, however busy the machine is
        keeper.later(0.3, lambda: call("last"))
        keeper.later(0.35, done.set)
        keeper.later(0.1, lambda: call("second"))
        keeper.later(0.2, lambda: call("third"))
        keeper.later(0.2, lambda: failed.remove(ValueError()))  # an error stops no other call
        keeper.later(-1.0, lambda: call("first"))
        keeper.later(3600.0, lambda: call("never"))
    assert done.wait(30)
    keeper.close()
    assert [name for name, _ in made] == ["first", "second", "third", "last"]
    assert all(when >= due for (_, when), due in zip(made, (0, 0.1, 0.2, 0.3), strict=True))
    assert [type(error) for error in failed] == [ValueError]


def test_a_session_leaves_no_thread_behind() -> None:
    game = load_game("connect:rows=3,cols=3,k=3")
    before = set(threading.enumerate())
    host = Host(policy_spec("random", game), game, "cpu")
    with open(os.devnull, "wb") as nowhere:
        lines = [b"isready", b"position startpos", b"go movetime 10", b"isready"]
        assert Server(host, UCI, Output(nowhere.fileno()), lambda _: None).run(lines) == 0
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive(), thread.name


def test_the_device_that_auto_chose_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reload would take place under the clock of the next move."""
    game, spec = load_game("chess"), policy_spec("random", load_game("chess"))
    host = Host(spec, game, "auto")
    host.load()
    assert host.apply({}) == []
    monkeypatch.setattr(host, "load", lambda: pytest.fail("it was loaded again"))
    settings = {"Device": device_for("auto", [spec])}
    assert host.apply(settings) == []
    assert host.apply({**settings, "Device": "auto"}) == []
