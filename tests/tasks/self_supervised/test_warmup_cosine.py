"""The schedule of the learning rate: its values where they can be worked out, and its ranges."""

import math

import numpy as np
import pytest

from tasks.self_supervised.warmup_cosine import WarmupCosine


def test_it_warms_up_linearly_and_falls_by_half_a_cosine_to_its_end() -> None:
    schedule = WarmupCosine(epochs=12, warmup=4, final=0.2)
    passed = np.array([0, 1, 3, 4, 6, 8, 10, 12, 40])
    root = math.sqrt(0.5)
    expected = [0, 0.25, 0.75, 1, 0.6 + 0.4 * root, 0.6, 0.6 - 0.4 * root, 0.2, 0.2]
    np.testing.assert_allclose(schedule.factors(passed), expected, atol=1e-15)


def test_without_warm_up_it_begins_at_its_height() -> None:
    np.testing.assert_allclose(WarmupCosine(2, warmup=0).factors(np.array([0.0, 1.0, 2.0])), [1, 0.5, 0], atol=1e-15)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0; it must be a finite number above 0"),
        ({"epochs": 5, "warmup": -1}, "warmup is -1; it must be at least 0"),
        ({"epochs": 5, "warmup": 5}, "warmup is 5; it must be below epochs, which is 5"),
        ({"epochs": 50, "final": 1.5}, "final is 1.5; it must be from 0 to 1"),
    ],
)
def test_a_cosine_that_cannot_be_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WarmupCosine(**settings)
