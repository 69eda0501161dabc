"""The effect of each canary on its model, and how well each score separates canary models from control models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dashboards import drawing
from dashboards.audits.unique_feature.pairs import Array, Pairs, central_range, describe_pairs, dots, legend_entries
from dashboards.chart import Axis, Chart, Facet, Figure, Layer, Panel, facet_panels, line, marks, span, upright
from dashboards.summary import Row, find_row

EFFECT = "M_w effect"  # the deciding metric, over the probe images
SCORES = {"m": "M, the published black-box score", "m_w_probe": "M_w, towards the canary's label"}
# Multiples of the golden ratio scatter heights evenly and reproducibly.
GOLDEN = 0.6180339887


def effect(pairs: Pairs, summary: Sequence[Row]) -> Figure | None:
    """Draw the sorted effects of all pairs on M_w over the probe images, and the mean effect with an interval."""
    canary, effects = pairs.columns("canary", "m_w_probe_effect")
    if not len(effects):
        return None
    effects = np.sort(effects)
    n = len(effects)
    mean = float(effects.mean())
    row = find_row(summary, EFFECT, images="probe")
    if row is None or row["low"] is None or row["n"] != n:
        interval = None
    else:
        interval = (row["low"], row["high"])
    pairs_of = f"{n} pair{'s' if n != 1 else ''} of trainings"
    if interval:
        between = f"The diamond is their mean, its line the 95 % interval over {pairs_of}."
    else:
        between = f"The diamond is their mean, without an interval{', which needs two pairs' if n == 1 else ''}."
    caption = (
        f"Each dot is one {'canary' if len(np.unique(canary)) == n else 'canary in one training'}: M_w of the model "
        "trained with it minus M_w of its control model (same seed, clean image), on images that neither saw. Dots are "
        f"sorted; a single pair has no interval. {between} Dashed: 0, no memory. 0.1 nats change the label's "
        "probability by about a tenth."
    )
    numbers = f"{int((effects > 0).sum())} of {n} effects lie above 0; mean {drawing.format_number(mean)} nats"
    if interval:
        numbers += f", 95 % interval {drawing.format_number(interval[0])} to {drawing.format_number(interval[1])}"
    low, median, high = (drawing.format_number(value) for value in np.quantile(effects, (0, 0.5, 1)))
    alt = f"{numbers}; median {median}, from {low} to {high}."
    title = "Does a model respond to the feature because it was in one training image?"
    ends = ", no interval"
    if interval:
        ends = drawing.format_interval(*interval)
    layers: list[Layer] = [
        upright(0),
        dots(effects, (np.arange(n) + 0.5) / n, "canary"),
        *([line(interval, [1.2, 1.2], "accent", linewidth=2.4, solid_capstyle="butt")] if interval else []),
        marks([mean], [1.2], "accent", "D", 7),
    ]
    panel = Panel(
        (0.15, 0.55, drawing.WIDTH - 0.3, 2.1),
        layers,
        Axis("effect of the canary on M_w, nats", drawing.padded_limits([0.0, *effects.tolist(), *(interval or ())])),
        Axis(limits=(-0.06, 1.36)),
        f"mean {drawing.format_number(mean)}{ends}; {int((effects > 0).sum())} of {n} above 0",
        finish=[drawing.remove_y_axis],
    )
    return Chart("effect", title, caption, alt, 2.9, [panel]).figure()


def separation(pairs: Pairs) -> Figure | None:
    """Draw both scores for canary models above control models, with the band of the control models."""
    columns = {title: pairs.columns(name, f"twin_{name}") for name, title in SCORES.items()}
    available = {title: columns_pair for title, columns_pair in columns.items() if len(columns_pair[0])}
    if not available:
        return None
    step = 1.5
    n = max(len(canary) for canary, _ in available.values())
    facets = []
    for title, (canary, twin) in available.items():
        limits = drawing.padded_limits([*canary.tolist(), *twin.tolist()])
        across = Axis("nats" if title == list(available)[-1] else "", limits)
        up = Axis(limits=(-0.55, 1.55))
        facets.append(Facet(strips(canary, twin), title, up, across, [drawing.remove_y_axis]))
    panels = facet_panels(facets, step, gap=0.6, margins=(0.15, 0.15))
    band = (
        "The shaded band contains the middle 95 % of the control models (all of them if there are few). A score that "
        "detects memory places canary models to its right; one in forty would lie there by chance. "
    )
    caption = (
        f"Each mark is one model: {describe_pairs(n)}. {band if n > 1 else ''}"
        "The height within a row has no meaning. One training each: no intervals."
    )
    heading = "Which score distinguishes models that saw the feature from models that did not?"
    alt = " ".join(f"{title}: {_describe_strips(*columns_pair)}" for title, columns_pair in available.items())
    height = step * len(available) + 0.55
    return Chart("separation", heading, caption, alt, height, panels, legend_entries(n)).figure()


def strips(canary: Array, twin: Array) -> list[Layer]:
    """Draw two rows of dots, canary models above control models, over the band of the control models."""
    heights = 0.6 * ((np.arange(len(canary)) * GOLDEN) % 1 - 0.5)
    band = []
    if len(twin) > 1:
        band = [span(*central_range(twin), "twin-band")]
    return [*band, dots(canary, 1 + heights, "canary"), dots(twin, heights, "twin")]


def _describe_strips(canary: Array, twin: Array) -> str:
    """Describe both medians, and how many canary models lie above the control models' band."""
    medians = []
    for values in (canary, twin):
        medians.append(drawing.format_number(float(np.median(values))))
    words = f"median {medians[0]} of canary models, {medians[1]} of control models."
    if len(twin) < 2:
        return words
    low, high = central_range(twin)
    return (
        f"{words} {int((canary > high).sum())} of {len(canary)} canary models lie above the control band, "
        f"{drawing.format_number(low)} to {drawing.format_number(high)}."
    )
