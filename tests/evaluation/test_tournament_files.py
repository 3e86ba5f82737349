"""What a tournament's folder may not hold: games of another policy, damaged lines, and numbers that none can have."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from genpolicy import cli
from genpolicy.errors import SourceError
from genpolicy.facets import reader
from genpolicy.registry import load_game
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.match import GameResult
from genpolicy_arena.ratings import FitOptions
from genpolicy_arena.ratings_command import read_games
from genpolicy_arena.results import LINES, MANIFEST, PURPOSE, TABLE
from genpolicy_arena.tournament import run_tournament
from genpolicy_common.store import Store
from tests.evaluation.tournament_games import FOUR, TTT, config
from tests.fuzz.malicious_folders import good_policy
from tests.small_datasets import CONNECT

pytestmark = pytest.mark.usefixtures("warm_start")


# What a kill, a full disk or somebody else leaves.


def test_a_last_line_that_was_torn_is_not_rated(here: Path) -> None:
    assert play(["a=random", "b=random?seed=2"], 2) == 0
    games = read_games(load_game(CONNECT), [here / "cup"], Counter())
    lines = here / "cup" / LINES
    lines.write_bytes(lines.read_bytes()[:-40])
    assert read_games(load_game(CONNECT), [here / "cup"], Counter()) == games[:-1]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
@pytest.mark.parametrize("name", [MANIFEST, LINES])
def test_a_pipe_is_named_and_not_waited_for(here: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert play(["a=random", "b=random?seed=2"], 1) == 0
    (here / "cup" / name).unlink()
    os.mkfifo(here / "cup" / name)
    keeper = os.open(here / "cup" / name, os.O_RDWR | os.O_NONBLOCK)  # who opens it is not left hanging
    threading.Timer(0.5, os.close, [keeper]).start()
    assert play(["a=random", "b=random?seed=2"], 2) == 2
    assert f"cup/{name}: is a pipe" in capsys.readouterr().err


# Policies that change.


def play(policies: list[str], rounds: int, *more: str) -> int:
    command = ["tournament", "--game", CONNECT, "--policy", *policies, "--rounds", str(rounds), "--random-plies", "2"]
    return cli.main([*command, "--workers", "1", "--out", "cup", *more])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("spelling", ["pol", "mcts:pol?simulations=2&value=even"])
def test_a_policy_that_was_replaced_does_not_play_on_under_its_name(
    spelling: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good_policy(here / "pol")
    players = [f"a={spelling}", "b=random"]
    assert play(players, 1, "--json", "cup.json") == 0
    sums = json.loads((here / "cup" / MANIFEST).read_text())["checksums"]
    assert list(sums) == ["a"]
    assert list(sums["a"]) == ["pol"]
    assert json.loads((here / "cup.json").read_text())["tournament"]["checksums"] == sums
    assert play(players, 2) == 0  # the same weights: goes on
    lines = (here / "cup" / LINES).read_bytes()
    shutil.move(here / "pol", here / "old")
    good_policy(here / "pol")  # other weights, since they are drawn
    capsys.readouterr()
    assert play(players, 3) == 2
    said = capsys.readouterr().err
    for part in ("cup: the policy of 'a' is another one", "checksum of pol was", "--out"):
        assert part in said, part
    assert (here / "cup" / LINES).read_bytes() == lines
    shutil.rmtree(here / "pol")
    shutil.move(here / "old", here / "pol")
    assert play(players, 3) == 0


def test_the_judges_policy_may_not_change_either(here: Path) -> None:
    def judged(folder: Path) -> None:
        game = load_game(CONNECT)
        rules = Adjudication(judge="policy:pol")
        run_tournament(config(game, 1, {"a": "random", "b": "greedy"}, rules=rules), game, folder)

    good_policy(here / "pol")
    judged(here / "cup")
    judged(here / "cup")
    good_policy(here / "pol")
    with pytest.raises(ValueError, match="the policy of '--judge' is another one"):
        judged(here / "cup")


def test_a_tournament_of_before_checksums_is_resumed_and_gets_them(here: Path) -> None:
    good_policy(here / "pol")
    assert play(["a=pol", "b=random"], 1) == 0
    path = here / "cup" / MANIFEST
    manifest = json.loads(path.read_text())
    sums = manifest.pop("checksums")
    path.write_text(json.dumps(manifest))
    assert play(["a=pol", "b=random"], 2) == 0
    assert json.loads(path.read_text())["checksums"] == sums


def test_a_tournament_without_folders_has_the_manifest_of_before(tmp_path: Path) -> None:
    run_tournament(config(rounds=1), FOUR, tmp_path / "t")
    assert "checksums" not in json.loads((tmp_path / "t" / MANIFEST).read_text())


# Damaged files.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tournament of 12 games."""
    folder = tmp_path_factory.mktemp("cup")
    run_tournament(config(rounds=2), FOUR, folder)
    return folder


