"""Unlearning as a task: settings, initial weights and table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Share
from tasks.models.catalog import Network
from tasks.models.networks import weights_of_model
from tasks.training.mixed import MIXED, Mixture, train, unlearn
from tasks.training.unlearning_config import (
    Distillation,
    GradientAscent,
    RandomLabels,
    TuningOnKept,
    Unlearning,
)


@pytest.mark.parametrize(
    ("make_method", "message"),
    [
        (lambda: TuningOnKept(epochs=0), "epochs is 0; it must be at least 1"),
        (lambda: GradientAscent(learning_rate=0.0), "learning_rate is 0.0; it must be a finite number above 0"),
        (lambda: RandomLabels(epochs=0), "epochs is 0; it must be at least 1"),
        (lambda: Distillation(forgetting=11), "forgetting is 11; it must be at most epochs, which is 10"),
        (
            lambda: Distillation(cross_entropy=0.0, divergence=0.0),
            "cross_entropy and divergence are both 0; set one of",
        ),
        (lambda: Distillation(falls=(8, 5)), r"falls is \(8, 5\); it must be ascending epochs from 1"),
    ],
)
def test_invalid_settings_are_refused(make_method: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        make_method()


DIGITS = pin(Dataset("digits"))
ON_PHOTOS = pin(Dataset("digits-on-photos"))
KEPT = Share(Part(ON_PHOTOS, 100, 60))
FORGOTTEN = Share(Part(DIGITS, 0, 100), 0.4, 3)
TRAINED = train(Mixture((KEPT, FORGOTTEN), DIGITS, 10, network=Network("mlp1"), epochs=3, seed=5), [])
CONFIG = Unlearning((KEPT,), (FORGOTTEN,), TuningOnKept(2, 1e-3), DIGITS, 10, seed=6)


def test_table_has_schema_of_a_training() -> None:
    table = unlearn(CONFIG, [TRAINED])
    assert table.schema.equals(MIXED)
    (row,) = table.to_pylist()
    assert row["seed"] == 6
    assert row["examples"] == 60
    assert row["epochs"] == 2
    assert row["best_epoch"] == 2
    assert TRAINED["network"].to_pylist() == [row["network"]]
    assert 0 <= row["train_accuracy"] <= 1


def test_unlearning_starts_from_trained_weights() -> None:
    before, after = (
        weights_of_model(TRAINED),
        weights_of_model(unlearn(replace(CONFIG, method=TuningOnKept(1, 1e-9)), [TRAINED])),
    )
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, atol=1e-7)


def test_images_both_kept_and_forgotten_are_refused() -> None:
    twice = replace(CONFIG, kept=(KEPT, Share(Part(DIGITS, 0, 10))), forgotten=(Share(Part(DIGITS, 0, 100)),))
    with pytest.raises(ValueError, match=r"^10 images are both kept and forgotten; the shares must be disjoint$"):
        unlearn(twice, [TRAINED])


@pytest.mark.parametrize(("changes", "message"), [({"kept": ()}, "kept is empty"), ({"batch": 0}, "batch is 0")])
def test_invalid_config_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        replace(CONFIG, **changes)  # type: ignore[arg-type]


def test_ascent_records_losses_of_forgotten_images() -> None:
    (row,) = unlearn(replace(CONFIG, method=GradientAscent(1, 1e-6)), [TRAINED]).to_pylist()
    assert 0 < row["history"][0]["train_loss"] < 3
