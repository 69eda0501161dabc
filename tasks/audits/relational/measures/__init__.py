"""The measures of the audit, and the summary of their tables."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.relational.config import About, Answers, Given, Linear, PrivateLinear, Question, Trained
from tasks.audits.relational.measures import evasions, linear, memorization, questions, repeats
from tasks.contract.job import Inputs, task
from tasks.contract.measure import Measure, summarise

# In summary order: the rows that decide the verdict come first.
MEASURES = (
    memorization.MEASURE,
    questions.QUESTIONS_MEASURE,
    questions.SCORES_MEASURE,
    evasions.MEASURE,
    evasions.COMMONEST_MEASURE,
    repeats.MEASURE,
    linear.CURVES_MEASURE,
    linear.RECOVERY_MEASURE,
    linear.PRIVATE_MEASURE,
)

SCORED = (memorization.MEASURE, questions.QUESTIONS_MEASURE, questions.SCORES_MEASURE)


def measures_of(question: Question) -> tuple[Measure, ...]:
    """Return the measures that apply to a question."""
    match question:
        case Answers():
            return (*SCORED, *_measures_of_system(question.system))
        case Linear():
            return (linear.CURVES_MEASURE, linear.RECOVERY_MEASURE)
        case PrivateLinear():
            return (linear.PRIVATE_MEASURE,)


def _measures_of_system(system: Trained | Given) -> tuple[Measure, ...]:
    match system:
        case Trained():
            return (evasions.COMMONEST_MEASURE,)
        case Given():
            if system.is_blinded:
                return (evasions.MEASURE, repeats.MEASURE)
            return (evasions.MEASURE,)


@task(version=2, name="relational.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """Summarise the available tables (SUMMARY). The rows that decide the verdict come first."""
    return summarise(MEASURES, inputs, config)
