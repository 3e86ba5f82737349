"""A pasted game: every format of every game, and what is wrong with a text that is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from genpolicy_play.web.importing import MAX_GAME_TEXT
from tests.play.web_server import TIC_TAC_TOE, Client, serving

KIF = "手合割：平手\n先手：A\n後手：B\n手数----指手---------消費時間--\n   1 ７六歩(77)\n   2 ３四歩(33)\n"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(["random"], ["chess", "shogi", TIC_TAC_TOE]) as made:
        yield made


@pytest.mark.parametrize(
    ("game", "text", "moves", "players", "result"),
    [
        ("chess", '[White "Ann"]\n\n1. e4 e5 *', ["e2e4", "e7e5"], ["Ann", ""], None),
        ("chess", "1. e4 {best by test} e5 (1... c5) 2. Nf3 1-0", ["e2e4", "e7e5", "g1f3"], ["", ""], 1),
        ("shogi", KIF, ["7g7f", "3c3d"], ["A", "B"], None),
        ("shogi", "PI\n+\n+7776FU\n-3334FU\n%TORYO\n", ["7g7f", "3c3d"], ["", ""], -1),
        ("shogi", "▲７六歩 △３四歩", ["7g7f", "3c3d"], ["", ""], None),
    ],
)
def test_a_game_is_read(
    client: Client, game: str, text: str, moves: list[str], players: list[str], result: float | None
) -> None:
    reply = client.post("/api/import", {"game": game, "text": text})
    assert reply.status == 200
    assert reply.json == {"game": game, "start": None, "moves": moves, "players": players, "result": result, "date": ""}


def test_a_game_from_another_start_keeps_it(client: Client) -> None:
    fen = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"
    said = client.post("/api/import", {"game": "chess", "text": f'[SetUp "1"]\n[FEN "{fen}"]\n\n1. e4 *'}).json
    assert (said["start"], said["moves"]) == (fen, ["e2e4"])


def test_what_is_exported_is_read_back(client: Client) -> None:
    for game, moves in (("chess", ["e2e4", "e7e5"]), ("shogi", ["7g7f", "3c3d"]), (TIC_TAC_TOE, ["a1", "b2"])):
        exported = client.post("/api/export", {"game": game, "moves": moves})
        said = client.post("/api/import", {"game": game, "text": exported.body.decode("cp932")}).json
        assert said["moves"] == moves


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"game": "chess", "text": "1. e4 e5 2. Nf6"}, "in PGN: move 2. 'Nf6' is illegal in 'rnbqkbnr/pppp1ppp"),
        ({"game": "chess", "text": '[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]\n\n1. e4'}, "White has no king"),
        ({"game": "chess", "text": "1. e4 e5 (1... c5 2. Nf3"}, "a variation '(' is still open where the file ends"),
        ({"game": "shogi", "text": "▲７六歩 △５五歩"}, "KIF, CSA, KIFU: move 2"),
        ({"game": "chess", "text": "8/8/8 w - - 0 1"}, "this is not a game in PGN"),
        ({"game": "chess", "text": " \n"}, "text must be a text that is not empty"),
        ({"game": "chess", "text": "1. e4\x00"}, "must hold no control characters"),
        ({"game": "chess", "text": "1" * (MAX_GAME_TEXT + 1)}, "at most 49,152 characters"),
        ({"game": "chess", "text": "1. e4 \ud800"}, "must hold no control characters"),
        ({"game": "chess", "text": 3}, "text must be a text"),
        ({"game": "draughts", "text": "1"}, 'game "draughts" is not offered'),
        ({"game": "chess", "text": "1. e4", "file": "/etc/passwd"}, "file"),
    ],
)
def test_what_is_wrong_is_said(client: Client, fields: dict[str, object], words: str) -> None:
    reply = client.post("/api/import", fields)
    assert reply.status == 400
    assert words in reply.error
    assert "genpolicy-" not in reply.error, "the name of a temporary folder"
