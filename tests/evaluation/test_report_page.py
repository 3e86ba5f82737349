"""The report page: charts and tables as documents, parts that are kept, and the command from end to end."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import pytest

import genpolicy
from genpolicy.cli import main
from genpolicy.errors import EngineError
from genpolicy.game import Game
from genpolicy.machine import commit
from genpolicy.policies.base import Decision, Policy
from genpolicy_arena.match import GameResult
from genpolicy_common.labelled import LabelledPosition, labelled_positions
from genpolicy_common.store import Store, StoreError
from genpolicy_evaluation.latency import measure_latency
from genpolicy_evaluation.provenance import policy_fingerprint, source_fingerprint
from genpolicy_report import measures as report_parts
from genpolicy_report.charts import Bar, interval_chart
from genpolicy_report.measures import MeasureOptions, Part, PartStore, Row, measure_row, read_tournament
from genpolicy_report.page import Charts, Facts, Page, Table, check_page, to_html, to_markdown
from genpolicy_report.tables import main_charts, main_table
from tests.fuzz.malicious_folders import good_policy
from tests.small_datasets import CONNECT, solved_connect

HOSTILE = """<script>alert("x")</script> & 'a' | b ]]> -->"""
SVG = "{http://www.w3.org/2000/svg}"


class Reader(HTMLParser):
    """What stands in a page: tags with their attributes, text outside of style."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._in_style = tag == "style"
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data", "srcset")]

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            assert "url(" not in data
            assert "@import" not in data
        else:
            self.text += data


def page() -> Page:
    chart = interval_chart("c", "%", [Bar(HOSTILE, (1.0, 0.5, 2.0))])
    table = Table(HOSTILE, ["policy", "a %"], [("", [[HOSTILE, "12.3 [10.0, 15.0]"]]), ("others", [["x", "1"]])], ["n"])
    return Page(f"T {HOSTILE}", [HOSTILE], [table, Charts("Charts", [("c", chart)]), Facts("F", [("a", HOSTILE)])])


def test_html_is_self_contained_and_escaped() -> None:
    text = to_html(page())
    reader = Reader()
    reader.feed(text)
    assert "script" not in reader.tags
    assert reader.loads == []
    assert reader.text.count(HOSTILE) >= 6
    assert "prefers-color-scheme:dark" in text
    assert '12.3<span class="interval">[10.0, 15.0]</span>' in text


def test_markdown_keeps_its_tables() -> None:
    text = to_markdown(page(), "page_files")
    assert "<script>" not in text
    assert "![c](page_files/c.svg)" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) - 1 for line in tables}
    assert cells == {2}
    assert "| **others** |  |" in text


@pytest.mark.parametrize("name", ["page.txt", "page", "nowhere/page.html", "folder.md"])
def test_places_where_no_page_can_be_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(ValueError, match="--out"):
        check_page(tmp_path / name)


# Parts.


def test_part_is_made_once_for_a_key(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"x": math.nan, "y": (1, 2), "n": len(made)}

    first = PartStore(tmp_path / "parts").get("m", {"a": 1}, make)
    assert first.figures == {"x": None, "y": [1, 2], "n": 1}
    store = PartStore(tmp_path / "parts")
    assert store.get("m", {"a": 1}, make).figures == first.figures
    assert (len(made), store.num_kept) == (1, 1)
    assert store.get("m", {"a": 2}, make).figures["n"] == 2
    assert store.get("other", {"a": 1}, make).figures["n"] == 3
    assert PartStore(tmp_path / "parts", again=True).get("m", {"a": 1}, make).figures["n"] == 4
    assert PartStore(tmp_path / "parts").get("m", {"a": 1}, make).figures["n"] == 4
    (tmp_path / "parts" / "parts.sqlite").write_text("{" * 5000)
    with pytest.raises(StoreError, match=r"parts\.sqlite: damaged .* delete it"):
        PartStore(tmp_path / "parts").get("m", {"a": 1}, make)


