"""Shapes of images are read with the channels first or last, by one rule."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.audits.unique_feature.given_models import Given
from tasks.external.audited_model import _image_shape
from tasks.external.image_shape import channel_axis, channels_last


@pytest.mark.parametrize(
    ("sizes", "axis", "shape"),
    [
        ((32, 24, 3), 2, (32, 24, 3)),
        ((3, 32, 24), 0, (32, 24, 3)),
        ((1, 28, 28), 0, (28, 28, 1)),
        ((28, 28, 1), 2, (28, 28, 1)),
        ((3, 32, 3), None, (3, 32, 3)),  # both fit
        ((1, 5, 1), None, (1, 5, 1)),
        ((7, 8, 9), None, (7, 8, 9)),  # neither fits
    ],
)
def test_order_is_read_if_only_one_fits(
    sizes: tuple[int, int, int], axis: int | None, shape: tuple[int, int, int]
) -> None:
    assert channel_axis(sizes) == axis
    assert channels_last(sizes) == shape


def test_given_shape_has_one_form_for_both_orders() -> None:
    assert Given((3, 32, 24)) == Given((32, 24, 3))
    assert Given((3, 32, 24)).shape == (32, 24, 3)
    assert Given((1, 28, 28)) == Given((28, 28, 1))


@pytest.mark.parametrize("sizes", [(3, 32, 24), (32, 24, 3)])
def test_audited_arrays_follow_the_same_rule(sizes: tuple[int, int, int]) -> None:
    assert _image_shape(np.zeros((2, *sizes))) == Given(sizes).shape
