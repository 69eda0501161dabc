"""The number of trainings for the paper's figures, and the runs that repeat its numbers."""

from __future__ import annotations

from functools import partial

import pytest

from tasks.audits.deja_vu import AUDIT, PRESETS, DejaVu
from tasks.audits.deja_vu.presets import (
    CRITERIA,
    PRINTED,
    QUICKSTART,
    Printed,
    criterion_cell,
    printed_numbers,
    repeats,
)
from tasks.datasets.dataset import Dataset
from tasks.self_supervised.pretraining_config import VICReg
from tests.support import plans
from tests.support.plans import calls
from tests.support.settings import with_settings

OURS = ("quickstart", "null", "overtrained", "correlated", "smoke", "drawings")
plan_cells = partial(plans.planned, "deja_vu")


@pytest.mark.parametrize(
    ("preset", "pairs"),
    [
        ("figure3", 2),  # VICReg, supervised
        ("epochs", 6),  # one training per criterion, with six checkpoints
        ("sizes", 2 * 5),  # VICReg, supervised
        ("loss", 6 + 10),  # invariances, temperatures
        ("layers", 1),
        ("backbone", 2 * 5),  # by epochs and by sizes; 300 per class is in both
        ("architectures", 4 + 4),
        ("k", 1),
        ("finetune", 1),
        ("retrieval", 2),
        ("corner", 3 * 5),  # VICReg, SimCLR, supervised
        ("reconstruction", 1),
    ],
)
def test_figures_need_the_papers_pairs_of_trainings(preset: str, pairs: int) -> None:
    trainings_of_cells = set()
    for cell in AUDIT.cells(preset):
        for part in ("A", "B"):
            trainings_of_cells.add(cell.pretraining(part, ()))
    assert 2 * pairs == len(trainings_of_cells)


def test_all_figures_of_the_paper_share_their_trainings() -> None:
    cells = [cell for preset in PRESETS if preset not in OURS for cell in AUDIT.cells(preset)]
    trainings_of_cells = set()
    for cell in cells:
        for part in ("A", "B"):
            trainings_of_cells.add(cell.pretraining(part, ()))
    # Six criteria; three criteria at four more sizes; 16 losses, two with the same size; seven more backbones.
    assert len(trainings_of_cells) == 2 * (6 + 3 * 4 + 14 + 7)


def test_links_without_a_snapshot_are_not_attacked() -> None:
    call_counts = calls(plan_cells([with_settings(QUICKSTART, checkpoints=())]))
    assert call_counts["self_supervised.pretrain"] == 6
    assert call_counts["deja_vu.neighbours"] == 2


@pytest.mark.parametrize("preset", PRESETS)
def test_tiny_scale_records_no_more_epochs(preset: str) -> None:
    configs = AUDIT.cells(preset)
    assert [len(config.recorded) for config in configs] >= [len(AUDIT.tiny(config).recorded) for config in configs]


def test_every_criterion_of_the_table_has_its_numbers() -> None:
    assert {criterion.tag for criterion in CRITERIA} == set(PRINTED)
    assert Printed(0.332, 0.403, 0.552) == printed_numbers("vicreg")
    assert sorted(PRINTED, key=lambda c: -PRINTED[c][0]) == ["vicreg", "barlow", "dino", "simclr", "supervised", "byol"]


@pytest.mark.parametrize("config", AUDIT.cells("epochs"), ids=lambda config: config.training.criterion.tag)
def test_published_setting_repeats_its_criterion(config: DejaVu) -> None:
    assert repeats(config) == config.training.criterion.tag
    for settings in (
        {"seed": 7, "accumulate": 8, "precision": "bfloat16", "resamples": 10, "link": 10},
        {"data": Dataset("imagenet", "ab12")},
        {"checkpoints": (), "probe": False, "retrieval": None},
    ):
        assert repeats(with_settings(config, **settings)) == config.training.criterion.tag


@pytest.mark.parametrize(
    "settings",
    [
        {"per_class": 100},
        {"epochs": 999},
        {"batch": 512},
        {"crop": "strips"},
        {"k": (50,)},
        {"layers": (0,)},
        {"confident_percent": 10},
        {"fine_tuning": 20},
        {"training_sets": "other"},
        {"data": Dataset("digits-on-photos")},
        {"invariance": 10.0},
        {"projector": (2048, 2048)},
    ],
)
def test_another_setting_repeats_nothing(settings: dict[str, object]) -> None:
    assert repeats(with_settings(criterion_cell(VICReg()), **settings)) == ""


def test_own_preset_repeats_nothing() -> None:
    assert repeats(QUICKSTART) == ""
