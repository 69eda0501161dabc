"""The published score: rho and an interval for each target, as in the paper's tables 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting import targets as roles
from dashboards.audits.forgetting.targets import format_count, replicates
from dashboards.chart import Axis, Chart, Figure, row_panel, upright
from dashboards.columns import with_columns
from dashboards.summary import Row, find_rows, finite, format_range, shorten
from tasks.audits.forgetting.rho import SCORES

NEEDED = {"target", "name", "score", "rho", "low", "high", "models", "images"}
METRIC = "rho"
ABOVE = 0.13  # position of the one-sided rho within a row
BELOW = -0.24  # position of the published rho within a row, from the run and from the paper
STRETCHED = 2.0  # intervals are cut beyond this multiple of the largest rho
COLUMN = 0.75  # inches to the right of the axes, for the published rule
LETTER = 0.07  # inches per letter of a reason


@dataclass(frozen=True)
class Ratio:
    """A target's rows for the one-sided and the published score, and the paper's rho."""

    row: Row
    two_sided_row: Row
    paper: float | None

    @property
    def name(self) -> str:
        return self.row["name"] or f"target {self.row['target']}"

    @property
    def rho(self) -> float | None:
        return self.row["rho"] if finite(self.row["rho"]) else None

    @property
    def two_sided(self) -> float | None:
        return self.two_sided_row["rho"] if finite(self.two_sided_row.get("rho")) else None

    @property
    def ends(self) -> tuple[float, float] | None:
        low, high = self.row["low"], self.row["high"]
        if finite(low) and finite(high):
            return (low, high)
        return None

    @property
    def floor(self) -> float | None:
        """rho of models trained on all of D_Q."""
        floor = self.row.get("floor")
        distance = self.row.get("ks_calibration")
        if floor is None or distance is None or not finite(floor) or not finite(distance) or distance <= 0:
            return None
        return float(floor / distance)

    @property
    def values(self) -> list[float]:
        """The estimates that exist."""
        result = []
        for value in (self.rho, self.two_sided, self.paper, self.floor):
            if value is not None:
                result.append(value)
        return result

    @property
    def rule(self) -> str:
        """The number of triples in which the paper's rule calls the target forgotten. Empty if unknown."""
        forgotten = self.two_sided_row.get("rule_forgotten")
        triples = self.two_sided_row.get("rule_triples")
        if triples and forgotten is not None:
            return f"{forgotten} of {triples}"
        return ""

    def describe(self) -> str:
        words = f"{self.name}: one-sided rho "
        if self.rho is None:
            words += "undefined"
        else:
            words += drawing.format_number(self.rho)
        if self.ends:
            words += drawing.format_interval(*self.ends)
        if self.two_sided is not None:
            words += f"; two-sided rho {drawing.format_number(self.two_sided)}"
        if self.rule:
            words += f", ≥ 1 in {self.rule} triples"
        if self.paper is not None:
            words += f"; the paper's {drawing.format_number(self.paper)}"
        return f"{words}."


