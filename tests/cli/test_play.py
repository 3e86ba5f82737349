"""The terminal game: every command, and how games end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import genpolicy
from genpolicy import cli
from genpolicy.game import Game
from genpolicy_play.terminal import TerminalGame, ending_of, imagined_text, self_play
from genpolicy_policy_baselines.simple import RandomPolicy
from tests.small_datasets import CONNECT

pytestmark = pytest.mark.usefixtures("warm_start")


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


def session(game: Game[Any], policy: str, lines: list[str], humans: tuple[int, ...] = (0,)) -> tuple[list[str], Any]:
    """What is shown when a person types these lines and then ends the input."""
    shown: list[str] = []
    waiting: Iterator[str] = iter(lines)

    def read(prompt: str) -> str:
        shown.append(prompt)
        for line in waiting:
            return line
        raise EOFError

    player = genpolicy.load_policy(policy, game=game)
    table = TerminalGame(game, player, humans, game.parse(), read=read, write=shown.append)
    ending = table.run()
    return shown, (table, ending)


def test_the_policy_answers_and_the_end_of_input_leaves(game: Game[Any]) -> None:
    """The centre is the one reply to a corner that does not lose."""
    shown, (table, ending) = session(game, "oracle:solver", ["a3", "moves"])
    assert len(table.moves) == 2
    assert "O (oracle:solver) plays b2" in shown
    assert shown[-3] == " ".join(game.moves[int(move)] for move in game.legal(table.state))
    assert ending.reason == "end of input, game abandoned"


def test_the_game_ends_by_its_rules(game: Game[Any]) -> None:
    shown, (_, ending) = session(game, "random", ["a3", "a2", "b3", "b2", "c3"], humans=(0, 1))
    assert (ending.winner, ending.reason) == (0, "3 in a row")
    assert shown[-1] == "X wins: 3 in a row"
    assert "You play both sides." in shown[0]


def test_a_draw_is_a_draw(game: Game[Any]) -> None:
    moves = ["a3", "b2", "c3", "b3", "b1", "a2", "c2", "c1", "a1"]  # X O X / O O X / X X O, no line of three
    _, (_, ending) = session(game, "random", moves, humans=(0, 1))
    assert ending.winner is None
    assert ending.reason == "the board is full"


def test_undo_takes_back_both_moves(game: Game[Any]) -> None:
    shown, (table, _) = session(game, "random", ["undo", "a3", "undo", "c1", "quit"])
    assert "you have no move to take back" in shown
    assert game.moves[table.moves[0]] == "c1"
    assert len(table.moves) == 2
    assert len(table.states) == 3


def test_undo_of_a_person_who_plays_both_takes_back_one(game: Game[Any]) -> None:
    _, (table, _) = session(game, "random", ["a3", "b3", "undo", "quit"], humans=(0, 1))
    assert [game.moves[move] for move in table.moves] == ["a3"]


def test_flip_lets_the_policy_move(game: Game[Any]) -> None:
    shown, (table, _) = session(game, "random", ["flip", "quit"])
    assert "You play O." in shown
    assert len(table.moves) == 1


def test_hint_position_help_and_nonsense(game: Game[Any]) -> None:
    shown, (table, ending) = session(
        game, "oracle:solver?horizon=3", ["hint", "FEN", "", "help", "z9", "a3", "a3", "resign"]
    )
    assert "  oracle:solver would play" in " ".join(shown)
    assert any(line.startswith("  imagines: ") and len(line.split()) == 4 for line in shown)
    assert game.format(game.parse()) in shown
    assert any(line.startswith("a move       play it (e.g. a3)") for line in shown)
    assert any("'z9' is illegal" in line and "; legal: a3 b3 " in line for line in shown)
    assert any("illegal" in line and "legal: " in line for line in shown)
    assert len(table.moves) == 2
    assert (ending.winner, ending.reason) == (1, "resignation")


def test_an_imagined_line_says_which_moves_are_illegal(game: Game[Any]) -> None:
    moves = [game.moves.index(text) for text in ("a3", "b2", "a3", "c1")]
    assert imagined_text(game, game.parse(), [*moves, -1]) == "a3 b2 a3 (illegal) c1 (?) (end)"


def test_two_random_players_repeat_by_seed(game: Game[Any]) -> None:
    policy = RandomPolicy(game, seed=3)
    first, ending = self_play((policy, policy), game.parse())
    policy.seed(3)
    second, _ = self_play((policy, policy), game.parse())
    assert first == second
    state = game.parse()
    for move in first:
        state = game.play(state, move)
    assert ending_of(game, state) == ending
    assert len(self_play((policy, policy), game.parse(), max_plies=2)[0]) == 2


def test_self_play_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The solver never loses; games alternate who begins; nothing is read."""
    arguments = ["--game", CONNECT, "--self-play", "4", "--opponent", "random", "--seed", "5", "--show-lines"]
    assert cli.main(["play", "--policy", "oracle:solver?horizon=2", *arguments]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith("game ")] == [
        "game 1: X oracle:solver, O random",
        "game 2: X random, O oracle:solver",
        "game 3: X oracle:solver, O random",
        "game 4: X random, O oracle:solver",
    ]
    assert out[-1].endswith("0 lost against random")
    assert any("imagines: " in line for line in out)
    assert cli.main(["play", "--policy", "oracle:solver?horizon=2", *arguments]) == 0
    assert capsys.readouterr().out.splitlines() == out


