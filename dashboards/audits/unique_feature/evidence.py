"""The evidence in a run that stops once it is decided: the product of the bets on its pairs' ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.unique_feature.pairs import DOTTED
from dashboards.chart import Axis, Chart, Figure, Panel, level, line
from dashboards.columns import integers, numbers, with_columns
from tasks.audits.unique_feature.pairs.bets import EVIDENCE

WIDE = 1e3  # range of evidence above which the axis shows powers of ten only


@with_columns(EVIDENCE.names)
def evidence(table: pa.Table) -> Figure | None:
    """Draw the product of the bets after each pair, starting from 1, and the limit at which it decides."""
    pairs = np.concatenate([[0], integers(table, "pair")])
    path = np.concatenate([[1.0], numbers(table, "evidence")])
    ranks = integers(table, "rank")
    members = int(integers(table, "members").min())
    alpha = float(numbers(table, "level")[0])
    decided = np.flatnonzero(integers(table, "decided"))
    ends = "not decided"
    if len(decided):
        ends = f"decided after pair {decided[0] + 1}"
    low, high = float(path.min()), max(float(path.max()), 1 / alpha)

    def lift(axes: Any) -> None:
        drawing.set_log_y_axis(axes, high / low > WIDE)
        axes.set_ylim(low / 1.5, high * 1.5)

    return Chart(
        "evidence",
        "When does the evidence decide?",
        f"Value of a stake of 1 after each pair of trainings, bet on the rank of the canary’s feature among {members} "
        f"members of its family. Grey: 1, the mean if nothing is memorised. Dotted: {1 / alpha:.4g} = 1 / {alpha:g}, "
        f"where the run ends; if nothing is memorised, at most {100 * alpha:.3g} % of runs reach this limit.",
        f"Evidence over {len(ranks)} pairs, {ends}: "
        f"{', '.join(drawing.format_number(float(value)) for value in path[1:])}; ranks "
        f"{', '.join(map(str, ranks))} of {members}.",
        2.6,
        [
            Panel(
                (0.85, 0.55, drawing.WIDTH - 1.0, 1.9),
                [level(1.0), level(1 / alpha, DOTTED), line(pairs, path, "canary", marker="o", markersize=4.5)],
                Axis("pairs of trainings", integer_ticks=True),
                Axis("evidence", max_ticks=None),
                finish=[lift],
            )
        ],
    ).figure()