def test_parts_of_the_old_form_are_read(tmp_path: Path) -> None:
    """A file as genpolicy 0.1 wrote it, its name and text copied from there."""
    key = {"measure": "m", "version": genpolicy.__version__, "a": 1}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
    path = tmp_path / f"m-{digest}.json"
    path.write_text(json.dumps({"key": key, "figures": {"n": 7}, "made": {"seconds": 1.5}}, indent=1) + "\n")
    store = PartStore(tmp_path)
    part = store.get("m", {"a": 1}, lambda: pytest.fail("measured again"))
    assert (part, store.num_kept) == (Part({"n": 7}, {"seconds": 1.5}), 1)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"m-.*json: damaged .* delete it"):
        PartStore(tmp_path).get("m", {"a": 1}, dict)
    assert PartStore(tmp_path, again=True).get("m", {"a": 1}, lambda: {"n": 8}).figures == {"n": 8}
    assert PartStore(tmp_path).get("m", {"a": 1}, dict).figures == {"n": 8}


def test_fingerprint_follows_the_content_of_every_folder_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("policy: x\n")
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
    spec = f"mcts:{tmp_path}/one?value={tmp_path}/two&simulations=10"
    before = policy_fingerprint(spec)
    assert before == policy_fingerprint(spec)
    (tmp_path / "two" / "provenance.json").write_text("{}")  # says nothing of how it plays
    assert before == policy_fingerprint(spec)
    seen = {before}
    for file in ("one/model.safetensors", "two/model.safetensors", "two/config.yaml"):
        (tmp_path / file).write_bytes(b"other")
        seen.add(policy_fingerprint(spec))
    assert len(seen) == 4
    assert policy_fingerprint("random?seed=1") != policy_fingerprint("random?seed=2")


def test_fingerprint_of_a_runs_folder_is_of_the_policy_in_it(tmp_path: Path) -> None:
    (tmp_path / "run" / "policy").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("learner: {}\ntrainer: {}\n")
    weights = tmp_path / "run" / "policy" / "model.safetensors"
    (tmp_path / "run" / "policy" / "config.yaml").write_text("policy: x\n")
    for spec in (f"{tmp_path}/run", f"mcts:{tmp_path}/run?simulations=10"):
        weights.write_bytes(b"weights")
        before = policy_fingerprint(spec)
        weights.write_bytes(b"other")
        assert before != policy_fingerprint(spec)


def test_fingerprint_follows_files_and_programs_however_deep_they_are_named(tmp_path: Path) -> None:
    network, program = tmp_path / "net.onnx", tmp_path / "engine"
    for spec in (
        f"leela:{network}",
        f"mcts:leela:{network}?simulations=4",
        f"mix:leela:{network}%3Ftemperature=1,random",
    ):
        network.write_bytes(b"weights")
        before = policy_fingerprint(spec)
        network.write_bytes(b"another")
        assert before != policy_fingerprint(spec), spec
    for spec in (f"mcts:uniform?value=engine:{program}?nodes=9%26threads=1", f"mix:random,engine:{program}%3Fnodes=9"):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        before = policy_fingerprint(spec)
        program.write_text("#!/bin/sh\n# the next version\n")
        assert before != policy_fingerprint(spec), spec


def test_source_fingerprint_is_the_checksum_of_a_file_and_covers_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"abc")
    # SHA-256 of "abc", FIPS 180-2.
    assert source_fingerprint(tmp_path / "a.csv").startswith("ba7816bf8f01cfea414140de5dae2223")
    before = source_fingerprint(tmp_path)
    (tmp_path / "b.csv").write_bytes(b"")
    assert source_fingerprint(tmp_path) != before


def test_commit_is_a_commit_or_nothing() -> None:
    found = commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{7,40}\+?", found)


class Fragile(Policy):
    """Plays the lowest move; fails as an engine does where it is asked for one position alone."""

    kind: ClassVar[str] = "fragile"

    def __init__(self, game: Game[Any]) -> None:
        self.game = game
        self.closed = False

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        if len(states) == 1:
            raise EngineError("the engine died")
        return [Decision(int(self.game.legal(state)[0])) for state in states]

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved_connect(tmp_path_factory.mktemp("data") / "solved", horizon=1, every=7).folder


