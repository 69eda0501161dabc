"""Unlearning: a classifier that was trained on a mixture is made to forget some of it.

It starts from the weights of a training's table. Planning it imports no torch; computing it does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Share
from tasks.job import Inputs, task
from tasks.ranges import check_minimums
from tasks.training.mixed import pool_data, table_of
from tasks.training.recipe import OptimiserName, Recipe
from tasks.training.unlearning_config import GradientAscent, Method
from tasks.work import Work, format_shape


@dataclass(frozen=True)
class Unlearning:
    """What is kept and what is to be forgotten of the images that a classifier was trained on, and by which method.

    `validation`, `classes`, `augmentation`, `crop`, `optimiser` and `batch` are as in the training
    (`tasks.training.mixed.Mixture`); `seed` orders the minibatches and draws random labels.
    """

    kept: tuple[Share, ...]
    forgotten: tuple[Share, ...]
    method: Method
    validation: Dataset
    classes: int
    augmentation: bool = False
    crop: int = 0
    seed: int = 0
    optimiser: OptimiserName = "adam"
    batch: int = 128

    def __post_init__(self) -> None:
        for name in ("kept", "forgotten"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; it needs at least one share")
        check_minimums(self, {"classes": 2, "crop": 0, "seed": 0})
        _ = self.recipe  # its ranges are checked on construction

    @property
    def recipe(self) -> Recipe:
        """How its steps are taken; ValueError where that is impossible."""
        return Recipe(self.method.epochs, self.batch, self.method.learning_rate, 0, (), self.optimiser)


def work(config: Unlearning) -> Work:
    """What the steps compute; those of gradient ascent may end earlier."""
    from tasks.datasets.catalog import load

    images = load(config.validation)
    kept, forgotten = (
        sum(len(share.rows(load(share.part.data))) for share in shares) for shares in (config.kept, config.forgotten)
    )
    seen = forgotten if isinstance(config.method, GradientAscent) else kept + forgotten
    # The network is its input's, and no config says which: it is that of the reference.
    return Work({f"unlearn on {format_shape(images.shape)} by {config.method.name}": config.method.epochs * seen})


@task(version=1, name="unlearning.unlearn", gpus=1.0, trains=1, work=work)
def unlearn(config: Unlearning, inputs: Inputs) -> pa.Table:
    """The network of the (one) input's table after unlearning, as a table of MIXED.

    `examples` and `train_accuracy` are of the images that are kept; the epochs are those of unlearning.
    """
    from tasks.models.networks import architecture_of, weights_of_model
    from tasks.training.cross_entropy import CrossEntropy
    from tasks.training.unlearner import unlearn_model

    (trained,) = inputs
    network, weights = architecture_of(trained), weights_of_model(trained)
    pool = pool_data(tuple(dict.fromkeys(share.part.data for share in (*config.kept, *config.forgotten))), config)
    kept, forgotten = pool.rows(config.kept), pool.rows(config.forgotten)
    common = np.intersect1d(kept, forgotten)
    if len(common):
        raise ValueError(f"{len(common):,} images are both kept and forgotten; the shares must be apart")
    learning = CrossEntropy(network, config.augmentation, config.crop, pool.images.shape)
    end = unlearn_model(learning, config.recipe, config.method, pool.images, kept, forgotten, weights, config.seed)
    return table_of(config.seed, network, pool.images, kept, end)