@pytest.fixture
def cup(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "cup"))


def change_line(folder: Path, line: int, **entries: Any) -> None:
    path = folder / LINES
    rows = [json.loads(text) for text in path.read_bytes().splitlines()]
    rows[line - 1].update(entries)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def resume(folder: Path) -> None:
    run_tournament(config(rounds=2), FOUR, folder)


def rate(folder: Path) -> None:
    read_games(FOUR, [folder], Counter())


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"number": "0"}, "number must be a whole number of at least 0, got '0'"),
    ({"number": -1}, "number must be"),
    ({"number": True}, "number must be"),
    ({"number": 1.0}, "number must be"),
    ({"round": None}, "round must be"),
    ({"pair": 3}, "pair must be text"),
    ({"first": "nobody"}, "first is 'nobody', which tournament.json does not list as a player"),
    ({"second": "nobody"}, "second is 'nobody', which tournament.json does not list as a player"),
    ({"first": "random", "second": "random"}, "first and second are both 'random'"),
    ({"start": []}, "start must be text"),
    ({"reason": "\ud800"}, "reason must be text"),
    ({"opening_plies": 999}, "opening_plies is 999"),
    ({"moves": "abc"}, "moves must be a list of texts"),
    ({"moves": [1]}, "moves must be a list of texts"),
    ({"result": 0.5}, "result must be 1, 0 or -1"),
    ({"result": float("nan")}, "result must be 1, 0 or -1"),
    ({"result": True}, "result must be 1, 0 or -1"),
    ({"ended": "peace"}, "ended must be one of rules, adjudication, limit, forfeit"),
    ({"ended": "forfeit"}, "contradict each other"),
    ({"forfeit_by": "random"}, "contradict each other"),
    ({"seconds": [1]}, "seconds must be two numbers"),
    ({"seconds": [0, float("nan")]}, "seconds must be two numbers"),
    ({"seconds": [0, 10**400]}, "seconds must be two numbers"),
    ({"finished": "yesterday"}, "finished must be a time"),
    ({"games_file_bytes": "a"}, "games_file_bytes must be null or more than"),
    ({"games_file_bytes": -1}, "games_file_bytes must be null or more than"),
    ({"games_file_bytes": 1}, "games_file_bytes must be null or more than"),
    ({"more": 1}, "entries missing or unknown: ['more']"),
]


@pytest.mark.parametrize("line", [2, 12])
@pytest.mark.parametrize(("entries", "message"), CHANGES, ids=lambda value: str(value)[:40])
def test_a_damaged_line_is_named(entries: dict[str, Any], message: str, line: int, cup: Path) -> None:
    change_line(cup, line, **entries)
    before = {path.name: path.read_bytes() for path in cup.iterdir()}
    for read, error in ((resume, ValueError), (rate, SourceError)):
        with pytest.raises(error) as caught:
            read(cup)
        assert str(caught.value).startswith(f"{cup / LINES}:{line}: damaged (")
        assert message in str(caught.value)
        assert before.items() <= {path.name: path.read_bytes() for path in cup.iterdir()}.items()


def test_a_line_of_too_many_brackets_is_named(cup: Path) -> None:
    (cup / LINES).write_text("[" * 100_000 + "\n")
    for read in (resume, rate):
        with pytest.raises(ValueError, match=r"games\.jsonl:1: damaged"):
            read(cup)


def test_a_tournament_of_another_game_is_not_rated(cup: Path) -> None:
    with pytest.raises(SourceError, match=f"cup: a tournament of '{FOUR.spec}', not '{TTT.spec}'; give --game"):
        read_games(TTT, [cup], Counter())