@pytest.fixture(scope="module")
def positions(data: Path) -> list[LabelledPosition]:
    from genpolicy.data.records import Dataset

    return labelled_positions(Dataset.open(data), genpolicy.load_game(CONNECT), "test", limit=20)


def test_a_part_that_fails_is_named_and_the_others_are_measured(
    tmp_path: Path, positions: list[LabelledPosition]
) -> None:
    policy = Fragile(genpolicy.load_game(CONNECT))
    row = Row("f", "fragile", "0")

    def puzzles() -> Any:
        raise AssertionError("nobody asked for puzzles")

    options = MeasureOptions("cpu", 0, 1, 5, lambda: positions, puzzles, data_key={"data": "d"})
    measure_row(row, PartStore(tmp_path), options, lambda: policy)
    assert set(row.parts) == {"accuracy"}
    assert row.failures == ["latency: the engine died"]
    assert policy.closed
    notes = main_table([row], []).notes
    assert any("f could not be measured in full: latency: the engine died" in note for note in notes)
    # What is there is not measured again: the policy is loaded for the missing part alone.
    again = Row("f", "fragile", "0")
    measure_row(again, PartStore(tmp_path), options, lambda: policy)
    assert again.parts["accuracy"].figures == row.parts["accuracy"].figures


def test_one_sided_ratings_and_unbounded_elo_survive_json() -> None:
    def puzzles(value: float | None, interval: list[float | None], bound: str | None) -> Part:
        share = {"rate": 1.0, "interval": [0.5, 1.0], "hits": 4, "puzzles": 4}
        rating = {"rating": value, "interval": interval, "bound": bound, "puzzles": 4}
        groups: dict[str, Any] = {"by_rating": {}, "by_theme": {}, "by_mate_length": {}}
        return Part({"solved": share, "solved_any": share, "first_move": share, "rating": rating, **groups}, {})

    rows = [
        Row("all", "a", "0", {"puzzles": puzzles(None, [1800.4, None], "lower")}),
        Row("none", "b", "1", {"puzzles": puzzles(None, [None, 700.2], "upper")}),
        Row("some", "c", "2", {"puzzles": puzzles(1500.0, [1400.0, 1600.0], None)}),
    ]
    rows[0].elo = {"elo": 100.0, "low": None, "high": None, "games": 4}
    table = main_table(rows, [])
    column = [row[table.columns.index("puzzle rating")] for row in table.groups[0][1]]
    assert column == ["> 1800 (all solved)", "< 700 (none solved)", "1500 [1400, 1600]"]
    assert [row[table.columns.index("Elo")] for row in table.groups[0][1]] == ["100 [-inf, +inf]", "-", "-"]
    charts = main_charts(rows, [])
    assert charts is not None
    assert [name for name, _ in charts.charts] == ["puzzles", "elo"]


def test_published_figures_of_chess_are_those_of_the_paper() -> None:
    published = {(r.policy, r.training): (r.accuracy, r.puzzles, r.elo) for r in genpolicy.load_game("chess").published}
    # Ye et al. 2025, Table 2: the first and the last row of each half, and the engine.
    assert published["S-A", "10k games"] == (22.10, 3.95, 1075)
    assert published["DiffuSearch", "10k games"] == (41.31, 39.49, 1728)
    assert published["S-A", "100k games"] == (36.58, 20.83, 1467)
    assert published["DiffuSearch", "100k games"] == (48.66, 58.46, 1995)
    assert published["Stockfish 16", ""] == (100, 99.10, 2689)
    assert len(published) == 11
    assert genpolicy.load_game(CONNECT).published == ()


# The command.

PUZZLES = """PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags
a,6k1/8/6K1/8/8/8/5Q2/8 b - - 0 1,g8h8 f2f8,900,75,90,10,mate mateIn1,u,
b,6k1/4Q3/6K1/8/8/8/8/8 b - - 0 1,g8h8 e7f8,1300,75,90,10,mate mateIn1,u,
"""


