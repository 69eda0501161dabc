"""What a pair of models is asked about, and what a model says of it.

Both models see the same clean images, the same feature and the same random patches; they differ by the canary alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from tasks import seeds
from tasks.audits.unique_feature.canary_selection import Canary, RankedImage
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.probe_images import (
    Burning,
    Pixels,
    ProbeSplit,
    RandomKind,
    Triples,
    probe_images,
    probe_set_triples,
)
from tasks.audits.unique_feature.scores import Array, log_probabilities
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature

ModelName = Literal["canary", "twin"]
MODELS: tuple[ModelName, ...] = get_args(ModelName)

# From a named set of images (n, h, w, c) to a model's log-probabilities (n, classes).
Predictor = Callable[[str, Pixels], Array]


@dataclass(frozen=True)
class Evaluation:
    """The images and the feature that a pair of models is evaluated on.

    `seed` draws the random patches, each from the stream of its set of images and at its image's row: an image meets
    the same patch in every model and for every canary, so that scores differ by the models alone (the paper's M "uses
    the same random seed for each evaluation", section B.2). `redraw` numbers the drawings, each with a seed of its own.
    A patch is noise, or another member of the feature's family (`random`). `canary` is a row of the first `examples`
    (0: all) training images, or its rank among them by self-influence.
    """

    data: Dataset
    probe: Dataset
    probe_split: ProbeSplit
    feature: Feature
    canary: int | RankedImage
    examples: int
    seed: int
    redraw: int = 0
    random: RandomKind = "noise"

    @property
    def burning(self) -> Burning:
        return Burning(self.feature, self.random, self.seed)


def evaluation(config: UniqueFeature, canary: Canary, redraw: int) -> Evaluation:
    """The evaluation of the canary's models with this drawing of the random patches, counted from 0."""
    return Evaluation(
        data=config.trained_on,
        probe=config.probe,
        probe_split=config.probe_split,
        feature=canary.asked,
        canary=canary.image,
        examples=config.examples,
        seed=evaluation_seed(config, redraw),
        redraw=redraw,
        random=config.random,
    )


def evaluation_seed(config: UniqueFeature, redraw: int = 0) -> int:
    return seeds.derive(config.seed, "evaluation", *((redraw,) if redraw else ()))


def burning(config: UniqueFeature) -> Burning:
    """What the probe images get, where it does not differ between canaries."""
    return Burning(config.feature, config.random, evaluation_seed(config))


def probe_triples(config: Evaluation) -> Triples:
    """The out-of-distribution probe set, in the shape of the training images."""
    return probe_set_triples(probe_images(config.probe, config.probe_split, load(config.data).shape), config.burning)


def network_predictor(model: pa.Table) -> Predictor:
    """A network trained here, from its MODEL table."""
    from tasks.models.inference import logits
    from tasks.models.networks import architecture_of, weights_of_model

    network, weights = architecture_of(model), weights_of_model(model)
    return lambda _, images: log_probabilities(logits(network, [weights], images)[0])


def check_label(label: int | None, classes: int) -> None:
    """ValueError where the model has no class of the label's number."""
    if label is not None and label >= classes:
        raise ValueError(f"label is {label}; the model's classes are 0 to {classes - 1}")
