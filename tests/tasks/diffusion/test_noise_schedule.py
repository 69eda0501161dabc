"""How much noise the steps of a diffusion add: against the papers' numbers."""

from typing import get_args

import numpy as np
import pytest

from tasks.diffusion.diffusion_config import ScheduleName
from tasks.diffusion.noise_schedule import signal, variances


def test_the_linear_schedule_is_the_published_one() -> None:
    values = variances("linear", 1000)
    assert (1000, 1e-4, 0.02) == (len(values), values[0], values[-1])
    np.testing.assert_allclose(np.diff(values), (0.02 - 1e-4) / 999)


def test_the_cosine_schedule_leaves_the_signal_of_its_formula() -> None:
    # alpha_bar_t = f(t) / f(0), before the last step's variance is cut down
    t = np.arange(1, 1000)
    f = np.cos((np.append(0, t) / 1000 + 0.008) / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(signal("cosine", 1000)[:-1], f[1:] / f[0], rtol=1e-9)
    assert 0.999 == variances("cosine", 1000)[-1]


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
@pytest.mark.parametrize("steps", [1000, 100])
def test_a_diffusion_begins_at_the_image_and_ends_in_noise_however_many_steps_it_has(
    schedule: ScheduleName, steps: int
) -> None:
    kept = signal(schedule, steps)
    assert np.all(np.diff(kept) < 0)
    assert kept[0] > 1 - 2 / steps
    assert 0 < kept[-1] < 1e-4


def test_the_signal_of_two_steps_by_hand() -> None:
    # variances 1e-4 * 500 and 0.02 * 500, the latter cut to 0.999
    np.testing.assert_allclose(signal("linear", 2), [0.95, 0.95 * 0.001])