def test_command_makes_a_page_and_goes_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, figures = tmp_path / "page.html", tmp_path / "page.json"
    command = ["evaluate", "report", "--policy", "random", "oracle:solver", "--data", str(data), "--limit", "20"]
    command += ["--calls", "3", "--play", "2", "--out", str(out), "--json", str(figures)]
    # Stopped in the middle: what was measured before is kept.
    monkeypatch.setattr(
        report_parts, "measure_latency", lambda *args, **options: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    assert main(command) == 130
    with Store(tmp_path / "page_files" / "parts" / "parts.sqlite", "parts of a report") as parts:
        assert len(parts.keys("accuracy")) == 1
    monkeypatch.setattr(report_parts, "measure_latency", measure_latency)
    capsys.readouterr()
    assert main(command) == 0
    assert "1 parts were measured before" in capsys.readouterr().out
    rows = {row["policy"]: row for row in json.loads(figures.read_text())["policies"]}
    assert rows["oracle:solver"]["accuracy"]["best"]["accuracy"] == 1.0
    assert rows["oracle:solver"]["accuracy"]["labelled"]["positions"] == 20
    assert rows["oracle:solver"]["elo"]["elo"] > rows["random"]["elo"]["elo"]
    assert rows["random"]["latency"]["timings"][0]["calls"] == 3
    text = out.read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.loads == []
    for part in ("oracle:solver", "100.0", "Crosstable", "Where this comes from", "checksum", "4 games"):
        assert part in reader.text, part
    # Again: nothing is measured and no game is played.
    for name in ("measure_accuracy", "measure_latency"):
        monkeypatch.setattr(report_parts, name, lambda *args, **options: pytest.fail("measured again"))
    (cup,) = (tmp_path / "page_files").glob("tournament-*")
    games = (cup / "games.jsonl").read_bytes()
    assert main([*command, "--title", "Mine <b>"]) == 0
    assert "4 parts were measured before" in capsys.readouterr().out
    assert (cup / "games.jsonl").read_bytes() == games
    assert "<h1>Mine &lt;b&gt;</h1>" in out.read_text()
    # A page in Markdown over the tournament's folder.
    shutil.copytree(cup, tmp_path / "games")
    other = ["evaluate", "report", "--policy", "random", "--game", CONNECT, "--tournament", str(tmp_path / "games")]
    assert main([*other, "--out", str(tmp_path / "p.md")]) == 0
    assert "![elo](p_files/elo.svg)" in (tmp_path / "p.md").read_text()
    ElementTree.parse(tmp_path / "p_files" / "elo.svg")


def test_command_puts_published_figures_beside_puzzles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    puzzles = tmp_path / "p.csv"
    puzzles.write_text(PUZZLES + "broken row\n")
    command = ["evaluate", "report", "--policy", "random", "--game", "chess", "--puzzles", str(puzzles)]
    command += ["--out", str(tmp_path / "page.html")]
    assert main(command) == 2
    assert f"{puzzles}:4" in capsys.readouterr().err
    assert main([*command, "--skip-bad"]) == 0
    text = (tmp_path / "page.html").read_text()
    for part in ("DiffuSearch, 100k games", "58.46", "1 bad rows left out", "published: S-A, 10k games", "1200-1399"):
        assert part in text, part


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--out", "x.txt"], ".html"),
        ([], "nothing to measure"),
        (["--play", "1"], "at least two policies"),
        (["--play", "0"], "--play"),
        (["--policy", "greedy", "--play", "1", "--anchor", "nobody=3"], "'nobody' does not play; the players: "),
        (["--tournament", "nowhere"], "holds no tournament"),
        (["--puzzles", "nowhere.csv"], "nowhere.csv"),
        (["--data", "nowhere"], "nowhere"),
        (["--tournament", "nowhere", "--anchor", "random=strong"], "--anchor"),
        (["--tournament", "nowhere", "--policy", "nobody"], "nobody"),
        (["--data", "nowhere", "--openings", "book.txt"], "--openings has no effect without --play"),
        (["--tournament", "nowhere", "--max-plies", "9"], "--max-plies has no effect without --play"),
        (["--data", "nowhere", "--puzzle-limit", "9"], "--puzzle-limit has no effect without --puzzles"),
        (["--data", "nowhere", "--anchor", "random=3"], "--anchor has no effect without --play or --tournament"),
        (["--tournament", "nowhere", "--model", "ordo", "--draw", "0.5"], "model 'ordo' has no draw parameter"),
    ],
)
def test_command_refuses_nonsense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, extra: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["evaluate", "report", "--policy", "random", "--game", CONNECT, "--out", "page.html", *extra]
    assert main(command) == 2
    assert said in capsys.readouterr().err


