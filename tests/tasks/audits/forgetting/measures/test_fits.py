"""The quality of trainings, read from their tables."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.forgetting.measures.fits import FITS, Fit, fit
from tasks.audits.forgetting.trainings import ModelId
from tasks.numerics.statistics import mean
from tasks.training.mixed import MIXED
from tests.tasks.audits.forgetting.summarised import Row, numbers, rows, setting


def test_fit_is_read_from_the_last_epoch() -> None:
    epochs = []
    for index in (1, 2):
        epochs.append(
            {"epoch": index, "train_loss": 1 / index, "validation_loss": 0.5, "validation_accuracy": 0.25 * index}
        )
    names = dict.fromkeys(MIXED.names)
    accuracy = names | {"seed": 7, "examples": 60, "epochs": 2, "history": epochs, "train_accuracy": 0.9}
    result = fit(Fit(ModelId("target", 3, 1)), [pa.Table.from_pylist([accuracy], MIXED)])
    expected = {"model": "target", "target": 3, "replicate": 1, "seed": 7, "examples": 60, "epochs": 2}
    expected |= {"train_loss": 0.5, "train_accuracy": 0.9, "validation_accuracy": 0.5}
    assert result.schema == FITS
    assert result.to_pylist() == [expected]


def test_summary_has_train_accuracy_by_kind() -> None:
    def training(model: str, accuracy: float) -> Row:
        return dict.fromkeys(FITS.names) | {"model": model, "replicate": 0, "train_accuracy": accuracy}

    fits = [training("query", 1.0), training("query", 0.98), training("target", 0.9)]
    result = rows(*(pa.Table.from_pylist([item], FITS) for item in fits))
    expected = mean([1.0, 0.98])
    query = result["train accuracy", setting(models="query")]
    assert numbers(query)[:4] == (expected.value, expected.low, expected.high, 2)
    assert numbers(result["train accuracy", setting(models="target")])[:4] == (0.9, None, None, 1)
    assert numbers(result["lowest train accuracy", "{}"])[:4] == (0.9, None, None, 3)
