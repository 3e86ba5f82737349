"""Layout: which tokens of a sequence are state, action, value and code, and which symbols each of them can hold.

A paradigm is a string over s, a, v and k with a bar between what is given and what is imagined. ``s-asa`` at horizon 4
is ``s | a s a s a s a``: the root state is given, four moves and the three states between them are imagined (Ye et al.
2025, arXiv:2502.19805). A new paradigm is a row of ``PARADIGMS``, not code. A code (k) stands for a state by a few
learned symbols, one of each codebook, in place of its tokens.

Symbols of one vocabulary: states 0..S-1, then moves, then value bins (where the paradigm has values), then codes (where
it has codes, those of the first codebook first), then PAD (the game has ended). The mask of an absorbing process is one
more: ``num_symbols``.

Axes: N tokens of a sequence, n tokens of one kind, K symbols of the vocabulary, L tokens of a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy.encoding import StateTokenizer, ids_fingerprint
from genpolicy.errors import ConfigError
from genpolicy.game import Game

Kind = Literal["state", "action", "value", "code"]
KINDS: tuple[Kind, ...] = ("state", "action", "value", "code")
_KIND_OF: dict[str, Kind] = {"s": "state", "a": "action", "v": "value", "k": "code"}


@dataclass(frozen=True)
class Paradigm:
    """What is given, the root state first, what the first imagined ply holds, and what each further ply adds."""

    given: str
    first: str
    further: str

    def future(self, horizon: int) -> str:
        """The imagined part over s, a, v, k."""
        return self.first + self.further * (horizon - 1)


MOST_TOKENS = 20_000
"""Imagined tokens of the longest layout that is made: attention over more of them does not fit into memory."""

# Ye et al. 2025, Section 3.2 and Table 3; s-v and sa-v are Ruoss et al. 2024 (arXiv:2402.04494), one ply only.
PARADIGMS: dict[str, Paradigm] = {
    "s-a": Paradigm("s", "a", ""),
    "s-v": Paradigm("s", "v", ""),
    "sa-v": Paradigm("sa", "v", ""),
    "s-aa": Paradigm("s", "a", "a"),
    "s-asa": Paradigm("s", "a", "sa"),
    "s-ass": Paradigm("s", "a", "s"),
    "s-avav": Paradigm("s", "av", "av"),
    "s-avsav": Paradigm("s", "av", "sav"),
    "s-aka": Paradigm("s", "a", "ka"),
}


@dataclass(frozen=True)
class Slot:
    """One state, action, value or code of a sequence: tokens ``start`` to ``stop - 1``."""

    kind: Kind
    ply: int
    """0 for the root state and the first move; state ply p is the position after p imagined moves, code ply p what
    a learner encodes of it."""
    start: int
    stop: int
    given: bool


@dataclass(frozen=True, eq=False)
class SymbolGroup:
    """The tokens of one kind and the symbols that they share."""

    kind: Kind
    positions: NDArray[np.int64]
    """[n] their places in the sequence."""
    symbols: NDArray[np.int64]
    """[Kg] vocabulary ids of the kind's symbols in order, PAD last."""
    admitted: NDArray[np.bool_]
    """[n, Kg] which of them each token can hold; PAD by the layout's ``admit_pad``, never in what is given."""


