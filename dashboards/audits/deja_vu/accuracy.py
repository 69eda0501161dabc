"""Accuracy of label inference against the share of most confident images.

The curves of models trained here correspond to figure 3. A given encoder has its own figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.attacks import NAMES, NULL, REFERENCE, TARGET, decisive_percent, read_curve
from dashboards.chart import Axis, Chart, Curve, Figure, Layer, Panel, curve, level, upright
from dashboards.columns import integers, texts, with_columns

LOOKS = dict(zip(NAMES, (TARGET, REFERENCE), strict=True))
REPORTED = (1, 100)  # percentages reported in addition to the decisive one
MAIN_HEIGHT = 2.2  # inches, for the panel of the decisive attack
SMALL_HEIGHT = 1.05  # inches, for each small panel
PER_ROW = 3  # panels per row
SMALL_GAP = 0.55  # inches between small panels
MAX_SMALL_PANELS = 9
DECISIVE = {"color": drawing.light("muted"), "linewidth": 0.9}  # marks the decisive percentage
CORRECTED = "corrected"
GIVEN_NAMES = dict(zip(NAMES, ("given encoder", "reference"), strict=True))
SETS = {"A": "training images of the encoder", "B": "held-out images"}
GIVEN_HEIGHT = 1.55  # inches per panel
GIVEN_GAP = 0.6  # inches between the two panels
PERCENTAGES = Axis(limits=(0, 101), max_ticks=6)


@dataclass(frozen=True)
class Accuracies:
    """Both models' accuracy by percentage. Keys are in the order of NAMES."""

    of_model: dict[str, Curve]
    title: str = ""

    def describe(self, percent: int) -> str:
        """Describe both accuracies at this percentage."""
        words = []
        for name, estimates in self.of_model.items():
            nearest = int(np.abs(estimates.places - percent).argmin())
            words.append(f"{NAMES[name]} {estimates.describe(nearest)}")
        return f"{', '.join(words)} of the most confident {percent} %"


def accuracy(table: pa.Table, is_null: bool = False) -> Figure | None:
    """Draw both models' accuracies for the decisive attack.

    Small panels show attacks that differ from it in one setting.
    """
    table = attacks.both_ways_rows(table)
    all_attacks = attacks.read_attacks(table)
    if not all_attacks:
        return None
    decisive = attacks.decisive_attack(all_attacks)
    estimates = accuracies(table, decisive)
    if estimates is None:
        return None
    percent = decisive_percent(table)
    variants = []
    for attack in attacks.neighbouring_attacks(all_attacks):
        variant = _variant_accuracies(table, attack, decisive)
        if variant:
            variants.append(variant)
    drawn_variants = _sample_evenly(variants)
    reported_percentages = list(dict.fromkeys((percent, *REPORTED)))
    alt = " ".join(
        [f"Named correctly after {decisive.describe()}: {estimates.describe(each)}." for each in reported_percentages]
        + [f"{each.title}: {each.describe(percent)}." for each in variants]
    )
    n = int(integers(attacks.attack_rows(table, decisive), "images").max())
    caption = (
        "Neighbours of an image's background vote for the removed object. The share that they name correctly among the "
        "images on which they agree most (mean of both directions), by the model that was trained on the image and by "
        "the other model; each has its own most confident images. The difference is the deja vu score, 0 without "
        f"memorisation; vertical line: the decisive {percent} %. Bands: 95 % intervals over images, n {n:,}, "
        f"after {decisive.describe()}."
        f"{' Below: the same with one setting changed.' if drawn_variants else ''}"
        f"{f' {len(drawn_variants)} of {len(variants)} are drawn.' if len(drawn_variants) < len(variants) else ''}"
        f"{NULL if is_null else ''}"
    )
    below = small_panels_height(len(drawn_variants))
    main = _accuracy_panel(
        layout.wide_box(below + 0.55, MAIN_HEIGHT),
        estimates,
        percent,
        Axis("most confident images, %", (0, 101), 6),
        Axis("share named correctly", drawing.padded_limits([0.0, highest_accuracy([estimates])]), 6),
    )
    limits = (0.0, max(highest_accuracy([estimates, *drawn_variants]), 0.01))
    return Chart(
        "accuracy",
        "How often do the neighbours of a background name the object?",
        caption,
        alt,
        MAIN_HEIGHT + 0.65 + legend.ROW + below,
        [main, *small_panels(drawn_variants, percent, limits)],
        legend_entries(),
    ).figure()


