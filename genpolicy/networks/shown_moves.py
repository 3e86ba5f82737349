"""Decided moves shown on the board, and what stood there before carried into every imagined state.

A network that only reads a move's own token has to find the squares concerned by attention, which takes it millions of
records. Here a decided move from place i to place j, made in the state of ply p, marks those places itself:

    state p:      x[i] += leave_before    x[j] += arrive_before + E_arriving(symbol at i in state p)
    state p + 1:  x[i] += leave_after     x[j] += arrive_after  + E_moved(symbol at i in state p) + kind of the move
                  x[k] += E_from(i) + E_to(j) + E_by(symbol at i in state p) + E_onto(symbol at j) at every place k

The last line is for what changes beside the two places: a rook that castles, a right that is lost, a hand that gains a
piece, a counter that begins anew.

Every imagined state token is also told the symbol that stood at its place one ply earlier: E_carry(symbol) for squares
and hands, a free vector for each place and symbol elsewhere (counters, rights, the side to move), whose changes have
nothing in common with each other. A state that is not decided yet counts as the nearest earlier one; the root is always
known. With ``outcome`` it is the symbol that the move between leaves there, as far as tables say: on a square j what
stood on square i, in the hand that takes the symbol at j one more; with ``pieces``, on j what a
promotion makes of the piece or the piece that is dropped, whose hand has one less. With ``counts``, what counts moves
(``counters`` of the tokenizer) has grown by one. The rest, such as a rook that castles or which moves begin a count
anew, is left to the network.

All of it comes from the layout and the game's move vocabulary. What is shown is what the input holds: where noise looks
like data (a multinomial process), a noisy move is shown as any other, and the network has to doubt both.

Axes: B batch, N tokens, W width, P states, L tokens of a state, A actions, S state symbols.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.encoding import IntArray
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.embedding import index_buffer
from genpolicy.sequence import Layout, Slot


def tables_of_places(layout: Layout) -> NDArray[np.int64]:
    """[L] the table of symbols of each place of a state: 0, which squares and hands share, or one of its own."""
    is_shared = (layout.tokenizer.rows >= 0) | (layout.tokenizer.hands >= 0)
    return np.where(is_shared, 0, np.cumsum(~is_shared))


class ShownMoves(nn.Module):
    """Features of decided moves and of carried symbols, added to the tokens of states.

    Args:
        layout: The tokens of a sequence; see ``applies``.
        width: W.
        num_input_symbols: Of the input, for the tables by symbol.
        causal: Whether the features of a token predict the next one, and it may show nothing later than itself: then
            only the state after a move is marked, one token to the left.
        levels: [N] a token may know of its own and lower levels: of a later move a state shows nothing; None: no limit.
        outcome: Whether imagined tokens are told what a move leaves instead of what stood there before it.
        counts: Whether imagined counters are told one more than the nearest decided count before them.
        pieces: Whether what a move leaves includes promotions and pieces that are dropped, at even plies by the viewer.
    """

    def __init__(
        self,
        layout: Layout,
        width: int,
        num_input_symbols: int,
        *,
        causal: bool = False,
        levels: NDArray[np.int64] | None = None,
        outcome: bool = True,
        counts: bool = True,
        pieces: bool = True,
    ) -> None:
        super().__init__()
        self.length, self.num_symbols, self.shift = layout.state_length, layout.move_offset, int(causal)
        states = [slot for slot in layout.slots if slot.kind == "state"]
        by_ply = {slot.ply: index for index, slot in enumerate(states)}
        actions = [slot for slot in layout.slots if slot.kind == "action" and slot.ply in by_ply]
        imagined = [_tokens(slot) - causal for slot in states if not slot.given]
        # Where the first token of the state lies that each of an action's four marks falls in.
        starts = np.zeros((len(actions), 4), np.int64)
        is_marked = np.zeros((len(actions), 4), np.bool_)
        for row, slot in enumerate(actions):
            before = states[by_ply[slot.ply]].start
            shows = not causal and (levels is None or levels[slot.start] <= levels[before])
            starts[row, :2], is_marked[row, :2] = before, shows
            if slot.ply + 1 in by_ply:
                starts[row, 2:], is_marked[row, 2:] = states[by_ply[slot.ply + 1]].start - causal, True
        after = [states[by_ply[slot.ply + 1]] for slot in actions if slot.ply + 1 in by_ply]
        # Source, target, source, target of each symbol that is a move; ``length`` is none.
        ends = np.full((num_input_symbols, 4), self.length, np.int64)
        kinds = np.zeros(num_input_symbols, np.int64)
        ids, moves = layout.move_offset + np.arange(len(layout.moves)), layout.moves
        kinds[ids] = moves.kind
        for columns, of_move in ((slice(0, None, 2), moves.source), (slice(1, None, 2), moves.target)):
            ends[ids, columns] = np.where(of_move >= 0, of_move, self.length)[:, None]
        tables = tables_of_places(layout)
        self.tells_outcome, self.tells_pieces = outcome, pieces
        self.counters = layout.tokenizer.counters if counts else ()
        self.state_tokens = index_buffer(np.stack([_tokens(slot) for slot in states]))
        self.action_tokens = index_buffer(np.array([slot.start for slot in actions]))
        self.state_of = index_buffer(np.array([by_ply[slot.ply] for slot in actions]))
        self.turn_of = index_buffer(np.array([slot.ply % 2 for slot in actions]))
        self.starts, self.is_marked = index_buffer(starts), index_buffer(is_marked)
        self.ends, self.kind_of = index_buffer(ends), index_buffer(kinds)
        self.is_square, self.count_of, self.more = map(index_buffer, _outcomes(layout))
        self.promoted, self.dropped, self.hand_of, self.less = map(index_buffer, _pieces(layout, num_input_symbols))
        self.digits, self.next_digit, self.is_last_digit = map(index_buffer, _digits(layout, self.counters))
        none = np.zeros(0, np.int64)
        self.told = index_buffer(np.concatenate([none, *(_tokens(slot) - causal for slot in after)]))
        self.imagined = index_buffer(np.concatenate([none, *imagined]))
        self.carried_rows = index_buffer(tables * self.num_symbols)
        self._ends_of = [[slot.stop for slot in slots] for slots in (states, actions, after)]
        self.marks = nn.Parameter(torch.empty(4, width))
        self.arriving = nn.Parameter(torch.empty(self.num_symbols + 1, width))
        self.moved = nn.Parameter(torch.empty(self.num_symbols + 1, width))
        self.kinds = nn.Parameter(torch.empty(moves.num_kinds, width))
        self.places_told = nn.Parameter(torch.empty(2 * (self.length + 1), width)) if after else None
        self.symbols_told = nn.Parameter(torch.empty(2 * (self.num_symbols + 1), width)) if after else None
        num_tables = 1 + int(tables.max())
        self.carry = nn.Parameter(torch.empty(num_tables * self.num_symbols, width)) if imagined else None

    @staticmethod
    def applies(layout: Layout) -> bool:
        """Whether there is anything to show: an imagined state, or a given move."""
        imagined_state, given_move = ("state", False), ("action", True)
        return any((slot.kind, slot.given) in (imagined_state, given_move) for slot in layout.slots)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Features [B, n, W] with the marks of ids [B, n] added, of the first n tokens."""
        b, n, width = x.shape
        num_states, num_actions, num_after = (sum(end <= n for end in ends) for ends in self._ends_of)
        known = self._known(tokens, num_states)
        if self.carry is not None and num_states > 1:
            symbols = self._told(tokens, known[:, :-1], num_after)
            carried = F.embedding(self.carried_rows + symbols, self.carry).reshape(b, -1, width)
            x = x.index_add(1, self.imagined[: carried.shape[1]], carried)
        if num_actions == 0:
            return x
        moves = tokens[:, self.action_tokens[:num_actions]]
        ends = self.ends[moves]
        is_place = ends < self.length
        at = ends.clamp(max=self.length - 1)
        symbols = known[:, self.state_of[:num_actions]].gather(2, at[..., :2])
        symbols = torch.where(is_place[..., :2], symbols, self.num_symbols)
        symbol = symbols[..., 0]
        if self.places_told is not None and self.symbols_told is not None and num_after:
            second = torch.arange(2, device=tokens.device)
            told = F.embedding(ends[:, :num_after, :2] + second * (self.length + 1), self.places_told)
            told = told + F.embedding(symbols[:, :num_after] + second * (self.num_symbols + 1), self.symbols_told)
            told = told.sum(2) * is_place[:, :num_after].any(-1, keepdim=True)
            x = x.index_add(1, self.told[: num_after * self.length], told.repeat_interleave(self.length, dim=1))
        none = self.marks.new_zeros(()).expand(b, num_actions, width)
        arriving = F.embedding(symbol, self.arriving)
        moved = F.embedding(symbol, self.moved) + F.embedding(self.kind_of[moves], self.kinds)
        marks = self.marks + torch.stack([none, arriving, none, moved], dim=2)
        starts = self.starts[:num_actions]
        is_marked = is_place & self.is_marked[:num_actions] & (starts < n)
        marks = marks * is_marked[..., None]
        rows = n * torch.arange(b, device=tokens.device)[:, None, None]
        places = rows + torch.where(is_marked, starts + at, 0)
        flat = x.reshape(b * n, width).index_add(0, places.flatten(), marks.flatten(0, 2))
        return flat.view(b, n, width)

    def told_symbols(self, tokens: Tensor) -> Tensor:
        """[B, n] the symbol that each imagined state token of ids [B, n] is told; elsewhere their number, S."""
        num_states, _, num_after = (sum(end <= tokens.shape[1] for end in ends) for ends in self._ends_of)
        told = torch.full_like(tokens, self.num_symbols)
        if num_states > 1:
            symbols = self._told(tokens, self._known(tokens, num_states)[:, :-1], num_after).flatten(1)
            told[:, self.imagined[: symbols.shape[1]] + self.shift] = symbols
        return told

    def _told(self, tokens: Tensor, symbols: Tensor, num_after: int) -> Tensor:
        """[B, P - 1, L] what imagined states are told, of the symbols known one ply earlier."""
        if self.tells_outcome and num_after:
            symbols = self._left_by(tokens[:, self.action_tokens[:num_after]], symbols, self.state_of[:num_after])
        return self._counted(symbols) if self.counters else symbols

    def _left_by(self, moves: Tensor, symbols: Tensor, of: Tensor) -> Tensor:
        """Symbols [B, P - 1, L], in states ``of`` [A] what the moves [B, A] leave there; the same where one is none."""
        ends = self.ends[moves]
        source, target = ends[..., 0:1], ends[..., 1:2]
        left = F.pad(symbols[:, of], (0, 1), value=self.num_symbols)  # the last place is none
        moved, taken = left.gather(2, source), left.gather(2, target)
        if self.tells_pieces:
            moved = self.promoted[self.kind_of[moves][..., None], moved]
        moved = torch.where(self.is_square[source], moved, taken)
        if self.tells_pieces:
            turn = self.turn_of[: moves.shape[1]]
            piece, hand = self.dropped[turn, moves][..., None], self.hand_of[turn, moves][..., None]
            moved = torch.where(piece < self.num_symbols, piece, moved)
            left = left.scatter(2, hand, self.less[hand, left.gather(2, hand)])
        left = left.scatter(2, target, moved)
        count = self.count_of[taken]
        left = left.scatter(2, count, self.more[count, left.gather(2, count)])
        return symbols.index_copy(1, of, left[..., :-1])

    def _counted(self, symbols: Tensor) -> Tensor:
        """Symbols [B, P - 1, L] with one more on every counter."""
        digits = symbols[..., self.digits]
        grown, end = list(digits.unbind(-1)), 0
        for counter in self.counters:
            start, end = end, end + len(counter)
            grows = torch.ones_like(digits[..., 0], dtype=torch.bool)
            for i in reversed(range(start, end)):  # a digit grows where all after it begin anew
                digit = grown[i]
                grown[i] = torch.where(grows, self.next_digit[i, digit], digit)
                grows = grows & self.is_last_digit[i, digit]
        return symbols.index_copy(-1, self.digits, torch.stack(grown, dim=-1))

    def _known(self, tokens: Tensor, num_states: int) -> Tensor:
        """[B, P, L] the symbol at each place of each state, or of the nearest earlier state where it is decided."""
        symbols = tokens[:, self.state_tokens[:num_states]]
        ply = torch.arange(symbols.shape[1], device=tokens.device)[:, None]
        latest = torch.where(symbols < self.num_symbols, ply, 0).cummax(dim=1).values
        return symbols.gather(1, latest).clamp(max=self.num_symbols - 1)


