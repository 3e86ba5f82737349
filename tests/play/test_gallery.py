"""Recorded dreams: what the command records, what it refuses, and the page in a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from genpolicy import load_game
from genpolicy.cli import main
from genpolicy.config import compose
from genpolicy.errors import ConfigError
from genpolicy_play.gallery.page import html, record
from genpolicy_play.gallery.scenes import SHIPPED, Column, Gallery, Scene, state_of
from tests.play.engine_policies import save_diffusion
from tests.play.web_page import accessible, expect

CONNECT = "connect:rows=3,cols=3,k=3,gravity=false"


@pytest.fixture(scope="module")
def dreamer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_diffusion(tmp_path_factory.mktemp("gallery"), CONNECT)


@pytest.fixture(scope="module")
def page(dreamer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenes = tmp_path_factory.mktemp("scenes") / "scenes.yaml"
    columns = [{"policy": str(dreamer), "title": "<dreams> & more"}, {"policy": "random"}]
    scene = {"title": "A scene", "game": CONNECT, "moves": ["a1"], "columns": columns}
    scenes.write_text(json.dumps({"title": "Some dreams", "scenes": [scene]}))
    out = scenes.parent / "page.html"
    assert main(["gallery", str(scenes), "--out", str(out)]) == 0
    return out


def packed(text: str) -> Any:
    found = re.search(r'<script id="steps"[^>]*>([^<]*)</script>', text)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def test_the_page_holds_all_it_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert "&lt;dreams&gt; &amp; more" in text
    (columns,) = packed(text)
    assert len(columns) == 2
    assert len(columns[0]) > 1
    assert len(columns[1]) == 1
    assert all(steps[-1] in text for steps in columns)  # shown where scripts do not run


def test_the_same_seed_records_the_same_page(dreamer: Path) -> None:
    from genpolicy import load_policy

    game = load_game(CONNECT)

    def made(seed: int) -> str:
        policy = load_policy(dreamer, seed=seed)
        recorded = record(policy, game.parse(), Column(policy="x"))
        scene = Scene(title="t", game=CONNECT, columns=[Column(policy="x")])
        return html(Gallery(scenes=[scene]), ["..."], [[recorded]])

    assert made(3) == made(3)


def test_what_is_shipped_names_positions_of_its_games() -> None:
    gallery = compose(Gallery, [SHIPPED])
    for name in ("chess", "cshogi"):
        pytest.importorskip(name)
    assert {scene.game.partition(":")[0] for scene in gallery.scenes} >= {"chess", "shogi"}
    for scene in gallery.scenes:
        game, state = state_of(scene)
        assert len(game.legal(state))
        assert len(scene.columns) > 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("title: x\n", "needs at least one entry in 'scenes'"),
        ("scenes: [{title: x}]\n", r"scene 1 \('x'\) needs at least one entry in 'columns'"),
        ("scenes: [{title: x, columns: [{title: y}]}]\n", "column 'y' names no policy"),
        ("scenes: [{titel: x, columns: [{policy: random}]}]\n", "titel.*Did you mean: 'title'"),
    ],
)
def test_scenes_that_say_too_little_are_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(content)
    with pytest.raises(ConfigError, match=message):
        compose(Gallery, [tmp_path / "s.yaml"])


def test_a_finished_game_and_a_wrong_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    over = Scene("over", game=CONNECT, moves=["a1", "b1", "a2", "b2", "a3"], columns=[Column("random")])
    with pytest.raises(ValueError, match=r"'over': the game is over in .*nothing is left to imagine"):
        state_of(over)
    assert main(["gallery", "--out", str(tmp_path / "page.png")]) == 2
    assert "its name must end in .html" in capsys.readouterr().err


@pytest.mark.parametrize(
    "size",
    [*(pytest.param(size, marks=pytest.mark.thorough) for size in [(1366, 768), (820, 1180)]), (390, 844)],
    ids=str,
)
def test_the_page_in_a_browser(browser: Any, page: Path, size: tuple[int, int]) -> None:
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]})
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    try:
        tab.goto(page.as_uri())
        tab.wait_for_selector("[data-scene][data-ready]")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        slider, first = tab.locator("input[type=range]"), tab.locator(".step").first
        last = first.inner_html()
        slider.focus()
        slider.press("Home")
        assert tab.locator("output").inner_text().startswith("1 /")
        assert first.inner_html() != last
        tab.click("button")
        expect(tab.locator("button")).to_have_text("Replay")  # which it says again behind the last step
        assert first.inner_html() == last
        accessible(tab)
        assert not said
    finally:
        tab.close()


def test_a_file_that_does_not_exist_is_named_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery", "nofile.yaml", "--out", str(tmp_path / "page.html")]) == 2
    assert "nofile.yaml: no such file; without FILE the shipped scenes are recorded" in capsys.readouterr().err
