"""The summary: its measures, in the order of its rows, and the tasks that compute it.

Every interval is over training runs, pairs of training runs or models. With a single one there is no interval.
"""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.unique_feature.measures import contrast, divergences, exact_ranks, family, latents, learning_curve
from tasks.audits.unique_feature.pairs import (
    bets,
    canary_scores,
    canary_verdicts,
    detection,
    influence,
    panels,
    private_ranks,
    regularisation,
)
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.single_models import look_alikes, output_checks, weight_ranks
from tasks.contract.job import Inputs, task
from tasks.contract.measure import Measure, summarise

# In the order of the summary rows; those that decide the answer come first.
MEASURES: tuple[Measure, ...] = (
    family.SINGLE_MEASURE,
    look_alikes.MEASURE,
    exact_ranks.REFERENCE_MEASURE,
    weight_ranks.MEASURE,
    divergences.SINGLE_MEASURE,
    output_checks.MEASURE,
    family.ACCURACY_MEASURE,
    canary_scores.MEASURE,
    canary_verdicts.MEASURE,
    canary_verdicts.EXACT_MEASURE,
    bets.MEASURE,
    influence.CHOSEN_MEASURE,
    regularisation.MEASURE,
    influence.TRACED_MEASURE,
    exact_ranks.MEASURE,
    private_ranks.MEASURE,
    detection.MEASURE,
    panels.MEASURE,
    panels.EXACT_MEASURE,
    learning_curve.MEASURE,
    latents.MEASURE,
    contrast.MEASURE,
    # The summary reads none of these.
    detection.CURVES_MEASURE,
    divergences.MEASURE,
    learning_curve.HISTORY_MEASURE,
    influence.INFLUENCE_MEASURE,
    family.MEASURE,
)


@task(version=9, name="unique_feature.summary", gathers=True)
def summary(config: PublishedCell, inputs: Inputs) -> pa.Table:
    """Compute the SUMMARY rows of all measures whose tables are available. Tables are identified by their schemas."""
    return summarise(MEASURES, inputs, config)


@task(version=2, name="unique_feature.summary_of_models", gathers=True)
def summary_of_models(config: PublishedCell, inputs: Inputs) -> pa.Table:
    """Compute the same for single models, whose rows differ and have their own version."""
    return summarise(MEASURES, inputs, config)
