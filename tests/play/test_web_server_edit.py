"""``/api/edit``: symbols on places, as a picture and as a position, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")
pytest.importorskip("chess", reason="needs the extra [chess]")
pytest.importorskip("cshogi", reason="needs the extra [shogi]")

from genpolicy import load_game
from genpolicy_play.web.editing import symbols_of
from tests.play.web_server import TIC_TAC_TOE, Client, serving

FOUR = "connect:rows=6,cols=7,k=4,gravity=true"
PIG = "pig:goal=100,faces=6,bust=1"
GAMES = ("chess", "shogi", TIC_TAC_TOE, FOUR)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(["random"], [*GAMES, "pig"]) as started:
        yield started


def edit(client: Client, game: str, **fields: Any) -> Any:
    reply = client.post("/api/edit", {"game": game, **fields})
    assert reply.status == 200, reply.body
    return reply.json


@pytest.mark.parametrize("spec", GAMES)
def test_symbols_and_text_stand_for_each_other_along_a_game(client: Client, spec: str) -> None:
    game = load_game(spec)
    state = game.parse()
    for ply in range(12):
        if game.outcome(state) is not None:
            break
        first = edit(client, spec, start=game.format(state))
        again = edit(client, spec, cells=first["cells"])
        assert again["wrong"] is None
        assert first["cells"] == again["cells"] == symbols_of(game, again["text"])
        assert game.player(game.parse(again["text"])) == game.player(state)
        assert again["svg"].startswith("<svg")
        legal = game.legal(state)
        state = game.play(state, int(legal[7 * ply % len(legal)]))


@pytest.mark.parametrize("spec", GAMES)
def test_every_square_symbol_is_offered_with_a_name_and_a_picture(client: Client, spec: str) -> None:
    game, offer = load_game(spec), edit(client, spec)
    squares = np.flatnonzero(game.tokens.admitted[game.tokens.rows >= 0].any(axis=0))
    assert [piece["symbol"] for piece in offer["pieces"]] == [game.tokens.symbols[int(i)] for i in squares]
    assert all(piece["name"] and piece["svg"].startswith("<svg") for piece in offer["pieces"])
    assert next(fact["label"] for fact in offer["facts"]) == "to move"
    assert len(offer["hands"]) == int((game.tokens.hands >= 0).sum())
    assert edit(client, spec, cells=offer["usual"])["text"] == game.format(game.parse())


def test_counters_and_en_passant_are_those_of_the_start(client: Client) -> None:
    fen = "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 7 30"
    first = edit(client, "chess", start=fen)
    assert first["text"] == "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq - 0 1"


@pytest.mark.parametrize(
    ("spec", "changes", "why"),
    [
        ("chess", {60: "."}, "White has no king"),
        ("chess", {0: "P"}, "a white pawn cannot stand on row 8"),
        ("shogi", {40: "K"}, "a side has more than one king"),
        ("shogi", {4: "."}, ""),  # a mate problem
        (FOUR, {0: "X", 42: "o"}, "a stone floats above an empty square"),
        (TIC_TAC_TOE, {0: "O"}, "with X to move there are as many X as O, not 0 X and 1 O"),
    ],
)
def test_what_the_rules_do_not_allow_is_said(client: Client, spec: str, changes: dict[int, str], why: str) -> None:
    cells = edit(client, spec)["usual"]
    for place, symbol in changes.items():
        cells[place] = symbol
    answer = edit(client, spec, cells=cells)
    assert (answer["wrong"] or "").startswith(why)
    assert (answer["text"] is None) == bool(why)
    assert answer["svg"].startswith("<svg")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cells": ["."]}, "cells must be 77 symbols of chess"),
        ({"cells": ["?"] * 77}, "cells must be 77 symbols of chess"),
        ({"cells": "."}, "must be a list"),
        ({"cells": [1]}, "must be a text"),
        ({"start": "8/8"}, "is not a FEN"),
        ({"game": PIG}, "cannot be set up here"),
        ({"strat": None}, "did you mean"),
    ],
)
def test_malformed_questions_are_refused(client: Client, fields: dict[str, Any], said: str) -> None:
    reply = client.post("/api/edit", {"game": "chess", **fields})
    assert reply.status == 400
    assert said.lower() in reply.error.lower()