def test_from_a_position_and_end_of_input() -> None:
    start = "XX./OO./... X"
    command = [sys.executable, "-m", "genpolicy", "play", "--policy", "random", "--game", CONNECT, "--from", start]
    for text, last in (("c3\n", "X wins: 3 in a row"), ("", "no winner: end of input, game abandoned")):
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].endswith(last)


def test_letters_that_a_terminal_lacks_do_not_end_the_game() -> None:
    """Japanese notation in the message about a wrong move, on a terminal of ASCII; a byte that is not UTF-8."""
    command = [sys.executable, "-m", "genpolicy", "play", "--policy", "random", "--game"]
    for game, encoding, typed in (("shogi", "ascii", b"nonsense"), (CONNECT, "utf-8", b"a\xff")):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(
            [*command, game], input=typed + b"\nquit\n", capture_output=True, env=environment, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert b"Type help" in done.stdout.splitlines()[-2]
        assert done.stdout.endswith(b"no winner: game abandoned\n")


@pytest.mark.parametrize(
    ("color", "sides"),
    [("w", (0,)), ("b", (1,)), ("X", (0,)), ("o", (1,)), ("first", (0,)), ("second", (1,)), ("both", (0, 1))],
)
def test_colors(game: Game[Any], color: str, sides: tuple[int, ...]) -> None:
    from genpolicy_play.commands import _sides

    assert _sides(game, color, seed=0) == sides


def test_random_color_follows_the_seed(game: Game[Any]) -> None:
    from genpolicy_play.commands import _sides

    assert {_sides(game, "random", seed=seed) for seed in range(10)} == {(0,), (1,)}
    assert _sides(game, "random", seed=4) == _sides(game, "random", seed=4)


def test_a_seed_in_a_policy_s_spelling_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    games = set()
    for seed in (5, 6, 7):
        command = ["play", "--game", "chess", "--policy", f"random?seed={seed}", "--self-play", "1", "--max-plies", "6"]
        assert cli.main(command) == 0
        games.add(capsys.readouterr().out)
    assert len(games) == 3


def test_an_engine_of_another_game_than_its_policy_s_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["engine", "--policy", "chess", "--game", "shogi"]) == 2
    assert "policy 'chess' plays 'chess', not 'shogi'" in capsys.readouterr().err
    assert cli.main(["engine", "--policy", "shogi", "--game", "shogi:declaration=none"]) == 2
    assert "plays 'shogi', not 'shogi:declaration=none" in capsys.readouterr().err


def test_no_policy_is_shown_where_chance_decides(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = [
        "show",
        "--game",
        "pig",
        "--policy",
        "random",
        "--position",
        "0 0 0 A roll",
        "--out",
        str(tmp_path / "a.svg"),
    ]
    assert cli.main(command) == 2
    assert "chance decides in '0 0 0 A roll', and no policy is asked there" in capsys.readouterr().err
