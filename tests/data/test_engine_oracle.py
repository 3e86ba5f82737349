"""The engine oracle against engines that behave and that do not."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import chess
import pytest

import genpolicy
from genpolicy.data.oracle import Line, make_oracle
from genpolicy.errors import EngineError
from genpolicy_engines import pool as engine_pool
from genpolicy_engines import process as engine_process
from genpolicy_engines.oracle import EngineOracle, find_engine
from genpolicy_engines.process import EngineProcess
from genpolicy_engines.protocol import parse_search

pytestmark = pytest.mark.usefixtures("warm_start")

GAME = genpolicy.load_game("chess")
FENS = [
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3",
    "8/5k2/8/8/3K4/8/4P3/8 w - - 0 1",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
]


def states(fens=FENS):
    return [GAME.parse(fen) for fen in fens]


def check_lines(lines: list[Line], fens: list[str], horizon: int) -> None:
    """By the rules library alone: moves legal, full unless the game ended, scores where a search began."""
    for fen, line in zip(fens, lines, strict=True):
        board = chess.Board(fen)
        assert line.error is None
        assert 1 <= len(line.moves) <= horizon
        assert line.scores[0] is not None
        assert len(line.scores) <= len(line.moves)
        for move in line.moves:
            parsed = chess.Move.from_uci(GAME.moves[move])
            assert parsed in board.legal_moves
            board.push(parsed)
        over = board.is_game_over() or board.can_claim_draw()
        assert line.ended == over
        assert line.ended or len(line.moves) == horizon


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["good", "garbage", "floods stderr", "multipv", "string", "illegal line", "bounds"])
@pytest.mark.parametrize("line", ["pv", "searched"])
def test_lines_are_legal_and_reach_the_horizon(fake_engine, mode, line) -> None:
    with EngineOracle(GAME, str(fake_engine(mode)), nodes=10, line=line, processes=2) as oracle:
        lines = oracle.analyse(states(), 5)
        check_lines(lines, FENS, 5)
        assert oracle.num_restarts == 0
        if line == "searched":
            assert all(len(each.scores) == len(each.moves) and None not in each.scores for each in lines)


def test_scores_are_those_of_the_last_exact_line(fake_engine) -> None:
    plain = fake_engine("good")
    with EngineOracle(GAME, str(plain), nodes=10) as oracle:
        expected = oracle.analyse(states(), 4)
    for mode in ("bounds", "multipv", "string", "garbage"):
        with EngineOracle(GAME, str(fake_engine(mode)), nodes=10) as oracle:
            assert oracle.analyse(states(), 4) == expected, mode


@pytest.mark.parametrize(
    ("output", "move", "line", "score", "nodes"),
    [
        ("info depth 1 score cp 13 nodes 20 pv e2e4 e7e5\nbestmove e2e4\n", "e2e4", ("e2e4", "e7e5"), "cp:13", 20),
        # The move changed in an unfinished iteration: the line is the one that begins with it, the score the last.
        (
            "info score cp 5 nodes 9 pv d2d4 d7d5\ninfo score cp 7 nodes 12 pv e2e4\nbestmove d2d4\n",
            "d2d4",
            ("d2d4", "d7d5"),
            "cp:7",
            12,
        ),
        ("info score cp 5 pv d2d4\nbestmove e2e4\n", "e2e4", ("e2e4",), "cp:5", 0),
        ("info score cp 5 upperbound pv e2e4 c7c5\nbestmove e2e4\n", "e2e4", ("e2e4", "c7c5"), "cp:5", 0),
        ("info score mate -3 pv e2e4\nbestmove e2e4\n", "e2e4", ("e2e4",), "mate:-3", 0),
        ("info score mate + pv 7g7f\nbestmove 7g7f\n", "7g7f", ("7g7f",), "mate:1", 0),
        ("bestmove e2e4\n", "e2e4", ("e2e4",), None, 0),
        ("bestmove\n", "", (), None, 0),
    ],
)
def test_parsing_of_a_search(output, move, line, score, nodes) -> None:
    result = parse_search(output.encode())
    assert (result.move, result.line, result.score, result.num_nodes) == (move, line, score, nodes)


def test_an_engine_that_dies_is_restarted_and_its_position_retried(fake_engine) -> None:
    path = fake_engine("dies twice")
    with EngineOracle(GAME, str(path), nodes=10) as oracle:
        lines = oracle.analyse(states(), 4)
        assert oracle.num_restarts == 2
    check_lines(lines, FENS, 4)
    searched = (path.parent / "searches").read_text().splitlines()
    assert searched[:3] == [FENS[0]] * 3


def test_three_deaths_on_one_position_skip_it_alone(fake_engine) -> None:
    path = fake_engine("dies on rooks")
    with EngineOracle(GAME, str(path), nodes=10, processes=2) as oracle:
        lines = oracle.analyse(states(), 1)
        assert oracle.num_restarts == 3
    assert [line.error is None for line in lines] == [True, True, False, True]
    assert FENS[2] in lines[2].error
    assert "status 7" in lines[2].error
    assert lines[2].moves == ()
    assert (path.parent / "searches").read_text().splitlines().count(FENS[2]) == 3


def test_a_hanging_engine_is_killed_and_the_position_retried(fake_engine) -> None:
    path = fake_engine("hangs once")
    start = time.monotonic()
    with EngineOracle(GAME, str(path), nodes=10, timeout_s=1.5) as oracle:
        check_lines(oracle.analyse(states(), 2), FENS, 2)
        assert oracle.num_restarts == 1
    assert time.monotonic() - start < 30


def test_a_second_answer_is_not_taken_for_that_of_a_later_search(fake_engine) -> None:
    def labelled(mode: str) -> list[list[Line]]:
        lines = []
        with EngineOracle(GAME, str(fake_engine(mode)), nodes=10) as oracle:
            for state in states([FENS[0].replace("0 1", f"{number} 9") for number in range(4)]):
                lines.append(oracle.analyse([state], 1))
                time.sleep(0.2)  # as while the opponent thinks
        return lines

    assert labelled("answers twice") == labelled("good")


def test_illegal_answers(fake_engine) -> None:
    with EngineOracle(GAME, str(fake_engine("illegal twice")), nodes=10) as oracle:
        check_lines(oracle.analyse(states(), 2), FENS, 2)
    with EngineOracle(GAME, str(fake_engine("illegal move")), nodes=10) as oracle:
        (line,) = oracle.analyse(states(FENS[:1]), 2)
        assert "illegal moves: a1h8, a1h8, a1h8" in line.error
    with EngineOracle(GAME, str(fake_engine("no move")), nodes=10) as oracle:
        (line,) = oracle.analyse(states(FENS[:1]), 2)
        assert "(none)" in line.error


@pytest.mark.parametrize(
    ("mode", "message"), [("exits", "ended with status 3"), ("silent", "uciok"), ("dies when ready", "status 9")]
)
def test_a_program_that_is_no_engine(fake_engine, mode, message) -> None:
    with pytest.raises(EngineError, match=message):
        EngineOracle(GAME, str(fake_engine(mode)), nodes=10, timeout_s=1 if mode == "silent" else 3)


def test_windows_is_told_that_engines_are_not_run(fake_engine, monkeypatch) -> None:
    monkeypatch.setattr("genpolicy_engines.process.sys", SimpleNamespace(platform="win32"))
    with pytest.raises(EngineError, match=r"not run on Windows; use WSL"):
        EngineOracle(GAME, str(fake_engine()), nodes=10)


def test_a_missing_engine_names_the_way_out(tmp_path, monkeypatch) -> None:
    with pytest.raises(EngineError, match=r"apt install nosuchengine.*path"):
        find_engine("nosuchengine")
    with pytest.raises(EngineError, match="no such file"):
        find_engine(str(tmp_path / "nothing"))
    (tmp_path / "text").write_text("no program")
    with pytest.raises(EngineError, match="not a program that can be run"):
        find_engine(str(tmp_path / "text"))
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(EngineError, match="text"):
        EngineOracle(GAME, str(tmp_path / "text"), nodes=10)


def test_a_game_without_an_engine_protocol() -> None:
    with pytest.raises(ValueError, match="no engine protocol"):
        make_oracle("stockfish?nodes=5", genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false"))


def test_usi_engines_are_spoken_to_in_usi(fake_engine, monkeypatch) -> None:
    path = fake_engine()
    game = type(GAME)()  # chess moves in USI's words: only the words are looked at here
    game.protocol = "usi"
    with EngineOracle(game, str(path), nodes=10, hash_mb=3) as oracle:
        check_lines(oracle.analyse([game.parse(FENS[2])], 5), FENS[2:3], 5)
        assert oracle.describe()["protocol"] == "usi"
    folder = path.parent
    assert (folder / "options").read_text() == "setoption name USI_Hash value 3\n"
    assert (folder / "games").read_text() == "usinewgame\n"
    first, *others = (folder / "positions").read_text().splitlines()
    assert first == f"position sfen {FENS[2]}"
    assert all(other.startswith(f"position sfen {FENS[2]} moves ") for other in others)


def test_move_values_search_each_legal_move_alone(fake_engine) -> None:
    path = fake_engine()
    with EngineOracle(GAME, str(path), nodes=10, processes=2) as oracle:
        lines = oracle.analyse(states(), 1, move_values=True)
    for fen, line in zip(FENS, lines, strict=True):
        assert {GAME.moves[move] for move in line.move_values} == {m.uci() for m in chess.Board(fen).legal_moves}
    searched = (path.parent / "limits").read_text()
    assert searched.count("searchmoves") == sum(chess.Board(fen).legal_moves.count() for fen in FENS)


def test_a_few_moves_get_values_by_one_search(stockfish) -> None:
    states = [GAME.parse(), GAME.parse("7k/8/6K1/8/8/8/5Q2/8 w - - 0 1"), GAME.parse("k7/8/1K6/8/8/8/8/7R b - - 0 1")]
    with make_oracle("stockfish?nodes=3000&multipv=5", GAME) as oracle:
        lines = oracle.analyse(states, 3, move_values=True)
        with pytest.raises(ValueError, match=r"multipv=5 is for move values: add --move-values"):
            oracle.analyse(states, 3)
    assert [len(line.move_values) for line in lines] == [5, 5, 1]
    for state, line in zip(states, lines, strict=True):
        assert set(line.move_values) <= set(GAME.legal(state).tolist())
        assert line.move_values[line.moves[0]] == line.scores[0]
    assert {GAME.moves[move]: score for move, score in lines[1].move_values.items()}["f2f8"] == "mate:1"


def test_values_of_a_few_moves_do_not_depend_on_processes(stockfish) -> None:
    states = [GAME.parse()]
    for move in ("e2e4", "e7e5", "g1f3", "b8c6") * 20:  # more than are searched from an empty hash table each
        legal = GAME.legal(states[-1]).tolist()
        wanted = GAME.moves.index(move)
        states.append(GAME.play(states[-1], wanted if wanted in legal else legal[len(states) % len(legal)]))
    found = []
    for processes in (1, 2):
        with make_oracle(f"stockfish?nodes=300&multipv=4&processes={processes}", GAME) as oracle:
            found.append(oracle.analyse(states, 2, move_values=True))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("last", "values"),
    [
        # The deepest search was cut off behind its second move: another keeps its score of the depth before.
        ("info depth 2 multipv 1 score cp 9 pv b\ninfo depth 2 multipv 2 score cp 8 pv d\n", "b9 c1 d8"),
        ("info depth 2 multipv 1 score cp 9 lowerbound pv c\n", "a3 b2 c1"),
        ("info depth 2 multipv 1 score cp 9\ninfo string multipv 7 score cp 7 pv c\n", "a3 b2 c1"),
        ("info depth 2 score cp 9 multipv\n", "a3 b2 c1"),
    ],
)
def test_values_of_a_search_that_was_cut_off(last: str, values: str) -> None:
    whole = "".join(f"info depth 1 multipv {n} score cp {4 - n} pv {move}\n" for n, move in enumerate("abc", 1))
    by_move = parse_search(f"{whole}{last}bestmove a\n".encode()).by_move
    assert by_move == {each[0]: f"cp:{each[1:]}" for each in values.split()}
    assert parse_search(b"info depth 1 multipv 1 score cp 5 pv a\nbestmove a\n").by_move == {}


def test_an_answer_of_many_depends_on_its_position_alone(fake_engine) -> None:
    path = fake_engine()
    path.write_text(path.read_text().replace('["usinewgame"]', '["ucinewgame"]'))
    with EngineOracle(GAME, str(path), nodes=1) as oracle:
        check_lines(oracle.analyse(states() * 20, 1), FENS * 20, 1)
    emptied = (path.parent / "games").read_text().splitlines()
    assert emptied == ["ucinewgame"] * 80, "the hash table before each position"


def test_a_run_that_is_given_up_leaves_usable_engines(fake_engine) -> None:
    def one(state):
        return (yield state)

    with EngineOracle(GAME, str(fake_engine(sleep_s=0.05)), nodes=10, processes=2) as oracle:
        run = oracle.run(([one(state)] for state in states() * 3), 2)
        next(run)
        run.close()
        check_lines(oracle.analyse(states(), 2), FENS, 2)


def test_no_engine_outlives_a_killed_parent(fake_engine) -> None:
    path = fake_engine("hangs once")
    code = f"""
