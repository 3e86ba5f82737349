"""Options of engines: what an engine declares, what it is told, and what is refused."""

import pytest

import genpolicy
from genpolicy.data.oracle import make_oracle
from genpolicy.errors import EngineError

pytestmark = pytest.mark.usefixtures("warm_start")

GAME = genpolicy.load_game("chess")
START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"


def test_options_reach_the_engine_and_unknown_ones_are_named(fake_engine) -> None:
    path = fake_engine()
    with make_oracle(f"uci?engine={path}&depth=3&nodes=20&hash_mb=4&Skill Level=5", GAME) as oracle:
        oracle.analyse([GAME.parse(START)], 1)
        assert oracle.describe()["limits"] == {"nodes": 20, "depth": 3}
        assert oracle.describe()["name"] == "Fake 1.0"
    assert (path.parent / "options").read_text().splitlines() == [
        "setoption name Hash value 4",
        "setoption name Skill Level value 5",
    ]
    assert (path.parent / "limits").read_text().splitlines() == ["go nodes 20 depth 3"]
    with pytest.raises(EngineError, match=r"no option 'Skil Level'.*Did you mean: 'Skill Level'"):
        make_oracle(f"{path}?nodes=1&Skil Level=5", GAME)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("stockfish", "needs a limit"),
        ("stockfish?nodes=0", "nodes must be a whole number"),
        ("stockfish?nodes=5&line=best", "pv or searched"),
        ("stockfish?nodes=5&with_past=false", "with_past is for policies"),
        ("stockfish?nodes=5&timeout_s=0", "timeout_s"),
        ("stockfish?nodez=5&nodes=5", "Did you mean: 'nodes'"),
        ("solver?depth=x", "solver"),
    ],
)
def test_bad_options(spelling, message) -> None:
    with pytest.raises(ValueError, match=message):
        make_oracle(spelling, GAME)


DECLARED = """option name Hash type spin default 16 min 1 max 64
option name Threads type spin default 1 min 1 max 4
option name Skill Level type spin default 20 min -20 max 20
option name Analysis Contempt type combo default Both var Both var Off var White
option name Ponder type check default false
option name Clear Hash type button
option name Book type string default <empty>
option name Maximum Pace min type spin default 0 min 0 max 9"""


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("Hash=abc", r"Hash must be a whole number of at least 1, got 'abc'"),
        ("Hash=65", r"'Hash' takes a whole number from 1 to 64, got '65'"),
        ("hash_mb=65", r"'hash_mb' takes a whole number from 1 to 64, got '65'"),
        ("threads=5", r"'threads' takes a whole number from 1 to 4, got '5'"),
        ("Threads=5", r"'Threads' takes a whole number from 1 to 4, got '5'"),
        ("Skill Level=-21", r"'Skill Level' takes a whole number from -20 to 20, got '-21'"),
        ("Skill Level=high", r"'Skill Level' takes a whole number from -20 to 20, got 'high'"),
        ("Maximum Pace min=10", r"'Maximum Pace min' takes a whole number from 0 to 9, got '10'"),
        ("Analysis Contempt=Black", r"'Analysis Contempt' takes one of Both, Off, White, got 'Black'"),
        ("Ponder=maybe", r"'Ponder' takes true or false, got 'maybe'"),
        ("Hash=4&hash_mb=4", "hash_mb and Hash are one option"),
        ("Threads=2&threads=2", "threads and Threads are one option"),
        ("Hash=4&hash=5", "Hash and hash are one option"),
        ("nodes=5&nodes=6", "nodes is given twice"),
        ("timeout_s=abc", "timeout_s must be a number above 0, got 'abc'"),
        ("scale=abc", "scale must be a number above 0, got 'abc'"),
    ],
)
def test_values_that_the_engine_does_not_take_are_refused(fake_engine, spelling, message) -> None:
    path = fake_engine()
    replaced = path.read_text().replace(
        "option name Hash type spin default 16\\n", DECLARED.replace("\n", "\\n") + "\\n"
    )
    path.write_text(replaced.replace("option name Skill Level type spin default 20\\n", ""))
    with pytest.raises((ValueError, EngineError), match=message):
        make_oracle(f"{path}?nodes=1&{spelling}", GAME)
    assert not (path.parent / "searches").exists()


def test_values_that_the_engine_takes_reach_it_as_it_spells_them(fake_engine) -> None:
    path = fake_engine()
    replaced = path.read_text().replace(
        "option name Hash type spin default 16\\n", DECLARED.replace("\n", "\\n") + "\\n"
    )
    path.write_text(replaced.replace("option name Skill Level type spin default 20\\n", ""))
    options = "Hash=64&Threads=2&skill level=-20&Analysis Contempt=off&Ponder=True&Clear Hash=&Book=a b"
    with make_oracle(f"{path}?nodes=1&{options}", GAME) as oracle:
        assert (oracle.describe()["hash_mb"], oracle.describe()["threads"]) == (64, 2)
        oracle.analyse([GAME.parse(START)], 1)
    assert (path.parent / "options").read_text().splitlines() == [
        "setoption name Threads value 2",
        "setoption name Hash value 64",
        "setoption name Skill Level value -20",
        "setoption name Analysis Contempt value Off",
        "setoption name Ponder value true",
        "setoption name Clear Hash",
        "setoption name Book value a b",
    ]


@pytest.mark.parametrize("spelling", ["nodes=1", "nodes=1&threads=1", "nodes=1&Threads=1"])
def test_an_engine_with_another_default_gets_the_one_thread_that_is_recorded(fake_engine, spelling: str) -> None:
    path = fake_engine()
    hash_line = "option name Hash type spin default 16\\n"
    threads_line = "option name Threads type spin default 4 min 1 max 1024\\n"  # as YaneuraOu has it
    assert hash_line in path.read_text()
    path.write_text(path.read_text().replace(hash_line, hash_line + threads_line))
    with make_oracle(f"{path}?{spelling}", GAME) as oracle:
        assert oracle.describe()["threads"] == 1
    assert "setoption name Threads value 1" in (path.parent / "options").read_text().splitlines()


def test_an_oracle_says_which_options_it_takes() -> None:
    game = genpolicy.load_game("connect:rows=3,cols=3,k=3")
    with pytest.raises(ValueError, match=r"'solver' takes no option 'nodes'. It takes: seed, distance, node_limit"):
        make_oracle("solver", game, nodes=2)
    with pytest.raises(ValueError, match=r"'solver' works in one process: omit processes \(--parallel\)"):
        make_oracle("solver", game, processes=2)
    with pytest.raises(ValueError, match=r"no option 'sed'. Did you mean: 'seed'\?"):
        make_oracle("solver?sed=2", game)
    with pytest.raises(ValueError, match="solves k-in-a-row"):
        make_oracle("solver", GAME)
