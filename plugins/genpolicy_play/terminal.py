"""A game in the terminal: a person against a policy that shows what it imagines, or policies among themselves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from genpolicy.chance import drawn
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy, likeliest_first
from genpolicy.values import value_to_probability
from genpolicy_common.decisions import decided

Read = Callable[[str], str]
Write = Callable[[str], None]

HELP = """\
a move       play it (e.g. {example})
moves        the legal moves
hint         what the policy would play here, and the line that it imagines
undo         take back your last move and the reply
flip         change sides with the policy
position     the position as text (also: fen, sfen)
resign       give the game up
quit         leave (also: end of input)
help         this list"""
NUM_TOP = 5
"""Likeliest moves, and moves that a search judged, that are told at most."""
MAX_PLIES = 512  # an endless game between two policies ends as a draw (AlphaZero's cap)


@dataclass(frozen=True)
class Ending:
    """How a game ended."""

    winner: int | None
    """0 or 1; None for a draw or a game that was left."""
    reason: str

    def text(self, game: Game[Any]) -> str:
        """A line for people, e.g. ``White wins: resignation``."""
        who = "no winner" if self.winner is None else f"{game.players[self.winner]} wins"
        return f"{who}: {self.reason}"


class TerminalGame:
    """One game of a person against a policy.

    Args:
        game: The rules.
        policy: The opponent, and what ``hint`` asks.
        humans: Players that the person moves: (0,), (1,), or (0, 1) for both.
        start: First position.
        read: Takes a prompt and gives a line; EOFError ends the game.
        write: Shows a line.
        seed: Seed of what chance decides.
    """

    def __init__(
        self,
        game: Game[Any],
        policy: Policy,
        humans: Sequence[int],
        start: Any,
        *,
        read: Read = input,
        write: Write = print,
        seed: int = 0,
    ) -> None:
        self._chance = random.Random(f"chance|{seed}")
        self.game, self.policy = game, policy
        self.humans = set(humans)
        self.states = [start]
        self.moves: list[int] = []
        self._read, self._write = read, write

    @property
    def state(self) -> Any:
        """The position on the board."""
        return self.states[-1]

    def run(self) -> Ending:
        """Play to the end, or until the person leaves."""
        self._write(f"{self._sides()}  Type help for the commands.")
        self._show_board()
        while True:
            ending = ending_of(self.game, self.state)
            if ending is None:
                if self.game.chance(self.state) is not None:
                    self._let_chance_move()
                elif self.game.player(self.state) in self.humans:
                    ending = self._ask()
                else:
                    self._answer()
            if ending is not None:
                self._write(ending.text(self.game))
                return ending

    def _answer(self) -> None:
        decision = decided(self.policy, self.state)
        name = self.game.players[self.game.player(self.state)]
        self._write(f"{name} ({self.policy.label}) plays {move_name(self.game, self.state, decision.move)}")
        self._explain(decision)
        self._play(decision.move)

    def _let_chance_move(self) -> None:
        move = drawn(self.game, self.state, self._chance)
        self._write(f"chance: {move_name(self.game, self.state, move)}")
        self._play(move)

    def _play(self, move: int) -> None:
        self.states.append(self.game.play(self.state, move))
        self.moves.append(move)
        self._show_board()

    def _ask(self) -> Ending | None:
        """Read and obey one line of the person's."""
        player = self.game.player(self.state)
        try:
            line = self._read(f"{self.game.players[player]} to move> ").strip()
        except EOFError:
            return Ending(None, "end of input, game abandoned")
        command = line.lower()
        if command in ("quit", "exit", "q"):
            return Ending(None, "game abandoned")
        if command == "resign":
            return Ending(1 - player, "resignation")
        actions: dict[str, Callable[[], None]] = {
            "help": self._help,
            "?": self._help,
            "moves": lambda: self._write(self._names()),
            "hint": lambda: self._explain(decided(self.policy, self.state), with_move=True),
            "undo": self._undo,
            "flip": self._flip,
            **dict.fromkeys(("position", "fen", "sfen"), lambda: self._write(self.game.format(self.state))),
        }
        if command in actions:
            actions[command]()
        elif line:
            self._try(line)
        return None

    def _try(self, line: str) -> None:
        try:
            move = self.game.move_from_text(self.state, line)
        except ValueError as error:
            self._write(f"{error}. Type help for the commands.")
            return
        self._play(move)

    def _help(self) -> None:
        self._write(HELP.format(example=move_name(self.game, self.state, int(self.game.legal(self.state)[0]))))

    def _names(self) -> str:
        names = [move_name(self.game, self.state, move) for move in self.game.legal(self.state).tolist()]
        return (", " if any(" " in name for name in names) else " ").join(names)

    def _undo(self) -> None:
        # Back to the last position in which the person was to move.
        for back in range(len(self.moves) - 1, -1, -1):
            before = self.states[back]
            if self.game.player(before) in self.humans and self.game.chance(before) is None:
                del self.states[back + 1 :], self.moves[back:]
                self._show_board()
                return
        self._write("you have no move to take back")

    def _flip(self) -> None:
        self.humans = {1 - player for player in self.humans}
        self._write(self._sides())

    def _sides(self) -> str:
        if len(self.humans) == 2:
            return "You play both sides."
        return f"You play {self.game.players[next(iter(self.humans))]}."

    def _show_board(self) -> None:
        self._write(self.game.view.board_text(self.state))

    def _explain(self, decision: Decision, *, with_move: bool = False) -> None:
        if with_move:
            self._write(f"  {self.policy.label} would play {move_name(self.game, self.state, decision.move)}")
        for line in explain(self.game, self.state, decision):
            self._write("  " + line)


