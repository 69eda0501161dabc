"""Does a program use the rows that it gets? Compares the scores of two trainings on different rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.catalog import load
from tasks.programs.row_training import RowTraining

LEVEL = 0.01  # p-values below this show that trained rows score higher


@dataclass(frozen=True)
class RowEffect:
    """The effect of exchanging the training rows.

    is_same: whether all scores are equal. p_value: of the one-sided rank test that rows score higher in the training
    that used them, or None if the trainings use the same rows. records: number of rows that only one training used.
    """

    is_same: bool
    p_value: float | None
    records: int

    @property
    def is_visible(self) -> bool:
        """Whether trained rows score higher at LEVEL."""
        return self.p_value is not None and self.p_value < LEVEL


def compare_trainings(configs: tuple[RowTraining, RowTraining], tables: tuple[pa.Table, pa.Table]) -> RowEffect:
    """Compare two trainings by their tables (PROGRAM).

    The difference of a row's two scores is larger for rows that only the first training used than for rows that only
    the second used (or, if none of these is scored, that neither used), if the program memorises. Mann & Whitney 1947.
    """
    scored_rows = np.asarray(tables[0]["rows"][0].values)
    first, second = (np.asarray(table["score"][0].values) for table in tables)
    rows = [config.share.rows(load(config.share.part.data)) for config in configs]
    only_first = np.isin(scored_rows, np.setdiff1d(rows[0], rows[1]))
    only_second = np.isin(scored_rows, np.setdiff1d(rows[1], rows[0]))
    if not only_second.any():  # the second training shares no rows with those that are scored
        only_second = ~np.isin(scored_rows, np.concatenate(rows))
    records = int(only_first.sum() + only_second.sum())
    difference = first - second
    is_same = bool((difference == 0).all())
    if not only_first.any() or not only_second.any():
        return RowEffect(is_same, None, records)
    return RowEffect(is_same, _rank_p_value(difference[only_first], difference[only_second]), records)


def _rank_p_value(larger: NDArray[np.float64], smaller: NDArray[np.float64]) -> float:
    """Return the p-value of the one-sided rank-sum test, 1 if all values are equal."""
    from scipy.stats import mannwhitneyu

    if np.ptp(np.concatenate([larger, smaller])) == 0:
        return 1.0
    return float(mannwhitneyu(larger, smaller, alternative="greater").pvalue)
