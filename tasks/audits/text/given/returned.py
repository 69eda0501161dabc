"""Do the numbers of an owner's table answer the questions, or are they made so that nothing can be ranked?

    tied = the share of pairs of candidates of one question, or of texts of one set, with one number

A refusal, a constant, or a filter that says the same of everything in the format ties all candidates, and ranks say
nothing then, though they accuse nobody. Noise that is drawn anew shows in the texts that were handed out twice. Noise
that is a function of the text, and a filter that answers from a table of made-up numbers, show in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.text.config import About, Text
from tasks.audits.text.given.model import GivenQuestion, given_question, questions
from tasks.audits.text.given.table import Returned, handout_order, read_log_p
from tasks.contract.certificate import number_per_hundred
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.rules import Case
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, name_of, row
from tasks.contract.verdict import NOT_ASSESSABLE
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
MOST_SAME = 0.05  # of texts asked twice that have two numbers


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


def has_table(config: Text) -> bool:
    return config.outputs is not None


def agrees_with_itself(differing: Row | None) -> bool:
    """Whether texts that were handed out twice have one number; None, of a model that is evaluated here, does."""
    return differing is None or differing["estimate"] is None or differing["estimate"] <= MOST_SAME


def table_rule(**words: Any) -> Case[Any]:
    """The case of an owner's table that contradicts itself, of evidence with `differing`; shared by all questions.

    `words` are further fields of `Case`, instead of these.
    """
    told: dict[str, Any] = {
        "describe": describe_two_answers,
        "rows": lambda evidence: (name_of(evidence.differing),),
    }
    return Case(
        NOT_ASSESSABLE,
        "the owner's table has two numbers for more than {same} % of the texts that were handed out twice",
        lambda evidence: not agrees_with_itself(evidence.differing),
        scope="tables that an owner returned",
        applies=has_table,
        **told | words,
    )


def describe_two_answers(_config: Text, evidence: Any) -> str:
    """That a table contradicts itself, in a clause."""
    twice = number_per_hundred(evidence.differing["estimate"])
    return f"the table has two numbers for {twice} of 100 texts that were handed out twice"


MEASURE = Measure("returned", RETURNED, plan, rows)
