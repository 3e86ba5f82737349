"""Positions that the tests of shogi share: the reference file, random games, and a board turned around as text."""

from __future__ import annotations

import gzip
import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import genpolicy

GAME: Any = genpolicy.load_game("shogi")


@lru_cache(maxsize=1)
def reference() -> dict[str, Any]:
    """Positions made with cshogi 1.1.0 and compared with three other programs; the file's ``about`` says more."""
    return json.loads(gzip.decompress((Path(__file__).parent / "shogi_vectors.json.gz").read_bytes()))


def usi(state: Any) -> list[str]:
    return [GAME.moves[i] for i in GAME.legal(state)]


def play(state: Any, *moves: str) -> Any:
    for move in moves:
        state = GAME.play(state, GAME.moves.index(move))
    return state


def random_game(rng: random.Random, start: str | None = None, plies: int = 400) -> list[Any]:
    states = [GAME.parse(start)]
    while len(states) <= plies:
        legal = GAME.legal(states[-1])
        if len(legal) == 0:
            break
        states.append(GAME.play(states[-1], int(rng.choice(legal))))
    return states


def random_states(count: int, seed: int) -> list[Any]:
    """Positions of random games from the initial position, in playing order."""
    rng, states = random.Random(seed), []
    while len(states) < count:
        states += random_game(rng)
    return states[:count]


def turned(sfen: str) -> str:
    """The text of a position with the board turned around and the colours exchanged."""
    board, side, hands, number = sfen.split()
    # Reversing the text turns the board; a "+" then stands behind its piece and has to go before it again.
    characters = list(board[::-1].swapcase())
    for i in range(1, len(characters)):
        if characters[i] == "+":
            characters[i - 1], characters[i] = characters[i], characters[i - 1]
    order = "RBGSNLPrbgsnlp"
    counts, digits = dict.fromkeys(order, 0), ""
    for char in hands.replace("-", ""):
        if char.isdigit():
            digits += char
        else:
            counts[char.swapcase()], digits = int(digits or 1), ""
    held = "".join((str(counts[c]) if counts[c] > 1 else "") + c for c in order if counts[c])
    return f"{''.join(characters)} {'wb'['bw'.index(side)]} {held or '-'} {number}"


def turned_square(name: str) -> str:
    return f"{10 - int(name[0])}{chr(ord('a') + ord('i') - ord(name[1]))}"


def turned_move(move: str) -> str:
    """A USI move as the other side sees it."""
    source = move[:2] if move[1] == "*" else turned_square(move[:2])
    return source + turned_square(move[2:4]) + move[4:]
