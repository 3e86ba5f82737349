"""One decision as lines of JSON: each step of the dream as soon as it is made, then the move and its reasons."""

from __future__ import annotations

import base64
import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from genpolicy.control import Control
from genpolicy.errors import EngineError
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy, Variation, likeliest_first
from genpolicy.policies.dream import Dream, DreamStep
from genpolicy.values import value_to_probability
from genpolicy_play.drawing import (
    Action,
    Arrow,
    Board,
    Frame,
    board_of,
    board_svg,
    frame_of_step,
    frames,
    move_places,
    plan_arrows,
)
from genpolicy_play.drawing.svg import DARK, LIGHT
from genpolicy_play.show.command import evenly, judges_candidates, stepless
from genpolicy_play.show.picture import Picture
from genpolicy_play.show.raster import gif, require_libraries
from genpolicy_play.web.catalog import Offer
from genpolicy_play.web.positions import POSITION_FIELDS, Replay
from genpolicy_play.web.queue import MAX_SECONDS, Job, TookTooLong
from genpolicy_play.web.requests import MAX_SEED, Fields, RequestError
from genpolicy_play.web.settings import drawn_seed
from genpolicy_play.web.timing import read_clock

DECIDE_FIELDS = (*POSITION_FIELDS, "policy", "options", "dream", "seed", "clock")
ANIMATE_FIELDS = (*POSITION_FIELDS, "policy", "options", "dark", "seed")
GIF_WIDTH = 800
"""Pixels."""
GIF_PICTURES = 40
"""Most pictures of an animation; those of a longer dream are spread evenly."""
GIF_FRAME_MS = 450
GIF_TOP = 6
"""Alternatives that a picture lists."""
NUM_LIKELIEST = 8
"""Moves whose probabilities are sent."""
NUM_ALTERNATIVES = 3
"""Other moves that the drawing of a decision shows."""

Emit = Callable[[dict[str, Any]], None]


