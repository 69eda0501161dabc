"""Figures inside a page: in the page's light or dark colours, with alternative text."""

from __future__ import annotations

from markupsafe import Markup, escape

from dashboards.chart import Figure
from dashboards.drawing import PALETTE


def inline(figure: Figure) -> Markup:
    """The figure's `<svg>` element, for pages that declare `colours()`."""
    drawn = figure.svg
    for name, (light, _) in PALETTE.items():
        drawn = drawn.replace(light, f"var(--{name})")
    named = f'<svg role="img" aria-label="{escape(figure.alt)}" '
    return Markup(named + drawn.removeprefix("<svg "))


def colours(dark: bool) -> Markup:
    """The palette as CSS declarations."""
    return Markup("".join(f"--{name}:{colour[dark]};" for name, colour in PALETTE.items()))
