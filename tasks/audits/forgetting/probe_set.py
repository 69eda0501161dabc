"""The images that every model is asked about: D_Q and the control set, and how they are handed out to an owner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.catalog import files, load
from tasks.datasets.images import Labels, Pixels
from tasks.datasets.mixtures import Part, Remainder, Rows, groups_of
from tasks.external.blinding import SPLIT_SCHEMA, HandedOut, blind_images, key_of

SET_NAME = "query"  # the set's name without a control set


@dataclass(frozen=True)
class ProbeSet:
    """D_Q and the control set: what is held back of D_Q's pool, or a part of its own, or none.

    `seed` says in which order they are handed out.
    """

    query: Part | Remainder
    control: Part | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.control is not None and isinstance(self.query, Remainder):
            raise ValueError("control is given, and some of the query set is held back; one of them must be the other")


@dataclass(frozen=True, eq=False)
class Probes:
    """The images of a probe set, D_Q's first: pixels (n, h, w, c) and what is known of each, all (n,)."""

    images: Pixels
    labels: Labels
    rows: Rows  # of the training split of their own data set
    groups: Rows  # such as the patient; no group is in D_Q and in a control set that is held back
    is_control: NDArray[np.bool_]


def load_probes(config: ProbeSet) -> Probes:
    """The images, with a group's number of its own where the control set is another data set."""
    data = load(config.query.data)
    rows = config.query.rows(data)
    held = config.query.held_rows(data) if isinstance(config.query, Remainder) else rows[:0]
    parts = [(data, rows), (data, held)]
    if config.control is not None:
        other = load(config.control.data)
        parts[1] = other, config.control.rows(other)
    (_, asked), (source, control) = parts
    groups = groups_of(data, asked)
    of_control = groups_of(source, control)
    if config.control is not None:
        of_control = of_control + int(groups.max()) + 1  # two data sets may number their groups alike
    return Probes(
        images=np.concatenate([images.train_images[chosen] for images, chosen in parts]),
        labels=np.concatenate([images.train_labels[chosen] for images, chosen in parts]),
        rows=np.concatenate([asked, control]),
        groups=np.concatenate([groups, of_control]),
        is_control=np.arange(len(asked) + len(control)) >= len(asked),
    )


def handout_order(config: ProbeSet) -> HandedOut:
    """The images in the order in which they are handed out: D_Q's alone in theirs, others shuffled with repeats."""
    probes = load_probes(config)
    count = len(probes.rows)
    if not probes.is_control.any():
        return HandedOut(SET_NAME, np.arange(count))
    parts = [config.query, *([] if config.control is None else [config.control])]
    content = [[part.data.identity() for part in parts], probes.rows.tolist(), config.seed]
    return blind_images(content, count, config.seed)


def key_table(config: ProbeSet) -> pa.Table:
    """Which of the pictures that are handed out are D_Q's and which control (`split.KEY`), some of them twice."""
    rows = split_table(config).to_pylist()
    return key_of([(row[name], row["set"]) for row in rows for name in ("image", "again") if row[name] is not None])


def split_table(config: ProbeSet) -> pa.Table:
    """Each image of D_Q and of the control set, in which it is, where it lies and how it is handed out (SCHEMA)."""
    probes, handed = load_probes(config), handout_order(config)
    held = config.query.data if config.control is None else config.control.data
    repeats = handed.repeats
    at = {data.name: files(data) for data in (config.query.data, held)}
    data = [held if control else config.query.data for control in probes.is_control]
    return pa.Table.from_pylist(
        [
            {
                "set": "control" if control else "query",
                "data": of.name,
                "row": row,
                "file": str(paths[row]) if (paths := at[of.name]) else None,
                "image": image,
                "again": repeats.get(number),
            }
            for number, (control, of, row, image) in enumerate(
                zip(probes.is_control, data, probes.rows.tolist(), handed.ids, strict=True)
            )
        ],
        SPLIT_SCHEMA,
    )
