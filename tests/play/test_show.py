"""``genpolicy show``: files of each kind, what stands in them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import genpolicy
from genpolicy.cli import main
from genpolicy.networks import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner

SVG = "{http://www.w3.org/2000/svg}"
NET = NetworkConfig(num_layers=1, width=16, num_heads=2, geometry="board", head="typed", init_std=0.4)
TTT = "connect:rows=3,cols=3,k=3,gravity=false"


def saved(folder: Path, game: str, **options: Any) -> str:
    torch.manual_seed(0)
    config = {"network": NET, "horizon": 3, "process": {"kind": "absorbing", "num_timesteps": 4}, **options}
    policy = DiffusionLearner(genpolicy.load_game(game), DiffusionConfig(**config)).policy()
    return str(policy.save_pretrained(folder))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("show") / "small", TTT)


@pytest.fixture(scope="module")
def chess(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("chess")
    return saved(tmp_path_factory.mktemp("show") / "chess", "chess")


@pytest.fixture(scope="module")
def shogi(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("cshogi")
    return saved(tmp_path_factory.mktemp("show") / "shogi", "shogi")


def texts(path: Path) -> list[str]:
    return [each.text or "" for each in ElementTree.parse(path).getroot().iter(f"{SVG}text")]


def raster() -> None:
    for name in ("resvg_py", "PIL"):
        pytest.importorskip(name, reason="needs the extra [show]")


def test_svg_tells_the_plan(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figures = tmp_path / "plan.svg", tmp_path / "plan.json"
    assert main(["show", "XO./.X./... O", "--policy", small, "--out", str(out), "--json", str(figures)]) == 0
    told = json.loads(figures.read_text())
    words = texts(out)
    assert "small: O to move" in words
    assert "step 4 of 4" in words
    for action in told["steps"][-1]["actions"]:
        assert any(action["move"] == word for word in words)
        assert action["legal"] is None or ("legal" if action["legal"] else "illegal") in words
    last = told["steps"][-1]["probabilities"]
    assert f"{100 * last[told['move']]:.1f} %" in words
    assert [(step["step"], step["time"]) for step in told["steps"]] == [(1, 3), (2, 2), (3, 1), (4, 0)]
    assert [len(step["boards"]) for step in told["steps"]] == [2] * 4
    assert told["steps"][-1]["boards"][0]["masked"] == []
    policy = genpolicy.load_policy(small, seed=0)
    decision = policy.decide([policy.game.parse("XO./.X./... O")])[0]
    assert told["move"] == policy.game.moves[decision.move]
    assert str(out) in capsys.readouterr().out


def test_a_step_shows_masks_and_the_last_one_none(small: str, tmp_path: Path) -> None:
    for step, masked in ((1, True), (4, False)):
        out = tmp_path / f"{step}.svg"
        assert main(["show", "--policy", small, "--out", str(out), "--step", str(step)]) == 0
        assert ('class="gp-mask"' in out.read_text()) is masked


def test_png_and_gif_have_their_size_and_end_on_the_decision(small: str, tmp_path: Path) -> None:
    raster()
    from PIL import Image

    for suffix in ("png", "gif"):
        assert main(["show", "--policy", small, "--out", str(tmp_path / f"plan.{suffix}"), "--width", "500"]) == 0
    still, moving = Image.open(tmp_path / "plan.png"), Image.open(tmp_path / "plan.gif")
    assert still.width == moving.width == 500
    assert still.height == moving.height
    assert getattr(moving, "n_frames", 1) == 4 + 3 * 2  # a picture a step, two that fade between
    moving.seek(9)
    assert moving.info["duration"] == 6 * 450  # held
    assert moving.info["loop"] == 0
    # Up to the palette's rounding the last picture is the still.
    one, other = still.convert("L"), moving.convert("L")
    apart = [abs(a - b) for a, b in zip(one.tobytes(), other.tobytes(), strict=True)]
    assert sum(apart) / len(apart) < 3
    moving.seek(0)
    assert moving.convert("L").tobytes() != other.tobytes()


def test_png_is_the_same_without_the_fonts_of_the_system(shogi: str, tmp_path: Path) -> None:
    """Pieces are paths, kanji too: without any font the board is drawn as with all of them."""
    raster()
    import io

    import resvg_py
    from PIL import Image

    from genpolicy_play.drawing import board_of, board_svg

    game = genpolicy.load_game("shogi")
    svg = board_svg(game, board_of(game, game.parse()), width=600)
    boxes = []
    for skip in (False, True):
        image = Image.open(io.BytesIO(bytes(resvg_py.svg_to_bytes(svg_string=svg, skip_system_fonts=skip)))).convert(
            "L"
        )
        square = image.crop((150, 40, 450, 340))
        boxes.append(square.tobytes())
    assert boxes[0] == boxes[1]
    assert min(boxes[0]) < 60  # ink


@pytest.mark.parametrize(
    ("paradigm", "horizon"), [("s-asa", 1), ("s-asa", 2), ("s-asa", 5), ("s-asa", 8), ("s-aa", 4), ("s-ass", 3)]
)
def test_paradigms_and_horizons(tmp_path: Path, paradigm: str, horizon: int) -> None:
    policy = saved(tmp_path / "p", TTT, paradigm=paradigm, horizon=horizon, train_pad=True)
    assert main(["show", "--policy", policy, "--out", str(tmp_path / "p.svg"), "--moves", "b2", "a1"]) == 0
    root = ElementTree.parse(tmp_path / "p.svg").getroot()
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for each in root.iter(f"{SVG}text"):
        if each.attrib["font-size"] in ("27", "21", "17", "15"):
            assert 0 <= float(each.attrib["x"]) <= width
            assert 0 <= float(each.attrib["y"]) <= height


def test_values_are_told(tmp_path: Path) -> None:
    policy = saved(tmp_path / "p", TTT, paradigm="s-avav", horizon=2)
    assert main(["show", "--policy", policy, "--out", str(tmp_path / "p.svg")]) == 0
    said = [word for word in texts(tmp_path / "p.svg") if " wins " in word]
    assert [word.split()[0] for word in said] == ["X", "O"]


def test_chess_and_shogi_with_the_second_player_to_move(chess: str, shogi: str, tmp_path: Path) -> None:
    out = tmp_path / "plan.svg"
    assert main(["show", "--policy", chess, "--out", str(out), "--moves", "e4", "--flip", "--theme", "dark"]) == 0
    assert "chess: Black to move" in texts(out)
    sfen = "lnsgkgsnl/1r5b1/ppppppppp/9/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL w - 2"
    assert main(["show", *sfen.split(), "--policy", shogi, "--out", str(out)]) == 0  # unquoted
    assert "shogi: White to move" in texts(out)


@pytest.mark.parametrize("spec", ["random", "greedy", "mcts:heuristic?simulations=20", "alphabeta?depth=3"])
def test_policies_without_steps_have_a_picture(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.svg"
    assert main(["show", "--game", "connect", "--policy", spec, "--out", str(out)]) == 0
    assert ("it imagines nothing beyond this move" in capsys.readouterr().out) == (spec in ("random", "greedy"))
    assert not any(word.startswith("step ") for word in texts(out))


def test_one_step_policy_has_one_step(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = OneStepLearner(genpolicy.load_game(TTT), OneStepConfig(network=NET)).policy()
    folder = made.save_pretrained(tmp_path / "one")
    figures = tmp_path / "one.json"
    line = ["show", "--policy", str(folder), "--out", str(tmp_path / "one.svg"), "--json", str(figures)]
    assert main(line) == 0
    assert len(json.loads(figures.read_text())["steps"]) == 1


def test_text_from_outside_is_escaped(small: str, tmp_path: Path) -> None:
    out = tmp_path / "plan.svg"
    assert main(["show", "--policy", small, "--out", str(out), "--title", "<script>&\"'</script>"]) == 0
    assert "<script" not in out.read_text()
    assert "<script>&\"'</script>" in texts(out)


def test_seed_makes_the_picture(small: str, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.svg", "b.svg", "c.svg")]
    for out, seed in zip(files, ("3", "3", "4"), strict=True):
        line = ["show", "--policy", small, "--out", str(out), "--sampler", "ancestral", "--seed", seed]
        assert main(line) == 0
    first, same, other = (out.read_text() for out in files)
    assert first == same
    assert first != other


BAD = {
    "unknown suffix": (["--out", "{dir}/plan.bmp"], r"plan.bmp.*\.svg, \.png, \.gif"),
    "no suffix": (["--out", "{dir}/plan"], r"\.svg, \.png, \.gif"),
    "no folder": (["--out", "{dir}/none/plan.svg"], r"no folder"),
    "a folder": (["--out", "{dir}/folder.svg"], r"is a folder"),
    "illegal position": (["XXX/OOO/... X"], r"XXX/OOO/\.\.\. X.*is not a position"),
    "position of another game": (
        ["rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"],
        r"is not a position of connect",
    ),
    "game over": (["XXX/OO./... O"], r"the game is over.*3 in a row"),
    "illegal move": (["--moves", "b2", "b2"], r"b2.*illegal"),
    "no such step": (["--step", "9"], r"--step must be 1 to 4"),
    "step 0": (["--step", "0"], r"--step must be 1 to 4"),
    "step of an animation": (["--step", "2", "--out", "{dir}/plan.gif"], r"--step shows one step"),
    "another game": (["--game", "connect"], r"plays.*not"),
    "no such sampler": (["--sampler", "easyfirst"], r"easyfirst.*Did you mean: 'easy_first'"),
    "too many steps": (["--num-steps", "99"], r"num_steps must be 1\.\.4"),
    "width": (["--width", "9"], r"--width must be 200 to 8000"),
    "top": (["--top", "0"], r"--top must be 1 to 8"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message_and_no_file(
    case: str, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raster()
    arguments, expected = BAD[case]
    (tmp_path / "folder.svg").mkdir()
    line = [word.replace("{dir}", str(tmp_path)) for word in arguments]
    if "--out" not in line:
        line += ["--out", str(tmp_path / "plan.svg")]
    assert main(["show", "--policy", small, *line]) == 2
    errors = capsys.readouterr().err
    import re

    assert re.search(expected, errors), errors
    assert errors.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]


def test_animation_of_a_policy_that_does_not_dream_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raster()
    for more in (["--out", str(tmp_path / "a.gif")], ["--out", str(tmp_path / "a.svg"), "--step", "1"]):
        assert main(["show", "--policy", "random", "--game", "connect", *more]) == 2
        assert "does not imagine by steps" in capsys.readouterr().err
    assert main(["show", "--policy", "random", "--out", str(tmp_path / "a.svg")]) == 2
    assert "--game" in capsys.readouterr().err


def test_animation_of_a_search_names_the_option_that_has_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raster()
    out = tmp_path / "a.gif"
    command = ["show", "--policy", "tic-tac-toe", "--width", "200", "--out", str(out)]
    assert main(command) == 2
    assert "judges imagined candidates, so there is nothing for an animation" in (said := capsys.readouterr().err)
    assert "or show its steps by --candidates 0" in said
    assert main([*command, "--candidates", "0"]) == 0
    assert out.read_bytes().startswith(b"GIF89a")


def test_a_tree_search_says_what_it_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    command = ["show", "--policy", "mcts:tic-tac-toe?model=imagined&simulations=20", "--top", "3", "--out", str(out)]
    assert main(command) == 0
    assert len([line for line in capsys.readouterr().out.splitlines() if "% after " in line]) == 3
    assert main([*command, "--step", "1"]) == 2
    assert "does not imagine by steps" in (said := capsys.readouterr().err)
    assert "--candidates" not in said


def test_missing_library_is_named(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "resvg_py", None)
    assert main(["show", "--policy", small, "--out", str(tmp_path / "plan.png")]) == 2
    assert "genpolicy[show]" in capsys.readouterr().err


def test_browser_draws_the_svg(browser: Any, small: str, tmp_path: Path) -> None:
    """The file by itself in Chromium: no error, and every board's squares have their size."""
    out = tmp_path / "plan.svg"
    assert main(["show", "--policy", small, "--out", str(out)]) == 0
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    page.goto(out.as_uri())
    sizes = page.evaluate("[...document.querySelectorAll('[data-place]')].map(e => e.getBoundingClientRect().width)")
    assert len(sizes) == 3 * 9  # the position and two that are imagined
    assert min(sizes) > 30
    page.close()