def test_a_tournament_that_has_just_begun_says_so(cup: Path) -> None:
    (cup / LINES).unlink()
    with pytest.raises(SourceError, match="cup: no game of this tournament is finished yet"):
        read_games(FOUR, [cup], Counter())


def test_games_are_not_counted_twice(cup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cup.parent)
    for again in (cup, Path("cup"), cup / ".." / "cup"):
        with pytest.raises(SourceError, match="given twice"):
            read_games(FOUR, [cup, again], Counter())
    (file,) = cup.glob("games.[!j]*")
    for both in ([cup, file], [file, cup]):
        with pytest.raises(SourceError, match=r"given twice \(the same games as "):
            read_games(FOUR, both, Counter())
    shutil.copy(file, cup / f"mine{file.suffix}")
    assert len(read_games(FOUR, [cup, cup / f"mine{file.suffix}"], Counter())) == 24, "another file is another file"


def test_a_link_that_leads_to_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop.pgn").symlink_to(tmp_path / "loop.pgn")
    with pytest.raises(SourceError, match="loop"):
        read_games(FOUR, [tmp_path / "loop.pgn"], Counter())


def test_a_game_with_two_lines_is_named(cup: Path) -> None:
    path = cup / LINES
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[4])
    for read in (resume, rate):
        with pytest.raises(ValueError, match=r"games\.jsonl:13: damaged \(game \d+ has line 5, too\)"):
            read(cup)


def test_what_the_message_says_repairs_a_line(cup: Path, finished: Path) -> None:
    def games(folder: Path) -> dict[int, Any]:
        rows = map(json.loads, (folder / LINES).read_bytes().splitlines())
        return {row["number"]: (row["first"], row["moves"], row["result"]) for row in rows}

    path = cup / LINES
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:6] + lines[7:]))
    (cup / "games.games").unlink()
    resume(cup)
    assert games(cup) == games(finished)
    assert len(list(reader(FOUR, cup / "games.games", "games").open_games(cup / "games.games"))) == 12


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"number": 99}, r"games\.jsonl:3: game 100 is none of this tournament's 12 games"),
        ({"first": "mcts", "second": "other"}, r"games\.jsonl:3: game \d+ is 'mcts' against 'other' in round 1"),
        ({"round": 7}, r"games\.jsonl:3: game \d+ is .* in round 8"),
        ({"start": "nonsense"}, r"games\.jsonl:3: game \d+ began from another opening"),
    ],
)
def test_a_line_of_another_tournament_is_named(entries: dict[str, Any], message: str, cup: Path) -> None:
    change_line(cup, 3, **entries)
    with pytest.raises(ValueError, match=message):
        resume(cup)


