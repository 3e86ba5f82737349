"""Times the page of the web board in a headless Chromium: from the second click of a move to the policy's answer.

python benchmarks/web_page.py --policy runs/demo/s-asa/policy

Each round is a fresh tab; the first one follows the start of the server. The time ends when the answer stands in the
list of moves, its dream having been drawn step by step before.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import expect, sync_playwright
from ratios import describe, times

RUN = {
    "args": ["--policy", "chess"],
    "rounds": "--rounds",
    "quick": ["--rounds", "2"],
    "packages": ["playwright"],
    "programs": ["chromium"],
}

WATCH = """() => {
  window.seen = {};
  const note = (name) => { window.seen[name] ??= performance.now(); };
  document.addEventListener("pointerup", () => { window.seen = { click: performance.now() }; }, true);
  new MutationObserver(() => { if (document.querySelectorAll("#moves li").length > 1) note("answer"); })
    .observe(document.getElementById("moves"), { childList: true });
  new MutationObserver(() => { // the boards of the look before the click go first
    if (!document.querySelector(".future svg")) note("cleared");
    else if (window.seen.cleared) note("dream");
  }).observe(document.getElementById("columns"), { childList: true, subtree: true });
}"""


@contextmanager
def served(arguments: Sequence[str]) -> Iterator[str]:
    """Address of a server in a process of its own."""
    command = [sys.executable, "-m", "genpolicy", "web", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = next(found for line in process.stdout if (found := re.search(r"http://\S+/", line)))
            yield found.group()
        finally:
            process.send_signal(signal.SIGINT)


def answer_ms(browser: Any, address: str, first: int) -> tuple[float, float]:
    """Milliseconds from the click to the first imagined board on show and to the answer.

    The board is that of the first step, or of the decision where a search imagines without steps.

    Args:
        browser: A browser.
        address: Of the page.
        first: Which of the places that can move is picked up, counted round; it goes to the first of its targets.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#board .can-move")
    expect(page.locator(".column .note strong")).to_be_visible(timeout=60_000)  # it looks as soon as it is opened
    expect(page.locator(".column.busy")).to_have_count(0, timeout=60_000)
    page.evaluate(WATCH)
    places = page.locator("#board .can-move")
    places.nth(first % places.count()).click()
    target = page.locator("#board .mark-target").first.bounding_box()
    page.mouse.click(target["x"] + target["width"] / 2, target["y"] + target["height"] / 2)
    expect(page.locator("#moves li")).to_have_count(2, timeout=60_000)
    seen = page.evaluate("window.seen")
    context.close()
    return seen.get("dream", seen["answer"]) - seen["click"], seen["answer"] - seen["click"]


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", required=True, help="it plays the second side")
    parser.add_argument("--browser", default="chromium", help="name or path of an installed Chromium")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    with served(["--policy", arguments.policy]) as address, sync_playwright() as playwright:
        path = shutil.which(arguments.browser)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        found = [answer_ms(browser, address, first) for first in range(arguments.rounds)]
        name = f"chromium {browser.version}"
        browser.close()
    describe(f"genpolicy web --policy {arguments.policy}, {name}")
    for what, column in (("first imagined board shown", 0), ("answer played", 1)):
        seconds = [each[column] / 1e3 for each in found]
        print(f"{what}: {1e3 * seconds[0]:.0f} ms the first time")
        times(what, seconds)


if __name__ == "__main__":
    main()
