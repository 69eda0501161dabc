"""What stands around the scores: outliers, neighbours, duplicates, and the density whose score is known."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.audits.density.neighbours import copied
from tasks.audits.density.outliers import within_central
from tasks.audits.density.ratios import correlations
from tasks.statistics import mean
from tasks.summaries import Row, alone, row

CENTRAL = 0.9  # of log p: where the paper finds more than half of CelebA's highly memorised


def outliers(scores: pa.Table) -> Iterator[Row]:
    """How many of the highly memorised are no outliers.

    What it is where nothing is memorised depends on the models: the published score is higher where they disagree more.
    In simulated nulls it was 0.84 to 0.91.
    """
    found = within_central(scores, CENTRAL)
    yield row("highly memorised within the central log p", {"share": CENTRAL}, found, "observation")


def neighbours(scores: pa.Table, near: pa.Table) -> Iterator[Row]:
    """How the ratio of distances goes with M, and for how many a sample is the image itself."""
    for name, found in correlations(scores, near).items():
        yield row(
            "correlation of M and the neighbour ratio", {"by": name}, found.estimate, "observation", 0.0, found.p_value
        )
    yield row("observations that a sample equals", {}, copied(near), "observation", null=0.0)


def ratios(table: pa.Table) -> Iterator[Row]:
    """The mean ratio of the highly memorised and of the others.

    It is 1 where samples are as close as images never seen; but a decoder's means are smoother than images, and that
    moves it, memory or no memory.
    """
    for each in table.to_pylist():
        if each["group"] != "bin":
            found = alone(each["mean"], each["n"])
            yield row("neighbour ratio", {"observations": each["group"]}, found, "observation")


def duplicates(table: pa.Table) -> Iterator[Row]:
    """The closest pair's distance, and how many of the listed pairs are equal images."""
    distances = table["distance"].to_pylist()
    yield row("distance of the closest pair", {}, alone(min(distances, default=None), 1), "pair of images")
    equal = float(sum(distance == 0 for distance in distances))
    yield row("equal pairs", {"listed": len(distances)}, alone(equal, len(distances)), "pair of images")


def points(table: pa.Table) -> Iterator[Row]:
    """M of the outlying point of the kernel density, and of the others."""
    rows = table.to_pylist()
    for each in rows:
        if each["outlying"]:
            yield row("M", {"point": "outlying"}, alone(each["m"]), "point")
    yield row("M", {"point": "others"}, mean([each["m"] for each in rows if not each["outlying"]]), "point")
