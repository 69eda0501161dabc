"""Figures of a `forgetting` run: decisions, scores, confidences, power and published measures."""

from __future__ import annotations

from collections.abc import Iterable

from dashboards.audits.forgetting.baselines import baselines
from dashboards.audits.forgetting.decisions import decisions
from dashboards.audits.forgetting.examples import pictures as gallery
from dashboards.audits.forgetting.exchangeability import exchangeability
from dashboards.audits.forgetting.model_rows import distances, fits
from dashboards.audits.forgetting.power import compare_cells as sweep
from dashboards.audits.forgetting.power import power
from dashboards.audits.forgetting.query_confidences import confidences
from dashboards.audits.forgetting.ratios import ratios
from dashboards.audits.forgetting.targets import negligible, target_names
from dashboards.chart import Figure
from dashboards.run import Run

__all__ = ["figures", "gallery", "sweep"]


def figures(run: Run) -> Iterable[Figure | None]:
    """Return the decisions first, followed by their evidence.

    The evidence consists of scores, confidences, distances, power, baselines and training accuracy.
    """
    of_targets = run.table("ratios")
    confidence = run.table("confidences")
    names = target_names(of_targets)
    return (
        decisions(run.table("decisions"), negligible(run)),
        exchangeability(confidence, run.table("decisions")),
        ratios(of_targets, run.table("distances"), run.summary),
        confidences(confidence, names),
        distances(run.table("distances"), names),
        power(run.table("power"), run.table("decisions")),
        baselines(run.table("baselines")),
        fits(run.table("fits"), names),
    )
