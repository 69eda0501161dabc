"""The two scores and the two kinds of observations, and how each looks in every figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards import drawing, legend

SCORES = {"matched": "M, matched counts", "published": "M as published"}
# Colour, mark and dash of each.
SCORE_LOOKS: Mapping[str, legend.Series] = {"matched": drawing.SERIES[0], "published": drawing.SERIES[1]}
KINDS = {"memorised": "highly memorised", "regular": "regular"}
KIND_COLOURS = {"memorised": "canary", "regular": "twin"}
DASHES: dict[str, Any] = {"memorised": "-", "regular": (0, (4, 2))}


def score_legend_entry(score: str, **look: Any) -> Any:
    """The legend's entry of a score."""
    colour, marker, dash = SCORE_LOOKS[score]
    own = {"color": drawing.light(colour), "marker": marker, "linestyle": dash, "linewidth": 1.4, "markersize": 5}
    return legend.line(SCORES[score], **own | look)


def area_legend_entry(colour: str, label: str) -> Any:
    """The legend's entry of an area with an edge, named by the edge's colour."""
    return legend.area(label, facecolor=drawing.light(f"{colour}-band"), edgecolor=drawing.light(colour))


def format_share(part: int, whole: int) -> str:
    """A part of a whole as counts and percentage."""
    percent = 100 * part / whole if whole else 0.0
    return f"{part:,} of {whole:,} ({percent:.0f} %)" if percent >= 10 else f"{part:,} of {whole:,} ({percent:.2g} %)"
