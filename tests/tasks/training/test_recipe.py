"""Recipes: the learning rate of every step, and what no recipe can ask for."""

import subprocess
import sys

import pytest

from orchestrator.planning.identity import canonical
from orchestrator.spec.fields import coerce
from tasks.training.learning_rates import Constant, Schedule, Steps, WarmupCosine
from tasks.training.optimiser_config import LARS, SGD, Adafactor, AdamW, OptimiserConfig
from tasks.training.recipe import Recipe


def test_a_schedule_of_pairs_is_one_of_steps() -> None:
    pairs, steps = (Recipe(5, 8, 0.1, schedule=schedule) for schedule in (((2, 0.5),), Steps(((2, 0.5),))))
    for recipe in (pairs, steps):
        assert [1, 1, 0.5, 0.5] == [recipe.factor(epoch) for epoch in (1, 2, 3, 4)]
        assert [0.5, 0.5, 0.5] == recipe.factors(3, 3).tolist()
    assert 1 == Recipe(5, 8, 0.1).factor(5) == Recipe(5, 8, 0.1, schedule=Constant()).factor(5)


def test_rates_change_from_step_to_step_by_the_epochs_that_have_passed() -> None:
    recipe = Recipe(3, 8, 0.1, schedule=WarmupCosine(10, warmup=2))
    assert [0, 0.125, 0.25, 0.375] == recipe.factors(1, 4).tolist()
    assert [0.5, 0.75] == recipe.factors(2, 2).tolist()
    assert 0.5 == recipe.factor(2)


def test_how_long_a_training_goes_on_does_not_bear_on_its_rates() -> None:
    schedule = WarmupCosine(10, warmup=2)
    short, long = (Recipe(epochs, 8, 0.1, schedule=schedule) for epochs in (3, 10))
    assert short.factors(3, 7).tolist() == long.factors(3, 7).tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": "adamw"}, "optimiser is 'adamw'; it must be one of adam, rmsprop"),
        (
            {"optimiser": AdamW(), "epsilon": 1e-8},
            "epsilon is 1e-08; it is for adam and rmsprop, and adamw has its own",
        ),
        ({"schedule": ((2, 0.5), (1, 0.1))}, r"schedule is \(\(2, 0.5\), \(1, 0.1\)\); it must be pairs of an epoch"),
        ({"accumulate": 0}, "accumulate is 0; it must be at least 1"),
        ({"accumulate": 3}, "accumulate is 3; it must divide batch, which is 8"),
    ],
)
def test_what_no_training_can_do_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(1, 8, 0.1, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [(), ((3, 0.1),), Constant(), Steps(((3, 0.1),)), WarmupCosine(20)], ids=str)
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop", SGD(), LARS(), AdamW(), Adafactor()], ids=str)
def test_a_recipe_can_be_told_field_by_field(
    schedule: Schedule | tuple[tuple[int, float], ...], optimiser: OptimiserConfig
) -> None:
    recipe = Recipe(5, 8, 0.1, schedule=schedule, optimiser=optimiser)  # type: ignore[arg-type]
    assert recipe == coerce(canonical(recipe), Recipe, "recipe")


def test_planning_by_a_recipe_loads_no_torch() -> None:
    code = "import sys; from tasks.training.recipe import Recipe; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False\n" == done.stdout
