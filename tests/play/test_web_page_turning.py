"""Turning the board of the web page: everything that is imagined turns with it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.play.web_page import chess_place, column_of, put_beside, tab
from tests.play.web_policies import TTT

UPSIDE_DOWN = """svg => {
  const top = (place) => svg.querySelector(`[data-place="${place}"]`).getBoundingClientRect().top;
  return top(0) > top(%d);
}"""


def wait_turned(web: Any, svg: Any, last: int, turned: bool) -> None:
    """Wait until a drawing is seen from the second player's side, or from the first one's."""
    web.wait_until(lambda: svg.evaluate(UPSIDE_DOWN % last) is turned)


@pytest.mark.thorough
def test_the_boards_of_a_search_are_turned_too(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open(TTT)
        future = put_beside(web, "tic-tac-toe").locator(".future svg").first
        for turned in (True, False):
            web.page.keyboard.press("f")
            wait_turned(web, future, 8, turned)


@pytest.mark.thorough
def test_boards_follow_a_side_that_changes_hands(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        web.click(chess_place("e2"), chess_place("e4"))
        web.wait_moves("e4")
        web.wait_looks()
        web.page.select_option("#near-player", label="random")  # who sees the board from Black's side plays Black
        wait_turned(web, web.page.locator("#board svg"), 63, True)
        wait_turned(web, column_of(web, "dreamer").locator(".future svg").first, 63, True)


@pytest.mark.thorough
def test_two_turns_at_once_leave_the_boards_as_they_were(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        kept, failed = list[Any](), list[Any]()
        web.page.on("requestfailed", lambda request: failed.append(request.url))
        web.page.route("**/api/decide", lambda route: kept.append(route))
        web.page.keyboard.press("f")
        web.wait_until(lambda: len(kept) == 1)
        web.page.keyboard.press("f")
        wait_turned(web, web.page.locator("#board svg"), 63, False)
        web.wait_until(lambda: failed == [f"{web_address}api/decide"])  # the question is withdrawn
        wait_turned(web, web.page.locator(".future svg").first, 63, False)


DRAWN = """() => {
  const [Drawing, drawn] = [window.Image, []];
  window.drawn = drawn;
  window.Image = class extends Drawing {
    set src(address) { drawn.push(address); super.src = address; }
  };
}"""
"""Notes every drawing that is put into a picture."""


@pytest.mark.thorough
def test_a_saved_picture_is_turned_as_a_whole(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        web.page.evaluate(DRAWN)
        saved = web.page.get_by_role("button", name=re.compile("^Save picture")).first
        with web.page.expect_download():
            saved.click()
        web.page.keyboard.press("f")
        wait_turned(web, web.page.locator(".future svg").first, 63, True)
        with web.page.expect_download():
            saved.click()
        drawn = web.page.evaluate("drawn")
        half = len(drawn) // 2
        assert len(drawn) == 2 * half > 0
        assert all(before != after for before, after in zip(drawn[:half], drawn[half:], strict=True))
