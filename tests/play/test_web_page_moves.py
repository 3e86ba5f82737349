"""Going through a game on the page: keys, pasted and opened games, own arrows, the evaluation along it, pictures."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.play.web_page import DESK, PHONE, WebPage, accessible, chess_place, expect, tab

PGN = '[White "Ann"]\n[Black "Bob"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 *\n'
LABELS = ["e4", "e5", "Nf3", "Nc6", "Bb5", "a6"]
KIF = "手合割：平手\n手数----指手---------消費時間--\n   1 ７六歩(77)\n   2 ３四歩(33)\n"
SIZES = {"desk": DESK, "laptop": {"viewport": {"width": 1366, "height": 768}}, "phone": PHONE}


def opened(web: WebPage, text: str = PGN, game: str = "chess") -> WebPage:
    """The page after a game was pasted into the dialogue."""
    return web.load().new_game(game, text)


def at_ply(web: WebPage, ply: int) -> None:
    """Wait until so many moves are on the board."""
    current = web.page.locator("#moves button[aria-current]")
    expect(web.page.locator("#moves .later")).to_have_count(len(LABELS) - ply)
    expect(current).to_have_count(min(ply, 1))
    if ply:
        expect(current).to_have_text(LABELS[ply - 1])


def test_arrow_keys_go_through_the_moves(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        opened(web)
        web.wait_moves(*LABELS)
        web.page.evaluate("document.activeElement.blur()")
        for key, ply in (
            ("ArrowLeft", 5),
            ("ArrowLeft", 4),
            ("Home", 0),
            ("ArrowLeft", 0),
            ("ArrowRight", 1),
            ("End", 6),
        ):
            web.page.keyboard.press(key)
            at_ply(web, ply)
        web.place(chess_place("e4")).click()  # a mouse on the board does not take the arrows away
        web.page.keyboard.press("ArrowLeft")
        at_ply(web, 5)
        web.page.keyboard.press("b")  # the keys do: on the board they move between squares
        focused = "Number(document.activeElement.dataset.place)"
        before = web.page.evaluate(focused)
        web.page.keyboard.press("ArrowUp")
        assert web.page.evaluate(focused) != before
        at_ply(web, 5)
        web.page.focus("#seed")
        web.page.keyboard.press("Home")
        at_ply(web, 5)


@pytest.mark.parametrize(
    "text", [pytest.param("1. e4 e5 2. Nf3 Nc6 3. Bb5 a6", marks=pytest.mark.thorough), PGN], ids=["moves", "pgn"]
)
def test_a_game_is_pasted(browser: Any, web_address: str, text: str) -> None:
    with tab(browser, web_address) as web:
        opened(web, text)
        web.wait_moves(*LABELS)
        at_ply(web, 6)


@pytest.mark.thorough
def test_a_kif_in_shift_jis_is_opened(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.page.goto(web_address)
        web.page.wait_for_selector("#board [data-place]")
        web.page.click("#new")
        web.page.select_option("#new-kind", "shogi")
        file = {"name": "game.kif", "mimeType": "text/plain", "buffer": KIF.encode("shift_jis")}
        web.page.set_input_files("#new-file", file)
        expect(web.page.locator("#new-start")).to_have_value(KIF)
        web.page.click("#new-form button[type=submit]")
        web.wait_num_moves(2)
        web.wait_status("Black to move")


@pytest.mark.thorough
def test_a_pgn_in_latin_1_is_opened(browser: Any, web_address: str) -> None:
    """PGN's own encoding (PGN standard, 4.1); a file is read anew for another game."""
    text = PGN.replace("Ann", "Müller").replace("Bob", "Grüße")
    with tab(browser, web_address) as web:
        web.load()
        web.page.click("#new")
        web.page.select_option("#new-kind", "shogi")
        file = {"name": "game.pgn", "mimeType": "text/plain", "buffer": text.encode("latin-1")}
        web.page.set_input_files("#new-file", file)
        expect(web.page.locator("#new-start")).to_have_value(re.compile("Ann|White"))
        web.page.select_option("#new-kind", "chess")
        expect(web.page.locator("#new-start")).to_have_value(text)
        web.page.fill("#new-start", "8/8/8")
        web.page.select_option("#new-kind", "shogi")
        expect(web.page.locator("#new-start")).to_have_value("8/8/8")  # what was typed stays


