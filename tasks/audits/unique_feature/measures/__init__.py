"""The audit's tables, a file each: the question, its formula and source, the task, and its rows of the summary."""

from __future__ import annotations

from tasks.audits.unique_feature.measures import (
    canary_scores,
    canary_verdicts,
    contrast,
    curves,
    detection,
    divergences,
    exact_panels,
    exact_ranks,
    exact_verdicts,
    family,
    history,
    influence,
    influence_changes,
    latents,
    learning_curve,
    output_checks,
    panels,
    private_ranks,
    reference_ranks,
    regularisation,
    single_divergences,
    single_family,
)
from tasks.measure import Measure

# In the order of the summary's rows, the answer's first.
MEASURES: tuple[Measure, ...] = (
    single_family.MEASURE,
    reference_ranks.MEASURE,
    single_divergences.MEASURE,
    output_checks.MEASURE,
    canary_scores.MEASURE,
    canary_verdicts.MEASURE,
    exact_verdicts.MEASURE,
    influence.CHOSEN_MEASURE,
    regularisation.MEASURE,
    influence_changes.MEASURE,
    exact_ranks.MEASURE,
    private_ranks.MEASURE,
    detection.MEASURE,
    panels.MEASURE,
    exact_panels.MEASURE,
    learning_curve.MEASURE,
    latents.MEASURE,
    contrast.MEASURE,
    # The summary reads none of these.
    curves.MEASURE,
    divergences.MEASURE,
    history.MEASURE,
    influence.INFLUENCE_MEASURE,
    family.MEASURE,
)
