"""Figures of a `membership` run: the effect of each record and attacks, or the loss of one model."""

from __future__ import annotations

from collections.abc import Iterable

from dashboards.audits.membership import loss
from dashboards.audits.membership.attacks import histograms, references, roc
from dashboards.audits.membership.records import calls, influence, pictures
from dashboards.chart import Figure
from dashboards.gallery import Gallery
from dashboards.run import Run

__all__ = ["figures", "gallery"]


def figures(run: Run) -> Iterable[Figure | None]:
    """Return the figures of records, which decide the answer, then those of attacks."""
    return (
        loss.calibrated_histograms(run.table("loss_calibrated")),
        loss.histograms(run.table("loss_scores")),
        loss.roc(run.table("loss_roc"), run.table("loss_calibrated_roc")),
        influence(run.table("records")),
        roc(run.table("roc")),
        histograms(run.table("histograms")),
        references(run.table("references")),
        calls(run.table("calls")),
    )


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """Show the records of the run: in order of mem, or the members that the loss of one model exposes most."""
    return pictures(run, show_images) or loss.gallery(run, show_images)
