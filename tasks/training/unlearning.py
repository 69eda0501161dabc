"""Unlearning: a classifier that was trained on a mixture is made to forget some of it, by one of several methods.

It starts from the weights of a training's table. What each method does, step by step, is in `tasks.training.unlearner`.
Planning imports no torch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tasks.contract.job import Inputs, task
from tasks.training.mixed import pool_data, table_of
from tasks.training.unlearning_config import GradientAscent, Unlearning
from tasks.worker.work import Work, format_shape


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
