"""Reads lines of moves and codes as lines of moves and positions, ply by ply.

A line of the network is s_0 a_0 k_1 a_2 k_2 ...: own moves, and codes of what the other side makes of them. Codes are
decoded one after the other, each from the position before it. The answer is the legal move that leads to the decoded
position, and the position between own move and answer is that of the rules, as the network never imagines it.

Axes: B batch, N tokens of a sequence, h own moves, L tokens of a position, G codebooks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.game import Game
from genpolicy.policies.dream import DreamStep
from genpolicy.sequence import Kind, Layout
from genpolicy_policy_model.vq_autoencoder import TransitionAutoencoder


class CodeReader:
    """What an autoencoder and the rules make of lines of moves and codes.

    Args:
        game: The rules.
        coded: Layout of the lines.
        autoencoder: Decodes the codes.
    """

    def __init__(self, game: Game[Any], coded: Layout, autoencoder: TransitionAutoencoder) -> None:
        self.game, self.coded, self._autoencoder = game, coded, autoencoder
        # Admits PAD: an answer that nothing explains has to be shown somehow.
        self.lines = Layout(game, "s-asa", 2 * coded.horizon - 1, admit_pad=True)
        """Layout of what is read."""
        self._sources = _sources(coded, self.lines)

    @torch.no_grad()
    def boards(self, tokens: Tensor) -> NDArray[np.int64]:
        """[B, h - 1, L] the positions that the codes of rows [B, N] stand for, where there are codes."""
        coded, autoencoder = self.coded, self._autoencoder
        usable = torch.from_numpy(coded.tokenizer.admitted).to(tokens.device)
        board, boards = tokens[:, : coded.state_length], []
        for slot in (each for each in coded.slots if each.kind == "code"):
            move = (tokens[:, slot.start - 1] - coded.move_offset).clamp(0, len(coded.moves) - 1)
            codes = (tokens[:, slot.start : slot.stop] - coded.code_offset).remainder(coded.num_codes)
            board = autoencoder.likeliest(board, move, codes, usable)
            boards.append(board)
        shape = (len(tokens), len(boards), coded.state_length)
        return torch.stack(boards, dim=1).cpu().numpy() if boards else np.zeros(shape, np.int64)

    def read(self, row: NDArray[np.int64], boards: NDArray[np.int64], state: Any, viewer: int) -> NDArray[np.int64]:
        """A row [N] of moves and codes, decoded as boards [h - 1, L], as one of moves and positions.

        PAD stands where nothing is imagined: after the end of a game, and for an answer that no legal move explains.
        """
        coded, lines, game = self.coded, self.lines, self.game
        tokens = np.full(lines.length, lines.pad)
        tokens[: coded.state_length] = row[: coded.state_length]
        here = state  # None from where the rules do not know the position
        for ply, slot in enumerate(each for each in coded.slots if each.kind == "action"):
            seen, code = int(row[slot.start]) - coded.move_offset, coded.slot("code", ply + 1)
            if not 0 <= seen < len(game.moves):
                break
            move = int(game.moves.seen_by(np.array([seen]), viewer)[0])
            _put(tokens, lines, "action", 2 * ply, int(row[slot.start]))
            is_legal = here is not None and game.outcome(here) is None and move in game.legal(here)
            after = game.play(here, move) if is_legal else None
            if code is None:
                break
            ended = int(row[code.start : code.stop].max()) >= coded.pad
            board = boards[ply] if after is None else self._row(after, viewer)
            _put(tokens, lines, "state", 2 * ply + 1, board)
            if ended or (after is not None and (board == boards[ply]).all()):  # by the own move
                break
            answer, here = self._answer(after, boards[ply], viewer)
            if answer is not None:
                seen = int(game.moves.seen_by(np.array([answer]), viewer)[0])
                _put(tokens, lines, "action", 2 * ply + 1, lines.move_offset + seen)
            _put(tokens, lines, "state", 2 * ply + 2, boards[ply])
        return tokens

    def _answer(self, state: Any, board: NDArray[np.int64], viewer: int) -> tuple[int | None, Any]:
        """The legal move of a state that leads to a board [L], and the state that it leads to; None for none."""
        game = self.game
        if state is None or game.outcome(state) is not None:
            return None, None
        moves = game.legal(state).tolist()
        after = [game.play(state, move) for move in moves]
        rows = game.tokens.encode(after, np.full(len(after), viewer)) if after else np.zeros((0, len(board)))
        same = np.flatnonzero((rows == board).all(axis=1))
        return (moves[same[0]], after[same[0]]) if len(same) else (None, None)

    def _row(self, state: Any, viewer: int) -> NDArray[np.int64]:
        row: NDArray[np.int64] = self.game.tokens.encode([state], np.array([viewer]))[0].astype(np.int64)
        return row

    def step(self, step: DreamStep, state: Any) -> DreamStep:
        """A step over moves and codes as one over moves and positions: sure of a position as of its codes."""
        row = step.shown
        boards = self.boards(torch.from_numpy(row)[None].to(self._autoencoder.stays.device))[0]
        tokens = self.read(row, boards, state, step.viewer)
        masked = np.array([step.masked[at].any() for at in self._sources])
        return dataclasses.replace(
            step,
            layout=self.lines,
            tokens=np.where(masked, self.lines.mask, tokens),
            guess=tokens,
            confidence=np.array([step.confidence[at].prod() for at in self._sources]),
        )


def _put(tokens: NDArray[np.int64], layout: Layout, kind: Kind, ply: int, what: int | NDArray[np.int64]) -> None:
    """Fill in a slot of a row, if the layout has it."""
    slot = layout.slot(kind, ply)
    if slot is not None:
        tokens[slot.start : slot.stop] = what


def _sources(coded: Layout, lines: Layout) -> list[slice]:
    """For each token of lines the tokens of moves and codes that it is read from."""
    sources: list[slice] = []
    for slot in lines.slots:
        own, is_answered = divmod(slot.ply, 2)
        if slot.given:
            sources += [slice(place, place + 1) for place in range(slot.start, slot.stop)]
            continue
        # Own moves are at even plies, and the position after one, which is before the answer, is the rules'.
        by_code = (slot.kind == "action" and is_answered) or (slot.kind == "state" and not is_answered)
        of = coded.slot("code", (slot.ply + 1) // 2) if by_code else coded.slot("action", own)
        assert of is not None
        sources += [slice(of.start, of.stop)] * (slot.stop - slot.start)
    return sources
