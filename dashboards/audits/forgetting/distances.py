"""What rho is made of: how far every model's confidences on D_Q are from those of every query model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.forgetting import looks
from dashboards.audits.forgetting.targets import called, grouped, replicates, span_of, things
from dashboards.columns import integers
from dashboards.figure import Figure


def distances(table: pa.Table, names: Mapping[int, str]) -> Figure | None:
    """A strip for each role: between query models, which is the null, to calibration models, and to each target."""
    found = grouped(table, "ks")
    if not found:
        return None
    shown = dict(list(found.items())[: looks.MOST])
    titles = {who: "between query models" if who[0] == "query" else called(who, names) for who in shown}
    farthest = float(found["query", -1].max()) if ("query", -1) in found else None
    figure, axes, y = looks.rows(list(titles.values()), 1)
    if farthest is not None:
        axes.axvline(farthest, **looks.null())
    for (who, values), height in zip(shown.items(), y.tolist(), strict=True):
        colour, marker, _ = looks.ROLES[who[0]]
        look = {"color": drawing.light(colour), "linestyle": "none"}
        # Several values at one place are told apart by where they stand in their row, in the table's order.
        apart = height + np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [height]
        axes.plot(values, apart, marker, markersize=4.2, alpha=0.7, markeredgewidth=0, **look)
        axes.plot([values.mean()] * 2, [height - 0.36, height + 0.36], color=drawing.light("ink"), linewidth=1.6)
    axes.set_xlim(*drawing.span([0.0, *(float(values.max()) for values in shown.values())], 0.03))
    looks.named_ticks(axes)
    axes.set_xlabel("KS distance to query models, 0 to 1")
    handles = [looks.of_line("mean", color=drawing.light("ink"), linewidth=0, marker="|", markersize=11,
                             markeredgewidth=1.6)]  # fmt: skip
    if farthest is not None:
        handles.append(looks.of_line("farthest query models", **looks.null()))
    looks.legend(figure, handles)
    models = replicates(table)
    counts = ", ".join(things(models[role], f"{role} model") for role in ("query", "calibration"))
    images = span_of(integers(table, "images").tolist()) if "images" in table.column_names else "not said"
    null = power = ""
    if farthest is not None:
        null = "The first row is the null: how far apart models are that were all trained on D_Q. "
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
        "Each mark is a pair: a query model and the model of the row. KS: the largest difference between the shares "
        "of images that two models are at most so confident about. "
        f"{null}{power}No intervals: all pairs are shown, and pairs that share a model are "
        f"not independent. n: {counts}, {images} images."
        f"{looks.rest(len(shown), len(found), 'rows')}"
    )
    alt = "KS distances to query models: " + " ".join(
        f"{titles[who]}, mean {drawing.number(float(values.mean()))}, {drawing.number(float(values.min()))} to "
        f"{drawing.number(float(values.max()))}, {things(len(values), 'pair')};"
        for who, values in shown.items()
    )
    title = "How far are models from those that were trained on the query set?"
    return Figure("distances", title, caption, f"{alt[:-1]}.", drawing.svg(figure, "distances"))