class DecisionRequest:
    """A decision that a client requests.

    Args:
        fields: The body.
        offer: The policy.
        replay: The position.

    Raises:
        RequestError: a malformed option, seed or clock, or a position without legal moves.
    """

    def __init__(self, fields: Fields, offer: Offer, replay: Replay) -> None:
        self.came = time.perf_counter()
        self.offer, self.state = offer, replay.state
        self.options = offer.settings.read(fields.mapping("options"))
        self.dream, self.flip, self.dark = (fields.flag(name) for name in ("dream", "flip", "dark"))
        seed = fields.whole("seed", 0, MAX_SEED)
        self.seed = drawn_seed(os.urandom(4)) if seed is None else seed
        self.clock = read_clock(fields)
        if len(offer.game.legal(self.state)) == 0:
            raise RequestError(f"the game is over in {offer.game.format(self.state)!r}: there is no legal move")

    def answer(self, job: Job, emit: Emit) -> None:
        """Decide; runs in a thread of the queue.

        Args:
            job: Says whether to continue.
            emit: Receives each line.

        Raises:
            RequestError: the policy refuses the options together, or has no move here.
            Cancelled: the client has gone.
        """
        began, game = time.perf_counter(), self.offer.game

        def on_step(step: DreamStep) -> None:
            job.check()
            if self.dream:
                emit(step_line(game, self.state, frame_of_step(game, self.state, step), flip=self.flip))

        policy, dream = self._dreamt(job, on_step)
        ms = 1e3 * (time.perf_counter() - began)
        emit({"decision": {**self._decision(policy, dream.decision), "ms": round(ms, 1), "seed": self.seed}})

    def animate(self, job: Job, emit: Emit) -> None:
        """Decide, and draw the steps as an animation, as ``genpolicy show`` does; runs in a thread of the queue.

        Args:
            job: Says whether to continue.
            emit: Receives the file, in one line.

        Raises:
            RequestError: the policy refuses, does not imagine by steps, or the libraries are missing.
            Cancelled: the client has gone.
        """
        try:
            require_libraries()
        except ValueError as error:
            raise RequestError(str(error)) from error
        game = self.offer.game
        policy, dream = self._dreamt(job, lambda step: job.check())
        job.release()  # drawing takes seconds, and needs the policy no more
        if len(dream.steps) < 2:
            hint = "; its steps are there with candidates=0" if judges_candidates(policy, dream) else ""
            raise RequestError(f"{policy.label} {stepless(policy, dream)}, so there is nothing to animate{hint}")
        told = frames(game, dream)
        title = f"{policy.label}: {game.players[game.player(self.state)]} to move"
        picture = Picture(
            game, dream, told, title, flipped=self.flip, palette=DARK if self.dark else LIGHT, num_top=GIF_TOP
        )

        def pictures() -> Iterator[str]:
            for frame in evenly(told, GIF_PICTURES):
                job.check()  # drawing takes longer than dreaming
                yield picture.svg(frame, told[0], listed=told[-1], width=GIF_WIDTH)

        try:
            data = gif(pictures(), GIF_WIDTH, GIF_FRAME_MS, 6 * GIF_FRAME_MS)
        except TookTooLong:
            raise self._too_long(policy, "choose fewer steps") from None
        name = re.sub(r"[^\w.-]+", "-", f"{policy.label}-{game.moves[dream.decision.move]}", flags=re.ASCII)
        emit({"gif": base64.b64encode(data).decode(), "name": f"{name}.gif"})

    def _dreamt(self, job: Job, on_step: Callable[[DreamStep], None]) -> tuple[Policy, Dream]:
        """The policy and its dream.

        Raises:
            RequestError, Cancelled: as ``answer``.
        """
        job.check()
        policy = self.offer.settings.policy(self.options)
        policy.seed(self.seed)
        try:
            if self.clock is not None:  # which runs while the decision waits in the queue
                timing = self.offer.settings.timing
                return policy, timing.dream(policy, self.state, self.clock, on_step, job.check, self.came)
            return policy, policy.dream(self.state, on_step, control=Control(job.check))
        except TookTooLong:
            raise self._too_long(policy, "choose fewer steps or simulations") from None
        except EngineError as error:
            raise RequestError(f"{policy.label} has no move here: {error}", 502) from error
        except (ValueError, LookupError) as error:
            raise RequestError(f"{policy.label} has no move here: {error}") from error

    @staticmethod
    def _too_long(policy: Policy, way_out: str) -> RequestError:
        return RequestError(f"{policy.label} took more than {MAX_SECONDS:g} seconds and was stopped; {way_out}", 504)

    def _decision(self, policy: Policy, decision: Decision) -> dict[str, Any]:
        game, state = self.offer.game, self.state
        line = line_of(game, state, decision.line or (decision.move,))
        likeliest = likeliest_of(game, state, decision.policy or {})
        return {
            "move": game.moves[decision.move],
            "label": game.view.move_text(state, decision.move),
            "value": decision.value,
            "win_probability": None if decision.value is None else value_to_probability(decision.value),
            "wdl": decision.wdl,
            "plies_left": decision.stats.get("plies_left"),
            "policy": likeliest,
            "line": line,
            "legality": [bool(each["legal"]) for each in line],
            "svg": decision_svg(game, state, decision, flip=self.flip),
            "candidates": [candidate_line(game, state, each, flip=self.flip) for each in decision.variations],
            "calls": int(decision.stats.get("network_calls", 0)),
            "stats": {key: float(value) for key, value in decision.stats.items()},
            "policy_label": policy.label,
        }


def step_line(game: Game[Any], state: Any, frame: Frame, *, flip: bool) -> dict[str, Any]:
    """A step of a dream as JSON."""
    return {
        "step": frame.index + 1,
        "time": frame.time,
        "of": frame.of,
        "boards": [board_line(game, board, flip=flip) for board in frame.boards],
        "actions": [action_line(action) for action in frame.actions],
        "values": [dataclasses.asdict(value) for value in frame.values],
        "policy": likeliest_of(game, state, frame.policy),
    }


def board_line(game: Game[Any], board: Board, *, flip: bool) -> dict[str, Any]:
    """An imagined board as JSON."""
    caption = f"after {board.ply} {'ply' if board.ply == 1 else 'plies'}"
    if board.ended:
        caption += ": the game has ended"
    elif board.num_masked:
        caption += f": {board.num_masked} {'place' if board.num_masked == 1 else 'places'} undecided"
    elif board.num_differing is not None:
        differ = "place differs" if board.num_differing == 1 else "places differ"
        caption += f": {board.num_differing or 'no'} {differ} from the rules"
    return {
        "ply": board.ply,
        "caption": caption,
        "text": board.text,
        "ended": board.ended,
        "masked": board.num_masked,
        "differs": board.num_differing,
        "svg": board_svg(game, board, flipped=flip, title=caption),
    }


