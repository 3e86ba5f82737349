"""Noise ordered by ply: one block of a record is noised, those before it are clean, those after it are cut off.

Under noise over the whole future a move is seldom a question: it is masked while a changed square is in sight that
gives it away. Ordered by ply it is one whenever its own block is drawn. This is block diffusion (Arriola et
al. 2025, arXiv:2503.09573) with a move and the board after it as blocks.

-log p(future | root) is the sum over blocks of -log p(block | root, blocks before it), so the bound is the sum of the
blocks' bounds. Where attention is block-causal, one pass may train all blocks of a record (``one_pass``).

Axes: B batch, N tokens, K blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.random import uniforms
from genpolicy.encoding import turned_maps
from genpolicy.errors import ConfigError
from genpolicy.networks.every_block import EveryBlock, block_spans
from genpolicy.policies.any_move import AnyMove
from genpolicy.policies.comparison import Comparison
from genpolicy.sequence import KINDS, Layout

if TYPE_CHECKING:
    from genpolicy.game import Game
    from genpolicy.policies.diffusion import DiffusionLearner

ORDERS = ("joint", "ply")
SHARES = {"state_share": 0.15, "first_state_share": 0.0, "move_share": 0.1, "joint_share": 0.0}
"""Part of the records in which a state, the state after the first move, a later move, or all under noise over the whole
future, as samplers need that decide in another order, is restored beside the first move, which is in all."""
PART = {"one_pass": "records", "any_move": "boards", "rare_moves": "moves", "any_count": "boards", "compare": "records"}
"""What the other options are a part of."""
DECAY = 0.6
"""How much less often each further move is drawn."""
CERTAIN = 0.8
"""Part of the records in which a drawn move is pure noise, as it is when it is decided, and not a move or its value."""
HIDDEN_VALUES = 0.5
"""Part of the records in which earlier values are not shown: who imagines the board after a move knows none yet."""


class PlyOrder:
    """Views of windows with one block of each noised.

    Args:
        layout: Of the windows.
        shares: Those of ``SHARES`` that are not the default.
        ends: Whether the value of a finished game is learned, too: records begin in no such position, so those that
            labelled lines end in become roots. Of windows that are seen from the mover's side.
        one_pass: Part of the records, 0 to 1, of which one pass trains all blocks; of the others the first alone.
        any_move: Of the records in which the state after the first move is restored alone, changes some; None for none.
        compare: A loss that is added, by which values learn to tell moves apart; None for none.

    Raises:
        ConfigError: a share out of range or beside ``one_pass``, shares above 1 together, or a layout that has no
            values or no states to end in.
    """

    def __init__(
        self,
        layout: Layout,
        shares: Mapping[str, Any] = MappingProxyType({}),
        *,
        ends: bool = False,
        one_pass: float = 0.0,
        any_move: AnyMove | None = None,
        compare: Comparison | None = None,
    ) -> None:
        if one_pass and any(shares.values()):
            raise ConfigError(
                f"learner.process.{', '.join(shares)}: not beside learner.process.one_pass, which trains all blocks"
            )
        self.one_pass = one_pass
        given = {**(dict.fromkeys(SHARES, 0.0) if one_pass else SHARES), **shares}
        for name, share in given.items():
            if not isinstance(share, int | float) or not 0 <= share <= 0.5:
                raise ConfigError(
                    f"key 'learner.process.{name}' is a part of the records, from 0 to 0.5, under order: ply; got "
                    f"{share!r}"
                )
        if sum(given.values()) > 1:
            raise ConfigError(
                f"keys 'learner.process.{', '.join(given)}': parts of the records, together at most 1; got {given}"
            )
        self.finished, self.any_move, self.compare = Finished(layout) if ends else None, any_move, compare
        self.blocks = torch.from_numpy(layout.blocks)
        self.is_value = torch.from_numpy(layout.kinds == KINDS.index("value"))
        self._spans = block_spans(layout)
        self.ends = [stop for _, stop in self._spans]
        """Number of tokens up to the end of each block."""
        self.mask, self.joint = layout.mask, float(given["joint_share"])
        is_state = torch.tensor([KINDS[layout.kinds[start]] != "action" for start, _ in self._spans])
        self._is_state = is_state.tolist()
        later = torch.where(is_state, 0.0, DECAY ** (~is_state).cumsum(0).double())
        later[0] = 0
        states = is_state.double()
        first_state = states * (states.cumsum(0) == 1)
        among = {"state_share": states, "first_state_share": first_state, "move_share": later}
        self.chances = torch.zeros(len(self.ends), dtype=torch.float64)
        for name, blocks in among.items():
            if blocks.any():
                self.chances += given[name] * blocks / blocks.sum()
        """[K] float64, how often each block is restored in training."""
        self.chances[0] = 1.0

    @classmethod
    def taken_from(
        cls, options: dict[str, Any], game: Game[Any], layout: Layout, viewer: str, *, used: bool
    ) -> PlyOrder | None:
        """Take this order's options out of those of a process; None where it is not ``used``.

        They are ``SHARES``, ``ends`` and those of ``PART``; the others stay. The layout is that of the windows.

        Raises:
            ConfigError: as the constructor, a part out of range, or options without their use.
        """
        given = {name: options.pop(name) for name in (*SHARES, "ends", *PART) if name in options}
        if not used and any(given.values()):
            raise ConfigError(f"learner.process.{', '.join(given)}: only under learner.process.order=ply")
        ends = given.pop("ends", False)
        if ends not in (False, True) or (ends and viewer != "mover"):
            raise ConfigError(
                f"learner.process.ends is false, or true with learner.viewer=mover; got {ends!r} with {viewer!r}"
            )
        if not used:
            return None
        one_pass, any_move, rare, counts, compare = (_part(name, given.pop(name, 0.0)) for name in PART)
        if any_move and one_pass:
            raise ConfigError("learner.process.any_move: not beside learner.process.one_pass, which trains whole lines")
        if (rare or counts) and not any_move:
            raise ConfigError(
                "learner.process.rare_moves and learner.process.any_count change the boards of "
                "learner.process.any_move, which is 0"
            )
        drawn = AnyMove(game, layout, any_move, viewer, rare=rare, counts=counts) if any_move else None
        compared = Comparison(game, layout, compare) if compare else None
        return cls(layout, given, ends=ends, one_pass=one_pass, any_move=drawn, compare=compared)

    def loss(
        self, learner: DiffusionLearner, batch: TokenBatch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over records of the loss of what is restored of each, at random times, and that of ``compare``.

        The latter is also a figure of its own, ``comparison``, so that losses with and without it can be compared.
        """
        total = torch.zeros((), device=batch.tokens.device)
        num_draws = 4 + (self.any_move.num_draws if self.any_move is not None else 0)
        for part, pure in self.split(batch, uniforms(num_draws, (len(batch),), generator, batch.tokens.device)):
            if pure is None:
                of_part = self._loss_of_all(learner, part, generator)
            else:
                times = learner.process.sample_times(len(part), generator, pure.device)
                of_part = learner.loss_at(part, generator, times.masked_fill(pure, learner.process.num_timesteps))
            total = total + of_part * len(part) / len(batch)
        if self.compare is None:
            return total, {}
        comparison = self.compare.loss(learner, batch)
        return total + comparison, {"comparison": comparison}

    def _loss_of_all(self, learner: DiffusionLearner, batch: TokenBatch, generator: torch.Generator) -> Tensor:
        device, num, last = batch.tokens.device, len(batch), learner.process.num_timesteps
        of_block = [learner.process.sample_times(num, generator, device) for _ in self.ends]
        (certain,) = uniforms(1, (num, len(self.ends)), generator, device)
        (hide,) = uniforms(1, (num,), generator, device)
        pure = (certain < CERTAIN) & ~torch.tensor(self._is_state, device=device)
        times = torch.stack(of_block, 1).masked_fill(pure, last)[:, self.blocks.clamp(min=0).to(device)]
        hidden = self.is_value.to(device) & (hide < HIDDEN_VALUES)[:, None] & ~batch.frozen
        clean, process = batch.tokens.masked_fill(hidden, self.mask), learner.process
        if not process.noise_is_visible:  # a network has no symbol for the mask then
            known, admitted = clean != self.mask, learner.admitted
            clean, _ = process.corrupt(clean, last, frozen=known, admitted=admitted, generator=generator)
        return learner.loss_at(batch, generator, times, EveryBlock(learner.layout, learner.network, clean))

    def drawn(self, num: int, offset: Tensor) -> Tensor:
        """[num] the later blocks of some records in order, as evenly as they can be drawn by an ``offset`` [] uniform
        in [0, 1); 0: none; K: all together under noise over the whole future; -1: each in its order, in one pass."""
        ends = torch.cat([self.chances[1:], self.chances.new_tensor([self.joint])]).cumsum(0)
        places = (torch.arange(num) + offset.double().cpu()) / num
        block = torch.searchsorted(ends, places, right=True) + 1
        return block.masked_fill(places >= ends[-1], 0).masked_fill(places < self.one_pass, -1)

    def cost(self) -> tuple[float, float]:
        """Tokens that go through a network for a record, and pairs of them that attend, on average.

        Finished games (``ends``) and ``compare`` take more, which depends on the data.
        """
        chances = [1.0 - self.one_pass, *self.chances[1:].tolist(), self.joint]
        passes = [(chance, end, end**2) for chance, end in zip(chances, [*self.ends, self.ends[-1]], strict=True)]
        first, last = self._spans[0][0], self._spans[-1][0]
        own = sum((stop - start) * stop for start, stop in self._spans)
        passes.append((self.one_pass, last + self.ends[-1] - first, last**2 + own))
        return sum(chance * n for chance, n, _ in passes), sum(chance * pairs for chance, _, pairs in passes)

    def view(self, batch: TokenBatch, block: int, hide_values: Tensor) -> TokenBatch:
        """The windows up to the end of a block, which is to be restored.

        Args:
            batch: B windows.
            block: 0 to K - 1.
            hide_values: [B] bool, whether the values before it are pure noise.
        """
        batch = batch.first(self.ends[block])
        tokens, frozen = batch.tokens, batch.frozen
        blocks, is_value = (x[: self.ends[block]].to(tokens.device) for x in (self.blocks, self.is_value))
        earlier = blocks < block
        # An unlabelled token is pure noise at every time, which is what a hidden one has to be.
        tokens = tokens.masked_fill(earlier & is_value & hide_values[:, None] & ~frozen, self.mask)
        frozen = frozen | (earlier & (tokens != self.mask))
        return dataclasses.replace(batch, tokens=tokens, frozen=frozen, target=batch.target & (blocks == block))

    def views(self, batch: TokenBatch) -> list[TokenBatch]:
        """The windows up to the end of each block, earlier values shown."""
        shown = torch.zeros(len(batch), dtype=torch.bool, device=batch.tokens.device)
        return [self.view(batch, block, shown) for block in range(len(self.ends))]

    def split(self, batch: TokenBatch, draws: Tensor) -> Iterator[tuple[TokenBatch, Tensor | None]]:
        """A batch for training: the first block of all records, then some records by the later block drawn for each.

        With ``one_pass``: the records whose blocks are all restored, then the first block of the others.

        Args:
            batch: B windows.
            draws: [4, B] uniform in [0, 1), and those of ``any_move``.

        Yields:
            A part of the batch, and [n] bool, in which of its rows all that is restored is to be pure noise; None for
            the part whose blocks are all restored.
        """
        (offset, order, hide, certain), counts = draws[:4], draws[4:]
        block = self.drawn(len(batch), offset[0])[order.argsort().cpu()]
        for k in sorted({0, *block.tolist()}):
            rows = (block == k if k else block >= 0).nonzero()[:, 0].to(batch.tokens.device)
            if not len(rows):
                continue
            part = batch.rows(rows)
            if k < 0:
                yield part, None
            elif k == len(self.ends):
                yield part, torch.zeros_like(rows, dtype=torch.bool)
            else:
                pure = (certain[rows] < CERTAIN) & (not self._is_state[k])
                if self.any_move is not None and k == self.any_move.block:
                    # A state has no other use for the first of these draws.
                    part = self.any_move(part, certain[rows], counts[:, rows] if len(counts) else None)
                yield self.view(part, k, hide[rows] < HIDDEN_VALUES), pure
        if self.finished is not None and (over := self.finished.roots(batch)) is not None:
            yield over, torch.ones(len(over), dtype=torch.bool, device=over.tokens.device)


