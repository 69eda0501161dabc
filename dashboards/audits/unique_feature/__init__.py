"""Figures of a `unique_feature` run: canary models and their control models, which never saw the feature."""

from __future__ import annotations

from collections.abc import Iterable

from dashboards.audits.unique_feature.canaries import exact_ranks, verdicts
from dashboards.audits.unique_feature.detection import detection, rates_by_models
from dashboards.audits.unique_feature.effects import effect, separation
from dashboards.audits.unique_feature.evidence import evidence
from dashboards.audits.unique_feature.family import family
from dashboards.audits.unique_feature.history import histories
from dashboards.audits.unique_feature.influence import influence, influence_changes, influences
from dashboards.audits.unique_feature.ladder import ladder as sweep
from dashboards.audits.unique_feature.latents import latents
from dashboards.audits.unique_feature.learning_curve import learning_curve
from dashboards.audits.unique_feature.pairs import Pairs
from dashboards.audits.unique_feature.pictures import pictures
from dashboards.audits.unique_feature.published_score import calls, divergences
from dashboards.audits.unique_feature.score_ranges import evaluations, ranges
from dashboards.chart import Figure
from dashboards.gallery import Gallery
from dashboards.run import Run

__all__ = ["figures", "gallery", "sweep"]


def figures(run: Run) -> Iterable[Figure | None]:
    """Return the effect first, then the detection rate of each score, then correlates of memory."""
    pairs = Pairs(run.table("canary_scores"))
    selected = run.table("chosen")
    retraced = run.table("traced")
    return (
        evidence(run.table("evidence")),
        effect(pairs, run.summary),
        verdicts(run.table("canary_verdicts")),
        exact_ranks(run.table("exact_ranks")),
        family(run.table("family")),
        separation(pairs),
        detection(run.table("curves"), run.table("detection")),
        rates_by_models(run.summary),
        divergences(pairs),
        calls(pairs),
        ranges(pairs),
        evaluations(pairs),
        learning_curve(run.table("course")),
        latents(run.table("latents")),
        influence(pairs, selected, retraced, run.summary),
        influence_changes(retraced),
        influences(run.table("influence"), selected),
        histories(run.table("history")),
    )


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """Show the canaries as their models saw them."""
    return pictures(run, Pairs(run.table("canary_scores")), show_images)
