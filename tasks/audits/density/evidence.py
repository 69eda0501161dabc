"""What the summary says of the observations: the rows that the answer rests on, and those told beside it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.density.config import Memorization
from tasks.audits.density.measures.scores import BEYOND_CHANCE, FEW_SAMPLES, LEAST_FOUND, PLANTED_CALLED
from tasks.audits.density.power import observation_resolution
from tasks.audits.density.tail import LEVEL
from tasks.contract.power import Resolution
from tasks.contract.summaries import (
    Name,
    Row,
    first_row,
    index_rows,
    name_of,
    numerator,
    row_name,
)
from tasks.contract.ties import most_tied

CALLED = row_name("observations memorised", **{"false discoveries": LEVEL})
GAP = row_name("generalisation gap of log p", statistic="mean")
PUBLISHED, MATCHED = (row_name(metric, statistic="median") for metric in ("M", "matched-count M"))
OF_CALLED = "matched-count M of the memorised"
EFFECTIVE = row_name("effective samples of log p", statistic="median")
FEW_EFFECTIVE = row_name("effective samples of log p", below=FEW_SAMPLES)
SIGNIFICANT = 0.05
SURELY = 0.001  # of all together: beside the 5 % of those that are called it is little


@dataclass(frozen=True)
class Background:
    """Rows of the summary that decide nothing and are told beside the answer; None where there is no such row."""

    median_called: Row | None = None  # matched-count M of the observations that are called
    highest_called: Row | None = None
    fewest_models: Row | None = None  # of an observation, where some are missing
    whole: Row | None = None  # the loss of the model of all data
    effective: Row | None = None  # samples that log p is effectively from
    few_effective: Row | None = None  # the share of observations with few of these
    largest: Row | None = None  # score of a row left out of private trainings
    above_epsilon: Row | None = None
    planted: Row | None = None  # the share of what was planted that is called
    published: Row | None = None  # the medians of both scores
    matched: Row | None = None


@dataclass(frozen=True)
class Evidence:
    """The rows of the summary that the answer rests on; None where there is no such row.

    `called` is the share of observations that are called memorised one by one, `beyond` the share memorised beyond
    chance (None where p-values are not counted together), `gap` the generalisation gap and `found` the memory with
    which a single observation would be called. `names` are those of the rows that there are, in this order, and
    `tied` is the row of equal scores.
    """

    called: Row
    beyond: Row | None
    gap: Row | None
    found: Row | None
    negligible: float
    detectable: float
    resolution: Resolution | None = None
    names: tuple[Name, ...] = ()
    background: Background = Background()
    tied: Row | None = None

    @property
    def count(self) -> int:
        """The number of observations that are called."""
        return numerator(self.called)

    @property
    def by_chance(self) -> float:
        """The probability that chance brings as many small p-values; 1 where this is unknown."""
        p_value = None if self.beyond is None else self.beyond["p_value"]
        return 1.0 if p_value is None else float(p_value)

    @property
    def gap_is_negligible(self) -> bool:
        return self.gap is not None and self.gap["high"] is not None and self.gap["high"] < self.negligible

    @property
    def would_find_one(self) -> bool:
        """Whether a single observation would surely be found with as much memory as the config asks."""
        if self.resolution is not None and not self.resolution.finds_one:
            return False
        return self.found is not None and self.found["high"] is not None and self.found["high"] <= self.detectable


def read_evidence(config: Memorization, summary: pa.Table) -> Evidence | None:
    """The evidence in a summary; None where no observation has a score."""
    rows = index_rows(summary)
    if CALLED not in rows or rows[CALLED]["estimate"] is None:
        return None
    decisive = rows[CALLED], first_row(rows, BEYOND_CHANCE), rows.get(GAP), first_row(rows, LEAST_FOUND)
    called, beyond, gap, found = decisive
    return Evidence(
        called=called,
        beyond=beyond,
        gap=gap,
        found=found,
        negligible=config.negligible,
        detectable=config.detectable,
        resolution=observation_resolution(config, called["n"]),
        names=tuple(name_of(row) for row in decisive if row is not None),
        tied=most_tied(rows),
        background=Background(
            median_called=rows.get(row_name(OF_CALLED, statistic="median")),
            highest_called=rows.get(row_name(OF_CALLED, statistic="highest")),
            fewest_models=first_row(rows, "models of an observation, at least"),
            whole=rows.get(row_name("loss", models="whole", split="train")),
            effective=rows.get(EFFECTIVE),
            few_effective=rows.get(FEW_EFFECTIVE),
            largest=first_row(rows, "largest M of a row left out"),
            above_epsilon=first_row(rows, "rows above epsilon"),
            published=rows.get(PUBLISHED),
            matched=rows.get(MATCHED),
            planted=first_row(rows, PLANTED_CALLED),
        ),
    )
