"""Figures of the loss of one model: its curve, the scores of both sets, and the most exposed members."""

from __future__ import annotations

from collections.abc import Iterator

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
from tasks.audits.membership.loss_config import LossAttack, ModelAndSets, TrainedExample
from tasks.audits.membership.measures.loss import ROC, exposures
from tasks.datasets.catalog import is_embedded, load
from tasks.datasets.dataset import is_table
from tasks.datasets.images import Images
from tasks.external.split_audit import SCORES

PANEL = 2.6  # inches
BINS = 40
BEYOND = 0.005  # share of scores beyond the bins at each end
SMALLEST = 1e-12  # a loss of 0 has no finite log-odds
EACH = 15  # members shown
SERIES = drawing.SERIES[0]
CAPTION = (
    f"The {EACH} members with the lowest exposure: the share of non-members that the model predicts at least as well. "
    "Easy records have a low exposure in every model, so this order is no evidence about a single record."
)

OPENING_LABEL = "Members that the model predicts better than almost all non-members"


@with_columns(ROC.names, filled="false_positive")
def roc(table: pa.Table) -> Figure | None:
    """Draw the true-positive rate against the false-positive rate, both logarithmic, with the diagonal."""
    rate = numbers(table, "false_positive")
    is_drawn = rate > 0
    if not is_drawn.any():
        return None
    places = rate[is_drawn]
    order = np.argsort(places, kind="stable")
    columns = [numbers(table, f"true_positive{end}")[is_drawn][order] for end in ("", "_low", "_high")]
    members = int(integers(table, "members")[0])
    full_curve = Curve(places[order], *columns, n=members)
    lower_end = float(full_curve.places[0])
    ends = (lower_end, 1.0)
    panel = Panel(
        layout.wide_box(0.55, PANEL),
        [
            line(ends, ends, "muted", linewidth=1.2, linestyle=(0, (4, 3))),
            curve(positive(full_curve, lower_end / 3), SERIES, marked=0),
        ],
        x=Axis("false-positive rate", log=ends),
        y=Axis("true-positive rate", (lower_end / 3, 1.3), log=ends),
        finish=[lambda axes: drawing.set_log_y_axis(axes, wide=True)],
    )
    described = []
    for wanted in (0.01, 0.1):
        index = int(np.abs(np.log(full_curve.places / wanted)).argmin())
        described.append(
            f"{full_curve.describe(index)} at a false-positive rate of {100 * float(full_curve.places[index]):.2g} %"
        )
    return Chart(
        "roc",
        "How many members does the loss find at a low false-positive rate?",
        f"Share of the {members:,} members (vertical) and of the non-members (horizontal) that the model predicts "
        "better than a threshold. Shade: exact 95 % intervals over members, at each threshold. Dashed: a model that "
        "does not know its training data.",
        f"True-positive rate {', '.join(described)}.",
        PANEL + 0.7,
        [panel],
        [],
    ).figure()


@with_columns(SCORES.names, filled="log_p")
def histograms(table: pa.Table) -> Figure | None:
    """Draw the scores of members and non-members as log-odds, which order them in the same way as the loss."""
    log_p = np.minimum(numbers(table, "log_p"), -SMALLEST)
    scores = log_p - np.log(-np.expm1(log_p))
    member = integers(table, "member") == 1
    low, high = np.quantile(scores, (BEYOND, 1 - BEYOND))
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    layers = []
    words = []
    for inside, (side, colour) in WIDE_SIDES.items():
        counts = np.histogram(np.clip(scores[member == inside], edges[0], edges[-1]), edges)[0]
        layers.append(histogram(counts / counts.sum(), edges, colour))
        words.append(f"{side} {drawing.format_number(median(counts, edges))}")
    facet = Facet(layers, "", Axis("share", max_ticks=4), Axis("log-odds of the label, nats"))
    return Chart(
        "scores",
        "How different is the loss on members and on non-members?",
        f"Log-odds of the label for {int(member.sum()):,} members and {int((~member).sum()):,} non-members. They rise "
        "as the loss falls. The outer bins include more extreme values. If the model does not know its training data, "
        "both histograms are equal.",
        f"Medians: {', '.join(words)}.",
        1.95 + legend.ROW,
        facet_panels([facet], 1.75),
        [legend.area(side, color=drawing.light(colour)) for side, colour in WIDE_SIDES.values()],
    ).figure()


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """Show the most exposed members. Returns None if no record was scored."""
    return exposed_gallery(run.table("loss_scores"), run, show_images)


@with_columns(SCORES.names, filled="log_p")
def exposed_gallery(table: pa.Table, run: Run, show_images: bool) -> Gallery | None:
    """Show the members in the table in order of exposure, and then of their score."""
    is_member = integers(table, "member") == 1
    exposure = exposures(table)
    log_p = numbers(table, "log_p")
    order = np.lexsort((-log_p, exposure))
    shown = order[is_member[order]][:EACH]
    positions = integers(table, "position")
    listed = f"Positions of the members: {', '.join(str(positions[row]) for row in shown)}."
    config = run.private_config
    source = None
    if isinstance(config, Membership) and isinstance(config.question, LossAttack):
        source = config.question.source
    if not isinstance(source, ModelAndSets | TrainedExample):
        return Gallery(CAPTION, False, f"The run recorded scores only, so no image can be drawn. {listed}")
    data = source.data if isinstance(source, TrainedExample) else source.members
    if is_table(data):
        return Gallery(CAPTION, False, f"Records of a table are not drawn. {listed}")
    if not (show_images or is_embedded(data.name)):
        return Gallery(CAPTION, False, f"{describe_withheld(f'Images of {data.named().name}')} {listed}")

    def draw() -> Iterator[Picture]:
        images = load(data)
        for row in shown:
            pixels, label = _member(images, int(positions[row]))
            title = (
                f"position {positions[row]}, label {label}, exposure {drawing.format_number(float(exposure[row]))}, "
                f"probability of the label {np.exp(log_p[row]):.3f}"
            )
            yield Picture(encode_png(pixels), title, f"Member, {title}")

    try:
        return Gallery(CAPTION, True, "", tuple(draw()), opening_label=OPENING_LABEL)
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(CAPTION, False, f"The images cannot be drawn{error_reason(run, error)}. {listed}")


def _member(images: Images, position: int) -> tuple[NDArray[np.uint8], object]:
    """Return the pixels and the label of an image. Positions count the training split first, then the test split."""
    trained = len(images.train_labels)
    if position < trained:
        pixels = images.train_images[position]
        label = images.train_labels[position]
    else:
        pixels = images.test_images[position - trained]
        label = images.test_labels[position - trained]
    return pixels, images.names[label] if images.names else label
