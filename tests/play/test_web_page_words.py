"""The words of the page: a table for each language, nothing beside the tables, English and Japanese."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.play.web_page import DESK, PHONE, accessible, chess_place, expect, shogi_place, tab

STATIC = Path(str(resources.files("genpolicy_play.web"))) / "static"
LANGUAGES = ("en", "ja")
JAPANESE = {"locale": "ja-JP"}
SIZES = {"desk": DESK, "laptop": {"viewport": {"width": 1366, "height": 768}}, "phone": PHONE}
PLACEHOLDER = re.compile(r"\{(\w+)\}")
MARKED = "⟦{}⟧"
"""Around each word of the table, so that what is shown and came from elsewhere stands out."""
SHOWN = """() => {
  const said = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const skipped = "script, noscript, kbd, [data-place] text, .gp-label";
  while (walk.nextNode()) if (!walk.currentNode.parentElement.closest(skipped)) said.push(walk.currentNode.data);
  for (const node of document.querySelectorAll("*")) {
    for (const name of ["title", "aria-label", "placeholder", "data-empty", "aria-valuetext"]) {
      if (!node.closest("svg") && node.hasAttribute(name)) said.push(node.getAttribute(name));
    }
  }
  return [document.title, ...said];
}"""


def table(language: str) -> dict[str, str]:
    """The words of a language; the module holds one object, in JSON."""
    text = (STATIC / f"words-{language}.js").read_text(encoding="utf-8")
    read = json.loads(text.removeprefix("export default").strip().removesuffix(";"))
    assert text.count('": "') == len(read), "a key stands there twice"
    return dict(read)


def test_the_tables_have_the_same_keys_and_the_same_values_to_fill_in() -> None:
    english, japanese = map(table, LANGUAGES)
    assert list(english) == list(japanese)
    for key, text in english.items():
        assert text, key
        assert japanese[key], key
        assert set(PLACEHOLDER.findall(text)) == set(PLACEHOLDER.findall(japanese[key])), key


def test_a_count_of_one_has_words_of_its_own() -> None:
    english = table("en")
    plural = {key for key, text in english.items() if re.search(r"\{count\} (\w+ )?\w+(s|ies)\b", text)}
    assert {"caption.masked", "column.left", "board.picked"} <= plural
    assert plural - {key.removesuffix(".one") for key in english if key.endswith(".one")} == set()


def test_every_word_of_the_table_is_used_and_every_used_word_is_in_it() -> None:
    files = [path for path in STATIC.glob("*.js") if not path.name.startswith("words-")] + [STATIC / "index.html"]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    words = table("en")
    used = set(re.findall(r'data-t(?:-\w+)?="([^"]+)"', code)) | set(re.findall(r'\bt\("([^"]+)"', code))
    assert used <= set(words), used - set(words)
    for key in words:
        whole, family = key.removesuffix(".one"), re.sub(r"[.-][^.-]+$", "", key.removesuffix(".one"))
        assert f'"{whole}"' in code or f"`{family}" in code, f"{key} is not used"


class Bare(HTMLParser):
    """Collects texts and spoken attributes of a page outside ``noscript`` and ``kbd``."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("title", "aria-label", "placeholder")]

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not {"noscript", "kbd", "title"} & set(self.open):
            self.found.append(data)


def test_the_markup_holds_no_words() -> None:
    page = Bare()
    page.feed((STATIC / "index.html").read_text(encoding="utf-8"))
    assert {text.strip() for text in page.found} <= {"", "genpolicy", "◐", "?", "1"}


def marked_words(route: Any) -> None:
    """Answers the English table with a mark around each text."""
    body = "export default " + json.dumps({key: MARKED.format(text) for key, text in table("en").items()})
    route.fulfill(status=200, content_type="text/javascript", body=body)


def unmarked(texts: list[str]) -> str:
    """What stands outside all marks."""
    left = "\n".join(texts)
    while (less := re.sub(r"⟦[^⟦⟧]*⟧", "", left)) != left:
        left = less
    return left


def declared(offers: dict[str, Any]) -> set[str]:
    """What the server declares: games, sides, policies and their settings; and the other language, or its code."""
    said = {"genpolicy", "日本語", "JA"} | set(offers["notes"])
    for game in offers["games"]:
        said |= {game["title"], game["start"], *game["players"]} | {each[1:].upper() for each in game["file_suffixes"]}
    for policy in offers["policies"]:
        said |= {policy["label"], policy["about"].removesuffix(".")}
        for option in policy["options"]:
            said |= {option["label"], option["help"], *(option["choices"] or ()), str(option["default"])}
    return said


