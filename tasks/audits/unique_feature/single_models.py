"""Models asked alone: what each says of the probe images, with no pair and no training data.

A model is one trained here on the data as they stand, a file of somebody else's, or the table of outputs that its owner
returned for the probe images that were written for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import Says, trained
from tasks.audits.unique_feature.feature_family import Relatives, clean_images, named, relatives
from tasks.audits.unique_feature.probe_images import Burning, Pixels, RandomKind, Shape, of_probe
from tasks.external.model_file import Interface, ModelFile
from tasks.files import File
from tasks.job import Inputs


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


def asked(config: UniqueFeature, number: int) -> Asked:
    """What the panel's model of this number is asked."""
    given = config.given
    return Asked(
        relatives=relatives(config, config.feature),
        random=config.random,
        shape=config.shape,
        number=number,
        model=given.models[number] if given.models else None,
        outputs=given.outputs[number] if given.outputs else None,
        interface=given.interface,
        classes=given.classes,
        columns=given.columns,
        label=given.label,
    )


def batch_key(config: Asked) -> Asked:
    """What questions must share to take about as long as one another."""
    return replace(config, number=0, model=None, outputs=None)


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
