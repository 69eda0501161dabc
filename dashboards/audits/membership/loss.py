"""Figures of the loss of one model: its curves, the scores of both sets, and the most exposed members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.audits.membership.attacks import WIDE_SIDES, median, positive
from dashboards.chart import Axis, Chart, Curve, Facet, Figure, Panel, curve, facet_panels, histogram, line
from dashboards.columns import integers, numbers, with_columns
from dashboards.gallery import Gallery, Picture, describe_withheld, encode_png, error_reason
from dashboards.run import Run
from tasks.audits.membership.config import Membership
from tasks.audits.membership.loss_config import LossAttack, ModelAndSets, OutputsAndSets, TrainedExample
from tasks.audits.membership.measures.calibrated import CALIBRATED
from tasks.audits.membership.measures.loss import ROC, exposures
from tasks.datasets.catalog import image_names, is_embedded, load
from tasks.datasets.dataset import is_table
from tasks.datasets.images import PictureSet
from tasks.datasets.picture_rows import Concatenated, one_image
from tasks.external.split_audit import SCORES

Order = NDArray[np.int64]

PANEL = 2.6  # inches
BINS = 40
BEYOND = 0.005  # share of scores beyond the bins at each end
SMALLEST = 1e-12  # a loss of 0 has no finite log-odds
EACH = 15  # members shown
CAPTION = (
    f"The {EACH} members with the lowest exposure: the share of non-members that the model predicts at least as well. "
    "Easy records have a low exposure in every model, so this order is no evidence about a single record."
)

FOUND_CAPTION = (
    f"The {EACH} members with the smallest p-value: the share of non-members that score at least as high, compared "
    "with reference models. The p-value is exact if both sets were drawn alike."
)

OPENING_LABEL = "Members that the model predicts better than almost all non-members"
FOUND_LABEL = "Members that score higher than almost all non-members"
ALONE = "loss alone"
CALIBRATED_LOSS = "loss and reference models"
SERIES: Mapping[str, legend.Series] = {ALONE: drawing.SERIES[0], CALIBRATED_LOSS: drawing.SERIES[1]}


def roc(table: pa.Table, calibrated: pa.Table) -> Figure | None:
    """Draw the true-positive rate against the false-positive rate, both logarithmic, with the diagonal.

    `calibrated` is the curve of the comparison with references, which may be empty.
    """
    curves = {}
    for name, rows in ((CALIBRATED_LOSS, calibrated), (ALONE, table)):
        full_curve = _read_curve(rows)
        if full_curve is not None:
            curves[name] = full_curve
    if not curves:
        return None
    lower_end = min(float(full_curve.places[0]) for full_curve in curves.values())
    ends = (lower_end, 1.0)
    layers = [line(ends, ends, "muted", linewidth=1.2, linestyle=(0, (4, 3)))]
    for name, full_curve in curves.items():
        layers.append(curve(positive(full_curve, lower_end / 3), SERIES[name], marked=0))
    panel = Panel(
        layout.wide_box(0.55, PANEL),
        layers,
        x=Axis("false-positive rate", log=ends),
        y=Axis("true-positive rate", (lower_end / 3, 1.3), log=ends),
        finish=[lambda axes: drawing.set_log_y_axis(axes, wide=True)],
    )
    described = []
    for name, full_curve in curves.items():
        subject = f"{name}: " if len(curves) > 1 else ""
        described.append(f"{subject}{_describe_curve(full_curve)}")
    members = next(iter(curves.values())).n
    better = "predicts better than a threshold"
    subject = "the loss"
    entries = []
    if CALIBRATED_LOSS in curves:
        better = "predicts better than a threshold, or that score higher compared with reference models"
        subject = "the attack"
        entries = [legend.series_entry(name, SERIES[name], marker="") for name in curves]
    return Chart(
        "roc",
        f"How many members does {subject} find at a low false-positive rate?",
        f"Share of the {members:,} members (vertical) and of the non-members (horizontal) that the model {better}. "
        "Shade: exact 95 % intervals over members, at each threshold. Dashed: a model that does not know its training "
        "data.",
        f"True-positive rate{',' if len(curves) > 1 else ''} {'; '.join(described)}.",
        PANEL + 0.7 + (legend.height(len(entries), 2) if entries else 0.0),
        [panel],
        entries,
    ).figure()


@with_columns(ROC.names, filled="false_positive")
def _read_curve(table: pa.Table) -> Curve | None:
    """Return the curve at positive false-positive rates, or None if there are none."""
    rate = numbers(table, "false_positive")
    is_drawn = rate > 0
    if not is_drawn.any():
        return None
    places = rate[is_drawn]
    order = np.argsort(places, kind="stable")
    columns = [numbers(table, f"true_positive{end}")[is_drawn][order] for end in ("", "_low", "_high")]
    return Curve(places[order], *columns, n=int(integers(table, "members")[0]))


def _describe_curve(full_curve: Curve) -> str:
    described = []
    for wanted in (0.01, 0.1):
        index = int(np.abs(np.log(full_curve.places / wanted)).argmin())
        described.append(
            f"{full_curve.describe(index)} at a false-positive rate of {100 * float(full_curve.places[index]):.2g} %"
        )
    return ", ".join(described)


@with_columns(CALIBRATED.names, filled="score")
def calibrated_histograms(table: pa.Table) -> Figure | None:
    """Draw the scores of members and non-members compared with reference models."""
    references = int(integers(table, "references")[0])
    chart = _compare_sets(numbers(table, "score"), integers(table, "member") == 1, "log-likelihood ratio, nats")
    return replace(
        chart,
        name="calibrated",
        title="How different are both sets, compared with reference models?",
        caption=f"Log-likelihood ratio of each record's loss under the {references} reference models: above 0, the "
        f"model predicts it like those that were trained on it. {chart.caption} If both sets were drawn alike and the "
        "model does not know its training data, both histograms are equal.",
    ).figure()


@with_columns(SCORES.names, filled="log_p")
def histograms(table: pa.Table) -> Figure | None:
    """Draw the scores of members and non-members as log-odds, which order them in the same way as the loss."""
    log_p = np.minimum(numbers(table, "log_p"), -SMALLEST)
    scores = log_p - np.log(-np.expm1(log_p))
    chart = _compare_sets(scores, integers(table, "member") == 1, "log-odds of the label, nats")
    return replace(
        chart,
        title="How different is the loss on members and on non-members?",
        caption=f"Log-odds of the label, which rise as the loss falls. {chart.caption} If the model does not know its "
        "training data, both histograms are equal.",
    ).figure()


def _compare_sets(scores: NDArray[np.float64], member: NDArray[np.bool_], label: str) -> Chart:
    """Return a chart with a histogram of each set's scores. Its caption describes sizes and bins."""
    low, high = np.quantile(scores, (BEYOND, 1 - BEYOND))
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    layers = []
    words = []
    for inside, (side, colour) in WIDE_SIDES.items():
        counts = np.histogram(np.clip(scores[member == inside], edges[0], edges[-1]), edges)[0]
        layers.append(histogram(counts / counts.sum(), edges, colour))
        words.append(f"{side} {drawing.format_number(median(counts, edges))}")
    facet = Facet(layers, "", Axis("share", max_ticks=4), Axis(label))
    return Chart(
        "scores",
        "",
        f"{int(member.sum()):,} members and {int((~member).sum()):,} non-members. The outer bins include more extreme "
        "values.",
        f"Medians: {', '.join(words)}.",
        1.95 + legend.ROW,
        facet_panels([facet], 1.75),
        [legend.area(side, color=drawing.light(colour)) for side, colour in WIDE_SIDES.values()],
    )


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """Show the most exposed members. Returns None if no record was scored."""
    scores = run.table("loss_scores")
    calibrated = run.table("loss_calibrated")
    if calibrated.num_rows and calibrated.num_rows == scores.num_rows:
        return _calibrated_gallery(calibrated, scores, run, show_images)
    return exposed_gallery(scores, run, show_images)