import genpolicy
from genpolicy_engines.oracle import EngineOracle
game = genpolicy.load_game("chess")
oracle = EngineOracle(game, {str(path)!r}, nodes=1)
print("ready", flush=True)
oracle.analyse([game.parse()], 1)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "ready\n"
    while not (path.parent / "searches").exists():
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    pid = int((path.parent / "starts").read_text())
    for _ in range(100):
        if not running(pid):
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    pytest.fail("the engine outlived its parent")


def test_an_engine_outlives_the_thread_that_started_it(fake_engine) -> None:
    path = fake_engine()
    oracles: list[EngineOracle] = []
    thread = threading.Thread(target=lambda: oracles.append(EngineOracle(GAME, str(path), nodes=1, attempts=1)))
    thread.start()
    thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():  # Python is done with it before the system is
        time.sleep(0.01)
    with oracles[0] as oracle:
        check_lines(oracle.analyse(states(), 2), FENS, 2)
        assert oracle.num_restarts == 0


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_unclosed_oracles_end_their_engines(fake_engine) -> None:
    path = fake_engine()
    oracle = EngineOracle(GAME, str(path), nodes=1)
    del oracle
    pid = int((path.parent / "starts").read_text())
    assert not running(pid)


# Real Stockfish.


def test_stockfish_labels_do_not_depend_on_processes_or_order(stockfish) -> None:
    spelling = "stockfish?nodes=400"
    with make_oracle(spelling, GAME) as one, make_oracle(spelling, GAME, processes=2) as two:
        expected = one.analyse(states(), 6)
        check_lines(expected, FENS, 6)
        assert two.analyse(states()[::-1], 6)[::-1] == expected
        assert one.analyse(states(), 6) == expected
        many = [fen for fen in FENS for _ in range(20)]  # in blocks: equal positions meet a filled hash table
        expected = one.analyse(states(many), 4)
        check_lines(expected, many, 4)
        assert two.analyse(states(many), 4) == expected


