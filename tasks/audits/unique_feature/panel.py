"""Models asked alone: what each says of the probe images, with no pair and no training data.

A model is one trained here on the data as they stand, a file of somebody else's, or the table of outputs that its owner
returned for the probe images that were written for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from tasks.audits.unique_feature.evaluation import Says, check_label, divergences, trained
from tasks.audits.unique_feature.relatives import FAMILY, Relatives, answers, clean_images, named
from tasks.audits.unique_feature.triples import Burning, Pixels, RandomKind, Shape, of_probe
from tasks.external.model_file import Interface, ModelFile
from tasks.files import File
from tasks.job import Inputs, task


@dataclass(frozen=True)
class Asked:
    """One model and what it is asked. Without `model` and `outputs` it is the one trained for the (one) input.

    `number` tells the panel's models apart. `random` and `relatives.seed` draw the random patches, too.
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


def batch_key(config: Asked) -> Asked:
    return replace(config, number=0, model=None, outputs=None)


@task(version=1, name="unique_feature.ask", batch_key=batch_key)
def ask(config: Asked, inputs: Inputs) -> pa.Table:
    """Divergences per probe image (DIVERGENCES) of the one model."""
    triples = of_probe(clean_images(config.relatives, config.shape), burning(config))
    about = {"canary": None, "label": config.label, "seed": config.number, "evaluation": 0, "model": "given"}
    return divergences(sayer(config, inputs), triples, about)


@task(version=2, name="unique_feature.ask_family", batch_key=batch_key)
def ask_family(config: Asked, inputs: Inputs) -> pa.Table:
    """The family's scores (FAMILY) of the one model."""
    clean = clean_images(config.relatives, config.shape)
    (rows,) = answers(config.relatives, clean, [sayer(config, inputs)])
    check_label(config.label, len(rows[0]["log_p"]))
    about = {"canary": None, "label": config.label, "seed": config.number, "model": "given"}
    return pa.Table.from_pylist([about | row for row in rows], FAMILY)


def burning(config: Asked) -> Burning:
    return Burning(config.relatives.feature, config.random, config.relatives.seed)


def sayer(config: Asked, inputs: Inputs) -> Says:
    """The model as a function of a named set of images."""
    if config.outputs is not None:
        return from_outputs(config)
    if config.model is not None:
        return from_file(config)
    return trained(inputs[0])


def from_file(config: Asked) -> Says:
    from tasks.external.loading import loaded

    assert config.model is not None
    model = loaded(config.model, config.shape, config.interface, config.classes)
    return lambda _, images: model.answers(images).log_p


def from_outputs(config: Asked) -> Says:
    from tasks.external.handout import image_of
    from tasks.external.outputs import read

    assert config.outputs is not None
    outputs = read(config.outputs, config.columns, config.interface.gives)
    return lambda name, images: outputs.of([image_of(name, row) for row in range(len(images))]).log_p


def handed_out(config: Asked) -> Iterator[tuple[str, Pixels]]:
    """Every set of images that a model is asked about, by name: what an owner is given."""
    clean = clean_images(config.relatives, config.shape)
    yield "clean", clean
    yield "random", of_probe(clean, burning(config)).random
    for _, name, images in named(clean, config.relatives):
        yield name, images
