"""Figures of a `text` run: exposures of secrets and identifiers, effects of documents, and reproduced documents."""

from __future__ import annotations

from collections.abc import Iterable

from dashboards.audits.text.documents import effects, inserted_documents, reproduction
from dashboards.audits.text.examples import examples as gallery
from dashboards.audits.text.exposures import exposures
from dashboards.chart import Figure
from dashboards.run import Run

__all__ = ["figures", "gallery"]


def figures(run: Run) -> Iterable[Figure | None]:
    """Return the figures, starting with those behind the answer."""
    return (
        exposures(run.table("secrets")),
        exposures(run.table("identifiers")),
        effects(run.table("documents")),
        reproduction(run.table("document_estimates")),
        effects(inserted_documents(run.table("insertions"))),
        reproduction(run.table("insertion_estimates")),
    )
