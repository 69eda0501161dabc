"""The exact copies among the records of a run: a row of its summary, and the sentence of its answer that counts them.

An audit whose summary's config has the field `copies` (`tasks.datasets.copies.CopyCount`) has both. Runs without copies
have neither, so that their tables and answers are those of before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tasks.contract.summaries import Row, alone, first_row, index_rows, read_setting, row

COPIES = "groups of exact copies"
TRAINING_TEXTS = "training texts"  # trained on together with the secrets, which are the records


def copy_rows(about: Any) -> Iterator[Row]:
    """The row of the groups of exact copies, with the number of copies in its setting; none without copies."""
    copies = getattr(about, "copies", None)
    if copies is not None and copies.groups:
        yield row(COPIES, {copies.things: copies.images}, alone(float(copies.groups), copies.records), "record")


def describe_copies(summary: pa.Table) -> str:
    """How exact copies among the records were counted, a sentence; empty if there are none."""
    copies = first_row(index_rows(summary), COPIES)
    if copies is None:
        return ""
    ((things, count),) = read_setting(copies).items()
    if things == TRAINING_TEXTS:
        occurs = "occurs" if copies["estimate"] == 1 else "occur"
        return (
            f"Of {copies['n']:,} different training texts, {copies['estimate']:,.0f} {occurs} several times, {count:,} "
            "times in all; secrets have no copies."
        )
    return (
        f"Exact copies count as one record: {copies['estimate']:,.0f} of the {copies['n']:,} records "
        f"{'stands' if copies['estimate'] == 1 else 'stand'} for {count:,} {things}."
    )
