"""Defects of a returned table: tied numbers, which cannot be ranked, and texts with two different numbers.

    tied = share of pairs of candidates of one question, or of texts of one set, with equal numbers

A refusal, a constant, or a filter that blocks the format gives all candidates the same number, so ranks carry no
information; they also accuse no model. Fresh noise shows up in the texts that were exported twice. Neither check
detects noise that is a function of the text, or a filter that returns invented numbers.
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
        ("texts", pa.int64()),  # number of exported texts, each counted once
        ("repeated", pa.int64()),  # texts that were exported twice
        ("differing", pa.int64()),  # repeated texts with two different numbers
        ("tied", pa.float64()),  # mean over questions
    ]
)
TIED = "candidates tied"
DIFFERING = "texts with two answers"
MOST_SAME = 0.05  # largest tolerated share of repeated texts with two different numbers


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:  # noqa: ARG001 - the table is the only input
    if config.outputs is None:
        return ()
    return Job(returned, given_question(config))


@task(version=3, name="text.returned")
def returned(config: GivenQuestion, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - reads a file
    """Count tied numbers among candidates, and repeated texts with two different numbers (RETURNED)."""
    assert config.outputs is not None
    candidates_by_question = questions(config)
    return answered_shares(
        candidates_by_question, read_log_p(config.outputs, handout_order(candidates_by_question, config.seed))
    )


def answered_shares(candidates_by_question: Sequence[Sequence[str]], returned_scores: Returned) -> pa.Table:
    """Return the RETURNED row for the numbers of these questions."""
    is_repeated = ~np.isnan(returned_scores.repeated_log_p)
    ends = np.cumsum([len(group) for group in candidates_by_question])[:-1]
    tied = float(np.mean([share_tied(group) for group in np.split(returned_scores.log_p, ends)]))
    differing = int((returned_scores.log_p[is_repeated] != returned_scores.repeated_log_p[is_repeated]).sum())
    return make_table(
        RETURNED, texts=len(returned_scores.log_p), repeated=int(is_repeated.sum()), differing=differing, tied=tied
    )


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the level is not used
    for defects in tables.rows(RETURNED):
        yield row(TIED, {}, alone(defects["tied"], defects["texts"]), "text", 0.0)
        yield row(DIFFERING, {}, statistics.proportion(defects["differing"], defects["repeated"]), "text", 0.0)


def has_table(config: Text) -> bool:
    return config.outputs is not None


def agrees_with_itself(differing: Row | None) -> bool:
    """Return whether repeated texts have one number each. True if `differing` is None, when the audit evaluates the
    model.
    """
    return differing is None or differing["estimate"] is None or differing["estimate"] <= MOST_SAME


def table_rule(**words: Any) -> Case[Any]:
    """Return the case for a returned table that contradicts itself. The evidence must have the row as `differing`.

    `words` overrides fields of `Case`.
    """
    texts: dict[str, Any] = {
        "describe": describe_two_answers,
        "rows": lambda evidence: (name_of(evidence.differing),),
    }
    return Case(
        NOT_ASSESSABLE,
        "the returned table has two numbers for more than {same} % of the texts that were exported twice",
        lambda evidence: not agrees_with_itself(evidence.differing),
        scope="returned tables",
        applies=has_table,
        **texts | words,
    )


def describe_two_answers(_config: Text, evidence: Any) -> str:
    """State in a clause that the table contradicts itself."""
    share = number_per_hundred(evidence.differing["estimate"])
    return f"the table has two numbers for {share} of 100 texts that were exported twice"


MEASURE = Measure("returned", RETURNED, plan, rows)
