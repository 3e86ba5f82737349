"""Games on the web page in a real browser: by mouse, by keys, by finger; drops, promotions, files."""

from __future__ import annotations

import io
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.play.web_page import DESK, PHONE, SLOW_ANSWERS, accessible, chess_place, expect, shogi_place, tab
from tests.play.web_policies import FOUR, TTT


def squares(*names: str) -> list[int]:
    return [chess_place(name) for name in names]


def test_scholars_mate_with_the_mouse(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        played = []
        moves = [("e2", "e4", "e4"), ("e7", "e5", "e5"), ("f1", "c4", "Bc4"), ("b8", "c6", "Nc6")]
        moves += [("d1", "h5", "Qh5"), ("g8", "f6", "Nf6"), ("h5", "f7", "Qxf7#")]
        for number, (source, target, label) in enumerate(moves):
            if number % 2:
                web.drag(*squares(source, target))
            else:
                web.click(*squares(source, target))
            played.append(label)
            web.wait_moves(*played)
        web.wait_status("White wins")
        web.wait_status("mate")
        assert "Qxf7#" in web.live
        assert "White wins" in web.live
        assert web.page.locator("#board .can-move").count() == 0, "a finished game goes on"
        web.shoot("chess-mate-mouse")


@pytest.mark.thorough
def test_a_picked_piece_shows_where_it_can_go(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        web.click(chess_place("g1"))
        assert web.page.locator("#board .mark-target").count() == 2
        assert web.place(chess_place("g1")).get_attribute("aria-pressed") == "true"
        assert "g1 white knight" in web.live
        web.shoot("chess-targets", full=False)
        web.click(chess_place("e5"))
        assert web.page.locator("#board .mark-target").count() == 0
        web.drag(*squares("g1", "g5"))
        web.drag(*squares("b1", "c3"))
        web.wait_moves("Nc3")
        assert web.page.locator("#board .gp-last").count() == 2


def test_a_button_that_is_let_go_beside_the_board_leaves_it_usable(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        web.page.mouse.move(*web.middle(chess_place("e5")))
        web.page.mouse.down()
        web.page.mouse.move(1200, 300)
        web.page.mouse.up()
        web.drag(*squares("e2", "e4"))
        web.wait_moves("e4")
        web.page.click("#edit-open")
        empty = web.page.locator(f'#edit-board [data-place="{chess_place("e5")}"]')
        empty.hover()
        web.page.mouse.down()
        web.page.locator("#edit-title").hover()
        web.page.mouse.up()
        empty.click()
        expect(empty.locator(".gp-piece")).to_have_count(1)


@pytest.mark.thorough
def test_fools_mate_with_the_keys_alone(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.page.goto(web_address)
        web.page.wait_for_selector("#board [data-place]")
        keyboard = web.page.keyboard
        keyboard.press("n")
        for select in ("#new-kind", "#new-first", "#new-second"):
            while web.page.evaluate("document.activeElement.id") != select[1:]:
                keyboard.press("Shift+Tab" if select == "#new-kind" else "Tab")
            keyboard.press("Home")
            while select == "#new-kind" and web.page.eval_on_selector(select, "e => e.value") != "chess":
                keyboard.press("ArrowDown")
        keyboard.press("Enter")
        while web.page.evaluate("document.activeElement.textContent") != "Start":
            keyboard.press("Tab")
        web.mark_board()
        keyboard.press("Enter")
        web.wait_new_board()
        played = []
        for source, target, label in [("f2", "f3", "f3"), ("e7", "e5", "e5"), ("g2", "g4", "g4"), ("d8", "h4", "Qh4#")]:
            keyboard.press("b")
            for name in (source, target):
                walk(web, chess_place(name))
                keyboard.press("Enter")
            played.append(label)
            web.wait_moves(*played)
            assert focused(web) == chess_place(target), "the keys lost their place after a move"
        web.wait_status("Black wins")
        assert "Black wins" in web.live
        web.shoot("chess-mate-keys", full=False)


@pytest.mark.thorough
def test_a_look_that_is_overtaken_says_nothing_any_more(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", "rnbqkbnr/pppp1ppp/8/4p3/8/5P2/PPPPP1PP/RNBQKBNR w KQkq - 0 2")
        web.page.evaluate(f"() => {{ {SLOW_ANSWERS % ('/api/decide', 1500)} }}")
        web.click(*squares("g2", "g4"))
        web.wait_moves("g4")
        web.click(*squares("d8", "h4"))
        web.wait_status("Black wins")
        web.settle()
        assert "Black wins" in web.live


def focused(web: Any) -> int:
    return int(web.page.evaluate("Number(document.activeElement.dataset.place ?? -1)"))


def walk(web: Any, goal: int) -> None:
    """Go to a chess square by arrow keys, looking where each one led."""
    here = focused(web)
    assert here >= 0, "the board is not focused"
    keys = ["ArrowDown" if goal // 8 > here // 8 else "ArrowUp"] * abs(goal // 8 - here // 8)
    keys += ["ArrowRight" if goal % 8 > here % 8 else "ArrowLeft"] * abs(goal % 8 - here % 8)
    for key in keys:
        web.page.keyboard.press(key)
    assert focused(web) == goal


@pytest.mark.thorough
def test_keys_put_back_undo_redo_and_type(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        keyboard = web.page.keyboard
        web.place(chess_place("e2")).focus()
        keyboard.press("Enter")
        assert web.page.locator("#board .mark-target").count() == 2
        keyboard.press("Escape")
        assert web.page.locator("#board .mark-target").count() == 0
        for typed, moves in [("e2e4", ["e4"]), ("Nc6", ["e4", "Nc6"])]:
            keyboard.press("m")
            keyboard.type(typed)
            keyboard.press("Enter")
            web.wait_moves(*moves)
            keyboard.press("Escape")
        keyboard.press("u")
        expect(web.page.locator("#moves .later")).to_have_count(1)
        web.wait_status("Black to move")
        keyboard.press("r")
        expect(web.page.locator("#moves .later")).to_have_count(0)
        web.wait_status("White to move")
        keyboard.press("m")
        keyboard.type("e4e6")
        keyboard.press("Enter")
        expect(web.page.locator("#move-error")).to_contain_text("e4e6")
        assert web.page.locator("#move").get_attribute("aria-invalid") == "true"


@pytest.mark.thorough
def test_every_promotion_is_offered(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", "7k/P7/8/8/8/8/8/K7 w - - 0 1")
        web.click(*squares("a7", "a8"))
        choices = web.page.locator("#choices .choice")
        expect(choices).to_have_count(4)
        assert {name.split(" ")[0] for name in choices.evaluate_all("all => all.map(e => e.ariaLabel)")} == {
            "Queen",
            "Rook",
            "Bishop",
            "Knight",
        }
        expect(choices.locator("svg")).to_have_count(4)
        web.shoot("chess-underpromotion", full=False)
        web.page.keyboard.press("Escape")
        expect(web.page.locator("#board.holding")).to_have_count(0)  # the pawn is put back
        assert web.wait_num_moves(0) == []
        web.drag(*squares("a7", "a8"))
        web.page.get_by_role("button", name="Knight").click()
        web.wait_moves("a8=N")
        expect(web.place(chess_place("a8"))).to_have_attribute("aria-label", "a8 white knight")


@pytest.mark.thorough
def test_a_shogi_drop_a_promotion_and_a_declined_one(browser: Any, web_address: str) -> None:
    start = "4k4/9/4P4/9/9/9/9/9/4K4 b G2p 1"
    with tab(browser, web_address) as web:
        web.open("shogi", start)
        gold = web.page.locator('#board [data-place][aria-label*="gold in hand: 1"]')
        gold.click()
        assert web.page.locator("#board .mark-target").count() > 60
        web.shoot("shogi-drop-targets", full=False)
        web.click(shogi_place("5b"))
        web.wait_status("Black wins")
        expect(web.place(shogi_place("5b"))).to_have_attribute("aria-label", "5b black gold")
        web.shoot("shogi-drop-mate")

        for choice, piece in [("Promote", "tokin"), ("Do not promote", "pawn")]:
            web.new_game("shogi", start)
            web.click(shogi_place("5c"), shogi_place("5b"))
            expect(web.page.locator("#choices .choice")).to_have_count(2)
            web.shoot("shogi-promotion", full=False)
            web.page.get_by_role("button", name=choice, exact=False).and_(
                web.page.locator(f'[aria-label^="{choice} "]')
            ).click()
            web.wait_num_moves(1)
            expect(web.place(shogi_place("5b"))).to_have_attribute("aria-label", f"5b black {piece}")

        # White drops from its own hand, at the upper left.
        web.new_game("shogi", "4k4/9/9/9/9/9/9/9/4K4 w 2p 1")
        web.page.locator('#board [data-place][aria-label*="white pawn in hand: 2"]').click()
        web.click(shogi_place("1b"))
        web.wait_num_moves(1)
        expect(web.place(shogi_place("1b"))).to_have_attribute("aria-label", "1b white pawn")


@pytest.mark.thorough
def test_the_hand_is_reached_by_keys(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("shogi", "4k4/9/4P4/9/9/9/9/9/4K4 b G 1")
        web.place(shogi_place("1e")).focus()
        for _ in range(4):
            web.page.keyboard.press("ArrowRight")
        label = str(web.page.evaluate("document.activeElement.ariaLabel"))
        assert "in hand" in label
        while "gold in hand" not in str(web.page.evaluate("document.activeElement.ariaLabel")):
            web.page.keyboard.press("ArrowUp")
        web.page.keyboard.press("Enter")
        assert web.page.locator("#board .mark-target").count() > 60


@pytest.mark.thorough
def test_a_policy_answers_a_finger_on_a_phone(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, PHONE) as web:
        web.open("chess", second="dreamer")
        web.place(chess_place("e2")).tap()
        web.place(chess_place("e4")).tap()
        first, reply = web.wait_num_moves(2)
        assert first == "e4"
        assert reply
        touch_drag(web, *squares("d2", "d4"))
        assert web.wait_num_moves(4)[2] == "d4"
        web.settle()
        assert web.fits()
        web.shoot("phone-chess")
        web.page.click("#new")
        assert web.fits()
        web.shoot("phone-new-game", full=False)


def touch_drag(web: Any, source: int, target: int) -> None:
    web.place(source).scroll_into_view_if_needed()
    session = web.page.context.new_cdp_session(web.page)
    (x0, y0), (x1, y1) = web.middle(source), web.middle(target)
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x0, "y": y0}]})
    for share in (0.2, 0.5, 0.8, 1.0):
        point = {"x": x0 + share * (x1 - x0), "y": y0 + share * (y1 - y0)}
        session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.thorough
def test_who_plays_black_sits_behind_the_black_pieces(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        web.page.select_option("#near-player", label="random")
        web.wait_num_moves(1)
        expect(web.page.locator("#near label")).to_have_text("Black")
        assert web.middle(chess_place("e8"))[1] > web.middle(chess_place("e1"))[1]
        web.drag(*squares("e7", "e5"))
        assert web.wait_num_moves(3)[1] == "e5"
        web.page.click("#undo")
        expect(web.page.locator("#moves .later")).to_have_count(2)
        web.wait_status("Black to move")


def test_stones_fall_in_the_column_that_is_clicked(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open(FOUR)
        for count in (1, 2):
            web.click(3)  # the top of column d
            web.wait_num_moves(count)
        web.wait_moves("d", "d")
        expect(web.place(5 * 7 + 3)).to_have_attribute("aria-label", re.compile("^d.* X$"))
        expect(web.place(4 * 7 + 3)).to_have_attribute("aria-label", re.compile("^d.* O$"))
        expect(web.page.locator("#flip")).to_be_hidden()


def test_a_game_of_tic_tac_toe_against_a_policy(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open(TTT, second="random")
        web.click(4)
        web.wait_num_moves(2)
        web.shoot("tic-tac-toe")
        web.page.click("#undo")
        expect(web.page.locator("#moves .later")).to_have_count(2)
        web.wait_status("X to move")


@pytest.mark.thorough
def test_policies_play_each_other_until_they_are_held(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.page.clock.install(time=1_800_000_000_000)
        web.load()
        web.page.clock.pause_at(1_800_000_100_000)  # no move is made by itself from here
        web.new_game(TTT, first="dreamer", second="random")
        moves = web.page.locator("#moves button")
        web.wait_until(lambda: web.page.clock.fast_forward(1000) or moves.count() > 1)
        web.page.click("#hold")
        expect(web.page.locator("#go")).to_be_visible()
        count = moves.count()
        web.settle()
        web.page.clock.fast_forward(10_000)
        assert moves.count() == count
        web.page.clock.resume()
        web.page.click("#go")
        expect(web.page.locator("#status.over")).to_be_visible()


@pytest.mark.parametrize(
    ("game", "suffix"),
    [
        ("chess", "PGN"),
        pytest.param("shogi", "KIF", marks=pytest.mark.thorough),
        pytest.param("shogi", "CSA", marks=pytest.mark.thorough),
    ],
)
def test_a_game_is_saved(browser: Any, web_address: str, game: str, suffix: str) -> None:
    with tab(browser, web_address) as web:
        web.open(game)
        for typed, count in [("e2e4" if game == "chess" else "7g7f", 1), ("c7c5" if game == "chess" else "3c3d", 2)]:
            web.page.fill("#move", typed)
            web.page.press("#move", "Enter")
            web.wait_num_moves(count)
        web.page.select_option("#format", label=suffix)
        with web.page.expect_download() as download:
            web.page.click("#export")
        data = download.value.path().read_bytes()
        assert download.value.suggested_filename.endswith(f".{suffix.lower()}")
        if suffix == "PGN":
            chess_pgn = pytest.importorskip("chess.pgn")
            game_read = chess_pgn.read_game(io.StringIO(data.decode()))
            assert [move.uci() for move in game_read.mainline_moves()] == ["e2e4", "c7c5"]
        elif suffix == "CSA":
            assert "+7776FU" in data.decode("utf-8", "replace")
        else:
            assert "７六歩" in data.decode("cp932")


OFFERED = """() => {
  window.offered = new Set();
  const note = () => document.querySelectorAll("#apart button").forEach((button) => offered.add(button.textContent));
  new MutationObserver(note).observe(document.querySelector("#apart"), { childList: true });
}"""
"""Notes the texts of all buttons of moves without a square from here on."""


def test_moves_without_a_square_are_buttons(browser: Any) -> None:
    pytest.importorskip("starlette", reason="needs the extra [web]")
    from tests.play.web_server import serving

    pig = "pig:goal=100,faces=6,bust=1"
    with serving(["random"], [pig]) as client, tab(browser, f"http://{client.host}:{client.port}/") as web:
        web.page.goto(f"{web.address}#{urlencode({'game': pig, 'start': '12 7 5 A choose'})}")
        buttons, pressed = web.page.locator("#apart button"), web.page.locator("#apart button:focus")
        expect(buttons).to_have_text(["roll", "hold"])
        web.shoot("pig")
        web.page.set_viewport_size(PHONE["viewport"])
        below = web.page.locator("#board").bounding_box(), web.page.locator(".column").bounding_box()
        assert below[0]["y"] < buttons.first.bounding_box()["y"] < below[1]["y"], "moves are below the analysis"
        web.page.set_viewport_size(DESK["viewport"])
        web.page.evaluate(OFFERED)
        buttons.nth(1).focus()
        web.page.keyboard.press("Enter")
        web.wait_moves("hold")
        web.wait_status("B to move")
        expect(pressed).to_have_text("roll")
        web.page.keyboard.press("Enter")
        web.wait_num_moves(3)  # the die's face comes by itself
        expect(pressed).to_have_text("roll")
        assert set(web.page.evaluate("[...offered]")) <= {"roll", "hold"}, "a person chooses the die's face"
        for side in "AB":  # the person's side is near
            expect(web.page.locator("#near label")).to_have_text(side)
            web.page.select_option("#near-player", label="random")
        expect(buttons).to_have_count(0)
        accessible(web.page)


def test_undo_goes_back_to_the_persons_own_turn_where_players_do_not_alternate(browser: Any) -> None:
    pytest.importorskip("starlette", reason="needs the extra [web]")
    from tests.play.web_server import serving

    pig = "pig:goal=100,faces=6,bust=1"
    moves = ["roll", "3", "hold", "roll", "6", "hold"]
    with serving(["random"], [pig]) as client, tab(browser, f"http://{client.host}:{client.port}/") as web:
        web.load(urlencode({"game": pig, "moves": " ".join(moves)})).wait_looks()
        web.page.select_option("#far-player", label="random")
        later = web.page.locator("#moves .later")
        for button, count in (("#undo", 4), ("#undo", 6), ("#redo", 4), ("#redo", 0)):
            web.page.click(button)
            expect(later).to_have_count(count)
            web.wait_status("A to move")
        for count in range(1, 6):  # the die that has fallen falls no second time
            web.page.evaluate("document.activeElement.blur()")
            web.page.keyboard.press("ArrowLeft")
            expect(later).to_have_count(count)
        web.page.wait_for_timeout(1000)
        web.wait_moves(*moves)


@pytest.mark.thorough
def test_a_link_that_is_opened_over_a_flipped_board_lets_stones_fall_down(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        web.page.keyboard.press("f")
        expect(web.page.locator("#near label")).to_have_text("Black")
        web.load(urlencode({"game": FOUR, "moves": "d"}))
        web.wait_moves("d")
        assert web.place(0).bounding_box()["y"] < web.place(41).bounding_box()["y"]
