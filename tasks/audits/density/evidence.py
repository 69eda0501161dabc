"""Rows of a summary that decide the answer, and background rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.density.config import Memorization
from tasks.audits.density.measures.scores import BEYOND_CHANCE, FEW_SAMPLES, LEAST_FOUND, PLANTED_CALLED
from tasks.audits.density.power import observation_resolution
from tasks.audits.density.tail import LEVEL
from tasks.contract.power import Resolution
from tasks.contract.summaries import Name, Row, first_row, index_rows, names_of, numerator, row_name
from tasks.contract.ties import most_tied

CALLED = row_name("observations memorised", **{"false discoveries": LEVEL})
GAP = row_name("generalisation gap of log p", statistic="mean")
PUBLISHED = row_name("M", statistic="median")
MATCHED = row_name("matched-count M", statistic="median")
OF_CALLED = "matched-count M of the memorised"
EFFECTIVE = row_name("effective samples of log p", statistic="median")
FEW_EFFECTIVE = row_name("effective samples of log p", below=FEW_SAMPLES)
SIGNIFICANT = 0.05
SURELY = 0.001  # level of the test over all observations: small compared with the 5 % for single ones


@dataclass(frozen=True)
class Background:
    """Summary rows that accompany the answer without deciding it. None if a row is missing."""

    median_identified: Row | None = None  # matched-count M of the identified observations
    highest_identified: Row | None = None
    fewest_models: Row | None = None  # the fewest models of an observation, if some are missing
    full_model_loss: Row | None = None  # loss of the model trained on all data
    effective: Row | None = None  # effective samples per log p
    few_effective: Row | None = None  # share of observations with few effective samples
    largest: Row | None = None  # largest score of a row left out of private trainings
    above_epsilon: Row | None = None
    planted: Row | None = None  # share of the planted images that are identified
    published: Row | None = None  # medians of the published and the matched-count score
    matched: Row | None = None


@dataclass(frozen=True)
class Evidence:
    """Summary rows that decide the answer. None if a row is missing.

    `identified_share` is the share of observations identified as memorised. `excess` is the share memorised beyond
    chance, or None if p-values are not counted together. `gap` is the generalisation gap, `detection_limit` the
    detection limit for a single observation. `names` are the names of the existing rows in this order, and `tied` is
    the row of equal scores.
    """

    identified_share: Row
    excess: Row | None
    gap: Row | None
    detection_limit: Row | None
    negligible: float
    detectable: float
    resolution: Resolution | None = None
    names: tuple[Name, ...] = ()
    background: Background = Background()
    tied: Row | None = None

    @property
    def count(self) -> int:
        """Number of identified observations."""
        return numerator(self.identified_share)

    @property
    def by_chance(self) -> float:
        """Probability of at least this many small p-values by chance. 1 if it is unknown."""
        p_value = None if self.excess is None else self.excess["p_value"]
        return 1.0 if p_value is None else float(p_value)

    @property
    def gap_is_negligible(self) -> bool:
        return self.gap is not None and self.gap["high"] is not None and self.gap["high"] < self.negligible

    @property
    def would_find_one(self) -> bool:
        """Whether a single observation memorised by `detectable` nats would be detected."""
        if self.resolution is not None and not self.resolution.finds_one:
            return False
        return (
            self.detection_limit is not None
            and self.detection_limit["high"] is not None
            and self.detection_limit["high"] <= self.detectable
        )


def read_evidence(config: Memorization, summary: pa.Table) -> Evidence | None:
    """Read the evidence from a summary. None if no observation has a score."""
    rows = index_rows(summary)
    if CALLED not in rows or rows[CALLED]["estimate"] is None:
        return None
    decisive = rows[CALLED], first_row(rows, BEYOND_CHANCE), rows.get(GAP), first_row(rows, LEAST_FOUND)
    identified_share, excess, gap, detection_limit = decisive
    return Evidence(
        identified_share=identified_share,
        excess=excess,
        gap=gap,
        detection_limit=detection_limit,
        negligible=config.negligible,
        detectable=config.detectable,
        resolution=observation_resolution(config, identified_share["n"]),
        names=names_of(*decisive),
        tied=most_tied(rows),
        background=Background(
            median_identified=rows.get(row_name(OF_CALLED, statistic="median")),
            highest_identified=rows.get(row_name(OF_CALLED, statistic="highest")),
            fewest_models=first_row(rows, "models of an observation, at least"),
            full_model_loss=rows.get(row_name("loss", models="whole", split="train")),
            effective=rows.get(EFFECTIVE),
            few_effective=rows.get(FEW_EFFECTIVE),
            largest=first_row(rows, "largest M of a row left out"),
            above_epsilon=first_row(rows, "rows above epsilon"),
            published=rows.get(PUBLISHED),
            matched=rows.get(MATCHED),
            planted=first_row(rows, PLANTED_CALLED),
        ),
    )
