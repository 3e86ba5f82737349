"""Names of shogi's openings: each by a game that begins with it, with all moves legal; Japanese beside the English."""

from __future__ import annotations

import pytest

from genpolicy import load_game
from genpolicy_shogi.openings import JAPANESE, opening

GAME = load_game("shogi")
GAMES = {
    "Fourth File Rook": "7g7f 3c3d 6g6f 8c8d 2h6h",
    "Third File Rook": "7g7f 3c3d 6g6f 8c8d 2h7h",
    "Opposing Rook": "7g7f 3c3d 6g6f 8c8d 8h7g 8d8e 2h8h",
    "Central Rook": "5g5f 8c8d 2h5h",
    "Cheerful Central Rook": "7g7f 3c3d 2g2f 5c5d 2f2e 8b5b",
    "Ishida": "7g7f 3c3d 7f7e 8c8d 2h7h",
    "Double Ranging Rook": "7g7f 3c3d 6g6f 8b3b 2h6h",
    "Yagura": "7g7f 8c8d 7i6h 3c3d 6h7g",
    "Snowroof": "7g7f 8c8d 6g6f 3c3d 7i6h 7a6b 6h6g 5a4b 6i7h",
    "Bishop Exchange": "7g7f 8c8d 2g2f 8d8e 8h7g 3c3d 7i6h 2b7g+ 6h7g",
    "One-Turn-Loss Bishop Exchange": "7g7f 3c3d 2g2f 2b8h+ 7i8h",
    "Double Wing Attack": "2g2f 8c8d 2f2e 8d8e 6i7h 4a3b",
    "Side Pawn Capture": "7g7f 3c3d 2g2f 8c8d 2f2e 8d8e 6i7h 4a3b 2e2d 2c2d 2h2d 8e8f 8g8f 8b8f 2d3d",
    "Right Fourth File Rook": "7g7f 8c8d 4g4f 3c3d 2h4h",
    "Sleeve Rook": "7g7f 8c8d 3g3f 3c3d 2h3h",
}


def ids(usi: str) -> list[int]:
    """Absolute ids, every move checked."""
    state, found = GAME.parse(), []
    for text in usi.split():
        found.append(GAME.moves.index(text))
        state = GAME.play(state, found[-1])
    return found


@pytest.mark.parametrize("name", JAPANESE)
def test_every_opening_is_named(name: str) -> None:
    assert GAME.view.opening(ids(GAMES[name])) == name
    assert GAME.view.words["ja"][name] == JAPANESE[name]


def test_the_second_player_s_rook_is_seen_from_its_own_side() -> None:
    assert opening(["7g7f", "3c3d", "2g2f", "4c4d", "2f2e", "8b4b"]) == "Fourth File Rook"
    assert opening(["7g7f", "3c3d", "2g2f", "4c4d", "2f2e", "8b3b"]) == "Third File Rook"


def test_a_name_stays_and_no_game_has_none() -> None:
    assert opening([]) is None
    assert opening(["7g7f", "3c3d"]) is None
    fourth = GAMES["Fourth File Rook"].split()
    assert opening([*fourth, "5a4b", "5i4h", "4b3b", "4h3h", "7a6b", "3h2h"]) == "Fourth File Rook"


def test_what_is_dropped_is_not_looked_for_on_the_board() -> None:
    moves = [*GAMES["Bishop Exchange"].split(), "B*5e", "B*3c"]
    assert opening(moves) == "Bishop Exchange"
