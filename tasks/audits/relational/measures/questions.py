"""Which hidden answers does the model give? Every question with how often it is answered rightly at the end.

On a corrupted context the answer cannot be read; where it is given all the same, it was known, guessed or remembered.
Only the comparison with held-out questions tells these apart, so that no single question is a proof. Texts stay out of
this table: they are shown in the report where that is asked for.

Bombari et al. 2022, table 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.audits.relational.config import Relational
from tasks.audits.relational.measures import question_scores
from tasks.audits.relational.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure

# One row for each question, those that are most often answered rightly without their context first.
QUESTIONS = pa.schema(
    [
        ("split", pa.string()),
        ("id", pa.string()),
        ("context", pa.string()),
        ("numeric", pa.bool_()),
        ("replicates", pa.int32()),
        ("corrupted_exact_match", pa.float64()),  # the share of replicates that answer rightly
        ("corrupted_f1", pa.float64()),  # mean over replicates
        ("whole_exact_match", pa.float64()),
        ("whole_f1", pa.float64()),
    ]
)


@dataclass(frozen=True)
class NoSettings:
    """No settings."""


@task(version=1, name="relational.questions", gathers=True)
def questions(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - there is nothing to set
    """The scores of each question after the last epoch (QUESTIONS)."""
    scores = pa.concat_tables(inputs)
    last = pc.max(scores["epoch"]).as_py()
    scores = scores if last is None else scores.filter(pc.field("epoch") == last)
    names = ["split", "id", "context", "numeric"]
    means: dict[tuple[Any, ...], dict[str, Any]] = {}
    for corrupted, kind in ((False, "whole"), (True, "corrupted")):
        of_kind = scores.filter(pc.field("corrupted") == corrupted)
        grouped = of_kind.group_by(names).aggregate([("exact_match", "mean"), ("f1", "mean"), ("f1", "count")])
        for each in grouped.to_pylist():
            found = means.setdefault(tuple(each[name] for name in names), {name: each[name] for name in names})
            found |= {f"{kind}_exact_match": each["exact_match_mean"], f"{kind}_f1": each["f1_mean"]}
            found["replicates"] = max(found.get("replicates", 0), each["f1_count"])
    rows = sorted(means.values(), key=sort_key)
    return pa.Table.from_pylist(rows, QUESTIONS)


def sort_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Training questions before held-out ones, and those most often answered rightly without their context first."""
    rightly = (row.get("corrupted_exact_match") or 0.0, row.get("corrupted_f1") or 0.0)
    return row["split"], -rightly[0], -rightly[1], row["id"]


def plan(config: Relational, trainings: Trainings) -> Job | tuple[()]:
    scores = question_scores.plan(config, trainings)
    if not scores:
        return ()
    last = config.epochs if config.given is None else None
    ends = [job for job, asked in zip(scores, trainings.answers, strict=True) if asked.ends_at(last)]
    return Job(questions, NoSettings(), tuple(ends))


MEASURE = Measure("questions", QUESTIONS, plan)
