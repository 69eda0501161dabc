"""Distributions of the models' confidences on D_Q, and the largest gap between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting.targets import ROLES, ModelGroup, group_name, sort_groups, target_numbers
from dashboards.chart import Array, Axis, Chart, Figure, Layer, Panel, line
from dashboards.columns import integers, numbers, with_columns
from dashboards.summary import fit_words, format_range
from tasks.audits.forgetting.rho import farthest
from tasks.external.confidences import round_confidences

NEEDED = {"model", "target", "replicate", "set", "confidence", "resolution"}
TARGETS = 12  # targets with panels
LINES = 10  # models drawn per role
ACROSS = 3  # panels per row
PANEL = 1.28  # inches, from a target's axes upwards
FOOT = 0.55  # inches below the targets' panels
STEP = PANEL + 0.62  # inches from one row of target panels to the next
UPRIGHT: Mapping[str, Any] = {"linewidth": 1.6, "marker": "_", "markersize": 7, "color": drawing.light("ink")}
FAR: Mapping[str, Any] = {"marker": "|", "markersize": 11, "markeredgewidth": 1.6, "linewidth": 0}  # in legends
# Quantiles at which a line is exact. It is straight in between.
FINE = 200
COARSE = 60
SHARES = (-0.02, 1.02)
LETTERS = 19  # letters of a target's name above its panel
# Widest axis limits, in log10 of the odds c / (1 - c). Values beyond them, and c of 0 and 1, are drawn at the edges.
LOWEST = -4.0
HIGHEST = 16.0
TAIL = 0.001  # largest fraction of a model's values that may lie beyond the left limit


@dataclass(frozen=True)
class ModelConfidences:
    """One model's sorted confidences on the D_Q images, and their resolution."""

    who: ModelGroup
    replicate: int
    confidence: Array
    resolution: float


@dataclass(frozen=True)
class LargestGap:
    """The confidence at which one model's distribution lies farthest above another's."""

    confidence: float
    shares: tuple[float, float]  # fractions of lower confidences, for the first and the second model

    @property
    def below(self) -> float:
        """The one-sided KS distance."""
        return self.shares[1] - self.shares[0]


def largest_gap(first: ModelConfidences, second: ModelConfidences) -> LargestGap:
    """Find the maximum over c of F_second(c) - F_first(c), with both rounded to the coarser resolution."""
    coarser = max(first.resolution, second.resolution)
    a, b = round_confidences(first.confidence, coarser), round_confidences(second.confidence, coarser)
    position = farthest(a, b, "one-sided").value
    of_one = float(np.searchsorted(a, position, side="right") / len(a))
    of_other = float(np.searchsorted(b, position, side="right") / len(b))
    return LargestGap(position, (of_one, of_other))


ConfidencesByGroup = Mapping[ModelGroup, Sequence[ModelConfidences]]