def without_drops(config: NetworkConfig, layout: Layout) -> NetworkConfig:
    """The options of a network over sequences in which the ply does not say whose hand a drop takes from.

    Raises:
        ConfigError: ``shown_pieces`` is asked for in a game with drops.
    """
    if layout.tokenizer.dropped is None:
        return config
    if config.shown_pieces:
        raise ConfigError(
            "learner.network.shown_pieces=true: whose hand a drop takes from is known with learner.viewer=mover alone, "
            "in games whose players alternate; leave it out"
        )
    return replace(config, shown_pieces=False)


def _tokens(slot: Slot) -> NDArray[np.int64]:
    return np.arange(slot.start, slot.stop)


def _outcomes(layout: Layout) -> tuple[NDArray[np.generic], ...]:
    """Tables for what moves leave, with a last row and column for no place and no symbol.

    [L + 1] which places are squares, [S + 1] the place whose count a captured symbol is added to, and [L + 1, S + 1]
    the symbol for one more, or the symbol itself where there is none.
    """
    tokenizer, length, num = layout.tokenizer, layout.state_length, layout.move_offset
    counts, more = np.full(num + 1, length), np.tile(np.arange(num + 1), (length + 1, 1))
    if (captured := tokenizer.captured) is not None:
        counts[: len(captured)] = np.where(captured >= 0, captured, length)
        for place in np.unique(captured[captured >= 0]):
            held = np.flatnonzero(tokenizer.admitted[place])
            more[place, held[:-1]] = held[1:]
    return np.append(tokenizer.rows >= 0, False), counts, more


