"""A figure, with the words that belong to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One drawing of a page; `name` is also that of its file.

    `svg` is a whole `<svg>` element in the colours of `dashboards.drawing`, which a page may turn into its own. `alt`
    says what it shows to who cannot see it, with the numbers that matter; `caption` how to read it: n, units, null.
    """

    name: str
    title: str
    caption: str
    alt: str
    svg: str
