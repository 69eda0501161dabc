"""Answers of a model to the questions of a set, on the contexts as they are and on corrupted ones."""

from __future__ import annotations

import pyarrow as pa

# One row for each question that was asked, on one kind of context, after so many epochs of training.
ANSWERS = pa.schema(
    [
        ("epoch", pa.int64()),  # 0: before training; null where the training is not known
        ("split", pa.string()),  # train or validation
        ("corrupted", pa.bool_()),
        ("id", pa.string()),
        ("answer", pa.list_(pa.string())),  # its spans; empty where nothing was answered
        ("train_loss", pa.float64()),  # nats per token in that epoch; null before training
    ]
)
