"""What `forgetting` draws of a run: whether models know a data set as those do that were trained on it."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.audits.forgetting.baselines import baselines
from dashboards.audits.forgetting.decisions import decisions
from dashboards.audits.forgetting.examples import pictures
from dashboards.audits.forgetting.exchangeability import exchangeability
from dashboards.audits.forgetting.model_rows import distances, fits
from dashboards.audits.forgetting.power import compare_cells, power
from dashboards.audits.forgetting.query_confidences import confidences
from dashboards.audits.forgetting.ratios import ratios
from dashboards.audits.forgetting.targets import negligible, target_names
from dashboards.chart import Figure
from dashboards.gallery import Gallery
from dashboards.run import Run


def figures(run: Run) -> Iterator[Figure]:
    """The decisions first, then what they rest on: confidences, distances, power, baselines and training accuracy."""
    of_targets, confidence = run.table("ratios"), run.table("confidences")
    names = target_names(of_targets)
    drawn = (
        decisions(run.table("decisions"), negligible(run)),
        exchangeability(confidence, run.table("decisions")),
        ratios(of_targets, run.table("distances"), run.summary),
        confidences(confidence, names),
        distances(run.table("distances"), names),
        power(run.table("power"), run.table("decisions")),
        baselines(run.table("baselines")),
        fits(run.table("fits"), names),
    )
    yield from (figure for figure in drawn if figure is not None)


def sweep(run: Run) -> Iterator[Figure]:
    """The power curves of all cells together."""
    yield from compare_cells(run)


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """An image of each class in each set: figure 2."""
    return pictures(run, show_images)
