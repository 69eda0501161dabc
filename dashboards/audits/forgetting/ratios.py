"""The answer: each target's rho with its interval, between those of models of D_Q and of D_C: tables 1 and 2."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dashboards import drawing
from dashboards.audits.forgetting import style
from dashboards.audits.forgetting.targets import replicates, span_of, things
from dashboards.estimates import finite, shortened
from dashboards.figure import Figure
from tasks.audits.forgetting.kolmogorov_smirnov import SCORES

NEEDED = {"target", "name", "score", "rho", "low", "high", "decision", "models", "images"}
METRIC = "rho"
ABOVE, BELOW = 0.13, -0.24  # of a row: where the one-sided rho stands, and the published of the run and of the paper
STRETCHED = 2.0  # times the largest rho, beyond which an interval is cut
COLUMN = 0.75  # inches beside the axes for the published rule
LETTER = 0.07  # inches of a reason's letter
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Ratio:
    """A target's row of the one-sided score, that of the published score, and the rho that the paper has of it."""

    row: Row
    other: Row
    paper: float | None

    @property
    def name(self) -> str:
        return self.row["name"] or f"target {self.row['target']}"

    @property
    def rho(self) -> float | None:
        return self.row["rho"] if finite(self.row["rho"]) else None

    @property
    def two_sided(self) -> float | None:
        return self.other["rho"] if finite(self.other.get("rho")) else None

    @property
    def ends(self) -> tuple[float, float] | None:
        low, high = self.row["low"], self.row["high"]
        return (low, high) if finite(low) and finite(high) else None

    @property
    def floor(self) -> float | None:
        """rho of models that are trained on D_Q in full."""
        floor, distance = self.row.get("floor"), self.row.get("ks_calibration")
        if floor is None or distance is None or not finite(floor) or not finite(distance) or distance <= 0:
            return None
        return float(floor / distance)

    @property
    def values(self) -> list[float]:
        return [each for each in (self.rho, self.two_sided, self.paper, self.floor) if each is not None]

    @property
    def rule(self) -> str:
        """In how many triples of models the paper's rule calls the target forgotten; empty where it is not known."""
        forgotten, triples = self.other.get("rule_forgotten"), self.other.get("rule_triples")
        return f"{forgotten} of {triples}" if triples and forgotten is not None else ""

    def said(self) -> str:
        """The row in words, for who cannot see it."""
        words = f"{self.name}: one-sided rho "
        words += "undefined" if self.rho is None else drawing.number(self.rho)
        words += drawing.interval(*self.ends) if self.ends else ""
        words += f", {self.row['decision'] or 'not decided'}"
        words += f" ({self.row['reason']})" if self.row.get("reason") else ""
        words += f", {self.row['right']} by what it was trained on" if self.row.get("right") else ""
        words += "" if self.two_sided is None else f"; two-sided rho {drawing.number(self.two_sided)}"
        words += f", ≥ 1 in {self.rule} triples" if self.rule else ""
        words += "" if self.paper is None else f"; the paper's {drawing.number(self.paper)}"
        return f"{words}."


