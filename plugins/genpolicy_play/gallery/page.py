"""The page of a gallery: each policy's steps as HTML, packed, and a slider to go through them.

The last step of each column stands in the page as it is, so that a browser without scripts shows what was imagined in
the end. The steps are one gzipped JSON text, which the script unpacks: boards repeat themselves, and 200 of them take
some tens of kilobytes.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from genpolicy.game import Game
from genpolicy.policies.base import Policy, likeliest_first
from genpolicy.policies.dream import Dream
from genpolicy_play.drawing import Board, Frame, board_of, board_svg, frames, move_places, plan_arrows
from genpolicy_play.gallery.scenes import Column, Gallery, Scene
from genpolicy_play.show.command import evenly

_PLACE = re.compile(r"""(<g class="gp-place") data-place="\d+" aria-label=(?:"[^"]*"|'[^']*')""")
MOST_BARS = 5
"""Alternatives to the first move that are listed."""
MOST_STEPS = 40
"""Most steps of a column; those of a longer dream are spread evenly."""


@dataclass(frozen=True)
class Recorded:
    """What a policy imagined in a position."""

    title: str
    text: str
    policy: str
    """As it is written on a command line."""
    move: str
    """The chosen move, as people write it."""
    facts: str
    steps: tuple[str, ...]
    """HTML of each step; one for a policy without steps."""


def record(policy: Policy, state: Any, column: Column, *, flip: bool = False) -> Recorded:
    """Ask a policy and draw each step of its answer.

    Args:
        policy: The policy.
        state: A position of its game in which the game goes on.
        column: Title and text of the column.
        flip: The second player is below.
    """
    game, dream = policy.game, policy.dream(state)
    told = frames(game, dream)
    listed = list(likeliest_first(dream.decision.policy or told[-1].policy))[:MOST_BARS]
    move = game.view.move_text(state, dream.decision.move)
    calls = int(dream.decision.stats.get("network_calls", 0))
    facts = f"{calls} network {'call' if calls == 1 else 'calls'}" if calls else "no network"
    title = column.title or policy.label
    steps = tuple(_step(game, dream, frame, listed, flip=flip) for frame in evenly(told, MOST_STEPS))
    return Recorded(title, column.text, column.policy, move, facts, steps)


def _step(game: Game[Any], dream: Dream, frame: Frame, listed: Sequence[int], *, flip: bool) -> str:
    arrows = plan_arrows(frame.actions, game.player(dream.state))
    root = board_of(game, dream.state)
    plan = _figure(
        game, root, "the position and the plan", flip=flip, arrows=arrows, check=game.view.check(dream.state)
    )
    boards = "".join(_candidate(game, dream.state, each, flip=flip) for each in dream.decision.variations)
    if dream.steps or not boards:
        boards = "".join(
            _figure(game, board, _caption(board), flip=flip, last=_places(frame, board.ply)) for board in frame.boards
        )
    shares = frame.policy or dream.decision.policy or {}
    return f'<div class="boards">{plan}{boards}</div>{_line(game, dream, frame)}{_bars(game, dream, shares, listed)}'


def _figure(game: Game[Any], board: Board, caption: str, **drawn: Any) -> str:
    svg = board_svg(game, board, flipped=drawn.pop("flip"), title=caption, **drawn)
    svg = _PLACE.sub(r"\1", svg)  # an image has one description; nobody points at the places of this one
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _places(frame: Frame, ply: int) -> tuple[int, ...]:
    action = next((each for each in frame.actions if each.ply == ply - 1), None)
    return (action.source, action.target) if action is not None and action.move >= 0 else ()


def _caption(board: Board) -> str:
    """What stands below an imagined board."""
    said = f"after {board.ply} {'ply' if board.ply == 1 else 'plies'}"
    if board.ended:
        return f"{said}: the game has ended"
    if board.num_masked:
        return f"{said}: {board.num_masked} places masked"
    if board.num_differing is None or not board.imagined:
        return said
    wrong = board.num_differing
    return f"{said}: " + (
        "as the rules make it" if not wrong else f"{wrong} {'place' if wrong == 1 else 'places'} wrong"
    )


