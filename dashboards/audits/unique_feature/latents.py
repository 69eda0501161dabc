"""Units, by layer, that the feature activates in images in which they were silent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout
from dashboards.audits.unique_feature.pairs import KIND_NAMES, MODELS, Array
from dashboards.chart import Axis, Chart, Figure, Layer, Panel, annotation, intervals, level
from dashboards.columns import groups, integers, numbers, texts, with_columns

LAYERS = 3  # number of last layers shown
LABELLED = 3  # labelled units per panel
LEAST = 0.2  # excess over random patches required for a label, relative to the layer's most excited unit
PANEL = 1.05  # inches
APART = 0.06  # as a fraction of a layer's units; labels closer than this would overlap
NEEDED = ("canary", "seed", "model", "layer", "units", "unit", "unique", "random")
Excitation = tuple[Array, Array]  # how often the feature and a random patch excite each unit, averaged over models
Panels = dict[tuple[str, str], Excitation]  # by layer and kind of model


@with_columns(NEEDED)
def latents(table: pa.Table) -> Figure | None:
    """Draw how often the feature (up) and random patches (down) excite each unit, for each layer (figure 3b)."""
    rows_of = groups(table, "layer", "model")
    models = _count_models(table)
    panels: Panels = {}
    for layer in list(dict.fromkeys(layer for layer, _ in rows_of))[-LAYERS:]:
        for kind in MODELS:
            if (layer, kind) in rows_of:
                panels[layer, kind] = excitation_rates(rows_of[layer, kind], models[kind])
    if not panels:
        return None
    descriptions = []
    for (name, kind), rates in panels.items():
        units = _describe_units(_units_to_label(rates[0] - rates[1]), rates)
        descriptions.append(f"{name}, {len(rates[0])} units, {KIND_NAMES[kind]} models, {units}")
    alt = " ".join(descriptions)
    title = "Is there a unit that only the feature excites, also without the canary?"
    seeds = len(np.unique(integers(table, "seed")))
    height = (PANEL + 0.35) * len(panels) + 0.25 * len({name for name, _ in panels}) + 0.25
    unit_panels = list(_unit_panels(panels, height))
    return Chart("latents", title, figure_caption(models, seeds), alt, height, unit_panels).figure()


def _unit_panels(panels: Panels, top: float) -> Iterator[Panel]:
    """Yield one panel per layer and kind of model from top to bottom. Each layer has a single scale."""
    last = list({name: (name, kind) for name, kind in panels}.values())  # panels below which the units are numbered
    for (name, kind), rates in panels.items():
        of_layer = [share for (layer, _), pair in panels.items() if layer == name for share in pair]
        largest = max(float(np.max(share)) for share in of_layer) or 1.0
        units = len(rates[0])
        lowest = (name, kind) in last
        top -= PANEL + 0.35
        yield Panel(
            layout.wide_box(top, PANEL),
            list(stems(kind, (rates[0] / largest, rates[1] / largest))),
            Axis(
                "unit" if (name, kind) == last[-1] else "",
                (-0.01 * units - 1, 1.01 * units),
                6,
                integer_ticks=True,
                has_grid=False,
                has_tick_labels=lowest,
            ),
            Axis(limits=(-1.15, 1.4), ticks=([-1, 0, 1], ["random", "0", "feature"])),
            f"{name}, {MODELS[kind]}",
        )
        if lowest:
            top -= 0.25
        else:
            top -= 0


def figure_caption(models: dict[str, int], seeds: int) -> str:
    count = " and ".join(f"{n} {KIND_NAMES[kind]} model{'s'[: n > 1]}" for kind, n in models.items())
    if seeds == 1:
        same = "The models share one training seed, so units can be compared between models. "
    else:
        same = f"The models have {seeds} training seeds, so units differ between models, and means say little. "
    return (
        f"Mean over {count}: share of probe images in which a silent unit becomes active when the feature (up) or a "
        "random patch (down) is added; 1 is the layer's most excited unit. Numbers name units that the feature excites "
        f"by at least {LEAST:g} more than random patches do. {same}In control models, such units respond to the "
        "feature's shape without memory. The paper's units 41 and 175 belong to another network and have no "
        "counterpart here."
    )


def excitation_rates(table: pa.Table, models: int) -> Excitation:
    """Return the mean rates at which the feature and random patches excite each unit.

    Units without a row have rate 0.
    """
    unit = integers(table, "unit")
    units = int(integers(table, "units").max())
    unique = np.bincount(unit, np.nan_to_num(numbers(table, "unique")), units) / models
    random = np.bincount(unit, np.nan_to_num(numbers(table, "random")), units) / models
    return unique, random


def stems(kind: str, rates: Excitation) -> Iterator[Layer]:
    """Draw lines up and down from the axis, with the numbers of the most excited units."""
    unique, random = rates
    for values, sign, colour in ((unique, 1, kind), (random, -1, "muted")):
        active_units = np.flatnonzero(values > 0.002)
        width = 0.6
        if len(unique) <= 300:
            width = 1.1
        yield intervals(active_units, np.zeros(len(active_units)), sign * values[active_units], colour, width)
    yield level(0, {"color": drawing.light("muted"), "linewidth": 0.8})
    for unit in _units_to_number(unique - random):
        tip = (float(unit), float(unique[unit]))
        yield annotation(f"{unit}", tip, (0, 1), ha="center", va="bottom")


def _units_to_number(excess: Array) -> list[int]:
    """Return the labelled units that get a number: far above random patches, and far enough apart."""
    numbered: list[int] = []
    for unit in _units_to_label(excess):
        if excess[unit] >= LEAST and all(abs(unit - other_unit) > APART * len(excess) for other_unit in numbered):
            numbered.append(unit)
    return numbered


def _units_to_label(excess: Array) -> list[int]:
    """Return the units that the feature excites most, relative to random patches."""
    order = np.argsort(-excess, kind="stable")[:LABELLED]
    return [int(unit) for unit in order if excess[unit] > 0]


def _describe_units(units: list[int], rates: Excitation) -> str:
    """Describe how often the labelled units are excited."""
    unique, random = rates
    shares = []
    for unit in units:
        shares.append(
            f"unit {unit} in {drawing.format_number(float(unique[unit]))} of the images with the feature and "
            f"{drawing.format_number(float(random[unit]))} with a random patch"
        )
    if shares:
        return f"most beyond random patches: {'; '.join(shares)}."
    return "none more often by the feature."


def _count_models(table: pa.Table) -> dict[str, int]:
    """Count the models of each kind."""
    pairs = np.stack([integers(table, "canary"), integers(table, "seed")], axis=1)
    model = texts(table, "model")
    return {kind: n for kind in MODELS if (n := len(np.unique(pairs[model == kind], axis=0)))}
