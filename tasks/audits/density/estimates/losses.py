"""The losses after the last epoch, and what lies between training and test."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.statistics import Estimate
from tasks.summaries import Row, row


def losses(table: pa.Table) -> Iterator[Row]:
    """The mean loss of an image, in nats, by models and split; and the generalisation gap, test minus train.

    The gap of a model that memorises nothing is not quite 0: the loss of what is trained on is the mean over an epoch
    in which the model still learns.
    """
    rows = table.to_pylist()
    last = max((each["epoch"] for each in rows), default=0)
    for each in rows:
        if each["epoch"] == last:
            estimate = Estimate(each["estimate"], each["low"], each["high"], each["n"])
            setting = {"models": each["models"]}
            if each["split"] == "gap":
                yield row("generalisation gap", setting, estimate, "training")
            else:
                yield row("loss", setting | {"split": each["split"]}, estimate, "training")
