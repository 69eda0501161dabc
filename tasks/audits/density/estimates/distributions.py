"""The scores' distribution over the observations, at the end of training and on the way."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.audits.density.published import Numbers
from tasks.statistics import Estimate
from tasks.summaries import Row, row

UNIT = "repetition"
METRICS = {"gain": "gain of log p", "matched": "matched-count M", "published": "M"}
PEAKS = ("quantile 0.95", "quantile 0.999")  # that figure 4b follows


def scores(distribution: pa.Table, published: Numbers) -> Iterator[Row]:
    """Each statistic after the last epoch, of all observations; those of labels are in the table."""
    rows = distribution.to_pylist()
    last = max((each["epoch"] for each in rows), default=0)
    for metric in METRICS:
        for each in rows:
            if each["score"] == metric and each["epoch"] == last and each["label"] is None:
                number = published.get(each["statistic"]) if metric == "published" else None
                yield of(each, {"statistic": each["statistic"]}, number)


def during(distribution: pa.Table) -> Iterator[Row]:
    """The peaks of both scores at the epochs before the last: figure 4b."""
    rows = distribution.to_pylist()
    last = max((each["epoch"] for each in rows), default=0)
    for each in rows:
        if each["epoch"] < last and each["label"] is None and each["statistic"] in PEAKS:
            yield of(each, {"epoch": each["epoch"], "statistic": each["statistic"]})


def of(each: Row, setting: Row, published: float | None = None) -> Row:
    """A row of DISTRIBUTION in the schema of all audits.

    Where nothing is memorised the mean matched-count score and the gain are 0; any other statistic is what it is when
    the models that held an image out are drawn anew.
    """
    null = 0.0 if each["score"] != "published" and each["statistic"] == "mean" else each["null"]
    estimate = Estimate(each["estimate"], each["low"], each["high"], each["n"])
    return row(METRICS[each["score"]], setting, estimate, UNIT, null, each["p_value"], published)
