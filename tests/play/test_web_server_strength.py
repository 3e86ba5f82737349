"""The strength of the offered policies: what each does in words, and its Elo where a file rates it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")

from genpolicy.cli import main
from genpolicy_play.web.catalog import make_catalog
from tests.play.web_server import TIC_TAC_TOE

POLICIES = ["random?seed=1", "random?seed=2"]


@pytest.fixture(scope="module")
def tournament(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rated")
    played = ["--policy", *POLICIES, "--rounds", "2", "--out", str(folder / "out"), "--json", str(folder / "elo.json")]
    assert main(["tournament", "--game", TIC_TAC_TOE, *played]) == 0
    return folder


def test_an_offer_says_what_the_policy_does_and_its_elo(tmp_path: Path) -> None:
    path = tmp_path / "elo.json"
    row = {"name": "random", "elo": -120.5, "low": None, "high": 3.5, "games": 40, "wins": 9, "draws": 0, "losses": 31}
    path.write_text(json.dumps({"game": TIC_TAC_TOE, "ratings": {"players": [row, {**row, "name": "you"}]}}))
    searching, sampling = "tic-tac-toe", "tic-tac-toe?candidates=0"
    catalog = make_catalog(["random", "mcts:rollout", searching, sampling], [TIC_TAC_TOE, "chess"], ratings=path)
    said = {(offer["label"], offer["game"]): offer for offer in catalog.described()["policies"]}
    of_random = said["random", TIC_TAC_TOE]
    about = [offer["about"] for offer in catalog.described()["policies"] if offer["kind"] == "diffusion"]
    assert [text.split(" and plays ")[1] for text in about] == ["the best move.", "its first action."]
    assert of_random["about"] == "Plays a uniformly random legal move."
    assert of_random["rating"] == {"elo": -120.5, "low": None, "high": 3.5, "games": 40}
    assert [offer["label"] for offer in said.values() if offer["rating"]] == ["random"]  # at that game alone
    catalog.close()


@pytest.mark.thorough
def test_the_ratings_of_a_tournament_are_read(tournament: Path) -> None:
    path = tournament / "elo.json"
    players = {player["name"]: player for player in json.loads(path.read_text())["ratings"]["players"]}
    catalog = make_catalog(POLICIES, [TIC_TAC_TOE], ratings=path)
    for offer, name in zip(catalog.described()["policies"], POLICIES, strict=True):
        assert offer["rating"] == {key: players[name][key] for key in ("elo", "low", "high", "games")}
    catalog.close()


@pytest.mark.thorough
def test_the_ratings_of_games_from_a_file_are_read_too(tournament: Path) -> None:
    path = tournament / "rated.json"
    games = str(next((tournament / "out").glob("games.g*")))
    assert main(["ratings", games, "--game", TIC_TAC_TOE, "--json", str(path)]) == 0
    catalog = make_catalog(POLICIES, [TIC_TAC_TOE], ratings=path)
    assert catalog.described()["policies"][0]["rating"]["games"] == 4
    catalog.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        pytest.param("[" * 100_000, "holds no ratings", id="deep"),
        ("[]", "holds no ratings; genpolicy tournament --json FILE"),
        ('{"game": "chess"}', "holds no ratings"),
        ('{"game": "chess", "ratings": {"players": [{"name": "you"}]}}', "holds no ratings"),
        (
            '{"game": "chess", "ratings": {"players": [{"name": "you", "elo": 1, "low": 0, "high": 2, "games": 3}]}}',
            "rates you at chess; here are random",
        ),
    ],
)
def test_a_file_without_the_ratings_of_a_policy_here_is_refused(
    tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "elo.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=message):
        make_catalog(["random"], ["chess"], ratings=path)
