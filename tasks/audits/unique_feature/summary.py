"""What the tables say together, in the schema that all audits share.

Every interval is over trainings, pairs of trainings or models; where there is but one there is no interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from tasks.audits.unique_feature.estimates import (
    contrasts,
    detections,
    effects,
    influences,
    inside,
    panel,
    regularised,
    replicates,
)
from tasks.audits.unique_feature.estimates.units import units
from tasks.audits.unique_feature.published import Numbers, numbers
from tasks.job import Inputs, task
from tasks.schemas import SUMMARY
from tasks.summaries import Row

# The tables that a summary reads, by the names of their roots; `plain` are the scores of the unregularised network.
Part = Literal[
    "canary_scores",
    "plain",
    "chosen",
    "traced",
    "course",
    "latents",
    "detection",
    "curves",
    "panels",
    "family",
    "divergences",
    "contrast",
]
PARTS: tuple[Part, ...] = get_args(Part)
PANEL_PARTS: tuple[Part, ...] = ("family", "divergences")  # read of models that are asked alone


@dataclass(frozen=True)
class Summary:
    """Which table each input is a part of, and the printed cell that the run repeats, if it repeats one."""

    parts: tuple[Part, ...]
    published: str = ""


@task(version=4, name="unique_feature.summary")
def summary(config: Summary, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, from the tables that `parts` names."""
    tables: dict[Part, list[pa.Table]] = {}
    for part, table in zip(config.parts, inputs, strict=True):
        tables.setdefault(part, []).append(table)
    return pa.Table.from_pylist(list(rows(tables, numbers(config.published))), SUMMARY)


def rows(tables: Mapping[Part, Sequence[pa.Table]], published: Numbers) -> Iterator[Row]:
    """The summary's rows, the answer's first."""

    def read(part: Part) -> list[Row]:
        return [row for table in tables.get(part, ()) for row in table.to_pylist()]

    yield from panel.family(tables.get("family", ()))
    if "divergences" in tables:
        yield from panel.divergences(tables["divergences"])
    if "canary_scores" in tables:
        scores = read("canary_scores")
        found = units(scores)
        yield from effects.black_box(found, published)
        yield from effects.called_memorised(found)
        yield from effects.white_box(found)
        yield from effects.accuracy(found, published)
        yield from effects.power(found)
        yield from effects.tops(found, published)
        yield from replicates.over_seeds(scores)
        yield from replicates.over_evaluations(scores)
        if "chosen" in tables:
            yield from influences.with_scores(found, read("chosen"), published)
        if "plain" in tables:
            yield from regularised.against_plain(found, units(read("plain")))
    if "traced" in tables:
        yield from influences.with_feature(read("traced"), published)
    if "detection" in tables:
        yield from detections.called(read("detection"))
    if "curves" in tables:
        yield from detections.at_five_percent(read("curves"))
    if "panels" in tables:
        yield from detections.by_number(read("panels"))
    if "course" in tables:
        yield from inside.during_training(read("course"))
    if "latents" in tables:
        yield from inside.latent(read("latents"))
    for table in tables.get("contrast", ()):
        yield from contrasts.contrast(table)
