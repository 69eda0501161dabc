"""The bounds against hand calculations and measured memorization."""

import math

import numpy as np
import pytest

from tasks.contract.job import marks
from tasks.linear_memorization import private_training
from tasks.linear_memorization.private import PRIVATE, private, success_bound
from tasks.linear_memorization.private_config import Private, levels

SMALL = {"samples": 8, "features": 12, "steps": 20, "time": 2.0, "clip": 1.0, "trainings": 100}


def test_success_bound_by_hand() -> None:
    assert pytest.approx(success_bound(math.log(3), 0.0, 2)) == 0.25  # right three times in four
    assert pytest.approx(success_bound(math.log(3), 0.0, 4)) == 0.5 - 0.25  # 3 / (3 + 3)
    assert pytest.approx(success_bound(1e-300, 0.0, 7)) == 0.0
    assert pytest.approx(success_bound(1e-300, 1.0, 7)) == 6 / 7  # all values may be revealed with probability delta
    assert pytest.approx(success_bound(200.0, 0.0, 7)) == 6 / 7
    assert success_bound(1.0, 0.0, 4) < success_bound(1.0, 1e-3, 4)


@pytest.mark.parametrize("values", [2, 3, 10, 100, 10_000])
def test_entropy_times_memorization_never_exceeds_epsilon(values: int) -> None:
    for epsilon in np.logspace(-4, 2, 200):
        assert math.log(values) * success_bound(epsilon, 0.0, values) <= epsilon


@pytest.mark.parametrize("values", [2, 3, 10])
def test_values_have_mean_0_and_variance_1(values: int) -> None:
    assert pytest.approx(levels(values).mean()) == 0
    assert pytest.approx(levels(values).var()) == 1
    assert len({round(gap, 12) for gap in np.diff(levels(values)).tolist()}) == 1


def test_table_lists_estimates_with_their_bounds() -> None:
    table = private(Private(**SMALL, epsilons=(1.0, 8.0)), [])
    assert table.schema == PRIVATE
    rows = table.to_pylist()
    assert len(rows) == 2 * (1 + 3 * 2)
    for row in rows:
        assert row["n"] == 100
        assert row["entropy"] == pytest.approx(math.log(4))
        assert row["m"] == pytest.approx(row["r_train"] - row["r_validation"])
        assert row["low"] < row["m"] < row["high"]
        assert (row["mechanism"] == "none") == (row["epsilon"] is None) == (row["success_bound"] is None)
        assert (row["mechanism"] == "noisy_descent") == (row["delta"] is not None)
        pure = row["mechanism"] in ("randomised_response", "output_perturbation")
        assert row["bound"] == (pytest.approx(row["epsilon"] / math.log(4)) if pure else None)


def test_measured_memorization_never_exceeds_its_bounds() -> None:
    """In 10 runs, no H(X) m is above epsilon, and few intervals are above the bound on success.

    Randomised response attains the bound, so 2.5 % of the ratio's 40 intervals exceed it by chance.
    """
    estimates = above_epsilon = above_success = 0
    for seed in range(10):
        for row in private(Private(**SMALL, epsilons=(0.5, 1.0, 2.0, 4.0), seed=seed), []).to_pylist():
            if row["epsilon"] is not None:
                above_success += row["low"] > row["success_bound"]
            if row["bound"] is not None:
                estimates += 1
                above_epsilon += row["entropy"] * row["m"] > row["epsilon"]
    assert estimates == 160
    assert above_epsilon == 0
    assert above_success <= 6


def test_randomised_response_attains_the_bound_of_success() -> None:
    config = Private(**SMALL | {"trainings": 3000}, mechanisms=("randomised_response",), epsilons=(0.5, 2.0, 8.0))
    for row in private(config, []).to_pylist():
        if row["query"] == "ratio":
            assert row["m"] == pytest.approx(row["success_bound"], abs=0.02)
        else:  # the raw query answers too small an x
            assert row["high"] < row["success_bound"]


def test_fresh_samples_are_answered_by_chance() -> None:
    config = Private(**SMALL | {"trainings": 2000}, epsilons=(4.0,))
    for row in private(config, []).to_pylist():
        assert pytest.approx(row["r_validation"], abs=0.02) == 0.25


def test_more_noise_leaves_less_memorization() -> None:
    config = Private(**SMALL | {"trainings": 1000}, epsilons=(0.1, 8.0, 200.0), values=2)
    memorization = {}
    for row in private(config, []).to_pylist():
        memorization[(row["mechanism"], row["epsilon"])] = row["m"]
    for mechanism in ("randomised_response", "output_perturbation", "noisy_descent"):
        assert abs(memorization[mechanism, 0.1]) < 0.06
        assert memorization[mechanism, 0.1] < memorization[mechanism, 8.0] < memorization[mechanism, 200.0] + 0.01
        assert memorization[mechanism, 200.0] == pytest.approx(memorization["none", None], abs=0.06)


def test_private_training_is_independent_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Private(**SMALL, epsilons=(2.0, 8.0))
    together = private(config, [])
    monkeypatch.setattr(private_training, "fitting", lambda *_: 7)
    assert together.equals(private(config, []))
    fewer = private(Private(**SMALL, epsilons=(8.0,), mechanisms=("noisy_descent",)), []).to_pylist()
    assert [
        row for row in together.to_pylist() if (row["mechanism"], row["epsilon"]) == ("noisy_descent", 8.0)
    ] == fewer


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"values": 1}, "values is 1; it must be at least 2"),
        ({"epsilons": ()}, r"epsilons is \(\); each must be above 0"),
        ({"epsilons": (1.0, 0.0)}, "each must be above 0 and at most 200"),
        ({"epsilons": (math.nan,)}, "each must be above 0 and at most 200"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"mechanisms": ("noise",)}, "mechanisms is"),
        ({"features": 20}, "features is 20 and samples 40; features must be at least samples"),
        ({"steps": 10}, r"time / steps is 0.2; it must be at most 0.02\d+ .* take more steps"),
    ],
)
def test_invalid_configs_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Private(**fields)  # type: ignore[arg-type]


def test_unreachable_epsilon_is_refused() -> None:
    with pytest.raises(ValueError, match=r"epsilons: 1e-09 is too small for the noisy descent"):
        private(Private(**SMALL, epsilons=(1e-9,)), [])


def test_task_has_its_name() -> None:
    assert marks(private).name == "linear_memorization.private"
    assert marks(private).version == 1
