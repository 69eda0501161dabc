"""The deja vu score by epoch, layer and number of neighbours, beside the linear probe: figures 4, 8, 15 and 18."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacked
from dashboards.audits.deja_vu.courses import ACROSS, GAP, TARGET, Course, at_percent, course, draw, percent_of, reach
from dashboards.audits.deja_vu.probes import Gaps, as_course
from dashboards.columns import integers
from dashboards.figure import Figure

PANEL = 1.95  # inches


@dataclass(frozen=True)
class Panel:
    """The score over one of ACROSS, beside the gap of linear probes where there is one."""

    field: str
    score: Course
    gap: Course | None


def scores(table: pa.Table, probed: Gaps, trained: int | None = None) -> Figure | None:
    """The score over what was varied, with its interval. `trained`: the epoch from which on models are fine-tuned."""
    table = attacked.both_ways(table)
    found = attacked.attacks(table)
    if not found:
        return None
    percent, last = percent_of(table), attacked.decisive(found)
    rows = at_percent(table, percent)
    panels = [panel for field in ACROSS if (panel := over(field, rows, found, probed)) is not None]
    if not panels:
        return None
    tuned = trained if trained is not None and last.epoch > trained else None
    gap = (
        "Dotted: the accuracy of a linear probe on pictures that its model was trained on less that on others, which "
        "is the usual sign of overfitting. "
        if any(panel.gap for panel in panels)
        else ""
    )
    tuning = f"Upright: from epoch {tuned} on the models are trained further on labels. " if tuned is not None else ""
    n = int(integers(attacked.of(rows, last), "pictures").max())
    caption = (
        f"The deja vu score at {percent} %: how much more often the model that was trained on a picture names its "
        f"object than one that was not. Dashed line: 0, nothing memorised. {gap}{tuning}Bands: 95 % intervals, n {n:,} "
        f"pictures. Each panel varies one thing and keeps the rest: {last.in_words()}."
    )
    alt = " ".join(in_words(panel) for panel in panels)
    return Figure("scores", "When and where does memory show?", caption, alt, drawn(panels, tuned))


def over(field: str, rows: pa.Table, found: list[attacked.Attack], probed: Gaps) -> Panel | None:
    """The panel over this field; None where it has a single value."""
    chosen = attacked.along(found, field)
    if len(chosen) < 2:
        return None
    score = course(pa.concat_tables([attacked.of(rows, each) for each in chosen]), field, "score")
    if score is None:
        return None
    gaps = {
        each._asdict()[field]: probed[each.epoch, each.layer]
        for each in chosen
        if field != "k" and (each.epoch, each.layer) in probed
    }
    return Panel(field, score, as_course(gaps))


def drawn(panels: list[Panel], tuned: int | None) -> str:
    """The panels as SVG, below one another."""
    probed = any(panel.gap for panel in panels)
    figure = drawing.canvas(PANEL * len(panels) + 0.1 + (legend.ROW if probed else 0.0))
    for at, panel in enumerate(reversed(panels)):
        axes = layout.wide(figure, 0.55 + PANEL * at, PANEL - 0.7)
        axes.axhline(0, **drawing.NULL)
        if panel.field == "epoch" and tuned is not None:
            axes.axvline(tuned, color=drawing.light("muted"), linewidth=0.9)
        if panel.gap is not None:
            draw(axes, panel.gap, GAP)
        draw(axes, panel.score, TARGET)
        places = panel.score.places
        axes.set_xlim(*drawing.span([float(places[0]), float(places[-1])], 0.04))
        axes.set_ylim(*reach([each for each in (panel.score, panel.gap) if each is not None]))
        drawing.ticks(axes, 6, 4, whole=True)
        axes.set_xlabel(ACROSS[panel.field])
        axes.set_ylabel("share" if probed else "deja vu score")
    if probed:
        legend.above(figure, entries())
    return drawing.svg(figure, "scores")


def entries() -> list[Any]:
    """The legend's entries of the score and of the probes' gap."""
    return [
        legend.line(label, color=drawing.light(colour), marker=marker, linestyle=dash, linewidth=1.5, markersize=4.5)
        for label, (colour, marker, dash) in {"deja vu score": TARGET, "linear probe, train - test": GAP}.items()
    ]


def in_words(panel: Panel) -> str:
    """The score, and the probes' gap, at each place, in words."""
    words = [f"Deja vu score by {panel.field}: {listed(panel.score)}."]
    return " ".join([*words, f"Linear probe, train less test: {listed(panel.gap)}."] if panel.gap else words)


def listed(shown: Course) -> str:
    return ", ".join(f"{shown.in_words(at)} at {place:g}" for at, place in enumerate(np.asarray(shown.places)))
