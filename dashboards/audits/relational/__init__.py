"""Figures of a `relational` run: hidden answers that are given from memory."""

from __future__ import annotations

from collections.abc import Iterable

from dashboards.audits.relational.curves import answers, memorization
from dashboards.audits.relational.examples import examples as gallery
from dashboards.audits.relational.linear import flow, privacy
from dashboards.chart import Figure
from dashboards.run import Run

__all__ = ["figures", "gallery"]


def figures(run: Run) -> Iterable[Figure | None]:
    """Return figures of m, the four curves that define it, and the linear model."""
    return (
        memorization(run.table("memorization")),
        answers(run.table("memorization")),
        flow(run.table("linear_curves")),
        privacy(run.table("linear_private")),
    )