def confidences(table: pa.Table, names: Mapping[int, str]) -> Figure | None:
    """Draw the confidence distributions on D_Q: query and calibration models above, one panel per target below."""
    all_models = read_confidences(table)
    if not all_models:
        return None
    everybody = sort_groups(model.who for model in all_models if model.who[0] != "partial")
    models = {}
    for group in everybody:
        models[group] = [model for model in all_models if model.who == group]
    targets = [group for group in models if group[0] == "target"]
    visible = targets[:TARGETS]
    places = OddsAxis.from_models(all_models)
    distances = _reference_gaps(models, visible)
    named_gaps = {"query and calibration model" if group[0] != "target" else group_name(group, names): distance
             for group, distance in distances.items()}  # fmt: skip
    caption = figure_caption(models, places, bool(distances), bool(visible) and len(models) > len(targets))
    caption += f"; no intervals.{layout.left_out_note(len(visible), len(targets), 'targets')}"
    alt = _describe_confidences(
        {group: group_models for group, group_models in models.items() if group in visible or group[0] != "target"},
        named_gaps,
        names,
    )
    titles = {group: group_name(group, names) for group in visible}
    references = _reference_models(models)
    foot = STEP * -(-len(titles) // ACROSS) + FOOT
    height = foot + legend.ROW + (2.45 if references else 0.1)
    panels = []
    if references:
        panels = [_reference_panel(foot, references, models, distances, places)]
    for index, ((group, title), box) in enumerate(zip(titles.items(), target_boxes(len(titles)), strict=True)):
        layers = [*_target_layers(models[group], references, distances.get(group), places), set_heading(title)]
        across = places.axis(index + ACROSS >= len(titles), narrow=True)
        panels.append(
            Panel(
                box,
                layers,
                across,
                Axis(limits=SHARES, max_ticks=4, has_tick_labels=index % ACROSS == 0),
                finish=[_narrow_labels],
            )
        )
    return Chart(
        "confidences",
        "How confident are models about D_Q?",
        caption,
        alt,
        height,
        panels,
        legend_entries(models, bool(distances)),
        notes=[(0.5, 0.08 / height, "confidence c in the true class", {"ha": "center"})],
    ).figure()


def target_boxes(count: int) -> list[layout.Box]:
    """Return the boxes of the targets' panels, row by row from the top."""
    width = (drawing.WIDTH - 0.42 - 0.12 - 0.2 * (ACROSS - 1)) / ACROSS
    rows = -(-count // ACROSS)
    places = [divmod(index, ACROSS) for index in range(count)]
    boxes = []
    for row, column in places:
        boxes.append((0.42 + column * (width + 0.2), FOOT + STEP * (rows - 1 - row), width, PANEL - 0.05))
    return boxes


def set_heading(title: str) -> Layer:
    """Set the title of a target's panel."""
    words = fit_words([title], LETTERS)
    return lambda axes: axes.set_title(words, fontsize=drawing.TEXT - 1, y=1.17, pad=0)


def _narrow_labels(axes: Any) -> None:
    axes.tick_params(labelsize=drawing.TEXT - 2)


def _reference_models(models: ConfidencesByGroup) -> list[ModelConfidences]:
    """Return the first query model and the first calibration model, if they exist."""
    return [models[group][0] for group in models if group[0] != "target"]


def _reference_gaps(models: ConfidencesByGroup, targets: Sequence[ModelGroup]) -> dict[ModelGroup, LargestGap]:
    """Return the gaps from the first query model to the first calibration model and to each target's first model."""
    references = _reference_models(models)
    if not references or references[0].who[0] != "query":
        return {}
    other_models = [*references[1:], *(models[group][0] for group in targets)]
    return {model.who: largest_gap(references[0], model) for model in other_models}


def _reference_panel(
    foot: float,
    references: Sequence[ModelConfidences],
    models: ConfidencesByGroup,
    distances: Mapping[ModelGroup, LargestGap],
    places: OddsAxis,
) -> Panel:
    """Return a panel with lines for all query and calibration models, and the distance between the first of each."""
    lines = [layer for model in references for layer in _model_lines(models[model.who], places, FINE)]
    gaps = [layer for model in references[1:] for layer in gap_line(distances.get(model.who), places)]
    up = Axis(limits=SHARES, max_ticks=4)
    return Panel(layout.wide_box(foot + 0.1, 1.95), [*lines, *gaps], places.axis(True), up, "share of images up to c")


def _target_layers(
    target: Sequence[ModelConfidences],
    references: Sequence[ModelConfidences],
    distance: LargestGap | None,
    places: OddsAxis,
) -> list[Layer]:
    """Draw a target's models over the reference lines, with the distance to the first query model."""
    layers = [layer for model in references for layer in _model_lines([model], places, COARSE, 1.0)]
    layers += [*_model_lines(target, places, COARSE, 0.8), *gap_line(distance, places)]
    if distance is not None:
        words = f"one-sided KS {distance.below:.2g}"
        muted: dict[str, Any] = {"fontsize": drawing.TEXT - 1, "color": drawing.light("muted")}
        layers.append(lambda axes: axes.text(0, 1.05, words, transform=axes.transAxes, **muted))
    return layers


def figure_caption(models: ConfidencesByGroup, places: OddsAxis, compared: bool, has_panels: bool) -> str:
    """Return the caption up to the numbers of images and models. `compared` is set if distances are marked."""
    images = format_range([len(model.confidence) for group_models in models.values() for model in group_models])
    largest = max(map(len, models.values()))
    counts = f"{format_range([len(group_models) for group_models in models.values()])} model{'s'[: largest != 1]}"
    cut = ""
    if largest > LINES:
        cut = f" of the first {LINES} models of each"
    caption = (
        f"Share of the images of D_Q with at most this confidence in the true class; each line is a model{cut}, "
        "exact at quantiles and straight between them. The axis is logarithmic towards both ends: log c / (1 - c). "
        f"{places.describe()} "
    )
    if compared:
        caption += (
            "Upright: the one-sided KS distance, where the line of the panel's first model is farthest above that of "
            "the first query model, which is more certain there. "
        )
    if has_panels:
        caption += "In a target's panel, dashed and dotted: the first query and the first calibration model. "
    return f"{caption}n: {images} images, {counts} of each"


def _describe_confidences(
    models: ConfidencesByGroup, distances: Mapping[str, LargestGap], names: Mapping[int, str]
) -> str:
    """Describe the median confidence of each role and target, and the distances."""
    together = {}
    for group, group_models in models.items():
        together[group] = np.concatenate([model.confidence for model in group_models])
    medians = (
        f"{group_name(group, names)}: median c {_format_confidence(float(np.median(values)))}, "
        f"{100 * float((values >= 1).mean()):.0f} % at 1."
        for group, values in together.items()
    )
    apart = (
        f"{name}: one-sided KS {drawing.format_number(distance.below)} at c = "
        f"{_format_confidence(distance.confidence)}."
        for name, distance in distances.items()
    )
    return " ".join([*medians, *apart])


@with_columns(NEEDED, list)
def read_confidences(table: pa.Table) -> list[ModelConfidences]:
    """Read each model's confidences on D_Q in batches, because there may be millions of rows."""
    parts: dict[tuple[str, int, int], list[tuple[Array, float]]] = {}
    for batch in table.select(sorted(NEEDED)).to_batches():
        of_query = pc.equal(batch.column("set"), "query")
        batch = batch.filter(of_query)
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([batch])
        role = batch.column("model").dictionary_encode()
        codes = numbers(pa.table({"code": role.indices}), "code")
        values = numbers(rows, "confidence")
        resolution = numbers(rows, "resolution")
        keys = np.stack([np.nan_to_num(codes, nan=-1), target_numbers(rows), integers(rows, "replicate")]).astype(
            np.int64
        )
        edges = np.flatnonzero(np.any(keys[:, 1:] != keys[:, :-1], axis=0)) + 1
        for first, last in zip([0, *edges], [*edges, len(values)], strict=True):
            is_known = ~np.isnan(values[first:last])
            if keys[0, first] < 0 or not is_known.any():
                continue
            name = role.dictionary[int(keys[0, first])].as_py()
            of_model = parts.setdefault((name, int(keys[1, first]), int(keys[2, first])), [])
            places = resolution[first:last][is_known]
            of_model.append((values[first:last][is_known], float(np.nan_to_num(places).max())))
    models = []
    for (role, target, replicate), of_model in sorted(parts.items()):
        confidence = np.sort(np.concatenate([values for values, _ in of_model]))
        lowest_precision = max(precision for _, precision in of_model)
        models.append(ModelConfidences((role, target), replicate, confidence, lowest_precision))
    return models


@dataclass(frozen=True)
class OddsAxis:
    """Axis for confidences: the logarithm of their odds, with extremes drawn at the edges."""

    low: float
    high: float
    below: int  # values drawn at the left edge
    saturated: int  # values equal to 1
    n: int

    @classmethod
    def from_models(cls, models: Sequence[ModelConfidences]) -> OddsAxis:
        """Create an axis for the confidences of these models, leaving out a tail of each."""
        ends = []
        below = saturated = n = 0
        for model in models:
            c = model.confidence
            inside = c[(c > 0) & (c < 1)]
            n = n + len(c)
            saturated = saturated + int((c >= 1).sum())
            if len(inside):
                ends += np.quantile(log_odds(inside), (TAIL, 1.0), method="lower").tolist()
        low = float(np.clip(min(ends, default=0.0), LOWEST, -1.0))
        high = float(np.clip(max(ends, default=0.0), 1.0, HIGHEST))
        for model in models:
            below += int((log_odds(model.confidence) < low).sum())
        return cls(low, high, below, saturated, n)

    def positions(self, confidence: Array) -> Array:
        """Map confidences to positions. Those beyond the axis are placed half a decade outside its ends."""
        x = np.minimum(log_odds(confidence), self.high + 0.5)
        return np.where(x < self.low, self.low - 0.5, x)

    def axis(self, worded: bool, narrow: bool = False) -> Axis:
        """Return an axis with as many ticks as fit, at confidences with round odds. `worded` adds their labels."""
        apart = (0.3 if narrow else 0.13) * self.width
        words = {self.high + 0.5: "1", 0.0: "½"}
        for decade in (2, 4, 6, -2, -4) if self.width > 5 else (1, 2, 3, -1, -2, -3):
            if self.low <= decade <= self.high and all(abs(decade - labelled) >= apart for labelled in words):
                words[float(decade)] = tick_label(decade)
        limits = (self.low - 0.5 - 0.02 * self.width, self.high + 0.5 + 0.02 * self.width)
        return Axis(limits=limits, ticks=(list(words), list(words.values())), has_tick_labels=worded)

    @property
    def width(self) -> float:
        return self.high - self.low + 1

    def describe(self) -> str:
        """Describe the confidences that are drawn at the edges."""
        words = [
            f"At the right edge: c of 1 at the available precision, {format_share(self.saturated, self.n)} of all."
        ]
        if self.below:
            smallest = drawing.format_number(float(1 / (1 + 10**-self.low)))
            words.append(f"At the left: c below {smallest}, {format_share(self.below, self.n)}.")
        return " ".join(words)


def log_odds(confidence: Array) -> Array:
    """Compute log10 of c / (1 - c), which is infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        odds: Array = np.log10(confidence) - np.log10(1 - confidence)
    return odds


def tick_label(decade: int) -> str:
    """Return a rounded tick label for the confidence with these odds: 0.001, 0.9, 0.999, 1–10⁻⁴."""
    if decade < 0:
        return drawing.format_power(10.0**decade)
    if decade <= 3:
        return f"{1 - 10.0**-decade:.{decade}f}"
    return f"1–{drawing.format_power(10.0**-decade)}"


def _format_confidence(value: float) -> str:
    """Format a confidence. Values near 1 are given by their difference from 1."""
    if 0.99 < value < 1:
        return f"1 - {drawing.format_number(1 - value)}"
    return drawing.format_number(value)


def format_share(part: int, total: int) -> str:
    return f"{100 * part / total:.3g} %"


def _model_lines(
    models: Sequence[ModelConfidences], places: OddsAxis, points: int, width: float = 1.1
) -> Iterator[Layer]:
    """Draw a thin line for each model."""
    for model in models[:LINES]:
        colour, _, dash = ROLES[model.who[0]]
        yield line(*empirical_cdf(model.confidence, places, points), colour, linewidth=width, linestyle=dash)


def empirical_cdf(confidence: Array, places: OddsAxis, points: int) -> tuple[Array, Array]:
    """Return the empirical distribution of sorted confidences as a path through this many quantiles.

    It is exact at the quantiles, with a step at tied values.
    """
    n = len(confidence)
    positions = np.unique(confidence[np.round(np.linspace(0, n - 1, min(points, n))).astype(np.int64)])
    before = np.searchsorted(confidence, positions, side="left") / n
    after = np.searchsorted(confidence, positions, side="right") / n
    x = places.positions(positions).repeat(2)
    y = np.stack([before, after], axis=1).ravel()
    keep = np.ones(len(y), np.bool_)
    keep[0::2] = (after - before) > 1 / points  # the part before a small step lies on the line anyway
    keep[0] = True
    x, y = x[keep], y[keep]
    return np.array([x[0], *x, places.high + 0.5]), np.array([0.0, *y, 1.0])


def gap_line(distance: LargestGap | None, places: OddsAxis) -> Iterator[Layer]:
    """Draw a vertical line at the largest gap between two distributions. Nothing is drawn for a distance of 0."""
    if distance is not None and distance.below > 0:
        (x,) = places.positions(np.array([distance.confidence]))
        yield lambda axes: axes.plot([x, x], distance.shares, zorder=4, **UPRIGHT)


def legend_entries(models: ConfidencesByGroup, compared: bool) -> list[Any]:
    """Return legend entries for the roles, and for distances if they are marked."""
    words = {"query": "trained on D_Q", "calibration": "trained on D_C", "target": "target"}
    handles = []
    for role in dict.fromkeys(group[0] for group in models):
        colour, _, dash = ROLES[role]
        handles.append(legend.line(words[role], color=drawing.light(colour), linestyle=dash, linewidth=1.5))
    if compared:
        handles.append(legend.line("one-sided KS", color=drawing.light("ink"), **FAR))
    return handles
