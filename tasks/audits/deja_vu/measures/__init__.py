"""The measures of the audit: a table and its question each."""

from __future__ import annotations

from tasks.audits.deja_vu.measures import (
    categories,
    crops,
    drawn,
    inferences,
    neighbours,
    probe,
    reconstruction,
    references,
    retrieval,
    scores,
)

# In the order of the summary: the answer's row first.
MEASURES = (
    scores.MEASURE,
    references.MEASURE,
    categories.MEASURE,
    probe.MEASURE,
    reconstruction.MEASURE,
    crops.MEASURE,
    retrieval.MEASURE,
    drawn.MEASURE,
    inferences.MEASURE,
    neighbours.MEASURE,
)