@with_columns(NEEDED)
def ratios(table: pa.Table, distances: pa.Table, summary: Sequence[Row]) -> Figure | None:
    """Draw one row per target: rho with an interval, and the positions of models trained on D_Q and on D_C."""
    of_score = {}
    for score in SCORES:
        of_score[score] = [row for row in table.to_pylist() if row["score"] == score]
    two_sided = {row["target"]: row for row in of_score["published"]}
    paper = _published_ratios(summary)
    targets = []
    for row in of_score["one-sided"]:
        if row["target"] is not None:
            targets.append(Ratio(row, two_sided.get(row["target"], {}), paper.get(row["name"])))
    if not targets:
        return None
    visible = targets[: layout.MOST]
    caption = f"{figure_caption(visible, distances)}{layout.left_out_note(len(visible), len(targets), 'targets')}"
    alt = " ".join(ratio.describe() for ratio in visible)
    handles = legend_entries(visible)
    has_rule = any(ratio.rule for ratio in visible)
    above = roles.legend_height(-(-len(handles) // 2))
    rows = layout.rows([ratio.name for ratio in visible], above, layout.RIGHT + COLUMN * has_rule)
    limits = axis_limits(visible)

    def draw_targets(axes: Any) -> None:
        for ratio, height in zip(visible, rows.y.tolist(), strict=True):
            _draw_target(axes, ratio, height, limits[1])
        if has_rule:
            _draw_rule_column(axes, visible, rows.y.tolist())

    panel = row_panel(rows, [upright(1), draw_targets], Axis("rho", limits))
    return Chart(
        "ratios", "What is the published score of each target?", caption, alt, rows.height, [panel], handles
    ).figure()


def _published_ratios(summary: Sequence[Row]) -> dict[str, float]:
    """Return the published rho of each target by name."""
    published_rows = (
        (setting, row["published"]) for setting, row in find_rows(summary, METRIC) if finite(row["published"])
    )
    ratios = {}
    for setting, published in published_rows:
        for name in setting.values():
            if isinstance(name, str):
                ratios[name] = published
    return ratios


def axis_limits(rows: Sequence[Ratio]) -> tuple[float, float]:
    """Return limits for an axis that starts at 0 and shows all estimates. Long intervals are cut."""
    values = [0.0, 1.0, *(value for ratio in rows for value in ratio.values)]
    furthest = max([*values, *(ratio.ends[1] for ratio in rows if ratio.ends)])
    low = min([0.0, *(ratio.ends[0] for ratio in rows if ratio.ends)])
    return drawing.padded_limits([max(low, -max(values)), min(furthest, STRETCHED * max(values))], 0.04)


def _draw_target(axes: Any, ratio: Ratio, y: float, limit: float) -> None:
    """Draw one row: the interval up to `limit`, and a marker for each rho, joined by a thin line."""
    colour, marker, _ = roles.ROLES["target"]
    look = {"color": drawing.light(colour)}
    if ratio.floor is not None:
        axes.plot([ratio.floor] * 2, [y - 0.5, y + 0.5], **roles.FLOOR)
    if ratio.rho is None:
        _annotate_missing_rho(axes, y)
    if ratio.ends and ratio.rho is not None:
        low, high = ratio.ends
        axes.plot([low, min(high, limit)], [y + ABOVE] * 2, linewidth=2, solid_capstyle="butt", **look)
        if high > limit:
            axes.plot([limit], [y + ABOVE], ">", markersize=6, clip_on=False, **look)
    joined = [(ratio.rho, ABOVE), (ratio.two_sided, BELOW), (ratio.paper, BELOW)]
    path = [(rho, y + offset) for rho, offset in joined if rho is not None]
    axes.plot(*zip(*path, strict=True), color=drawing.light("muted"), linewidth=0.8, zorder=1)
    if ratio.paper is not None:
        axes.plot([ratio.paper], [y + BELOW], "D", markersize=7, color=drawing.light("ink"), markerfacecolor="none")
    if ratio.two_sided is not None:
        axes.plot([ratio.two_sided], [y + BELOW], zorder=3, **roles.two_sided_mark())
    if ratio.rho is not None:
        axes.plot([ratio.rho], [y + ABOVE], marker, markersize=6.5, zorder=3, **look)


def _annotate_missing_rho(axes: Any, y: float) -> None:
    """Write why rho is undefined, shortened to fit."""
    fits = int(axes.get_position().width * drawing.WIDTH / LETTER)
    reason = shorten("undefined: no calibration model differs from the query models", fits)
    axes.annotate(
        reason, (0.02, y + ABOVE), xycoords=("axes fraction", "data"), va="center", fontsize=drawing.TEXT - 1,
        color=drawing.light("muted"), backgroundcolor=drawing.light("paper"),
    )  # fmt: skip


def _draw_rule_column(axes: Any, rows: Sequence[Ratio], y: Sequence[float]) -> None:
    """Draw a column to the right of the axes: in how many triples the paper's rule calls each target forgotten."""
    look: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center",
        "fontsize": drawing.TEXT - 1, "color": drawing.light("muted"), "annotation_clip": False,
    }  # fmt: skip
    for ratio, height in zip(rows, y, strict=True):
        axes.annotate(ratio.rule or "–", (1, height), (COLUMN * 72, 0), ha="right", **look)
    axes.annotate("two-sided\nrho ≥ 1 in", (1, -0.6), (COLUMN * 72 + 3, -16), ha="right", **look)


def legend_entries(rows: Sequence[Ratio]) -> list[Any]:
    """Return legend entries for the marks that occur."""
    colour, marker, _ = roles.ROLES["target"]
    handles = [legend.line("one-sided rho", color=drawing.light(colour), marker=marker, markersize=6.5, linewidth=2)]
    if any(ratio.two_sided is not None for ratio in rows):
        handles.append(legend.line("two-sided rho, same run", linewidth=0, **roles.two_sided_mark()))
    if any(ratio.paper is not None for ratio in rows):
        ink = drawing.light("ink")
        hollow = {"marker": "D", "markersize": 7, "markerfacecolor": "none", "linewidth": 0}
        handles.append(legend.line("rho printed in the paper", color=ink, **hollow))
    handles.append(legend.line("1: trained as on D_C", **drawing.NULL))
    if any(ratio.floor is not None for ratio in rows):
        handles.append(legend.line("trained on all of D_Q", **roles.FLOOR))
    return handles


def figure_caption(rows: Sequence[Ratio], distances: pa.Table) -> str:
    """Return the caption: estimates, references, and the numbers of models and images."""
    model_counts = replicates(distances)
    models = f"{format_range([ratio.row['models'] or 0 for ratio in rows])} of each target"
    if model_counts:
        counts = (format_count(model_counts[role], f"{role} model") for role in ("query", "calibration"))
        models = f"{', '.join(counts)}, {models}"
    images = format_range([ratio.row["images"] or 0 for ratio in rows])
    sentences = (*_explain_estimates(rows), *_explain_references(rows))
    return f"{' '.join(sentences)} n: {models}, {images} images."


def _explain_estimates(rows: Sequence[Ratio]) -> Iterator[str]:
    yield (
        "One-sided rho: the distance by which a target's confidences on D_Q lie below those of query models (trained "
        "on D_Q), divided by the same distance of calibration models (trained on D_C)."
    )
    if any(ratio.two_sided is not None for ratio in rows):
        yield (
            "Hollow: the published rho of the same run. Its KS distance has no sign, so a target that is more certain "
            "about D_Q than query models also counts as distant."
        )
    yield "It decides nothing: training on other data of the same kind also lowers it."
    if any(ratio.ends for ratio in rows):
        yield "Line: 95 % interval over models, hidden if it is narrower than its mark."


def _explain_references(rows: Sequence[Ratio]) -> Iterator[str]:
    floors = sorted({ratio.floor for ratio in rows if ratio.floor is not None})
    if floors:
        lowest = drawing.format_number(floors[0])
        highest = drawing.format_number(floors[-1])
        yield (
            "Dotted: models trained on all of D_Q have a rho of "
            f"{lowest if lowest == highest else f'{lowest} to {highest}'}, not 0, since two such models also differ."
        )
    if any(ratio.paper is not None for ratio in rows):
        yield "Diamond: the paper's number, two-sided and without an interval."
    if any(ratio.rule for ratio in rows):
        yield "Right: single triples of models that the published rule, two-sided rho ≥ 1, calls forgotten."
    limit = axis_limits(rows)[1]
    if any(ratio.rho is not None and ratio.ends and ratio.ends[1] > limit for ratio in rows):
        yield "Arrow: the interval continues."