def test_stockfish_mates_and_ends(stockfish) -> None:
    back_rank = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"
    mate_in_two = "k7/8/2K5/8/8/8/8/1R6 w - - 0 1"
    stalemating = "7k/5Q2/8/8/8/8/8/K7 b - - 0 1"
    with make_oracle("stockfish?nodes=5000&line=searched", GAME) as oracle:
        first, second, third = oracle.analyse(states([back_rank, mate_in_two, stalemating]), 8, move_values=False)
    assert [GAME.moves[m] for m in first.moves] == ["a1a8"]
    assert first.ended
    assert first.scores == ("mate:1",)
    assert second.ended
    assert len(second.moves) == 3
    assert second.scores == ("mate:2", "mate:-1", "mate:1")
    assert "(none)" in third.error  # stalemate: nothing to play


@pytest.mark.parametrize(
    ("engine", "spelling"),
    [
        *(("stockfish", "nodes=300"), ("stockfish", "nodes=200&line=searched"), ("fairy-stockfish", "depth=4")),
        pytest.param("stockfish", "depth=4", marks=pytest.mark.thorough),
        pytest.param("fairy-stockfish", "nodes=300", marks=pytest.mark.thorough),
        pytest.param("fairy-stockfish", "nodes=200&line=searched", marks=pytest.mark.thorough),
    ],
)
def test_searches_sent_ahead_give_the_same_bits(engine, spelling, monkeypatch) -> None:
    try:
        program = find_engine(engine)
    except EngineError as error:
        pytest.skip(str(error))
    roots = [state for state in states() for _ in range(5)]
    roots += [GAME.play(state, int(move)) for state in states() for move in GAME.legal(state)]

    def one(state):
        return (yield state)

    def in_blocks(oracle):  # within a block searches are sent ahead
        blocks = ([one(state) for state in roots[start : start + 16]] for start in range(0, len(roots), 16))
        return [line for block in oracle.run(blocks, 4) for line in block]

    with make_oracle(f"{program}?{spelling}", GAME) as oracle:
        begin, num_ahead = EngineProcess.begin, 0

        def counting(self, search, *, fresh):
            nonlocal num_ahead
            num_ahead += self.num_sent > 0
            begin(self, search, fresh=fresh)

        monkeypatch.setattr(EngineProcess, "begin", counting)
        ahead = in_blocks(oracle)
    assert num_ahead > 5  # how many, is a matter of time
    monkeypatch.setattr(engine_process, "QUEUEING_ENGINES", re.compile("no engine"))
    with make_oracle(f"{program}?{spelling}", GAME) as oracle:
        num_ahead = 0
        assert in_blocks(oracle) == ahead
    assert num_ahead == 0


