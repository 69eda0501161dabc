"""Matplotlib figures in a named palette, rendered as PNG or as SVG that a page can embed and recolour.

Matplotlib is imported inside functions so that importing a dashboard stays fast.
"""

from __future__ import annotations

import importlib
import io
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Maps each name to its colour on light and on dark paper. Each light colour is unique, so a page can replace it with
# `var(--name)`. Blue, vermilion, green, purple and ochre remain distinguishable with colour blindness and in grey;
# marker shapes differ too.
PALETTE: Mapping[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#14181d"),
    "ink": ("#1c2127", "#e6e9ec"),
    "muted": ("#59636e", "#9aa5b1"),
    "grid": ("#e1e5ea", "#2c333b"),
    "canary": ("#bc4300", "#ff9a57"),
    "twin": ("#1f66b0", "#74b3f5"),
    "accent": ("#0b7a5c", "#45c79c"),
    "violet": ("#7a3fb0", "#c39bf2"),
    "ochre": ("#8a6500", "#d9b13f"),
    "rose": ("#b0306f", "#f58bbd"),
    "band": ("#eceff3", "#232a32"),
    "canary-band": ("#fbe3d4", "#47260f"),
    "twin-band": ("#d9e8f7", "#14314f"),
    "canary-thread": ("#e2b193", "#8a5330"),
    "twin-thread": ("#9fc1e3", "#315d88"),
}
# Series in one figure differ in colour, marker and dash. Any one of the three is enough to distinguish them.
SERIES: Sequence[tuple[str, str, Any]] = (
    ("accent", "o", "-"),
    ("violet", "^", (0, (4, 2))),
    ("ochre", "s", (0, (1, 1.5))),
    ("twin", "D", (0, (6, 2, 1, 2))),
    ("rose", "v", (0, (3, 1))),
    ("canary", "P", (0, (8, 3))),
    ("ink", "X", (0, (2, 1, 2, 4))),
    ("muted", "p", (0, (5, 1, 1, 1, 1, 1))),
)
# Line style for the null value, which is expected without memorisation.
NULL: Mapping[str, Any] = {"color": PALETTE["muted"][0], "linewidth": 1.2, "linestyle": (0, (4, 3))}
WIDTH = 5.2  # inches; at this width TEXT appears at about its nominal size on a phone
TEXT = 10.0  # points
FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def light(name: str) -> str:
    """Return the named colour in its version for light paper, in which figures are drawn."""
    return PALETTE[name][0]


def canvas(height: float) -> Figure:
    """Create an empty figure as wide as the page and `height` inches tall. Add axes with `add_axes`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height))


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add axes at a position in inches from the lower left corner of the figure, with a grid in the background."""
    figure_width, figure_height = figure.get_size_inches()
    axes = figure.add_axes((left / figure_width, bottom / figure_height, width / figure_width, height / figure_height))
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def load_matplotlib(folder: Callable[[], Path]) -> None:
    """Import matplotlib and keep its font cache in `folder()`, unless the user already has a cache at home.

    This avoids writing a cache into the home directory of users who have never used matplotlib.
    """
    homes = {"config": "XDG_CONFIG_HOME", "cache": "XDG_CACHE_HOME"}
    config, cache = (
        Path(os.environ.get(variable) or Path.home() / f".{name}") / "matplotlib" for name, variable in homes.items()
    )
    has_own = os.environ.get("MPLCONFIGDIR") or (config.is_dir() and list(cache.glob("fontlist*")))
    if "matplotlib" in sys.modules or has_own:
        return
    os.environ["MPLCONFIGDIR"] = str(folder())
    try:
        importlib.import_module("matplotlib.font_manager")
    finally:
        os.environ.pop("MPLCONFIGDIR", None)


@contextmanager
def style() -> Iterator[None]:
    """Context manager that applies our figure style, independent of the user's matplotlib settings."""
    import matplotlib

    defaults: dict[Any, Any] = {key: value for key, value in matplotlib.rcParamsDefault.items() if key not in KEPT}
    with warnings.catch_warnings():
        # matplotlib warns about empty plots and about glyphs missing from its font. Readers' fonts have these glyphs.
        warnings.simplefilter("ignore")
        with matplotlib.rc_context(defaults | SETTINGS | {"svg.hashsalt": "engram "}):
            yield


KEPT = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "timezone"})
SETTINGS: dict[Any, Any] = {
    # Ships with matplotlib; it is wide, so text that fits in it also fits in other fonts.
    "font.family": ["DejaVu Sans"],
    "font.size": TEXT,
    "text.color": light("ink"),
    "text.parse_math": False,
    "axes.titlesize": TEXT,
    "axes.titlelocation": "left",
    "axes.labelsize": TEXT,
    "axes.labelcolor": light("ink"),
    "axes.edgecolor": light("muted"),
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.unicode_minus": True,
    "grid.color": light("grid"),
    "grid.linewidth": 0.8,
    "xtick.color": light("muted"),
    "ytick.color": light("muted"),
    "xtick.labelsize": TEXT - 1,
    "ytick.labelsize": TEXT - 1,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": TEXT - 1,
    "legend.handlelength": 1.8,
    "svg.fonttype": "none",
    "path.simplify": True,
}


