"""Use one source as two data sets, with a column that marks the images that a model was trained on.

`list:records.csv#members(trained)` selects the rows whose column `trained` marks a member, and `#others(trained)` the
remaining rows. Marks are 1 or 0, true or false, yes or no, and member or other, case-insensitive. Any other mark is an
error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.datasets.classes import LabelError, shorten_number
from tasks.datasets.dataset import Dataset
from tasks.datasets.splits import Split, spread

MEMBER_MARKS = ("1", "true", "yes", "member")
OTHER_MARKS = ("0", "false", "no", "other")
ALLOWED_MARKS = "1 or 0, true or false, yes or no, or member or other"
FORBIDDEN = "#/()"  # in column names
WRITTEN = re.compile(rf"(members|others)\(([^{FORBIDDEN}]+)\)")
WITH_COLUMNS = ("list", "parquet", "hf", "table")  # kinds of data sets that have columns
NAMING = "column:"  # prefix of a setting that names a column instead of a data set


@dataclass(frozen=True)
class Selection:
    """The rows that a column marks as members, or all other rows."""

    column: str
    is_member: bool

    def __str__(self) -> str:
        return f"{'members' if self.is_member else 'others'}({self.column})"

    @property
    def noun(self) -> str:
        """What messages call a selected row."""
        return "a member" if self.is_member else "an other image"

    def includes(self, mark: str) -> bool:
        """Return whether a row with this mark is selected. Raises LabelError for an invalid mark."""
        word = shorten_number(mark.strip()).casefold()
        if word not in (*MEMBER_MARKS, *OTHER_MARKS):
            raise LabelError(f"{self.column} is {mark!r:.80}; it must be {ALLOWED_MARKS}")
        return (word in MEMBER_MARKS) == self.is_member


def parse_selection(word: str) -> Selection | None:
    """Parse a selection after a #. Returns None for other text."""
    match = WRITTEN.fullmatch(word)
    if match is None:
        return None
    return Selection(match[2].strip(), match[1] == "members")


def has_columns(data: Dataset) -> bool:
    """Return whether the rows of this data set can be selected by a column."""
    kind, colon, _ = data.name.partition(":")
    return bool(colon) and kind in WITH_COLUMNS


def spread_if_alone(labels: Sequence[int], splits: Sequence[Split]) -> list[Split]:
    """Return the splits of selected rows.

    If all rows are in one split, as is usual for members, they are spread over both.
    """
    return list(spread(labels)) if len(set(splits)) == 1 else list(splits)
