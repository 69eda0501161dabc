"""Figures of a `density` run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dashboards.audits.density.curves import learning_curve, losses
from dashboards.audits.density.distribution import distribution, significance
from dashboards.audits.density.kernel_density import kernel_density
from dashboards.audits.density.neighbours import duplicates, ratios
from dashboards.audits.density.observations import Observations, Statistics
from dashboards.audits.density.outliers import outliers
from dashboards.audits.density.pictures import pictures as gallery
from dashboards.audits.density.strips import class_scores
from dashboards.audits.density.sweep_cells import compare_cells as sweep
from dashboards.chart import Figure
from dashboards.run import Run
from tasks.audits.density.config import Memorization

__all__ = ["figures", "gallery", "sweep"]


def figures(run: Run) -> Iterable[Figure | None]:
    """Return figures of the score and its significance, then of its development during training, then the rest."""
    observations = Observations(run.table("scores"))
    statistics = Statistics(run.table("distribution"))
    return (
        distribution(observations, statistics),
        significance(observations, dependent=leaves_out_rows(run.config)),
        class_scores(observations),
        learning_curve(statistics),
        losses(run.table("losses")),
        outliers(run.table("outliers"), observations),
        ratios(run.table("ratios")),
        duplicates(run.table("duplicates")),
        kernel_density(run.table("kernel")),
    )


def leaves_out_rows(config: Any) -> bool:
    """Whether individual observations were held out. False for configurations from earlier versions."""
    question = getattr(config, "question", None)
    return isinstance(question, Memorization) and question.leaves_out_rows
