"""Positions, decisions and dreams in a notebook: ``show`` returns a picture that the notebook draws."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from genpolicy.game import Game
from genpolicy.policies.base import Decision
from genpolicy.policies.dream import Dream
from genpolicy_play.drawing import Arrow, board_of, board_svg, frames, plan_arrows
from genpolicy_play.drawing.svg import LIGHT
from genpolicy_play.show.picture import Picture

BOARD_WIDTH, PLAN_WIDTH = 360, 900
"""Pixels."""
NUM_TOP = 6


@dataclass(frozen=True, repr=False)
class Shown:
    """Something to see: a notebook draws it, anything else prints its text."""

    text: str
    """What it says without a display."""
    svg: str | None
    """A whole ``<svg>``; None where the game has no board to draw."""

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str | None:
        return self.svg

    def _repr_html_(self) -> str | None:
        if self.svg is None:
            return None
        return f"<figure>{self.svg}<figcaption><pre>{escape(self.text)}</pre></figcaption></figure>"


def show(game: Game[Any], what: Any, decision: Decision | None = None) -> Shown:
    """A position, what a policy decided in it, or what it imagined.

    Args:
        game: The game; states know nothing of theirs.
        what: A state, or what ``Policy.dream`` returned.
        decision: What a policy decided in the state; its line is drawn as arrows.

    Raises:
        TypeError: a decision without its state.
    """
    if isinstance(what, Decision):
        raise TypeError("a decision is drawn on its position: show(game, state, decision)")
    if isinstance(what, Dream):
        return _show_dream(game, what)
    text = game.view.board_text(what) if decision is None else decision.text + _line(game, decision)
    if not _has_board(game):
        return Shown(text, None)
    arrows: list[Arrow] = []
    if decision is not None:
        player = game.player(what)
        arrows = plan_arrows(frames(game, Dream(what, player, None, (), decision))[0].actions, player)
    board, check = board_of(game, what), game.view.check(what)
    return Shown(text, board_svg(game, board, check=check, arrows=arrows, width=BOARD_WIDTH, title=text))


def _show_dream(game: Game[Any], dream: Dream) -> Shown:
    num = len(dream.steps)  # none where the policy searched
    steps = f", in {num} {'step' if num == 1 else 'steps'}" if num else ""
    text = f"{dream.decision.text}{_line(game, dream.decision)}{steps}"
    if not _has_board(game):
        return Shown(text, None)
    told = frames(game, dream)
    picture = Picture(game, dream, told, text, flipped=False, palette=LIGHT, num_top=NUM_TOP)
    return Shown(text, picture.svg(told[-1], told[0] if dream.steps else None, width=PLAN_WIDTH))


def _line(game: Game[Any], decision: Decision) -> str:
    """What is imagined after the move; "" for nothing."""
    words = [game.moves[move] if move >= 0 else "(end)" for move in decision.line]
    return f"; imagines {' '.join(words)}" if len(words) > 1 else ""


def _has_board(game: Game[Any]) -> bool:
    return bool((game.tokens.rows >= 0).any() and (game.tokens.cols >= 0).any())
