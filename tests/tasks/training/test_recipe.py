"""Recipes: learning rates, invalid settings, and the power that privacy allows a test."""

from __future__ import annotations

import math
import re

import pytest

from orchestrator.planning.identity import canonical
from orchestrator.spec.fields import coerce
from tasks.numerics.epsilon import least_epsilon
from tasks.training.recipe import OptimiserName, Privacy, Recipe


def test_schedule_changes_rate_after_its_epochs() -> None:
    recipe = Recipe(5, 8, 0.1, schedule=((2, 0.5), (4, 0.1)))
    assert [recipe.factor(epoch) for epoch in range(1, 7)] == [1, 1, 0.5, 0.5, 0.1, 0.1]
    assert Recipe(5, 8, 0.1).factor(5) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": "adamw"}, "optimiser is 'adamw'; it must be one of adam, rmsprop, nesterov"),
        *(
            (
                {"schedule": pairs},
                f"schedule is {re.escape(str(pairs))}; it must be pairs of ascending epochs from 1 and",
            )
            for pairs in (((2, 0.5), (1, 0.1)), ((2, 0.1), (2, 0.01)), ((0, 0.1),), ((1, 0.0),))
        ),
        ({"accumulate": 0}, "accumulate is 0; it must be at least 1"),
        ({"accumulate": 3}, "accumulate is 3; it must divide batch, which is 8"),
    ],
)
def test_invalid_recipes_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(1, 8, 0.1, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [(), ((3, 0.1),)], ids=str)
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
def test_recipe_is_read_from_its_fields(schedule: tuple[tuple[int, float], ...], optimiser: OptimiserName) -> None:
    recipe = Recipe(5, 8, 0.1, schedule=schedule, optimiser=optimiser)
    assert recipe == coerce(canonical(recipe), Recipe, "recipe")


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_reaches_power_limit_of_epsilon(epsilon: float) -> None:
    right = math.exp(epsilon) / (1 + math.exp(epsilon))  # the probability of the true answer
    allowed = Privacy(epsilon, 1e-12)
    assert right == pytest.approx(allowed.power(1 - right))
    # Half the power, or a random positive in half of the negative answers.
    assert right / 2 == pytest.approx(allowed.power((1 - right) / 2))
    assert (1 + right) / 2 == pytest.approx(allowed.power(1 - right / 2))


def test_power_includes_delta_up_to_one() -> None:
    assert 0.05 * math.e + 0.01 == pytest.approx(Privacy(1.0, 0.01).power(0.05))
    assert pytest.approx(Privacy(1.0, 0.01).power(0.0)) == 0.01
    assert Privacy(200.0, 0.5).power(0.6) == 1.0


@pytest.mark.parametrize(("epsilon", "level"), [(0.5, 0.05), (2.0, 0.05), (6.0, 0.05), (6.0, 0.001)])
def test_least_epsilon_inverts_power(epsilon: float, level: float) -> None:
    power = Privacy(epsilon, 1e-5).power(level)
    assert epsilon == pytest.approx(least_epsilon(power, level, 1e-5))


def test_chance_shows_no_epsilon_and_certainty_any() -> None:
    assert 0.0 == least_epsilon(0.05, 0.05, 1e-5) == least_epsilon(0.0, 0.05, 1e-5)
    assert least_epsilon(1.0, 0.05, 1e-5) == math.inf


def test_privacy_out_of_range_is_refused() -> None:
    for fields, message in (
        ({"epsilon": 0.0}, "epsilon is 0.0; it must be a finite number above 0"),
        ({"epsilon": 201.0}, "epsilon is 201.0; it must be at most 200, since larger values offer no privacy"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta is 0.0; it must be between 0 and 1"),
    ):
        with pytest.raises(ValueError, match="it must be") as caught:
            Privacy(**fields)
        assert message == str(caught.value)
