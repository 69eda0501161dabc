"""Models to train: their shares of the data, their seeds, and their roles in the audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tasks.audits.forgetting.audited import Audited, Trained
from tasks.audits.forgetting.config import Scores
from tasks.audits.forgetting.data_sets import DataSets
from tasks.audits.forgetting.target import Target
from tasks.contract.job import Job
from tasks.datasets.copies import groups_of
from tasks.datasets.mixtures import CombinedShares, Share
from tasks.numerics import seeds
from tasks.programs import row_training
from tasks.programs.config import Program
from tasks.training.chains import chain
from tasks.training.mixed import Mixture, train, unlearn
from tasks.training.unlearning_config import Method, Retraining, Unlearning

Kind = Literal["query", "calibration", "partial", "target"]
QUERY = Target(query=1.0)
CALIBRATION = Target(calibration=1.0)


@dataclass(frozen=True)
class ModelId:
    """Role of a model. `target` is the index of the target or known share that it is a replicate of."""

    kind: Kind
    target: int | None
    replicate: int


def training_jobs(question: Scores, data: DataSets) -> Iterator[tuple[ModelId, Job]]:
    """Yield the query, calibration, partial and target models with their training jobs, replicate by replicate.

    All models are independent: a target with the data of the query or the calibration models is trained separately,
    from another seed.
    """
    partial = []
    for share in partial_shares(question.audited, data):
        partial.append(Target(query=share, calibration=1.0))
    if isinstance(question.audited, Trained):
        targets = question.audited.targets
    else:
        targets = ()
    for replicate in range(question.replicates):
        yield ModelId("query", None, replicate), training_job(question, data, QUERY, "query", replicate)
        job = training_job(question, data, CALIBRATION, "calibration", replicate)
        yield ModelId("calibration", None, replicate), job
        for number, target in enumerate(partial):
            yield ModelId("partial", number, replicate), training_job(question, data, target, "partial", replicate)
        for number, target in enumerate(targets):
            yield ModelId("target", number, replicate), training_job(question, data, target, "target", replicate)


def partial_shares(audited: Audited, data: DataSets) -> tuple[float, ...]:
    """Return the `partial` shares that no target trained on all of D_C already has. Empty without a control set."""
    control = data.query.control
    if control is None:
        return ()
    targets = audited.targets if isinstance(audited, Trained) else ()
    target_shares = []
    for target in targets:
        if target == Target(query=target.query, calibration=1.0):
            target_shares.append(target.query)
    return tuple(share for share in control.partial if share not in target_shares)


def training_job(question: Scores, data: DataSets, target: Target, kind: Kind, replicate: int) -> Job:
    """Return the last link of one training on the target's shares, followed by its unlearning.

    The seed depends on the target but not on the other targets. A program trains on the rows of all shares together and
    scores D_Q and the control set.
    """
    if target.unlearning is not None and not isinstance(target.unlearning, Retraining):
        return _unlearning_job(question, data, replace(target, unlearning=None), target.unlearning, kind, replicate)
    seed_names = []
    for share in (target.query, target.calibration, target.outside):
        seed_names.append(repr(float(share)))
    shares = tuple(_target_shares(question, data, target, kind, replicate))
    if target.unlearning is not None:
        shares = tuple(share for share in shares if share.part != data.query_part)
        seed_names.append(target.unlearning.tag)
    recipe = question.training
    seed = seeds.derive(data.seed, "training", kind, *seed_names, replicate)
    if isinstance(recipe, Program):
        return row_training.training_job(recipe, CombinedShares(shares), data.scored_rows, seed)
    mixture = Mixture(
        shares=shares,
        validation=data.query.data,
        classes=data.images.classes,  # number of network outputs
        network=recipe.network,
        dropout=recipe.dropout,
        batch_norm=recipe.batch_norm,
        augmentation=recipe.augmentation,
        crop=recipe.crop,
        seed=seed,
        epochs=recipe.epochs,
        optimiser=recipe.optimiser,
        learning_rate=recipe.learning_rate,
        schedule=recipe.schedule,
        batch=recipe.batch,
        precision=recipe.precision,
    )
    return chain(train, mixture, recipe.link)[-1]


def _unlearning_job(
    question: Scores, data: DataSets, target: Target, method: Method, kind: Kind, replicate: int
) -> Job:
    """Unlearn the query set by this method, starting from the model trained on all shares of the target."""
    before = training_job(question, data, target, kind, replicate)
    mixture: Mixture = before.config
    shares = tuple(_target_shares(question, data, target, kind, replicate))
    unlearning = Unlearning(
        kept=tuple(share for share in shares if share.part != data.query_part),
        forgotten=tuple(share for share in shares if share.part == data.query_part),
        method=method,
        validation=mixture.validation,
        classes=mixture.classes,
        augmentation=mixture.augmentation,
        crop=mixture.crop,
        seed=seeds.derive(mixture.seed, method.tag),
        optimiser=mixture.optimiser,
        batch=mixture.batch,
        precision=mixture.precision,
    )
    return Job(unlearn, unlearning, (before,))


def _target_shares(question: Scores, data: DataSets, target: Target, kind: Kind, replicate: int) -> Iterator[Share]:
    """Yield the target's shares of the parts, nested within a replicate and independent between replicates.

    With `calibration_share` below 1, each model has its own draw of D_C. A model and its unlearned version use the same
    draw.
    """
    draw: tuple[str, ...] = () if question.calibration_share == 1 else (kind, repr(float(target.query)))
    for name, part, share, stream in (
        ("calibration", data.calibration, question.calibration_share * target.calibration, draw),
        ("query", data.query_part, target.query, ()),
        ("outside", data.outside, target.outside, ()),
    ):
        if share:
            assert part is not None
            yield Share(part, share, seeds.derive(data.seed, "share", name, *stream, replicate) if share < 1 else 0)


def realised_share(question: Scores, data: DataSets, share: float) -> float:
    """Return the share of D_Q's images that models of this share are actually trained on, over replicates.

    Groups of images, such as patients, are drawn whole, so the share may differ from the configured one.
    """
    rows = data.query_part.rows(data.images)
    if len(np.unique(groups_of(data.images, rows))) == len(rows):
        return share
    images = len(rows)
    target = Target(query=share)
    image_counts = []
    for replicate in range(question.replicates):
        for part in _target_shares(question, data, target, "partial", replicate):
            image_counts.append(len(part.rows(data.images)))
    return sum(image_counts) / len(image_counts) / images