def _pieces(layout: Layout, num_input_symbols: int) -> tuple[NDArray[np.generic], ...]:
    """Tables for promotions and drops, with a last row and column for no place and no symbol.

    [K, S + 1] what a moved symbol becomes by each kind of move; [2, I] the piece that each symbol of the input drops
    and the place that counts its hand, as a move of the viewer and of the other player; and [L + 1, S + 1] the symbol
    for one less, or the symbol itself where there is none.
    """
    tokenizer, length, num = layout.tokenizer, layout.state_length, layout.move_offset
    promoted = np.tile(np.arange(num + 1), (layout.moves.num_kinds, 1))
    if tokenizer.promoted is not None:
        promoted[:, : tokenizer.promoted.shape[1]] = tokenizer.promoted
    pieces, hands = np.full((2, num_input_symbols), num), np.full((2, num_input_symbols), length)
    less = np.tile(np.arange(num + 1), (length + 1, 1))
    if (dropped := tokenizer.dropped) is not None:
        # The source of each move as who makes it sees it, and how the viewer sees that one's places and symbols.
        views: list[tuple[IntArray, ...]] = [(layout.moves.source, np.arange(length), np.arange(num))]
        if tokenizer.turned is not None:
            views.append((layout.moves.source[layout.moves.mirrored], *tokenizer.turned))
        for turn, (source, places, symbols) in enumerate(views):
            drops = np.flatnonzero((source >= 0) & (dropped[source] >= 0))
            pieces[turn, num + drops], hands[turn, num + drops] = symbols[dropped[source[drops]]], places[source[drops]]
        for place in np.unique(hands[hands < length]):
            held = np.flatnonzero(tokenizer.admitted[place])
            less[place, held[1:]] = held[:-1]
    return promoted, pieces, hands, less


def _digits(layout: Layout, counters: tuple[tuple[int, ...], ...]) -> tuple[NDArray[np.generic], ...]:
    """Tables of the D digits of all counters: their places [D], the symbol after each [D, S], which is the last.

    After the last comes the first.
    """
    places, num = [place for counter in counters for place in counter], layout.move_offset
    after, is_last = np.tile(np.arange(num), (len(places), 1)), np.zeros((len(places), num), np.bool_)
    for row, place in enumerate(places):
        held = np.flatnonzero(layout.tokenizer.admitted[place])
        after[row, held], is_last[row, held[-1]] = np.roll(held, -1), True
    return np.array(places), after, is_last
