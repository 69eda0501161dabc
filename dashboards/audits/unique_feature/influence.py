"""Whether memory goes with self-influence (TracInCP), and what a feature does to the self-influence of its image."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.unique_feature.effects import SCORES
from dashboards.audits.unique_feature.pairs import Array, Pairs, key, mark
from dashboards.columns import integers, numbers, texts
from dashboards.figure import Figure

CORRELATION = "correlation of self-influence and M"  # a row of the summary
PANEL = 1.9  # inches
BINS = 48
NAMED = 12  # images whose rows stand beside them
# Of the chosen images: colour and mark, so that they differ in grey too.
ENDS: Mapping[str, tuple[str, str]] = {"highest": ("canary", "o"), "lowest": ("violet", "s")}
Row = Mapping[str, Any]


def influence(pairs: Pairs, chosen: pa.Table, traced: pa.Table, summary: Sequence[Row]) -> Figure | None:
    """The scores of the canaries over the self-influence that their images had before they carried the feature."""
    before = of_rows(chosen) or of_rows(traced)
    found = {}
    for score in reversed(SCORES):
        canary, values, twin = pairs.columns("canary", score, f"twin_{score}")
        x = np.array([before.get(int(row), 0.0) for row in canary])
        if (x > 0).any():
            found[score] = (x[x > 0], values[x > 0], twin[x > 0])
    if not found:
        return None
    n = max(len(x) for x, _, _ in found.values())
    figure = drawing.canvas(PANEL * len(found) + 0.72)
    said = []
    for at, (score, (x, values, twin)) in enumerate(found.items()):
        bottom = 0.5 + PANEL * (len(found) - 1 - at)
        axes = drawing.place(figure, 0.75, bottom, drawing.WIDTH - 0.95, PANEL - 0.45)
        axes.axhline(0, color=drawing.light("muted"), linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        for model, y in (("twin", twin), ("canary", values)):
            axes.plot(x, y, **mark(model, n) | ({"alpha": 0.6} if model == "twin" else {}))
        drawing.ticks(axes, up=4)
        drawing.magnitudes(axes, x.tolist())
        axes.tick_params(labelbottom=at + 1 == len(found))
        rest = f"; Pearson's r {correlation(summary)}" if score == "m" and correlation(summary) else ""
        axes.set_title(f"{SCORES[score].partition(',')[0]}, nats{rest}", fontsize=drawing.TEXT)
        said.append(f"{SCORES[score]}: {halves(x, values, twin)}")
    axes.set_xlabel("self-influence of the clean image")
    figure.legend(handles=key(count=n), loc="upper left", ncols=2, bbox_to_anchor=(0, 1), borderaxespad=0.1)
    rows = [f"Pearson's r {row}." for row in (correlation(summary), correlation(summary, "twin")) if row]
    rows = [word if at == 0 else f"Of the twins: {word}" for at, word in enumerate(rows)]
    caption = (
        f"Each mark is one of {n} canary models: its score over the self-influence (TracInCP) that its training "
        "image had before it carried the feature, on a logarithmic scale. The twins, trained on the clean images, are "
        "the null: a slope that they have too is none of memory. Dashed: 0. One training each; r is that of the "
        "numbers themselves, not of their logarithms, with its 95 % interval over trainings where the summary gives it."
    )
    title = "Are features better remembered from images that are hard to learn?"
    return Figure("influence", title, caption, " ".join([*rows, *said]), drawing.svg(figure, "influence"))


def of_rows(table: pa.Table) -> dict[int, float]:
    """Training image -> its self-influence, of the model that never saw the feature."""
    if not {"row", "self_influence"} <= set(table.column_names):
        return {}
    rows, values = integers(table, "row").tolist(), numbers(table, "self_influence").tolist()
    carrying = integers(table, "with_feature").tolist() if "with_feature" in table.column_names else [0] * len(rows)
    return {row: value for row, value, carries in zip(rows, values, carrying, strict=True) if not carries and value > 0}


def correlation(summary: Sequence[Row], model: str = "canary") -> str:
    """The summary's correlation of this kind of model with its interval and the published one; empty if absent."""
    for row in summary:
        setting = json.loads(row["setting"] or "{}")
        if row["metric"] == CORRELATION and setting.get("model", "canary") == model and row["estimate"] is not None:
            published = "" if row["published"] is None else f" (published {drawing.number(row['published'])})"
            return f"{drawing.number(row['estimate'])}{drawing.interval(row['low'], row['high'])}{published}"
    return ""


