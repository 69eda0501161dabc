"""Single models, evaluated on the probe images without a pair and without training data.

A single model is one that the audit trained on the unchanged data, a file with an external model, or the table of
outputs that its owner returned for the probe images. For a model that stays with its owner, all images of the
evaluation are exported as one blinded set, in a secret order, some of them twice. The set may include images with known
labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.config import RandomKind, Shape, UniqueFeature
from tasks.audits.unique_feature.evaluation import Burning, Predictor, network_predictor, probe_set_triples
from tasks.audits.unique_feature.given_models import Given, ModelFiles, ReturnedOutputs
from tasks.audits.unique_feature.population import (
    Relatives,
    clean_images,
    look_alike_image_sets,
    member_image_sets,
    relatives,
)
from tasks.audits.unique_feature.slope_ranks import probe_label_images, slope_sets
from tasks.audits.unique_feature.unseen_images import seen_images
from tasks.contract.job import Inputs
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Labels, Pixels, as_shape
from tasks.datasets.picture_rows import Sliceable, gather, slices
from tasks.external.blinding import HandedOut, blind_images, key_of
from tasks.external.model_file import Interface, ModelFile
from tasks.numerics import seeds
from tasks.worker.files import File, FileError

if TYPE_CHECKING:
    from tasks.external.outputs import Outputs


@dataclass(frozen=True)
class SingleModelConfig:
    """One model and the images it is evaluated on. Without `model` and `outputs`, it is the model in the only input.

    `number` distinguishes the models of a panel. `random` and `relatives.seed` also draw the random patches. `order` is
    the seed of the order of exported images. These include images of `labelled`, for which the owner states `accuracy`,
    and, if `references` is set, the images to which slopes are fitted.
    """

    relatives: Relatives
    random: RandomKind
    shape: Shape
    number: int = 0
    model: ModelFile | None = None
    outputs: File | None = None
    interface: Interface = Interface()
    classes: int | None = None
    columns: tuple[str, ...] = ()
    label: int | None = None
    order: int = 0
    labelled: Dataset | None = None
    accuracy: float | None = None
    references: bool = False


def single_model_config(config: UniqueFeature, shape: Shape, number: int = 0) -> SingleModelConfig:
    """Return the config of the panel's model with this number, which is evaluated on images of this shape."""
    question = config.single_models
    assert question is not None
    single = SingleModelConfig(
        relatives=relatives(config, config.asked_feature, seen_images=seen_images(config)),
        random=config.random,
        shape=shape,
        number=number,
        label=question.judged_by.label,
        order=config.picture_order,
    )
    if isinstance(question, Given):
        return replace(single, **_given_fields(question, number))
    return single


def _given_fields(question: Given, number: int) -> dict[str, Any]:
    """Return the config fields of the third-party model with this number."""
    about: dict[str, Any] = {"interface": question.interface, "classes": question.classes}
    match question.source:
        case ModelFiles(models=models):
            return about | {"model": models[number]}
        case ReturnedOutputs() as returned:
            return about | {
                "outputs": returned.outputs[number] if returned.outputs else None,
                "columns": returned.columns,
                "labelled": None if returned.labelled is None else returned.labelled.data,
                "accuracy": None if returned.labelled is None else returned.labelled.accuracy,
                "references": bool(question.references),
            }


def single_batch_key(config: SingleModelConfig) -> SingleModelConfig:
    """Return the settings shared by evaluations with similar run times."""
    return replace(config, number=0, model=None, outputs=None)


def burning(config: SingleModelConfig) -> Burning:
    return Burning(config.relatives.feature, config.random, config.relatives.seed)


def predictor(config: SingleModelConfig, inputs: Inputs) -> Predictor:
    """Return the model as a function of a named set of images."""
    if config.outputs is not None:
        return _outputs_predictor(config)
    if config.model is not None:
        return _file_predictor(config)
    return network_predictor(inputs[0])


def _file_predictor(config: SingleModelConfig) -> Predictor:
    from tasks.external.loading import load_model

    assert config.model is not None
    model = load_model(config.model, config.shape, config.interface, config.classes)
    return lambda _, images: model.answers(images).log_p


def _outputs_predictor(config: SingleModelConfig) -> Predictor:
    from tasks.external.outputs import read_outputs

    assert config.outputs is not None
    outputs = read_outputs(config.outputs, config.columns, config.interface.gives)
    ids = picture_ids(config)
    return lambda name, images: outputs.select(ids[name][: len(images)]).log_p


LABELLED_COUNT = 100  # number of images with labels that are mixed in, if available
LABELLED_SET = "labelled"  # name of the set of images with labels