@pytest.mark.thorough
def test_a_wrong_game_is_explained_in_the_dialogue(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.page.goto(web_address)
        web.page.wait_for_selector("#board [data-place]")
        web.page.click("#new")
        for text, words in (("1. e4 e5 2. Nf6", "move 2. 'Nf6' is illegal"), ("8/8/8", "is not a FEN")):
            web.page.fill("#new-start", text)
            web.page.click("#new-form button[type=submit]")
            expect(web.page.locator("#new-error")).to_contain_text(words)


@pytest.mark.thorough
def test_a_game_that_is_read_too_late_leaves_the_next_dialogue_alone(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.load()
        kept: list[Any] = []
        web.page.route("**/api/import", lambda route: kept.append(route))
        web.page.click("#new")
        web.page.fill("#new-start", PGN)
        web.page.click("#new-form button[type=submit]")
        web.wait_until(lambda: len(kept) == 1)
        web.page.keyboard.press("Escape")
        expect(web.page.locator("#new-game")).to_be_hidden()
        web.page.click("#new")
        web.page.route("**/api/import", lambda route: route.continue_())
        with web.page.expect_response("**/api/import"):
            kept[0].continue_()
        web.page.fill("#new-start", "nothing")
        web.page.click("#new-form button[type=submit]")
        expect(web.page.locator("#new-error")).to_contain_text("nothing")  # its answer comes after the late one
        assert web.wait_num_moves(0) == []


@pytest.mark.thorough
def test_the_right_button_draws_arrows(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess")
        mouse, notes = web.page.mouse, web.page.locator("#board .hue-note")

        def draw(source: str, target: str) -> None:
            mouse.move(*web.middle(chess_place(source)))
            mouse.down(button="right")
            mouse.move(*web.middle(chess_place(target)), steps=3)
            mouse.up(button="right")

        draw("e2", "e4")
        expect(notes).to_have_count(1)
        draw("d5", "d5")
        expect(notes.locator(".ring")).to_have_count(1)
        draw("e2", "e4")
        expect(notes).to_have_count(1)
        web.shoot("chess-own-arrows", full=False)
        web.drag(chess_place("e2"), chess_place("e4"))
        web.wait_moves("e4")
        expect(notes).to_have_count(0)


def evaluated(web: WebPage, chances: list[float]) -> None:
    """Answer every decision with a value: that of the player to move, first White's."""

    def answer(route: Any) -> None:
        ply = len(json.loads(route.request.post_data)["moves"])
        win = chances[ply] if ply % 2 == 0 else 1 - chances[ply]
        decision = {"move": "a2a3", "label": "a3", "win_probability": win, "policy": [], "line": [], "legality": []}
        route.fulfill(body=json.dumps({"decision": decision}) + "\n", content_type="application/x-ndjson")

    web.page.route("**/api/decide", answer)


@pytest.mark.thorough
def test_the_evaluation_along_the_game(browser: Any, web_address: str) -> None:
    chances = [0.5, 0.52, 0.5, 0.55, 0.2, 0.25, 0.3]
    with tab(browser, web_address) as web:
        evaluated(web, chances)
        opened(web)
        web.page.click("#evaluate")
        expect(web.page.locator("#graph-note")).to_contain_text(
            "White's winning chances: 50 % at the start, 30 % at the end"
        )
        expect(web.page.locator("#graph-note")).to_contain_text("largest change 35 %, by 2… Nc6")
        expect(web.page.locator("#graph .swing")).to_have_count(1)
        points = web.page.locator("#graph .chances").get_attribute("points").split()
        assert [round(1 - float(point.split(",")[1]) / 90, 2) for point in points] == chances
        box = web.page.locator("#graph").bounding_box()
        web.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
        at_ply(web, 3)
        web.shoot("chess-evaluation")
        web.click(chess_place("g8"), chess_place("f6"))
        web.wait_moves("e4", "e5", "Nf3", "Nf6")
        expect(web.page.locator("#graph")).to_be_hidden()  # another game than the one that was evaluated


@pytest.mark.thorough
def test_a_finished_game_ends_with_its_result(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        said: list[str] = []
        web.page.on("console", lambda message: said.append(message.text))
        evaluated(web, [0.5, 0.5, 0.4, 0.3])
        opened(web, "1. f3 e5 2. g4")
        web.click(chess_place("d8"), chess_place("h4"))
        web.wait_status("Black wins")
        web.page.click("#evaluate")
        expect(web.page.locator("#graph-note")).to_contain_text("0 % at the end")
        assert said == []  # nothing was asked that the server had to refuse


@pytest.mark.thorough
def test_a_policy_without_values_says_so(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        opened(web, "1. e4 e5")
        web.page.click("#evaluate")
        expect(web.page.locator("#graph-note")).to_contain_text("does not evaluate positions")
        expect(web.page.locator("#graph")).to_be_hidden()


def test_an_opened_game_is_saved_as_it_was_until_somebody_plays_on(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        opened(web, '[Date "1999.01.20"]\n' + PGN.replace("*", "1-0"))

        def saved() -> str:
            web.page.select_option("#format", ".pgn")
            with web.page.expect_download() as file:
                web.page.click("#export")
            return file.value.path().read_text()

        web.wait_moves(*LABELS)
        text = saved()
        assert all(line in text for line in ('[White "Ann"]', '[Black "Bob"]', '[Result "1-0"]', '[Date "1999.01.20"]'))
        web.page.click("#undo")
        at_ply(web, 5)
        assert all(line in saved() for line in ('[White "you"]', '[Result "*"]'))


@pytest.mark.thorough
def test_a_picture_is_saved(browser: Any, web_address: str) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra [show]")
    with tab(browser, web_address) as web:
        opened(web)
        web.settle()
        with web.page.expect_download() as saved:
            web.page.get_by_role("button", name=re.compile("^Save picture")).first.click()
        assert re.fullmatch(r"dreamer-\w+\.png", saved.value.suggested_filename)
        picture = image.open(io.BytesIO(saved.value.path().read_bytes()))
        assert picture.format == "PNG"
        assert picture.width == 1200
        assert 600 <= picture.height <= 720  # one board beside the position
        assert len(set(picture.convert("RGB").resize((60, 30)).getdata())) > 20  # boards, not an empty sheet


@pytest.mark.thorough
def test_moves_are_numbered_from_the_fens_own_number(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.open("chess", "4k3/8/8/8/8/8/4P3/4K3 b - - 3 17")
        web.click(chess_place("e8"), chess_place("d7"))
        web.wait_moves("Kd7")
        web.click(chess_place("e2"), chess_place("e4"))
        web.wait_moves("Kd7", "e4")
        expect(web.page.locator("#moves .number")).to_have_text(["17…", "18."])
        with web.page.expect_download() as saved:
            web.page.click("#export")
        assert "17... Kd7 18. e4" in Path(saved.value.path()).read_text(encoding="utf-8")


@pytest.mark.thorough
def test_a_last_position_that_was_never_shown_is_evaluated_for_the_right_side(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        evaluated(web, [0.5, 0.5, 0.9])
        web.load().new_game("chess", "1. e4")
        web.wait_moves("e4")
        web.page.route("**/api/position", lambda route: route.abort())
        web.click(chess_place("e7"), chess_place("e5"))
        expect(web.page.locator("#trouble")).to_contain_text("does not answer")
        web.page.unroute("**/api/position")
        web.page.click("#undo")
        expect(web.page.locator("#moves .later")).to_have_count(1)
        web.page.click("#evaluate")
        expect(web.page.locator("#graph-note")).to_contain_text("White's winning chances: 50 % at the start, 90 %")


COUNTED_TONES = """
window.tones = [];
window.AudioContext = class extends AudioContext {
  createOscillator() {
    const tone = super.createOscillator();
    const stop = tone.stop.bind(tone);
    tone.stop = (when) => { window.tones.push(tone.frequency.value); stop(when); };
    return tone;
  }
};
"""


@pytest.mark.thorough
def test_sounds_are_off_until_they_are_switched_on(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.page.add_init_script(COUNTED_TONES)
        web.load().new_game("chess", "1. f3 e5")
        web.click(chess_place("g2"), chess_place("g4"))
        web.wait_num_moves(3)
        assert web.page.evaluate("tones") == []
        web.page.check("#sounds")
        assert web.page.evaluate("tones") == [190]
        web.click(chess_place("d8"), chess_place("h4"))
        web.wait_status("Black wins")
        assert web.page.evaluate("tones") == [190, 330]
        web.page.reload()
        expect(web.page.locator("#sounds")).to_be_checked()


@pytest.mark.thorough
def test_the_link_opens_the_position(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        opened(web)
        web.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        web.page.click("#link")
        expect(web.page.locator("#notice")).to_have_text("Link copied.")
        link = web.page.evaluate("navigator.clipboard.readText()")
    with tab(browser, web_address) as other:
        other.page.goto(link)
        other.wait_moves(*LABELS)


@pytest.mark.parametrize(
    "look", [*(pytest.param(SIZES[s], marks=pytest.mark.thorough) for s in ("desk", "laptop")), PHONE], ids=SIZES
)
def test_nothing_is_out_of_place(browser: Any, web_address: str, look: Any) -> None:
    with tab(browser, web_address, look) as web:
        evaluated(web, [0.5, 0.52, 0.5, 0.55, 0.2, 0.25, 0.3])
        opened(web)
        web.page.click("#evaluate")
        expect(web.page.locator("#graph-note")).to_contain_text("at the end")
        assert web.fits()
        web.page.keyboard.press("ArrowLeft")  # a move that is taken back is listed in another colour
        at_ply(web, 5)
        web.shoot(f"chess-moves-{look['viewport']['width']}")
        accessible(web.page)
        web.page.click("#new")
        accessible(web.page)
