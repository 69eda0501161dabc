"""Figures of a `membership` run on halves of the records: the effect of each record, and attacks."""

from __future__ import annotations

from collections.abc import Iterable

from dashboards.audits.membership.attacks import histograms, references, roc
from dashboards.audits.membership.records import calls, influence
from dashboards.audits.membership.records import pictures as gallery
from dashboards.chart import Figure
from dashboards.run import Run

__all__ = ["figures", "gallery"]


def figures(run: Run) -> Iterable[Figure | None]:
    """Return the figures of records, which decide the answer, then those of attacks."""
    return (
        influence(run.table("records")),
        roc(run.table("roc")),
        histograms(run.table("histograms")),
        references(run.table("references")),
        calls(run.table("calls")),
    )
