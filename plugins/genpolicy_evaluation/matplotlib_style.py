"""What all figures share: matplotlib where it is installed, files of several kinds, colours that can be told apart."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy.errors import ConfigError
from genpolicy.files import write_atomic

if TYPE_CHECKING:
    from genpolicy_evaluation.accuracy import Share

# Okabe and Ito's colours, which people with any colour vision can tell apart, without the yellow: unreadable on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "osD^vPX"


def load_pyplot() -> Any:
    """matplotlib.pyplot, drawing to files.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ConfigError("plots need matplotlib: pip install 'genpolicy[plot]', or ask for none") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def check_plot_files(paths: Sequence[Path]) -> None:
    """See, before hours of measuring, that the files can be drawn.

    Raises:
        ConfigError: matplotlib is not installed or does not write such a file here, or the folder is not there.
    """
    if not paths:
        return
    figure = load_pyplot().figure()
    load_pyplot().close(figure)
    figure.text(0, 0, "a")
    kinds = figure.canvas.get_supported_filetypes()
    for path in paths:
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: no folder {path.parent}; make it first, or name another file")
        if path.suffix.lower().removeprefix(".") not in kinds:
            raise ConfigError(f"{path}: not a picture; its name must end in one of .{', .'.join(sorted(kinds))}")
        try:
            _drawn(figure, path)
        except (OSError, RuntimeError) as error:  # some kinds need a program, such as LaTeX
            raise ConfigError(f"{path}: cannot be drawn ({error}); name another kind of file") from error


def save_figure(figure: Any, paths: Sequence[Path]) -> None:
    """Write a figure to files, each of the kind that its name says, and close it.

    Raises:
        OSError: one cannot be written; a file that was there is untouched.
    """
    try:
        for path in paths:
            write_atomic(path, _drawn(figure, path))
    finally:
        load_pyplot().close(figure)


def _drawn(figure: Any, path: Path) -> bytes:
    """The same bytes for the same figure: without the time, and with names in SVG that do not change."""
    drawn, kind = io.BytesIO(), path.suffix[1:].lower()
    dates = {"svg": "Date", "pdf": "CreationDate"}
    options = {"metadata": {dates[kind]: None}} if kind in dates else {}
    with load_pyplot().rc_context({"svg.hashsalt": "genpolicy"}):
        figure.savefig(drawn, format=kind, dpi=150, **options)
    return drawn.getvalue()


def draw_shares(axis: Any, x: Sequence[float], shares: Sequence[Share], **style: Any) -> None:
    """Draw shares in percent with their intervals."""
    values = [100 * share.value for share in shares]
    below = [max(0.0, 100 * (share.value - share.interval[0])) for share in shares]
    above = [max(0.0, 100 * (share.interval[1] - share.value)) for share in shares]
    axis.errorbar(x, values, yerr=[below, above], capsize=2, **style)


def set_log_scale(axis: Any, which: str) -> None:
    """Make a panel's ``"x"`` or ``"y"`` axis logarithmic, with plain numbers at 1, 2 and 5 times powers of ten."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    getattr(axis, f"set_{which}scale")("log")
    ticks = getattr(axis, f"{which}axis")
    ticks.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ticks.set_major_formatter(FormatStrFormatter("%g"))
    ticks.set_minor_formatter(NullFormatter())
