"""The 77 tokens: exact round trips, both views, tight admitted sets, and refusal of rows that are not a position."""

from __future__ import annotations

import random

import chess
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import genpolicy
from genpolicy.sequence import Layout
from tests.networks.small_networks import clean_tokens, network

GAME = genpolicy.load_game("chess")
TOKENS = GAME.tokens
START_ROW = TOKENS.encode([GAME.parse()])[0]


def random_states(count: int, seed: int) -> list:
    rng = random.Random(seed)
    states: list = []
    while len(states) < count:
        state = GAME.parse()
        for _ in range(300):
            states.append(state)
            legal = GAME.legal(state)
            if len(legal) == 0:
                break
            state = GAME.play(state, int(rng.choice(legal)))
    return states[:count]


STATES = random_states(1500, seed=3)


def symbol(name: str) -> int:
    return TOKENS.symbols.index(name)


def slow_names(board: chess.Board) -> list[str]:
    """The code of a position, square by square, from its FEN."""
    pieces, side, castling, en_passant, halfmove, fullmove = board.fen().split()
    for digit in "12345678":
        pieces = pieces.replace(digit, "." * int(digit))
    names = [*pieces.replace("/", ""), "white" if side == "w" else "black"]
    names += [f"castling:{letter}" if letter in castling else "-" for letter in "KQkq"]
    names += ["-", "-"] if en_passant == "-" else [f"ep:{en_passant[0]}", f"ep:{en_passant[1]}"]
    for number in (halfmove, fullmove):
        digits = f"{int(number):06d}"
        names += [digits[0:2], digits[2:4], digits[4:6]]
    return names


def test_shape_and_places() -> None:
    assert TOKENS.length == 77
    assert TOKENS.admitted.shape == (77, len(TOKENS.symbols))
    assert len(set(TOKENS.symbols)) == len(TOKENS.symbols)
    assert TOKENS.rows[:64].tolist() == [i // 8 for i in range(64)]
    assert TOKENS.cols[:64].tolist() == [i % 8 for i in range(64)]
    assert (TOKENS.rows[64:] == -1).all()
    assert (TOKENS.cols[64:] == -1).all()
    assert (TOKENS.hands == -1).all()


def test_encoding_is_the_slow_one() -> None:
    rows = TOKENS.encode(STATES)
    assert rows.dtype == np.int16
    for state, row in zip(STATES, rows, strict=True):
        assert [TOKENS.symbols[i] for i in row] == slow_names(state.board)


def test_decoding_gives_the_same_position_in_both_views() -> None:
    for viewer in (0, 1):
        rows = TOKENS.encode(STATES, [viewer] * len(STATES))
        for state, row in zip(STATES[::3], rows[::3], strict=True):
            assert GAME.format(TOKENS.decode(row, viewer)) == GAME.format(state)


def test_player_one_sees_the_mirrored_position() -> None:
    viewers = np.arange(len(STATES)) % 2
    expected = [
        state.board.mirror().fen() if v else state.board.fen() for state, v in zip(STATES, viewers, strict=True)
    ]
    np.testing.assert_array_equal(TOKENS.encode(STATES, viewers), TOKENS.encode([GAME.parse(fen) for fen in expected]))


@pytest.mark.parametrize(
    "fen",
    [
        "r3k2r/8/8/8/8/8/8/R3K2R b Kq - 149 9999",
        "r3k2r/8/8/8/8/8/8/R3K2R w Qk - 999999 999999",
        "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
        "rnbqkbnr/pp2pppp/8/8/2pPP3/8/PPP2PPP/RNBQKBNR b KQkq d3 100 100",
        "4k3/8/8/Pp6/8/8/8/4K3 w - b6 0 1",
        "4k3/8/8/8/6pP/8/8/4K3 b - h3 0 1",
    ],
)
def test_rare_values_round_trip(fen: str) -> None:
    for viewer in (0, 1):
        row = TOKENS.encode([GAME.parse(fen)], [viewer])[0]
        assert TOKENS.admitted[np.arange(77), row].all()
        assert GAME.format(TOKENS.decode(row, viewer)) == fen


def test_what_is_admitted_is_what_occurs() -> None:
    """Squares: every piece, pawns not on the first and last rank. The rest: the symbols of the field, no others."""
    names = [{TOKENS.symbols[i] for i in np.flatnonzero(row)} for row in TOKENS.admitted]
    for square in range(64):
        expected = set(".PNBRQKpnbrqk") - (set("Pp") if square < 8 or square >= 56 else set())
        assert names[square] == expected
    assert names[64] == {"white", "black"}
    assert names[65:69] == [{"-", f"castling:{letter}"} for letter in "KQkq"]
    assert names[69] == {"-", *(f"ep:{file}" for file in "abcdefgh")}
    assert names[70] == {"-", "ep:3", "ep:6"}
    assert names[71:] == [{f"{n:02d}" for n in range(100)}] * 6
    for viewer in (0, 1):
        rows = TOKENS.encode(STATES, [viewer] * len(STATES))
        assert TOKENS.admitted[np.arange(77), rows].all()


def changed(**by_place: str) -> np.ndarray:
    row = START_ROW.copy()
    for place, name in by_place.items():
        row[int(place[1:])] = symbol(name)
    return row


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (START_ROW[:-1], "77"),
        (START_ROW.astype(float), "integer"),
        (np.stack([START_ROW] * 2), "shape"),
        (changed(_0="P"), "token 0.*'P'"),
        (changed(_64="-"), "token 64"),
        (changed(_65="castling:Q"), "token 65"),
        (changed(_71="a" if "a" in TOKENS.symbols else "ep:a"), "token 71"),
        (np.where(np.arange(77) == 5, -1, START_ROW), "token 5.*id -1"),
        (np.where(np.arange(77) == 5, len(TOKENS.symbols), START_ROW), "token 5"),
        (changed(_60="."), "White has no king"),
        (changed(_63="."), "castling right"),
        (changed(_69="ep:e"), "contradict"),
        (changed(_70="ep:6"), "contradict"),
        (changed(_69="ep:e", _70="ep:6"), "no double step"),
        (changed(_69="ep:e", _70="ep:3"), "no double step"),
        (changed(_76="00"), "full-move number 0"),
    ],
)
def test_rows_that_are_no_position(row: np.ndarray, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TOKENS.decode(row)


def test_an_idle_en_passant_square_is_no_encoding() -> None:
    row = TOKENS.encode([GAME.parse("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1")])[0]
    row[69], row[70] = symbol("ep:e"), symbol("ep:3")
    with pytest.raises(ValueError, match="without a legal capture"):
        TOKENS.decode(row)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_rows_decode_exactly_or_not_at_all(data: st.DataObject) -> None:
    viewer = data.draw(st.integers(0, 1))
    state = STATES[data.draw(st.integers(0, len(STATES) - 1))]
    row = TOKENS.encode([state], [viewer])[0]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, 76))
        row[place] = data.draw(st.sampled_from(np.flatnonzero(TOKENS.admitted[place]).tolist()))
    try:
        decoded = TOKENS.decode(row, viewer)
    except ValueError:
        return
    np.testing.assert_array_equal(TOKENS.encode([decoded], [viewer])[0], row)