def named_stockfish(path: Path) -> Path:
    """The same program under a name for which searches are sent ahead."""
    path.write_text(path.read_text().replace("id name Fake 1.0", "id name Stockfish 1.0"))
    return path


def test_a_death_blames_the_search_that_ran(fake_engine) -> None:
    path = named_stockfish(fake_engine("dies on rooks", sleep_s=0.05))
    fens = [FENS[2], FENS[0], FENS[1], FENS[3]]
    with EngineOracle(GAME, str(path), nodes=10) as oracle:
        lines: dict[int, Line] = {}

        def task(index, state):
            lines[index] = yield state

        # One block: the second search waits in the engine while the first one kills it, three times.
        list(oracle.run([[task(index, state) for index, state in enumerate(states(fens))]], 1))
        assert oracle.num_restarts == 3
    assert [lines[index].error is None for index in range(4)] == [False, True, True, True]
    assert (path.parent / "searches").read_text().splitlines() == [fens[0]] * 3 + fens[1:]


def test_time_runs_from_the_end_of_the_search_before(fake_engine) -> None:
    path = named_stockfish(fake_engine(sleep_s=0.6))  # two searches take longer than the time-out, one does not

    def one(state):
        return (yield state)

    with EngineOracle(GAME, str(path), nodes=10, timeout_s=1.0) as oracle:
        (found,) = oracle.run([[one(state) for state in states()]], 1)
        assert oracle.num_restarts == 0
    check_lines(found, FENS, 1)


