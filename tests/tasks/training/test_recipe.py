"""Recipes: the learning rate of every step, and what no recipe can ask for."""

import re
import subprocess
import sys

import pytest

from orchestrator.planning.identity import canonical
from orchestrator.spec.fields import coerce
from tasks.training.recipe import OptimiserName, Recipe


def test_a_schedule_changes_the_rate_after_so_many_epochs() -> None:
    recipe = Recipe(5, 8, 0.1, schedule=((2, 0.5), (4, 0.1)))
    assert [1, 1, 0.5, 0.5, 0.1, 0.1] == [recipe.factor(epoch) for epoch in range(1, 7)]
    assert 1 == Recipe(5, 8, 0.1).factor(5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": "adamw"}, "optimiser is 'adamw'; it must be one of adam, rmsprop"),
        *(
            (
                {"schedule": pairs},
                f"schedule is {re.escape(str(pairs))}; it must be pairs of an epoch from 1, ascending,",
            )
            for pairs in (((2, 0.5), (1, 0.1)), ((2, 0.1), (2, 0.01)), ((0, 0.1),), ((1, 0.0),))
        ),
        ({"accumulate": 0}, "accumulate is 0; it must be at least 1"),
        ({"accumulate": 3}, "accumulate is 3; it must divide batch, which is 8"),
    ],
)
def test_what_no_training_can_do_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(1, 8, 0.1, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [(), ((3, 0.1),)], ids=str)
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
def test_a_recipe_can_be_told_field_by_field(schedule: tuple[tuple[int, float], ...], optimiser: OptimiserName) -> None:
    recipe = Recipe(5, 8, 0.1, schedule=schedule, optimiser=optimiser)
    assert recipe == coerce(canonical(recipe), Recipe, "recipe")


def test_planning_by_a_recipe_loads_no_torch() -> None:
    code = "import sys; from tasks.training.recipe import Recipe; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False\n" == done.stdout
