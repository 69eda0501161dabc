"""Tied scores: one measure, one limit and one rule, for models evaluated by the audit and for returned tables.

Ranks require scores that differ. For p-values, a tied score counts as the larger one (worst rank), so that ties accuse
no model. For a share that clears, it counts as half (mid-rank), so that a model without knowledge yields .5. If more
than MOST_TIED of the pairs are equal, for example because the output of a network is constant, ranks carry no
information and the answer is *not assessable*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.contract.certificate import number_per_hundred
from tasks.contract.rules import Case, applies_always
from tasks.contract.summaries import Estimate, Row, Rows, name_of, row, select_rows
from tasks.contract.verdict import NOT_ASSESSABLE

TIED = "scores tied"  # metric: the share of score pairs that are equal
MOST_TIED = 0.05
CONDITION = f"more than {100 * MOST_TIED:g} % of the compared pairs of scores are equal"


def tied_row(share: float | None, n: int, unit: str, **setting: str) -> Row:
    """Return the summary row with the share of score pairs that are equal, over n units.

    If a summary has several such rows, the setting names the model (of="given model").
    """
    return row(TIED, setting, Estimate(share, None, None, n), unit, 0.0)


def most_tied(rows: Rows) -> Row | None:
    """Return the row with the largest share of equal pairs, or None if there is no such row."""
    known_rows = [row for row in select_rows(rows, TIED) if row["estimate"] is not None]
    return max(known_rows, key=lambda row: float(row["estimate"]), default=None)


def are_tied(tied: Row | None) -> bool:
    """Return whether there are too many ties to give an answer. False if the summary lacks this row."""
    return tied is not None and tied["estimate"] is not None and tied["estimate"] > MOST_TIED


def tie_rule(scope: str = "", applies: Callable[[Any], bool] = applies_always, **words: Any) -> Case[Any]:
    """Return the case for tied scores. The evidence must have the summary row as `tied`.

    The text of the case describes only the ties. `words` overrides fields of `Case`.
    """
    defaults: dict[str, Any] = {"describe": describe_tied_evidence, "rows": lambda evidence: (name_of(evidence.tied),)}
    return Case(
        NOT_ASSESSABLE, CONDITION, lambda evidence: are_tied(evidence.tied), "", scope, applies, **defaults | words
    )


def describe_tied_evidence(_config: Any, evidence: Any) -> str:
    return describe_ties(evidence.tied)


def describe_ties(tied: Row) -> str:
    """Return a clause on why the scores support no answer."""
    return (
        f"{number_per_hundred(tied['estimate'])} of 100 compared pairs of scores are equal, so ranks carry no "
        "information: the output is constant or was rounded"
    )
