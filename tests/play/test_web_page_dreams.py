"""What the web page shows of a dream, what it remembers, how it looks, and what it does when something is wrong."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.play.web_page import DESK, HELD_STREAM, LAG_MS, PHONE, WebPage, chess_place, expect, tab
from tests.play.web_policies import NAUGHTY, STEPS

FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"


def watch(web: Any, label: str) -> Any:
    """Put a policy beside the board, if it is not there; its column."""
    if web.page.locator("#add option", has_text=re.compile(f"^{re.escape(label)}$")).count():
        web.page.select_option("#add", label=label)
    column = web.page.locator(".column", has=web.page.locator("h3", has_text=re.compile(f"^{re.escape(label)}$")))
    expect(column).to_have_count(1)
    return column


SEEN_STEPS = """column => {
  window.seen = [];
  new MutationObserver(() => window.seen.push(column.dataset.step)).observe(column, { attributeFilter: ["data-step"] });
}"""
"""Notes every step that a column shows from here on; each stands there for less time than a test may need to look."""


def to_step(column: Any, step: int) -> None:
    column.locator("input[type=range]").evaluate(
        "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input', {bubbles: true})); }", step
    )


def test_the_slider_goes_from_all_masked_to_none(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = watch(web, "dreamer")
        web.settle()
        last = STEPS["chess"] - 1
        expect(column.locator(".count")).to_have_text(f"{last + 1} / {last + 1}")
        masked, boards = [], []
        for step in range(last + 1):
            to_step(column, step)
            expect(column).to_have_attribute("data-step", str(step))
            masked.append(column.locator(".future .gp-mask").count())
            boards.append(column.locator(".futures").inner_html())
            if step in (0, last // 2, last):
                web.shoot(f"dream-step-{step + 1}")
        assert masked[0] > 30, "hardly anything is masked after the first step"
        assert masked[-1] == 0
        assert masked == sorted(masked, reverse=True)
        assert len(set(boards)) == last + 1, "two steps look alike"
        assert column.locator(".chip.masked").count() == 0
        to_step(column, 0)
        assert column.locator(".bar").count() >= 3
        shares = [float(text.split()[0]) for text in column.locator(".bar .share").all_text_contents()]
        assert 0 < sum(shares) <= 101
        # Arrows lie over the board for what is decided, and go when the switch is off.
        to_step(column, last)
        assert web.page.locator("#board .plan").count() >= 1
        web.page.uncheck("#arrows")
        assert web.page.locator("#board .plan").count() == 0


@pytest.mark.thorough
def test_replay_runs_through_the_steps(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = watch(web, "dreamer")
        web.settle()
        web.page.keyboard.press("[")
        expect(column).to_have_attribute("data-step", str(STEPS["chess"] - 2))
        web.page.keyboard.press("]")
        column.evaluate(SEEN_STEPS)
        web.page.keyboard.press("p")
        last = STEPS["chess"] - 1
        web.wait_until(lambda: web.page.evaluate("seen.at(-1)") == str(last))
        assert web.page.evaluate("seen") == [str(step) for step in range(last + 1)]


@pytest.mark.skipif(LAG_MS > 0, reason="the answer is held back as a whole")
@pytest.mark.thorough
def test_the_first_steps_are_shown_before_the_last_is_there(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.page.add_init_script(HELD_STREAM % 3)
        web.page.goto(web_address + "#" + urlencode({"game": "chess", "start": FEN}))
        column = watch(web, "dreamer")
        expect(column.locator(".count")).to_have_text(f"3 / {STEPS['chess']}")
        assert "busy" in (column.get_attribute("class") or "")
        assert column.locator(".future .gp-mask").count() > 0
        web.page.evaluate("release()")
        web.settle()
        expect(column).to_have_attribute("data-step", str(STEPS["chess"] - 1))


@pytest.mark.thorough
def test_policies_side_by_side(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        names = ["dreamer", NAUGHTY, "random"]
        columns = [watch(web, name) for name in names]
        web.page.click("#look")
        web.settle()
        boxes = [column.bounding_box() for column in columns]
        assert len({round(box["x"]) for box in boxes}) == 3
        assert len({round(box["y"]) for box in boxes}) == 1
        for column in columns:
            expect(column.locator(".note")).to_contain_text("Chooses")
            assert column.locator(".bar").count() >= 3
        hues = [column.evaluate("e => getComputedStyle(e).borderTopColor") for column in columns]
        assert len(set(hues)) == 3
        # The plan of the column that points lies over the board.
        columns[1].get_by_role("button", name="Show its plan").click()
        expect(columns[1].locator(".tool[aria-pressed]")).to_have_attribute("aria-pressed", "true")
        expect(columns[0].locator(".tool[aria-pressed]")).to_have_attribute("aria-pressed", "false")
        web.shoot("side-by-side")
        columns[2].get_by_role("button", name="Remove this policy").click()
        expect(web.page.locator(".column")).to_have_count(2)


@pytest.mark.thorough
def test_an_alternative_is_played(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = watch(web, "dreamer")
        web.settle()
        label = column.locator(".bar .move").nth(1).text_content()
        column.locator(".bar").nth(1).click()
        web.wait_moves(label)


def settings_of_dreamer(web: WebPage) -> Any:
    """Its column on a page of chess, with the settings unfolded."""
    web.open("chess", FEN)
    column = watch(web, "dreamer")
    web.settle()
    column.locator("details.strength > summary").click()
    return column


@pytest.mark.thorough
def test_settings_are_sent_and_wrong_ones_are_not(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        column = settings_of_dreamer(web)
        steps = column.get_by_label("Steps", exact=True)
        steps.fill("3")
        steps.press("Enter")
        steps.blur()
        column.get_by_role("button", name="Analyse").click()
        web.settle()
        expect(column.locator(".count")).to_have_text("3 / 3")
        web.shoot("settings")
        steps.fill("-1")
        steps.blur()
        assert steps.get_attribute("aria-invalid") == "true"
        column.get_by_role("button", name="Analyse").click()
        web.settle()
        expect(column.locator(".count")).to_have_text("3 / 3")


@pytest.mark.thorough
def test_options_of_other_samplers_are_hidden_and_not_sent(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        column = settings_of_dreamer(web)
        column.locator("details.strength details > summary").click()
        futures, sampler = column.get_by_label("Num futures", exact=True), column.get_by_label("Sampler", exact=True)
        expect(futures).to_be_hidden()
        sampler.select_option("a0_last")
        futures.fill("3")
        futures.blur()
        sampler.select_option("one_call")
        expect(futures).to_be_hidden()
        column.get_by_role("button", name="Analyse").click()
        web.settle()
        expect(column.locator(".count")).to_have_text("1 / 1")
        sampler.select_option("a0_last")
        expect(futures).not_to_have_value("3")


@pytest.mark.thorough
def test_flip_turns_the_board_and_the_dream(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = watch(web, "dreamer")
        web.settle()
        a8 = web.place(chess_place("a8"))
        before, dreamt = a8.bounding_box(), column.locator(".future").first.inner_html()
        to_step(column, 2)
        web.page.eval_on_selector_all(
            "#board svg, .future svg", "all => all.forEach(svg => { svg.dataset.old = 'yes'; })"
        )
        web.page.keyboard.press("f")
        expect(web.page.locator("[data-old]")).to_have_count(0)
        after = a8.bounding_box()
        assert after["x"] > before["x"] + 100
        assert after["y"] > before["y"] + 100
        expect(column).to_have_attribute("data-step", "2")
        to_step(column, STEPS["chess"] - 1)
        assert column.locator(".future").first.inner_html() != dreamt
        web.click(chess_place("f3"), chess_place("e5"))
        web.wait_moves("Nxe5")


@pytest.mark.thorough
def test_a_reload_forgets_nothing(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        web.click(chess_place("f1"), chess_place("b5"))
        web.wait_moves("Bb5")
        web.click(chess_place("a7"), chess_place("a6"))
        web.wait_moves("Bb5", "a6")
        web.page.keyboard.press("u")
        expect(web.page.locator("#moves .later")).to_have_count(1)
        web.page.keyboard.press("f")
        web.page.reload()
        web.wait_moves("Bb5", "a6")
        expect(web.page.locator("#moves .later")).to_have_count(1)
        expect(web.place(chess_place("b5"))).to_have_attribute("aria-label", "b5 white bishop")
        assert web.place(chess_place("a8")).bounding_box()["y"] > web.place(chess_place("a1")).bounding_box()["y"]
        # The address alone brings the position to somebody else.
        address = web.page.url
    with tab(browser, web_address) as other:
        other.page.goto(address)
        other.wait_moves("Bb5")
        other.wait_status("Black to move")


@pytest.mark.thorough
def test_a_reload_knows_the_options_of_another_server(browser: Any, web_address: str) -> None:
    """One that was started again may offer a policy with other options."""
    optionless: list[str] = []

    def remove(route: Any) -> None:
        offers = route.fetch().json()
        for policy in offers["policies"]:
            policy["options"] = [option for option in policy["options"] if option["name"] not in optionless]
        route.fulfill(body=json.dumps(offers), content_type="application/json")

    with tab(browser, web_address) as web:
        web.open("chess", FEN, second="dreamer")
        column = watch(web, "dreamer")
        steps = column.locator("input[id$=num_steps]")
        column.locator("summary").first.click()
        steps.fill("3")
        steps.blur()
        web.page.route("**/api/offers", remove)
        for fields in (1, 0):
            web.page.reload()
            expect(column).to_have_count(1)
            expect(web.page.locator(".column")).to_have_count(1)
            expect(web.page.locator("#far-player option:checked")).to_have_text("dreamer")
            expect(steps).to_have_count(fields)
            stored = web.page.evaluate("JSON.parse(sessionStorage['genpolicy.page']).options")
            assert [chosen["num_steps"] for chosen in stored.values() if chosen] == [3] * fields
            optionless.append("num_steps")


@pytest.mark.thorough
def test_dark_follows_the_system_and_the_switch(browser: Any, web_address: str) -> None:
    def brightness(web: Any) -> float:
        colour = web.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3

    with tab(browser, web_address, {**DESK, "color_scheme": "dark"}) as web:
        web.open("chess", FEN)
        watch(web, "dreamer")
        web.settle()
        assert brightness(web) < 60
        web.shoot("dark")
        web.page.click("#theme")
        assert brightness(web) > 200
        web.page.click("#theme")
        assert brightness(web) < 60
        web.page.reload()
        web.page.wait_for_selector("#board [data-place]")
        assert web.page.evaluate("document.documentElement.dataset.theme") == "dark"


TABLET = {"viewport": {"width": 768, "height": 1024}}
LAPTOP = {"viewport": {"width": 1366, "height": 768}}


@pytest.mark.parametrize(
    "look",
    [PHONE, *(pytest.param(look, marks=pytest.mark.thorough) for look in (TABLET, LAPTOP))],
    ids=["phone", "tablet", "laptop"],
)
def test_the_board_and_a_dream_are_in_sight_when_the_page_is_opened(browser: Any, web_address: str, look: Any) -> None:
    with tab(browser, web_address, look) as web:
        web.page.goto(web_address)
        expect(web.page.locator(".column")).not_to_have_count(0)
        web.wait_looks()
        for part in ("#board svg", ".future svg"):
            box = web.page.locator(part).first.bounding_box()
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= look["viewport"]["height"], part


@pytest.mark.thorough
def test_a_phone_shows_everything_without_scrolling_sideways(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, {**PHONE, "reduced_motion": "reduce"}) as web:
        for game in ("shogi", "chess"):
            web.open(game)
            watch(web, "dreamer")
            watch(web, "random")
            web.page.click("#look")
            web.settle()
            assert web.fits()
            small = web.page.locator("button:visible, select:visible").evaluate_all(
                "all => all.filter(e => e.getBoundingClientRect().height < 34).map(e => e.outerHTML)"
            )
            assert small == []
            web.shoot(f"phone-dream-{game}")


def test_texts_from_outside_stay_text(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:

        def rename(route: Any) -> None:
            offers = route.fetch().json()
            for policy in offers["policies"]:
                policy["label"] = f"{NAUGHTY} {policy['label']}"
            offers["games"][0]["title"] = NAUGHTY
            route.fulfill(body=json.dumps(offers), content_type="application/json")

        web.page.route("**/api/offers", rename)
        web.page.on("dialog", lambda dialog: web.errors.append(f"dialog: {dialog.message}"))
        web.page.goto(web_address)
        web.page.wait_for_selector("#board [data-place]")
        web.page.click("#new")
        web.page.fill("#new-start", NAUGHTY)
        web.page.click("#new-form button[type=submit]")
        expect(web.page.locator("#new-error")).to_contain_text(NAUGHTY)
        assert web.page.locator("#new-start").get_attribute("aria-invalid") == "true"
        web.shoot("wrong-fen", full=False)
        web.page.keyboard.press("Escape")
        web.page.fill("#move", NAUGHTY)
        web.page.press("#move", "Enter")
        expect(web.page.locator("#move-error")).to_contain_text("<img")
        expect(web.page.locator(".column h3").first).to_contain_text(NAUGHTY)
        assert web.page.locator("img").count() == 0


@pytest.mark.thorough
def test_an_answer_that_is_not_the_servers_is_told_in_words(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        web.page.route("**/api/position", lambda route: route.fulfill(content_type="text/html", body="<p>Log in</p>"))
        web.click(chess_place("f1"), chess_place("b5"))
        expect(web.page.locator("#trouble")).to_contain_text("does not answer")
        web.page.unroute("**/api/position")
        web.page.locator("#trouble button").click()
        web.wait_moves("Bb5")


@pytest.mark.thorough
def test_trouble_is_told_in_words_and_can_be_tried_again(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        column = watch(web, "dreamer")
        web.settle()
        web.page.route("**/api/position", lambda route: route.abort())
        web.click(chess_place("f1"), chess_place("b5"))
        expect(web.page.locator("#trouble")).to_contain_text("does not answer")
        web.shoot("offline", full=False)
        web.page.unroute("**/api/position")
        web.page.locator("#trouble button").click()
        web.wait_moves("Bb5")
        expect(web.page.locator("#trouble")).to_be_hidden()
        web.settle()  # whoever asks again while the look at Bb5 goes on is given that one's answer

        busy = {"status": 503, "content_type": "application/json", "body": json.dumps({"error": "too many boards"})}
        web.page.route("**/api/decide", lambda route: route.fulfill(**busy))
        column.get_by_role("button", name="Analyse").click()
        expect(column.locator(".note.bad")).to_contain_text("too many boards")
        web.page.unroute("**/api/decide")
        cut = {"status": 200, "content_type": "application/x-ndjson", "body": ""}
        web.page.route("**/api/decide", lambda route: route.fulfill(**cut))
        column.get_by_role("button", name="Try again").click()
        expect(column.locator(".note.bad")).to_contain_text("ended before the decision")
        web.page.unroute("**/api/decide")
        column.get_by_role("button", name="Try again").click()
        web.settle()
        expect(column.locator(".note")).to_contain_text("Chooses")

        # A policy that fails at its own turn plays once it is asked again.
        web.page.route("**/api/decide", lambda route: route.fulfill(**busy))
        web.page.select_option("#far-player", label="dreamer")
        expect(column.locator(".note.bad")).to_contain_text("too many boards")
        web.page.unroute("**/api/decide")
        column.get_by_role("button", name="Try again").click()
        assert web.wait_num_moves(2)[0] == "Bb5"


def test_everything_has_a_name_for_those_who_listen(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", FEN)
        watch(web, "dreamer")
        web.settle()
        nameless = web.page.evaluate(
            """() => [...document.querySelectorAll("button, select, input, textarea, [tabindex='0']")].filter((e) =>
                 !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML.slice(0, 120))"""
        )
        assert nameless == []
        assert web.page.locator("#board [tabindex='0']").count() == 1, "one place of the board is on the Tab key's way"
        assert web.place(chess_place("e4")).get_attribute("aria-label") == "e4 white pawn"
        assert web.page.locator("#live").get_attribute("aria-live") == "polite"
        web.page.keyboard.press("?")
        expect(web.page.locator("#help-title")).to_be_in_viewport()
        web.shoot("help", full=False)
        web.page.keyboard.press("Escape")
        expect(web.page.locator("#help")).to_be_hidden()
        web.page.locator("#skip").focus()
        web.page.keyboard.press("Enter")  # the link that skips what stands before the board
        assert web.page.evaluate("document.activeElement.dataset.place !== undefined")
        web.place(chess_place("e4")).focus()
        web.page.keyboard.press("ArrowUp")
        assert web.page.locator("#board .mark-focus").count() == 1, "the focus is not seen"
