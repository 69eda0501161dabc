"""What the audit measures: one file for each table, with its question, formula, task and rows of the summary."""

from tasks.audits.forgetting.measures import (
    baselines,
    commitment,
    decisions,
    distances,
    examples,
    fits,
    power,
    query_confidences,
    ratios,
)

# In the order of the summary's rows, the answer's first.
MEASURES = (
    decisions.MEASURE,
    ratios.MEASURE,
    distances.MEASURE,
    power.MEASURE,
    baselines.MEASURE,
    fits.MEASURE,
    examples.MEASURE,
    query_confidences.MEASURE,
    commitment.MEASURE,
)
