"""The laws of a game's fixed tables: its move vocabulary and its state tokenizer.

Axes: L tokens of a state, S state symbols, M moves of the vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from genpolicy.game import Game


def check_moves(game: Game[Any]) -> None:
    """The move vocabulary: texts, index, tables of the factorised head, player 1's frame.

    Raises:
        AssertionError: a law does not hold; the message says which, of which game.
    """
    moves, num_moves, length = game.moves, len(game.moves), game.tokens.length
    _hold(game, "there are moves", num_moves > 0)
    _hold(game, "move texts are all different", len(set(moves.texts)) == num_moves)
    _hold(game, "moves are texts without spaces", all(text and not set(text) & set(" \t\n") for text in moves))
    found = [moves.index(moves[i]) for i in range(num_moves)]
    _hold(game, "moves.index(moves[i]) = i", found == list(range(num_moves)))
    law = "moves.index of a text that is not a move is a ValueError that quotes it"
    try:
        moves.index("no such move")
        _hold(game, law, False)
    except ValueError as error:
        _hold(game, law, "no such move" in str(error), error)
    for name in ("source", "target", "kind", "mirrored"):
        table = getattr(moves, name)
        is_whole = table.shape == (num_moves,) and table.dtype.kind == "i"
        _hold(game, f"moves.{name} has one integer a move", is_whole, name)
    for name in ("source", "target"):
        table = getattr(moves, name)
        _hold(game, f"moves.{name} is a state token or -1", bool(((table >= -1) & (table < length)).all()))
    _hold(game, "moves.kind lies in 0..num_kinds - 1", bool(((moves.kind >= 0) & (moves.kind < moves.num_kinds)).all()))
    _hold(game, "every kind has a move", set(moves.kind.tolist()) == set(range(moves.num_kinds)))
    triples = zip(moves.source.tolist(), moves.target.tolist(), moves.kind.tolist(), strict=True)
    factors = [triple for triple in triples if max(triple[:2]) >= 0]
    _hold(game, "no two moves with a square share source, target and kind", len(set(factors)) == len(factors))
    ids = np.arange(num_moves)
    permutes = np.array_equal(np.sort(moves.mirrored), ids) and np.array_equal(moves.mirrored[moves.mirrored], ids)
    _hold(game, "moves.mirrored is a permutation and its own inverse", permutes)
    turned = game.tokens.turned
    if isinstance(turned, tuple):
        places, is_square = np.append(turned[0], -1), np.append(game.tokens.rows >= 0, False)
        for name in ("source", "target"):
            table = getattr(moves, name)
            apart = np.flatnonzero(is_square[table] & (places[table[moves.mirrored]] != table))  # hands stay their own
            law = f"player 1 sees a move's {name} (moves.mirrored) where it sees that square (tokens.turned)"
            _hold(game, law, not len(apart), " ".join(moves[int(i)] for i in apart[:3]))
    with_none = np.append(ids, -1)[None]
    twice = moves.seen_by(moves.seen_by(with_none, np.array([1])), np.array([1]))
    _hold(game, "moves.seen_by is its own inverse and keeps -1", np.array_equal(twice, with_none))


def check_tokens(game: Game[Any]) -> None:
    """The state tokenizer's tables: symbols, what each position admits, places on the board.

    Raises:
        AssertionError: a law does not hold; the message says which, of which game.
    """
    tokens = game.tokens
    length, num_symbols = tokens.length, len(tokens.symbols)
    _hold(game, "symbols are all different", len(set(tokens.symbols)) == num_symbols)
    printable = all(symbol.strip() and symbol.isprintable() for symbol in tokens.symbols)
    _hold(game, "symbols are printable", printable)
    shape = f"L={length} tokens (the length of rows), S={num_symbols} symbols"
    for name in ("rows", "cols", "hands"):
        table = getattr(tokens, name)
        is_row = isinstance(table, np.ndarray) and table.shape == (length,) and table.dtype.kind == "i"
        law = f"tokens.{name} has one integer a token, -1 for none"
        _hold(game, law, is_row and bool((table >= -1).all()), f"{described(table)}, {shape}")
    is_table = isinstance(tokens.admitted, np.ndarray) and tokens.admitted.shape == (length, num_symbols)
    is_table = is_table and tokens.admitted.dtype == np.bool_
    _hold(game, "tokens.admitted is a bool table [L, S]", is_table, f"{described(tokens.admitted)}, {shape}")
    _hold(game, "every position admits a symbol", bool(tokens.admitted.any(axis=1).all()))
    _hold(game, "every symbol is admitted somewhere", bool(tokens.admitted.any(axis=0).all()))
    on_board = tokens.rows >= 0
    _hold(game, "a square has a row and a column", np.array_equal(on_board, tokens.cols >= 0))
    squares = list(zip(tokens.rows[on_board].tolist(), tokens.cols[on_board].tolist(), strict=True))
    _hold(game, "no two tokens are the same square", len(set(squares)) == len(squares))
    in_hand = tokens.hands >= 0
    _hold(game, "no token is a square and a hand slot", not bool((on_board & in_hand).any()))
    slots = tokens.hands[in_hand].tolist()
    _hold(game, "no two tokens are the same hand slot", len(set(slots)) == len(slots))
    for name, shape_of, least, end in (
        ("captured", (num_symbols,), -1, length),
        ("dropped", (length,), -1, num_symbols),
        ("promoted", (game.moves.num_kinds, num_symbols), 0, num_symbols),
    ):
        if (table := getattr(tokens, name)) is not None:
            law, found = f"tokens.{name} is an integer table {[*shape_of]} of {least}..{end - 1}", described(table)
            is_table = isinstance(table, np.ndarray) and table.shape == shape_of and table.dtype.kind == "i"
            _hold(game, law, is_table, found)
            lowest, highest = int(table.min()), int(table.max())
            _hold(game, law, least <= lowest and highest < end, f"{found}, {lowest}..{highest}")
    for each in (tokens, *game.tokenizers.values()):
        digits = [place for counter in each.counters for place in counter]
        apart = len(set(digits)) == len(digits) and all(0 <= place < length for place in digits)
        _hold(game, "tokens.counters are state tokens, each of one counter", apart and all(each.counters), digits)


def check_row(game: Game[Any], row: np.ndarray[Any, Any], text: str) -> None:
    """A row of ``encode``: int16, L long, every id admitted at its place."""
    tokens = game.tokens
    is_row = isinstance(row, np.ndarray) and row.dtype == np.int16 and row.shape == (tokens.length,)
    _hold(game, f"encode gives int16 rows of L ids (in {text!r})", is_row, f"{described(row)}, L={tokens.length}")
    inside = bool(((row >= 0) & (row < len(tokens.symbols))).all())
    _hold(game, f"encode gives ids of symbols (in {text!r})", inside, row)
    admitted = tokens.admitted[np.arange(len(row)), row]
    places = [f"{tokens.symbols[row[i]]!r} at {i}" for i in np.flatnonzero(~admitted)]
    _hold(game, f"every encoded id is admitted at its place (in {text!r})", not places, ", ".join(places))


def described(table: object) -> str:
    """What a table is, for messages: its type and shape, or its class where it is not an array."""
    return f"{table.dtype} {list(table.shape)}" if isinstance(table, np.ndarray) else f"a {type(table).__name__}"


def _hold(game: Game[Any], law: str, holds: object, detail: object = "") -> None:
    if not holds:
        raise AssertionError(f"{game.spec}: law broken: {law}" + (f" ({detail})" if str(detail) else ""))
