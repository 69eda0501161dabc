"""Do the numbers of an owner's table answer the questions, or are they made so that nothing can be ranked?

    tied = the share of pairs of candidates of one question, or of texts of one set, with one number

A refusal, a constant, or a filter that says the same of everything in the format ties all candidates, and ranks say
nothing then, though they accuse nobody. Noise that is drawn anew shows in the texts that were handed out twice. Noise
that is a function of the text, and a filter that answers from a table of made-up numbers, show in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tasks.audits.text.config import About, Text
from tasks.audits.text.given.model import GivenQuestion, given_question, questions
from tasks.audits.text.given.table import Returned, handout_order, read_log_p
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.numerics import statistics
from tasks.numerics.ranks import share_tied

RETURNED = pa.schema(
    [
        ("texts", pa.int64()),  # that were handed out, each counted once
        ("twice", pa.int64()),  # of these, those that were handed out a second time
        ("differing", pa.int64()),  # of these, those that came back with another number
        ("tied", pa.float64()),  # mean over questions
    ]
)
TIED, DIFFERING = "candidates tied", "texts with two answers"
MOST_SAME = 0.05  # of pairs of candidates that have one number, and of texts asked twice that have two


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:  # noqa: ARG001 - a table is read by itself
    if config.outputs is None:
        return ()
    return Job(returned, given_question(config))


@task(version=2, name="text.returned")
def returned(config: GivenQuestion, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - reads a file
    """How far the table's numbers differ between candidates, and between two answers about one text (RETURNED)."""
    assert config.outputs is not None
    asked = questions(config)
    return answered_shares(asked, read_log_p(config.outputs, handout_order(asked, config.seed)))


def answered_shares(asked: Sequence[Sequence[str]], said: Returned) -> pa.Table:
    """The one row of RETURNED: what was said of the texts of these questions."""
    twice = ~np.isnan(said.again)
    ends = np.cumsum([len(each) for each in asked])[:-1]
    tied = float(np.mean([share_tied(each) for each in np.split(said.log_p, ends)]))
    differing = int((said.log_p[twice] != said.again[twice]).sum())
    return make_table(RETURNED, texts=len(said.log_p), twice=int(twice.sum()), differing=differing, tied=tied)


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - a count knows no level
    for each in tables.rows(RETURNED):
        yield row(TIED, {}, alone(each["tied"], each["texts"]), "text", 0.0)
        yield row(DIFFERING, {}, statistics.proportion(each["differing"], each["twice"]), "text", 0.0)


def answers_questions(returned: Iterable[Row]) -> bool:
    """Whether the numbers of an owner's table differ where they may, and agree where they must."""
    return all(each["estimate"] is None or each["estimate"] <= MOST_SAME for each in returned)


MEASURE = Measure("returned", RETURNED, plan, rows)