class Layout:
    """The tokens of one training window or one imagined line.

    Args:
        game: Supplies the state symbols, their places and the move vocabulary.
        paradigm: A key of ``PARADIGMS``.
        horizon: Number of plies imagined, at least 1; the one-ply paradigms take only 1.
        num_value_bins: Bins of a value token (128 in Ruoss et al. 2024).
        num_books: Codebooks, each with a token of every code; at least 1 where the paradigm has codes.
        num_codes: Symbols of each codebook; at least 2 where the paradigm has codes.
        admit_pad: Whether an imagined token may be PAD. Only a model that was trained on PAD should admit it.
        tokenizer: Tokenizer of the states; None takes the game's own. In ``board`` geometry the sources and targets of
            the game's moves must be tokens of it.

    Raises:
        ConfigError: no such paradigm, or a horizon it cannot have.
    """

    def __init__(
        self,
        game: Game[Any],
        paradigm: str = "s-asa",
        horizon: int = 4,
        *,
        num_value_bins: int = 128,
        num_books: int = 0,
        num_codes: int = 0,
        admit_pad: bool = False,
        tokenizer: StateTokenizer[Any] | None = None,
    ) -> None:
        if paradigm not in PARADIGMS:
            raise ConfigError(f"paradigm {paradigm!r} does not exist; there are: {', '.join(PARADIGMS)}")
        shape = PARADIGMS[paradigm]
        if horizon < 1:
            raise ConfigError(f"horizon must be at least 1 ply, got {horizon}")
        if horizon > 1 and not shape.further:
            raise ConfigError(f"paradigm {paradigm!r} imagines one ply; set horizon=1, got {horizon}")
        if "k" in shape.further and (num_books < 1 or num_codes < 2):
            raise ConfigError(
                f"paradigm {paradigm!r} imagines codes, which only a learner has that makes them: at least 1 codebook "
                f"of 2 codes, got {num_books} of {num_codes}"
            )
        self.tokenizer = tokens = game.tokens if tokenizer is None else tokenizer
        # Counted before anything of that size is made.
        lengths = {"s": tokens.length, "k": num_books}
        own, more = (sum(lengths.get(letter, 1) for letter in text) for text in (shape.first, shape.further))
        if own + more * (horizon - 1) > MOST_TOKENS:
            raise ConfigError(
                f"horizon {horizon} of paradigm {paradigm!r} makes a sequence of more than {MOST_TOKENS:,} tokens; "
                f"take at most {1 + (MOST_TOKENS - own) // more}"
            )
        self.paradigm, self.horizon, self.admit_pad = paradigm, horizon, admit_pad
        self.state_symbols = tuple(tokens.symbols)
        self.moves = game.moves
        self.state_length = tokens.length
        future = shape.future(horizon)
        self.num_value_bins = num_value_bins if "v" in future else 0
        self.num_books, self.num_codes = (num_books, num_codes) if "k" in shape.further else (0, 0)
        self.slots = self._lay_out(shape.given, future)
        self.length = self.slots[-1].stop
        self.move_offset = len(self.state_symbols)
        self.value_offset = self.move_offset + len(self.moves)
        self.code_offset = self.value_offset + self.num_value_bins
        self.pad = self.code_offset + self.num_books * self.num_codes
        self.num_symbols = self.pad + 1
        self.mask = self.num_symbols
        self._describe_tokens()

    def _lay_out(self, given: str, future: str) -> tuple[Slot, ...]:
        slots: list[Slot] = []
        start = ply = 0
        for i, letter in enumerate(given + future):
            kind = _KIND_OF[letter]
            # The root is ply 0; an imagined state or code begins the next ply. Without any (s-aa) a second action does.
            repeats = any(slot.kind == kind and slot.ply == ply for slot in slots)
            if i > 0 and (kind in ("state", "code") or repeats):
                ply += 1
            stop = start + {"state": self.state_length, "code": self.num_books}.get(kind, 1)
            slots.append(Slot(kind, ply, start, stop, given=i < len(given)))
            start = stop
        return tuple(slots)

    def _describe_tokens(self) -> None:
        sizes = [slot.stop - slot.start for slot in self.slots]
        within = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])
        self.kinds = np.repeat(np.array([KINDS.index(slot.kind) for slot in self.slots], np.int64), sizes)
        """[N] index into ``KINDS``."""
        self.plies = np.repeat(np.array([slot.ply for slot in self.slots], np.int64), sizes)
        """[N] imagined ply of each token."""
        self.given = np.repeat([slot.given for slot in self.slots], sizes)
        """[N] the frozen prefix: never noised, never trained on."""
        self.places = np.where(self.kinds == KINDS.index("state"), within, -1)
        """[N] index of a state token within its state; -1 for other tokens."""
        self.books = np.where(self.kinds == KINDS.index("code"), within, -1)
        """[N] codebook of a code token; -1 for other tokens."""
        is_state = self.places >= 0
        self.rows, self.cols, self.hands = (
            np.where(is_state, of_token.astype(np.int64)[self.places], -1)
            for of_token in (self.tokenizer.rows, self.tokenizer.cols, self.tokenizer.hands)
        )

    @cached_property
    def groups(self) -> tuple[SymbolGroup, ...]:
        """The tokens by kind, in the order of ``KINDS``; kinds that do not occur are left out."""
        symbols_of: dict[Kind, NDArray[np.int64]] = {
            "state": np.arange(self.move_offset),
            "action": np.arange(self.move_offset, self.value_offset),
            "value": np.arange(self.value_offset, self.code_offset),
            "code": np.arange(self.code_offset, self.pad),
        }
        groups = []
        for index, kind in enumerate(KINDS):
            positions = np.flatnonzero(self.kinds == index)
            if len(positions) == 0:
                continue
            symbols = symbols_of[kind]
            admitted = np.ones((len(positions), len(symbols)), np.bool_)
            if kind == "state":
                admitted = self.tokenizer.admitted[self.places[positions]]
            elif kind == "code":
                admitted = np.arange(len(symbols)) // self.num_codes == self.books[positions, None]
            may_end = (~self.given[positions] & self.admit_pad)[:, None]
            groups.append(
                SymbolGroup(kind, positions, np.append(symbols, self.pad), np.concatenate([admitted, may_end], axis=1))
            )
        return tuple(groups)

    @cached_property
    def admitted(self) -> NDArray[np.bool_]:
        """[N, K] which symbols each token can hold."""
        table = np.zeros((self.length, self.num_symbols), np.bool_)
        for group in self.groups:
            table[group.positions[:, None], group.symbols[None, :]] = group.admitted
        return table

    @cached_property
    def blocks(self) -> NDArray[np.int64]:
        """[N] what is decided together when plies are imagined in order: 0, 1, ... for a move (with its value), the
        state or code after it, the next move, ...; -1 for what is given."""
        blocks = np.full(self.length, -1, np.int64)
        block = -1
        for slot in self.slots:
            if not slot.given:
                block = max(block + (slot.kind != "value"), 0)
                blocks[slot.start : slot.stop] = block
        return blocks

    def over(self, game: Game[Any], horizon: int) -> Layout:
        """The same over another number of plies; ``game`` is the one it was made for."""
        return Layout(
            game,
            self.paradigm,
            horizon,
            num_value_bins=self.num_value_bins,
            num_books=self.num_books,
            num_codes=self.num_codes,
            admit_pad=self.admit_pad,
            tokenizer=self.tokenizer,
        )

    def slot(self, kind: Kind, ply: int) -> Slot | None:
        """The slot of a kind at a ply, or None where the paradigm has none."""
        return next((s for s in self.slots if s.kind == kind and s.ply == ply), None)

    @property
    def first_action(self) -> int:
        """Place of the first imagined action.

        Raises:
            ConfigError: the paradigm imagines no action (s-v, sa-v).
        """
        for slot in self.slots:
            if slot.kind == "action" and not slot.given:
                return slot.start
        raise ConfigError(f"paradigm {self.paradigm!r} imagines no action")

    def squares_of(self, kind: Kind) -> NDArray[np.int64]:
        """[number of such tokens, L] for each action or value in order, where the state lies that it is made in or of.

        A paradigm without imagined states (s-aa) makes every move "in" the last state there is, the root.
        """
        rows = []
        for slot in self.slots:
            if slot.kind == kind:
                before = [s for s in self.slots if s.kind == "state" and s.ply <= slot.ply]
                rows.append(np.arange(before[-1].start, before[-1].stop))
        return np.stack(rows) if rows else np.zeros((0, self.state_length), np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that differ where token ids would mean something else."""
        shape = [self.paradigm, str(self.horizon), str(self.num_value_bins), str(self.state_length)]
        shape += [f"{self.num_books} x {self.num_codes}"] if self.num_books else []
        return ids_fingerprint(self.tokenizer, self.moves, *shape)
