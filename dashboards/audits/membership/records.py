"""Records one by one: how much a training on them changes what is said of them, in pictures, too, and false alarms."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.membership.attacks import LOOKS
from dashboards.chart import Axis, Chart, Facet, Figure, Panel, facet_panels, histogram, line, upright
from dashboards.columns import integers, numbers, texts, with_columns
from dashboards.gallery import Gallery, Picture, encode_png, error_reason
from dashboards.run import Run
from tasks.audits.membership.config import Membership
from tasks.audits.membership.image_parts import record_part
from tasks.audits.membership.measures.curves import AT, CALLS, repeated_rate
from tasks.audits.membership.measures.records import RECORDS
from tasks.contract.summaries import p_digits
from tasks.datasets.catalog import is_embedded, load

BINS = 36
PANEL = 1.8  # inches
ACCUSED = ("loss", "LiRA online", "BaVarIA-t")  # the attacks that are drawn by record
MARKERS = (7.5, 6.0, 4.0)  # their points, the largest below, since attacks often agree

EACH = 15  # records of either group
CAPTION = (
    f"The {EACH} records with the highest mem, those of equal mem by their effect in nats, and the {EACH} with the "
    "lowest, each with its label and the p-value of its exact test."
)
GROUPS = ("Most memorised", "Least memorised")


@with_columns(RECORDS.names, filled="row")
def influence(table: pa.Table) -> Figure | None:
    """Histograms of the records' effects and of mem: of all, and of those that are found."""
    found = integers(table, "found") == 1
    columns = {"effect": "effect, nats", "mem": "mem, difference of accuracy"}
    values = {name: numbers(table, name) for name in columns}
    there = ~np.isnan(values["effect"]) & ~np.isnan(values["mem"])
    if not there.any():
        return None
    facets = []
    for name, label in columns.items():
        shown = values[name][there]
        edges = np.linspace(*drawing.padded_limits([float(shown.min()), float(shown.max()), 0.0], 0.02), BINS + 1)
        layers = [
            histogram(np.histogram(some, edges)[0], edges, colour)
            for some, colour in ((shown, "twin"), (shown[found[there]], "canary"))
        ]
        facets.append(Facet([upright(0), *layers], y=Axis("records", most=4), x=Axis(label)))
    n, hits = int(there.sum()), int((found & there).sum())
    high = np.flatnonzero(there)[np.argsort(values["mem"][there])[::-1][:3]]
    rows = integers(table, "row")
    return Chart(
        "influence",
        "What does a training on a record change of what is said of it?",
        f"Of each of {n:,} records, by models that were trained on it less by the others: mean log-odds of its label, "
        "and the share of them that say it rightly (mem, Feldman and Zhang 2020). The exact test is of the first, for "
        "each record. Dashed: 0, the mean where nothing is remembered.",
        f"{hits:,} of {n:,} records are found. Effect: median "
        f"{drawing.format_number(float(np.median(values['effect'][there])))} nats, of those found "
        f"{drawing.format_number(float(np.median(values['effect'][there & found])) if hits else None)}. mem: mean "
        f"{drawing.format_number(float(values['mem'][there].mean()))}, largest of rows "
        + ", ".join(f"{rows[at]} ({values['mem'][at]:.2f})" for at in high)
        + ".",
        2 * PANEL + 0.2 + legend.ROW,
        facet_panels(facets, PANEL, gap=0.62),
        [
            legend.area("all records", color=drawing.light("twin")),
            legend.area("those found", color=drawing.light("canary")),
        ],
    ).figure()


def pictures(run: Run, show_images: bool) -> Gallery | None:
    """The records in the order of mem; None where no record was tested."""
    return record_gallery(run.table("records"), run, show_images)


