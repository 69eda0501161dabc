"""What the paper prints, and which runs repeat it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.presets import CRITERIA as ORDER
from tasks.audits.deja_vu.presets import PRESETS, QUICKSTART, criterion_cell
from tasks.audits.deja_vu.published import CRITERIA, Printed, printed_numbers, repeats
from tasks.datasets.dataset import Dataset


def test_every_criterion_of_the_table_has_its_numbers() -> None:
    assert set(ORDER) == set(CRITERIA)
    assert Printed(0.332, 0.403, 0.552) == printed_numbers("vicreg")
    assert ["vicreg", "barlow", "dino", "simclr", "supervised", "byol"] == sorted(
        CRITERIA, key=lambda c: -CRITERIA[c][0]
    )


@pytest.mark.parametrize("criterion", ORDER)
def test_the_published_setting_repeats_it_whatever_is_left_open(criterion: str) -> None:
    config = next(cell for cell in PRESETS["epochs"] if cell.criterion == criterion)  # type: ignore[union-attr]
    for run in (config, replace(config, seed=7, accumulate=8, precision="bfloat16", resamples=10, link=10)):
        assert criterion == repeats(run)
    assert criterion == repeats(replace(config, data=Dataset("imagenet", "ab12")))


@pytest.mark.parametrize(
    "other",
    [
        {"per_class": 100},
        {"epochs": 999},
        {"batch": 512},
        {"crop": "strips"},
        {"k": (50,)},
        {"layers": (0,)},
        {"confident": 10},
        {"fine_tuning": 20},
        {"trained": "other"},
        {"data": Dataset("digits-on-photos")},
        {"invariance": 10.0},
        {"projector": (2048, 2048)},
    ],
)
def test_another_setting_repeats_nothing(other: dict[str, object]) -> None:
    assert "" == repeats(replace(criterion_cell("vicreg"), **other))  # type: ignore[arg-type]


def test_settings_of_other_criteria_do_not_matter() -> None:
    assert "vicreg" == repeats(replace(DejaVu(), temperature=0.3))
    assert "" == repeats(QUICKSTART)
