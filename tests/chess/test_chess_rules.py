"""Chess rules against published counts, python-chess, and the laws of every game."""

from __future__ import annotations

import hashlib
import pickle
import random
import re

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import genpolicy
from genpolicy.errors import IllegalMoveError
from genpolicy.testing.games import check_game, perft
from genpolicy_play.drawing import board_of, board_svg

GAME = genpolicy.load_game("chess")

KIWIPETE = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"
# https://www.chessprogramming.org/Perft_Results
PERFT: dict[str, list[int]] = {
    chess.STARTING_FEN: [20, 400, 8902, 197281],
    KIWIPETE: [48, 2039, 97862],
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1": [14, 191, 2812, 43238],
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1": [6, 264, 9467],
    "r2q1rk1/pP1p2pp/Q4n2/bbp1p3/Np6/1B3NBn/pPPP1PPP/R3K2R b KQ - 0 1": [6, 264, 9467],
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8": [44, 1486, 62379],
    "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10": [46, 2079, 89890],
}

ODD_TEXTS = [
    KIWIPETE,
    "8/8/8/8/k2Pp2Q/8/8/3K4 b - - 0 1",
    "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
    "rnbqkbnr/pp2pppp/8/8/2pPP3/8/PPP2PPP/RNBQKBNR b KQkq d3 0 3",
    "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1",
    "r3k2r/8/8/8/8/8/8/R3K2R b Kq - 149 9999",
]

BAD_TEXTS = [
    "8/8/8/8/8/8/8/8 w - - 0 1",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBN w KQkq - 0 1",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR x KQkq - 0 1",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w HAha - 0 1",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KK - 0 1",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq e3 0 1",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - -1 1",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1000000",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1 extra",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1_0",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQ~KBNR w KQkq - 0 1",
    "rnbqkbnr/pppppppp/44/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "4k3/8/8/8/8/8/8/4K3 w K - 0 1",
]


def uci(state: object) -> set[str]:
    return {GAME.moves[i] for i in GAME.legal(state)}


def play(state: object, *moves: str) -> object:
    for move in moves:
        state = GAME.play(state, GAME.moves.index(move))
    return state


