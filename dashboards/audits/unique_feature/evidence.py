"""The path of evidence of a run that ends once it is decided: what the bets on its pairs' ranks grew to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.unique_feature.pairs import DOTTED
from dashboards.chart import Axis, Chart, Figure, Panel, level, line
from dashboards.columns import integers, numbers, with_columns
from tasks.audits.unique_feature.pairs.bets import EVIDENCE

WIDE = 1e3  # evidence from which on the axis has powers of ten alone


@with_columns(EVIDENCE.names)
def evidence(table: pa.Table) -> Figure | None:
    """The product of the bets after each pair, from 1 before the first, and where it decides."""
    pairs = np.concatenate([[0], integers(table, "pair")])
    path = np.concatenate([[1.0], numbers(table, "evidence")])
    ranks, members = integers(table, "rank"), int(integers(table, "members").min())
    alpha = float(numbers(table, "level")[0])
    decided = np.flatnonzero(integers(table, "decided"))
    ends = f"decided after pair {decided[0] + 1}" if len(decided) else "not decided"
    low, high = float(path.min()), max(float(path.max()), 1 / alpha)

    def lift(axes: Any) -> None:
        drawing.set_log_y_axis(axes, high / low > WIDE)
        axes.set_ylim(low / 1.5, high * 1.5)

    return Chart(
        "evidence",
        "Is it decided?",
        f"What a stake of 1 has grown to after each pair of trainings, bet on the rank of the canary’s feature among "
        f"{members} members of its family. Grey: 1, its mean where nothing is memorised. Dotted: {1 / alpha:.4g} = "
        f"1 / {alpha:g}, which it reaches in at most {100 * alpha:.3g} % of such runs, however often somebody looks; "
        "the run ends there.",
        f"Evidence over {len(ranks)} pairs, {ends}: "
        f"{', '.join(drawing.format_number(float(value)) for value in path[1:])}; ranks "
        f"{', '.join(map(str, ranks))} of {members}.",
        2.6,
        [
            Panel(
                (0.85, 0.55, drawing.WIDTH - 1.0, 1.9),
                [level(1.0), level(1 / alpha, DOTTED), line(pairs, path, "canary", marker="o", markersize=4.5)],
                Axis("pairs of trainings", whole=True),
                Axis("evidence", most=None),
                finish=[lift],
            )
        ],
    ).figure()
