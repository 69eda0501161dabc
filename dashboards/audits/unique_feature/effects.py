"""The effect of each canary on its model, and how well the scores separate the two kinds of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dashboards import drawing, legend
from dashboards.audits.unique_feature.pairs import Array, Pairs, central_range, describe_pairs, legend_entries, mark
from dashboards.chart import Figure
from dashboards.summary import Row, find_row

EFFECT = "M_w effect"  # a metric: over the probe images what the audit's answer rests on
SCORES = {"m": "M, the published black-box score", "m_w_probe": "M_w, towards the canary's label"}
# Heights by multiples of the golden ratio: scattered evenly, and the same each time.
GOLDEN = 0.6180339887


Interval = tuple[float, float]


def effect(pairs: Pairs, summary: Sequence[Row]) -> Figure | None:
    """Each pair's effect on M_w over the probe images, sorted, and their mean with its interval."""
    canary, effects = pairs.columns("canary", "m_w_probe_effect")
    if not len(effects):
        return None
    effects = np.sort(effects)
    n, mean = len(effects), float(effects.mean())
    row = find_row(summary, EFFECT, images="probe")
    interval = None if row is None or row["low"] is None or row["n"] != n else (row["low"], row["high"])
    pairs_of = f"{n} pair{'s' if n != 1 else ''} of trainings"
    between = (
        f"The diamond is their mean, its line the 95 % interval over {pairs_of}."
        if interval
        else f"The diamond is their mean; it has no interval{', which takes two pairs' if n == 1 else ' here'}."
    )
    caption = (
        f"Each dot is one {'canary' if len(np.unique(canary)) == n else 'canary in one training'}: M_w of the model "
        "trained with it minus M_w of its twin, which had the same seed and the clean image. Dots are sorted; a single "
        f"pair has no interval. {between} Dashed at 0: nothing "
        "memorised. Nats: 0.1 changes the label's probability by about a tenth. Images the models never saw."
    )
    numbers = f"{int((effects > 0).sum())} of {n} effects lie above 0; mean {drawing.format_number(mean)} nats"
    numbers += (
        f", 95 % interval {drawing.format_number(interval[0])} to {drawing.format_number(interval[1])}"
        if interval
        else ""
    )
    low, median, high = (drawing.format_number(value) for value in np.quantile(effects, (0, 0.5, 1)))
    alt = f"{numbers}; median {median}, from {low} to {high}."
    title = "Does a model answer to the feature because one image of it was trained on?"
    return Figure("effect", title, caption, alt, draw_effects(effects, interval))


def draw_effects(effects: Array, interval: Interval | None) -> str:
    """The effects as SVG, from the smallest up, below their mean with its interval."""
    n, mean = len(effects), float(effects.mean())
    figure = drawing.canvas(2.9)
    axes = drawing.add_axes(figure, 0.15, 0.55, drawing.WIDTH - 0.3, 2.1)
    axes.axvline(0, **drawing.NULL)
    axes.plot(effects, (np.arange(n) + 0.5) / n, **mark("canary", n))
    accent = drawing.light("accent")
    if interval:
        axes.plot(interval, [1.2, 1.2], color=accent, linewidth=2.4, solid_capstyle="butt")
    axes.plot([mean], [1.2], "D", color=accent, markersize=7)
    axes.set_xlim(*drawing.padded_limits([0.0, *effects.tolist(), *(interval or ())]))
    axes.set_ylim(-0.06, 1.36)
    drawing.set_ticks(axes)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("effect of the canary on M_w, nats")
    ends = drawing.format_interval(*interval) if interval else ", no interval"
    above = int((effects > 0).sum())
    axes.set_title(f"mean {drawing.format_number(mean)}{ends}; {above} of {n} above 0", fontsize=drawing.TEXT)
    return drawing.svg(figure, "effect")


def separation(pairs: Pairs) -> Figure | None:
    """Both scores of the canaries' models over those of the twins, with the band that the twins span."""
    columns = {title: pairs.columns(name, f"twin_{name}") for name, title in SCORES.items()}
    there = {title: both for title, both in columns.items() if len(both[0])}
    if not there:
        return None
    panel, n = 1.5, max(len(canary) for canary, _ in there.values())
    height = panel * len(there) + 0.55
    figure = drawing.canvas(height)
    words = []
    for at, (title, (canary, twin)) in enumerate(there.items()):
        axes = drawing.add_axes(figure, 0.15, 0.5 + panel * (len(there) - 1 - at), drawing.WIDTH - 0.3, panel - 0.6)
        words.append(f"{title}: {draw_strips(axes, canary, twin)}")
        axes.set_title(title, fontsize=drawing.TEXT)
    axes.set_xlabel("nats")
    legend.add_above(figure, legend_entries(n))
    band = (
        "The shaded band holds the middle 95 % of the twins (for a few twins: all of them). A score that sees memory "
        "puts canary models to the right of it; one in forty would lie there by chance. "
    )
    caption = (
        f"Each mark is one model: {describe_pairs(n)}. {band if n > 1 else ''}"
        "Height within a row means nothing. One training "
        "each: no intervals."
    )
    title = "Which score tells a model that saw the feature from one that never did?"
    return Figure("separation", title, caption, " ".join(words), drawing.svg(figure, "separation"))


def draw_strips(axes: Any, canary: Array, twin: Array) -> str:
    """Two rows of marks on one scale; what they show, in words."""
    scatter = (np.arange(len(canary)) * GOLDEN) % 1 - 0.5
    words = ""
    if len(twin) > 1:
        low, high = central_range(twin)
        axes.axvspan(low, high, color=drawing.light("twin-band"), linewidth=0, zorder=0)
        above = int((canary > high).sum())
        words = (
            f" {above} of {len(canary)} canary models lie above the twins' band, "
            f"{drawing.format_number(low)} to {drawing.format_number(high)}."
        )
    for y, model, values in ((1, "canary", canary), (0, "twin", twin)):
        axes.plot(values, y + 0.6 * scatter, **mark(model, len(values)))
    axes.set_xlim(*drawing.padded_limits([*canary.tolist(), *twin.tolist()]))
    axes.set_ylim(-0.55, 1.55)
    drawing.set_ticks(axes)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    medians = [drawing.format_number(float(np.median(values))) for values in (canary, twin)]
    return f"median {medians[0]} of canary models, {medians[1]} of twins.{words}"
