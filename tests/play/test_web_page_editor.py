"""The position editor of the page: by mouse, keys and finger, for every game with a drawing, judged by its rules."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.play.web_page import DESK, PHONE, WebPage, accessible, chess_place, expect, shogi_place, tab
from tests.play.web_policies import FOUR, TTT

SIZES = {"desk": DESK, "laptop": {"viewport": {"width": 1366, "height": 768}}, "phone": PHONE}


def opened(web: WebPage, game: str, start: str = "") -> WebPage:
    """The page with the editor open on a position."""
    web.open(game, start)
    web.page.click("#edit-open")
    expect(web.page.locator("#edit-board svg")).to_be_visible()
    return web


def square(web: WebPage, number: int) -> Any:
    return web.page.locator(f'#edit-board [data-place="{number}"]')


def choose(web: WebPage, piece: str) -> None:
    web.page.locator(f'#edit-pieces [aria-label="{piece}"]').check(force=True)


def put(web: WebPage, number: int, becomes: str) -> None:
    """Click a square and wait for what stands there then."""
    square(web, number).click()
    expect(square(web, number)).to_have_attribute("aria-label", becomes)


def drag(web: WebPage, source: int, to: tuple[float, float]) -> None:
    box = square(web, source).locator("rect").first.bounding_box()
    web.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    web.page.mouse.down()
    web.page.mouse.move(*to, steps=4)
    web.page.mouse.up()


@pytest.mark.thorough
def test_a_chess_position_is_set_up_with_the_mouse(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        opened(web, "chess")
        error, use = web.page.locator("#edit-error"), web.page.locator("#edit-use")
        web.page.click("#edit-clear")
        expect(error).to_contain_text("White has no king; Black has no king")
        expect(use).to_be_disabled()
        choose(web, "white king")
        put(web, chess_place("e1"), "e1 white king")
        choose(web, "black king")
        put(web, chess_place("e7"), "e7 black king")
        choose(web, "white pawn")
        put(web, chess_place("a8"), "a8 white pawn")
        expect(error).to_contain_text("a white pawn cannot stand on row 8")
        put(web, chess_place("a8"), "a8 empty")  # again: it goes away
        put(web, chess_place("a2"), "a2 white pawn")
        expect(error).to_be_empty()
        goal = square(web, chess_place("e8")).locator("rect").first.bounding_box()
        drag(web, chess_place("e7"), (goal["x"] + 5, goal["y"] + 5))
        expect(square(web, chess_place("e8"))).to_have_attribute("aria-label", "e8 black king")
        web.page.get_by_label("White may castle short").select_option("yes")
        expect(error).to_contain_text("a castling right without its king and rook at home")
        web.page.get_by_label("White may castle short").select_option("no")
        web.page.locator("#edit-facts").get_by_label("to move").select_option("Black")
        expect(use).to_be_enabled()
        use.click()
        web.wait_status("Black to move")
        expect(web.place(chess_place("a2"))).to_have_attribute("aria-label", "a2 white pawn")
        assert "4k3%2F8" in web.page.url
        web.page.keyboard.press("e")  # the editor begins with the position on the board
        expect(square(web, chess_place("e8"))).to_be_visible()
        expect(square(web, chess_place("e8"))).to_have_attribute("aria-label", "e8 black king")
        drag(web, chess_place("a2"), (5, 5))
        expect(square(web, chess_place("a2"))).to_have_attribute("aria-label", "a2 empty")
        web.page.click("#edit-usual")
        expect(square(web, chess_place("a2"))).to_have_attribute("aria-label", "a2 white pawn")
        web.page.keyboard.press("Escape")
        expect(web.place(chess_place("d8"))).to_have_attribute("aria-label", "d8 empty")


@pytest.mark.thorough
def test_a_shogi_position_is_set_up_by_keys(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        opened(web, "shogi", "4k4/9/9/9/9/9/9/9/4K4 b - 1")
        keyboard = web.page.keyboard
        chosen = web.page.locator("#edit-pieces :checked")
        expect(chosen).to_be_focused()
        while chosen.get_attribute("aria-label") != "black rook":
            keyboard.press("ArrowRight")
        square(web, shogi_place("5a")).focus()
        for _ in range(3):
            keyboard.press("ArrowDown")
        expect(square(web, shogi_place("5d"))).to_be_focused()
        keyboard.press("Enter")
        expect(square(web, shogi_place("5d"))).to_have_attribute("aria-label", "5d black rook")
        keyboard.press("Delete")
        expect(square(web, shogi_place("5d"))).to_have_attribute("aria-label", "5d empty")
        hand = web.page.locator('#edit-board [aria-label^="black gold in hand"]')
        for count in (1, 2):
            hand.focus()
            keyboard.press("Enter")
            expect(hand).to_have_attribute("aria-label", f"black gold in hand: {count}")
        keyboard.press("Delete")
        expect(hand).to_have_attribute("aria-label", "black gold in hand: 0")
        keyboard.press("Enter")
        expect(hand).to_have_attribute("aria-label", "black gold in hand: 1")
        web.page.click("#edit-use")
        expect(web.page.locator('#board [aria-label="black gold in hand: 1"]')).to_be_visible()


@pytest.mark.parametrize("game", [TTT, pytest.param(FOUR, marks=pytest.mark.thorough)])
def test_stones_are_set_up_with_a_finger(browser: Any, web_address: str, game: str) -> None:
    with tab(browser, web_address, PHONE) as web:
        opened(web, game)
        last = 8 if game == TTT else 41
        square(web, last).tap()
        expect(square(web, last)).to_have_attribute("aria-label", re.compile(" X$"))
        expect(web.page.locator("#edit-error")).to_contain_text("not 1 X and 0 O")
        web.page.locator("#edit-facts").get_by_label("to move").select_option("O")
        expect(web.page.locator("#edit-error")).to_be_empty()
        web.page.locator("#edit-use").tap()
        web.wait_status("O to move")
        assert web.fits()


@pytest.mark.parametrize("size", [*(pytest.param(s, marks=pytest.mark.thorough) for s in ("desk", "laptop")), "phone"])
def test_the_editor_is_accessible_and_fits(browser: Any, web_address: str, size: str) -> None:
    with tab(browser, web_address, SIZES[size]) as web:
        opened(web, "shogi")
        assert web.page.evaluate(
            "document.querySelector('#edit').scrollWidth <= document.querySelector('#edit').clientWidth"
        )
        web.shoot(f"editor-{size}", full=False)
        accessible(web.page)


@pytest.mark.thorough
def test_an_editor_that_cannot_open_says_so(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        web.page.route("**/api/edit", lambda route: route.abort())
        web.page.click("#edit-open")
        expect(web.page.locator("#notice")).to_contain_text("does not answer")
