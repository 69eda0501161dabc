"""Which identifiers does a given model know: each one's rank among others of its space, where it stands in the texts.

    rank = the number of candidates, the identifier among them, whose log p is at least that of the identifier
    p = rank / number of candidates

The identifier was drawn from its space as its references are, by whoever made it; so p is exact for a model that never
read it (`tasks.audits.text.identifiers`). q and found are those of secrets. Where the base that the model was
fine-tuned from is given, candidates are ranked by what the model says more of them than its base: how a format looks
to both falls out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.audits.text.config import About, Text
from tasks.audits.text.measures.secrets import Ranking, adjust_ranks, rank_secret, ranked_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, alone, row

IDENTIFIERS = pa.schema(
    [
        ("format", pa.string()),
        ("row", pa.int64()),  # of the text in which it stands first
        ("occurrences", pa.int64()),  # in all texts
        ("candidates", pa.int64()),  # among which it is ranked, itself among them
        ("rank", pa.int64()),
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("exposure", pa.float64()),  # in bits
        ("control", pa.float64()),  # p that those found are drawn evenly: the same in each row
    ]
)
CONTROL = "blind control of identifiers"
UNEVEN = 0.01  # p of it, at most, at which identifiers are not drawn evenly


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not config.identifiers:
        return ()
    return Job(identifiers if config.base is None else identifiers_beside_base, Ranking(config.level), trainings)


@task(version=1, name="text.identifiers", gathers=True)
def identifiers(config: Ranking, inputs: Inputs) -> pa.Table:
    """Each identifier's rank by the given model (IDENTIFIERS); no row where its scores are missing."""
    kept = ("format", "row", "occurrences", "control")
    rows = [
        {name: each[name] for name in kept} | rank_secret(np.array(each["log_p"]), None)
        for table in inputs
        for each in table.to_pylist()
    ]
    return pa.Table.from_pylist(adjust_ranks(rows, config.level), IDENTIFIERS)


@task(version=1, name="text.identifiers_beside_base")
def identifiers_beside_base(config: Ranking, inputs: Inputs) -> pa.Table:
    """The same by how much likelier the given model says a candidate than its base does (IDENTIFIERS)."""
    given, base = (table["log_p"].to_pylist() for table in inputs)
    more = [(np.array(one) - np.array(other)).tolist() for one, other in zip(given, base, strict=True)]
    place = inputs[0].schema.get_field_index("log_p")
    table: pa.Table = identifiers(config, (inputs[0].set_column(place, "log_p", pa.array(more)),))
    return table


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """How many are found and how many references they beat, as of secrets; and the control's p-value."""
    table = tables.one(IDENTIFIERS)
    if table is None or not table.num_rows:
        return
    ranked = table.to_pylist()
    yield from ranked_rows(ranked, about, "identifier")
    control = ranked[0]["control"]
    yield row(CONTROL, {}, alone(control, len(ranked)), "identifier", p_value=control)


MEASURE = Measure("identifiers", IDENTIFIERS, plan, rows)
