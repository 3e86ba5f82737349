"""Random and mutated lines: the engine neither dies nor hangs, answers isready after each, and says nothing stray."""

from __future__ import annotations

import random

import pytest

from tests.play.engine_session import Session

pytestmark = pytest.mark.usefixtures("warm_start")

WORDS = {
    "chess": "e2e4 e7e5 g1f3 e1g1 a7a8q a1a1 0000 startpos fen 8/8/8/8/8/8/8/8 w b KQkq - 0 1 4k3/8/8/8/8/8/4P3/4K3 "
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR",
    "shogi": "7g7f 3c3d 8h2b+ P*5e 1a1a startpos sfen lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL "
    "w b - 1 9/9/9/9/4k4/9/9/9/4K4 2P",
}
COMMON = (
    "uci usi position go stop ponderhit ucinewgame usinewgame setoption name value Seed MultiPV Simulations Threads "
    "Device cpu Temperature Steps true false moves nodes depth movetime wtime btime winc binc movestogo byoyomi "
    "infinite ponder mate searchmoves debug on off register later gameover win lose draw 0 1 -1 7 50 100 1000 "
    "99999999999999999999 1e9 NaN -5 None bestmove readyok info string \u00e9 \u5c06 "
)
BOARDS = {
    "chess": [
        "position startpos",
        "position startpos moves e2e4 e7e5",
        "position fen 7k/5Q2/6K1/8/8/8/8/8 w - - 0 1",
        "position fen 7k/6Q1/6K1/8/8/8/8/8 b - - 0 1",
        "position fen 7k/5Q2/6K1/8/8/8/8/8 b - - 0 1",
        "position fen 8/8/8/8/8/8/8/8 w - - 0 1",
        "position fen rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1 moves e2e5",
    ],
    "shogi": [
        "position startpos",
        "position startpos moves 7g7f 3c3d 8h2b+",
        "position sfen 4k4/4G4/4P4/9/9/9/9/9/4K4 w - 1",
        "position sfen 4k4/9/4P4/9/9/9/9/9/4K4 b G 1",
        "position sfen lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1 moves 7g7f 7g7f",
    ],
}
SEARCHES = [
    "go nodes 20",
    "go movetime 10",
    "go infinite",
    "go ponder wtime 100 btime 100",
    "go",
    "go wtime 200 btime 200 winc 10 binc 10",
    "go byoyomi 20 btime 0 wtime 0",
    "go mate 1",
    "go mate 3",
    "go mate infinite",
    "go depth 1",
    "go searchmoves e2e4 7g7f nodes 5",
    "stop",
    "ponderhit",
]


def line_of(game: str, generator: random.Random) -> bytes:
    """One line: a good one, a good one with damage, words in any order, or bytes."""
    kind = generator.random()
    good = generator.choice([*BOARDS[game], *SEARCHES, "uci", "usi", "setoption name MultiPV value 3", "ucinewgame"])
    if kind < 0.35:
        return good.encode()
    if kind < 0.6:
        damaged = bytearray(good.encode())
        for _ in range(generator.randint(1, 4)):
            at = generator.randrange(len(damaged) + 1)
            what = generator.random()
            if what < 0.4:
                damaged[at:at] = bytes([generator.randrange(256)])
            elif what < 0.7:
                del damaged[at : at + generator.randint(1, 5)]
            else:
                damaged[at:at] = damaged[: generator.randint(0, 30)]
        line = bytes(damaged)
    elif kind < 0.9:
        known = (COMMON + WORDS[game]).split()
        words = [generator.choice(known) for _ in range(generator.randint(1, 12))]
        line = " ".join(words).encode()
    else:
        line = generator.randbytes(generator.randint(0, 200))
    line = line.replace(b"\n", b" ")
    # The one command that ends the engine, and rightly.
    return line.replace(b"quit", b"quiet")


def fuzz(game: str, policy: str, seed: int, number: int) -> None:
    """Send lines, with isready after each; then a whole search must still come out right."""
    generator = random.Random(seed)
    with Session("--policy", policy, "--game", game) as session:
        hello = "uci" if game == "chess" else "usi"
        session.ask(hello, "isready", until="readyok")
        for _ in range(number):
            line = line_of(game, generator)
            session.send(line, b"isready")
            try:
                session.until("readyok", timeout_s=20)
            except AssertionError as error:
                raise AssertionError(f"after {line!r}: {error}") from None
        session.ask("stop", "isready", until="readyok")
        session.send("position startpos", "go nodes 30")
        asked = len(session.lines)
        session.until(lambda text: text.startswith("bestmove") and len(session.lines) >= asked)
        assert session.end() == 0
        assert session.strays() == []
        assert b"Traceback" not in session.complaints


@pytest.mark.parametrize(("game", "policy"), [("chess", "mcts:heuristic?simulations=8"), ("shogi", "greedy")])
def test_lines_of_noise_neither_kill_nor_hang(game: str, policy: str) -> None:
    fuzz(game, policy, seed=1, number=250)


@pytest.mark.slow
@pytest.mark.parametrize("game", ["chess", "shogi"])
@pytest.mark.parametrize("policy", ["random", "mcts:heuristic?simulations=8"])
def test_twenty_thousand_lines_of_noise(game: str, policy: str) -> None:
    fuzz(game, policy, seed=2, number=5_000)