def image_sets(config: SingleModelConfig) -> Iterator[tuple[str, Sliceable]]:
    """Yield the name and images of each set used in an evaluation, including those for slopes and with labels."""
    clean = clean_images(config.relatives, config.shape)
    yield "clean", clean
    yield "random", probe_set_triples(clean, burning(config)).random
    for _, name, images in member_image_sets(clean, config.relatives):
        yield name, images
    for _, _, name, images in look_alike_image_sets(clean, config.relatives):
        yield name, images
    if config.references and config.label is not None:
        yield from slope_sets(config.relatives, probe_label_images(config.relatives, config.shape, config.label))
    if config.labelled is not None:
        yield LABELLED_SET, as_shape(load(config.labelled).test.pixels(_labelled_rows(config)), config.shape)


def labels(config: SingleModelConfig) -> Labels:
    """Return the true classes of the images with labels, shape (n,)."""
    assert config.labelled is not None
    return load(config.labelled).test.labels[_labelled_rows(config)]


def _labelled_rows(config: SingleModelConfig) -> NDArray[np.int64]:
    """Return the rows of the labelled test images that are mixed in.

    They are drawn at random, because folders list images by class.
    """
    assert config.labelled is not None
    order = seeds.generator(config.order, "labelled").permutation(len(load(config.labelled).test))
    return np.sort(order[:LABELLED_COUNT])


def pictures(config: SingleModelConfig) -> tuple[str, Pixels]:
    """Return the name of the exported set, and its images."""
    handout, _ = _handed_out(_picture_config(config))
    return handout.name, gather([images for _, images in image_sets(config)])[handout.order]


def check_tables(configs: Iterable[SingleModelConfig]) -> None:
    """Raise ValueError if a returned table cannot be used, before any other table is evaluated.

    A table that was removed after it was pinned is not checked, so that stored results of the run remain readable.
    """
    from tasks.external.outputs import read_outputs

    for config in configs:
        if config.outputs is None:
            continue
        with suppress(FileError):
            outputs = read_outputs(config.outputs, config.columns, config.interface.gives)
            if config.label is not None and config.label >= outputs.classes:
                raise ValueError(f"label is {config.label}; {outputs.name} has the classes 0 to {outputs.classes - 1}")
            if config.classes is not None and config.classes != outputs.classes:
                raise ValueError(f"{outputs.name} has {outputs.classes} classes, and given.classes is {config.classes}")
            image_ids = [id_ for ids in picture_ids(config).values() for id_ in ids]
            outputs.select([*image_ids, *(repeat_id for _, repeat_id in repeated_ids(config))])
            if config.labelled is not None:
                check_labelled(config, outputs)


def check_labelled(config: SingleModelConfig, outputs: Outputs) -> NDArray[np.float64]:
    """Return log p of the images with known labels. Raises ValueError if the table orders classes differently."""
    from tasks.external.outputs import check_class_order

    log_p = outputs.select(picture_ids(config)[LABELLED_SET]).log_p
    check_class_order(log_p, labels(config), outputs.name, "name its columns in our order")
    return log_p


def picture_ids(config: SingleModelConfig) -> dict[str, list[str]]:
    """Return the ids of each set's images, keyed by set name."""
    handout, slices = _handed_out(_picture_config(config))
    ids = handout.ids
    return {name: ids[rows] for name, rows in slices.items()}


def repeated_ids(config: SingleModelConfig) -> list[tuple[str, str]]:
    """Return the two ids of each image that is exported twice."""
    handout, _ = _handed_out(_picture_config(config))
    ids = handout.ids
    return [(ids[image], repeat_id) for image, repeat_id in handout.repeats.items()]


def split_key(config: SingleModelConfig) -> pa.Table:
    """Return the role of each image (`split.KEY`)."""
    handout, slices = _handed_out(_picture_config(config))
    ids = handout.ids
    repeats = handout.repeats
    set_names = {}
    for name, rows in slices.items():
        for image in range(rows.start, rows.stop):
            set_names[image] = name
    return key_of(
        [
            *((ids[image], set_names[image]) for image in set_names),
            *((twice, set_names[image]) for image, twice in repeats.items()),
        ]
    )


def _picture_config(config: SingleModelConfig) -> SingleModelConfig:
    """Return the config without the fields that do not affect the images."""
    return SingleModelConfig(
        config.relatives,
        config.random,
        config.shape,
        label=config.label if config.references else None,
        order=config.order,
        labelled=config.labelled,
        references=config.references,
    )


@lru_cache(maxsize=2)
def _handed_out(config: SingleModelConfig) -> tuple[HandedOut, dict[str, slice]]:
    """Return the export order of images, and the positions of each set."""
    digest = hashlib.sha256()
    positions = dict[str, slice]()
    count = 0
    for name, images in image_sets(config):
        digest.update(name.encode())
        for _, pixels in slices(images):
            digest.update(np.ascontiguousarray(pixels).data)
        positions[name] = slice(count, count + len(images))
        count += len(images)
    return blind_images([digest.hexdigest(), config.order], count, config.order), positions
