"""A game of OpenSpiel from the command line: played, shown, in a tournament; a GUI has no protocol for it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from genpolicy import cli, load_game
from genpolicy_play.drawing import board_of, board_svg

pytest.importorskip("pyspiel", reason="open_spiel is not installed: pip install 'genpolicy[openspiel]'")
pytestmark = pytest.mark.usefixtures("warm_start")
GAME = ["--game", "openspiel:breakthrough,rows=5,columns=4"]


def test_play_names_moves_as_openspiel_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("moves\nb5c4\n"))
    assert cli.main(["play", *GAME, "--policy", "random"]) == 0
    shown = capsys.readouterr().out
    assert "a5a4 a5b4 b5a4 b5b4 b5c4 c5b4 c5c4 c5d4 d5c4 d5d4" in shown
    assert "5b.bb\n4..b.\n" in shown


def test_show_draws_and_names_the_line_of_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "line.svg"
    words = ["--policy", "mcts:rollout?simulations=16", "--moves", "b5c4", "--out", str(picture)]
    assert cli.main(["show", *GAME, *words]) == 0
    assert picture.read_text().startswith("<svg")
    assert re.match(r"\S+ plays (\w+\*?); imagines \1 [a-d]\d[a-d]\d", capsys.readouterr().out)


@pytest.mark.parametrize("spec", ["mancala", "nim", "pig", "twixt,board_size=5,ansi_color_output=false"])
def test_a_game_without_squares_for_all_that_it_shows_is_drawn_as_it_is_written(spec: str) -> None:
    game = load_game(f"openspiel:{spec}")
    state = game.play(game.parse(), int(game.legal(game.parse())[0]))
    drawn = ElementTree.fromstring(board_svg(game, board_of(game, state)))
    shown = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert "\n".join(shown).replace("\u00a0", " ") == game.view.board_text(state)


@pytest.mark.parametrize(("spec", "count"), [("checkers", 24), ("othello", 4), ("go,board_size=5", 0)])
def test_every_piece_is_drawn_and_no_empty_square(spec: str, count: int) -> None:
    game = load_game(f"openspiel:{spec}")  # an empty square is written ".", "-" and "+", which is a man in checkers
    assert board_svg(game, board_of(game, game.parse())).count('class="gp-piece"') == count


def test_a_tournament_is_played_to_the_end(tmp_path: Path) -> None:
    words = ["--policy", "a=random", "b=random?seed=1", "--rounds", "2", "--workers", "1", "--out", str(tmp_path)]
    assert cli.main(["tournament", *GAME, *words]) == 0
    games = [json.loads(line) for line in (tmp_path / "games.jsonl").read_text().splitlines()]
    assert {game["result"] for game in games} <= {-1.0, 1.0}  # breakthrough has no draws
    assert len(games) == 4


def test_an_engine_refuses_it_and_names_play(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["engine", *GAME, "--policy", "random"]) == 2
    assert "has no engine protocol (there are: uci, usi)" in (message := capsys.readouterr().err)
    assert message.endswith("use: genpolicy play --policy random\n")
