"""The feature among its family: whether one model answers to it as to none of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.unique_feature.effects import GOLDEN
from dashboards.audits.unique_feature.pairs import Array
from dashboards.columns import integers
from dashboards.figure import Figure
from tasks.audits.unique_feature import ranks

MOST = 20  # models, a row each
LEVEL = 0.05
KINDS = {"given": "accent", "canary": "canary", "twin": "twin"}  # each with its colour
NEEDED = ("canary", "label", "seed", "model", "member", "log_p")


@dataclass(frozen=True)
class Ranked:
    """One model and the family, the feature asked about first: (members,) both.

    `scores` are drawn: deviations towards the known label, or the one that the feature favours. By `standing` they are
    ranked: with the label unknown each member stands where it stands highest.
    """

    kind: str
    canary: int | None
    label: int | None  # of the canary, where it is known
    scores: Array
    standing: Array

    @property
    def rank(self) -> int:
        """How many of the family score at least as high as the feature asked about, itself included."""
        return round(self.p_value * len(self.standing))

    @property
    def p_value(self) -> float:
        return ranks.rank_p_value(self.standing)

    @property
    def name(self) -> str:
        return {"given": "given model", "canary": f"canary {self.canary}", "twin": f"twin of {self.canary}"}[self.kind]


def family(table: pa.Table) -> Figure | None:
    """Label-directed scores of the whole family, a row for each model, with the feature asked about marked."""
    models = list(ranked(table))
    if not models:
        return None
    shown = models[:MOST]
    step = 0.45 if len(shown) <= 3 else 0.27
    figure = drawing.canvas(step * len(shown) + 1.0)
    axes = drawing.place(figure, 1.12, 0.55, drawing.WIDTH - 2.2, step * len(shown))
    for at, each in enumerate(shown):
        y = len(shown) - 1 - at
        others = each.scores[1:]
        scatter = (np.arange(len(others)) * GOLDEN) % 1 - 0.5
        colour = drawing.light(KINDS[each.kind])
        # Short strokes look like dots, and those of a row are one element of the page.
        strokes = drawing.broken(others, y + 0.55 * scatter - 0.03, y + 0.55 * scatter + 0.03)
        axes.plot(*strokes, color=drawing.light("muted"), linewidth=2, solid_capstyle="butt", alpha=0.6)
        axes.plot([each.scores[0]] * 2, [y - 0.42, y + 0.42], color=colour, linewidth=1.2, zorder=3)
        axes.plot([each.scores[0]], [y], "D", markersize=6.5, color=colour, zorder=3)
        axes.annotate(
            f"{each.rank}, p {each.p_value:.2g}",
            (1.03, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=drawing.TEXT - 1,
        )
    axes.set_xlim(*drawing.span([float(value) for each in shown for value in each.scores]))
    axes.set_ylim(-0.5, len(shown) - 0.5)
    drawing.ticks(axes)
    axes.set_yticks(
        [len(shown) - 1 - at for at in range(len(shown))], [each.name for each in shown], color=drawing.light("ink")
    )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("standard deviations from the rest of the family")
    axes.annotate(
        f"rank of {len(shown[0].scores)}" if len({len(each.scores) for each in shown}) == 1 else "rank",
        (1.03, 1),
        (0, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=drawing.TEXT - 1,
        color=drawing.light("muted"),
    )
    key(figure)
    title = "Does the model answer to the feature as to no other of its kind?"
    return Figure("family", title, about(models), said(models), drawing.svg(figure, "family"))


def ranked(table: pa.Table) -> Iterator[Ranked]:
    """The models of the table that were asked about the feature and others: a given one first, then pair by pair."""
    if not set(NEEDED) <= set(table.column_names) or not table.num_rows:
        return
    columns = [table[name].to_pylist() for name in ("model", "canary", "seed", "label")]
    member = integers(table, "member")
    names = list(zip(*columns, strict=True))
    index = {name: at for at, name in enumerate(dict.fromkeys(names)) if name[0] in KINDS}
    which = np.array([index.get(name, -1) for name in names])
    log_p = table["log_p"].to_pylist()
    places = {pair: at for at, pair in enumerate(dict.fromkeys(name[1:] for name in names))}
    for name, at in sorted(index.items(), key=lambda each: (places[each[0][1:]], list(KINDS).index(each[0][0]))):
        rows = np.flatnonzero(which == at)
        rows = rows[np.argsort(member[rows], kind="stable")]
        values = np.array([log_p[row] for row in rows], np.float64)  # (members, classes)
        if len(rows) < 3 or member[rows[0]] != 0 or not np.isfinite(values).all():
            continue
        label = name[3]
        drawn = ranks.standardised(values)[:, ranks.favoured(values[None], label)]
        yield Ranked(name[0], name[1], label, drawn, ranks.label_directed(values[None], label))


def about(models: list[Ranked]) -> str:
    sizes = sorted({len(each.scores) - 1 for each in models})
    others = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    labels = {each.label is None for each in models}
    towards = (
        "the label of the canary"
        if labels == {False}
        else "the label that the feature favours"
        if labels == {True}
        else "its label, or the one that the feature favours where it is not known"
    )
    left_out = f" The first {MOST} of {len(models)} models are drawn." if len(models) > MOST else ""
    return (
        f"A row is one model, asked about the feature (diamond) and {others} others of its family (dots; their height "
        f"means nothing): mean log P over the probe images towards {towards}, less the family's mean, in its "
        "standard deviations. A model that never saw the feature has no reason to place it first. p is its rank over "
        "the family's size (each feature where it stands highest, if the label is not known): exact where the feature "
        "was drawn from the family at random, else a comparison with "
        f"features of the same ink. One model a row: no interval.{left_out}"
    )


def said(models: list[Ranked]) -> str:
    words = []
    for kind in KINDS:
        of_kind = [each for each in models if each.kind == kind]
        if len(of_kind) == 1:
            (each,) = of_kind
            words.append(
                f"The {each.name}: the feature lies {drawing.number(float(each.scores[0]))} standard "
                f"deviations from the rest, rank {each.rank} of {len(each.scores)}, p {drawing.number(each.p_value)}."
            )
        elif of_kind:
            called = sum(each.p_value <= LEVEL for each in of_kind)
            median = float(np.median([each.scores[0] for each in of_kind]))
            words.append(
                f"{called} of {len(of_kind)} {kind} models have p at most {LEVEL}; the feature lies "
                f"{drawing.number(median)} standard deviations from the rest in their median."
            )
    return " ".join(words)


def key(figure: Any) -> None:
    from matplotlib.lines import Line2D

    ink = drawing.light("ink")
    handles = [
        Line2D([], [], color=ink, marker="D", markersize=6, linewidth=0, label="the feature asked about"),
        Line2D(
            [], [], color=drawing.light("muted"), marker="o", markersize=3, linewidth=0, label="others of its family"
        ),
    ]
    figure.legend(handles=handles, loc="upper left", ncols=2, bbox_to_anchor=(0, 1), borderaxespad=0.1)
