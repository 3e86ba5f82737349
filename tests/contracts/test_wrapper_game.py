"""A game that wraps another works wherever a game does: facets are declared, and specifications nest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from genpolicy import cli, load_game, load_policy, registry
from genpolicy.data.records import Dataset
from genpolicy.shipped import shipped_policies
from genpolicy.testing import check_game
from genpolicy_alphabeta.search import AlphaBeta
from genpolicy_arena.openings import read_book
from tests.contracts.third_party.third_party_coded import CodedGame

# On one worker, so that what the module trains is trained once.
pytestmark = pytest.mark.xdist_group("wrapper-game")

CONNECT = "connect:rows=3,cols=3,k=3,gravity=false"
CODED = f"coded:game=[{CONNECT}]"
POSITIONS = [
    "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
]


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    registry.register("games", "coded")(CodedGame)
    yield
    registry.unregister("games", "coded")


@pytest.mark.parametrize("inner", [CONNECT, "chess", "shogi"])
def test_it_keeps_the_laws_of_a_game(inner: str) -> None:
    game = load_game(f"coded:game=[{inner}]")
    assert (type(game), load_game(game.spec)) == (CodedGame, game)
    check_game(game, num_games=2, positions_per_game=4)


def test_wrappers_nest() -> None:
    game = load_game(f"coded:game=[{CODED}]")
    assert game.spec == f"coded:game=[{CODED}]"
    state = load_game(CONNECT).parse()
    np.testing.assert_array_equal(game.tokens.encode([state]), load_game(CONNECT).tokens.encode([state]))


@pytest.mark.parametrize("fen", POSITIONS)
def test_alphabeta_follows_forcing_moves_through_it(fen: str) -> None:
    inner, game = load_game("chess"), load_game("coded:game=[chess]")
    plain, wrapped = (AlphaBeta(each, depth=2) for each in (inner, game))
    assert plain.quiescence == wrapped.quiescence > 0
    assert plain.search(inner.parse(fen)) == wrapped.search(game.parse(fen))


def test_its_files_are_the_inner_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pgn").write_text('[White "a"]\n[Black "b"]\n[Result "1-0"]\n\n1. e4 e5 2. Nf3 Nc6 1-0\n')
    book = read_book(load_game("coded:game=[chess]"), tmp_path / "a.pgn", 3)
    assert [len(opening.moves) for opening in book.openings] == [3]
    folder = tmp_path / "d"
    assert (
        cli.main(["data", "import", str(tmp_path / "a.pgn"), "--game", "coded:game=[chess]", "--out", str(folder)]) == 0
    )
    records = Dataset.open(folder)
    assert records.info.game == "coded:game=[chess]"
    assert [record.played for record in records.records()] == ["e2e4", "e7e5", "g1f3", "b8c6"]


def test_a_tournament_of_it_starts_from_a_book_and_writes_games(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(".../.X./... O\nX../.../... O\n")
    words = ["tournament", "--game", CODED, "--policy", "random", "greedy", "--rounds", "2", "--workers", "1"]
    assert cli.main([*words, "--openings", str(tmp_path / "book.txt"), "--out", str(tmp_path / "t")]) == 0
    played = list(load_game(CONNECT).files.open_games(tmp_path / "t" / "games.games"))
    assert len(played) == 4
    assert {game.start for game in played} == {".../.X./... O", "X../.../... O"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy trained on the wrapped game through the command line, from positions to weights."""
    home = tmp_path_factory.mktemp("coded")
    for words in (
        ["data", "import", "all", "--game", CODED, "--max-positions", "200", "--out", f"{home}/all"],
        [
            "data",
            "label",
            f"{home}/all",
            "--oracle",
            "alphabeta?depth=2",
            "--horizon",
            "2",
            "--out",
            f"{home}/labelled",
        ],
        [
            *["train", "--config", "configs/connect/s-asa-3x3.yaml", "--out", f"{home}/run"],
            *[f"data.folder={home}/labelled", "learner.horizon=2", "trainer.max_minutes=null", "trainer.max_steps=2"],
            *["learner.network.num_layers=1", "learner.network.width=32", "learner.network.num_heads=2"],
        ],
    ):
        assert cli.main(words) == 0, words
    return home / "run" / "policy"


def test_a_policy_of_it_is_trained_saved_and_loaded(folder: Path) -> None:
    policy = load_policy(folder)
    game = policy.game
    assert game.spec == CODED
    (decision,) = policy.decide([game.parse("X../.O./... X")])
    assert decision.move in game.legal(game.parse("X../.O./... X"))


@pytest.mark.parametrize("spelling", ["random", f"random?game={CODED}", "alphabeta?depth=2", "FOLDER"])
def test_the_terminal_plays_it(spelling: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spelling = spelling.replace("FOLDER", str(folder))
    assert cli.main(["play", "--policy", spelling, "--opponent", "random", "--game", CODED, "--self-play", "1"]) == 0
    assert "game 1" in capsys.readouterr().out


def test_its_plan_is_drawn(folder: Path, tmp_path: Path) -> None:
    assert cli.main(["show", "--policy", str(folder), "--out", str(tmp_path / "plan.svg")]) == 0
    assert ">c" in (tmp_path / "plan.svg").read_text()  # symbols as text


def test_the_page_offers_and_plays_it(folder: Path) -> None:
    pytest.importorskip("starlette", reason="needs the extra [web]")
    from tests.play.web_server import serving

    with serving([folder, f"greedy?game={CODED}"], []) as client:
        (game,) = client.get("/api/offers").json["games"]
        assert (game["spec"], game["title"], game["file_suffixes"]) == (CODED, "Tic-tac-toe, coded", [".games"])
        assert client.position(CODED, ["b2"])["moves"] == ["b2"]
        for label in (folder.parent.name, "greedy"):
            reply = client.decide(CODED, label, ["b2"])
            assert reply.status == 200, reply.body
    with serving([], [CODED]) as client:
        offered = {policy["label"] for policy in client.get("/api/offers").json["policies"]}
    with serving([], [CONNECT]) as client:
        labels = {policy["label"] for policy in client.get("/api/offers").json["policies"]}
    assert offered == labels - set(shipped_policies())  # those are of the wrapped game alone


def test_its_facts_are_plain_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["perft", "--game", CODED, "--depth", "2", "--json", str(tmp_path / "p.json")]) == 0
    assert json.loads((tmp_path / "p.json").read_text())["nodes"] == 72


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("coded:game=[connect:rows=3", "brackets do not match"),
        ("coded:game=connect:rows=3]", "brackets do not match"),
        ("coded:game=]connect[", "brackets do not match"),
        ("coded:game=[[chess]", "brackets do not match"),
        ("coded:game=connect:rows=3,cols=3", "no argument 'cols'"),
        ("coded:game=[ches]", "no entry 'ches'.*Did you mean: 'chess'"),
        ("coded", "missing 1 required positional argument: 'game'"),
    ],
)
def test_a_wrong_nested_specification_is_named(spec: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["perft", "--game", spec, "--depth", "1"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error