@pytest.mark.parametrize("deepest", [3, pytest.param(4, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("fen", PERFT, ids=range(len(PERFT)))
def test_perft_matches_published_counts(fen: str, deepest: int) -> None:
    expected = PERFT[fen][:deepest]
    assert [perft(GAME, GAME.parse(fen), depth + 1) for depth in range(len(expected))] == expected


@pytest.mark.parametrize("num_games", [1, pytest.param(6, marks=pytest.mark.thorough)])
def test_the_laws_of_every_game_hold(num_games: int) -> None:
    check_game(
        GAME,
        num_games=num_games,
        texts=ODD_TEXTS[:1] + ODD_TEXTS[2:],
        bad_texts=BAD_TEXTS,
        colour_swap=GAME.symmetries[0].state,
    )


def test_move_vocabulary_is_the_published_one() -> None:
    # sha256 and indices made by running the published DiffuSearch code (its list of 1968 UCI moves).
    joined = "\n".join(GAME.moves).encode()
    assert hashlib.sha256(joined).hexdigest() == "e67a413cdbce60252cbcf4714d6e4b88549ecaee5e5a613ee4cdb8d5098d8f7b"
    indices = {"a1b1": 0, "a1h8": 20, "a1b3": 22, "b1a1": 194, "e1c1": 898, "e1g1": 901, "e2e4": 930, "e7e5": 1097}
    indices |= {"e8g8": 1120, "g1f3": 1402, "h8a1": 1783, "h8g6": 1791, "a2a1q": 1792, "a7a8q": 1793, "a7b8n": 1807}
    indices |= {"d2c1q": 1858, "e7e8q": 1881, "e7e8r": 1887, "e7e8b": 1893, "e7e8n": 1899, "h7g8n": 1967}
    assert {text: GAME.moves.index(text) for text in indices} == indices
    assert len(GAME.moves) == len(set(GAME.moves)) == 1968


def test_move_tables_name_squares_and_kinds() -> None:
    names = [f"{file}{rank}" for rank in "87654321" for file in "abcdefgh"]  # a8 is token 0, h1 token 63
    for i, text in enumerate(GAME.moves):
        assert names[GAME.moves.source[i]] + names[GAME.moves.target[i]] == text[:4]
        assert GAME.moves.kind[i] == (" qrbn".index(text[4]) if len(text) == 5 else 0)
        flipped = text[0] + str(9 - int(text[1])) + text[2] + str(9 - int(text[3])) + text[4:]
        assert GAME.moves[GAME.moves.mirrored[i]] == flipped
    assert GAME.moves.num_kinds == 5


def test_legal_moves_are_python_chess_s_in_random_games() -> None:
    rng = random.Random(1)
    for _ in range(4):
        board, state = chess.Board(), GAME.parse()
        while not board.is_game_over() and len(board.move_stack) < 200:
            assert GAME.format(state) == board.fen()
            assert uci(state) == {m.uci() for m in board.legal_moves}
            move = rng.choice(list(board.legal_moves))
            board.push(move)
            state = GAME.play(state, GAME.moves.index(move.uci()))


@pytest.mark.parametrize("num_games", [14, pytest.param(60, marks=pytest.mark.thorough)])
def test_outcome_is_python_chess_s_in_random_games(num_games: int) -> None:
    rng = random.Random(38)  # with which a few games have all kinds of ends
    seen = set()
    for number in range(num_games):
        board = chess.Board() if number % 2 else chess.Board("4k3/8/8/8/8/2q5/8/4KBN1 w - - 80 1")
        state = GAME.parse(board.fen())
        while True:
            expected = None
            if board.is_checkmate():
                expected = -1.0
            elif (
                board.is_stalemate()
                or board.is_insufficient_material()
                or board.is_repetition(3)
                or board.halfmove_clock >= 100
            ):
                expected = 0.0
            assert GAME.outcome(state) == expected, board.fen()
            seen.add((expected, board.is_repetition(3), board.halfmove_clock >= 100))
            if board.is_game_over(claim_draw=False) or len(board.move_stack) > 250:
                break
            move = rng.choice(list(board.legal_moves))
            board.push(move)
            state = play(state, move.uci())
    draws = {(0.0, False, False), (0.0, True, False), (0.0, False, True)}
    assert {(-1.0, False, False), (None, False, False), *draws} <= seen


def test_third_repetition_draws_and_the_game_can_go_on() -> None:
    dance = ("g1f3", "g8f6", "f3g1", "f6g8")
    state = GAME.parse()
    for expected in (None, 0.0):
        state = play(state, *dance)
        assert GAME.outcome(state) == expected
    onward = play(state, "e2e4")
    assert GAME.outcome(onward) is None
    assert GAME.format(onward) == "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 8 5".replace("- 8", "- 0")


def test_castling_rights_and_en_passant_make_positions_differ() -> None:
    # After the rooks have moved and come back, the right to castle is gone: the first position does not count.
    state = GAME.parse("r3k3/8/8/8/8/8/8/4K2R w Kq - 0 1")
    dance = ("h1h2", "a8a7", "h2h1", "a7a8")
    state = play(state, *dance)
    assert GAME.outcome(play(state, *dance)) is None
    assert GAME.outcome(play(state, *dance, *dance)) == 0.0
    # With a legal en-passant capture the position is another one; with an illegal one it is the same.
    with_capture = "4k3/8/8/8/3Pp3/8/8/4K3 b - d3 0 1"
    assert GAME.key(GAME.parse(with_capture)) != GAME.key(GAME.parse(with_capture.replace("d3", "-")))
    pinned = "8/8/8/8/k2Pp2Q/8/8/3K4 b - d3 0 1"
    assert GAME.format(GAME.parse(pinned)) == pinned.replace("d3", "-")
    assert GAME.key(GAME.parse(pinned)) == GAME.key(GAME.parse(pinned.replace("d3", "-")))


def test_a_double_step_nobody_can_take_counts_as_the_same_position() -> None:
    state = play(GAME.parse(), "e2e4")
    dance = ("g8f6", "g1f3", "f6g8", "f3g1")
    assert GAME.outcome(play(state, *dance)) is None
    assert GAME.outcome(play(state, *dance, *dance)) == 0.0


def test_fifty_moves_draw_unless_it_is_mate() -> None:
    ninety_nine = GAME.parse("7k/8/8/8/8/8/R7/K7 w - - 99 80")
    assert GAME.outcome(ninety_nine) is None
    hundred = play(ninety_nine, "a2b2")
    assert GAME.outcome(hundred) == 0.0
    assert len(GAME.legal(hundred)) > 0
    assert GAME.outcome(play(GAME.parse("6k1/5ppp/8/8/8/8/R7/K7 w - - 99 80"), "a2a8")) == -1.0


@pytest.mark.parametrize(
    ("fen", "outcome"),
    [
        ("7k/5KQ1/8/8/8/8/8/8 b - - 0 1", -1.0),
        ("rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3", -1.0),  # fool's mate
        ("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", 0.0),  # stalemate
        ("8/8/4k3/8/8/3K4/8/8 w - - 0 1", 0.0),
        ("8/8/4k3/8/8/3KB3/8/8 w - - 0 1", 0.0),
        ("8/8/4k3/8/8/3KN3/8/8 b - - 0 1", 0.0),
        ("8/2b5/4k3/8/8/3KB3/8/8 w - - 0 1", 0.0),  # bishops of one colour
        ("8/3b4/4k3/8/8/3KB3/8/8 w - - 0 1", None),  # of both: a helpmate exists
        ("8/8/4k3/8/8/3KNN2/8/8 w - - 0 1", None),
        ("8/8/4k3/8/8/3KP3/8/8 w - - 0 1", None),
    ],
)
def test_ends_of_the_game(fen: str, outcome: float | None) -> None:
    assert GAME.outcome(GAME.parse(fen)) == outcome


def test_colour_flip_keeps_history_and_outcome() -> None:
    flip = GAME.symmetries[0]
    state = play(GAME.parse(), *("g1f3", "g8f6", "f3g1", "f6g8") * 2)
    turned = flip.state(state)
    assert GAME.outcome(turned) == GAME.outcome(state) == 0.0
    assert turned.board.fen() == state.board.mirror().fen()
    fen = "rnbqkbnr/pp2pppp/8/8/2pPP3/8/PPP2PPP/RNBQKBNR b KQkq d3 0 3"
    assert GAME.key(flip.state(GAME.parse(fen))) == GAME.key(GAME.parse(chess.Board(fen).mirror().fen()))
    assert GAME.canonical_key(state) == GAME.canonical_key(turned)


def test_a_state_survives_pickling() -> None:
    state = play(GAME.parse(), *("g1f3", "g8f6", "f3g1", "f6g8") * 2)
    again = pickle.loads(pickle.dumps(state))
    assert (GAME.format(again), GAME.outcome(again)) == (GAME.format(state), 0.0)


def test_castling_has_one_spelling() -> None:
    state = GAME.parse("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1")
    assert {"e1g1", "e1c1"} <= uci(state)
    for onto_rook in ("e1h1", "e1a1"):
        with pytest.raises(IllegalMoveError, match=onto_rook):
            GAME.play(state, GAME.moves.index(onto_rook))


@pytest.mark.parametrize("move_id", [-1, 1968, 10**9])
def test_an_id_outside_the_vocabulary_is_illegal(move_id: int) -> None:
    with pytest.raises(IllegalMoveError, match=str(move_id)):
        GAME.play(GAME.parse(), move_id)


def test_illegal_move_names_move_position_and_legal_moves() -> None:
    with pytest.raises(IllegalMoveError, match=r"'e2e5'.*rnbqkbnr/pppppppp.*legal: .*e2e4"):
        GAME.play(GAME.parse(), GAME.moves.index("e2e5"))


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_bad_text_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        GAME.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("8/8/8/8/8/8/8/K7 w - - 0 1", "Black has no king"),
        ("k7/8/8/8/8/8/8/KK6 w - - 0 1", "more than one king"),
        ("k7/8/8/8/8/8/8/K6P w - - 0 1", "pawn stands on rank"),
        ("k6R/8/8/8/8/8/8/K7 w - - 0 1", "not to move is in check"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBN1 w KQkq - 0 1", "castling right without its king and rook"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq e6 0 1", "no double step"),
        ("k7/pppppppp/p7/8/8/8/8/K7 w - - 0 1", "Black has more than 8 pawns"),
    ],
)
def test_illegal_position_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        GAME.parse(text)


@pytest.mark.parametrize(
    ("text", "fen"),
    [
        ("  rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -  \n", chess.STARTING_FEN),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w qkQK - 0 0", chess.STARTING_FEN),
        (
            "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1",
            "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1",
        ),
    ],
)
def test_odd_but_real_texts_are_put_in_order(text: str, fen: str) -> None:
    assert GAME.format(GAME.parse(text)) == fen


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_fen_is_a_position_or_a_value_error(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([chess.STARTING_FEN, *ODD_TEXTS]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        put = data.draw(st.text(alphabet="pnbrqkPNBRQK12345678/wb-aeh360 ~.+_\u0663\x00\n", max_size=3))
        text = text[:at] + put + text[at + cut :]
    state, message = None, ""
    try:
        state = GAME.parse(text)
    except ValueError as error:
        message = str(error)
    if state is None:
        assert repr(text) in message
        return
    assert state.board.is_valid()
    assert GAME.format(GAME.parse(GAME.format(state))) == GAME.format(state)
    row = GAME.tokens.encode([state])[0]
    assert GAME.format(GAME.tokens.decode(row)) == GAME.format(state)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.none().map(lambda _: ""), st.integers(), st.binary()))
def test_nonsense_is_a_value_error(text: object) -> None:
    with pytest.raises(ValueError, match="FEN"):
        GAME.parse(text)


@pytest.mark.parametrize(
    ("fen", "typed", "move"),
    [
        (chess.STARTING_FEN, "Nf3", "g1f3"),
        (chess.STARTING_FEN, " e2e4 ", "e2e4"),
        (KIWIPETE, "O-O", "e1g1"),
        (KIWIPETE, "0-0-0", "e1c1"),
        ("7k/P7/8/8/8/8/8/K7 w - - 0 1", "a8=N", "a7a8n"),
        ("7k/P7/8/8/8/8/8/K7 w - - 0 1", "a7a8Q", "a7a8q"),
        ("4k3/8/8/8/8/B7/1N6/1B2K3 w - - 0 1", "Nd1", "b2d1"),
        ("k7/8/8/1B6/8/8/8/1B2K3 w - - 0 1", "B1d3", "b1d3"),
    ],
)
def test_moves_are_understood_as_typed(fen: str, typed: str, move: str) -> None:
    assert GAME.moves[GAME.move_from_text(GAME.parse(fen), typed)] == move


@pytest.mark.parametrize("typed", ["", "e2e5", "Nf6", "--", "0000", "Z0", "e4e4", "hello", "N@f3", "e1h1"])
def test_moves_that_cannot_be_played_are_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(typed))):
        GAME.move_from_text(GAME.parse(), typed)


