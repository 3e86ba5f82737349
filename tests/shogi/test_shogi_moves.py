"""The 4685 moves, the mover's 3781, and dlshogi's labels, against the library, the reference tables and brute force."""

from __future__ import annotations

import random
from typing import Any

import cshogi
import numpy as np
import pytest
from cshogi import dlshogi

from genpolicy_shogi import labels
from genpolicy_shogi.moves import DROP, MOVE16, MOVER_INDEX, MOVER_MOVES, PLAIN, PROMOTION
from tests.shogi.naive_shogi import Position
from tests.shogi.shogi_positions import GAME, play, random_states, reference, turned, turned_move, usi

MOVES = GAME.moves
STATES = random_states(3000, seed=21)


def one_piece_moves(side: str) -> set[str]:
    """Every move that a side can make on a board with one piece of it, or with one in hand: brute force."""
    found: set[str] = set()
    for piece in ("P", "L", "N", "S", "G", "B", "R", "K", "+P", "+L", "+N", "+S", "+B", "+R"):
        for square in range(81):
            position = Position(f"9/9/9/9/9/9/9/9/9 {side} - 1")
            position.squares[9 - square % 9, square // 9 + 1] = piece if side == "b" else piece.lower()
            found.update(position.moves())
    found.update(Position(f"9/9/9/9/9/9/9/9/9 {side} {'RBGSNLP' if side == 'b' else 'rbgsnlp'} 1").moves())
    return found


def test_the_vocabulary_is_every_move_of_every_piece() -> None:
    black, white = one_piece_moves("b"), one_piece_moves("w")
    assert len(black) == len(white) == 3781
    # Dead moves of one piece (a pawn's last step unpromoted) are other pieces' moves; nothing else is left over.
    assert black | white == set(MOVES.texts)
    assert len(MOVES) == reference()["vocab"]["absolute_usi"] == 4685
    assert {MOVES[i] for i in MOVER_MOVES} == black
    assert len(MOVER_MOVES) == reference()["vocab"]["side_to_move_usi"] == 3781
    assert np.array_equal(MOVER_INDEX[MOVER_MOVES], np.arange(3781))
    assert (np.delete(MOVER_INDEX, MOVER_MOVES) == -1).all()


def test_kinds_sources_and_targets() -> None:
    tokens = GAME.tokens
    assert np.bincount(MOVES.kind).tolist() == [2272, 1846, 567]
    for i, text in enumerate(MOVES):
        file, rank = 9 - tokens.cols[MOVES.target[i]], "abcdefghi"[tokens.rows[MOVES.target[i]]]
        assert text[2:4] == f"{file}{rank}"
        source = MOVES.source[i]
        if "*" in text:
            assert MOVES.kind[i] == DROP
            assert tokens.hands[source] == "PLNSGBR".index(text[0])  # the viewer's own hand
        else:
            assert text[:2] == f"{9 - tokens.cols[source]}{'abcdefghi'[tokens.rows[source]]}"
            assert MOVES.kind[i] == (PROMOTION if text.endswith("+") else PLAIN)


def test_player_1_sees_moves_turned() -> None:
    assert [MOVES[i] for i in MOVES.mirrored] == [turned_move(text) for text in MOVES]


def test_the_librarys_numbers() -> None:
    board = cshogi.Board("4k4/9/9/9/4B4/9/9/9/4K4 b RBGSNLP 1")
    for move in board.legal_moves:
        assert MOVE16[MOVES.index(cshogi.move_to_usi(move))] == cshogi.move16(move)


def test_labels_of_every_move_as_the_reference_tables_have_them() -> None:
    for player, colour in enumerate(("black", "white")):
        table = reference()[f"{colour}_move_labels"]
        ids = np.array([MOVES.index(text) for text in table])
        assert len(ids) == 3781
        assert GAME.labels(ids, player).tolist() == list(table.values())
        others = np.setdiff1d(np.arange(len(MOVES)), ids)
        for move in others[::40]:
            with pytest.raises(ValueError, match="no label"):
                GAME.labels(np.array([move]), player)


def test_reachable_labels() -> None:
    assert labels.REACHABLE.tolist() == reference()["reachable_labels"]
    assert len(labels.REACHABLE) == 1496
    # Per plane, board planes before drops, as counted from dlshogi's own table.
    per_plane = np.bincount(labels.REACHABLE // 81, minlength=27).tolist()
    assert per_plane == [
        *(72, 64, 64, 72, 72, 72, 64, 64, 40, 40),
        *(27, 24, 24, 24, 24, 72, 49, 49, 24, 24),
        *(72, 72, 63, 81, 81, 81, 81),
    ]
    assert np.array_equal(labels.COMPACT[labels.REACHABLE], np.arange(1496))
    assert (labels.COMPACT == -1).sum() == 2187 - 1496


def library_labels(state: Any) -> dict[str, int]:
    return {
        cshogi.move_to_usi(move): dlshogi.make_move_label(move, state.board.turn) for move in state.board.legal_moves
    }


def test_labels_of_legal_moves_and_back() -> None:
    seen: set[int] = set()
    positions = [GAME.parse(position["sfen"]) for position in reference()["positions"]]
    for state in [*positions, *STATES[::3]]:
        legal = GAME.legal(state)
        found = labels.legal_labels(state, MOVES.mirrored)
        assert dict(zip(usi(state), found.tolist(), strict=True)) == library_labels(state)
        assert len(set(found.tolist())) == len(legal)  # one label, one move
        assert np.array_equal(GAME.labels(legal, GAME.player(state)), found)
        for move, label in list(zip(legal.tolist(), found.tolist(), strict=True))[:5]:
            assert GAME.move_of_label(state, label) == move
        seen |= set(found.tolist())
    assert seen <= set(labels.REACHABLE.tolist())
    assert len(seen) > 1300


def test_reference_labels_and_labels_without_a_move() -> None:
    for position in reference()["positions"]:
        state = GAME.parse(position["sfen"])
        ids = np.array([MOVES.index(text) for text in position["legal"]], np.int64)
        assert GAME.labels(ids, GAME.player(state)).tolist() == position["dlshogi_labels"]
    start = GAME.parse()
    none = np.setdiff1d(np.arange(2187), labels.legal_labels(start, MOVES.mirrored))
    for label in (*none[::300].tolist(), -1, 2187):
        with pytest.raises(ValueError, match=rf"label {label} "):
            GAME.move_of_label(start, label)


def test_labels_of_a_batch_with_both_players() -> None:
    states = random.Random(1).sample(STATES, 40)
    states = [state for state in states if len(GAME.legal(state))]
    moves = np.array([GAME.legal(state)[0] for state in states])
    players = np.array([GAME.player(state) for state in states])
    assert set(players.tolist()) == {0, 1}
    expected = [library_labels(state)[MOVES[move]] for state, move in zip(states, moves, strict=True)]
    assert GAME.labels(moves, players).tolist() == expected
    for state, move in zip(states, moves, strict=True):
        other = GAME.parse(turned(GAME.format(state)))
        assert GAME.labels(MOVES.mirrored[[move]], GAME.player(other)) == GAME.labels(
            np.array([move]), GAME.player(state)
        )


@pytest.mark.parametrize(
    ("text", "usi_text"),
    [
        ("7g7f", "7g7f"),
        (" 7G7F\n", "7g7f"),
        ("7776FU", "7g7f"),
        ("+7776FU", "7g7f"),
        ("７ｇ７ｆ", "7g7f"),
        ("2868hi", "2h6h"),
        ("７六歩", "7g7f"),
        ("▲７六歩(77)", "7g7f"),
        ("76歩", "7g7f"),
        ("５八金右", "4i5h"),
    ],
)
def test_typed_moves(text: str, usi_text: str) -> None:
    assert GAME.move_from_text(GAME.parse(), text) == MOVES.index(usi_text)


def test_typed_drops_and_promotions() -> None:
    state = GAME.parse("4k4/9/9/4P4/9/9/9/9/4K4 b G 1")
    for text, expected in (
        ("g*5b", "G*5b"),
        ("0052KI", "G*5b"),
        ("5d5c+", "5d5c+"),
        ("5453TO", "5d5c+"),
        ("5453FU", "5d5c"),
    ):
        assert GAME.move_from_text(state, text) == MOVES.index(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "7g7e",
        "△７六歩",
        "５八金",
        "同歩",
        "７六銀",
        "７六歩(66)",
        "歩",
        "-7776FU",
        "7776KY",
        "e2e4",
        "P*5e",
        "7g7f+",
        "resign",
        "win",
        "*",
        "7g7f7e",
    ],
)
def test_typed_moves_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="illegal in") as caught:
        GAME.move_from_text(GAME.parse(), text)
    assert repr(text) in str(caught.value)


def test_typed_recapture() -> None:
    state = play(GAME.parse(), "7g7f", "3c3d", "8h2b+")
    assert GAME.move_from_text(state, "同　銀") == GAME.move_from_text(state, "△同銀(31)") == MOVES.index("3a2b")
    with pytest.raises(ValueError, match=r"▲ marks a move of the side that is not to move"):
        GAME.move_from_text(state, "▲同銀")