def ratios(table: pa.Table, distances: pa.Table, summary: Sequence[Row], margin: float | None) -> Figure | None:
    """A row for each target: rho, its interval, and where models of D_Q and of D_C would lie."""
    if not set(table.column_names) >= NEEDED:
        return None
    rows = {score: [row for row in table.to_pylist() if row["score"] == score] for score in SCORES}
    two_sided = {row["target"]: row for row in rows["published"]}
    paper = of_paper(summary)
    found = [
        Ratio(row, two_sided.get(row["target"], {}), paper.get(row["name"]))
        for row in rows["one-sided"]
        if row["target"] is not None
    ]
    if not found:
        return None
    shown = found[: style.MOST]
    has_rule = any(each.rule for each in shown)
    handles = key(shown, margin)
    figure, axes, y = style.rows([each.name for each in shown], -(-len(handles) // 2), style.RIGHT + COLUMN * has_rule)
    limit = scaled(axes, shown)
    axes.axvline(1, **style.null())
    if margin is not None:
        axes.axvline(1 - margin, **style.bound())
    cut = [drawn(axes, each, height, limit) for each, height in zip(shown, y.tolist(), strict=True)]
    style.named_ticks(axes)
    axes.set_xlabel("rho")
    if has_rule:
        ruled(axes, shown, y.tolist())
    style.legend(figure, handles)
    title = "Have the models forgotten the query set?"
    caption = about(shown, distances, margin, has_rule, any(cut))
    caption += style.rest(len(shown), len(found), "targets")
    alt = " ".join(each.said() for each in shown)
    return Figure("ratios", title, caption, alt, drawing.svg(figure, "ratios"))


def of_paper(summary: Sequence[Row]) -> dict[str, float]:
    """The published rho of each target by its name."""
    found: dict[str, float] = {}
    for row in summary:
        if row["metric"] == METRIC and finite(row["published"]):
            setting = json.loads(row["setting"] or "{}")
            found |= {name: row["published"] for name in setting.values() if isinstance(name, str)}
    return found


def scaled(axes: Any, shown: Sequence[Ratio]) -> float:
    """Sets an axis from 0 on that holds all estimates; how far it goes, with no interval alone to stretch it."""
    values = [0.0, 1.0, *(value for each in shown for value in each.values)]
    furthest = max([*values, *(each.ends[1] for each in shown if each.ends)])
    low = min([0.0, *(each.ends[0] for each in shown if each.ends)])
    low, high = drawing.span([max(low, -max(values)), min(furthest, STRETCHED * max(values))], 0.04)
    axes.set_xlim(low, high)
    return high


def drawn(axes: Any, each: Ratio, y: float, limit: float) -> bool:
    """One row; whether its interval goes on beyond the axis."""
    colour, marker = style.DECISIONS.get(each.row["decision"] or "", style.DECISIONS["undecided"])
    look = {"color": drawing.light(colour)}
    beyond = False
    if each.floor is not None:
        axes.plot([each.floor] * 2, [y - 0.5, y + 0.5], **style.floor())
    if each.rho is None:
        fits = int(axes.get_position().width * drawing.WIDTH / LETTER)
        reason = shortened(f"undefined: {each.row['reason']}" if each.row.get("reason") else "undefined", fits)
        axes.annotate(
            reason, (0.02, y + ABOVE), xycoords=("axes fraction", "data"), va="center", fontsize=drawing.TEXT - 1,
            color=drawing.light("muted"), backgroundcolor=drawing.light("paper"),
        )  # fmt: skip
    if each.ends and each.rho is not None:
        low, high = each.ends
        beyond = high > limit
        axes.plot([low, min(high, limit)], [y + ABOVE] * 2, linewidth=2, solid_capstyle="butt", **look)
        if beyond:
            axes.plot([limit], [y + ABOVE], ">", markersize=6, clip_on=False, **look)
    joined = [(each.rho, ABOVE), (each.two_sided, BELOW), (each.paper, BELOW)]
    path = [(rho, y + offset) for rho, offset in joined if rho is not None]
    axes.plot(*zip(*path, strict=True), color=drawing.light("muted"), linewidth=0.8, zorder=1)
    if each.paper is not None:
        axes.plot([each.paper], [y + BELOW], "D", markersize=7, color=drawing.light("ink"), markerfacecolor="none")
    if each.two_sided is not None:
        axes.plot([each.two_sided], [y + BELOW], zorder=3, **style.two_sided(4.5))
    if each.rho is not None:
        axes.plot([each.rho], [y + ABOVE], marker, markersize=6.5, zorder=3, **look)
    return beyond


def ruled(axes: Any, shown: Sequence[Ratio], y: Sequence[float]) -> None:
    """A column beside the axes: in how many triples the paper's rule calls each target forgotten."""
    look: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center",
        "fontsize": drawing.TEXT - 1, "color": drawing.light("muted"), "annotation_clip": False,
    }  # fmt: skip
    for each, height in zip(shown, y, strict=True):
        axes.annotate(each.rule or "–", (1, height), (COLUMN * 72, 0), ha="right", **look)
    axes.annotate("two-sided\nrho ≥ 1 in", (1, -0.6), (COLUMN * 72 + 3, -16), ha="right", **look)


def key(shown: Sequence[Ratio], margin: float | None) -> list[Any]:
    """What the legend has to tell apart, by columns of two."""
    present = {each.row["decision"] for each in shown}
    handles = []
    for decision, (colour, marker) in style.DECISIONS.items():
        if decision in present:
            look = {"color": drawing.light(colour), "marker": marker, "markersize": 6.5, "linewidth": 2}
            handles.append(style.of_line(f"one-sided rho, {decision}", **look))
    if any(each.two_sided is not None for each in shown):
        handles.append(style.of_line("two-sided rho, same run", linewidth=0, **style.two_sided(4.5)))
    if any(each.paper is not None for each in shown):
        ink = drawing.light("ink")
        hollow = {"marker": "D", "markersize": 7, "markerfacecolor": "none", "linewidth": 0}
        handles.append(style.of_line("rho printed in the paper", color=ink, **hollow))
    handles.append(style.of_line("1: trained as on D_C", **style.null()))
    if margin is not None:
        handles.append(style.of_line(f"{1 - margin:g}: bound of the decision", **style.bound()))
    if any(each.floor is not None for each in shown):
        handles.append(style.of_line("trained on all of D_Q", **style.floor()))
    return handles


def about(shown: Sequence[Ratio], distances: pa.Table, margin: float | None, has_rule: bool, cut: bool) -> str:
    """How to read it: what the interval is over, how it is decided, and what was asked of how many."""
    others = replicates(distances)
    models = f"{span_of([each.row['models'] or 0 for each in shown])} of each target"
    if others:
        asked = (things(others[role], f"{role} model") for role in ("query", "calibration"))
        models = f"{', '.join(asked)}, {models}"
    images = span_of([each.row["images"] or 0 for each in shown])
    words = [
        "One-sided rho: how far a target's confidences on the query set D_Q lie below those of query models, which "
        "were trained on it, divided by how far those of calibration models do, which were trained on D_C."
    ]
    if any(each.two_sided is not None for each in shown):
        words.append(
            "Hollow: the published rho of the same run. Its KS distance has no sign, so that a target that is surer of "
            "D_Q than query models counts as far from them, too."
        )
    if any(each.ends for each in shown):
        words.append("Line: 95 % bootstrap interval over images and models, hidden where narrower than its mark.")
    without = sum(each.ends is None for each in shown)
    if without:
        words.append(f"{without} of {len(shown)} have no interval, and nothing is decided of them.")
    if margin is not None:
        words.append(
            f"Forgotten: the interval lies above {1 - margin:g}; not forgotten: below; undecided else, with the reason "
            "in the table."
        )
    floors = sorted({each.floor for each in shown if each.floor is not None})
    if floors:
        least, most = drawing.number(floors[0]), drawing.number(floors[-1])
        words.append(
            "Dotted: models trained on all of D_Q have a rho of "
            f"{least if least == most else f'{least} to {most}'}, not 0, since two such models differ, too."
        )
    if any(each.paper is not None for each in shown):
        words.append("Diamond: the paper's own number, two-sided and without an interval.")
    if has_rule:
        words.append(
            "On the right: single triples of models that the published rule, two-sided rho ≥ 1, calls forgotten."
        )
    known = Counter(each.row.get("right") for each in shown if each.row.get("right"))
    if known:
        words.append(
            f"By what they were trained on, {known['right']} of {known.total()} are decided rightly, "
            f"{known['wrong']} wrongly, {known['undecided']} not at all."
        )
    if cut:
        words.append("An arrow: the interval goes on.")
    return f"{' '.join(words)} n: {models}, {images} images."
