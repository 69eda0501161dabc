"""How the two scores and the two kinds of observations look in every figure, and the legends that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards import drawing

SCORES = {"matched": "M, matched counts", "published": "M as published"}
# Colour, mark and dash of each.
OF_SCORE: Mapping[str, tuple[str, str, Any]] = {"matched": drawing.SERIES[0], "published": drawing.SERIES[1]}
KINDS = {"memorised": "highly memorised", "regular": "regular"}
OF_KIND = {"memorised": "canary", "regular": "twin"}
DASHES: dict[str, Any] = {"memorised": "-", "regular": (0, (4, 2))}
LEFT, RIGHT = 0.75, 0.2  # inches beside the axes
ROW = 0.27  # inches of a legend's row


def null() -> dict[str, Any]:
    """The line at what is seen where nothing is memorised."""
    return {"color": drawing.light("muted"), "linewidth": 1.2, "linestyle": (0, (4, 3))}


def of_score(score: str, label: str = "") -> Any:
    from matplotlib.lines import Line2D

    colour, marker, dash = OF_SCORE[score]
    look = {"color": drawing.light(colour), "marker": marker, "linestyle": dash, "linewidth": 1.4, "markersize": 5}
    return Line2D([], [], label=label or SCORES[score], **look)


def of_line(label: str, **look: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def of_patch(colour: str, label: str) -> Any:
    """An entry for an area with an edge, named by the edge's colour."""
    from matplotlib.patches import Patch

    return Patch(facecolor=drawing.light(f"{colour}-band"), edgecolor=drawing.light(colour), label=label)


def legend(figure: Any, handles: Sequence[Any], beside: int = 2) -> None:
    figure.legend(handles=list(handles), loc="upper left", ncols=beside, bbox_to_anchor=(0, 1), borderaxespad=0.1)


def share(part: int, whole: int) -> str:
    """So many of so many, in words."""
    percent = 100 * part / whole if whole else 0.0
    return f"{part:,} of {whole:,} ({percent:.0f} %)" if percent >= 10 else f"{part:,} of {whole:,} ({percent:.2g} %)"