def move_name(game: Game[Any], state: Any, move: int) -> str:
    """What a legal move is called: its protocol text, or the game's own name where no program speaks its protocol."""
    return game.moves[move] if game.protocol != "none" else game.view.move_text(state, move)


def explain(game: Game[Any], state: Any, decision: Decision) -> list[str]:
    """Lines for people: the likeliest moves, the value, and the imagined line with each move's legality."""
    lines = []
    if decision.policy:
        best = list(likeliest_first(decision.policy).items())[:NUM_TOP]
        lines.append(
            "likely: " + ", ".join(f"{move_name(game, state, move)} {100 * share:.1f}%" for move, share in best)
        )
    if decision.value is not None:
        lines.append(f"value for the player to move: {decision.value:+.2f} (from -1 to 1)")
    if decision.wdl is not None:
        lines.append("for the player to move: {:.0%} win, {:.0%} draw, {:.0%} loss".format(*decision.wdl))
    if (left := decision.stats.get("plies_left")) is not None:
        lines.append(f"expects the end in {left:.0f} plies")
    if len(decision.line) > 1 or decision.line[:1] not in ((), (decision.move,)):
        lines.append("imagines: " + imagined_text(game, state, decision.line))
    return lines + judged(game, state, decision, NUM_TOP)


def judged(game: Game[Any], state: Any, decision: Decision, num_top: int) -> list[str]:
    """A line for people for each of the moves that a search judged: what it is worth, and what follows."""
    lines = []
    for each in decision.variations[:num_top]:
        worth = "" if each.value is None else f"{value_to_probability(each.value):.0%} after "
        lines.append(f"judges: {worth}{imagined_text(game, state, each.line)}")
    return lines


def imagined_text(game: Game[Any], state: Any, line: Sequence[int]) -> str:
    """The moves of an imagined line; each is played on while it is legal, and after the first illegal one none is."""
    words = []
    position = state
    for move in line:
        if move < 0:
            words.append("(end)")
            continue
        text = game.moves[move]
        if position is not None and move in game.legal(position):
            words.append(move_name(game, position, move))
            position = game.play(position, move)
        else:
            words.append(f"{text} (illegal)" if position is not None else f"{text} (?)")
            position = None
    return " ".join(words)


def ending_of(game: Game[Any], state: Any) -> Ending | None:
    """How the game has ended in a position by its rules; None while it runs."""
    if not game.is_over(state):
        return None
    outcome, player, reason = game.outcome(state), game.player(state), game.view.ending(state)
    if not outcome:
        return Ending(None, reason)
    return Ending(player if outcome > 0 else 1 - player, reason)


def self_play(
    policies: tuple[Policy, Policy],
    start: Any,
    *,
    on_move: Callable[[Any, Decision], None] | None = None,
    max_plies: int = MAX_PLIES,
    seed: int = 0,
) -> tuple[list[int], Ending]:
    """One game between two policies (they may be the same object).

    Args:
        policies: Who plays player 0 and player 1.
        start: First position.
        on_move: Called with the position and the decision in it.
        max_plies: A longer game is stopped, without a winner.
        seed: Seed of what chance decides.

    Returns:
        The moves played, and how it ended.
    """
    game = policies[0].game
    state, moves = start, list[int]()
    chance = random.Random(f"chance|{seed}")
    while (ending := ending_of(game, state)) is None:
        if len(moves) >= max_plies:
            return moves, Ending(None, "stopped at the limit")
        if game.chance(state) is not None:
            moves.append(drawn(game, state, chance))
            state = game.play(state, moves[-1])
            continue
        decision = decided(policies[game.player(state)], state)
        if on_move is not None:
            on_move(state, decision)
        moves.append(decision.move)
        state = game.play(state, decision.move)
    return moves, ending