@with_columns(RECORDS.names, filled="row")
def record_gallery(table: pa.Table, run: Run, show_images: bool) -> Gallery | None:
    """The records of the table in the order of mem; None where no record was tested."""
    mem, effect, p_values = (numbers(table, name) for name in ("mem", "effect", "p_value"))
    tested, rows = np.flatnonzero(~np.isnan(p_values)), integers(table, "row")
    if not len(tested):
        return None
    order = tested[np.lexsort((effect[tested], mem[tested]))][::-1]
    count = min(EACH, len(order) // 2) or len(order)
    groups = dict(zip(GROUPS, (order[:count], order[count:][::-1][:count]), strict=True))
    config = run.private_config
    if not isinstance(config, Membership):
        return Gallery(CAPTION, False, "The pictures cannot be drawn: the audit has changed since the run was made.")
    words = " ".join(
        f"{name}: {', '.join(str(row) for row in rows[places])}." for name, places in groups.items() if len(places)
    )
    data = config.data
    if not (show_images or is_embedded(data.name)):
        hidden = f"Images of {data.named().name} are yours and are not shown unless asked for with --show-images"
        return Gallery(CAPTION, False, f"{hidden}. Rows of records. {words}")

    def draw() -> Iterator[Picture]:
        images = load(record_part(config).data)
        for name, places in groups.items():
            for at in places:
                row = int(rows[at])
                label = images.names[images.train_labels[row]] if images.names else images.train_labels[row]
                nats = effect[at].round(1) + 0.0  # which is not written -0.0
                title = (
                    f"row {row}, label {label}, mem {mem[at]:.2f}, effect {nats:.1f} nats, p {p_digits(p_values[at])}"
                )
                yield Picture(encode_png(images.train_images[row]), title, f"Record, {title}", name)

    try:
        return Gallery(CAPTION, True, "", tuple(draw()))
    except (ValueError, OSError, IndexError) as error:  # DatasetError among them
        return Gallery(CAPTION, False, f"The pictures cannot be drawn{error_reason(run, error)}. {words}")


@with_columns(CALLS.names, filled="attack")
def calls(table: pa.Table) -> Figure | None:
    """The share of records whose false-positive rate is at least as large, beside chance, by attack."""
    from scipy import stats

    attack, alarms, models = texts(table, "attack"), integers(table, "called_outside"), integers(table, "outside")
    names = [name for name in ACCUSED if (attack == name).any()]
    layers, words, least, highest = [], [], 1.0, 0.0
    for size, name in zip(MARKERS, names, strict=False):
        its, of = alarms[attack == name], models[attack == name]
        most = int(of.max())
        at = np.arange(most + 1)
        shares = np.array([(its >= count).mean() for count in at])
        colour, marker, dash = LOOKS[name]
        look = {"marker": marker, "markersize": size, "linestyle": dash}
        highest = max(highest, float(its.max() + 1) / most)
        least = min(least, float(shares[shares > 0].min()))
        pooled = float(its.sum() / of.sum())
        chance = stats.binom.sf(at - 1, most, pooled)
        layers += [
            line(at / most, np.where(chance > 0, chance, np.nan), colour, linewidth=1, linestyle=(0, (1, 2))),
            line(at / most, np.where(shares > 0, shares, np.nan), colour, **look),
        ]
        rate = repeated_rate(its.astype(np.float64), of.astype(np.float64))
        words.append(
            f"{name}: pooled {drawing.format_number(pooled)}; of a record that one model accuses wrongly "
            f"{drawing.format_number(rate)}; the most accused record by {int(its.max())} of {most}."
        )
    if not names:
        return None
    panel = Panel(
        layout.wide_box(0.55, 2.3),
        layers,
        x=Axis("false-positive rate of a record", (-0.03 * highest, 1.03 * min(highest, 1.0))),
        y=Axis("share of records", (least / 2, 1.4), log=[least, 1.0]),
        finish=[lambda axes: drawing.set_log_y_axis(axes, wide=True)],
    )
    entries = [legend.series_entry(name, LOOKS[name]) for name in names]
    return Chart(
        "calls",
        "On which records do the false alarms fall?",
        f"Of the models that were not trained on a record, the share by which it is called a member at a nominal "
        f"false-positive rate of {100 * AT:g} %, and the share of records of which that is so or more. Dotted: the "
        "same if all records had the pooled rate and models erred independently. A line above it says that the pooled "
        "rate does not hold for every record.",
        " ".join(words),
        2.3 + 0.7 + legend.height(len([*entries, 0])),
        [panel],
        [*entries, legend.line("chance", color=drawing.light("muted"), linestyle=(0, (1, 2)))],
    ).figure()
