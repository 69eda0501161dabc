"""What a search over training choices moves: relational m, and the held-out questions that are answered rightly."""

from __future__ import annotations

import json

import pyarrow as pa

from tasks.audits.relational.answer import decisive_name, question_subsets
from tasks.audits.relational.config import Relational
from tasks.objectives import Objective, Objectives
from tasks.summaries import Row, index_rows


def memorization_row(config: Relational, summary: pa.Table) -> Row | None:
    """The row of relational m on which the answer rests."""
    rows = index_rows(summary)
    return next((rows[name] for name in map(decisive_name, question_subsets(config)) if name in rows), None)


def utility_row(config: Relational, summary: pa.Table) -> Row | None:
    """The row of s on held-out questions beside it: the share that is answered rightly from whole contexts."""
    m = memorization_row(config, summary)
    if m is None:
        return None
    setting = json.dumps({**json.loads(m["setting"]), "split": "validation"}, sort_keys=True)
    return index_rows(summary).get(("s", setting))


OBJECTIVES = Objectives(
    memorization=Objective("relational m", "share", "lower", memorization_row),
    utility=Objective("held-out accuracy", "share", "higher", utility_row),
    allowance=0.02,
)
