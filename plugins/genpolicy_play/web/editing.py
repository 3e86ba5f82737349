"""Setting up a position: any symbol on any place, drawn as it stands, and judged by the rules of the game."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from genpolicy.game import Game
from genpolicy_play.drawing import board_of_symbols, board_svg
from genpolicy_play.web.requests import MAX_MOVE, MAX_TEXT, Fields, RequestError

EDIT_FIELDS = ("game", "start", "cells", "flip")
MAX_CELLS = 4096


def empty_symbol(game: Game[Any]) -> str | None:
    """The symbol of a square without a piece, which a drawing calls ``empty``; None where it calls none so."""
    names = game.view.drawing.names
    return next((symbol for symbol in game.tokens.symbols if names.get(symbol) == "empty"), None)


def is_editable(game: Game[Any]) -> bool:
    """Whether positions can be set up: the tokens stand for them, and the drawing says what an empty square is."""
    return game.tokens.decodes and empty_symbol(game) is not None


def edited(game: Game[Any], fields: Fields) -> dict[str, Any]:
    """A position as its symbols, how it looks, and its text or what is wrong with it.

    Args:
        game: The rules.
        fields: ``start``, the text of a position, for its symbols and what may be put where; or ``cells``, the symbols
            of all places.

    Raises:
        RequestError: a text that is not a position, malformed symbols, or a game without such an editor.
    """
    if not is_editable(game):
        raise RequestError(f"positions of {game.view.title} cannot be set up here; paste one")
    flip, cells = fields.flag("flip"), fields.texts("cells", most=MAX_CELLS, length=MAX_MOVE)
    more: dict[str, Any] = {}
    if not cells:
        cells = symbols_of(game, fields.optional_text("start", most=MAX_TEXT))
        more = choices_of(game)
    text, wrong = judged(game, cells)
    drawing = board_svg(game, board_of_symbols(game, cells), flipped=flip)
    return {"cells": cells, "text": text, "wrong": wrong, "svg": drawing, **more}


def symbols_of(game: Game[Any], text: str | None) -> list[str]:
    """The symbols of a position's places.

    Counters and what else no field of the editor shows are those of the initial position.

    Raises:
        RequestError: the text is not a position.
    """
    try:
        row, usual = (game.tokens.encode([game.parse(each)])[0] for each in (text, None))
    except ValueError as error:
        raise RequestError(str(error)) from error
    shown = (game.tokens.rows >= 0) | (game.tokens.hands >= 0)
    shown[list(game.view.drawing.facts)] = True
    return [game.tokens.symbols[int(symbol)] for symbol in np.where(shown, row, usual)]


def choices_of(game: Game[Any]) -> dict[str, Any]:
    """What may be put where: the pieces, the counts of the hands, the facts beside the board.

    ``clear`` holds the symbols of an empty board; facts have their first symbol there.
    """
    tokens, drawing, empty = game.tokens, game.view.drawing, empty_symbol(game)
    assert empty is not None
    on_board = np.flatnonzero(tokens.admitted[tokens.rows >= 0].any(axis=0))
    pieces = [tokens.symbols[int(i)] for i in on_board]
    admitted = [[tokens.symbols[int(i)] for i in np.flatnonzero(of_place)] for of_place in tokens.admitted]
    free = [place for place in range(tokens.length) if tokens.hands[place] >= 0 or place in drawing.facts]
    clear = symbols_of(game, None)
    for place in range(tokens.length):
        clear[place] = empty if tokens.rows[place] >= 0 else admitted[place][0] if place in free else clear[place]
    return {
        "pieces": [
            {"symbol": each, "name": drawing.names.get(each, each), "svg": _picture(game, each)} for each in pieces
        ],
        "empty": empty,
        "hands": {place: admitted[place] for place in free if tokens.hands[place] >= 0},
        "facts": [
            {
                "place": place,
                "label": label,
                "choices": [{"symbol": each, "name": drawing.names.get(each, each)} for each in admitted[place]],
            }
            for place, label in drawing.facts.items()
        ],
        "clear": clear,
        "usual": symbols_of(game, None),
    }


def judged(game: Game[Any], cells: list[str]) -> tuple[str | None, str | None]:
    """The text of a position that is set up and None, or None and what is wrong with it.

    Raises:
        RequestError: not one symbol of the game for each place.
    """
    tokens, drawing = game.tokens, game.view.drawing
    ids = {symbol: i for i, symbol in enumerate(tokens.symbols)}
    if len(cells) != tokens.length or not set(cells) <= set(ids):
        raise RequestError(f"cells must be {tokens.length} symbols of {game.spec}, one for each place")
    row = np.array([ids[symbol] for symbol in cells], np.int16)
    refused = np.flatnonzero(~tokens.admitted[np.arange(tokens.length), row])
    if len(refused):
        place = int(refused[0])
        piece = drawing.names.get(cells[place], cells[place])
        return None, f"a {piece} cannot stand on row {_row_name(game, place)}"
    try:
        text = game.format(tokens.decode(row))
        return game.format(game.parse(text)), None
    except ValueError as error:
        return None, str(error).rpartition(": ")[2]  # before it stands the text, which the picture shows


def _row_name(game: Game[Any], place: int) -> str:
    row, names = int(game.tokens.rows[place]), game.view.drawing.rows
    return names[row] if 0 <= row < len(names) else str(row + 1)


def _picture(game: Game[Any], symbol: str) -> str:
    """A piece alone, as SVG."""
    drawn = game.view.drawing.pieces.get(symbol)
    if drawn is None:
        drawn = f'<text x="50" y="68" font-size="52" text-anchor="middle">{escape(symbol)}</text>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">{drawn}</svg>'
