"""Train the models of a pair with a user's program, and evaluate them on the images that the measures need.

Engram writes the training images into {data} (`tasks.programs.data_writer`): for the canary model, the canary's image
carries the feature; for the control model, it is unchanged. Both have the same seed. The program returns a model, which
is evaluated in the same job, or the class probabilities of the images in `ask`, in the order of {ask}.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.answered_images import distinct_images, outputs_table
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.design import Design, load_design, uncarried_feature
from tasks.audits.unique_feature.evaluation import Evaluation, burn_each, probe_triples, training_set_triples
from tasks.audits.unique_feature.pairs.canary_selection import Canary
from tasks.audits.unique_feature.population import Relatives, clean_images, member_image_sets
from tasks.audits.unique_feature.questions import Pairs
from tasks.audits.unique_feature.slope_ranks import label_images, slope_features
from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature, burn
from tasks.datasets.images import PictureSet, Pixels
from tasks.datasets.picture_rows import Selected, Sliceable, one_image, replace_images
from tasks.external.audit_inputs import RecordSet
from tasks.numerics import seeds
from tasks.programs.config import Program, without_resources
from tasks.programs.data_writer import Records, check_writable, image_writer
from tasks.programs.returned import BATCH, class_outputs
from tasks.programs.training import TrainingRequest, perform_training
from tasks.training.classifier import Burnt, NearestImages, training_rows


@dataclass(frozen=True)
class AskedImages:
    """The images on which both models of a pair are evaluated, by the measures that need them.

    `evaluations` are those of the scores, one per draw of the random patches. `family` and `ranks` are None if they are
    not measured. `uncarried` is a feature that the canary did not carry.
    """

    canary: int
    evaluations: tuple[Evaluation, ...] = ()
    family: Relatives | None = None
    uncarried: Feature | None = None
    ranks: Relatives | None = None


@dataclass(frozen=True)
class PairTraining(Ranged):
    """One training by a program on the first `examples` training images of `data` (0: all) except those `left_out`."""

    program: Program
    data: Dataset
    examples: Annotated[int, AtLeast(0)]
    asked: AskedImages
    seed: Annotated[int, AtLeast(0)] = 0
    burnt: tuple[Burnt, ...] = ()
    left_out: NearestImages | None = None


def check_program(program: Program) -> None:
    """Raise ValueError, in one line, if the program cannot receive images with the feature."""
    check_writable(program, "images")


def clean_trainings(
    config: UniqueFeature, question: Pairs, program: Program, selected: Sequence[Canary]
) -> Iterator[tuple[Canary, PairTraining]]:
    """Yield the training without the canary for every canary and training seed."""
    design = load_design(config)
    for canary in selected:
        assert isinstance(canary.image, int)
        left_out = None
        if question.neighbours_left_out:
            left_out = NearestImages(canary.image, question.neighbours_left_out)
        asked = asked_images(design, question, canary)
        for replicate in range(question.seeds):
            seed = seeds.derive(config.seed, *config.training_stream(canary.number, replicate))
            yield canary, PairTraining(program, question.data, question.examples, asked, seed, left_out=left_out)


def training_job(training: PairTraining) -> Job:
    """Plan a training with the resources that its program states, which are not part of its key."""
    program = training.program
    return Job(train, replace(training, program=without_resources(program)), resources=program.resources)


def asked_images(design: Design, question: Pairs, canary: Canary) -> AskedImages:
    """Return the images on which the models of this canary are evaluated."""
    assert isinstance(canary.image, int)
    evaluations = []
    if design.asks_for("scores", "family"):  # `family` is compared with the scores
        evaluations = [design.evaluation_of(canary, question, redraw) for redraw in range(question.evaluations)]
    family = None
    uncarried = None
    if design.evaluates_family:
        family = design.relatives_of(canary)
        uncarried = uncarried_feature(design, canary, design.shape)
    ranks = design.relatives_of(canary) if design.asks_for("ranks") else None
    return AskedImages(canary.image, tuple(evaluations), family, uncarried, ranks)


def work(config: PairTraining) -> Work:
    """Return the work: one training of this program, whose duration only a run can tell."""
    return Work({f"train with {config.program.name}": 1.0})


@task(version=1, name="unique_feature.train_program", trains=1, work=work)
def train(config: PairTraining, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - a training reads no tables
    """Train with the program and return the outputs of its model for the images that the pair needs (OUTPUTS)."""
    images = load(config.data)
    rows, pixels = _training_images(config, images)
    labels = images.train.labels[rows]
    asked = distinct_images(list(_image_sets(config, images)))
    numbers = np.arange(len(asked))
    train_records = Records(rows, pixels, labels, images.names)
    write_data = image_writer(config.program, train_records, Records(numbers, asked, None))
    known = RecordSet(pixels[:BATCH], labels[:BATCH], images.names)
    request = TrainingRequest(rows, numbers, config.seed, write_data)
    with perform_training(config.program, request) as (result, out):
        log_p = class_outputs(result, out, config.program.returns, asked, known, images.classes)
    privacy = config.program.privacy
    return outputs_table(config.seed, asked, log_p, [] if privacy is None else [privacy.epsilon])


def _training_images(config: PairTraining, images: PictureSet) -> tuple[NDArray[np.int64], Sliceable]:
    """Return the training rows and their images, with the feature in the canary's image if there is one."""
    rows = training_rows(config, images)
    replaced: dict[int, Pixels] = {}
    for burnt in config.burnt:
        image = replaced.get(burnt.row, one_image(images.train, burnt.row))
        replaced[burnt.row] = burn(image[None], burnt.feature)[0]
    return rows, Selected(replace_images(images.train, replaced), rows)


def _image_sets(config: PairTraining, images: PictureSet) -> Iterator[Sliceable]:
    """Yield the sets of images that the measures evaluate. Images may occur several times."""
    asked = config.asked
    for evaluation in asked.evaluations:
        training_triples = training_set_triples(config.data, config.examples, asked.canary, evaluation.burning)
        for triples in (probe_triples(evaluation), training_triples):
            yield from (triples.clean, triples.unique, triples.random)
    if asked.family is not None:
        clean = clean_images(asked.family, images.shape)
        yield clean
        for _, _, member_images in member_image_sets(clean, asked.family):
            yield member_images
        if asked.uncarried is not None:
            yield burn_each(clean, asked.uncarried)
    if asked.ranks is not None:
        clean = label_images(asked.ranks, images, config.examples, asked.canary)
        for feature in slope_features(asked.ranks, images.shape[:2]):
            yield burn(clean, feature)