def test_elo_is_of_the_policy_that_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a/net", "b/net"):
        good_policy(tmp_path / folder)
    play = ["tournament", "--game", CONNECT, "--policy", "net=a/net", "dice=random", "--rounds", "1"]
    assert main([*play, "--random-plies", "1", "--workers", "1", "--out", "cup"]) == 0

    def elo_of(policy: str) -> tuple[int, bool, str]:
        capsys.readouterr()
        command = ["evaluate", "report", "--policy", policy, "--game", CONNECT, "--tournament", "cup"]
        status = main([*command, "--out", "page.md", "--json", "page.json"])
        (row,) = json.loads(Path("page.json").read_text())["policies"]
        return status, row["elo"] is not None, capsys.readouterr().err

    assert elo_of("a/net")[:2] == (0, True)
    shutil.copytree("a/net", "c/other")  # the same policy under another name
    assert elo_of("c/other")[:2] == (0, True)
    assert elo_of("random")[:2] == (0, True)
    status, has_elo, said = elo_of("b/net")
    assert (status, has_elo) == (2, False)
    assert "Elo: the tournament's player 'net' (a/net) is not this policy: the checksum of a folder differs" in said
    shutil.rmtree("a/net")
    shutil.move("b/net", "a/net")  # trained again in place
    assert elo_of("a/net")[:2] == (2, False)
    # A tournament of before checksums is matched by its spellings.
    manifest = json.loads(Path("cup/tournament.json").read_text())
    del manifest["checksums"]
    Path("cup/tournament.json").write_text(json.dumps(manifest))
    assert elo_of("a/net")[:2] == (0, True)
    shutil.copytree("a/net", "b/net")
    status, has_elo, said = elo_of("b/net")
    assert (status, has_elo) == (2, False)
    assert "keeps no checksums" in said


def test_damaged_tournaments_are_named(tmp_path: Path) -> None:
    (tmp_path / "tournament.json").write_text(json.dumps({"game": CONNECT, "players": {"a": "random", "b": "random"}}))
    with pytest.raises(ValueError, match="this tournament has no finished game"):
        read_tournament(tmp_path)
    (tmp_path / "games.jsonl").write_text('{"number": 0}\n')
    with pytest.raises(ValueError, match=r"games\.jsonl:1: damaged"):
        read_tournament(tmp_path)
    texts: dict[str, Any] = {
        "start": "",
        "opening": "",
        "ended": "rules",
        "reason": "",
        "finished": "2026-01-01T00:00:00",
    }
    played = GameResult(
        0, 0, "pair", "a", "b", opening_plies=0, moves=(), result=0.0, forfeit_by=None, seconds=(0.0, 0.0), **texts
    )
    line = json.dumps({**played.to_dict(), "games_file_bytes": None}) + "\n"
    (tmp_path / "games.jsonl").write_text(line + '{"number"')  # the second is being written
    assert read_tournament(tmp_path).results == [played]
    for damaged in (line + line, line.replace('"b"', '"nobody"')):
        (tmp_path / "games.jsonl").write_text(damaged)
        with pytest.raises(ValueError, match=r"games\.jsonl:\d: damaged"):
            read_tournament(tmp_path)
    (tmp_path / "tournament.json").write_text("[]")
    with pytest.raises(ValueError, match=r"tournament\.json: damaged"):
        read_tournament(tmp_path)
