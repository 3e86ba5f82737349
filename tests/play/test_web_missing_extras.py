"""What the page and the lists say of games whose package is not installed: one short line, with the way out."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from genpolicy.cli import main
from genpolicy.errors import NotInstalledError
from genpolicy.registry import load_game
from genpolicy_play.web.catalog import make_catalog

LACKED = {"cshogi": "genpolicy_shogi", "pyspiel": "genpolicy_openspiel"}


@pytest.fixture(autouse=True)
def only_chess(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As after ``pip install 'genpolicy[chess,web]'``."""
    for name in [name for name in sys.modules if name.startswith((*LACKED, *LACKED.values()))]:
        monkeypatch.delitem(sys.modules, name)
    for name in LACKED:
        monkeypatch.setitem(sys.modules, name, None)
    load_game.cache_clear()
    yield
    load_game.cache_clear()


def test_the_page_names_what_is_not_installed_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genpolicy_play.web.catalog.shipped_policies", dict)  # which take seconds to load
    catalog = make_catalog([], [])
    try:
        assert "chess" in {offer.game.name for offer in catalog.policies.values()}
        assert [note for note in catalog.notes if "nstalled" in note or "needs the module" in note] == [
            "Not installed: openspiel (pip install 'genpolicy[openspiel]'), shogi (pip install 'genpolicy[shogi]')"
        ]
    finally:
        catalog.close()


def test_a_game_that_was_asked_for_says_what_it_needs() -> None:
    with pytest.raises(NotInstalledError, match=r"needs the module 'cshogi': pip install 'genpolicy\[shogi\]'"):
        make_catalog([], ["shogi"])


def test_the_list_of_games_says_it_shortly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games"]) == 0
    printed = capsys.readouterr().out
    assert "not installed: pip install 'genpolicy[shogi]'" in " ".join(printed.split())
    assert "group 'genpolicy.games'" not in printed