def test_limits_in_time_are_never_sent_ahead(fake_engine, monkeypatch) -> None:
    path = named_stockfish(fake_engine())
    begin = EngineProcess.begin

    def alone(self, search, *, fresh):
        assert self.num_sent == 0
        begin(self, search, fresh=fresh)

    monkeypatch.setattr(EngineProcess, "begin", alone)
    with EngineOracle(GAME, str(path), movetime_ms=5) as oracle:
        check_lines(oracle.analyse(states(FENS * 20), 1), FENS * 20, 1)


def test_at_most_two_positions_are_begun(fake_engine) -> None:
    path = named_stockfish(fake_engine("one move"))
    with EngineOracle(GAME, str(path), nodes=10) as oracle:
        begun: set[int] = set()
        most = 0

        def task(index, state):
            nonlocal most
            line = yield state
            roots = {line for line in (path.parent / "positions").read_text().splitlines() if " moves " not in line}
            most = max(most, len(roots) - len(begun))
            begun.add(index)
            return line

        moves = [GAME.play(GAME.parse(), int(move)) for move in GAME.legal(GAME.parse())]
        list(oracle.run([[task(index, state) for index, state in enumerate(moves)]], 6))
    assert 1 <= most <= 2


def test_an_engine_that_takes_long_to_get_ready_is_spoken_of(fake_engine, monkeypatch, caplog) -> None:
    monkeypatch.setattr(engine_pool, "SILENT_S", 0.2)
    with EngineOracle(GAME, str(fake_engine("slow start")), nodes=10):
        assert re.search(r"waiting for .* to answer '(uci' \(for 30|isready' \(for 60) s at most\)", caplog.text)
    caplog.clear()
    monkeypatch.setattr(engine_pool, "SILENT_S", 30.0)
    with EngineOracle(GAME, str(fake_engine("good")), nodes=10):
        assert not caplog.text


def test_what_a_terminal_would_obey_is_not_passed_on() -> None:
    result = parse_search(b"info depth 1 score cp 3 pv \x1b[31m\nbestmove \x1b[31m\x1b]0;pwned\x07\xc2\x9b2J\r\n")
    assert result.move == "\ufffd[31m\ufffd]0;pwned\ufffd\ufffd2J"
    assert all(each.isprintable() for each in (result.move, *result.line))
