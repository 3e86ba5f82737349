"""How a game becomes numbers: a fixed move vocabulary, a fixed-length state tokenizer, the grid of a move's planes.

Views and axes as in ``genpolicy.game``: B batch, L tokens of a state, S state symbols, M moves of the vocabulary.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from genpolicy.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

StateT = TypeVar("StateT")
IntArray = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class MoveVocabulary:
    """A fixed, ordered set of protocol moves (UCI, USI, ...) with what a factorised head needs to know of each.

    ``len(vocabulary)``, ``vocabulary[i]`` is the text of move i, ``vocabulary.index(text)`` the id of a text.
    """

    texts: tuple[str, ...]
    """Protocol texts in id order, all different."""
    source: NDArray[np.int16]
    """[M] index of the state token (0..L-1) that the move starts from: a square or a hand slot; -1 for none (a drop in
    k-in-a-row)."""
    target: NDArray[np.int16]
    """[M] index of the state token that the move ends on; -1 for none."""
    kind: NDArray[np.int16]
    """[M] 0 for a plain move; 1, 2, ... for promotions, drops and whatever else shares source and target. Moves that
    have neither may share one; a network takes ``move_rank: 0`` then."""
    num_kinds: int
    """Number of kinds, at least 1."""
    mirrored: NDArray[np.int64]
    """[M] the id of each move as player 1 sees it: a permutation that is its own inverse."""

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, move_id: int) -> str:
        return self.texts[move_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {text: i for i, text in enumerate(self.texts)}

    def index(self, text: str) -> int:
        """Id of a protocol move.

        Raises:
            ValueError: the text is not a move of the vocabulary.
        """
        try:
            return self._ids[text]
        except KeyError:
            raise ValueError(f"{text!r} is not a move of this vocabulary of {len(self)} moves") from None

    def seen_by(self, move_ids: IntArray, viewers: IntArray | int) -> NDArray[np.int64]:
        """Move ids as the viewers see them (and back: the map is its own inverse).

        Args:
            move_ids: Ids in 0..M-1, or negative for "no move" (kept as it is), shape [...] .
            viewers: 0 or 1, broadcast against the leading axis of ``move_ids``.
        """
        ids = np.asarray(move_ids, dtype=np.int64)
        viewer = np.asarray(viewers, dtype=np.int64)
        viewer = viewer.reshape(viewer.shape + (1,) * (ids.ndim - viewer.ndim))
        return np.where((viewer == 1) & (ids >= 0), self.mirrored[np.maximum(ids, 0)], ids)


@dataclass(frozen=True, eq=False)
class MovePlanes:
    """A grid of planes, rows and columns with a cell for each move, as convolutional policies use it.

    Several moves may share a cell; the legal moves of one position never do.
    """

    shape: tuple[int, int, int]
    """Planes, rows and columns; the last two are those of ``Game.planes``."""
    cells: NDArray[np.int64]
    """[M] cell ``(plane * rows + row) * columns + column`` of each move as its mover sees it
    (``MoveVocabulary.seen_by``); -1 for moves that no mover makes."""


def ids_fingerprint(tokenizer: StateTokenizer[Any], moves: Iterable[str], *shape: str) -> str:
    """Sixteen hex digits that differ where token ids would mean something else.

    Args:
        tokenizer: The state symbols, and where each may stand; learned weights where it has some.
        moves: Texts of the vocabulary in order.
        shape: What else decides the ids.
    """
    text = "\n".join([*shape, *tokenizer.symbols, "|", *moves])
    learned = tokenizer.fingerprint
    # Saved policies and checkpoints hold fingerprints from before a tokenizer had one: a plain table adds nothing.
    more = "" if learned == table_fingerprint(tokenizer) else learned
    return hashlib.sha256(text.encode() + tokenizer.admitted.tobytes() + more.encode()).hexdigest()[:16]


def table_fingerprint(tokenizer: StateTokenizer[Any]) -> str:
    """Sixteen hex digits of a tokenizer's symbols and of where each may stand."""
    return hashlib.sha256("\n".join(tokenizer.symbols).encode() + tokenizer.admitted.tobytes()).hexdigest()[:16]


