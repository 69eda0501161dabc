"""The records that a training on them changes most, and least."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dashboards.audits.membership.attacks import has_columns
from dashboards.columns import integers, numbers
from dashboards.gallery import Gallery, Picture, encode_png, error_reason
from dashboards.run import Run
from tasks.audits.membership.config import Membership
from tasks.audits.membership.measures.records import RECORDS
from tasks.datasets.catalog import is_embedded, load

EACH = 15  # records of either group
CAPTION = (
    f"The {EACH} records with the highest mem, those of equal mem by their effect in nats, and the {EACH} with the "
    "lowest, each with its label and the p-value of its exact test."
)
GROUPS = ("Most memorised", "Least memorised")


def pictures(run: Run, show_images: bool) -> Gallery | None:
    """The records in the order of mem; None where no record was tested."""
    table = run.table("records")
    if not has_columns(table, RECORDS):
        return None
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
    if not (show_images or is_embedded(config.data.name)):
        hidden = f"Images of {config.data.named().name} are yours and are not shown unless asked for with --show-images"
        return Gallery(CAPTION, False, f"{hidden}. Rows of records. {words}")

    def draw() -> Iterator[Picture]:
        images = load(config.data)
        for name, places in groups.items():
            for at in places:
                row = int(rows[at])
                label = images.names[images.train_labels[row]] if images.names else images.train_labels[row]
                title = f"row {row}, {label}, mem {mem[at]:.2f}, effect {effect[at]:.1f}, p {p_values[at]:.2g}"
                yield Picture(encode_png(images.train_images[row]), title, f"Record, {title}", name)

    try:
        return Gallery(CAPTION, True, "", tuple(draw()))
    except (ValueError, OSError, IndexError) as error:  # DatasetError among them
        return Gallery(CAPTION, False, f"The pictures cannot be drawn{error_reason(run, error)}. {words}")
