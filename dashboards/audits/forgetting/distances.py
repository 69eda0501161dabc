"""What rho is made of: how far every model's confidences on D_Q are from those of every query model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.forgetting import style
from dashboards.audits.forgetting.targets import called, grouped, replicates, span_of, things
from dashboards.columns import integers, texts
from dashboards.figure import Figure


def distances(table: pa.Table, names: Mapping[int, str]) -> Figure | None:
    """A strip for each role: between query models, which is the null, to calibration models, and to each target."""
    found, two_sided = grouped(table, "below"), grouped(table, "ks")
    if not found or not two_sided:
        return None
    shown = dict(list(found.items())[: style.MOST])
    titles = {who: "between query models" if who[0] == "query" else called(who, names) for who in shown}
    farthest = float(found["query", -1].max()) if ("query", -1) in found else None
    figure, axes, y = style.rows(list(titles.values()), 2)
    if farthest is not None:
        axes.axvline(farthest, **style.null())
    for (who, values), height in zip(shown.items(), y.tolist(), strict=True):
        colour, marker, _ = style.ROLES[who[0]]
        look = {"color": drawing.light(colour), "linestyle": "none"}
        # Several values at one place are told apart by where they stand in their row, in the table's order.
        apart = height + np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [height]
        axes.plot(values, apart, marker, markersize=4.2, alpha=0.7, markeredgewidth=0, **look)
        axes.plot([values.mean()] * 2, [height - 0.36, height + 0.36], color=drawing.light("ink"), linewidth=1.6)
        if who in two_sided:  # between query models it is the same in either order, so its mean counts each pair once
            axes.plot([two_sided[who].mean()], [height - 0.36], linestyle="none", zorder=4, **style.two_sided(4.5))
    everything = (float(values.max()) for each in (shown, two_sided) for who, values in each.items() if who in shown)
    axes.set_xlim(*drawing.span([0.0, *everything], 0.03))
    style.named_ticks(axes)
    axes.set_xlabel("one-sided KS to query models, 0 to 1")
    handles = [style.of_line("mean", color=drawing.light("ink"), linewidth=0, marker="|", markersize=11,
                             markeredgewidth=1.6),
               style.of_line("mean of the two-sided", linewidth=0, **style.two_sided(4.5))]  # fmt: skip
    if farthest is not None:
        handles.append(style.of_line("farthest query models", **style.null()))
    style.legend(figure, handles)
    models, pairs = replicates(table), paired(table)
    counts = ", ".join(things(models[role], f"{role} model") for role in ("query", "calibration"))
    images = span_of(integers(table, "images").tolist()) if "images" in table.column_names else "not said"
    null = power = ""
    if farthest is not None:
        null = "The first row is the null: models that were all trained on D_Q, each pair in either order. "
    if farthest is not None and ("calibration", -1) in found:
        nearest = float(found["calibration", -1].min())
        power = (
            f"The nearest calibration model is {drawing.number(nearest)} away, the farthest two query models "
            f"{drawing.number(farthest)}: "
        )
        power += (
            "the audit can tell them apart. "
            if nearest > farthest
            else "the audit has no power, since models of D_C say of D_Q what its own do. "
        )
    caption = (
        "Each mark is a pair: a query model and the model of the row, and how far the latter's confidences on D_Q lie "
        "below the former's: by how much the share of images that it is at most so confident about is larger, at "
        "most. Hollow: the mean of the published KS, which counts differences to either side. "
        f"{null}{power}No intervals: all pairs are shown, and pairs that share a model are "
        f"not independent. n: {counts}, {images} images."
        f"{style.rest(len(shown), len(found), 'rows')}"
    )
    alt = "One-sided KS distances to query models: " + " ".join(
        f"{titles[who]}, mean {drawing.number(float(values.mean()))}, {drawing.number(float(values.min()))} to "
        f"{drawing.number(float(values.max()))}, two-sided mean "
        f"{drawing.number(float(two_sided[who].mean()))}, "
        f"{things(pairs if who[0] == 'query' else len(values), 'pair')};"
        for who, values in shown.items()
    )
    title = "How far are models from those that were trained on the query set?"
    return Figure("distances", title, caption, f"{alt[:-1]}.", drawing.svg(figure, "distances"))


def paired(table: pa.Table) -> int:
    """How many pairs of query models there are; each may be in the table in either order."""
    between = texts(table, "model") == "query"
    ends = (integers(table, name)[between].tolist() for name in ("query", "replicate"))
    return len({frozenset(pair) for pair in zip(*ends, strict=True)})
