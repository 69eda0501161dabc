"""The deja vu score by epoch, layer and number of neighbours, and the linear probe, as in figures 4, 8, 15 and 18."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.attacks import (
    AXIS_LABELS,
    GAP,
    TARGET,
    axis_limits,
    decisive_percent,
    read_curve,
    rows_at_percent,
)
from dashboards.chart import Axis, Chart, Curve, Figure, Layer, Panel, curve, level, upright
from dashboards.columns import integers, with_columns
from tasks.audits.deja_vu.accuracy import Weighted, limits
from tasks.audits.deja_vu.measures.probe import count_correct
from tasks.contract.summaries import Estimate

STEP = 1.95  # inches from one panel to the next
LOOKS = {"deja vu score": TARGET, "linear probe, train - test": GAP}
SPLITS = ("train", "validation")  # the first contains images on which both the model and its probe were trained
REQUIRED_COLUMNS = {"epoch", "layer", "split", "correct", "n"}
Gaps = Mapping[tuple[int, int], Estimate]  # by epoch and layer


@dataclass(frozen=True)
class ScorePanel:
    """The score against one of AXIS_LABELS, and the gap of linear probes if there is one."""

    field: str
    score: Curve
    gap: Curve | None

    def draw(self, foot: float, tuned: int | None, unit: str) -> Panel:
        """Return the panel, `foot` inches from the bottom. `tuned` is the first epoch of fine-tuning."""
        places = self.score.places
        layers: list[Layer] = [level(0)]
        if self.field == "epoch" and tuned is not None:
            layers.append(upright(tuned, {"color": drawing.light("muted"), "linewidth": 0.9}))
        if self.gap is not None:
            layers.append(curve(self.gap, GAP))
        x_limits = drawing.padded_limits([float(places[0]), float(places[-1])], 0.04)
        y_limits = axis_limits([estimates for estimates in (self.score, self.gap) if estimates is not None])
        return Panel(
            layout.wide_box(foot, STEP - 0.7),
            [*layers, curve(self.score, TARGET)],
            Axis(AXIS_LABELS[self.field], x_limits, 6, integer_ticks=True),
            Axis(unit, y_limits, 4),
        )


def scores(table: pa.Table, probed: Gaps, pretraining_epochs: int | None = None) -> Figure | None:
    """Draw the score against the varied setting, with intervals.

    Fine-tuning starts after epoch `pretraining_epochs`.
    """
    table = attacks.both_ways_rows(table)
    all_attacks = attacks.read_attacks(table)
    if not all_attacks:
        return None
    percent = decisive_percent(table)
    last = attacks.decisive_attack(all_attacks)
    rows = rows_at_percent(table, percent)
    panels = [panel for field in AXIS_LABELS if (panel := _score_panel(field, rows, all_attacks, probed)) is not None]
    if not panels:
        return None
    tuned = None
    if pretraining_epochs is not None and last.epoch > pretraining_epochs:
        tuned = pretraining_epochs
    if any(panel.gap for panel in panels):
        gap = (
            "Dotted: the accuracy of a linear probe on training images of its model minus that on other images, a "
            "common indicator of overfitting. "
        )
    else:
        gap = ""
    tuning_note = ""
    if tuned is not None:
        tuning_note = f"Vertical line: models are fine-tuned on labels after epoch {tuned}. "
    n = int(integers(attacks.attack_rows(rows, last), "images").max())
    caption = (
        f"The deja vu score at {percent} %: how much more often the model that was trained on an image names its "
        f"object than the other model. Dashed line: 0, no memorisation. {gap}{tuning_note}Bands: 95 % intervals, "
        f"n {n:,} images. Each panel varies one setting of {last.describe()}."
    )
    probe_given = any(panel.gap for panel in panels)
    return Chart(
        "scores",
        "When and where does memorisation appear?",
        caption,
        " ".join(describe_panel(panel) for panel in panels),
        STEP * len(panels) + 0.1 + (legend.ROW if probe_given else 0.0),
        [
            panel.draw(0.55 + STEP * index, tuned, "share" if probe_given else "deja vu score")
            for index, panel in enumerate(reversed(panels))
        ],
        [legend.series_entry(label, look, linewidth=1.5, markersize=4.5) for label, look in LOOKS.items()]
        if probe_given
        else (),
    ).figure()


def _score_panel(field: str, rows: pa.Table, all_attacks: list[attacks.Attack], probed: Gaps) -> ScorePanel | None:
    """Return the panel for this field. Returns None if the field has only one value."""
    attacks_of_field = attacks.attacks_along(all_attacks, field)
    if len(attacks_of_field) < 2:
        return None
    score = read_curve(
        pa.concat_tables([attacks.attack_rows(rows, attack) for attack in attacks_of_field]), field, "score"
    )
    if score is None:
        return None
    gaps = {}
    for attack in attacks_of_field:
        if field != "k" and (attack.epoch, attack.layer) in probed:
            gaps[attack._asdict()[field]] = probed[attack.epoch, attack.layer]
    return ScorePanel(field, score, _gap_curve(gaps))


def describe_panel(panel: ScorePanel) -> str:
    """Describe the score and the probe gap at each position."""
    words = [f"Deja vu score by {panel.field}: {_list_estimates(panel.score)}."]
    return " ".join([*words, f"Linear probe, train - test: {_list_estimates(panel.gap)}."] if panel.gap else words)


def _list_estimates(estimates: Curve) -> str:
    return ", ".join(
        f"{estimates.describe(index)} at {position:g}" for index, position in enumerate(np.asarray(estimates.places))
    )


@with_columns(REQUIRED_COLUMNS, dict)
def gaps(table: pa.Table) -> Gaps:
    """Return the accuracy on training images minus that on other images, over all models, by epoch and layer."""
    gap_by_cell = {}
    for epoch, layer in sorted(set(zip(*(integers(table, name).tolist() for name in ("epoch", "layer")), strict=True))):
        of_cell = table.filter((pc.field("epoch") == epoch) & (pc.field("layer") == layer))
        splits = [of_cell.filter(pc.field("split") == split) for split in SPLITS]
        if all(split.num_rows for split in splits):
            gap_by_cell[epoch, layer] = gap(*map(count_correct, splits))
    return gap_by_cell


def gap(training: tuple[float, int], held_out: tuple[float, int]) -> Estimate:
    """Return the difference between two shares (correct, all) of different images, and a 95 % interval.

    Newcombe 1998, "Interval estimation for the difference between independent proportions", method 10.
    """
    parts = []
    for weight, (correct, total) in ((1, training), (-1, held_out)):
        parts.append(Weighted(weight, np.array([correct / total]), np.array([total])))
    low, high = limits(parts)
    value = training[0] / training[1] - held_out[0] / held_out[1]
    return Estimate(value, float(low[0]), float(high[0]), training[1] + held_out[1])


def _gap_curve(gap_by_position: Mapping[int, Estimate]) -> Curve | None:
    """Return the curve of these gaps. Returns None if there are none."""
    if not gap_by_position:
        return None
    places = sorted(gap_by_position)
    ends = []
    for position in places:
        ends.append((gap_by_position[position].value, gap_by_position[position].low, gap_by_position[position].high))
    value, low, high = (np.array(values, np.float64) for values in zip(*ends, strict=True))
    return Curve(np.array(places, np.float64), value, low, high)
