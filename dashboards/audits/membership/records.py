"""Figures of records: the effect of training on each record, their images, and false positives per record."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.membership.attacks import LOOKS
from dashboards.chart import Axis, Chart, Facet, Figure, Panel, facet_panels, histogram, line, upright
from dashboards.columns import integers, numbers, texts, with_columns
from dashboards.gallery import Gallery, Picture, describe_withheld, encode_png, error_reason, list_groups
from dashboards.run import Run
from tasks.audits.membership.config import Membership
from tasks.audits.membership.image_parts import record_part
from tasks.audits.membership.measures.curves import AT, CALLS, repeated_rate
from tasks.audits.membership.measures.records import RECORDS
from tasks.contract.summaries import p_digits
from tasks.datasets.catalog import is_embedded, load
from tasks.datasets.dataset import is_table
from tasks.datasets.picture_rows import one_image

BINS = 36
PANEL = 1.8  # inches
ACCUSED = ("loss", "LiRA online", "BaVarIA-t")  # attacks in the figure of false positives
MARKERS = (7.5, 6.0, 4.0)  # sizes, with the largest at the bottom because attacks often agree

EACH = 15  # records per group
CAPTION = (
    f"The {EACH} records with the highest mem and the {EACH} with the lowest, in order of mem and then of their "
    "effect, with label and p-value of the exact test."
)
OPENING_LABEL = "Records whose answer depends most on whether a model was trained on them"
GROUPS = ("Most memorised", "Least memorised")


@with_columns(RECORDS.names, filled="row")
def influence(table: pa.Table) -> Figure | None:
    """Draw histograms of effect and mem, over all records and over the records found."""
    is_found = integers(table, "found") == 1
    columns = {"effect": "effect, nats", "mem": "mem, difference in accuracy"}
    values = {name: numbers(table, name) for name in columns}
    is_tested = ~np.isnan(values["effect"]) & ~np.isnan(values["mem"])
    if not is_tested.any():
        return None
    facets = []
    for name, label in columns.items():
        drawn_values = values[name][is_tested]
        edges = np.linspace(
            *drawing.padded_limits([float(drawn_values.min()), float(drawn_values.max()), 0.0], 0.02), BINS + 1
        )
        layers = []
        for subset, colour in ((drawn_values, "twin"), (drawn_values[is_found[is_tested]], "canary")):
            layers.append(histogram(np.histogram(subset, edges)[0], edges, colour))
        facets.append(Facet([upright(0), *layers], y=Axis("records", max_ticks=4), x=Axis(label)))
    n = int(is_tested.sum())
    hits = int((is_found & is_tested).sum())
    high = np.flatnonzero(is_tested)[np.argsort(values["mem"][is_tested])[::-1][:3]]
    rows = integers(table, "row")
    return Chart(
        "influence",
        "How much does training on a record change the model's output for it?",
        f"For each of {n:,} records, models trained on it minus the others: mean log-odds of its label (effect), and "
        "accuracy (mem, Feldman and Zhang 2020). The exact test uses the effect. Dashed: 0, the mean if nothing is "
        "memorised.",
        f"{hits:,} of {n:,} records are found. Effect: median "
        f"{drawing.format_number(float(np.median(values['effect'][is_tested])))} nats; of records found "
        f"{drawing.format_number(float(np.median(values['effect'][is_tested & is_found])) if hits else None)}. mem: "
        f"mean {drawing.format_number(float(values['mem'][is_tested].mean()))}, largest of rows "
        + ", ".join(f"{rows[index]} ({values['mem'][index]:.2f})" for index in high)
        + ".",
        2 * PANEL + 0.2 + legend.ROW,
        facet_panels(facets, PANEL, gap=0.62),
        [
            legend.area("all records", color=drawing.light("twin")),
            legend.area("records found", color=drawing.light("canary")),
        ],
    ).figure()


def pictures(run: Run, show_images: bool) -> Gallery | None:
    """Show the records in order of mem. Returns None if no record was tested."""
    return record_gallery(run.table("records"), run, show_images)


@with_columns(RECORDS.names, filled="row")
def record_gallery(table: pa.Table, run: Run, show_images: bool) -> Gallery | None:
    """Show the records in the table in order of mem. Returns None if no record was tested."""
    mem = numbers(table, "mem")
    effect = numbers(table, "effect")
    p_values = numbers(table, "p_value")
    tested = np.flatnonzero(~np.isnan(p_values))
    rows = integers(table, "row")
    if not len(tested):
        return None
    order = tested[np.lexsort((effect[tested], mem[tested]))][::-1]
    count = min(EACH, len(order) // 2) or len(order)
    groups = dict(zip(GROUPS, (order[:count], order[count:][::-1][:count]), strict=True))
    config = run.private_config
    if not isinstance(config, Membership) or config.data is None:
        return Gallery(CAPTION, False, "The images cannot be drawn: the audit has changed since the run.")
    words = list_groups({name: rows[places] for name, places in groups.items() if len(places)})
    data = config.data
    if is_table(data):
        return Gallery(CAPTION, False, f"Records of a table are not drawn. Rows of the records: {words}")
    if not (show_images or is_embedded(data.name)):
        hidden = describe_withheld(f"Images of {data.named().name}")
        return Gallery(CAPTION, False, f"{hidden} Rows of the records: {words}")

    def draw() -> Iterator[Picture]:
        images = load(record_part(config).data)
        for name, places in groups.items():
            for index in places:
                row = int(rows[index])
                if images.names:
                    label = images.names[images.train.labels[row]]
                else:
                    label = images.train.labels[row]
                nats = effect[index].round(1) + 0.0  # + 0.0 turns -0.0 into 0.0
                p_value = p_digits(p_values[index])
                title = f"row {row}, label {label}, mem {mem[index]:.2f}, effect {nats:.1f} nats, p {p_value}"
                yield Picture(encode_png(one_image(images.train, row)), title, f"Record, {title}", name)

    try:
        return Gallery(CAPTION, True, "", tuple(draw()), opening_label=OPENING_LABEL)
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(CAPTION, False, f"The images cannot be drawn{error_reason(run, error)}. {words}")


@with_columns(CALLS.names, filled="attack")
def calls(table: pa.Table) -> Figure | None:
    """Draw the share of records by minimum false-positive rate for each attack, compared with chance."""
    from scipy import stats

    attack = texts(table, "attack")
    alarms = integers(table, "called_outside")
    models = integers(table, "outside")
    names = [name for name in ACCUSED if (attack == name).any()]
    layers = []
    words = []
    smallest_share = 1.0
    highest = 0.0
    for size, name in zip(MARKERS, names, strict=False):
        its = alarms[attack == name]
        model_counts = models[attack == name]
        largest_count = int(model_counts.max())
        counts = np.arange(largest_count + 1)
        shares = np.array([(its >= count).mean() for count in counts])
        colour, marker, dash = LOOKS[name]
        look = {"marker": marker, "markersize": size, "linestyle": dash}
        highest = max(highest, float(its.max() + 1) / largest_count)
        smallest_share = min(smallest_share, float(shares[shares > 0].min()))
        pooled = float(its.sum() / model_counts.sum())
        chance = stats.binom.sf(counts - 1, largest_count, pooled)
        layers += [
            line(
                counts / largest_count, np.where(chance > 0, chance, np.nan), colour, linewidth=1, linestyle=(0, (1, 2))
            ),
            line(counts / largest_count, np.where(shares > 0, shares, np.nan), colour, **look),
        ]
        rate = repeated_rate(its.astype(np.float64), model_counts.astype(np.float64))
        words.append(
            f"{name}: pooled rate {drawing.format_number(pooled)}; repeated rate {drawing.format_number(rate)}; at "
            f"most {int(its.max())} of {largest_count} models call one record a member."
        )
    if not names:
        return None
    panel = Panel(
        layout.wide_box(0.55, 2.3),
        layers,
        x=Axis("false-positive rate of a record", (-0.03 * highest, 1.03 * min(highest, 1.0))),
        y=Axis("share of records", (smallest_share / 2, 1.4), log=[smallest_share, 1.0]),
        finish=[lambda axes: drawing.set_log_y_axis(axes, wide=True)],
    )
    entries = [legend.series_entry(name, LOOKS[name]) for name in names]
    return Chart(
        "calls",
        "Which records cause the false positives?",
        "Share of records (vertical) whose false-positive rate is at least the horizontal value: the share of models "
        f"not trained on a record that call it a member, at a nominal rate of {100 * AT:g} %. Dotted: all records at "
        "the pooled rate, with independent errors. A line above the dotted one shows that some records have higher "
        "rates.",
        " ".join(words),
        2.3 + 0.7 + legend.height(len([*entries, 0])),
        [panel],
        [*entries, legend.line("chance", color=drawing.light("muted"), linestyle=(0, (1, 2)))],
    ).figure()
