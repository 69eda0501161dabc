"""Numbers of things read as a person says them."""

import pytest

from orchestrator.quantities import format_count


@pytest.mark.parametrize(
    ("number", "thing", "said"),
    [
        (1, "training", "1 training"),
        (12, "training", "12 trainings"),
        (12, "pair of trainings", "12 pairs of trainings"),
        (0, "job", "0 jobs"),
        (1797, "image", "1,797 images"),
        (2, "process", "2 processes"),
        (30, "canary", "30 canaries"),
        (2, "day", "2 days"),
        (3, "", "3"),
        (2, "more cell", "2 more cells"),
        (1, "more job", "1 more job"),
    ],
)
def test_the_first_word_takes_the_plural(number: int, thing: str, said: str) -> None:
    assert said == format_count(number, thing)
