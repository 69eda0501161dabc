"""Every preset plans what it says, with as many trainings as the paper's figure has; which runs repeat its numbers."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tasks.audits.deja_vu import AUDIT, PRESETS, DejaVu
from tasks.audits.deja_vu.config import Corner
from tasks.audits.deja_vu.presets import (
    CHECKPOINTS,
    CRITERIA,
    PRINTED,
    QUICKSTART,
    K,
    Printed,
    criterion_cell,
    printed_numbers,
    repeats,
)
from tasks.datasets.dataset import Dataset
from tasks.self_supervised.pretraining_config import SimCLR, VICReg
from tests.support import plans
from tests.support.plans import calls
from tests.support.settings import with_settings

HERE = ("quickstart", "null", "overtrained", "correlated", "smoke")
OURS = (*HERE, "drawings")
DRAWN = {"drawn", "reconstruction"}
TABLES = {"scores", "encoders", "categories", "probe", "crops", "retrieval", "inferences", "neighbours", "summary"}
planned = partial(plans.planned, "deja_vu")


@pytest.mark.parametrize(
    ("preset", "pairs"),
    [
        ("figure3", 2),  # VICReg, supervised
        ("epochs", 6),  # a training for each criterion, with six checkpoints
        ("sizes", 2 * 5),  # VICReg, supervised
        ("loss", 6 + 10),  # invariances, temperatures
        ("layers", 1),
        ("backbone", 2 * 5),  # by epochs and by sizes, of which 300 per class is in both
        ("architectures", 4 + 4),
        ("k", 1),
        ("finetune", 1),
        ("retrieval", 2),
        ("corner", 3 * 5),  # VICReg, SimCLR, supervised
        ("reconstruction", 1),
    ],
)
def test_the_papers_figures_have_as_many_pairs_of_trainings(preset: str, pairs: int) -> None:
    found = {cell.pretraining(part, ()) for cell in AUDIT.cells(preset) for part in ("A", "B")}
    assert 2 * pairs == len(found)


def test_all_figures_of_the_paper_share_their_trainings() -> None:
    cells = [cell for preset in PRESETS if preset not in OURS for cell in AUDIT.cells(preset)]
    found = {cell.pretraining(part, ()) for cell in cells for part in ("A", "B")}
    # Six criteria, three of them at four more sizes; 16 losses of which two are such a size; seven more backbones.
    assert len(found) == 2 * (6 + 3 * 4 + 14 + 7)


def test_the_papers_settings_are_those_of_its_appendix() -> None:
    for cell in AUDIT.cells("epochs"):
        training = cell.training
        assert (training.epochs, training.batch, training.optimiser) == (1000, 1024, "lars")
        assert (training.warmup, training.weight_decay) == (10, 1e-6)
        assert (
            cell.encoders.recorded, cell.k, cell.confident, cell.public, cell.per_class,
        ) == (CHECKPOINTS, (100,), 20, 500_000, 300)  # fmt: skip
        is_simclr = training.criterion == SimCLR()
        expected = ((2048, 256), 0.3) if is_simclr else ((8192, 8192, 8192), 0.2)
        assert (training.projector, training.base_learning_rate) == expected
    assert {"resnet101"} == {
        cell.training.backbone for preset in ("epochs", "sizes", "loss") for cell in AUDIT.cells(preset)
    }
    assert {100} == {cell.per_class for cell in AUDIT.cells("loss")}
    assert AUDIT.cells("k")[0].k == K
    assert {100} == {cell.k[0] for preset in PRESETS if preset not in OURS for cell in AUDIT.cells(preset)}  # decides
    # The released scripts of Figure 21 sweep sizes after the last epoch, and epochs of one size.
    corners = Counter((cell.training.criterion.tag, cell.crop) for cell in AUDIT.cells("corner"))
    assert corners == {(name, Corner(0.4)): 5 for name in ("vicreg", "simclr", "supervised")}
    # Figure 20 shows the backbone's neighbours of pictures that SimCLR's projector chose.
    assert [(cell.training.criterion.tag, cell.asked_layers) for cell in AUDIT.cells("retrieval")] == [
        ("vicreg", (3,)),
        ("simclr", (2, 0)),
    ]


def test_every_snapshot_is_attacked_and_links_without_one_are_not() -> None:
    found = calls(planned(AUDIT.cells("quickstart")))
    # 750 epochs in links of 250: snapshots at 50, 100 and 250 in the first, 500 and 750 in the others.
    assert (found["self_supervised.pretrain"], found["deja_vu.neighbours"]) == (6, 6)
    found = calls(planned([with_settings(QUICKSTART, recorded=())]))
    assert (found["self_supervised.pretrain"], found["deja_vu.neighbours"]) == (6, 2)


def test_the_null_trains_on_other_pictures_and_attacks_the_same() -> None:
    both = calls(planned([*AUDIT.cells("quickstart"), *AUDIT.cells("null")]))
    assert both["self_supervised.pretrain"] == 2 * 6
    assert both["deja_vu.crops"] == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_its_tables_at_tiny_scale(preset: str) -> None:
    configs = AUDIT.cells(preset)
    tiny = [AUDIT.tiny(config) for config in configs]
    for config, roots in zip(configs, planned(tiny), strict=True):
        less = (set() if config.encoders.probe else {"probe"}) | (set() if config.retrieval else {"retrieval"})
        assert set(roots) == (TABLES | (DRAWN if config.reconstruction else set())) - less
    assert [len(config.recorded) for config in configs] >= [len(config.recorded) for config in tiny]


@pytest.mark.parametrize("preset", HERE)
def test_presets_on_embedded_data_plan_at_full_size(preset: str) -> None:
    (roots,) = planned(AUDIT.cells(preset))
    assert set(roots) == TABLES


def test_drawings_take_a_diffusion_model_of_each_model_in_links_and_one_classifier() -> None:
    configs = AUDIT.cells("drawings")
    found = calls(planned(configs))
    assert tuple(found[name] for name in ("diffusion.train", "deja_vu.draw", "diffusion.classify_pixels")) == (
        2 * 2,
        2,
        1,
    )
    assert (TABLES | DRAWN) - {"probe", "retrieval"} == set(planned(configs)[0])
    # The published ones: 150 epochs in links of 10, of 128 x 128 pixels.
    (published,) = AUDIT.cells("reconstruction")
    assert (
        *(published.reconstruction.diffusion.resolution, published.reconstruction.diffusion.epochs),
        *(published.reconstruction.drawing.link, published.reconstruction.drawing.neighbours),
    ) == (128, 150, 10, 5)


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
        {"recorded": (), "probe": False, "retrieval": None},
    ):
        assert repeats(with_settings(config, **settings)) == config.training.criterion.tag


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
    assert repeats(with_settings(criterion_cell(VICReg()), **other)) == ""


def test_own_preset_repeats_nothing() -> None:
    assert repeats(QUICKSTART) == ""
