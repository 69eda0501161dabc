import itertools
import math

import numpy as np
import pytest
import torch

from tasks.models.dequantisation import Binary, Logit, fixed_inputs, observation_keys
from tasks.models.outlier_density import LEAST_DEVIATION, VIEW, WIDER, OutlierDensity

F64 = torch.float64


def images(*rows: list[int]) -> np.ndarray:
    return np.array(rows, np.uint8).reshape(len(rows), 1, -1, 1)


def test_a_binary_pixel_is_half_the_images_share_and_half_a_coin() -> None:
    # The sums of shares are 1, 1.2 and 0 of two images: q = 2/4, 2.2/4 and 1/4, half of each and a quarter more.
    broad = OutlierDensity(Binary((1, 3, 1), padding=0), images([255, 51, 0], [0, 255, 0]))
    p = [0.5, 0.525, 0.375]
    x = torch.tensor([[[1.0, 0, 0], [0, 1, 1]]], dtype=F64)
    expected = [math.log(p[0] * (1 - p[1]) * (1 - p[2])), math.log((1 - p[0]) * p[1] * p[2])]
    torch.testing.assert_close(torch.tensor([expected], dtype=F64), broad.log_p(x))


def test_the_frame_is_a_part_of_it() -> None:
    broad = OutlierDensity(Binary((1, 1, 1), padding=1), images([255], [255]))
    x = torch.zeros(1, 1, 9, dtype=F64)
    x[..., 4] = 1
    assert math.log(0.625 * 0.625**8) == pytest.approx(float(broad.log_p(x)))


def test_the_probabilities_of_all_binary_images_add_up_to_one() -> None:
    broad = OutlierDensity(
        Binary((2, 3, 1), padding=0), np.random.default_rng(0).integers(0, 256, (5, 2, 3, 1), dtype=np.uint8)
    )
    every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=F64)[None]
    assert 1 == pytest.approx(float(broad.log_p(every).exp().sum()))


def test_a_real_pixel_has_the_images_mean_and_twice_their_deviation() -> None:
    preparation = Logit((1, 2, 1))
    given = images([0, 100], [255, 100], [30, 100])
    seen = fixed_inputs(
        preparation, torch.from_numpy(given.reshape(3, 2)), observation_keys(VIEW, torch.arange(3)), F64
    )
    deviation = WIDER * float(seen[:, 0].std(correction=0))
    assert deviation > LEAST_DEVIATION > WIDER * float(seen[:, 1].std(correction=0))
    x = torch.tensor([[[0.3, -0.2]]], dtype=F64)
    normal = torch.distributions.Normal(seen.mean(0), torch.tensor([deviation, LEAST_DEVIATION], dtype=F64))
    torch.testing.assert_close(normal.log_prob(x).sum(-1), OutlierDensity(preparation, given).log_p(x))


def test_every_model_and_row_is_told_by_itself() -> None:
    for preparation in (Binary((4, 4, 1)), Logit((4, 4, 3))):
        given = np.random.default_rng(0).integers(0, 256, (9, *preparation.shape), dtype=np.uint8)
        x = torch.rand(3, 5, math.prod(preparation.seen_shape)).round()
        broad = OutlierDensity(preparation, given)
        each = torch.stack([torch.stack([broad.log_p(row[None, None])[0, 0] for row in model]) for model in x])
        torch.testing.assert_close(each, broad.log_p(x))