class StateTokenizer(ABC, Generic[StateT]):
    """Turns states into rows of ``length`` symbol ids and, where it ``decodes``, back."""

    decodes: ClassVar[bool] = True
    """Whether ``decode`` gives back the state of any row that ``encode`` makes. Learned codes need not, nor rules that
    cannot be set to a position; what a policy imagines then has a text only where it is what the rules make of the
    line, and no other imagined board can be told from nonsense."""

    symbols: tuple[str, ...]
    """The S symbols in id order, printable."""
    admitted: NDArray[np.bool_]
    """[L, S] which symbols each position can hold."""
    rows: NDArray[np.int16]
    """[L] board row of each token, 0-based; -1 where it is not a square."""
    cols: NDArray[np.int16]
    """[L] board column of each token; -1 where it is not a square."""
    hands: NDArray[np.int16]
    """[L] hand slot of each token; -1 where it is not one."""

    @property
    def length(self) -> int:
        """Number L of tokens of a state."""
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        """A short text that differs where ids would mean something else: what weights and caches are held to.

        A tokenizer with learned weights overrides it and hashes them in, or a codebook that was trained again would
        read the windows of the old one.
        """
        return table_fingerprint(self)

    @property
    def turned(self) -> tuple[IntArray, IntArray] | None:
        """How a row looks from the other side: [L] the place that each token comes from, [S] what each symbol becomes.

        ``symbols[row[places]]``, both maps their own inverses; None where a tokenizer does not have such maps.
        """
        return None

    @property
    def captured(self) -> IntArray | None:
        """Where captured pieces go: [S] the token of a state whose count a captured symbol is added to, -1 for none.

        One more is the next symbol that the token admits. The same in every view; None in games without hands.
        """
        return None

    @property
    def dropped(self) -> IntArray | None:
        """What drops put on the board: [L] the symbol of a piece from the hand that a token counts, -1 elsewhere.

        Those are the pieces and hand of who drops, as that player sees them; the hand is the source of the move
        (``MoveVocabulary.source``). One less stays there: the symbol before, of those that the token admits. Drops of
        the other player follow from ``turned``; without it networks are not told of them. None in games without drops.
        """
        return None

    @property
    def promoted(self) -> IntArray | None:
        """What promotions make of pieces: [K, S] the symbol to which moves of each kind turn the one that they move.

        The symbol itself where it stays what it is. Kinds are ``MoveVocabulary.kind``, pieces those of both sides. The
        same in every view; None in games without promotions.
        """
        return None

    @property
    def counters(self) -> tuple[tuple[int, ...], ...]:
        """Counters of moves: each the tokens of a state that hold its digits, the most significant first.

        Every move adds one, unless it begins the count anew, as chess's captures do its half-move clock. The digits of
        a token are the symbols that it admits, in their order. The same in every view.
        """
        return ()

    def features(self) -> nn.Module | None:
        """Additional inputs of a network, computed from a state's symbols (``NetworkConfig.features``), or None.

        A module without weights that turns ids [B, L] of any view into numbers of size about 1, [B, L, F] floats, and
        has F as ``num_features``. An id that a place does not admit stands for nothing there.
        """
        return None

    @abstractmethod
    def encode(self, states: Sequence[StateT], viewers: Sequence[int] | IntArray | None = None) -> NDArray[np.int16]:
        """Token ids, shape [B, L], each state seen by its viewer (0 or 1; None: all by player 0, the absolute view).

        Raises:
            ValueError: a state holds something that has no symbol.
        """

    def decode(self, row: IntArray, viewer: int = 0) -> StateT:
        """The state of a row of L ids as ``viewer`` sees it; history is not in the tokens.

        Raises:
            ValueError: the row does not stand for a position of the game (wrong length, symbols that a place does not
                admit, or tokens that contradict each other), or the tokenizer does not decode.
        """
        raise ValueError(f"{type(self).__name__} has no decode; write one, or set decodes = False")


def checked_row(tokenizer: StateTokenizer[Any], row: IntArray, game: str) -> IntArray:
    """A row that ``decode`` is given, as an array [L]; ``game`` is what messages call its game.

    Raises:
        ValueError: wrong length, or a symbol that its position does not admit.
    """
    ids, length, num_symbols = np.asarray(row), tokenizer.length, len(tokenizer.symbols)
    if ids.shape != (length,) or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"a {game} state is {length} integer ids, got shape {ids.shape} of {ids.dtype}")
    outside = (ids < 0) | (ids >= num_symbols)
    refused = outside | ~tokenizer.admitted[np.arange(length), np.where(outside, 0, ids)]
    if refused.any():
        place = int(refused.argmax())
        name = f"id {ids[place]}" if outside[place] else repr(tokenizer.symbols[ids[place]])
        raise ValueError(f"token {place} of a {game} state does not admit {name}")
    return ids


def checked_viewers(viewers: Sequence[int] | IntArray, count: int) -> NDArray[np.int64]:
    """Who sees each of ``count`` states, as an array.

    Raises:
        ValueError: not so many players.
    """
    seen_by = np.asarray(viewers, np.int64)
    if seen_by.shape != (count,) or not np.isin(seen_by, (0, 1)).all():
        raise ValueError(f"viewers must be {count} times 0 or 1, got {viewers!r}")
    return seen_by


def turned_maps(tokenizer: StateTokenizer[Any], why: str) -> tuple[IntArray, IntArray]:
    """``tokenizer.turned``, where it cannot be done without, as ``why`` says at the beginning of the message.

    Raises:
        ConfigError: it has none, or a method in place of the property.
    """
    turned = tokenizer.turned
    if isinstance(turned, tuple):
        return turned
    found = "leaves it out" if turned is None else "has a method or something else of that name"
    raise ConfigError(
        f"{why}: the game's tokenizer must have 'turned', a property that gives (places, symbols), and "
        f"{type(tokenizer).__name__} {found} (docs/porting-a-game.md, section 7)"
    )
