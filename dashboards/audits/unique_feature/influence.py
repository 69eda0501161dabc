"""Self-influence (TracInCP): its relation to memory, and how the feature changes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.unique_feature.effects import SCORES
from dashboards.audits.unique_feature.pairs import Array, Pairs, dots, legend_entries
from dashboards.chart import Axis, Chart, Facet, Figure, Layer, Panel, facet_panels, histogram, level, marks
from dashboards.columns import integers, numbers, texts, with_columns
from dashboards.summary import Row, find_rows

CORRELATION = "correlation of self-influence and M"  # metric of a summary row
PANEL = 1.9  # inches
BINS = 48
NAMED = 12  # images labelled with their row numbers
# Colour and marker of the chosen images, which also differ in greyscale.
ENDS: Mapping[str, tuple[str, str]] = {"highest": ("canary", "o"), "lowest": ("violet", "s")}
CHOSEN: Mapping[str, Any] = {"markeredgewidth": 0, "alpha": 0.8}


Marks = dict[str, tuple[Array, Array, Array]]  # score -> self-influence, canary scores and control model scores


def influence(pairs: Pairs, chosen_table: pa.Table, traced: pa.Table, summary: Sequence[Row]) -> Figure | None:
    """Draw the canaries' scores against the self-influence of their clean images."""
    before = influence_by_row(chosen_table) or influence_by_row(traced)
    marks_by_score: Marks = {}
    for score in reversed(SCORES):
        canary, values, twin = pairs.columns("canary", score, f"twin_{score}")
        x = np.array([before.get(int(row), 0.0) for row in canary])
        if (x > 0).any():
            marks_by_score[score] = (x[x > 0], values[x > 0], twin[x > 0])
    if not marks_by_score:
        return None
    n = max(len(x) for x, _, _ in marks_by_score.values())
    of_canaries = correlation(summary)
    of_twins = correlation(summary, "twin")
    words = [f"Pearson's r {r}." for r in (of_canaries, of_twins) if r]
    words = [line if index == 0 else f"Control models: {line}" for index, line in enumerate(words)]
    words += [f"{SCORES[score]}: {_describe_halves(*of_score)}" for score, of_score in marks_by_score.items()]
    caption = (
        f"Each mark is one of {n} canary models: its score over the self-influence (TracInCP) of its clean training "
        "image, on a logarithmic scale. The control models, trained on the clean images, are the null: a slope that "
        "they share is not memory. Dashed: 0. One training each; r is computed on the values, not on their logarithms, "
        "with a 95 % interval over trainings if the summary has one."
    )
    title = "Are features remembered better in images that are hard to learn?"
    facets = []
    for score, of_score in marks_by_score.items():
        last = score == list(marks_by_score)[-1]
        rest = ""
        if score == "m" and of_canaries:
            rest = f"; Pearson's r {of_canaries}"
        across = Axis(
            "self-influence of the clean image" if last else "", has_tick_labels=last, log=of_score[0].tolist()
        )
        heading = f"{SCORES[score].partition(',')[0]}, nats{rest}"
        facets.append(Facet(scatter(*of_score, n), heading, x=across))
    panels = facet_panels(facets, PANEL, gap=0.45)
    height = PANEL * len(marks_by_score) + 0.72
    return Chart("influence", title, caption, " ".join(words), height, panels, legend_entries(n)).figure()


def scatter(x: Array, values: Array, twin: Array, n: int) -> list[Layer]:
    """Draw the scores of control models and canary models against self-influence."""
    return [
        level(0, {"zorder": 1, **drawing.NULL}),
        dots(x, twin, "twin", n, alpha=0.6),
        dots(x, values, "canary", n),
    ]


@with_columns(("row", "self_influence"), dict)
def influence_by_row(table: pa.Table) -> dict[int, float]:
    """Return the self-influence of each training image in the model that never saw the feature."""
    rows = integers(table, "row").tolist()
    values = numbers(table, "self_influence").tolist()
    if "with_feature" in table.column_names:
        carrying = integers(table, "with_feature").tolist()
    else:
        carrying = [0] * len(rows)
    result = {}
    for row, value, carries in zip(rows, values, carrying, strict=True):
        if not carries and value > 0:
            result[row] = value
    return result


