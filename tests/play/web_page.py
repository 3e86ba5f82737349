"""The page in a browser, in the words of somebody who uses it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

try:
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)  # tests wait for states: this only ends those that never come
except ModuleNotFoundError:  # the fixture "browser" skips then
    expect = None

DESK: Mapping[str, Any] = {"viewport": {"width": 1400, "height": 900}}
PHONE: Mapping[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}
SHOTS = os.environ.get("GENPOLICY_SCREENSHOTS")
"""Folder where the tests leave a picture of each page, for people to look at."""
LAG_MS = int(os.environ.get("GENPOLICY_PAGE_LAG_MS", "0"))
"""Holds every question to the server back for so long, and its answer as well, to find tests that pass only where both
are fast."""
LAG = """
const [atOnce, realTimeout] = [window.fetch, window.setTimeout]; // some tests stop the page's time
const lag = () => new Promise((wait) => realTimeout(wait, %d));
window.fetch = async (...request) => {
  if (!String(request[0]).includes("/api/")) return atOnce(...request);
  await lag();
  const answer = await atOnce(...request);
  await lag();
  return answer;
};
"""
SLOW_ANSWERS = """
const quick = window.fetch;
window.fetch = async (...request) => {
  const answer = await quick(...request);
  if (String(request[0]).includes("%s")) await new Promise((wait) => setTimeout(wait, %d));
  return answer;
};
"""

HELD_STREAM = """
const fetchAtOnce = window.fetch;
const released = new Promise((go) => { window.release = go; });
window.fetch = async (...request) => {
  const answer = await fetchAtOnce(...request);
  if (!String(request[0]).includes("/api/decide")) return answer;
  let lines = 0;
  const hold = async (chunk, output) => {
    for (let at = 0; at < chunk.length;) {
      if (lines >= %d) await released;
      const end = chunk.indexOf(10, at) + 1 || chunk.length;
      output.enqueue(chunk.slice(at, end));
      lines += chunk[end - 1] === 10;
      at = end;
    }
  };
  const body = answer.body.pipeThrough(new TransformStream({ transform: hold }));
  return new Response(body, { status: answer.status, headers: answer.headers });
};
"""
"""Passes on so many lines of each decision; the others wait for ``release()``."""


def chess_place(name: str) -> int:
    """Index of the token of a square such as ``e4``."""
    return (8 - int(name[1])) * 8 + "abcdefgh".index(name[0])


def shogi_place(name: str) -> int:
    """Index of the token of a square such as ``7g``."""
    return "abcdefghi".index(name[1]) * 9 + 9 - int(name[0])


class WebPage:
    """One tab."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.errors: list[str] = []
        """What went to the console as an error or was not caught."""
        self.foreign: list[str] = []
        """Requests to other hosts."""
        page.on("console", self._read)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._note)

    def _read(self, message: Any) -> None:
        # A refusal that the page asked for and shows in words stands in the console as well; that is Chromium's.
        refused = message.text.startswith("Failed to load resource") and "/api/" in message.location.get("url", "")
        if message.type == "error" and not refused:
            self.errors.append(message.text)

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", f"blob:{self.address}")):
            self.foreign.append(request.url)

    def open(self, game: str, start: str = "", *, first: str = "human", second: str = "human") -> WebPage:
        """Load the page with a game; sides are "human" or labels of policies.

        Two people's game is opened by its link: the dialogue would draw the page's own first game before it.
        """
        if not first == second == "human":
            return self.load().new_game(game, start, first=first, second=second)
        self.load(urlencode({"game": game, "start": start} if start else {"game": game}))
        expect(self.page.locator(".column")).not_to_have_count(0)
        return self.wait_looks()

    def load(self, position: str = "") -> WebPage:
        """Load the page, with a position that a link names or with its own first game."""
        self.page.goto(f"{self.address}#{position}" if position else self.address)
        self.page.wait_for_selector("#board [data-place]")
        return self

    def new_game(self, game: str, start: str = "", *, first: str = "human", second: str = "human") -> WebPage:
        self.page.click("#new")
        self.page.select_option("#new-kind", game)
        self.page.fill("#new-start", start)
        for select, player in (("#new-first", first), ("#new-second", second)):
            if player != "human":
                self.page.select_option(select, label=player)
            else:
                self.page.select_option(select, "human")
        self.mark_board()
        self.page.click("#new-form button[type=submit]")
        self.wait_new_board()
        return self.wait_looks() if first == second == "human" else self

    def wait_looks(self) -> WebPage:
        """Wait until everything beside the board has looked, as it does at once where a person is to move."""
        expect(self.page.locator(".column:not(:has(.note strong))")).to_have_count(0)
        self.settle()  # the decision is announced last
        return self

    def mark_board(self) -> None:
        """Mark the board on show, so that the next one can be waited for."""
        self.page.eval_on_selector("#board svg", "svg => { svg.dataset.old = 'yes'; }")

    def wait_new_board(self) -> None:
        """Wait until another board is shown than the one that was marked; what is picked up on that one is dropped."""
        expect(self.page.locator("#new-game")).to_be_hidden()
        expect(self.page.locator("#board svg:not([data-old])")).to_be_visible()

    def settle(self) -> None:
        """Wait until no column is busy any more."""
        expect(self.page.locator(".column.busy")).to_have_count(0)

    def place(self, number: int) -> Any:
        return self.page.locator(f'#board [data-place="{number}"]')

    def click(self, *places: int) -> None:
        for number in places:
            self.place(number).click()

    def middle(self, number: int) -> tuple[float, float]:
        box = self.place(number).locator("rect").first.bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def drag(self, source: int, target: int) -> None:
        mouse = self.page.mouse
        mouse.move(*self.middle(source))
        mouse.down()
        mouse.move(*self.middle(target), steps=4)
        mouse.up()

    def wait_moves(self, *labels: str) -> None:
        """Wait until the list of moves reads so."""
        expect(self.page.locator("#moves button")).to_have_text(list(labels))

    def wait_num_moves(self, count: int) -> list[str]:
        """Wait until so many moves are listed; what they are."""
        expect(self.page.locator("#moves button")).to_have_count(count)
        return list(self.page.locator("#moves button").all_text_contents())

    def wait_status(self, text: str) -> None:
        expect(self.page.locator("#status")).to_contain_text(text, ignore_case=True)

    def wait_until(self, came: Callable[[], bool]) -> None:
        """Wait for what the browser tells the test, such as a request that a route holds back."""
        end = time.monotonic() + 60
        while not came():
            assert time.monotonic() < end, "it never came"
            self.page.wait_for_timeout(20)  # the browser's messages are read meanwhile

    @property
    def live(self) -> str:
        """What is read out last."""
        return str(self.page.text_content("#live"))

    @property
    def words(self) -> str:
        """Everything that can be read on the page, and what each column is at."""
        try:
            columns = self.page.locator(".column").evaluate_all("all => all.map(one => [one.className, one.innerText])")
            return f"columns: {columns}\npage: {self.page.inner_text('main', timeout=1000)}"
        except Exception as error:  # a page that is closed or hangs
            return f"the page cannot be read: {error}"

    def fits(self) -> bool:
        """No horizontal scroll."""
        # A phone widens its layout to what sticks out, so the width is that of the screen.
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= screen.width"))

    def shoot(self, name: str, *, full: bool = True) -> None:
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.page.wait_for_timeout(500)
            self.page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=full)