def halves(x: Array, values: Array, twin: Array) -> str:
    """The mean scores of the canaries below and above the median self-influence, in words."""
    above = x > np.median(x)
    if not above.any():
        means = [drawing.number(float(each.mean())) for each in (values, twin)]
        return f"mean {means[0]} of canary models, {means[1]} of twins."
    words = [
        f"mean {drawing.number(float(values[part].mean()))} of {int(part.sum())} canary models with {name} "
        f"self-influence (their twins {drawing.number(float(twin[part].mean()))})"
        for name, part in (("low", ~above), ("high", above))
    ]
    return f"{', '.join(words)}."


def influences(everything: pa.Table, chosen: pa.Table) -> Figure | None:
    """How self-influence is distributed over all training images, with those that were chosen as canaries."""
    if "self_influence" not in everything.column_names:
        return None
    values = numbers(everything, "self_influence")
    values = values[~np.isnan(values)]
    positive = values[values > 0]
    if not len(positive):
        return None
    figure = drawing.canvas(2.9)
    axes = drawing.place(figure, 0.75, 0.55, drawing.WIDTH - 0.95, 1.95)
    low, high = np.log10(positive.min()), np.log10(positive.max())
    edges = np.logspace(low, high if high > low else low + 1, BINS + 1)
    counts = np.histogram(positive, edges)[0]
    axes.stairs(counts, edges, fill=True, color=drawing.light("twin-band"), zorder=1)
    axes.stairs(counts, edges, color=drawing.light("twin"), linewidth=1.2, zorder=2)
    drawing.logarithmic(axes)
    drawing.magnitudes(axes, positive.tolist())
    axes.set_ylim(0.4, max(2.0, 6.0 * float(counts.max())))
    decades(axes)
    axes.set_xlabel("self-influence")
    axes.set_ylabel("training images")
    ends = dict(of_ends(chosen))
    for end, rows in ends.items():
        colour, marker = ENDS[end]
        heights = np.full(len(rows), 2.2 * float(counts.max()))
        axes.plot(rows, heights, marker, color=drawing.light(colour), markersize=5.5, markeredgewidth=0, alpha=0.8)
    if ends:
        entries(figure, {end: f"canaries: the {len(rows)} {end}" for end, rows in ends.items()})
    median = drawing.number(float(np.median(values)))
    zero = f" {len(values) - len(positive)} have none and are not drawn." if len(positive) < len(values) else ""
    caption = (
        "Self-influence (TracInCP: learning rate times squared length of the loss's slope, summed over checkpoints) of "
        f"all {len(values)} training images in one model that never saw the feature; both scales are "
        f"logarithmic.{zero} An image has much of it when its label must be learnt from itself alone."
    )
    said = [
        f"The {len(rows)} {end} were chosen, {drawing.number(float(rows.min()))} to "
        f"{drawing.number(float(rows.max()))}."
        for end, rows in ends.items()
    ]
    alt = (
        f"{len(values)} training images, self-influence from {drawing.number(float(values.min()))} to "
        f"{drawing.number(float(values.max()))}, median {median}. {' '.join(said)}"
    ).strip()
    title = "Which training images were chosen to carry the feature?"
    return Figure("influences", title, caption, alt, drawing.svg(figure, "influences"))


def decades(axes: Any) -> None:
    from matplotlib.ticker import LogLocator

    axes.yaxis.set_major_locator(LogLocator(numticks=5))


