"""Clocks on the page, under a time that the tests move on: who is charged, who loses on time, what a reload keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.play.web_page import HELD_STREAM, PHONE, WebPage, accessible, chess_place, expect, shogi_place, tab

LAWS = """async () => {
  const { left, spell } = await import("/static/clock.js");
  const blitz = { base: 180000, increment: 2000, byoyomi: 0 };
  const slow = { base: 60000, increment: 0, byoyomi: 30000 };
  return {
    fresh: left(blitz, []),
    added: left(blitz, [[0, 5000], [1, 182000], [0, 0]]),
    untimed: left(blitz, [null, [1, 1000]], [0, 2000]),
    into: left(slow, [[0, 70000], [1, 1000]], [0, 12000]),
    renewed: left(slow, [[0, 70000], [1, 1000], [0, 29999], [1, 0]]),
    over: left(slow, [], [0, 90000]),
    only: left({ base: 0, increment: 5000, byoyomi: 0 }, []),
    spelled: [180000, 179001, 179000, 10000, 9999, 1, 0, 3600000, 5025000].map(spell),
  };
}"""
"""Computed on the page; the expected values beside them are counted by hand."""


def side(main: int, period: int = 0) -> dict[str, int]:
    return {"main": main, "period": period}


def timed(web: WebPage, game: str, clock: str | dict[str, str], *, second: str = "human", start: str = "") -> WebPage:
    """A new game with a clock, whose time only the test moves on from here."""
    web.page.clock.install(time=1_800_000_000_000)
    web.load()
    web.page.click("#new")
    web.page.select_option("#new-kind", game)
    web.page.fill("#new-start", start)
    web.page.select_option("#new-first", "human")
    web.page.select_option("#new-second", **({"value": "human"} if second == "human" else {"label": second}))
    if isinstance(clock, str):
        web.page.select_option("#new-clock", label=clock)
    else:
        web.page.select_option("#new-clock", "own")
        for name, value in clock.items():
            web.page.fill(f"#clock-{name}", value)
    web.page.clock.pause_at(1_800_000_100_000)
    web.mark_board()
    web.page.click("#new-form button[type=submit]")
    web.wait_new_board()
    return web


def pass_time(web: WebPage, seconds: float, *, of: str) -> None:
    """Move time on once it runs for that side, "near" or "far", and for no other ("nobody": for none)."""
    for side in ("near", "far"):
        expect(web.page.locator(f"#{side}-clock.runs")).to_have_count(int(side == of))
    web.page.clock.fast_forward(int(1000 * seconds))


def shows(web: WebPage, near: str, far: str) -> None:
    expect(web.page.locator("#near-clock")).to_have_text(near)
    expect(web.page.locator("#far-clock")).to_have_text(far)


def test_time_runs_is_added_is_given_back_and_ends_the_game(browser: Any, web_address: str, tmp_path: Path) -> None:
    with tab(browser, web_address) as web:
        timed(web, "chess", "3+2")
        laws = web.page.evaluate(LAWS)
        assert laws == {
            "fresh": [side(180_000), side(180_000)],
            "added": [side(179_000), side(2_000)],
            "untimed": [side(178_000), side(181_000)],
            "into": [side(0, 18_000), side(59_000, 30_000)],
            "renewed": [side(0, 30_000), side(59_000, 30_000)],
            "over": [side(0, 0), side(60_000, 30_000)],
            "only": [side(5_000), side(5_000)],
            "spelled": ["3:00", "3:00", "2:59", "0:10", "0:10.0", "0:00.1", "0:00.0", "1:00:00", "1:23:45"],
        }
        shows(web, "3:00", "3:00")
        pass_time(web, 10, of="near")
        shows(web, "2:50", "3:00")
        web.click(chess_place("e2"), chess_place("e4"))
        web.wait_moves("e4")
        shows(web, "2:52", "3:00")
        pass_time(web, 61, of="far")
        shows(web, "2:52", "1:59")
        web.page.reload()  # it keeps the clock, and time goes on
        expect(web.page.locator("#moves button")).to_have_text(["e4"])
        pass_time(web, 1, of="far")
        shows(web, "2:52", "1:58")
        web.page.click("#undo")
        web.wait_status("White to move")
        shows(web, "3:00", "3:00")
        pass_time(web, 500, of="nobody")  # nobody is to hurry at an earlier position
        shows(web, "3:00", "3:00")
        web.click(chess_place("d2"), chess_place("d4"))
        web.wait_moves("d4")
        shows(web, "3:02", "3:00")
        pass_time(web, 175, of="far")
        shows(web, "3:02", "0:05.0")
        expect(web.page.locator("#far-clock")).to_have_class("clock runs low")
        pass_time(web, 5.1, of="far")
        web.wait_status("White wins: on time")
        assert "White wins: on time" in web.live
        shows(web, "3:02", "0:00.0")
        web.click(chess_place("e7"), chess_place("e5"))
        web.wait_moves("d4")
        accessible_or_not(web)
        web.page.select_option("#format", ".pgn")
        with web.page.expect_download() as saved:
            web.page.click("#export")
        text = Path(saved.value.path()).read_text(encoding="utf-8")
        for line in ('[Result "1-0"]', '[TimeControl "180+2"]', '[Termination "time forfeit"]', "1. d4 1-0"):
            assert line in text


def accessible_or_not(web: WebPage) -> None:
    """Axe uses timers, so that time has to go on for it."""
    web.page.clock.resume()
    accessible(web.page)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("locale", "to_move", "words"),
    [
        ("en-GB", "White to move", "Draw: White is out of time, and Black cannot win"),
        ("ja-JP", "白の手番", "引き分け（白は時間切れ、黒に勝つ手段なし）"),
    ],
)
def test_time_does_not_lose_to_a_player_who_cannot_win(
    browser: Any, web_address: str, locale: str, to_move: str, words: str
) -> None:
    with tab(browser, web_address, {"locale": locale}) as web:
        timed(web, "chess", "3+2", start="4k3/8/8/8/8/8/4P3/4K3 w - - 0 1")
        web.wait_status(to_move)
        pass_time(web, 181, of="near")
        web.wait_status(words)
        assert words in web.live
        with web.page.expect_download() as saved:
            web.page.click("#export")
        text = Path(saved.value.path()).read_text(encoding="utf-8")
        for line in ('[Result "1/2-1/2"]', '[Termination "time forfeit"]'):
            assert line in text


@pytest.mark.thorough
def test_a_promotion_that_is_chosen_too_late_is_not_played(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        timed(web, "chess", {"base": "0.5", "increment": "0"}, start="6bk/P7/8/8/8/8/8/K7 w - - 0 1")
        web.click(chess_place("a7"), chess_place("a8"))
        expect(web.page.locator("#choices .choice")).to_have_count(4)
        pass_time(web, 31, of="near")
        web.wait_status("Black wins: on time")
        expect(web.page.locator("#choose")).to_be_hidden()
        web.page.locator("#look").focus()
        web.page.evaluate("document.querySelector('#choices .choice').click()")  # a click that was under way
        web.mark_board()
        web.page.click("#flip")
        expect(web.page.locator("#board svg:not([data-old])")).to_be_visible()
        web.wait_status("Black wins: on time")
        assert web.wait_num_moves(0) == []


@pytest.mark.thorough
def test_byoyomi_begins_where_the_time_ends_and_own_values_are_checked(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, PHONE) as web:
        timed(web, "shogi", "10 min, then 30 s per move (byoyomi)")
        pass_time(web, 601, of="near")
        shows(web, "byoyomi 0:29", "10:00")
        web.click(shogi_place("7g"), shogi_place("7f"))
        web.wait_num_moves(1)
        shows(web, "byoyomi 0:30", "10:00")
        assert web.fits()
        web.page.click("#new")
        assert web.page.eval_on_selector("#new-clock", "e => e.selectedOptions[0].text").startswith("10 min, then 30 s")
        web.page.select_option("#new-clock", "own")
        for value in ("0", "-1", "1000", "", "0.4"):
            for name in ("base", "increment", "byoyomi"):
                web.page.fill(f"#clock-{name}", value)
            web.page.click("#new-form button[type=submit]")
            expect(web.page.locator("#clock-error")).to_contain_text("Give numbers from 0 to 600")
        accessible_or_not(web)
        web.shoot("clock-own-phone", full=False)
        web.page.fill("#clock-base", "0.5")
        web.page.fill("#clock-increment", "0")
        web.page.fill("#clock-byoyomi", "0")
        web.page.clock.pause_at(1_800_001_000_000)
        web.mark_board()
        web.page.click("#new-form button[type=submit]")
        web.wait_new_board()
        shows(web, "0:30", "0:30")
        pass_time(web, 31, of="near")
        web.wait_status("White wins: on time")  # shogi's Black moves first


@pytest.mark.thorough
def test_a_policy_that_thinks_too_long_loses_and_its_answer_comes_too_late(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        timed(web, "chess", {"base": "0.5", "increment": "0"}, second="dreamer")
        web.page.evaluate(f"() => {{ {HELD_STREAM % 1} }}")
        with web.page.expect_request("**/api/decide") as asked:
            web.click(chess_place("e2"), chess_place("e4"))
        assert asked.value.post_data_json["clock"] == {"left": 30_000, "increment": 0, "byoyomi": 0}
        web.wait_moves("e4")
        shows(web, "0:30", "0:30")
        pass_time(web, 29, of="far")
        shows(web, "0:30", "0:01.0")
        pass_time(web, 1.2, of="far")
        web.wait_status("White wins: on time")
        web.page.evaluate("window.release()")
        web.settle()
        web.wait_moves("e4")


@pytest.mark.thorough
def test_a_policy_is_charged_and_people_are_not_asked_to_look(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        timed(web, "chess", "1+0", second="dreamer")
        expect(web.page.locator(".column .note")).to_have_text("Not analysed yet.")
        web.page.evaluate(f"() => {{ {HELD_STREAM % 1} }}")
        web.click(chess_place("e2"), chess_place("e4"))
        expect(web.page.locator(".column.busy")).to_have_count(1)
        pass_time(web, 20, of="far")
        web.page.evaluate("window.release()")
        web.wait_num_moves(2)
        shows(web, "1:00", "0:40")
        pass_time(web, 5, of="near")
        shows(web, "0:55", "0:40")
        web.page.click("#undo")  # a look back stops the clock, and the time thought so far is kept
        expect(web.page.locator("#moves .later")).to_have_count(2)
        pass_time(web, 100, of="nobody")
        web.page.click("#redo")
        pass_time(web, 1, of="near")
        shows(web, "0:54", "0:40")


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["laptop", "phone"])
def test_clocks_are_accessible_and_fit(browser: Any, web_address: str, size: str, scheme: str) -> None:
    look = {**(PHONE if size == "phone" else {"viewport": {"width": 1366, "height": 768}}), "color_scheme": scheme}
    with tab(browser, web_address, look) as web:
        timed(web, "chess", "1+0")
        web.click(chess_place("e2"), chess_place("e4"))
        web.wait_moves("e4")
        pass_time(web, 52, of="far")
        web.page.clock.resume()
        web.shoot(f"clock-{size}-{scheme}", full=False)
        accessible(web.page)
        assert web.fits()
        web.page.click("#new")
        web.page.select_option("#new-clock", "own")
        web.shoot(f"clock-new-{size}-{scheme}", full=False)
        accessible(web.page)


def test_a_clock_that_ran_before_a_reload_waits_for_the_board(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        timed(web, "chess", "3+2")
        pass_time(web, 10, of="near")
        kept: list[Any] = []
        web.page.route("**/api/position", lambda route: kept.append(route))
        web.page.reload()
        web.wait_until(lambda: len(kept) == 1)
        web.page.clock.fast_forward(1000)
        kept[0].continue_()
        shows(web, "2:49", "3:00")
