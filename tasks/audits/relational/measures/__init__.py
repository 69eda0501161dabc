"""What the audit measures, each table with its question, formula, task and rows of the summary; and the summary."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.relational.config import About, Answers, Given, Linear, PrivateLinear, Question, Trained
from tasks.audits.relational.measures import evasions, linear, memorization, questions, repeats
from tasks.contract.job import Inputs, task
from tasks.contract.measure import Measure, summarise

# In the order of the summary's rows, the answer's first.
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
    """The measures that answer this question."""
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
            return (evasions.MEASURE, repeats.MEASURE) if system.is_blinded else (evasions.MEASURE,)


@task(version=2, name="relational.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, from whichever tables there are, the answer's first."""
    return summarise(MEASURES, inputs, config)
