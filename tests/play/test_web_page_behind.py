"""The board of the web page, when it shows an earlier position than the game has reached, or none yet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.play.web_page import ONLY_A_DECISION, chess_place, expect, tab


def hold_positions(web: Any) -> list[Any]:
    """Keep back every question for a position after a move, until ``let_positions``."""
    kept: list[Any] = []

    def hold(route: Any) -> None:
        if json.loads(route.request.post_data)["moves"]:
            kept.append(route)
        else:
            route.continue_()

    web.page.route("**/api/position", hold)
    return kept


def let_positions(web: Any, kept: list[Any]) -> None:
    """Let the questions that were kept back go, and all further ones."""
    web.page.route("**/api/position", lambda route: route.continue_())
    for route in kept:
        route.continue_()


@pytest.mark.thorough
def test_a_move_on_a_board_that_fell_behind_loses_no_game(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        web.page.route("**/api/position", lambda route: route.abort())
        web.click(chess_place("e2"), chess_place("e4"))
        expect(web.page.locator("#trouble")).to_contain_text("does not answer")
        web.page.unroute("**/api/position")
        web.click(chess_place("d2"), chess_place("d4"))  # the board still shows the initial position
        web.wait_moves("e4")
        expect(web.page.locator("#trouble")).to_be_hidden()

        kept = hold_positions(web)
        web.click(chess_place("e7"), chess_place("e5"))
        web.wait_until(lambda: len(kept) == 1)
        web.click(chess_place("d7"), chess_place("d5"))
        web.wait_until(lambda: len(kept) == 2)
        let_positions(web, kept)
        web.wait_moves("e4", "e5")
        expect(web.page.locator("#trouble")).to_be_hidden()


def test_nothing_acts_on_a_board_that_was_never_shown(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.page.route("**/api/offers", lambda route: None)
        web.page.goto(web_address)
        for key in ("Tab", "Tab", "Tab", "Enter"):
            web.page.keyboard.press(key)
        web.page.evaluate("document.querySelector('#typed button').focus()")
        web.page.keyboard.press("Enter")
        web.page.unroute("**/api/offers")

        web.page.goto("about:blank")
        web.page.goto(f"{web_address}#game=chess&start=garbage")
        expect(web.page.locator("#trouble")).to_contain_text("not a FEN")
        for name in ("export", "copy", "codes", "sounds"):
            web.page.evaluate(f"document.getElementById('{name}').focus()")
            web.page.keyboard.press("Space")
        web.page.locator("#trouble button").click()
        web.page.wait_for_selector("#board [data-place]")
        web.page.click("#copy")
        expect(web.page.locator("#notice")).not_to_be_empty()


@pytest.mark.thorough
def test_a_move_that_is_typed_twice_is_played_once(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        kept: list[Any] = []

        def hold(route: Any) -> None:
            if '"typed":"e4"' in route.request.post_data:
                kept.append(route)
            else:
                route.continue_()

        web.page.route("**/api/position", hold)
        web.page.fill("#move", "e4")
        web.page.press("#move", "Enter")
        web.page.press("#move", "Enter")
        web.wait_until(lambda: len(kept) == 2)
        kept[0].continue_()
        web.wait_moves("e4")
        with web.page.expect_response("**/api/position"):
            kept[1].continue_()
        web.page.fill("#move", "e5")
        web.page.press("#move", "Enter")
        web.wait_moves("e4", "e5")
        expect(web.page.locator("#trouble")).to_be_hidden()


@pytest.mark.thorough
def test_a_look_before_the_board_follows_is_not_shown_for_the_wrong_side(browser: Any, web_address: str) -> None:
    answer = {"content_type": "application/x-ndjson"}
    body = json.dumps({"decision": {**ONLY_A_DECISION, "win_probability": 0.9}}) + "\n"
    with tab(browser, web_address) as web:
        web.page.route("**/api/decide", lambda route: route.fulfill(**answer, body=body))
        web.open("chess")
        value = web.page.locator(".column .value").first
        expect(value).to_contain_text("White 90 %")
        kept, asked = hold_positions(web), list[Any]()
        web.page.route("**/api/decide", lambda route: asked.append(route))
        web.click(chess_place("e2"), chess_place("e4"))
        web.wait_until(lambda: len(kept) == 1)
        web.page.keyboard.press("l")
        let_positions(web, kept)
        web.wait_moves("e4")
        web.wait_until(lambda: len(asked) == 1)
        asked[0].fulfill(**answer, body=body)
        expect(value).to_contain_text("Black 90 %")


def test_starting_over_leaves_a_game_that_is_no_longer_offered(browser: Any, web_address: str) -> None:
    """A server that was started again may offer other games."""

    def remove(route: Any) -> None:
        offers = route.fetch().json()
        offers["games"] = [game for game in offers["games"] if game["spec"] != "chess"]
        offers["policies"] = [policy for policy in offers["policies"] if policy["game"] != "chess"]
        route.fulfill(json=offers)

    def refuse(route: Any) -> None:
        if route.request.post_data_json["game"] == "chess":
            route.fulfill(status=400, json={"error": "game 'chess' is not offered here"})
        else:
            route.continue_()

    with tab(browser, web_address) as web:
        web.open("chess")
        web.page.route("**/api/offers", remove)
        web.page.route("**/api/position", refuse)
        web.click(chess_place("e2"), chess_place("e4"))
        expect(web.page.locator("#trouble")).to_contain_text("not offered here")
        web.page.locator("#trouble button").click()
        expect(web.page.locator("#trouble")).to_be_hidden()
        expect(web.page.locator("#game-title")).not_to_have_text("Chess")
        web.page.wait_for_selector("#board [data-place]")
