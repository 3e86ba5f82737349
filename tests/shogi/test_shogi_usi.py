"""Oracles over USI: what engines answer, their mates counted in moves, and labels that are legal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import genpolicy
from genpolicy.cli import main
from genpolicy.data.oracle import Oracle, make_oracle
from genpolicy.data.records import Dataset
from genpolicy.errors import EngineError
from genpolicy_engines.oracle import EngineOracle, find_engine
from genpolicy_engines.protocol import USI, parse_search

GAME = genpolicy.load_game("shogi")
MATE_1 = "4k4/9/4P4/9/9/9/9/9/4K4 b G2r2b3g4s4n4l17p 1"
MATE_5 = "9/8B/8L/8k/8N/4B2R1/9/9/9 b Sr4g3s3n3l18p 1"
DROP_PAWN = "7nk/9/7G1/9/9/9/9/9/4K4 b P 1"


@pytest.fixture(scope="module")
def fairy() -> Iterator[Oracle]:
    with _oracle("fairy-stockfish?nodes=4000&Contempt=0") as oracle:
        yield oracle


def _oracle(spelling: str) -> Oracle:
    try:
        find_engine(spelling.partition("?")[0])
    except EngineError as error:
        pytest.skip(str(error))
    return make_oracle(spelling, GAME)


@pytest.mark.parametrize(
    ("output", "move", "line", "score"),
    [
        # Mates are in plies: five plies are three moves of the mater, four plies two of the mated.
        ("info score mate 5 pv S*2e 1d1e 2f1f\nbestmove S*2e\n", "S*2e", ("S*2e", "1d1e", "2f1f"), "mate:3"),
        ("info score mate 1 pv G*5b\nbestmove G*5b\n", "G*5b", ("G*5b",), "mate:1"),
        ("info score mate -4 pv 1a2b\nbestmove 1a2b\n", "1a2b", ("1a2b",), "mate:-2"),
        ("info score mate -2 pv 1a2b\nbestmove 1a2b\n", "1a2b", ("1a2b",), "mate:-1"),
        ("info score mate + pv G*5b\nbestmove G*5b\n", "G*5b", ("G*5b",), "mate:1"),
        ("info score mate - pv 1a2b\nbestmove 1a2b\n", "1a2b", ("1a2b",), "mate:-1"),
        # The last line is only a bound.
        (
            "info score cp 40 pv 7g7f 3c3d\ninfo score cp 55 lowerbound pv 7g7f 8c8d\nbestmove 7g7f ponder 8c8d\n",
            "7g7f",
            ("7g7f", "3c3d"),
            "cp:40",
        ),
        # An engine that gives up has a best line all the same.
        ("info score cp -4000 pv 5a4b 2c3b+\nbestmove resign\n", "5a4b", ("5a4b", "2c3b+"), "cp:-4000"),
        ("info depth 0 score mate 0\nbestmove resign\n", "resign", ("resign",), "mate:0"),
        ("info score cp 3000 pv 5a4a\nbestmove win\n", "5a4a", ("5a4a",), "cp:3000"),
    ],
)
def test_answers_of_usi(output, move, line, score) -> None:
    result = parse_search(output.encode(), USI)
    assert (result.move, result.line, result.score) == (move, line, score)


def test_a_time_is_given_as_byoyomi() -> None:
    with _oracle("fairy-stockfish?movetime_ms=50") as oracle:
        (line,) = oracle.analyse([GAME.parse()], 2)
    assert line.error is None
    assert USI.movetime.format(50) == "btime 0 wtime 0 byoyomi 50"


def test_mates_are_counted_in_moves(fairy) -> None:
    one, three = fairy.analyse([GAME.parse(MATE_1), GAME.parse(MATE_5)], 5)
    assert (one.scores[0], one.ended, [GAME.moves[m] for m in one.moves]) == ("mate:1", True, ["G*5b"])
    searched = [score for score in three.scores if score is not None]
    assert searched  # the mate is found where the line is searched on, if not at once
    with _oracle("fairy-stockfish?depth=12&Contempt=0") as deeper:
        (line,) = deeper.analyse([GAME.parse(MATE_5)], 5)
    assert line.scores[0] == "mate:3"
    assert GAME.mate_distance(GAME.parse(MATE_5), 9) == 5


def test_every_move_of_a_line_is_legal_and_scored_for_its_mover(fairy) -> None:
    texts = [
        "l6nl/5+P1gk/2np1S3/p1p4Pp/3P2Sp1/1PPb2P1P/P5GS1/R8/LN4bKL w RGgsn5p 1",
        "lnsgkgsnl/9/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1",
        DROP_PAWN,
    ]
    states = [GAME.parse(text) for text in texts]
    for state, line in zip(states, fairy.analyse(states, 8), strict=True):
        assert line.error is None
        assert len(line.moves) == 8 or line.ended
        for move in line.moves:
            assert move in GAME.legal(state)
            state = GAME.play(state, move)
    # White lacks rook and bishop, and it is White's move.
    (line,) = fairy.analyse([GAME.parse(texts[1])], 1)
    assert line.scores[0] is not None
    assert int(line.scores[0].removeprefix("cp:")) < -300


def test_every_legal_move_has_a_value(fairy) -> None:
    state = GAME.parse(MATE_1)
    (line,) = fairy.analyse([state], 1, move_values=True)
    assert sorted(line.move_values) == GAME.legal(state).tolist()
    assert line.move_values[GAME.moves.index("G*5b")] == "mate:1"


def test_labels_do_not_depend_on_the_number_of_processes() -> None:
    states = [GAME.parse()]
    for usi in ["7g7f", "3c3d", "2g2f", "4c4d", "3i4h", "8b3b", "5i6h", "5a6b"]:
        states.append(GAME.play(states[-1], GAME.moves.index(usi)))
    found = []
    for processes in (1, 2):
        with _oracle(f"fairy-stockfish?nodes=600&Contempt=0&processes={processes}") as oracle:
            found.append(oracle.analyse(states, 4))
    assert found[0] == found[1]


def test_the_scale_is_the_oracles(tmp_path) -> None:
    out = tmp_path / "games"
    oracle = "fairy-stockfish?nodes=100&Contempt=0&scale=0.0011"
    find = _oracle(oracle)
    assert isinstance(find, EngineOracle)
    assert find.scale == 0.0011
    find.close()
    command = ["data", "selfplay", "--game", "shogi", "--oracle", oracle, "--games", "2", "--max-plies", "6"]
    assert main([*command, "--horizon", "2", "--out", str(out)]) == 0
    dataset = Dataset.open(out)
    assert dataset.centipawn_scale == 0.0011
    for record in dataset.records():
        state = GAME.parse(record.state)
        for usi in record.moves:
            state = GAME.play(state, GAME.moves.index(usi))


def test_another_engine_that_knows_no_nodes() -> None:
    with _oracle("gpsusi?movetime_ms=100&BookDepth=0&timeout_s=20") as oracle:
        (line,) = oracle.analyse([GAME.parse()], 2)
    assert line.error is None
    state = GAME.parse()
    for move in line.moves:
        state = GAME.play(state, move)


def test_an_engine_plays_from_imported_games(tmp_path) -> None:
    _oracle("fairy-stockfish?nodes=100").close()
    games = tmp_path / "openings.usi"
    games.write_text("startpos moves 7g7f 3c3d 2g2f 8c8d\nstartpos moves 2g2f 8c8d 2f2e 8d8e\n")
    assert main(["data", "import", str(games), "--game", "shogi", "--out", str(tmp_path / "a")]) == 0
    label = ["data", "label", str(tmp_path / "a"), "--oracle", "fairy-stockfish?nodes=100&Contempt=0"]
    assert main([*label, "--horizon", "4", "--out", str(tmp_path / "b")]) == 0
    records = list(Dataset.open(tmp_path / "b").records())
    assert len(records) == 8
    assert all(len(record.moves) == 4 and record.scores for record in records)