def correlation(summary: Sequence[Row], model: str = "canary") -> str:
    """Format the correlation in the summary for this kind of model, with interval and published value.

    Returns an empty string if there is none.
    """
    for setting, row in find_rows(summary, CORRELATION):
        if setting.get("model", "canary") == model and row["estimate"] is not None:
            if row["published"] is None:
                published = ""
            else:
                published = f" (published {drawing.format_number(row['published'])})"
            return (
                f"{drawing.format_number(row['estimate'])}{drawing.format_interval(row['low'], row['high'])}{published}"
            )
    return ""


def _describe_halves(x: Array, values: Array, twin: Array) -> str:
    """Describe the mean scores of the canaries below and above the median self-influence."""
    above = x > np.median(x)
    if not above.any():
        means = [drawing.format_number(float(scores.mean())) for scores in (values, twin)]
        return f"mean {means[0]} of canary models, {means[1]} of control models."
    words = []
    for name, part in (("low", ~above), ("high", above)):
        words.append(
            f"mean {drawing.format_number(float(values[part].mean()))} of {int(part.sum())} canary models with {name} "
            f"self-influence (their control models {drawing.format_number(float(twin[part].mean()))})"
        )
    return f"{', '.join(words)}."


@with_columns(("self_influence",))
def influences(everything: pa.Table, chosen_table: pa.Table) -> Figure | None:
    """Draw the distribution of self-influence over all training images, with the chosen canaries."""
    values = numbers(everything, "self_influence")
    values = values[~np.isnan(values)]
    positive = values[values > 0]
    if not len(positive):
        return None
    ends = dict(influence_by_end(chosen_table))
    zero = ""
    if len(positive) < len(values):
        zero = f" {len(values) - len(positive)} have a value of 0 and are not drawn."
    caption = (
        "Self-influence (TracInCP: learning rate times squared length of the loss's slope, summed over checkpoints) of "
        f"all {len(values)} training images in one model that never saw the feature; both scales are "
        f"logarithmic.{zero} It is high if the label of an image can be learnt from that image only."
    )
    words = [
        f"{len(values)} training images, self-influence from {drawing.format_number(float(values.min()))} to "
        f"{drawing.format_number(float(values.max()))}, median {drawing.format_number(float(np.median(values)))}."
    ]
    words += [
        f"The {len(rows)} {end} were chosen, {drawing.format_number(float(rows.min()))} to "
        f"{drawing.format_number(float(rows.max()))}."
        for end, rows in ends.items()
    ]
    title = "Which training images were chosen as canaries?"
    low, high = np.log10(positive.min()), np.log10(positive.max())
    edges = np.logspace(low, high if high > low else low + 1, BINS + 1)
    counts = np.histogram(positive, edges)[0]
    panel = Panel(
        layout.wide_box(0.55, 1.95),
        [
            histogram(counts, edges, "twin"),
            *(
                marks(rows, np.full(len(rows), 2.2 * float(counts.max())), *ENDS[end], 5.5, **CHOSEN)
                for end, rows in ends.items()
            ),
        ],
        Axis("self-influence", log=positive.tolist()),
        Axis("training images", (0.4, max(2.0, 6.0 * float(counts.max()))), log=()),
        finish=[decades],
    )
    entries = _chosen_legend_entries({end: f"canaries: the {len(rows)} {end}" for end, rows in ends.items()})
    return Chart("influences", title, caption, " ".join(words), 2.9, [panel], entries).figure()


def decades(axes: Any) -> None:
    """Put as many powers of ten on the y axis as fit."""
    from matplotlib.ticker import LogLocator

    axes.yaxis.set_major_locator(LogLocator(numticks=5))


@with_columns(("end", "self_influence"), list)
def influence_by_end(chosen_table: pa.Table) -> Iterator[tuple[str, Array]]:
    """Yield the self-influence of the images chosen at each end."""
    end = texts(chosen_table, "end")
    values = numbers(chosen_table, "self_influence")
    for name in ENDS:
        of_end = values[(end == name) & (values > 0)]
        if len(of_end):
            yield name, of_end


Arrow = tuple[int, str, float, float]  # image, end, and its squared slopes without and with the feature


