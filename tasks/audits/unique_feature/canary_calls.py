"""Which canaries are called memorised, given a p-value for each, and the rows of the summary that count them.

A canary is called where its p-value, adjusted over canaries (Benjamini & Hochberg 1995), is at most FDR. Where p-values
are exact and independent, of those called at most 5 % are expected to be called wrongly, and where no canary is
remembered any is called in at most 5 % of runs.

The share found beyond chance counts the canaries with p at most LEVEL, less those that chance puts there:
(share - LEVEL) / (1 - LEVEL). It is a share of canaries times the share of these that a rank detects, so at most the
share that is remembered. Among fewer than 19 others, where no p is so small, those that are first of all are counted.
Where canaries share training seeds they are no independent sample: shares have no interval and no p-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature.ranks import LEVEL
from tasks.audits.unique_feature.units import share_seeds
from tasks.audits.unique_feature.verdict import BEYOND, CALLED, FDR, SHARED
from tasks.statistics import Estimate, false_discovery_control, proportion, proportion_greater
from tasks.summaries import Row, alone, row

CALLS = (
    ("p_value", pa.float64()),
    ("adjusted_p", pa.float64()),  # over the canaries
    ("called", pa.bool_()),  # adjusted p at most FDR
    ("shared_seeds", pa.bool_()),  # some two canaries of the table were trained with one seed
)


def call_canaries(found: Sequence[Row], trainings: Iterable[tuple[int, int]]) -> list[Row]:
    """The canaries' rows with the columns of CALLS, the smallest `p_value` first.

    The trainings are those of all canaries, each the row of its canary and a seed.
    """
    shared = share_seeds(trainings)
    adjusted = false_discovery_control([each["p_value"] for each in found])
    rows = [
        each | {"adjusted_p": float(p_value), "called": bool(p_value <= FDR), "shared_seeds": shared}
        for each, p_value in zip(found, adjusted, strict=True)
    ]
    return sorted(rows, key=lambda each: (each["p_value"], each["canary"]))


def count_rows(verdicts: Sequence[Row], among: int, ranked: Mapping[str, Any]) -> Iterator[Row]:
    """How many canaries are called one by one, and how many ranks among so many features are small beyond chance.

    `ranked` is what the setting says of these features.
    """
    n = len(verdicts)
    called = sum(each["called"] for each in verdicts)
    shared = {SHARED: True} if any(each["shared_seeds"] for each in verdicts) else {}
    smallest = None if shared else min(each["adjusted_p"] for each in verdicts)
    setting = {"false discovery rate": FDR, **ranked, **shared}
    yield row(CALLED, setting, alone(called / n, n), "canary", 0.0, smallest)
    level = max(LEVEL, 1 / among)
    small = sum(each["p_value"] <= level for each in verdicts)
    share = share_beyond_chance(small, n, level)
    at = {"p": level, **shared}
    if shared:
        yield row(BEYOND, at, Estimate(share.value, None, None, n), "canary", 0.0)
    else:
        yield row(BEYOND, at, share, "canary", 0.0, proportion_greater(small, n, level))


def share_beyond_chance(small: int, n: int, level: float = LEVEL) -> Estimate:
    """The share of n canaries whose p is at most the level beyond chance, with Wilson's interval so transformed."""
    share = proportion(small, n)
    ends = (share.value, share.low, share.high)
    value, low, high = (math.nan if end is None else max(0.0, (end - level) / (1 - level)) for end in ends)
    return Estimate(value, low, high, n)
