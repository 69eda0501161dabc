"""Single models, evaluated on the probe images without a pair and without training data.

A model is one trained here on the unchanged data, a file with an external model, or the table of outputs that its owner
returned for the probe images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.feature_family import Relatives, relatives
from tasks.audits.unique_feature.probe_images import Burning, RandomKind, Shape
from tasks.datasets.dataset import Dataset
from tasks.external.blinding import derive_secret_seed
from tasks.external.model_file import Interface, ModelFile
from tasks.files import File


@dataclass(frozen=True)
class SingleModelConfig:
    """One model and the images it is evaluated on. Without `model` and `outputs` it is the model of the (one) input.

    `number` tells the panel's models apart. `random` and `relatives.seed` draw the random patches, too. `order` is the
    seed of the order in which an owner gets the pictures, among them those of `labelled`, whose stated accuracy is
    `accuracy`, and those that slopes are fitted to where there are `references`.
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


def single_model_config(config: UniqueFeature, number: int) -> SingleModelConfig:
    """The config of the panel's model of this number."""
    given = config.given
    return SingleModelConfig(
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
        order=derive_secret_seed(config.seed, "order", given.secret) if given.hands_out else 0,
        labelled=given.labelled,
        accuracy=given.accuracy,
        references=bool(given.references) and given.hands_out,
    )


def batch_key(config: SingleModelConfig) -> SingleModelConfig:
    """What evaluations must share to take about as long as one another."""
    return replace(config, number=0, model=None, outputs=None)


def burning(config: SingleModelConfig) -> Burning:
    return Burning(config.relatives.feature, config.random, config.relatives.seed)
