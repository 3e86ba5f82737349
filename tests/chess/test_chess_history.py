"""``history`` and ``write_game``: what engines are told of a game, and games written one at a time."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import chess.pgn
import pytest

from genpolicy.facets import writer
from genpolicy.game import PlayedGame
from genpolicy.registry import load_game

GAME = load_game("chess")
START = "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 4 9"


def random_line(start: str | None, num_plies: int, seed: int) -> tuple[Any, list[int]]:
    draw = random.Random(seed)
    state, moves = GAME.parse(start), []
    while len(moves) < num_plies and len(GAME.legal(state)):
        moves.append(draw.choice(GAME.legal(state).tolist()))
        state = GAME.play(state, moves[-1])
    return state, moves


@pytest.mark.parametrize("start", [None, START])
@pytest.mark.parametrize("seed", range(4))
def test_history_is_the_first_position_and_the_moves_played(start: str | None, seed: int) -> None:
    state, moves = random_line(start, 120, seed)
    assert GAME.history(state) == (GAME.format(GAME.parse(start)), tuple(moves))
    assert GAME.history(pickle.loads(pickle.dumps(state))) == GAME.history(state)
    board = chess.Board(GAME.history(state)[0])
    for move in moves:
        board.push_uci(GAME.moves[move])
    assert board.fen() == GAME.format(state)


def test_a_parsed_position_has_no_past() -> None:
    assert GAME.history(GAME.parse(START)) == (START, ())


def test_the_mirrored_state_has_the_mirrored_past() -> None:
    state, moves = random_line(START, 60, 5)
    symmetry = GAME.symmetries[0]
    start, mirrored = GAME.history(symmetry.state(state))
    assert start == GAME.format(symmetry.state(GAME.parse(START)))
    assert mirrored == tuple(int(symmetry.moves[move]) for move in moves)


def test_a_game_without_histories_gives_the_position_alone() -> None:
    connect = load_game("connect:rows=3,cols=3,k=3,gravity=false")
    state = connect.play(connect.parse(), 4)
    assert connect.history(state) == ("... .X. ... O".replace(" ", "/", 2), ())


@pytest.mark.parametrize("name", ["games.pgn", "games.pgn.gz", "games.pgn.zst"])
def test_games_are_appended_one_at_a_time(name: str, tmp_path: Path) -> None:
    lines = [random_line(None, 30, 1)[1], random_line(START, 21, 2)[1], []]
    starts = [GAME.format(GAME.parse()), START, START]
    for number, (start, moves) in enumerate(zip(starts, lines, strict=True), 1):
        headers = {"White": f"w{number}", "Black": 'the "b"', "PlyCount": str(len(moves))}
        GAME.files.write_game(tmp_path / name, PlayedGame(str(number), start, tuple(moves), -1.0, headers))
        found = list(GAME.files.open_games(tmp_path / name))
        assert [list(game.moves) for game in found] == lines[:number]
        assert [game.start for game in found] == starts[:number]
        assert found[-1].headers["White"] == f"w{number}"
    if name.endswith(".pgn"):
        with (tmp_path / name).open() as file:
            game = chess.pgn.read_game(file)
            assert game is not None
            assert [m.uci() for m in game.mainline_moves()] == [GAME.moves[m] for m in lines[0]]
            assert game.headers["Result"] == "0-1"


def test_writing_games_replaces_what_the_file_held(tmp_path: Path) -> None:
    path = tmp_path / "a.pgn"
    played = PlayedGame("1", GAME.format(GAME.parse()), (), 0.0)
    GAME.files.write_games(path, [played, played])
    GAME.files.write_games(path, [played])
    assert len(list(GAME.files.open_games(path))) == 1


def test_a_game_that_writes_no_files_says_so(tmp_path: Path) -> None:
    game = type(load_game("connect"))()
    game.files = None
    with pytest.raises(ValueError, match="writes no files of games"):
        writer(game, tmp_path / "x", "games")
    with pytest.raises(ValueError, match="game 'chess' writes no files of positions"):
        writer(GAME, tmp_path / "x", "positions")
