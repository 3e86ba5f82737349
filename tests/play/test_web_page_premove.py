"""A move entered while the policy thinks: played in its turn if it is legal, taken back by Escape or a right click."""

from __future__ import annotations

from typing import Any

import pytest

from tests.play.web_page import WebPage, chess_place, expect, tab
from tests.play.web_policies import TTT

HELD = """
const held = new Promise((go) => { window.release = go; });
const quick = window.fetch;
window.fetch = async (...request) => {
  if (String(request[0]).includes("/api/decide")) await held;
  return quick(...request);
};
"""


def thinking(web: WebPage, game: str, *places: int) -> WebPage:
    """A game in which the policy, after a first move, thinks until ``release()``."""
    web.open(game, second="random")
    web.page.evaluate(f"() => {{ {HELD} }}")
    web.click(*places)
    expect(web.page.locator(".column.busy")).to_have_count(1)
    return web


def waiting(web: WebPage, count: int) -> None:
    expect(web.page.locator("#board .mark-ahead")).to_have_count(count)


def release(web: WebPage) -> None:
    web.page.evaluate("window.release()")


def test_a_legal_move_is_played_in_its_turn(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        thinking(web, "chess", chess_place("e2"), chess_place("e4"))
        web.drag(chess_place("b1"), chess_place("c3"))  # whatever Black plays, the knight can go there
        waiting(web, 2)
        web.click(chess_place("g1"), chess_place("f3"))  # another one takes its place
        waiting(web, 2)
        web.shoot("premove", full=False)
        release(web)
        expect(web.page.locator("#moves button").nth(2)).to_have_text("Nf3")
        waiting(web, 0)


@pytest.mark.thorough
def test_an_illegal_move_is_dropped(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        thinking(web, "chess", chess_place("e2"), chess_place("e4"))
        web.click(chess_place("a1"), chess_place("a8"))
        waiting(web, 2)
        release(web)
        web.wait_num_moves(2)
        waiting(web, 0)
        web.wait_status("White to move")
        assert "cannot be played" in web.live


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["escape", "right button"])
def test_it_is_taken_back(browser: Any, web_address: str, how: str) -> None:
    with tab(browser, web_address) as web:
        thinking(web, "chess", chess_place("e2"), chess_place("e4"))
        web.click(chess_place("g1"), chess_place("f3"))
        waiting(web, 2)
        if how == "escape":
            web.page.keyboard.press("Escape")
        else:
            web.place(chess_place("d4")).click(button="right")
        waiting(web, 0)
        expect(web.page.locator("#board .hue-note")).to_have_count(0)
        release(web)
        web.wait_num_moves(2)
        web.wait_status("White to move")


@pytest.mark.thorough
def test_going_through_the_moves_drops_it(browser: Any, web_address: str) -> None:
    """Also where the list goes to the position that it waited for: nobody played a move there."""
    with tab(browser, web_address) as web:
        web.open("chess", first="random")
        web.wait_num_moves(1)
        web.click(chess_place("e7"), chess_place("e5"))
        web.wait_num_moves(3)
        web.page.keyboard.press("Home")
        expect(web.page.locator("#go")).to_be_visible()
        web.page.evaluate(f"() => {{ {HELD} }}")
        web.page.click("#go")
        expect(web.page.locator(".column.busy")).to_have_count(1)
        web.click(chess_place("d7"), chess_place("d5"))
        waiting(web, 2)
        web.page.click("#redo")
        expect(web.page.locator("#moves button").nth(0)).to_have_attribute("aria-current", "true")
        waiting(web, 0)
        assert web.wait_num_moves(3)[1] == "e5"
        release(web)


@pytest.mark.thorough
def test_a_side_that_changes_hands_drops_it(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        thinking(web, "chess", chess_place("e2"), chess_place("e4"))
        web.click(chess_place("g1"), chess_place("f3"))
        waiting(web, 2)
        web.page.select_option("#far-player", "human")
        waiting(web, 0)
        release(web)


@pytest.mark.thorough
def test_undo_drops_it_and_a_stone_goes_where_it_was_put(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        thinking(web, "chess", chess_place("e2"), chess_place("e4"))
        web.click(chess_place("g1"), chess_place("f3"))
        waiting(web, 2)
        web.page.click("#undo")
        web.wait_status("White to move")
        waiting(web, 0)
        release(web)
        thinking(web, TTT, 4)
        web.click(0)
        waiting(web, 1)
        release(web)
        expect(web.page.locator("#moves button").nth(1)).to_be_visible()
        waiting(web, 0)


@pytest.mark.thorough
def test_one_that_is_entered_while_the_reply_is_fetched_is_played(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        thinking(web, "chess", chess_place("e2"), chess_place("e4"))
        kept: list[Any] = []
        web.page.route("**/api/position", lambda route: kept.append(route))
        release(web)
        web.wait_until(lambda: len(kept) == 1)  # the policy has moved, and the board does not show it yet
        web.click(chess_place("b1"), chess_place("c3"))
        waiting(web, 2)
        web.page.route("**/api/position", lambda route: route.continue_())
        kept[0].continue_()
        expect(web.page.locator("#moves button").nth(2)).to_have_text("Nc3")
        waiting(web, 0)
