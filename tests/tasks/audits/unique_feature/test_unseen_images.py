"""Probe images that are copies of training images are left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasks.audits.unique_feature import AUDIT, plan
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import Evaluation, probe_triples
from tasks.audits.unique_feature.population import relatives
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.slope_ranks import label_images
from tasks.audits.unique_feature.unseen_images import TrainingImages, seen_images
from tasks.contract.job import Job
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tests.tasks.audits.unique_feature.made_up import configure

(QUICKSTART,) = AUDIT.cells("quickstart")
PER_CLASS = 8


def write_set(folder: Path, copies: int) -> Dataset:
    """Two classes of eight training images and four test images; `copies` of the test images are training images."""
    noise = np.random.default_rng(0).integers(0, 256, (2, PER_CLASS + 4, 28, 28), np.uint8)
    for label, images in enumerate(noise):
        images_by_split = {
            "train": images[:PER_CLASS],
            "test": [*images[:copies], *images[PER_CLASS : PER_CLASS + 4 - copies]],
        }
        for split, split_images in images_by_split.items():
            (folder / split / str(label)).mkdir(parents=True)
            for number, image in enumerate(split_images):
                Image.fromarray(image).save(folder / split / str(label) / f"{number}.png")
    return pin(Dataset(f"folder:{folder}"))


def config_on(data: Dataset, probe: Dataset) -> UniqueFeature:
    return configure(data=data, probe=probe, canaries=2, probes=100)


def evaluations(job: Job) -> list[Evaluation]:
    """The evaluations of a job and of the jobs that it depends on."""
    own_evaluations = [job.config] if isinstance(job.config, Evaluation) else []
    return own_evaluations + [evaluation for source in job.inputs for evaluation in evaluations(source)]


def test_planning_warns_of_seen_probe_images(tmp_path: Path) -> None:
    assert AUDIT.notes is not None
    data = write_set(tmp_path / "mine", copies=1)
    same_data = pin(Dataset(f"folder:{shutil.copytree(tmp_path / 'mine', tmp_path / 'same')}"))
    (warning,) = AUDIT.notes(config_on(data, same_data))
    assert warning.startswith(f"2 images of probe {same_data.name} are exact copies of training images of {data.name};")
    assert not list(AUDIT.notes(config_on(data, Dataset("digits"))))


def test_seen_probe_images_are_left_out_and_counted(tmp_path: Path) -> None:
    data = write_set(tmp_path / "mine", copies=1)
    jobs = plan(config_on(data, data))
    summary = jobs["summary"]
    assert isinstance(summary, Job)
    assert summary.config == PublishedCell("", left_out=2, chance=0.5)
    evaluation = evaluations(summary)[0]
    assert evaluation.seen == TrainingImages(data)
    training_images = {image.tobytes() for image in load(data).train_images}
    clean = probe_triples(evaluation).clean
    assert len(clean) == 6
    assert not training_images & {image.tobytes() for image in clean}


def test_label_images_are_unseen_test_images(tmp_path: Path) -> None:
    data = write_set(tmp_path / "mine", copies=1)
    config = config_on(data, pin(Dataset("photos")))
    family = relatives(config, config.asked_feature, seen_images=seen_images(config))
    images = label_images(family, load(data), 0, 0)
    assert len(images) == 3


def test_sets_without_copies_keep_their_keys() -> None:
    config = config_on(pin(Dataset("digits")), pin(Dataset("photos")))
    assert seen_images(config) is None


def test_fully_seen_probe_set_is_refused(tmp_path: Path) -> None:
    data = write_set(tmp_path / "mine", copies=4)
    with pytest.raises(
        DatasetError, match=r"probe: all 8 images of .* are exact copies of training images of .*Choose"
    ):
        plan(config_on(data, data))
