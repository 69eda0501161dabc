"""Whether some classes are memorised more than others: the spread of the scores within each."""

from __future__ import annotations

import numpy as np

from dashboards import layout
from dashboards.audits.density import strips
from dashboards.audits.density.observations import Observations
from dashboards.figure import Figure


def class_scores(seen: Observations) -> Figure | None:
    """Median and middle 90 % of both scores for each label, the largest median first."""
    label = seen.column("label")
    names = np.unique(label[~np.isnan(label)])
    spreads = [
        strips.strip(f"label {int(name)}", {score: values[label == name] for score, values in seen.scores.items()})
        for name in names
    ]
    there = sorted((strip for strip in spreads if strip is not None), key=lambda strip: -strip.median)
    if len(there) < 2:
        return None
    shown, rest = there, ""
    if len(there) > layout.MOST:
        half = layout.MOST // 2
        shown = [*there[:half], *there[-half:]]
        rest = f" Of {len(there)} labels the {half} with the largest and the {half} with the smallest medians."
    counts = sorted({strip.n for strip in shown})
    n = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    caption = (
        "Mark: the median over a label's observations; line: its middle 90 %, from the 5 % to the 95 % quantile. "
        f"Dashed: 0. {n} observations of each label, the largest median of the matched-count score first.{rest} How "
        "much observations of a class vary bears on the score: compare runs label by label rather than labels."
    )
    alt = " ".join(strip.describe() for strip in shown)
    return Figure(
        "labels", "Are some classes memorised more than others?", caption, alt, strips.draw_strips(shown, "labels")
    )