def _candidate(game: Game[Any], state: Any, candidate: Any, *, flip: bool) -> str:
    """A move that a search in the imagination judged, with the board that it imagined."""
    if not candidate.states or candidate.states[0] is None:
        return ""
    label = game.view.move_text(state, candidate.line[0])
    caption = label if candidate.value is None else f"{label}: {(1 + candidate.value) / 2:.0%} to win"
    board = board_of(game, game.parse(candidate.states[0]), 1)
    return _figure(game, board, caption, flip=flip, last=move_places(game, state, candidate.line[0]))


def _line(game: Game[Any], dream: Dream, frame: Frame) -> str:
    items, state = [], dream.state
    for action in frame.actions:
        label = "(end)" if action.move < 0 else action.text
        if action.move >= 0 and action.legal:
            label = game.view.move_text(state, action.move)
            state = game.play(state, action.move)
        wrong = action.legal is not True and action.move >= 0
        kind = "guess" if action.masked else "wrong" if wrong else "sure"
        said = "a guess" if action.masked else "illegal" if wrong else ""
        chance = f"{100 * action.probability:.0f} %" if dream.steps else ""
        note = " ".join(filter(None, (chance, said)))
        items.append(f'<li class="{kind}"><b>{escape(label)}</b> <small>{note}</small></li>')
    return f'<ol class="line" aria-label="Imagined moves">{"".join(items)}</ol>'


def _bars(game: Game[Any], dream: Dream, shares: dict[int, float], listed: Sequence[int]) -> str:
    items = []
    for move in listed:
        share = shares.get(move, 0.0)
        label = escape(game.view.move_text(dream.state, move))
        mark = ' class="chosen"' if move == dream.decision.move else ""
        bar = f'<meter min="0" max="1" value="{share:.3f}" aria-label="{label}"></meter>'
        items.append(f"<li{mark}><span>{label}</span>{bar}<span>{100 * share:.0f} %</span></li>")
    return f'<ol class="bars" aria-label="First move">{"".join(items)}</ol>' if items else ""


def html(gallery: Gallery, positions: Sequence[str], recorded: Sequence[Sequence[Recorded]]) -> str:
    """The whole page.

    Args:
        gallery: Titles and texts.
        positions: Text of each scene's position.
        recorded: The columns of each scene.
    """
    steps = [[list(column.steps) for column in columns] for columns in recorded]
    packed = gzip.compress(json.dumps(steps, separators=(",", ":")).encode(), mtime=0)
    scenes = "".join(
        _scene(number, scene, position, columns)
        for number, (scene, position, columns) in enumerate(zip(gallery.scenes, positions, recorded, strict=True))
    )
    template = Template(files("genpolicy_play.gallery").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        lang=escape(gallery.lang),
        title=escape(gallery.title),
        text=escape(gallery.text),
        scenes=scenes,
        steps=base64.b64encode(packed).decode(),
    )


def _scene(number: int, scene: Scene, position: str, columns: Sequence[Recorded]) -> str:
    most = max(len(column.steps) for column in columns)
    control = (
        f'<p class="control"><button type="button">Replay</button>'
        f'<label>Step <input type="range" min="1" max="{most}" value="{most}"></label>'
        f"<output>{most} / {most}</output></p>"
    )
    shown = "".join(
        f"<article><h3>{escape(column.title)}</h3><p>plays <b>{escape(column.move)}</b> · {column.facts}</p>"
        f"<p>{escape(column.text)}</p>"
        f'<div class="step">{column.steps[-1]}</div>'
        f"<p><code>--policy {escape(repr(column.policy))}</code></p></article>"
        for column in columns
    )
    return (
        f'<section data-scene="{number}"><h2>{escape(scene.title)}</h2><p>{escape(scene.text)}</p>'
        f"<p><code>{escape(position)}</code></p>{control if most > 1 else ''}"
        f'<div class="columns">{shown}</div></section>'
    )