def _sample_evenly(variants: Sequence[Accuracies]) -> list[Accuracies]:
    """Select at most MAX_SMALL_PANELS of the variants, evenly spaced."""
    indices = np.linspace(0, len(variants) - 1, min(MAX_SMALL_PANELS, len(variants))).round().astype(np.int64)
    return [variants[index] for index in indices.tolist()]


def accuracies(table: pa.Table, attack: attacks.Attack, title: str = "") -> Accuracies | None:
    """Return both models' accuracies for this attack. Returns None if there are none."""
    rows = attacks.attack_rows(table, attack)
    curves = {name: estimates for name in NAMES if (estimates := read_curve(rows, "percent", name)) is not None}
    if curves:
        return Accuracies(curves, title)
    return None


def _variant_accuracies(table: pa.Table, attack: attacks.Attack, decisive: attacks.Attack) -> Accuracies | None:
    """Return the accuracies of an attack. The title states how it differs from the decisive attack."""
    differing = []
    for name in attack._fields:
        if getattr(attack, name) != getattr(decisive, name):
            differing.append(name)
    return accuracies(table, attack, ", ".join(f"{name} {getattr(attack, name)}" for name in differing))


def small_panels_height(count: int) -> float:
    """Return the height of this many small panels in inches."""
    return (SMALL_HEIGHT + SMALL_GAP) * -(-count // PER_ROW) + (0.1 if count else 0.0)


def small_panels(variants: Sequence[Accuracies], percent: int, limits: tuple[float, float]) -> list[Panel]:
    """Lay out small panels at the bottom of the figure, on a common scale."""
    panel_width = (drawing.WIDTH - layout.LEFT - layout.RIGHT - 0.3 * (PER_ROW - 1)) / PER_ROW
    rows = -(-len(variants) // PER_ROW)
    panels = []
    for index, variant in enumerate(variants):
        row, column = divmod(index, PER_ROW)
        box = (
            layout.LEFT + column * (panel_width + 0.3),
            0.3 + (SMALL_HEIGHT + SMALL_GAP) * (rows - 1 - row),
            panel_width,
            SMALL_HEIGHT,
        )
        y_axis = Axis(limits=drawing.padded_limits(limits), max_ticks=3, has_tick_labels=not column)
        panels.append(_accuracy_panel(box, variant, percent, Axis(limits=(0, 101), max_ticks=3), y_axis, variant.title))
    return panels


def _accuracy_panel(
    box: layout.Box, both_models: Accuracies, percent: int, x_axis: Axis, y_axis: Axis, title: str = ""
) -> Panel:
    """Return a panel with both models' curves and bands, and a vertical line at the decisive percentage."""
    return Panel(box, _accuracy_layers(both_models.of_model, percent), x_axis, y_axis, title, drawing.TEXT - 1)


def _accuracy_layers(curves: dict[str, Curve], percent: int) -> list[Layer]:
    """Return a vertical line at the decisive percentage, followed by the models' curves and bands."""
    return [
        upright(percent, DECISIVE),
        *(curve(estimates, LOOKS[name]) for name, estimates in reversed(curves.items())),
    ]


def highest_accuracy(all_accuracies: Sequence[Accuracies]) -> float:
    """Return the highest accuracy or interval end."""
    ends = [
        values
        for each in all_accuracies
        for of_model in each.of_model.values()
        for values in (of_model.value, of_model.high)
    ]
    return float(np.nanmax(np.concatenate(ends)))


def legend_entries(names: Mapping[str, str] | None = None) -> list[Any]:
    """Return legend entries for the two models, labelled with these names or with their training data."""
    names = names or {name: f"model {label}" for name, label in NAMES.items()}
    entries = []
    for name, label in names.items():
        entries.append(legend.line(label, color=drawing.light(LOOKS[name][0]), linestyle=LOOKS[name][2], linewidth=1.5))
    return entries


@with_columns({*attacks.Attack._fields, "way"})
def accuracy_of_given(table: pa.Table) -> Figure | None:
    """Draw both models' accuracies on both sets, and the corrected score. Returns None for models trained here."""
    all_attacks = attacks.read_attacks(table)
    if not all_attacks or CORRECTED not in texts(table, "way"):
        return None
    decisive = attacks.decisive_attack(all_attacks)
    rows = attacks.attack_rows(table, decisive)
    percent = decisive_percent(rows)
    panels: dict[str, dict[str, Curve]] = {}
    for name in SETS:
        panels[name] = {}
        for column in GIVEN_NAMES:
            column_curve = read_curve(_way_rows(rows, name), "percent", column)
            if column_curve:
                panels[name][column] = column_curve
    score = read_curve(_way_rows(rows, CORRECTED), "percent", "score")
    if score is None:
        return None
    n = int(integers(_way_rows(rows, CORRECTED), "images").max())
    caption = (
        "Neighbours of an image's background vote for the removed object. The share that they name correctly among the "
        "images on which they agree most, by the given encoder and its reference: for training images of the encoder "
        "(top) and for held-out images. Bottom: the corrected deja vu score, the encoder's lead over the reference on "
        f"training images minus that on held-out images; 0 without memorisation. Vertical line: the decisive {percent} "
        f"%. Bands: 95 % intervals over images, n {n:,}, at layer {decisive.layer} of the reference, "
        f"{decisive.k} neighbours."
    )
    alt = " ".join(
        [
            f"{SETS[name].capitalize()}: {_describe_accuracies(of_set, percent)} named correctly."
            for name, of_set in panels.items()
        ]
        + [f"Corrected deja vu score at {percent} %: {_describe_estimate(score, percent)}."]
    )
    highest = max(
        (float(np.nanmax(estimates.high)) for curves in panels.values() for estimates in curves.values()), default=1.0
    )
    step = GIVEN_HEIGHT + GIVEN_GAP
    y_axis = Axis("share named correctly", drawing.padded_limits([0.0, max(highest, 0.01)]), 4)
    small = drawing.TEXT - 1
    set_panels = [
        Panel(
            layout.wide_box(0.5 + step * (2 - number), GIVEN_HEIGHT),
            _accuracy_layers(column_curve, percent),
            PERCENTAGES,
            y_axis,
            f"{name}: {SETS[name]}",
            small,
        )
        for number, (name, column_curve) in enumerate(panels.items())
    ]
    ends = []
    for values in (score.low, score.high):
        for value in values[~np.isnan(values)]:
            ends.append(float(value))
    score_panel = Panel(
        layout.wide_box(0.5, GIVEN_HEIGHT),
        [level(0), upright(percent, DECISIVE), curve(score, TARGET)],
        Axis("most confident images, %", (0, 101), 6),
        Axis("corrected score", drawing.padded_limits([0.0, *ends]), 4),
    )
    title = "Does the encoder name more objects of its training images?"
    height = step * 3 + 0.1 + legend.ROW
    return Chart(
        "accuracy", title, caption, alt, height, [*set_panels, score_panel], legend_entries(GIVEN_NAMES)
    ).figure()


def _way_rows(rows: pa.Table, way: str) -> pa.Table:
    return rows.take(pa.array(np.flatnonzero(texts(rows, "way") == way)))


def _describe_accuracies(curves: dict[str, Curve], percent: int) -> str:
    """Describe both accuracies at this percentage."""
    return ", ".join(
        f"{GIVEN_NAMES[name]} {_describe_estimate(estimates, percent)}" for name, estimates in curves.items()
    )


def _describe_estimate(estimates: Curve, percent: int) -> str:
    return estimates.describe(int(np.abs(estimates.places - percent).argmin()))
