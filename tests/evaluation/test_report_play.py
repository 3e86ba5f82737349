"""Report pages with a tournament of their own (``--play``): policies are added, and one may play twice."""

from __future__ import annotations

import json
from pathlib import Path

from genpolicy.cli import main
from tests.small_datasets import CONNECT


def test_a_policy_is_added_and_one_that_plays_twice_has_two_ratings(tmp_path: Path) -> None:
    """A page with another list of policies plays another tournament, and a name's Elo is that of its games."""
    command = ["evaluate", "report", "--game", CONNECT, "--play", "6", "--max-plies", "9"]
    out, figures = tmp_path / "page.md", tmp_path / "page.json"
    first = [*command, "--policy", "random", "random", "--out", str(out), "--json", str(figures)]
    assert main(first) == 0
    assert main([*first, "--policy", "greedy"]) == 0
    assert len(list((tmp_path / "page_files").glob("tournament-*"))) == 2
    written = json.loads(figures.read_text())["policies"]
    ratings = {row["policy"]: row["elo"]["elo"] for row in written}
    assert len(ratings) == 3
    assert ratings["random #1"] != ratings["random #2"]
    (cup,) = (
        folder
        for folder in (tmp_path / "page_files").glob("tournament-*")
        if "greedy" in (folder / "tournament.json").read_text()
    )
    played = (cup / "games.jsonl").stat().st_mtime_ns
    assert main([*first, "--policy", "greedy"]) == 0
    assert (cup / "games.jsonl").stat().st_mtime_ns == played
    assert main([*first, "--policy", "greedy", "--again"]) == 0
    assert (cup / "games.jsonl").stat().st_mtime_ns > played
