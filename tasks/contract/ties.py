"""Scores that are equal: one measure of it and one limit, for models that are evaluated here and for returned tables.

Ranks need scores that differ. Tied scores count as larger for p-values (worst ranks), so that they accuse no model, and
half for a share that clears (mid-ranks), so that .5 is what nothing known gives. If more than MOST_TIED of the pairs
are equal, as of a network whose output is constant, ranks carry no information and the answer is *not judged*.
"""

from __future__ import annotations

from tasks.contract.certificate import number_per_hundred
from tasks.contract.summaries import Estimate, Row, row

TIED = "scores tied"  # metric: the share of pairs of scores that are equal
MOST_TIED = 0.05
CONDITION = f"more than {100 * MOST_TIED:g} % of the pairs of scores that are compared are equal"


def tied_row(share: float, n: int, unit: str) -> Row:
    """The summary row of the share of pairs of scores that are equal, over n units."""
    return row(TIED, {}, Estimate(share, None, None, n), unit, 0.0)


def are_tied(tied: Row | None) -> bool:
    """Whether so many scores are equal that nothing is judged; of a summary without the row it is not known."""
    return tied is not None and tied["estimate"] is not None and tied["estimate"] > MOST_TIED


def describe_ties(tied: Row) -> str:
    """Why nothing is judged, in a clause."""
    return (
        f"{number_per_hundred(tied['estimate'])} of 100 pairs of scores that are compared are equal, so that ranks say "
        "nothing: the output is constant, or was rounded"
    )