def _part(name: str, part: Any) -> float:
    if not isinstance(part, int | float) or not 0 <= part <= 1:
        raise ConfigError(f"key 'learner.process.{name}' is a part of the {PART[name]}, from 0 to 1; got {part!r}")
    return float(part)


class Finished:
    """Windows that begin where the line of a record ends the game.

    Args:
        layout: Of the windows, with a value beside the first move, the state after it and a further move.

    Raises:
        ConfigError: it has none of these, or its states cannot be turned to the other side.
    """

    def __init__(self, layout: Layout) -> None:
        slots = (layout.slot("action", 0), layout.slot("value", 0), layout.slot("state", 1), layout.slot("action", 1))
        if any(slot is None for slot in slots):
            raise ConfigError(
                "learner.process.ends=true values finished games: it needs a paradigm that imagines moves, values and "
                "states (s-avsav) and a horizon of 2 or more"
            )
        turned = turned_maps(layout.tokenizer, "learner.process.ends=true values finished games for the other side")
        self._move, self._value, state, self._next = (slot.start for slot in slots if slot is not None)
        self._state = slice(state, state + layout.state_length)
        self._turned = tuple(torch.as_tensor(table, dtype=torch.int64) for table in turned)
        self._layout = layout

    def roots(self, batch: TokenBatch) -> TokenBatch | None:
        """The finished positions with their values, as the player sees them who would be to move; None without any.

        Where the layout admits PAD, the move is PAD: so the network learns to tell that a game is over.
        """
        layout, tokens = self._layout, batch.tokens
        known = (tokens[:, self._state] < layout.move_offset).all(1) & batch.target[:, self._value]
        rows = (known & (tokens[:, self._next] == layout.pad)).nonzero()[:, 0]
        if not len(rows):
            return None
        part = batch.rows(rows).first(self._value + 1)
        places, symbols = (table.to(tokens.device) for table in self._turned)
        roots = part.tokens.clone()
        roots[:, : layout.state_length] = symbols[tokens[rows, self._state][:, places]]
        roots[:, self._move] = layout.pad if layout.admit_pad else layout.mask
        value, num_bins = roots[:, self._value] - layout.value_offset, layout.num_value_bins
        # Bins are closed on the right, so a draw lies in the same one for both players.
        value = torch.where(2 * value == num_bins - 2, value, num_bins - 1 - value)
        roots[:, self._value] = layout.value_offset + value
        target = torch.zeros_like(part.target)
        target[:, self._value] = True
        target[:, self._move] = layout.admit_pad
        return dataclasses.replace(part, tokens=roots, target=target)