@with_columns(SCORES.names, filled="log_p")
def exposed_gallery(table: pa.Table, run: Run, show_images: bool) -> Gallery | None:
    """Show the members in the table in order of exposure, and then of their score."""
    exposure = exposures(table)
    order = np.lexsort((-numbers(table, "log_p"), exposure))
    titles = [f"exposure {drawing.format_number(value)}" for value in exposure.tolist()]
    return _show_members(table, order, titles, (CAPTION, OPENING_LABEL), run, show_images)


def _calibrated_gallery(calibrated: pa.Table, table: pa.Table, run: Run, show_images: bool) -> Gallery:
    """Show the members in order of their p-value, and then of their score compared with reference models."""
    p_values = numbers(calibrated, "p_value")  # NaN for non-members
    order = np.lexsort((-numbers(calibrated, "score"), p_values))
    titles = []
    for p_value, is_found in zip(p_values.tolist(), integers(calibrated, "found").tolist(), strict=True):
        titles.append(f"p = {drawing.format_number(p_value)}{', found' if is_found else ''}")
    return _show_members(table, order, titles, (FOUND_CAPTION, FOUND_LABEL), run, show_images)


def _show_members(
    table: pa.Table, order: Order, titles: list[str], words: tuple[str, str], run: Run, show_images: bool
) -> Gallery:
    """Show the first members in this order of the rows. `titles` describes each row, and `words` the gallery."""
    caption, opening_label = words
    log_p = numbers(table, "log_p")
    shown = order[integers(table, "member")[order] == 1][:EACH]
    positions = integers(table, "position")
    listed = f"Positions of the members, in the order in which they are read: {', '.join(map(str, positions[shown]))}."
    config = run.private_config
    source = None
    if isinstance(config, Membership) and isinstance(config.question, LossAttack):
        source = config.question.source
    if not isinstance(source, ModelAndSets | OutputsAndSets | TrainedExample):
        return Gallery(caption, False, f"The run recorded scores only, so no image can be drawn. {listed}")
    data = source.data if isinstance(source, TrainedExample) else source.members
    if is_table(data):
        return Gallery(caption, False, f"Records of a table are not drawn. {listed}")
    if not (show_images or is_embedded(data.name)):
        return Gallery(caption, False, f"{describe_withheld(f'Images of {data.named().name}')} {listed}")

    def draw() -> Iterator[Picture]:
        images = load(data)
        names = image_names(data)
        for row in shown:
            position = int(positions[row])
            pixels, label = _member(images, position)
            name = "/".join(PurePosixPath(names[position]).parts[-2:]) if names else f"position {position}"
            title = f"{name}, label {label}, {titles[row]}, probability of the label {np.exp(log_p[row]):.3f}"
            yield Picture(encode_png(pixels), title, f"Member, {title}")

    try:
        return Gallery(caption, True, "", tuple(draw()), opening_label=opening_label)
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(caption, False, f"The images cannot be drawn{error_reason(run, error)}. {listed}")


def _member(images: PictureSet, position: int) -> tuple[NDArray[np.uint8], object]:
    """Return the pixels and the label of an image. Positions count the training split first, then the test split."""
    both = Concatenated((images.train, images.test))
    label = both.labels[position]
    return one_image(both, position), images.names[label] if images.names else label