def test_play_leaves_the_state_as_it_was() -> None:
    state = GAME.parse(KIWIPETE)
    before = (GAME.format(state), GAME.key(state), state.history, len(state.board.move_stack))
    for move in GAME.legal(state):
        GAME.play(state, int(move))
    legal = GAME.legal(state).tolist()
    GAME.legal(state)[:] = 0  # the caller's own copy
    assert GAME.legal(state).tolist() == legal
    assert (GAME.format(state), GAME.key(state), state.history, len(state.board.move_stack)) == before
    assert GAME.legal(state).dtype == np.int64


def test_board_text_and_svg_show_the_position() -> None:
    state = GAME.parse("7k/5KQ1/8/8/8/8/8/8 b - - 0 1")
    assert "7  . . . . . K Q ." in GAME.view.board_text(state)
    assert "Black to move" in GAME.view.board_text(state)
    assert board_svg(GAME, board_of(GAME, state), check=GAME.view.check(state)).startswith("<svg")


@pytest.mark.parametrize(
    ("pieces", "white", "black"),
    [
        ("4k3/8/8/8/8/8/8/4K2R", True, False),
        ("4k3/8/8/8/8/8/8/4KN2", False, False),
        ("4k3/7p/8/8/8/8/8/4KN2", True, True),  # the pawn takes a corner from its king: Nf7 or Ng6 mates
        ("4kq2/8/8/8/8/8/8/4KN2", False, True),  # a queen leaves the corner, or takes the knight
        ("4kb2/8/8/8/8/8/8/4KN2", True, True),
        ("4k3/8/8/8/8/8/8/3NKN2", True, False),  # not by force, which the law does not ask for
        ("2b1k3/8/8/8/8/8/8/2B1K3", True, True),
        ("2b1k3/8/8/8/8/8/8/4KB2", False, False),  # bishops on squares of one colour
    ],
)
def test_who_can_still_mate(pieces: str, white: bool, black: bool) -> None:
    """FIDE Laws of Chess (2023), 6.9: where nobody can be mated by any series of legal moves, time does not lose."""
    for side in "wb":
        state = GAME.parse(f"{pieces} {side} - - 0 1")
        assert [GAME.view.can_win(state, player) for player in (0, 1)] == [white, black]