def svg(figure: Figure, name: str) -> str:
    """Render the figure as one `<svg>` element with real text and no background, reproducible byte for byte.

    The element has a viewBox but no size, so it fills the width of its container. Its ids start with `name`.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _shrink_svg(buffer.getvalue(), name)


TAG = re.compile(r"<[^>]+>")
DECIMALS = re.compile(r"(\d\.\d\d)\d+")
SPACES = re.compile(r">\s+<")
FONT = re.compile(r"(font(?:-family)?: [^;\"]*?)'DejaVu Sans'")
REFERENCE = re.compile(r"(?:url\(#|xlink:href=\"#)([\w-]+)")
IDENTITY = re.compile(r' id="([^"]+)"')
MARKS = re.compile(r"(?:<use [^>]*?(?<=\")/>)+")
MARK_STYLE = re.compile(r' style="([^"]*)"')


def _shrink_svg(text: str, name: str) -> str:
    """Remove the parts of matplotlib's SVG that a page does not need. This about halves its size."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    used = set(REFERENCE.findall(body))
    body = IDENTITY.sub(lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", body)
    body = re.sub(r"(url\(#|xlink:href=\"#)", rf"\g<1>{name}-", body).replace("xlink:href", "href")
    body = TAG.sub(lambda tag: " ".join(DECIMALS.sub(r"\1", tag[0]).split()), body)
    body = FONT.sub(rf"\1{FAMILY}", body)
    body = SPACES.sub("><", body).replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    body = MARKS.sub(_hoist_style, body)
    box = re.search(r'viewBox="[^"]*"', body)
    assert box is not None
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box[0]} stroke-linejoin="round" stroke-linecap="butt">'
    return head + body[body.index(">") + 1 :].strip()


def _hoist_style(marks: re.Match[str]) -> str:
    """Move the style of a run of markers to an enclosing group if all markers share it."""
    styles = set(MARK_STYLE.findall(marks[0]))
    if len(styles) != 1 or marks[0].count("<use") < 3:
        return marks[0]
    return f'<g style="{styles.pop()}">{MARK_STYLE.sub("", marks[0])}</g>'


def format_number(value: float | None) -> str:
    """Format a number with three significant digits. Returns `none` for None."""
    if value is None:
        return "none"
    return f"{value:.3g}"


def set_ticks(
    axes: Axes, max_x_ticks: int | None = 5, max_y_ticks: int | None = 5, integer_x_ticks: bool = False
) -> None:
    """Limit the number of round ticks on each axis. None leaves an axis unchanged."""
    from matplotlib.ticker import MaxNLocator

    if max_x_ticks is not None:
        axes.xaxis.set_major_locator(MaxNLocator(max_x_ticks, steps=[1, 2, 2.5, 5, 10], integer=integer_x_ticks))
    if max_y_ticks is not None:
        axes.yaxis.set_major_locator(MaxNLocator(max_y_ticks, steps=[1, 2, 2.5, 5, 10]))


def hide_y_axis(axes: Axes) -> None:
    """Hide the line, tick marks and grid of the y axis, but keep its tick labels."""
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def remove_y_axis(axes: Axes) -> None:
    """Remove the y axis line and ticks when heights have no meaning."""
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def format_interval(low: float | None, high: float | None) -> str:
    """Format an interval to follow its estimate. Returns an empty string if either end is None or NaN."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    return f" [{format_number(low)}, {format_number(high)}]"


def set_log_y_axis(axes: Axes, wide: bool = False) -> None:
    """Make the y axis logarithmic with plain numbers as tick labels. With `wide`, label only powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=9) if wide else LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_power(value) if wide else f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def set_log_x_axis(axes: Axes, values: Sequence[float], max_ticks: int = 7) -> None:
    """Make the x axis logarithmic and include these positive values. Powers of ten are labelled if they fit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_xscale("log")
    low, high = padded_limits([math.log10(value) for value in values])
    axes.set_xlim(10**low, 10**high)
    if high - low > 2:
        wide = LogLocator(numticks=max_ticks)
    else:
        wide = LogLocator(subs=(1, 2, 5))
    axes.xaxis.set_major_locator(wide if high - low > 0.6 else MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_power(value)))
    axes.xaxis.set_minor_locator(NullLocator())


def format_power(value: float) -> str:
    """Format a number as a tick label. Very large and very small powers of ten are written with an exponent."""
    exponent = 0
    if value > 0:
        exponent = round(math.log10(value))
    if abs(exponent) <= 3 or not math.isclose(value, 10.0**exponent, rel_tol=1e-6):
        return f"{value:g}"
    return "10" + f"{exponent}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def padded_limits(values: Sequence[float], margin: float = 0.06) -> tuple[float, float]:
    """Return axis limits that contain these values plus a margin relative to their range."""
    low, high = min(values), max(values)
    room = (high - low) * margin or abs(high) * 0.1 or 1.0
    return low - room, high + room


def segment_path(
    places: ArrayLike, lows: ArrayLike, highs: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return vertical segments as one path with gaps, so that any number of them becomes a single SVG element."""
    x = np.asarray(places, np.float64)
    low = np.asarray(lows, np.float64)
    high = np.asarray(highs, np.float64)
    gap = np.full(len(x), np.nan)
    return np.stack([x, x, gap], axis=1).ravel(), np.stack([low, high, gap], axis=1).ravel()
