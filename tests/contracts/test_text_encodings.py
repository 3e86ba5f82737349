"""Text is UTF-8 on every system; the default of Windows is a code page, which lacks most of what is written."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODES = {mode + plus for mode in "rwax" for plus in ("", "+", "t")}


def without_encoding(source: str) -> list[int]:
    """Lines of the calls that read or write text and leave its encoding to the system."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and _leaves_it(node)]


def _leaves_it(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    words = {keyword.arg: keyword.value for keyword in call.keywords}
    modes = [*call.args, *(words[key] for key in ("mode",) if key in words)]
    textual = {
        "read_text": not call.args,
        "write_text": len(call.args) == 1,
        "open": any(isinstance(mode, ast.Constant) and mode.value in MODES for mode in modes)
        or (isinstance(call.func, ast.Name) and len(modes) == 1),
        **dict.fromkeys(("run", "Popen", "check_output"), "text" in words),
    }
    return textual.get(name, False) and not words.keys() & {"encoding", "fileobj"}


def test_calls_without_an_encoding_are_found() -> None:
    assert without_encoding(
        'p.read_text()\np.open("a", buffering=1)\nopen(p)\nrun([], text=True)\np.write_text(x)'
    ) == [*range(1, 6)]
    assert (
        without_encoding('p.read_text("utf-8")\np.open("rb")\nDataset.open(p)\nrun([])\np.open("a", encoding=c)') == []
    )


def test_every_text_has_an_encoding() -> None:
    paths = [path for top in ("genpolicy", "games", "plugins") for path in (ROOT / top).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    told = [path for path, text in texts.items() if re.search(r"open\(|_text\(|text=", text)]
    found = [f"{path.relative_to(ROOT)}:{line}" for path in told for line in without_encoding(texts[path])]
    assert found == []
