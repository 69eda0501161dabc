"""Valid configurations, and the epochs at which models are evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Spec
from tasks.audits.density.config import (
    Density,
    Memorization,
    ModelTraining,
    NeighbourMeasure,
    PublishedFolds,
    SingleRows,
)
from tasks.audits.density.presets import PRESETS
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import DensityModel

RELEASED = PublishedFolds()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"negligible": 2.0, "detectable": 2.0}, "detectable is 2.0; it must be above negligible, 2.0"),
        (
            {"estimator": SingleRows(), "measures": (NeighbourMeasure(),)},
            "measures has neighbours; estimator must be kfold for it",
        ),
        (
            {"estimator": RELEASED, "data": Dataset("digits")},
            "^estimator is released and there is no such partition of digits; data must be one of mnist, ",
        ),
        (
            {"estimator": RELEASED, "examples": 9},
            "no such partition of the first 9 images of mnist; .* and examples 0, all of",
        ),
        ({"estimator": RELEASED, "repetitions": 11}, "^repetitions is 11; it must be at most 10, the released part"),
    ],
    ids=str,
)
def test_impossible_questions_are_refused_in_one_line(changed: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        replace(Memorization(), **changed)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "width", "message"),
    [
        ("gan", 1.0, "model is 'gan'; it must be one of vae, conv-vae"),
        ("conv-vae", 2.0, "width is 2 and model is conv-vae; model must be one of"),
        ("no function:here", 1.0, "model is 'no function:here'; write your own model"),
    ],
)
def test_impossible_models_are_refused_in_one_line(model: str, width: float, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        ModelTraining(DensityModel(model), width)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "jackknife"}, "estimator is 'jackknife'; allowed: kfold, released, loo"),
        ({"measures": "scores,gain"}, "is 'gain'; allowed: scores, outliers, neighbours, duplicates"),
        ({"estimator": "loo", "folds": 5}, "folds is not a field of|unknown field 'question.estimator.folds': loo has"),
        ({"question": "kernel", "epochs": 5}, "epochs is not a field of question=kernel"),
    ],
    ids=str,
)
def test_alternatives_and_their_fields_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        resolve_cells(Spec("density", "smoke", settings))


@pytest.mark.parametrize("name", ["epochs", "training.epochs", "question.epochs", "question.training.epochs"])
def test_training_settings_have_short_names(name: str) -> None:
    (cell,) = resolve_cells(Spec("density", "smoke", {name: "7"}))
    smoke = PRESETS["smoke"]
    assert isinstance(smoke, Density)
    assert isinstance(smoke.question, Memorization)
    training = replace(smoke.question.training, epochs=7)
    assert cell.config == Density(replace(smoke.question, training=training))


@pytest.mark.parametrize(
    ("epochs", "interval", "expected"),
    [
        (100, 5, tuple(range(5, 101, 5))),
        (50, 25, (25, 50)),
        (7, 3, (3, 6, 7)),
        (7, 0, (7,)),
        (7, 7, (7,)),
        (7, 9, (7,)),
        (1, 1, (1,)),
    ],
)
def test_models_are_evaluated_at_intervals_and_last_epoch(
    epochs: int, interval: int, expected: tuple[int, ...]
) -> None:
    assert ModelTraining(epochs=epochs, evaluation_interval=interval).recorded == expected
