"""That an answer waits for ``stop`` or ``ponderhit`` wherever it must, also where there is nothing to search."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from genpolicy import load_game
from genpolicy.policies.base import Variation
from genpolicy.policies.thinking import Answer
from genpolicy_play.engine.info import best_move_text
from tests.play.engine_session import Session, best

pytestmark = pytest.mark.usefixtures("warm_start")

MATED = "position startpos moves f2f3 e7e5 g2g4 d8h4"
STALEMATE = "position fen 7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
MATED_SHOGI = "position sfen 4k4/4G4/4P4/9/9/9/9/9/4K4 w 2r2b3g4s4n4l17p 1"
DECLARED = "position sfen 4K4/3+R+R+B+B2/2GGGGSS1/9/9/9/9/9/4k4 b 2S4N4L18P 1"


@pytest.fixture(scope="module")
def chess() -> Iterator[Session]:
    with Session("--policy", "mcts:heuristic", "--game", "chess") as session:
        session.ask("uci", "isready", until="readyok")
        yield session
        assert session.strays() == []
        assert session.end() == 0


@pytest.fixture(scope="module")
def shogi() -> Iterator[Session]:
    with Session("--policy", "mcts:heuristic", "--game", "shogi") as session:
        session.ask("usi", "isready", until="readyok")
        yield session
        assert session.strays() == []
        assert session.end() == 0


def answers(session: Session) -> int:
    return sum(line.startswith(("bestmove", "checkmate")) for line in session.lines)


HELD = [
    ("chess", MATED, "bestmove (none)"),
    ("chess", STALEMATE, "bestmove (none)"),
    ("shogi", MATED_SHOGI, "bestmove resign"),
    ("shogi", DECLARED, "bestmove win"),
]


@pytest.mark.parametrize("release", ["stop", "ponderhit"])
@pytest.mark.parametrize(("game", "position", "answer"), HELD)
def test_what_needs_no_search_waits_as_well(
    request: pytest.FixtureRequest, game: str, position: str, answer: str, release: str
) -> None:
    session: Session = request.getfixturevalue(game)
    before = answers(session)
    session.ask(position, "go ponder wtime 1000 btime 1000", "isready", until="readyok")
    time.sleep(0.1)
    assert answers(session) == before, "nobody has said stop or ponderhit"
    assert session.ask(release)[-1] == answer
    session.ask(position, "go infinite", "isready", until="readyok")
    session.ask("ponderhit", "isready", until="readyok")
    assert answers(session) == before + 1
    assert session.ask("stop")[-1] == answer
    session.ask("stop", "ponderhit", "isready", until="readyok")
    assert answers(session) == before + 2
    # Not held, it is there at once; so is the one of a search that another "go" stops.
    assert session.ask(position, "go movetime 100")[-1] == answer
    session.send("go infinite", "go ponder", "stop")
    assert session.until("bestmove")[-1] == answer
    assert session.until("bestmove")[-1] == answer
    assert answers(session) == before + 5


def test_a_held_mate_search_waits_where_there_is_no_move(chess: Session, shogi: Session) -> None:
    for session, position, answer in ((chess, MATED, "bestmove (none)"), (shogi, MATED_SHOGI, "checkmate nomate")):
        before = answers(session)
        session.ask(position, "go ponder mate 3", "isready", until="readyok")
        assert answers(session) == before
        assert session.ask("stop", until=answer)[-1] == answer


def test_the_end_of_the_input_releases_what_is_held() -> None:
    with Session("--policy", "random", "--game", "chess") as session:
        session.ask("uci", "isready", MATED, "go ponder", "isready", until="readyok")
        assert session.process.stdin is not None
        session.process.stdin.close()
        assert session.until("bestmove")[-1] == "bestmove (none)"
        assert session.process.wait(10) == 0


def test_a_finished_position_has_a_score(chess: Session, shogi: Session) -> None:
    for session, position, score in (
        (chess, MATED, "score mate 0 wdl 0 0 1000 "),
        (chess, STALEMATE, "score cp 0 wdl 0 1000 0 "),
        (shogi, MATED_SHOGI, "score mate 0 "),
        (shogi, DECLARED, "score mate 1 "),
    ):
        lines = session.ask(position, "go movetime 50")
        assert any(line.startswith(f"info depth 0 {score}nodes 0") for line in lines), lines


def test_no_ponder_move_ends_the_game(chess: Session) -> None:
    game = load_game("chess")
    state = game.parse()
    for text in ("f2f3", "e7e5"):
        state = game.play(state, game.moves.index(text))
    blunder, mate, other = (game.moves.index(text) for text in ("g2g4", "d8h4", "d7d5"))
    assert best_move_text(game, state, Answer((Variation((blunder, mate)),))) == "g2g4"
    assert best_move_text(game, state, Answer((Variation((blunder, other)),))) == "g2g4 ponder d7d5"
    lines = chess.ask("position startpos moves f2f3 e7e5", "go searchmoves g2g4")
    assert lines[-1] == "bestmove g2g4", "the answer is mate, and there is nothing to ponder on"
    assert best(chess.ask("position startpos", "go nodes 50"))


def test_searchmoves_restricts_a_mate(chess: Session) -> None:
    position = "position fen 6k1/5ppp/8/8/8/8/8/4R1K1 w - - 0 1"
    assert best(chess.ask(position, "go mate 1")) == "e1e8"
    assert best(chess.ask(position, "go mate 1 searchmoves e1e2")) == "e1e2"
    assert best(chess.ask(position, "go searchmoves e1e8 e1e2 mate 1")) == "e1e8"
    assert best(chess.ask("position startpos", "go mate 1 searchmoves a2a3")) == "a2a3"