@with_columns(("row", "end", "with_feature", "squared_slopes"))
def influence_changes(table: pa.Table) -> Figure | None:
    """Draw arrows from an image's self-influence to that of the same image with the feature (section 3.3)."""
    pairs = list(_read_arrows(table))
    if not pairs:
        return None
    words = []
    for name in ENDS:
        of_end = [(without, with_it) for _, end, without, with_it in pairs if end == name]
        if of_end:
            before, after = (drawing.format_number(float(np.median(values))) for values in zip(*of_end, strict=True))
            risen = sum(with_it > without for without, with_it in of_end)
            words.append(
                f"Self-influence rises in {risen} of {len(of_end)} image{'s' if len(of_end) > 1 else ''} with the "
                f"{name} values: median {before} without the feature, {after} with it."
            )
    caption = (
        "Each arrow is one training image in two trainings of the same seed, from its self-influence without the "
        "feature (hollow) to that with it (tip), on a logarithmic scale: squared slopes of the loss, summed over "
        "checkpoints, without the learning rate, which matches the size of the paper's numbers. One training each: no "
        "intervals."
    )
    title = "Does the feature increase the self-influence of its image?"
    step = 0.13
    if len(pairs) <= NAMED:
        step = 0.24
    ends_present = {end for _, end, *_ in pairs}
    entries = _chosen_legend_entries({end: f"{end} before" for end in ENDS if end in ends_present})
    return Chart(
        "traced", title, caption, " ".join(words), step * len(pairs) + 1.05, [_arrow_panel(pairs, step)], entries
    ).figure()


def _arrow_panel(pairs: Sequence[Arrow], step: float) -> Panel:
    """Return a panel with one row per image, each `step` inches high."""
    has_names = len(pairs) <= NAMED
    names = [f"image {row}" for row, *_ in pairs]
    return Panel(
        (1.05, 0.55, drawing.WIDTH - 1.25, step * len(pairs) + 0.1),
        [partial(_draw_arrow, y=y, arrow=arrow) for y, arrow in enumerate(pairs)],
        Axis(
            "self-influence, sum of squared slopes",
            log=[value for _, _, *slopes_pair in pairs for value in slopes_pair],
        ),
        Axis(
            "" if has_names else "training images",
            (-0.8, len(pairs) - 0.2),
            ticks=(range(len(pairs)), names) if has_names else ([], []),
        ),
        finish=[
            lambda axes: axes.tick_params(axis="y", length=0),
            lambda axes: axes.grid(axis="y", visible=False),
        ],
    )


def _draw_arrow(axes: Any, y: int, arrow: Arrow) -> None:
    """Draw an arrow from the image without the feature (hollow) to the same image with it."""
    _, end, without, with_it = arrow
    name, marker = ENDS[end]
    colour = drawing.light(name)
    look = {"arrowstyle": "-|>", "linewidth": 1.3, "shrinkA": 2.5, "shrinkB": 0, "mutation_scale": 8}
    axes.annotate("", (with_it, y), (without, y), arrowprops={"color": colour, **look})
    axes.plot([without], [y], marker, markersize=4.5, color=colour, markerfacecolor=drawing.light("paper"))


def _read_arrows(table: pa.Table) -> Iterator[Arrow]:
    """Yield the images with squared slopes both without and with the feature, sorted by end and slope."""
    columns = zip(
        integers(table, "row").tolist(),
        texts(table, "end").tolist(),
        integers(table, "with_feature").tolist(),
        numbers(table, "squared_slopes").tolist(),
        strict=True,
    )
    slopes: dict[tuple[str, int], dict[int, float]] = {}
    for row, end, carries, value in columns:
        if end in ENDS and value > 0:
            slopes.setdefault((end, row), {})[carries] = value
    arrows = [
        (row, end, slopes_pair[0], slopes_pair[1])
        for (end, row), slopes_pair in slopes.items()
        if len(slopes_pair) == 2
    ]
    yield from sorted(arrows, key=lambda arrow: (arrow[1] == "highest", arrow[2]))


def _chosen_legend_entries(labels: Mapping[str, str]) -> list[Any]:
    """Return legend entries for the chosen images, by end."""
    entries = []
    for end, label in labels.items():
        entries.append(legend.line(label, color=drawing.light(ENDS[end][0]), marker=ENDS[end][1], linewidth=0))
    return entries
