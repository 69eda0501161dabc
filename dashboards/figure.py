"""A figure with its title, caption and alternative text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One figure of a page; `name` is also the stem of its file.

    `svg` is a whole `<svg>` element in the colours of `dashboards.drawing`, which a page may turn into its own. `alt`
    says in words what it shows, with the numbers that matter; `caption` says how to read it: n, units, null.
    """

    name: str
    title: str
    caption: str
    alt: str
    svg: str
