"""The deja vu score by epoch, layer and number of neighbours, beside the linear probe: figures 4, 8, 15 and 18."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.curves import (
    ACROSS,
    GAP,
    TARGET,
    Curve,
    axis_limits,
    decisive_percent,
    draw_curve,
    read_curve,
    rows_at_percent,
)
from dashboards.audits.deja_vu.probes import Gaps, gap_curve
from dashboards.columns import integers
from dashboards.figure import Figure

PANEL = 1.95  # inches


@dataclass(frozen=True)
class Panel:
    """The score over one of ACROSS, beside the gap of linear probes where there is one."""

    field: str
    score: Curve
    gap: Curve | None


def scores(table: pa.Table, probed: Gaps, trained: int | None = None) -> Figure | None:
    """The score over what was varied, with its interval. `trained`: the epoch from which on models are fine-tuned."""
    table = attacks.both_ways_rows(table)
    found = attacks.read_attacks(table)
    if not found:
        return None
    percent, last = decisive_percent(table), attacks.decisive_attack(found)
    rows = rows_at_percent(table, percent)
    panels = [panel for field in ACROSS if (panel := score_panel(field, rows, found, probed)) is not None]
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
    n = int(integers(attacks.attack_rows(rows, last), "pictures").max())
    caption = (
        f"The deja vu score at {percent} %: how much more often the model that was trained on a picture names its "
        f"object than one that was not. Dashed line: 0, nothing memorised. {gap}{tuning}Bands: 95 % intervals, n {n:,} "
        f"pictures. Each panel varies one thing and keeps the rest: {last.describe()}."
    )
    alt = " ".join(describe_panel(panel) for panel in panels)
    return Figure("scores", "When and where does memory show?", caption, alt, draw_svg(panels, tuned))


def score_panel(field: str, rows: pa.Table, found: list[attacks.Attack], probed: Gaps) -> Panel | None:
    """The panel over this field; None where it has a single value."""
    chosen = attacks.attacks_along(found, field)
    if len(chosen) < 2:
        return None
    score = read_curve(pa.concat_tables([attacks.attack_rows(rows, each) for each in chosen]), field, "score")
    if score is None:
        return None
    gaps = {
        each._asdict()[field]: probed[each.epoch, each.layer]
        for each in chosen
        if field != "k" and (each.epoch, each.layer) in probed
    }
    return Panel(field, score, gap_curve(gaps))


def draw_svg(panels: list[Panel], tuned: int | None) -> str:
    """The panels as SVG, below one another."""
    probed = any(panel.gap for panel in panels)
    figure = drawing.canvas(PANEL * len(panels) + 0.1 + (legend.ROW if probed else 0.0))
    for at, panel in enumerate(reversed(panels)):
        axes = layout.wide_axes(figure, 0.55 + PANEL * at, PANEL - 0.7)
        axes.axhline(0, **drawing.NULL)
        if panel.field == "epoch" and tuned is not None:
            axes.axvline(tuned, color=drawing.light("muted"), linewidth=0.9)
        if panel.gap is not None:
            draw_curve(axes, panel.gap, GAP)
        draw_curve(axes, panel.score, TARGET)
        places = panel.score.places
        axes.set_xlim(*drawing.padded_limits([float(places[0]), float(places[-1])], 0.04))
        axes.set_ylim(*axis_limits([each for each in (panel.score, panel.gap) if each is not None]))
        drawing.set_ticks(axes, 6, 4, whole=True)
        axes.set_xlabel(ACROSS[panel.field])
        axes.set_ylabel("share" if probed else "deja vu score")
    if probed:
        legend.add_above(figure, legend_entries())
    return drawing.svg(figure, "scores")


def legend_entries() -> list[Any]:
    """The legend's entries of the score and of the probes' gap."""
    return [
        legend.line(label, color=drawing.light(colour), marker=marker, linestyle=dash, linewidth=1.5, markersize=4.5)
        for label, (colour, marker, dash) in {"deja vu score": TARGET, "linear probe, train - test": GAP}.items()
    ]


def describe_panel(panel: Panel) -> str:
    """The score, and the probes' gap, at each place, in words."""
    words = [f"Deja vu score by {panel.field}: {list_estimates(panel.score)}."]
    return " ".join([*words, f"Linear probe, train less test: {list_estimates(panel.gap)}."] if panel.gap else words)


def list_estimates(shown: Curve) -> str:
    return ", ".join(f"{shown.describe(at)} at {place:g}" for at, place in enumerate(np.asarray(shown.places)))
