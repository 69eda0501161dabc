"""Scores that are equal: one measure, one limit and one rule, for models that are evaluated here and returned tables.

Ranks need scores that differ. Tied scores count as larger for p-values (worst ranks), so that they accuse no model, and
half for a share that clears (mid-ranks), so that .5 is what nothing known gives. If more than MOST_TIED of the pairs
are equal, as of a network whose output is constant, ranks carry no information and the answer is *not assessable*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.contract.certificate import number_per_hundred
from tasks.contract.rules import Case, applies_always
from tasks.contract.summaries import Estimate, Row, Rows, name_of, row, select_rows
from tasks.contract.verdict import NOT_ASSESSABLE

TIED = "scores tied"  # metric: the share of pairs of scores that are equal
MOST_TIED = 0.05
CONDITION = f"more than {100 * MOST_TIED:g} % of the pairs of scores that are compared are equal"


def tied_row(share: float | None, n: int, unit: str, **setting: str) -> Row:
    """The summary row of the share of pairs of scores that are equal, over n units.

    The setting says whose scores they are (of="given model"), if a summary has several such rows.
    """
    return row(TIED, setting, Estimate(share, None, None, n), unit, 0.0)


def most_tied(rows: Rows) -> Row | None:
    """The row with the largest share of equal pairs; None without such a row."""
    known = [each for each in select_rows(rows, TIED) if each["estimate"] is not None]
    return max(known, key=lambda each: float(each["estimate"]), default=None)


def are_tied(tied: Row | None) -> bool:
    """Whether so many scores are equal that nothing is judged; of a summary without the row it is not known."""
    return tied is not None and tied["estimate"] is not None and tied["estimate"] > MOST_TIED


def tie_rule(scope: str = "", applies: Callable[[Any], bool] = applies_always, **words: Any) -> Case[Any]:
    """The case of tied scores, of evidence that has the summary row as `tied`; nothing but the ties is told.

    `words` are further fields of `Case`, instead of these.
    """
    told: dict[str, Any] = {"describe": describe_tied_evidence, "rows": lambda evidence: (name_of(evidence.tied),)}
    return Case(NOT_ASSESSABLE, CONDITION, lambda evidence: are_tied(evidence.tied), "", scope, applies, **told | words)


def describe_tied_evidence(_config: Any, evidence: Any) -> str:
    return describe_ties(evidence.tied)


def describe_ties(tied: Row) -> str:
    """Why nothing is judged, in a clause."""
    return (
        f"{number_per_hundred(tied['estimate'])} of 100 pairs of scores that are compared are equal, so that ranks say "
        "nothing: the output is constant, or was rounded"
    )