@pytest.mark.parametrize("viewers", [[0], [0, 2], [[0, 1]]])
def test_viewers_are_zero_or_one_for_each_state(viewers: list) -> None:
    with pytest.raises(ValueError, match="viewers"):
        TOKENS.encode([GAME.parse()] * 2, viewers)


def test_counters_stay_at_the_largest_that_has_a_symbol() -> None:
    state = GAME.play(GAME.parse("8/8/4k3/8/8/3K4/R7/8 b - - 999999 999999"), GAME.moves.index("e6e7"))
    assert GAME.format(state).endswith("w - - 999999 999999")
    assert GAME.format(TOKENS.decode(TOKENS.encode([state])[0])) == GAME.format(state)


def test_no_states_no_rows() -> None:
    assert TOKENS.encode([]).shape == (0, 77)


def test_move_logits_are_queries_at_sources_by_keys_at_targets_with_a_head_for_each_promotion() -> None:
    """As Leela's heads; each of the 1,968 logits by the squares and the piece in the move's own text."""
    layout = Layout(GAME, "s-a", 1)
    net = network(layout, geometry="board", head="typed", move_rank=5)
    tokens = clean_tokens(layout, 1)
    hidden = net.trunk(tokens, None)[0]
    squares, action = hidden[torch.from_numpy(layout.squares_of("action")[0, :64])], hidden[layout.first_action]
    heads = net.get_submodule("head.moves")
    scores = []
    for head in heads.get_submodule("kinds").children():  # plain moves, then promotions to Q, R, B and N
        of_query, of_key = head.of_action(action).chunk(2)
        scores.append((head.query(squares) + of_query) @ (head.key(squares) + of_key).T / 5**0.5)
    texts = GAME.moves.texts
    pieces = [" qrbn".index(text[4:] or " ") for text in texts]
    sources, targets = ([chess.parse_square(text[i : i + 2]) ^ 56 for text in texts] for i in (0, 2))
    group = next(each for each in net(tokens).groups if layout.first_action in each.positions)
    got = group.logits[0, 0, : len(texts)]
    torch.testing.assert_close(got, torch.stack(scores)[pieces, sources, targets] + heads.bias, rtol=1e-9, atol=1e-9)
    promotions = [i for i, text in enumerate(texts) if text[:4] == "a7a8"]
    assert len(set(got[promotions].tolist())) == len(promotions) == 5
