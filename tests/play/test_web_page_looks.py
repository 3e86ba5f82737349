"""Looks that cross with other things on the web page: nothing jumps, nothing hangs, nothing is lost."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.play.web_page import DESK, ONLY_A_DECISION, PHONE, chess_place, column_of, expect, put_beside, tab
from tests.play.web_policies import STEPS, TTT

FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"
MATE = "6k1/5ppp/8/8/8/8/8/R3K3 w Q - 0 1"
MATES = {**ONLY_A_DECISION, "line": [{"move": "a1a8", "label": "Ra8#", "legal": True, "source": 56, "target": 0}]}
END = {"move": None, "label": "end", "legal": True}


@pytest.mark.thorough
def test_the_end_of_a_line_is_not_counted_as_a_move(browser: Any, web_address: str) -> None:
    move = MATES["line"][0]
    lines = [[move, END, END], [move, {**END, "legal": False}], [move, move, END]]
    facts = "50 network calls · 3 ms"
    wanted = [facts, f"{facts} · imagined line: 1 of 2 moves legal", f"{facts} · imagined line: both moves legal"]
    with tab(browser, web_address) as web:
        web.open("chess", MATE)
        column = column_of(web, "dreamer")
        web.page.route(
            "**/api/decide",
            lambda route: route.fulfill(
                body=json.dumps({"decision": {**MATES, "line": lines[0]}}) + "\n", content_type="application/x-ndjson"
            ),
        )
        while lines:
            column.get_by_role("button", name="Analyse").click()
            expect(column.locator(".facts")).to_have_text(wanted.pop(0))
            lines.pop(0)


def hold_first(web: Any, own: str) -> list[Any]:
    """Keep back the first question to the policy of this id: it thinks until the route is continued."""
    kept: list[Any] = []

    def hold(route: Any) -> None:
        if f'"{own}"' in route.request.post_data and not kept:
            kept.append(route)
        else:
            route.continue_()

    web.page.route("**/api/decide", hold)
    return kept


def scrolled(web: Any) -> float:
    return float(web.page.evaluate("scrollY"))


@pytest.mark.thorough
def test_a_move_leaves_the_page_where_it_is(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, PHONE) as web:
        web.open("chess")
        web.settle()
        web.page.evaluate("document.querySelector('#board').scrollIntoView()")
        before = scrolled(web)
        for source, target, count in [("e2", "e4", 1), ("e7", "e5", 2)]:
            web.place(chess_place(source)).tap()
            web.place(chess_place(target)).tap()
            web.wait_num_moves(count)
            web.settle()
        assert scrolled(web) == before
        column = column_of(web, "dreamer")
        bar = column.locator(".bar").nth(1)
        bar.scroll_into_view_if_needed()
        before = column.bounding_box()["y"]
        bar.tap()
        web.wait_num_moves(3)
        web.settle()
        assert abs(column.bounding_box()["y"] - before) < 50, "the page jumped away from what was tapped"


@pytest.mark.thorough
def test_a_long_list_of_moves_shows_the_last_one(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, {"viewport": {"width": 900, "height": 600}}) as web:
        moves = " ".join(["g1f3 g8f6 f3g1 f6g8"] * 40)
        web.page.goto(web_address + "#" + urlencode({"game": "chess", "moves": moves}))
        web.wait_num_moves(160)
        boxes = [web.page.locator(each).bounding_box() for each in ("#moves", "#moves [aria-current]")]
        assert boxes[0]["y"] <= boxes[1]["y"]
        assert boxes[1]["y"] + boxes[1]["height"] <= boxes[0]["y"] + boxes[0]["height"]
        assert scrolled(web) == 0


@pytest.mark.parametrize(
    "how", ["key", *(pytest.param(how, marks=pytest.mark.thorough) for how in ("button", "again", "seed", "always"))]
)
def test_a_look_does_not_stop_the_opponent(browser: Any, web_address: str, how: str) -> None:
    with tab(browser, web_address) as web:
        asked: list[str] = []
        web.open("chess", second="slow")
        column = column_of(web, "slow")
        own = column.get_attribute("data-policy")
        web.page.on("request", lambda request: asked.append(own) if f'"{own}"' in (request.post_data or "") else None)
        kept = hold_first(web, own)
        web.click(chess_place("e2"), chess_place("e4"))
        web.wait_until(lambda: bool(kept))
        if how == "key":
            web.page.keyboard.press("l")
        elif how == "button":
            web.page.click("#look")
        elif how == "always":
            web.page.check("#always")
        else:
            if how == "seed":  # another question: it takes the place of the one that is being answered
                web.page.fill("#seed", "77")
                web.page.locator("#seed").blur()
            column.get_by_role("button", name="Analyse").click()
        if how != "seed":
            kept[0].continue_()
        web.wait_num_moves(2)
        expect(web.page.locator("#go")).to_be_hidden()
        web.wait_status("White to move")
        if how in ("key", "button", "again"):
            assert len(asked) == 1, "what was being answered was asked once more"


@pytest.mark.thorough
def test_undo_ends_the_thinking(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", second="slow")
        column = column_of(web, "slow")
        kept = hold_first(web, column.get_attribute("data-policy"))
        web.click(chess_place("e2"), chess_place("e4"))
        web.wait_until(lambda: bool(kept))  # else the one after it would be the first
        web.page.keyboard.press("u")
        expect(web.page.locator("#moves .later")).to_have_count(1)
        web.settle()
        assert column.get_attribute("aria-busy") == "false"
        expect(column.locator(".note")).to_contain_text("Stopped")
        expect(column.locator(".about")).to_contain_text("after 1. e4, which was taken back")
        web.page.keyboard.press("r")  # the move again: now it answers
        web.page.click("#go")
        web.wait_num_moves(2)


@pytest.mark.thorough
def test_a_dream_does_not_stand_beside_another_decision(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = column_of(web, "dreamer")
        web.settle()
        assert column.locator(".future svg").count() > 0
        expect(column.get_by_role("button", name="Another dream")).to_be_visible()
        answer = {"status": 200, "content_type": "application/x-ndjson"}
        body = json.dumps({"decision": ONLY_A_DECISION}) + "\n"
        web.page.route("**/api/decide", lambda route: route.fulfill(**answer, body=body))
        column.get_by_role("button", name="Analyse").click()
        expect(column.locator(".note strong")).to_have_text("Bb5")
        expect(column.locator(".future")).to_have_count(0)
        expect(column.locator(".steps")).to_be_hidden()
        expect(column.get_by_role("button", name="Another dream")).to_be_hidden()
        web.page.unroute("**/api/decide")
        column.get_by_role("button", name="Analyse").click()
        web.settle()
        expect(column.locator(".steps")).to_be_visible()
        expect(column.locator(".future svg").first).to_be_visible()


@pytest.mark.thorough
def test_a_search_without_steps_says_how_to_see_them(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open(TTT)
        column = put_beside(web, "tic-tac-toe")
        expect(column.locator(".facts")).to_contain_text("a search without denoising steps; Candidates 0 shows them")
        expect(column.locator(".steps")).to_be_hidden()
        column.locator("details.strength > summary").click()
        column.get_by_label("Candidates", exact=True).fill("0")
        column.get_by_label("Candidates", exact=True).blur()
        column.get_by_role("button", name="Analyse").click()
        expect(column.locator(".steps")).to_be_visible()
        web.settle()
        expect(column.locator(".facts")).not_to_contain_text("without denoising steps")


@pytest.mark.thorough
def test_a_column_tells_draws_and_plies_left_where_they_are_known(browser: Any, web_address: str) -> None:
    judged = {**ONLY_A_DECISION, "value": 0.3, "win_probability": 0.65, "wdl": [0.5, 0.3, 0.2], "plies_left": 33.6}
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = column_of(web, "dreamer")
        answers = [judged, {**judged, "wdl": None, "plies_left": None}]
        answer = {"status": 200, "content_type": "application/x-ndjson"}
        web.page.route(
            "**/api/decide",
            lambda route: route.fulfill(**answer, body=json.dumps({"decision": answers.pop(0)}) + "\n"),
        )
        column.get_by_role("button", name="Analyse").click()
        expect(column.locator(".value")).to_contain_text("White 50 %")
        expect(column.locator(".value")).to_contain_text("Black 20 %")
        expect(column.locator(".balance.drawn")).to_have_attribute(
            "aria-label", "White's winning chances: 50 %, draw 30 %"
        )
        expect(column.locator(".facts")).to_contain_text("draw 30 % · about 34 plies left")
        column.get_by_role("button", name="Analyse").click()
        expect(column.locator(".value")).to_contain_text("Black 35 %")
        expect(column.locator(".balance.drawn")).to_have_count(0)
        expect(column.locator(".facts")).not_to_contain_text("plies left")


@pytest.mark.thorough
def test_a_column_says_which_position_it_is_about_and_loses_no_move(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", second="dreamer")
        web.click(chess_place("e2"), chess_place("e4"))
        first, reply = web.wait_num_moves(2)
        web.settle()
        column = column_of(web, "dreamer")
        expect(column.locator(".about")).to_have_text(f"Analysis before 1… {reply}")
        expect(column.locator(".play")).to_be_hidden()
        web.shoot("about-an-earlier-position")
        other = column.locator(".bar:not(.chosen)").first
        label = other.locator(".move").text_content()
        other.click()
        web.wait_moves(first, label)
        expect(web.page.locator("#former")).to_be_visible()
        web.page.click("#former")
        web.wait_moves(first, reply)
        web.page.click("#former")
        web.wait_moves(first, label)
        # The bar of the move that was made leads back to it and cuts nothing off.
        web.page.click("#former")
        web.wait_moves(first, reply)
        web.page.click("#undo")
        expect(web.page.locator("#moves .later")).to_have_count(2)
        column.locator(".bar.chosen").click()
        expect(web.page.locator("#moves .later")).to_have_count(0)
        web.wait_moves(first, reply)


@pytest.mark.thorough
def test_a_typed_moves_error_is_short_and_goes(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        error, field = web.page.locator("#move-error"), web.page.locator("#move")
        field.fill("e4e6")
        field.press("Enter")
        expect(error.locator("span")).to_have_text("Move 'e4e6' cannot be played here.")
        expect(error.locator("p")).to_be_hidden()
        error.locator("summary").click()
        expect(error.locator("p")).to_contain_text("a2a3 a2a4 b1a3")
        field.fill("e4e5")
        expect(error).to_be_hidden()
        field.press("Enter")
        expect(error).to_contain_text("e4e5")
        web.click(chess_place("e2"), chess_place("e4"))
        web.wait_moves("e4")
        expect(error).to_be_hidden()
        assert field.get_attribute("aria-invalid") == "false"


@pytest.mark.thorough
def test_an_unlikely_choice_is_explained(browser: Any, web_address: str) -> None:
    def step(number: int, *, masked: bool, policy: dict[str, float]) -> dict[str, Any]:
        first = {"ply": 0, "move": "f1b5", "probability": 0.5, "legal": True, "known": True, "masked": masked}
        told = [
            {"move": move, "label": {"f1b5": "Bb5", "d2d4": "d4"}[move], "probability": p} for move, p in policy.items()
        ]
        return {"step": number, "time": 3 - number, "of": 3, "boards": [], "actions": [first], "policy": told}

    lines = [
        step(1, masked=True, policy={"d2d4": 0.6, "f1b5": 0.4}),
        step(2, masked=False, policy={"f1b5": 0.25, "d2d4": 0.2}),
        step(3, masked=False, policy={"d2d4": 0.7, "f1b5": 0.003}),
        {"decision": ONLY_A_DECISION},
    ]
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = column_of(web, "dreamer")
        answer = {"status": 200, "content_type": "application/x-ndjson"}
        body = "".join(json.dumps(line) + "\n" for line in lines)
        web.page.route("**/api/decide", lambda route: route.fulfill(**answer, body=body))
        column.get_by_role("button", name="Analyse").click()
        expect(column.locator(".why")).to_contain_text("the sampler settled on Bb5 at step 2, where p(a₀) gave it 25 %")
        web.page.keyboard.press("[")  # there it was the likeliest
        expect(column.locator(".why")).to_be_empty()


@pytest.mark.parametrize("game", ["shogi", pytest.param(TTT, marks=pytest.mark.thorough)])
def test_a_game_opened_by_its_address_has_a_column(browser: Any, web_address: str, game: str) -> None:
    with tab(browser, web_address) as web:
        web.page.goto(web_address + "#" + urlencode({"game": game}))
        expect(column_of(web, "dreamer").locator(".note strong")).to_be_visible()
        expect(web.page.locator(".column")).to_have_count(1)


@pytest.mark.thorough
def test_the_step_keys_know_their_column(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        web.settle()
        dreamer, last = column_of(web, "dreamer"), STEPS["chess"] - 1
        random = put_beside(web, "random")
        web.page.focus("#add")  # where a choice by hand leaves it
        web.page.keyboard.press("[")
        expect(random).to_contain_text("no denoising steps")
        expect(random.locator(".why")).to_be_empty()  # all moves are as likely
        assert "no denoising steps" in web.live
        expect(dreamer).to_have_attribute("data-step", str(last))
        dreamer.locator("h3").click()
        web.page.focus("#near-player")
        web.page.keyboard.press("[")
        expect(dreamer).to_have_attribute("data-step", str(last - 1))
        assert f"step {last} of {last + 1}" in web.live
        web.page.focus("#add")
        with web.page.expect_request("**/api/decide"):
            web.page.keyboard.press("l")
        web.settle()


@pytest.mark.thorough
def test_the_imagined_boards_take_the_room_that_there_is(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, {**DESK, "viewport": {"width": 1280, "height": 720}}) as web:
        web.open("chess", FEN)
        web.settle()
        futures = column_of(web, "dreamer").locator(".futures")
        boxes = [each.bounding_box() for each in futures.locator("figure").all()]
        right = max(box["x"] + box["width"] for box in boxes)
        whole = futures.bounding_box()
        assert right > whole["x"] + 0.95 * whole["width"]


def test_a_picture_is_offered_of_a_decision_only(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = column_of(web, "dreamer")
        saver = column.get_by_role("button", name="Save picture")
        web.page.route("**/api/decide", lambda route: route.abort())
        saver.focus()
        web.page.keyboard.press("l")
        expect(column.locator(".note.bad")).to_be_visible()
        expect(saver).to_be_hidden()
        expect(column).to_be_focused()
        web.page.unroute("**/api/decide")
        web.page.keyboard.press("l")
        expect(saver).to_be_visible()


@pytest.mark.parametrize("locale", ["en-US", "ja-JP"])
def test_the_narrowest_phone_needs_no_scrolling_sideways(browser: Any, web_address: str, locale: str) -> None:
    """320 pixels are what a page must fit into (WCAG 2.2, 1.4.10: 1280 at 400 %)."""
    with tab(browser, web_address, {**PHONE, "viewport": {"width": 320, "height": 568}, "locale": locale}) as web:
        web.load()
        assert web.page.evaluate("document.documentElement.scrollWidth") == 320


def test_the_tests_of_the_page_share_a_worker(browser: Any, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests run in one process, or are not grouped (--dist loadgroup)")
    assert request.node.nodeid.endswith("@browser")