def candidate_line(game: Game[Any], state: Any, candidate: Variation, *, flip: bool) -> dict[str, Any]:
    """One of the moves that a search in the imagination judged, with the board that it imagined, as JSON."""
    line = line_of(game, state, candidate.line)
    caption = line[0]["label"]
    if candidate.value is not None:
        caption += f": {value_to_probability(candidate.value):.0%}"
    if len(line) > 1:
        caption += f", then {line[1]['label']}"
    text = candidate.states[0] if candidate.states else None
    svg = None
    if text is not None:
        arrow = Arrow(*move_places(game, state, candidate.line[0])) if line[0]["legal"] else None
        board = board_of(game, game.parse(text), 1)
        svg = board_svg(game, board, flipped=flip, title=caption, arrows=[] if arrow is None else [arrow])
    return {"line": line, "caption": caption, "value": candidate.value, "text": text, "svg": svg}


def action_line(action: Action) -> dict[str, Any]:
    """An imagined move as JSON."""
    return {
        "ply": action.ply,
        "move": action.text or None,
        "probability": action.probability,
        "legal": bool(action.legal),
        "known": action.legal is not None,
        "masked": action.masked,
        "source": action.source,
        "target": action.target,
        "player": action.player,
    }


def line_of(game: Game[Any], state: Any, line: Sequence[int]) -> list[dict[str, Any]]:
    """The moves of an imagined line: their labels, whether they are legal in turn, and the places of legal ones."""
    described: list[dict[str, Any]] = []
    position = state
    for move in line:
        if move < 0:
            position = position if position is not None and _is_over(game, position) else None
            described.append({"move": None, "label": "end", "legal": position is not None})
        elif position is not None and move in game.legal(position):
            source, target = move_places(game, position, move)
            places = {"source": source, "target": target}
            described.append(
                {"move": game.moves[move], "label": game.view.move_text(position, move), "legal": True, **places}
            )
            position = game.play(position, move)
        else:
            described.append({"move": game.moves[move], "label": game.moves[move], "legal": False})
            position = None
    return described


def _is_over(game: Game[Any], state: Any) -> bool:
    return game.outcome(state) is not None


def likeliest_of(game: Game[Any], state: Any, policy: dict[int, float]) -> list[dict[str, Any]]:
    """The likeliest moves with their labels and probabilities."""
    ranked = list(likeliest_first(policy).items())[:NUM_LIKELIEST]
    return [{"move": game.moves[m], "label": game.view.move_text(state, m), "probability": float(p)} for m, p in ranked]


def decision_svg(game: Game[Any], state: Any, decision: Decision, *, flip: bool) -> str:
    """The position, with the imagined line as arrows and the likeliest other moves as fainter ones."""
    player = game.player(state)
    plan = frames(game, Dream(state, player, None, (), decision))[0].actions
    others = list(likeliest_first(decision.policy).items())
    alternatives = [
        Arrow(*move_places(game, state, move), label=f"{100 * chance:.0f}%", probability=0.6 * chance)
        for move, chance in others[: NUM_ALTERNATIVES + 1]
        if move != decision.move and chance >= 0.01
    ]
    arrows = [*reversed(alternatives), *plan_arrows(plan, player)]
    return board_svg(game, board_of(game, state), flipped=flip, check=game.view.check(state), arrows=arrows)


def warm_up(offer: Offer) -> float:
    """Decide and draw once, so that the first click does not wait for what the first use loads.

    Returns:
        Seconds that it took.

    Raises:
        ValueError: the policy cannot decide in the initial position.
        EngineError: its engine does not answer.
    """
    began, game = time.perf_counter(), offer.game
    state = game.parse()
    if offer.policy.starts_cold:
        try:
            dream = offer.policy.dream(state)
        except (ValueError, LookupError, EngineError) as error:
            raise type(error)(f"policy {offer.label!r} cannot play {game.spec}: {error}") from error
        step_line(game, state, frames(game, dream)[0], flip=False)
    board_svg(game, board_of(game, state))
    return time.perf_counter() - began