def test_no_visible_word_is_outside_the_tables(browser: Any, web_address: str) -> None:
    with tab(browser, web_address) as web:
        web.page.route("**/static/words-en.js", marked_words)
        web.load().new_game("chess", "1. e4 e5 2. Nf3")
        web.settle()
        web.page.click(".strength summary")
        known = declared(web.page.evaluate("fetch('/api/offers').then((answer) => answer.json())"))
        known |= {"e4", "e5", "Nf3", "King's Knight Opening"}

        def check() -> None:
            left = {line.strip(" \n.:·…?") for line in unmarked(web.page.evaluate(SHOWN)).split("\n")}
            words = {line for line in left if re.search(r"[^\W\d_]{2}", line)}
            moves = re.compile(r"[KQRBNa-h][\w+#=x-]{1,7}\??|O-O(-O)?")
            assert not (strange := {each for each in words - known if not moves.fullmatch(each)}), strange

        check()
        web.page.fill("#move", "e4e6")
        web.page.press("#move", "Enter")
        expect(web.page.locator("#move-error")).to_be_visible()
        web.page.locator("#move-error details p").evaluate("node => node.remove()")  # moves, and nothing else
        web.page.click("#evaluate")
        expect(web.page.locator("#graph-note")).to_contain_text("does not evaluate positions")
        check()
        web.page.keyboard.press("Escape")
        web.page.click("#help-open")
        check()
        web.page.keyboard.press("Escape")
        web.page.click("#new")
        check()
        web.page.keyboard.press("Escape")
        with web.page.expect_response("**/api/edit") as offered:
            web.page.click("#edit-open")
        offer = offered.value.json()
        known |= {piece["name"] for piece in offer["pieces"]} | {fact["label"] for fact in offer["facts"]}
        known |= {choice["name"] for fact in offer["facts"] for choice in fact["choices"]}
        expect(web.page.locator("#edit-board svg")).to_be_visible()
        check()


@pytest.mark.thorough
def test_the_language_is_the_browsers_until_one_is_chosen(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, {**DESK, **JAPANESE}) as web:
        web.open("shogi")
        expect(web.page.locator("html")).to_have_attribute("lang", "ja")
        expect(web.page.locator("#status")).to_have_text("先手の手番")
        expect(web.page.locator("#game-title")).to_have_text("将棋")
        web.click(shogi_place("7g"), shogi_place("7f"))
        web.wait_status("後手の手番")
        web.settle()
        expect(web.place(shogi_place("8h"))).to_have_attribute("aria-label", "8八 先手の角")
        expect(web.page.locator(".column .note")).to_contain_text("選択した手")
        web.page.click("#language")
        expect(web.page.locator("html")).to_have_attribute("lang", "en")
        web.wait_status("White to move")
        web.wait_num_moves(1)  # the game is the same
        web.page.reload()
        web.wait_status("White to move")
        web.page.click("#language")
        web.wait_status("後手の手番")


@pytest.mark.thorough
def test_an_opening_is_named_in_the_page_s_language(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, {**DESK, **JAPANESE}) as web:
        web.load(urlencode({"game": "shogi", "moves": "5g5f 8c8d 2h5h"}))
        expect(web.page.locator("#opening")).to_have_text("中飛車")
        expect(web.page.locator("#opening")).to_have_attribute("lang", "ja")
        web.page.click("#language")
        expect(web.page.locator("#opening")).to_have_text("Central Rook")
        expect(web.page.locator("#opening")).to_have_attribute("lang", "en")


@pytest.mark.thorough
def test_an_end_is_told_in_japanese(browser: Any, web_address: str) -> None:
    with tab(browser, web_address, {**DESK, **JAPANESE}) as web:
        web.open("chess", "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2")
        web.click(chess_place("d8"), chess_place("h4"))
        web.wait_status("黒の勝ち（チェックメイト）")
        assert "黒の勝ち" in web.live


@pytest.mark.thorough
@pytest.mark.parametrize("size", ["desk", "laptop", "phone"])
def test_the_japanese_page_is_accessible_and_fits(browser: Any, web_address: str, size: str) -> None:
    with tab(browser, web_address, {**SIZES[size], **JAPANESE}) as web:
        web.open("shogi")
        web.settle()
        assert web.fits()
        web.shoot(f"japanese-{size}")
        web.page.click("#new")
        web.shoot(f"japanese-new-{size}", full=False)
        accessible(web.page)


@pytest.mark.thorough
def test_strength_is_told_in_words_and_in_elo_where_it_is_rated(browser: Any, web_address: str) -> None:
    """The server's own test gives it a file of ratings; this one adds what it would send then."""

    def rate(route: Any) -> None:
        offers = route.fetch().json()
        for policy in offers["policies"]:
            if policy["label"] in ("random", "slow"):
                low = 1200.6 if policy["label"] == "slow" else None
                policy["rating"] = {"elo": 1234.4, "low": low, "high": 1270, "games": 80}
        route.fulfill(body=json.dumps(offers), content_type="application/json")

    with tab(browser, web_address) as web:
        web.page.route("**/api/offers", rate)
        web.open("chess")
        expect(web.page.locator("#far-player option", has_text="random")).to_have_text("random (Elo 1234)")
        for label, elo in (
            ("random", "Elo 1234 over 80 games"),
            ("slow", "Elo 1234 (95 % interval 1201 to 1270) over"),
        ):
            web.page.select_option("#add", label=f"{label} (Elo 1234)")
            column = web.page.locator(".column", has=web.page.locator("h3", has_text=re.compile(f"^{label}$")))
            column.locator(".strength > summary").click()
            expect(column.locator(".elo")).to_contain_text(elo)
            about = "Plays a uniformly random legal move." if label == "random" else "Imagines the future"
            expect(column.locator(".strength")).to_contain_text(about)
        expect(web.page.locator(".column").first.locator(".elo")).to_be_empty()