def of_ends(chosen: pa.Table) -> Iterator[tuple[str, Array]]:
    """The self-influence of the images chosen at either end."""
    if not {"end", "self_influence"} <= set(chosen.column_names):
        return
    end, values = texts(chosen, "end"), numbers(chosen, "self_influence")
    for name in ENDS:
        found = values[(end == name) & (values > 0)]
        if len(found):
            yield name, found


def traced(table: pa.Table) -> Figure | None:
    """Arrows from the self-influence of an image to that of the same image with the feature: section 3.3."""
    if not {"row", "end", "with_feature", "squared_slopes"} <= set(table.column_names):
        return None
    pairs = list(both_ways(table))
    if not pairs:
        return None
    step = 0.13 if len(pairs) > NAMED else 0.24
    figure = drawing.canvas(step * len(pairs) + 1.05)
    axes = drawing.place(figure, 1.05, 0.55, drawing.WIDTH - 1.25, step * len(pairs) + 0.1)
    for y, (_, end, without, with_it) in enumerate(pairs):
        colour = drawing.light(ENDS[end][0])
        arrow = {
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": 1.3,
            "shrinkA": 2.5,
            "shrinkB": 0,
            "mutation_scale": 8,
        }
        axes.annotate("", (with_it, y), (without, y), arrowprops=arrow)
        axes.plot([without], [y], ENDS[end][1], markersize=4.5, color=colour, markerfacecolor=drawing.light("paper"))
    axes.set_ylim(-0.8, len(pairs) - 0.2)
    drawing.magnitudes(axes, [value for _, _, *both in pairs for value in both])
    few = len(pairs) <= NAMED
    axes.set_yticks(range(len(pairs)) if few else [], [f"image {row}" for row, *_ in pairs] if few else [])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("self-influence, sum of squared slopes")
    if not few:
        axes.set_ylabel("training images")
    ends = {end: [each for each in pairs if each[1] == end] for end in ENDS}
    ends = {end: of for end, of in ends.items() if of}
    entries(figure, {end: f"{end} before" for end in ends})
    said = []
    for end, of in ends.items():
        medians = [float(np.median([each[at] for each in of])) for at in (2, 3)]
        risen = sum(with_it > without for _, _, without, with_it in of)
        said.append(
            f"Of {len(of)} image{'s' if len(of) > 1 else ''} with the {end} self-influence {risen} rose: in the median "
            f"from {drawing.number(medians[0])} without the feature to {drawing.number(medians[1])} with it."
        )
    caption = (
        "Each arrow is one training image in two trainings of the same seed: from its self-influence without the "
        "feature (hollow) to that with it (tip), on a logarithmic scale. Squared slopes of the loss summed over the "
        "checkpoints, without the learning rate, which is how large the paper's numbers are. One training each: no "
        "intervals."
    )
    title = "Does the feature make its image a highly influential one?"
    return Figure("traced", title, caption, " ".join(said), drawing.svg(figure, "traced"))


def both_ways(table: pa.Table) -> Iterator[tuple[int, str, float, float]]:
    """Image, end, and its squared slopes without and with the feature; the smallest end and slope first."""
    columns = zip(
        integers(table, "row").tolist(),
        texts(table, "end").tolist(),
        integers(table, "with_feature").tolist(),
        numbers(table, "squared_slopes").tolist(),
        strict=True,
    )
    found: dict[tuple[str, int], dict[int, float]] = {}
    for row, end, carries, value in columns:
        if end in ENDS and value > 0:
            found.setdefault((end, row), {})[carries] = value
    whole = [(row, end, both[0], both[1]) for (end, row), both in found.items() if len(both) == 2]
    yield from sorted(whole, key=lambda each: (each[1] == "highest", each[2]))


def entries(figure: Any, labels: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=drawing.light(ENDS[end][0]), marker=ENDS[end][1], linewidth=0, label=label)
        for end, label in labels.items()
    ]
    figure.legend(handles=handles, loc="upper left", ncols=2, bbox_to_anchor=(0, 1), borderaxespad=0.1)
