"""Configurations of self-supervised training: ranges, links of a chain, and schedules of the rate."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest

from orchestrator.planning.identity import canonical
from orchestrator.spec.fields import replace_fields
from tasks.audits.deja_vu.presets import CRITERIA, criterion_cell
from tasks.contract.job import marks
from tasks.self_supervised.learners import learner
from tasks.self_supervised.networks import initial_network
from tasks.self_supervised.pretraining import pretrain
from tasks.self_supervised.pretraining_config import (
    BACKBONES,
    BYOL,
    DINO,
    Augmentation,
    BarlowTwins,
    Criterion,
    EncoderConfig,
    Pretraining,
    SimCLR,
    VICReg,
    WarmupCosine,
)
from tasks.training.chains import chain, recording_up_to
from tests.tasks.self_supervised.pictures import config


def test_rate_warms_up_linearly_then_follows_half_cosine() -> None:
    schedule = WarmupCosine(epochs=12, warmup=4, final=0.2)
    passed = np.array([0, 1, 3, 4, 6, 8, 10, 12, 40])
    root = math.sqrt(0.5)
    expected = [0, 0.25, 0.75, 1, 0.6 + 0.4 * root, 0.6, 0.6 - 0.4 * root, 0.2, 0.2]
    np.testing.assert_allclose(schedule.factors(passed), expected, atol=1e-15)


def test_rate_without_warm_up_starts_at_maximum() -> None:
    np.testing.assert_allclose(WarmupCosine(2, warmup=0).factors(np.array([0.0, 1.0, 2.0])), [1, 0.5, 0], atol=1e-15)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0; it must be a finite number above 0"),
        ({"epochs": 5, "warmup": -1}, "warmup is -1; it must be at least 0"),
        ({"epochs": 5, "warmup": 5}, "warmup is 5; it must be below epochs, which is 5"),
        ({"epochs": 50, "final": 1.5}, "final is 1.5; it must be a share from 0 to 1"),
    ],
)
def test_invalid_cosine_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WarmupCosine(**settings)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backbone": "resnet19"}, "backbone is 'resnet19'; it must be one of resnet18, .*, small-resnet#WIDTH"),
        ({"backbone": "vit-s"}, None),
        ({"backbone": "vit-s", "augmentation": Augmentation(100)}, "resolution is 100; for vit-s it must be"),
        ({"projector": ()}, r"projector is \(\); it must be one width or more"),
        ({"optimiser": "adam"}, "optimiser is 'adam'; it must be one of lars, sgd, adamw"),
        ({"precision": "float16"}, "precision is 'float16'; it must be one of float32, bfloat16"),
        ({"batch": 10, "accumulate": 4}, "accumulate is 4; it must divide batch, which is 10"),
        ({"batch": 10, "accumulate": 10}, "accumulate is 10; batch norm needs two images in a part"),
        ({"epochs": 7}, "epochs is 7; it must be at most schedule, which is 6"),
        ({"warmup": 6}, "warmup is 6; it must be below schedule, which is 6"),
        ({"recorded": (3, 2)}, r"recorded is \(3, 2\); it must be epochs from 0 to 4, ascending"),
        ({"base_learning_rate": 0.0}, "base_learning_rate is 0.0"),
        ({"criterion": BYOL(predictor=(8, 8))}, r"predictor is \(8, 8\); its last width must be the projector's, 16"),
        ({"criterion": BYOL(predictor=(8, 16))}, None),
    ],
)
def test_ranges_are_checked_on_construction(fields: dict[str, Any], message: str | None) -> None:
    if message is None:
        config(**fields)
        return
    with pytest.raises(ValueError, match=message):
        config(**fields)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (VICReg, {"invariance": -1}, "invariance is -1"),
        (SimCLR, {"temperature": 0}, "temperature is 0"),
        (BYOL, {"momentum": 1.1}, "momentum is 1.1"),
        (DINO, {"centre_momentum": -0.1}, "centre_momentum is -0.1"),
        (Augmentation, {"min_area": 0.0}, "min_area is 0.0"),
        (Augmentation, {"jitter": 3.0}, "jitter is 3.0; it must be from 0 to 2.5"),
        (Augmentation, {"resolution": 4}, "resolution is 4; it must be at least 8"),
        (EncoderConfig, {"backbone": "small-resnet#0"}, "backbone is 'small-resnet#0'"),
    ],
)
def test_ranges_of_criteria_and_views_are_checked(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**fields)


def test_links_keep_snapshots_of_unbroken_training() -> None:
    full_config = config(epochs=6, recorded=(0, 1, 5))
    links = []
    for job in chain(pretrain, full_config, 2, part=recording_up_to):
        links.append(job.config)
    assert [link.epochs for link in links] == [2, 4, 6]
    assert [link.schedule for link in links] == [6, 6, 6]
    assert [link.recorded for link in links] == [(0, 1), None, (5,)]
    assert [link.asked for link in links] == [(0, 1), (), (5,)]


def test_defaults_are_published_except_for_simclr() -> None:
    published = {}
    for criterion in CRITERIA:
        published[criterion.tag] = criterion_cell(criterion).pretraining("A", ())
    images = published["vicreg"].images
    assert Pretraining(images, seed=published["vicreg"].seed) == published["vicreg"]
    simclr = published["simclr"]
    assert simclr.projector == (2048, 256)
    assert simclr.base_learning_rate == 0.3
    network = initial_network(EncoderConfig("small-resnet#1", (4,), 32), 0, 0)
    assert [VICReg, SimCLR, BarlowTwins] == [
        kind for kind in get_args(Criterion) if learner(kind(), network, (4,), 0).coupled
    ]


def test_config_is_read_from_text() -> None:
    parsed_config = replace_fields(
        config(),
        {"criterion": "{type: dino, temperature_warmup: 5}", "augmentation.min_area": "0.3", "recorded": "null"},
    )
    assert parsed_config.criterion == DINO(temperature_warmup=5)
    assert parsed_config.augmentation.min_area == 0.3
    assert parsed_config.asked == ()
    assert canonical(parsed_config) != canonical(replace_fields(parsed_config, {"criterion.temperature_warmup": "6"}))
    for kind in get_args(Criterion):
        tag = canonical(config(kind()))["criterion"]["type"]
        assert replace_fields(config(), {"criterion": tag}).criterion == kind()


def test_task_has_version_1_and_needs_gpu() -> None:
    mark = marks(pretrain)
    assert mark.name == "self_supervised.pretrain"
    assert mark.version == 1
    assert mark.gpus == 1.0
    assert mark.trains == 1
    assert mark.batch_key is not None
    assert mark.batch_key(config(seed=3)) == mark.batch_key(config(seed=4))
    assert mark.batch_key(config(epochs=3)) != mark.batch_key(config(epochs=4))


def test_all_backbones_of_the_paper_exist() -> None:
    assert set(BACKBONES) > {"resnet18", "resnet34", "resnet50", "resnet101", "vit-ti", "vit-s", "vit-b", "vit-l"}
