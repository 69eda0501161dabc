"""The number of exact copies among the records of a run: a summary row and a sentence of the answer.

An audit reports both if its summary's config has the field `copies` (`tasks.datasets.copies.CopyCount`). Runs without
copies have neither, so their tables and answers do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tasks.contract.summaries import Row, alone, first_row, index_rows, read_setting, row

COPIES = "groups of exact copies"
TRAINING_TEXTS = "training texts"  # used in training along with the secrets, which are the records


def copy_rows(about: Any) -> Iterator[Row]:
    """Yield the number of groups of exact copies, if there are any. The setting contains the number of copies."""
    copies = getattr(about, "copies", None)
    if copies is not None and copies.groups:
        yield row(COPIES, {copies.things: copies.images}, alone(float(copies.groups), copies.records), "record")


def describe_copies(summary: pa.Table) -> str:
    """Return a sentence on how exact copies were counted, or an empty string if there are none."""
    copies = first_row(index_rows(summary), COPIES)
    if copies is None:
        return ""
    ((things, count),) = read_setting(copies).items()
    if things == TRAINING_TEXTS:
        occurs = "occurs" if copies["estimate"] == 1 else "occur"
        return (
            f"Of {copies['n']:,} different training texts, {copies['estimate']:,.0f} {occurs} several times, {count:,} "
            "times in total; secrets have no copies."
        )
    return (
        f"Exact copies count as one record: {copies['estimate']:,.0f} of the {copies['n']:,} records "
        f"{'represents' if copies['estimate'] == 1 else 'represent'} {count:,} {things}."
    )
