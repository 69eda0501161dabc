"""What a run may be asked for, and when its models are asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tasks.audits.density import Density
from tasks.contract.ranges import AtLeast, field_ranges
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import DensityModel
from tasks.training.recipe import Privacy

LEAST = [
    (name, each.low) for name, ranges in field_ranges(Density).items() for each in ranges if isinstance(each, AtLeast)
]


def test_every_count_has_a_smallest_value() -> None:
    assert 13 == len(LEAST)


@pytest.mark.parametrize(("name", "least"), LEAST)
def test_a_number_that_is_too_small_is_named(name: str, least: float) -> None:
    assert least == getattr(replace(Density(), **{name: least}), name)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"^{name} is {least - 1}; it must be at least {least}$"):
        replace(Density(), **{name: least - 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["learning_rate", "outlier_bin", "score_bin", "detectable"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_number_that_is_not_above_0_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {value}; it must be a finite number above 0$"):
        replace(Density(), **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"estimator": "jackknife"}, "estimator is 'jackknife'; it must be one of kfold, loo"),
        ({"asked": "validation"}, "asked is 'validation'; it must be one of train, test"),
        ({"measures": ()}, r"measures is \(\); it must be some of scores, outliers, neighbours, duplicates, kernel"),
        ({"measures": ("scores", "gain")}, r"measures is \('scores', 'gain'\); it must be some of scores, outliers"),
        ({"outliers": 1.0}, "outliers is 1.0; it must be a share from 0 to below 1"),
        ({"negligible": -0.1}, "negligible is -0.1; it must be a finite number of at least 0"),
        ({"negligible": math.inf}, "negligible is inf; it must be a finite number of at least 0"),
        ({"negligible": 2.0, "detectable": 2.0}, "detectable is 2.0; it must be above negligible, 2.0"),
        ({"model": DensityModel("own:flow"), "refine": 5}, "refine is 5; it must be 0 for a model of your own"),
        ({"outliers": -0.5}, "outliers is -0.5; it must be a share from 0 to below 1"),
        ({"estimator": "loo", "asked": "test"}, "asked is test and estimator loo; a training image alone can be left"),
        (
            {"estimator": "loo", "measures": ("scores", "neighbours")},
            "measures has neighbours; estimator must be kfold for it",
        ),
        ({"partitions": "theirs"}, "partitions is 'theirs'; it must be one of ours, released"),
        (
            {"partitions": "released", "data": Dataset("digits")},
            "^partitions is released and data is digits; it must be one of mnist, cifar10, celeba$",
        ),
        ({"partitions": "released", "estimator": "loo"}, "^partitions is released and estimator is loo; it must be"),
        ({"partitions": "released", "asked": "test"}, "^partitions is released and asked is test; it must be train$"),
        ({"partitions": "released", "examples": 9}, "^partitions is released and examples is 9; it must be 0, all of"),
        ({"partitions": "released", "folds": 5}, "^partitions is released and folds is 5; it must be 10$"),
        ({"partitions": "released", "repetitions": 11}, "^partitions is released and repetitions is 11; it must be at"),
        ({"privacy": Privacy(1.0), "link": 5}, "privacy is given and link is not 0; private training is one job"),
        ({"model": DensityModel("gan")}, "model is 'gan'; it must be one of vae, conv-vae"),
        ({"width": -1.0}, "width is -1.0; it must be a finite number above 0"),
        ({"model": DensityModel("conv-vae"), "width": 2.0}, "width is 2 and model is conv-vae; model must be one of"),
        ({"model": DensityModel("no function:here")}, "model is 'no function:here'; one of your own is written"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_refused_in_one_line(changed: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        replace(Density(), **changed)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("epochs", "every", "expected"),
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
def test_models_are_asked_at_every_so_many_epochs_and_after_the_last(
    epochs: int, every: int, expected: tuple[int, ...]
) -> None:
    assert expected == Density(epochs=epochs, every=every).recorded
