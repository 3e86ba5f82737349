"""What a person may type, or lack, and the way out that is named."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from genpolicy import load_game
from genpolicy.errors import RegistryError
from genpolicy.registry import load


def test_without_openspiel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    for name in [name for name in sys.modules if name.startswith("genpolicy_openspiel")]:
        monkeypatch.delitem(sys.modules, name)
    load_game.cache_clear() if hasattr(load_game, "cache_clear") else None
    with pytest.raises(RegistryError, match=r"needs the module 'pyspiel': pip install 'genpolicy\[openspiel\]'"):
        load("games", "openspiel")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "openspiel",
            r"e\.g\. openspiel:breakthrough or openspiel:breakthrough,rows=5; there are: amazons, .*, yacht$",
        ),
        (
            "openspiel:breakthrough(rows=5,columns=4)",
            r"say which .* e\.g\. .* openspiel:breakthrough,rows=5; there are",
        ),
        ("openspiel:brekthrough", r"has no game 'brekthrough'\. Did you mean: 'breakthrough'\? There are: amazons"),
        ("openspiel:leduc_poker", "'leduc_poker' of OpenSpiel cannot be played here: players do not see everything"),
        ("openspiel:dark_hex", "players do not see everything"),
        ("openspiel:oshi_zumo", "players do not move one after the other"),
        ("openspiel:solitaire", "it is not for two players"),
        ("openspiel:misere", "it is made of other games or of files"),
        ("openspiel:coop_to_1p", "what one player wins the other does not lose; it gives rewards before the end"),
        ("openspiel:breakthrough,row=5", r"takes no option 'row'\. Did you mean: 'rows'\? It takes: columns, rows"),
        ("openspiel:othello,size=6", "'othello' of OpenSpiel takes no option 'size'. It takes: none"),
        ("openspiel:breakthrough,rows=five", "rows is a whole number, got 'five'"),
        ("openspiel:breakthrough,rows=9999999", "rows must be at least -1000000 and at most 1000000, got '9999999'"),
        ("openspiel:go,komi=nan", "komi is a number, got nan"),
        ("openspiel:hex,swap=perhaps", "swap must be true or false"),
        ("openspiel:breakthrough,rows=1", r"OpenSpiel refuses 'openspiel:breakthrough,rows=1': .*rows_ > 1"),
        ("openspiel:gomoku,dims=40", "OpenSpiel refuses 'openspiel:gomoku,dims=40'"),
        ("openspiel:hex,board_size=-1", "has 0 numbers; 1 to 20,000 are played here"),
        ("openspiel:havannah,board_size=-1", "has 0 numbers; 1 to 20,000 are played here"),  # else it kills the process
        ("openspiel:yacht,num_dice=0", "OpenSpiel refuses 'openspiel:yacht,num_dice=0': .*no dice to reroll"),
        ("openspiel:yacht,dice_sides=0", "openspiel:yacht,dice_sides=0,.* neither a legal move nor a result"),
        ("openspiel:pig,diceoutcomes=0", "neither a legal move nor a result after 3 plies"),
        ("openspiel:hex,board_size=45", "what OpenSpiel writes of it is not UTF-8"),
        ("openspiel:connect_four,rows=100000", "numbers; 1 to 20,000 are played here"),
        ("openspiel:mnk,m=100000,n=100000", "moves; 1 to 20,000 are played here"),
        ("openspiel:chinese_checkers,players=3", "is for 3 players, not two"),
        ("openspiel:breakthrough,rows=5,rows=6", r"not one key=value \(each key once\)"),
    ],
)
def test_specifications_that_are_none(spec: str, message: str) -> None:
    pytest.importorskip("pyspiel")
    with pytest.raises(ValueError, match=message):
        load_game(spec)


@pytest.mark.slow
def test_a_board_that_makes_too_many_tokens_names_one_that_fits() -> None:
    pytest.importorskip("pyspiel")
    with pytest.raises(
        ValueError, match=r"6,360 tokens .* at most 2,048 are read here; openspiel:hive,board_size=4 fits"
    ):
        load_game("openspiel:hive")
    load_game("openspiel:hive,board_size=4")


def test_a_game_with_known_issues_says_so_and_plays(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspiel")
    game = load_game("openspiel:quoridor,board_size=5")
    assert "known issues" in capfd.readouterr().err
    assert len(game.legal(game.parse())) > 0


def shown(tensor: Any) -> Any:
    """A position of OpenSpiel that shows any tensor."""
    return SimpleNamespace(observation_tensor=lambda _: tensor.ravel().tolist())


def test_what_random_play_did_not_show_is_an_error_that_names_the_cell() -> None:
    pytest.importorskip("pyspiel")
    game = load_game("openspiel:breakthrough,rows=5,columns=4")
    true = np.array(game.parse().spiel.observation_tensor(0)).reshape(3, 5, 4)

    def state(change: Any) -> Any:
        tensor = true.copy()
        change(tensor)
        return replace(game.parse(), spiel=shown(tensor), made=(1, 2))

    def two(tensor: Any) -> None:
        tensor[0, 2, 1] = tensor[2, 2, 1] = 1

    def half(tensor: Any) -> None:
        tensor[1, 4, 3] = 0.5

    with pytest.raises(ValueError, match=r"position '1 2': row 2, column 1 .* \{0: 1\.0, 2: 1\.0\}"):
        game.tokens.encode([game.parse(), state(two)])
    with pytest.raises(ValueError, match=r"row 4, column 3 .*1: 0\.5"):
        game.tokens.encode([state(half)])
    counted = load_game("openspiel:mancala")
    tensor = np.array(counted.parse().spiel.observation_tensor(0))
    for number in (0.5, -1, 1000):
        tensor[3] = number
        with pytest.raises(ValueError, match=rf"row 0, column 3 .* \{{0: {number:.1f}\}}"):
            counted.tokens.encode([replace(counted.parse(), spiel=shown(tensor))])
    with pytest.raises(ValueError, match="position 'start': row 0, column 3"):
        counted.tokens.encode([replace(counted.parse(), spiel=shown(tensor))])


def test_what_needs_players_that_alternate_refuses_the_others() -> None:
    pytest.importorskip("pyspiel")
    from genpolicy import load_policy

    for game in ("mancala", "dots_and_boxes"):
        with pytest.raises(ValueError, match=rf"alpha-beta needs alternating players, .*{game}.*mcts:rollout"):
            load_policy("alphabeta?depth=2", game=f"openspiel:{game}")
    with pytest.raises(ValueError, match="mate need players that alternate"):
        (mancala := load_game("openspiel:mancala")).mate_distance(mancala.parse(), 3)
    policy = load_policy("alphabeta?depth=6", game="openspiel:tic_tac_toe")  # the players alternate
    with pytest.raises(ValueError, match="no heuristic evaluation"):
        policy.decide([policy.game.parse("0 3")])
    (decision,) = policy.with_options(depth=7).decide([policy.game.parse("0 3")])
    assert (decision.value, decision.stats["mate_plies"]) == (1.0, 5.0)
    assert policy.game.mate_distance(policy.game.parse("0 3 1 4"), 3) == 1
