"""The evidence of the test: image scores in D_Q and in the control set, with one panel per target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting.query_confidences import (
    ACROSS,
    FAR,
    FOOT,
    STEP,
    TARGETS,
    UPRIGHT,
    set_heading,
    target_boxes,
)
from dashboards.chart import Axis, Chart, Figure, Layer, Panel
from dashboards.columns import with_columns
from dashboards.summary import format_range
from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.exchangeability import Array
from tasks.audits.forgetting.measures.query_confidences import CONFIDENCES
from tasks.audits.forgetting.model_effects import Decisions, ModelEffects
from tasks.audits.forgetting.rho import Farthest, farthest

INNOCENT = "a calibration model"
POINTS = 150  # quantiles at which a line is exact; it is straight in between
SHOWN = (0.001, 0.995)  # quantiles of all scores at which the axis ends
EVEN = 0.3  # the axis is linear for scores up to about this size
TICKS = (-3, -1, 0, 1, 3, 10)
CURVES: Mapping[str, Mapping[str, Any]] = {
    "D_Q": {"color": drawing.light("canary"), "linewidth": 1.4},
    "control set": {"color": drawing.light("twin"), "linewidth": 1.2, "linestyle": (0, (4, 1.5))},
}


@dataclass(frozen=True)
class TargetScores:
    """Sorted scores of one target or of a calibration model. `p` is the target's adjusted p-value."""

    name: str
    query: Array
    control: Array
    p: float | None = None

    @property
    def farthest(self) -> Farthest:
        """The largest distance of D_Q's line below the control set's line, and where it occurs."""
        return farthest(self.query, self.control, "one-sided")

    @property
    def heading(self) -> str:
        if self.p is None:
            p = ""
        else:
            p = f", p = {drawing.format_number(self.p)}"
        return f"KS {self.farthest.distance:.2g}{p}"


@with_columns(CONFIDENCES.names)
def exchangeability(table: pa.Table, decided: pa.Table) -> Figure | None:
    """Draw the score distributions of D_Q and the control set. Returns None if there is no control set."""
    if not is_controlled(table):
        return None
    target_scores = list(_target_panels(table, decided))
    if not target_scores:
        return None
    innocent = target_scores[0].name == INNOCENT
    targets = sum(panel.name != INNOCENT for panel in target_scores)
    visible = target_scores[: TARGETS + innocent]
    caption = figure_caption(target_scores, innocent) + layout.left_out_note(
        len(visible) - innocent, targets, "targets"
    )
    rows = -(-len(visible) // ACROSS)
    height = FOOT + STEP * rows + legend.ROW
    every = np.concatenate([values for panel in visible for values in (panel.query, panel.control)])
    low, high = np.quantile(every, SHOWN).tolist()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    words = [f"{tick:g}".replace("-", "\N{MINUS SIGN}") for tick in ticks]
    limits = _axis_positions(np.array([low, high])).tolist()
    panels = []
    for index, (panel, box) in enumerate(zip(visible, target_boxes(len(visible)), strict=True)):
        panels.append(
            Panel(
                box,
                [_draw_panel(panel), set_heading(panel.name)],
                Axis(
                    limits=limits,
                    ticks=(_axis_positions(np.array(ticks)), words),
                    has_tick_labels=index + ACROSS >= len(visible),
                ),
                Axis(limits=(-0.02, 1.02), max_ticks=4, has_tick_labels=index % ACROSS == 0),
            )
        )
    handles = [legend.line(name, **look) for name, look in CURVES.items()]
    return Chart(
        "exchangeability",
        "Does the target know D_Q better than the control set?",
        caption,
        " ".join(f"{panel.name}: one-sided {panel.heading}." for panel in visible),
        height,
        panels,
        [*handles, legend.line("one-sided KS", color=drawing.light("ink"), **FAR)],
        notes=[(0.5, 0.08 / height, "score of an image, standard deviations", {"ha": "center"})],
    ).figure()


def is_controlled(table: pa.Table) -> bool:
    return bool(pc.any(pc.equal(table["set"], "control")).as_py())


def _target_panels(table: pa.Table, decided: pa.Table) -> Iterator[TargetScores]:
    """Yield the panels: one calibration model compared with the others, then each target compared with all.

    The first panel exists only if there are several calibration models.
    """
    matrix = confidence_matrix([table])
    compared = ModelEffects(Decisions(()), matrix)
    if not compared.is_controlled:
        return
    if compared.null_scores:
        yield TargetScores(INNOCENT, *unit_scores(compared, compared.null_scores[0]))
    for target in decided.to_pylist():
        models = matrix.replicates("target", target["target"])
        if models and target["p_adjusted"] is not None:
            effects = ModelEffects(Decisions(()), matrix, max(matrix.models[model].printed for model in models))
            sides = unit_scores(effects, np.mean(effects.scores(models), axis=0))
            yield TargetScores(target["name"], *sides, target["p_adjusted"])


def unit_scores(compared: ModelEffects, image_scores: Array) -> tuple[Array, Array]:
    """Return sorted scores of D_Q and of the control set. Grouped images contribute the mean of their group."""
    values, is_control = compared.unit_scores(image_scores)
    return np.sort(values[~is_control]), np.sort(values[is_control])


def figure_caption(panels: Sequence[TargetScores], innocent: bool) -> str:
    """Return the caption: score, lines, and the numbers of images."""
    innocent_note = ""
    if innocent:
        innocent_note = "The first panel is a model that never saw D_Q: its lines differ only by chance. "
    images = (
        format_range([len(values) for values in of]) for of in zip(*((p.query, p.control) for p in panels), strict=True)
    )
    return (
        "Share of the images with at most this score. The score compares the target's certainty about an image with "
        "its certainty about images that are equally difficult to calibration models, in standard deviations over all "
        "images. For a model that never saw D_Q both lines are alike; for a model that holds some of D_Q, its line "
        "lies to the right. Upright: the one-sided KS distance, where the line of D_Q is farthest below the other. p: "
        "p-value of the randomisation test, adjusted over all targets. "
        f"{innocent_note}The axis is logarithmic on both sides of 0. n: {' images of D_Q, '.join(images)} of the "
        "control set."
    )


def _draw_panel(panel: TargetScores) -> Layer:
    """Draw both lines and their one-sided KS distance."""

    def draw(axes: Any) -> None:
        muted = {"fontsize": drawing.TEXT - 1, "color": drawing.light("muted")}
        axes.text(0, 1.05, panel.heading, transform=axes.transAxes, **muted)
        for values, look in zip((panel.query, panel.control), CURVES.values(), strict=True):
            axes.plot(*empirical_cdf(values), **look)
        far = panel.farthest
        if far.distance > 0:
            ends = [
                np.searchsorted(values, far.value, "right") / len(values) for values in (panel.query, panel.control)
            ]
            axes.plot([_axis_positions(np.array([far.value]))[0]] * 2, ends, zorder=4, **UPRIGHT)

    return draw


def empirical_cdf(values: Array) -> tuple[Array, Array]:
    """Return the empirical distribution of sorted values as a path through POINTS quantiles."""
    quantiles = np.unique(np.round(np.linspace(0, len(values) - 1, min(POINTS, len(values)))).astype(np.int64))
    return _axis_positions(values[quantiles]), (quantiles + 1) / len(values)


def _axis_positions(values: Array) -> Array:
    """Map scores to axis positions: logarithmic on both sides of 0, linear around it."""
    return np.asarray(np.arcsinh(values / EVEN))
