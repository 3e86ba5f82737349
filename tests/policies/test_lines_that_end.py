"""Shipped policies: where imagined lines end, how many calls a decision takes, what a folder is held to."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import genpolicy
from genpolicy.control import Control
from genpolicy.errors import CheckpointError
from genpolicy.policies.base import Variation, decide_with
from genpolicy.policies.thinking import Answer
from genpolicy_play.engine.info import legality_text
from genpolicy_play.web.deciding import line_of

MATE = "6k1/5ppp/8/8/8/8/8/4R1K1 w - - 0 1"


@pytest.mark.parametrize("options", ["", "?candidates=0", "?candidates=0&num_steps=10"])
def test_a_line_ends_with_the_game(options: str) -> None:
    policy = genpolicy.load_policy(f"chess{options}")
    game = policy.game
    states = [game.parse(MATE), game.parse()]
    wanted = {MATE: game.moves.index("e1e8")}
    forced = Control(restrict=lambda state: [wanted[text]] if (text := game.format(state)) in wanted else None)
    mated, going = decide_with(policy, states, forced)
    assert mated.line[0] == wanted[MATE]
    assert set(mated.line[1:]) == {-1}
    assert mated.states[0] == game.format(game.play(states[0], wanted[MATE]))
    assert set(mated.states[1:]) <= {None}
    assert -1 not in going.line


def test_a_decision_takes_no_more_calls_than_it_may() -> None:
    policy = genpolicy.load_policy("chess?candidates=0")
    for calls in (1, 2, 3, 5, 7, 12, 100):
        fewer = policy.with_effort(calls=calls)
        (decision,) = fewer.decide([fewer.game.parse()])
        assert decision.stats["network_calls"] <= calls
    assert policy.with_effort(calls=100).num_calls > policy.with_effort(calls=5).num_calls


def test_moves_after_the_end_are_not_counted_as_wrong() -> None:
    game = genpolicy.load_game("chess")
    state, move = game.parse(MATE), game.moves.index("e1e8")
    after = game.format(game.play(state, move))
    ended = Answer((Variation((move,)),), imagined=(move, -1, -1), states=(after, None))
    text = legality_text(game, state, ended)
    assert text == "imagined e1e8 - -: 1 of 1 moves legal, 1 of 1 positions as the rules give them"
    early = game.moves.index("e1e2")
    too_early = Answer((Variation((early,)),), imagined=(early, -1), states=(None,))
    assert "1 of 2 moves legal" in str(legality_text(game, state, too_early))
    assert [each["legal"] for each in line_of(game, state, (move, -1, -1))] == [True, True, True]
    reply = game.moves.index("g8f8")
    assert [each["legal"] for each in line_of(game, state, (early, -1, reply, -1))] == [True, False, False, False]


def test_options_of_a_network_that_its_weights_do_not_have_are_refused(tmp_path: Path) -> None:
    policy = genpolicy.load_policy("tic-tac-toe")
    folder = policy.save_pretrained(tmp_path / "saved")  # type: ignore[attr-defined]
    assert genpolicy.load_policy(str(folder)).decide([policy.game.parse()])
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    text = (changed / "config.yaml").read_text()
    (changed / "config.yaml").write_text(re.sub("shown_counts: .*", "shown_counts: true", text))
    with pytest.raises(CheckpointError, match=r"learner\.network was changed"):
        genpolicy.load_policy(str(changed))
