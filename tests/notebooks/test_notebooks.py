"""The notebooks of the documentation run, and what a notebook draws of positions, decisions and dreams."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genpolicy
from genpolicy.control import Control
from genpolicy.policies.base import Decision, best_allowed
from tests.small_datasets import CONNECT

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def game() -> genpolicy.Game[Any]:
    return genpolicy.load_game(CONNECT)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_whole_and_linked(path: Path) -> None:
    """Ten cells without outputs, each of which compiles; the README names it."""
    notebook = json.loads(path.read_text())
    assert len(notebook["cells"]) == 10
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            compile("".join(cell["source"]), path.name, "exec")
    assert str(path.relative_to(ROOT)) in (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    """In a kernel of its own, as Jupyter runs it; the boards are drawn, and the trained policy plays."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    drawn = [output for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(drawn) == 4
    assert all("text/html" in output["data"] for output in drawn)
    assert all("in 0 steps" not in output["data"]["text/plain"] for output in drawn)
    assert "won," in outputs[-1]["text"]


def test_a_position_is_drawn_and_said(game: genpolicy.Game[Any]) -> None:
    from genpolicy_play.notebook import show

    state = game.play(game.parse(), game.moves.index("b2"))
    shown = show(game, state)
    assert repr(shown) == game.view.board_text(state)
    assert ET.fromstring(shown._repr_svg_() or "").tag.endswith("svg")
    assert (shown._repr_html_() or "").startswith("<figure><svg")


def test_a_decision_and_a_dream_are_drawn(game: genpolicy.Game[Any]) -> None:
    from genpolicy_play.notebook import show

    policy = genpolicy.load_policy("tic-tac-toe?candidates=0", device="cpu")
    state = game.play(game.parse(), game.moves.index("b2"))
    decision = policy.decide([state])[0]
    of_decision, of_dream = show(game, state, decision), show(game, policy.dream(state))
    assert repr(of_decision).startswith(decision.text)
    assert "6 steps" in repr(of_dream)
    for shown in (of_decision, of_dream):
        assert ET.fromstring(shown.svg or "").tag.endswith("svg")
    assert (of_decision.svg or "") != (show(game, state).svg or "")  # the arrows
    with pytest.raises(TypeError, match="show\\(game, state, decision\\)"):
        show(game, decision)


@pytest.mark.parametrize(("options", "said"), [("", ""), ("?candidates=0&sampler=one_call", ", in 1 step")])
def test_the_steps_of_a_dream_are_said_where_there_are_any(game: genpolicy.Game[Any], options: str, said: str) -> None:
    from genpolicy_play.notebook import show

    shown = repr(show(game, genpolicy.load_policy(f"tic-tac-toe{options}").dream(game.parse())))
    assert re.search("(, in .*)?$", shown).group() == said  # type: ignore[union-attr]


def test_without_a_board_the_text_is_all(game: genpolicy.Game[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from genpolicy_play.notebook import show

    bare = genpolicy.load_game(CONNECT)
    monkeypatch.setattr(bare, "tokens", type("Bare", (), {"rows": np.array([-1]), "cols": np.array([-1])})())
    state = game.parse()
    for shown in (show(bare, state), show(bare, state, Decision(4, names=game.moves.texts))):
        assert shown._repr_svg_() is None
        assert shown._repr_html_() is None
        assert repr(shown)


def test_the_text_of_a_decision(game: genpolicy.Game[Any]) -> None:
    names = game.moves.texts
    assert Decision(4, names=names).text == "b2"
    assert Decision(4, policy={4: 0.3412, 0: 0.6588}, value=-0.125, names=names).text == "b2, 34.1 %, value -0.12"
    assert Decision(4, value=0.5).text == "move 4, value +0.50"
    assert Decision(4, names=names) == Decision(4)


@pytest.mark.parametrize("spelling", ["random", "greedy", "alphabeta?depth=1", "mcts:heuristic?simulations=4"])
def test_our_policies_say_their_moves(game: genpolicy.Game[Any], spelling: str) -> None:
    policy, state = genpolicy.load_policy(spelling, game="connect"), genpolicy.load_game("connect").parse()
    decision = policy.decide([state])[0]
    assert decision.text.startswith(policy.game.moves[decision.move])
    other = next(int(move) for move in policy.game.legal(state) if move != decision.move)
    restricted = best_allowed(policy, state, decision, Control(restrict=lambda each: [other]))
    assert restricted.text.startswith(policy.game.moves[other])


def test_reprs_say_what_something_is(game: genpolicy.Game[Any]) -> None:
    assert repr(game) == f"ConnectGame({CONNECT!r})"
    policy = genpolicy.load_policy("random", game=game)
    assert repr(policy) == f"<RandomPolicy 'random' for {CONNECT}>"
    dream = policy.dream(game.parse())
    assert repr(dream) == f"<Dream in 0 steps: {dream.decision.text}>"
