"""*Save GIF*: the dream of a column as an animation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.play.web_page import expect, tab
from tests.play.web_policies import STEPS, TTT


def test_the_dream_is_saved_as_a_gif(browser: Any, web_address: str) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra [show]")
    pytest.importorskip("resvg_py", reason="needs the extra [show]")
    with tab(browser, web_address) as web:
        web.open(TTT)
        column = web.page.locator(".column")
        with web.page.expect_download() as download:
            column.get_by_role("button", name="Save GIF").click()
        assert download.value.suggested_filename.startswith("dreamer-")
        assert image.open(download.value.path()).n_frames >= STEPS[TTT]
        expect(column).to_contain_text("Saved as dreamer-")
        web.page.select_option("#add", label="random")
        expect(web.page.locator(".column").nth(1).get_by_role("button", name="Save GIF")).to_be_hidden()
