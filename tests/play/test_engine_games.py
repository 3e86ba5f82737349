"""Whole games through other people's clients and against other people's engines, with ponder and stop."""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import chess
import chess.engine
import numpy as np
import pytest

from genpolicy import load_game
from genpolicy.errors import EngineError
from genpolicy_engines.oracle import find_engine
from tests.play.engine_policies import save_diffusion
from tests.play.engine_session import ENGINE, LINES, Session, best

pytestmark = pytest.mark.usefixtures("warm_start")

DEMO = Path(os.environ.get("GENPOLICY_DEMO_POLICY", "runs/demo/imagine/policy"))
SHOGI_DEMO = Path(os.environ.get("GENPOLICY_DEMO_SHOGI_POLICY", "runs/demo-shogi/imagine/policy"))
MOVE_S = 0.1
LATE_S = 0.5  # beyond the time for a move, for 99 of 100 moves: a shared machine may hold any process up for so long
TIME_OUT_S = 5.0  # half of what python-chess waits for beyond the time for a move before it gives an engine up
MAX_PLIES = 160


def engine_or_skip(name: str) -> str:
    try:
        return find_engine(name)
    except EngineError as error:
        pytest.skip(str(error))


async def play_chess(policy: str, num_games: int, opponent: str, seed: int) -> dict[str, float]:
    """Games against a weak Stockfish, half with each colour; pondering, and an analysis that is stopped in each."""
    generator = random.Random(seed)
    _, engine = await chess.engine.popen_uci([*ENGINE, "--policy", policy, "--game", "chess"], env=quiet())
    tap: list[str] = []
    received = engine._line_received

    def listen(line: str) -> None:
        tap.append(line)
        received(line)

    engine._line_received = listen  # type: ignore[method-assign]
    _, other = await chess.engine.popen_uci(opponent)
    await engine.ping()  # the policy is loaded now
    times: list[Answer] = []
    for index in range(num_games):
        board = chess.Board()
        for _ in range(generator.randrange(6)):
            board.push(generator.choice(list(board.legal_moves)))
        color = chess.WHITE if index % 2 == 0 else chess.BLACK
        while not board.is_game_over(claim_draw=True) and len(board.move_stack) < MAX_PLIES:
            if board.turn == color:
                if len(board.move_stack) == 20:
                    with await engine.analysis(board) as analysis:  # go infinite, then stop
                        await analysis.next()
                    analysed = (await analysis.wait()).move
                    assert analysed is not None
                    assert analysed in board.legal_moves
                began = time.perf_counter()
                # A copy: the client keeps the board to tell a ponder hit, and its analysis() overlooks one.
                answer = await engine.play(
                    board.copy(), chess.engine.Limit(time=MOVE_S), game=index, ponder=True, info=chess.engine.INFO_ALL
                )
                own = answer.info.get("time", math.nan)
                times.append(Answer(time.perf_counter() - began, own, index, len(board.move_stack)))
                assert answer.move is not None
                assert answer.move in board.legal_moves  # the client looks too; an illegal one is an EngineError
                board.push(answer.move)
            else:
                reply = await other.play(board, chess.engine.Limit(nodes=200), game=index)
                assert reply.move is not None
                board.push(reply.move)
    await engine.quit()
    await other.quit()
    strays = [line for line in tap if not LINES.fullmatch(line)]
    assert strays == []
    fallbacks = sum("a legal move is played instead" in line for line in tap)
    return told(num_games, times, fallbacks)


class Answer(NamedTuple):
    """How long a move took: from asking to the answer, and until it was found, by the engine's own clock."""

    took_s: float
    own_s: float
    game: int
    ply: int


def told(num_games: int, answers: list[Answer], fallbacks: int) -> dict[str, float]:
    """The figures of a match, printed."""
    ms, own = (1e3 * np.array([answer[i] for answer in answers]) for i in (0, 1))
    quantiles = (50, 90, 99, 99.9, 100)

    def shares(values: Any) -> str:
        return ", ".join(
            f"{q:g} % {value:.0f}" for q, value in zip(quantiles, np.nanpercentile(values, quantiles), strict=True)
        )

    late = ", ".join(f"{(ms > limit).sum()} after {limit:.0f}" for limit in (100, 120, 150, 200, 300, 600))
    slowest = ", ".join(
        f"{1e3 * each.took_s:.0f} ({1e3 * each.own_s:.0f}) game {each.game} ply {each.ply}"
        for each in sorted(answers, reverse=True)[:3]
    )
    print(
        f"\n{num_games} games, {len(ms)} moves; ms from asking to the answer: {shares(ms)}; "
        f"found, by the engine's clock, after {shares(own)}; answers {late}; "
        f"slowest {slowest}; {fallbacks} answers without the policy"
    )
    assert ms.max() < 1e3 * TIME_OUT_S
    # The machine may let the client wait, or the engine, but not all the time.
    return {"late": float(np.percentile(ms, 99)) / 1e3, "moves": len(ms), "fallbacks": fallbacks}


def quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def in_a_thread(playing: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    """What it returns; browser tests leave an event loop running in the main thread, beside which there is no other."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, playing).result()


def test_games_through_python_chess(tmp_path: Path) -> None:
    opponent = engine_or_skip("stockfish")
    facts = in_a_thread(play_chess(str(save_diffusion(tmp_path, "chess")), 2, opponent, seed=3))
    assert facts["late"] < MOVE_S + LATE_S
    assert facts["moves"] > 10


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_200_games_through_python_chess() -> None:
    opponent = engine_or_skip("stockfish")
    if not DEMO.is_dir():
        pytest.skip(f"no policy {DEMO}; make demo trains one, or set GENPOLICY_DEMO_POLICY")
    facts = in_a_thread(play_chess(str(DEMO), 200, opponent, seed=4))
    assert facts["late"] < MOVE_S + LATE_S


def play_shogi(policy: str, num_games: int, opponent: str, seed: int, max_plies: int = MAX_PLIES) -> dict[str, float]:
    """Games over USI against Fairy-Stockfish, byoyomi alone, half with each colour, pondering."""
    game: Any = load_game("shogi")
    generator = random.Random(seed)
    times: list[Answer] = []
    num_hits = 0
    clock = f"btime 0 wtime 0 byoyomi {round(1e3 * MOVE_S)}"
    with Session("--policy", policy, "--game", "shogi") as ours, Session(command=[opponent]) as other:
        for session in (ours, other):
            session.ask("usi", until="usiok")
            session.ask("setoption name USI_Ponder value true", "isready", until="readyok")
        for index in range(num_games):
            for session in (ours, other):
                session.ask("usinewgame", "isready", until="readyok")
            moves: list[str] = []
            state = game.parse()
            pondering: list[str] | None = None
            while game.outcome(state) is None and len(moves) < max_plies:
                position = "position startpos" + (" moves " + " ".join(moves) if moves else "")
                if len(moves) < generator.randrange(1, 6):
                    move = game.moves[int(generator.choice(game.legal(state).tolist()))]
                    _leave(ours, pondering)
                    pondering = None
                elif len(moves) % 2 == index % 2:
                    if pondering != moves:
                        _leave(ours, pondering)
                        if len(moves) // 2 == 10:
                            ours.ask(position, "go infinite", until="info")
                            ours.ask("stop")
                    began = time.perf_counter()
                    if pondering == moves:
                        num_hits += 1
                        answer = ours.ask("ponderhit")
                    else:
                        answer = ours.ask(position, f"go {clock}")
                    took = time.perf_counter() - began
                    told_ms = [re.search(r" time (\d+) pv ", line) for line in answer]
                    own = [1e-3 * int(found[1]) for found in told_ms if found]
                    times.append(Answer(took, own[-1] if own else math.nan, index, len(moves)))
                    pondering = None
                    words = answer[-1].split()
                    move = words[1]
                    if move in ("resign", "win"):
                        assert move == "win", "the position has legal moves"
                        break
                    if "ponder" in words:
                        pondering = [*moves, move, words[3]]
                        ours.send("position startpos moves " + " ".join(pondering), f"go ponder {clock}")
                else:
                    move = best(other.ask(position, "go nodes 100"))
                    if move == "resign":
                        break
                state = game.play(state, game.moves.index(move))  # an illegal move is an error
                moves.append(move)
            _leave(ours, pondering)
            ours.send(f"gameover {generator.choice(['win', 'lose', 'draw'])}")
        ours.ask("isready", until="readyok")
        assert ours.end() == 0
        assert ours.strays() == []
        fallbacks = sum("a legal move is played instead" in line for line in ours.lines)
    print(f"{num_hits} ponder hits")
    return told(num_games, times, fallbacks)


def _leave(session: Session, pondering: list[str] | None) -> None:
    """End the pondering that came to nothing; its bestmove is not played."""
    if pondering is not None:
        session.ask("stop")


@pytest.mark.thorough
def test_games_against_fairy_stockfish(tmp_path: Path) -> None:
    opponent = engine_or_skip("fairy-stockfish")
    facts = play_shogi(str(save_diffusion(tmp_path, "shogi")), 2, opponent, seed=5, max_plies=80)
    assert facts["late"] < MOVE_S + LATE_S
    assert facts["moves"] > 10


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_200_games_against_fairy_stockfish(tmp_path: Path) -> None:
    opponent = engine_or_skip("fairy-stockfish")
    if not SHOGI_DEMO.is_dir():
        pytest.skip(f"no policy {SHOGI_DEMO}; make demo GAME=shogi trains one, or set GENPOLICY_DEMO_SHOGI_POLICY")
    facts = play_shogi(str(SHOGI_DEMO), 200, opponent, seed=6, max_plies=100)
    assert facts["late"] < MOVE_S + LATE_S
