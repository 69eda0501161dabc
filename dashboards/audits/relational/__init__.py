"""What `relational` draws of a run: whether hidden answers are given from memory."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.audits.relational.curves import answers, memorization
from dashboards.audits.relational.examples import examples
from dashboards.audits.relational.linear import flow, privacy
from dashboards.chart import Figure
from dashboards.gallery import Gallery
from dashboards.run import Run


def figures(run: Run) -> Iterator[Figure]:
    """m first, then the four curves that it is made of, and the linear model."""
    drawn = (
        memorization(run.table("memorization")),
        answers(run.table("memorization")),
        flow(run.table("linear_curves")),
        privacy(run.table("linear_private")),
    )
    yield from (figure for figure in drawn if figure is not None)


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """Questions whose hidden answers are given all the same: table 1."""
    return examples(run, show_images)