@pytest.mark.parametrize("moves", [["nonsense"], "same"])
def test_illegal_moves_are_named_before_the_games_file_is_written(moves: Any, cup: Path) -> None:
    known = json.loads((cup / LINES).read_bytes().splitlines()[2])["moves"]
    change_line(cup, 3, moves=known + (moves if moves != "same" else known))
    (cup / "games.games").unlink()
    with pytest.raises(ValueError, match=r"games\.jsonl:3: damaged .*(not a move|is illegal)"):
        resume(cup)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A tournament that ended early after five games."""

    class Stopped(Exception):
        pass

    def stop(done: int, planned: int, sprt: Any) -> None:
        if done == 5:
            raise Stopped

    with pytest.raises(Stopped):
        run_tournament(config(rounds=2), FOUR, tmp_path, progress=stop)
    return tmp_path


def test_a_line_that_disagrees_with_the_store_is_named(begun: Path) -> None:
    row = json.loads((begun / LINES).read_bytes().splitlines()[1])
    change_line(begun, 2, result=-1.0 if row["result"] != -1 else 1.0)
    with pytest.raises(ValueError, match=r"games\.jsonl:2: damaged .another game or result than in journal\.sqlite"):
        resume(begun)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: None, "must be a mapping, got None"),
        (lambda row: [row], "must be a mapping, got "),
        (lambda row: {**row, "first": "nobody"}, "first is 'nobody', which tournament.json does not list as a player"),
        (lambda row: {**row, "moves": [*row["moves"], "nonsense"]}, "'nonsense' is not a move"),
        (lambda row: {**row, "moves": [*row["moves"], *row["moves"]]}, "is illegal in"),
    ],
    ids=["nothing", "list", "player", "no move", "illegal move"],
)
def test_a_damaged_game_of_the_store_is_named(change: Any, message: str, begun: Path) -> None:
    """The last game that was kept has no line yet, as after a kill."""
    lines = (begun / LINES).read_bytes().splitlines(keepends=True)
    last = str(json.loads(lines[-1])["number"])
    (begun / LINES).write_bytes(b"".join(lines[:-1]))
    with Store(begun / "journal.sqlite", PURPOSE) as store:
        store.put(TABLE, last, change(store.get(TABLE, last)))
    with pytest.raises(ValueError, match=r"journal\.sqlite: damaged \(game \d+: .*; delete it, and") as caught:
        resume(begun)
    assert message in str(caught.value)
    (begun / "journal.sqlite").unlink()
    resume(begun)
    assert len((begun / LINES).read_bytes().splitlines()) == 12


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("games_at_once", -2, "games_at_once must be an even number of at least 2, got -2"),
        ("games_at_once", 0, "games_at_once must be"),
        ("games_at_once", 3, "games_at_once must be"),
        ("games_at_once", 2.0, "games_at_once must be"),
        ("games_at_once", "2", "games_at_once must be"),
        ("rounds", -5, "rounds must be a whole number of at least 1, got -5"),
        ("rounds", True, "rounds must be"),
        ("event", ["x"], "event must be text"),
        ("players", ["random"], "players must be at least two spellings by name"),
        ("players", {"random": "random"}, "players must be at least two"),
        ("players", {"a": 1, "b": 2}, "players must be at least two"),
        ("checksums", {"a": "1234"}, "checksums must be checksums by player and folder"),
    ],
)
def test_a_manifest_of_no_tournament_is_named(key: str, value: Any, message: str, cup: Path) -> None:
    path = cup / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    for read in (resume, rate):
        with pytest.raises(ValueError, match=rf"tournament\.json: damaged \({message}"):
            read(cup)


def test_players_in_another_order_do_not_mix_colours(cup: Path) -> None:
    players = dict(reversed(config(rounds=2).players.items()))
    with pytest.raises(ValueError, match="were the players given in another order"):
        run_tournament(config(rounds=3, players=players), FOUR, cup)


def test_results_of_all_kinds_come_back_from_their_lines() -> None:
    texts = {"pair": "0|a|b", "first": "a", "second": "b", "start": "", "opening": "", "reason": ""}
    plain: dict[str, Any] = {**texts, "number": 0, "round": 0, "opening_plies": 0, "moves": ()}
    plain |= {"seconds": (0.0, 1.5), "finished": "2025-01-02T03:04:05"}
    for ended, result, loser in (("rules", 1.0, None), ("limit", 0.0, None), ("forfeit", -1.0, "a")):
        game = GameResult(**plain, result=result, ended=ended, forfeit_by=loser)
        assert GameResult.from_dict(json.loads(json.dumps(game.to_dict()))) == game


# Numbers of ratings.


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--prior", value) for value in ("nan", "inf", "-1", "1e300")),
        *(("--anchor", f"a={value}") for value in ("nan", "-inf", "1e308", "20000")),
        *(("--draw", value) for value in ("nan", "inf", "-1", "1e308")),
        *(("--advantage", value) for value in ("nan", "inf", "5000", "-1e308")),
    ],
)
def test_numbers_without_meaning_are_refused_before_a_game(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tournament", "--game", TTT.spec, "--policy", "a=random", "b=greedy", "--rounds", "1"]
    assert cli.main([*command, "--out", str(tmp_path / "t"), f"{option}={value}"]) == 2
    said = capsys.readouterr().err
    assert option in said
    assert "must be a number from" in said
    assert not (tmp_path / "t").exists()


def test_numbers_at_the_ends_of_their_ranges_are_taken() -> None:
    for options in ({"prior": 0.0}, {"prior": 1e6}, {"anchor": ("a", -1e4)}, {"draw": 1e4}, {"advantage": -2000.0}):
        FitOptions(**options)
