"""The deja vu score by epoch, layer and number of neighbours, and the linear probe: figures 4, 8, 15 and 18."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.attacks import (
    ACROSS,
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

STEP = 1.95  # inches from a panel to the next
LOOKS = {"deja vu score": TARGET, "linear probe, train - test": GAP}
SPLITS = ("train", "validation")  # the first contains the training images of both the model and its probe
NEEDED = {"epoch", "layer", "split", "correct", "n"}
Gaps = Mapping[tuple[int, int], Estimate]  # by epoch and layer


@dataclass(frozen=True)
class ScorePanel:
    """The score over one of ACROSS, and the gap of linear probes, if any."""

    field: str
    score: Curve
    gap: Curve | None

    def draw(self, foot: float, tuned: int | None, unit: str) -> Panel:
        """The panel, `foot` inches from the bottom; `tuned`: the first epoch of fine-tuning."""
        places = self.score.places
        layers: list[Layer] = [level(0)]
        if self.field == "epoch" and tuned is not None:
            layers.append(upright(tuned, {"color": drawing.light("muted"), "linewidth": 0.9}))
        if self.gap is not None:
            layers.append(curve(self.gap, GAP))
        across = drawing.padded_limits([float(places[0]), float(places[-1])], 0.04)
        up = axis_limits([each for each in (self.score, self.gap) if each is not None])
        return Panel(
            layout.wide_box(foot, STEP - 0.7),
            [*layers, curve(self.score, TARGET)],
            Axis(ACROSS[self.field], across, 6, whole=True),
            Axis(unit, up, 4),
        )


def scores(table: pa.Table, probed: Gaps, trained: int | None = None) -> Figure | None:
    """The score by varied setting, and its interval. `trained`: the first epoch of fine-tuning."""
    table = attacks.both_ways_rows(table)
    found = attacks.read_attacks(table)
    if not found:
        return None
    percent, last = decisive_percent(table), attacks.decisive_attack(found)
    rows = rows_at_percent(table, percent)
    panels = [panel for field in ACROSS if (panel := _score_panel(field, rows, found, probed)) is not None]
    if not panels:
        return None
    tuned = trained if trained is not None and last.epoch > trained else None
    gap = (
        "Dotted: the accuracy of a linear probe on training images of its model minus that on other images, a common "
        "indicator of overfitting. "
        if any(panel.gap for panel in panels)
        else ""
    )
    tuning = f"Vertical line: models are fine-tuned on labels after epoch {tuned}. " if tuned is not None else ""
    n = int(integers(attacks.attack_rows(rows, last), "images").max())
    caption = (
        f"The deja vu score at {percent} %: how much more often the model that was trained on an image names its "
        f"object than the other model. Dashed line: 0, no memorisation. {gap}{tuning}Bands: 95 % intervals, n {n:,} "
        f"images. Each panel varies one setting of {last.describe()}."
    )
    probe_given = any(panel.gap for panel in panels)
    return Chart(
        "scores",
        "When and where does memorisation appear?",
        caption,
        " ".join(describe_panel(panel) for panel in panels),
        STEP * len(panels) + 0.1 + (legend.ROW if probe_given else 0.0),
        [
            panel.draw(0.55 + STEP * at, tuned, "share" if probe_given else "deja vu score")
            for at, panel in enumerate(reversed(panels))
        ],
        [legend.series_entry(label, look, linewidth=1.5, markersize=4.5) for label, look in LOOKS.items()]
        if probe_given
        else (),
    ).figure()


def _score_panel(field: str, rows: pa.Table, found: list[attacks.Attack], probed: Gaps) -> ScorePanel | None:
    """The panel of this field; None if it has a single value."""
    chosen = attacks.attacks_along(found, field)
    if len(chosen) < 2:
        return None
    score = read_curve(pa.concat_tables([attacks.attack_rows(rows, each) for each in chosen]), field, "score")
    if score is None:
        return None
    gaps = {
        each._asdict()[field]: probed[each.epoch, each.layer]
        for each in chosen
        if field != "k" and (each.epoch, each.layer) in probed
    }
    return ScorePanel(field, score, _gap_curve(gaps))


def describe_panel(panel: ScorePanel) -> str:
    """Describe the score and the probes' gap at each position."""
    words = [f"Deja vu score by {panel.field}: {_list_estimates(panel.score)}."]
    return " ".join([*words, f"Linear probe, train - test: {_list_estimates(panel.gap)}."] if panel.gap else words)


def _list_estimates(shown: Curve) -> str:
    return ", ".join(f"{shown.describe(at)} at {place:g}" for at, place in enumerate(np.asarray(shown.places)))


@with_columns(NEEDED, dict)
def gaps(table: pa.Table) -> Gaps:
    """Accuracy on training images minus that on other images, over all models, by epoch and layer."""
    found = {}
    for epoch, layer in sorted(set(zip(*(integers(table, name).tolist() for name in ("epoch", "layer")), strict=True))):
        of_cell = table.filter((pc.field("epoch") == epoch) & (pc.field("layer") == layer))
        splits = [of_cell.filter(pc.field("split") == split) for split in SPLITS]
        if all(split.num_rows for split in splits):
            found[epoch, layer] = gap(*map(count_correct, splits))
    return found


def gap(trained: tuple[float, int], others: tuple[float, int]) -> Estimate:
    """The difference of two shares (correct, all) of different images, and its 95 % interval.

    Newcombe 1998, "Interval estimation for the difference between independent proportions", method 10.
    """
    parts = [
        Weighted(weight, np.array([right / asked]), np.array([asked]))
        for weight, (right, asked) in ((1, trained), (-1, others))
    ]
    low, high = limits(parts)
    value = trained[0] / trained[1] - others[0] / others[1]
    return Estimate(value, float(low[0]), float(high[0]), trained[1] + others[1])


def _gap_curve(found: Mapping[int, Estimate]) -> Curve | None:
    """The curve of these gaps; None without any."""
    if not found:
        return None
    places = sorted(found)
    ends = [(found[at].value, found[at].low, found[at].high) for at in places]
    value, low, high = (np.array(values, np.float64) for values in zip(*ends, strict=True))
    return Curve(np.array(places, np.float64), value, low, high)
