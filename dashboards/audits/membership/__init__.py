"""What `membership` draws of a run whose models have halves of the records: influence by record, and attacks."""

from __future__ import annotations

from collections.abc import Iterable

from dashboards.audits.membership.attacks import histograms, references, roc
from dashboards.audits.membership.records import calls, influence
from dashboards.audits.membership.records import pictures as gallery
from dashboards.chart import Figure
from dashboards.run import Run

__all__ = ["figures", "gallery"]


def figures(run: Run) -> Iterable[Figure | None]:
    """The records first, on which the answer rests, then the attacks."""
    return (
        influence(run.table("records")),
        roc(run.table("roc")),
        histograms(run.table("histograms")),
        references(run.table("references")),
        calls(run.table("calls")),
    )
