"""What the audit measures: one file for each table, with its question, formula, task and rows of the summary."""

from tasks.audits.relational.measures import (
    linear_curves,
    linear_private,
    linear_recovery,
    memorization,
    question_scores,
    questions,
    repeats,
)

# In the order of the summary's rows, the answer's first.
MEASURES = (
    memorization.MEASURE,
    questions.MEASURE,
    question_scores.MEASURE,
    repeats.MEASURE,
    linear_curves.MEASURE,
    linear_recovery.MEASURE,
    linear_private.MEASURE,
)