def accessible(page: Any) -> None:
    """No rule of axe-core is violated; a test that ends with this skips where axe-core is missing."""
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python (the extra [test])")
    page.evaluate(Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(({violations}) => violations.map(({id, nodes}) => [id, nodes[0].html]))")
    assert not found, found


@contextmanager
def tab(browser: Any, address: str, look: Mapping[str, Any] = DESK) -> Iterator[WebPage]:
    """A page in a context of its own, which must have logged no error and asked nobody else."""
    context = browser.new_context(**look)
    context.set_default_timeout(60_000)
    if LAG_MS:
        context.add_init_script(LAG % LAG_MS)
    page = WebPage(context.new_page(), address)
    try:
        yield page
        assert page.foreign == []
        assert page.errors == []
    except BaseException:
        print(f"errors: {page.errors}\n{page.words}")  # pytest shows it beside the failure
        raise
    finally:
        context.close()


ONLY_A_DECISION = {
    "move": "f1b5",
    "label": "Bb5",
    "value": None,
    "win_probability": None,
    "policy": [{"move": "f1b5", "label": "Bb5", "probability": 0.9}],
    "line": [{"move": "f1b5", "label": "Bb5", "legal": True, "source": 61, "target": 25}],
    "legality": [True],
    "calls": 50,
    "ms": 3.0,
}
"""What a server answers without a dream; White's chances are added where they matter."""


def column_of(web: Any, label: str) -> Any:
    """The column of the policy of a name."""
    return web.page.locator(".column", has=web.page.locator("h3", has_text=re.compile(f"^{re.escape(label)}$")))


def put_beside(web: Any, label: str) -> Any:
    """Have a further policy analyse; its column."""
    web.page.select_option("#add", label=label)
    expect(column_of(web, label)).to_have_count(1)
    web.settle()
    return column_of(web, label)
