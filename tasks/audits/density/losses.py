"""The losses during training, of the models that left something out and of those of all data.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", figure 4a.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks import statistics
from tasks.job import Inputs, task
from tasks.training.density_table import FITTED

LOSSES = pa.schema(
    [
        ("epoch", pa.int32()),  # from 1
        ("models", pa.string()),  # folds: each left a fold, or a row, out; whole: of all data
        ("split", pa.string()),  # train, test; gap: test minus train, training by training
        ("estimate", pa.float64()),  # in nats per image
        ("low", pa.float64()),  # 95 %, t over trainings
        ("high", pa.float64()),
        ("n", pa.int64()),  # trainings
    ]
)


SPLITS = ("train", "test", "gap")


@dataclass(frozen=True)
class Losses:
    """Nothing but its inputs bears on the table."""


@task(version=1, name="density.losses", gathers=True)
def losses(config: Losses, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """The mean losses at every epoch (LOSSES), from the trainings' tables, in any order and number.

    A training counts once at an epoch, however many of its links reach there, and not where its loss is null.
    """
    found: dict[tuple[str, int, str], dict[tuple[int | None, ...], float]] = {}
    for number, table in enumerate(inputs):
        if not table.schema.equals(FITTED):
            raise ValueError(f"input {number} is not the table of a training")
        for row in table.drop_columns(["log_p", "samples"]).to_pylist():
            models = "whole" if row["partition"] is None and row["row"] is None else "folds"
            training = (row["partition"], row["fold"], row["row"], row["seed"])
            said = {"train": row["train_loss"], "test": row["test_loss"]}
            if None not in said.values():
                said["gap"] = said["test"] - said["train"]
            for split, loss in said.items():
                if loss is not None:
                    found.setdefault((models, row["epoch"], split), {})[training] = loss
    rows = []
    for models, epoch, split in sorted(found, key=lambda key: (key[0], key[1], SPLITS.index(key[2]))):
        each = found[models, epoch, split]
        estimate = statistics.mean([each[training] for training in sorted(each, key=str)])
        about = {"epoch": epoch, "models": models, "split": split}
        numbers = {"estimate": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}
        rows.append(about | numbers)
    return pa.Table.from_pylist(rows, LOSSES)
