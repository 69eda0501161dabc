import numpy as np
import torch

from bench.linear_memorization import by_steps, rows
from tasks.linear_memorization.gaussian_samples import normal_samples
from tasks.linear_memorization.gradient_flow import scores, spectrum


def test_the_curves_are_measured_beside_their_rival() -> None:
    (found,) = rows(tiny=True)
    assert "curves, n = 6, d = 9, 3 trainings, to t = 10" in found.what
    assert found.ratio > 0


def test_the_rival_draws_the_same_curves_as_its_steps_shrink() -> None:
    z, times = normal_samples(0, 0, 6, 9), np.array([0.1, 0.5, 1.0, 2.0])
    found = by_steps(z, times, 1e-3, 1001)
    for by_rival, ours in zip(found, scores(spectrum(torch.from_numpy(z)[None]), times), strict=True):
        np.testing.assert_allclose(by_rival[:3], ours[0, :3], atol=1e-3)
        assert np.isnan(by_rival[3])
