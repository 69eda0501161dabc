from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from tasks.models import vae
from tasks.models.catalog import CLASSIFIERS, CNN1, CNN2, MLP1, Hidden, autoencoder_growth, classifier_growth
from tasks.models.layers import Weight
from tasks.models.networks import WIDE, Architecture

GREY = (28, 28, 1)


def matrices(weights: Mapping[str, Weight]) -> int:
    """The numbers in all weights of dense layers: products of one image."""
    return sum(math.prod(weight.shape) for weight in weights.values() if len(weight.shape) == 2)


def test_units_are_rounded_and_at_least_one() -> None:
    assert MLP1.times(0.25).units == (128, 64, 32)
    assert MLP1.times(2).units == (1024, 512, 256)
    assert MLP1.times(1e-9).units == (1, 1, 1)
    assert Hidden((16, 32), (64, 64), (2,)) == CNN1.times(0.5)
    assert Hidden(units=(5, 4, 3)).times(0.5).units == (3, 2, 2)  # halves up
    assert MLP1.times(1) == MLP1
    assert CNN1.times(1) == CNN1
    assert CNN2.times(1) == CNN2
    assert list(WIDE) == list(CLASSIFIERS)


def test_products_are_counted_by_layer() -> None:
    assert matrices(Architecture("mlp1", GREY, 10, width=0.5).weights) == MLP1.times(0.5).products(GREY, 10)
    first, second = 26 * 26 * 32 * 9, 24 * 24 * 64 * 32 * 9
    assert first + second + 12 * 12 * 64 * 128 + 128 * 128 + 128 * 10 == CNN1.products(GREY, 10)
    dense = matrices(Architecture("cnn2", (32, 32, 3), 10).weights)
    convolved = 9 * (30**2 * 3 * 32 + 28**2 * 32 * 32 + 12**2 * 32 * 64 + 10**2 * 64 * 64)
    assert convolved + dense == CNN2.products((32, 32, 3), 10)


@pytest.mark.parametrize("width", [0.25, 2.0])
def test_training_time_follows_from_products(width: float) -> None:
    wide = matrices(Architecture("mlp1", GREY, 10, width=width).weights)
    published = matrices(Architecture("mlp1", GREY, 10, width=1.0).weights)
    assert 0.15 + 0.85 * wide / published == pytest.approx(classifier_growth("mlp1", GREY, 10, width))
    wide = matrices(vae.mnist(GREY, width).weights)
    published = matrices(vae.mnist(GREY, 1.0).weights)
    training_growth, decoding_growth = autoencoder_growth(GREY, width)
    assert 0.15 + 0.85 * wide / published == pytest.approx(training_growth)
    assert 0.9 < decoding_growth / training_growth < 1.1
    assert classifier_growth("resnet18", GREY, 10, 1) == 1.0
    assert autoencoder_growth(GREY, 1) == (1.0, 1.0)
