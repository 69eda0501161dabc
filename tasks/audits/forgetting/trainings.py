"""The models that are trained: each one's share of the data, its seed, and what it stands for in the audit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Literal

import numpy as np

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.target import NamedTarget, Target, check_tables
from tasks.contract.job import Job
from tasks.datasets.catalog import load
from tasks.datasets.copies import groups_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.mixtures import Part, Share, overlap
from tasks.numerics import seeds
from tasks.training.chains import chain
from tasks.training.mixed import Mixture, train, unlearn
from tasks.training.unlearning_config import Unlearning

Kind = Literal["query", "calibration", "partial", "target"]
QUERY, CALIBRATION = Target(query=1.0), Target(calibration=1.0)
MAX_LISTED = 5  # images that overlap, in an error


@dataclass(frozen=True)
class ModelId:
    """What a model stands for: `target` is the number of the target, or of the known share, it is a replicate of."""

    kind: Kind
    target: int | None
    replicate: int


@dataclass(frozen=True)
class Trainings:
    """The models that are trained here with their jobs, and all targets by their numbers, external ones among them.

    Both are empty where nothing is scored.
    """

    jobs: Mapping[ModelId, Job]
    targets: tuple[NamedTarget, ...]


def trainings(config: Forgetting) -> Trainings:
    """What is trained, and what is audited; nothing of either where the config asks for no scores."""
    if "scores" not in config.measures:
        return Trainings({}, ())
    return Trainings(dict(training_jobs(config)), named_targets(config))


def training_jobs(config: Forgetting) -> Iterator[tuple[ModelId, Job]]:
    """The query, calibration, partial and target models, replicate by replicate, with the jobs that train them.

    Replicates of all are independent, also where a target is trained on what the query or the calibration models
    are: the target is never one of them.
    """
    for replicate in range(config.replicates):
        yield ModelId("query", None, replicate), training_job(config, QUERY, "query", replicate)
        yield ModelId("calibration", None, replicate), training_job(config, CALIBRATION, "calibration", replicate)
        for number, share in enumerate(config.partial_shares):
            beside = Target(query=share, calibration=1.0)
            yield ModelId("partial", number, replicate), training_job(config, beside, "partial", replicate)
        for number, target in enumerate(config.targets):
            yield ModelId("target", number, replicate), training_job(config, target, "target", replicate)


def training_job(config: Forgetting, target: Target, kind: Kind, replicate: int) -> Job:
    """The last link of one training on the target's shares, or its unlearning after it.

    Its seed depends on these, not on which targets there are beside it.
    """
    if target.unlearning not in (None, "retraining"):
        return unlearning_job(config, target, kind, replicate)
    named = [repr(float(share)) for share in (target.query, target.calibration, target.outside)]
    shares = tuple(target_shares(config, target, kind, replicate))
    if target.unlearning == "retraining":
        shares = tuple(share for share in shares if share.part != config.query_part)
        named.append("retraining")
    mixture = Mixture(
        shares=shares,
        validation=config.query.data,
        classes=load(config.query.data).classes,  # which the networks tell apart
        network=config.network,
        dropout=config.dropout,
        batch_norm=config.batch_norm,
        augmentation=config.augmentation,
        crop=config.crop,
        seed=seeds.derive(config.seed, "training", kind, *named, replicate),
        epochs=config.epochs,
        optimiser=config.optimiser,
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        batch=config.batch,
    )
    return chain(train, mixture, config.link)[-1]


def unlearning_job(config: Forgetting, target: Target, kind: Kind, replicate: int) -> Job:
    """The unlearning of the query set by the target's method, by the model that trained on all its shares.

    That model is the one of the target without unlearning.
    """
    assert target.unlearning is not None
    whole = replace(target, unlearning=None)
    before = training_job(config, whole, kind, replicate)
    trained: Mixture = before.config
    shares = tuple(target_shares(config, whole, kind, replicate))
    how = Unlearning(
        kept=tuple(share for share in shares if share.part != config.query_part),
        forgotten=tuple(share for share in shares if share.part == config.query_part),
        method=config.unlearning.method_named(target.unlearning),
        validation=trained.validation,
        classes=trained.classes,
        augmentation=trained.augmentation,
        crop=trained.crop,
        seed=seeds.derive(trained.seed, target.unlearning),
        optimiser=trained.optimiser,
        batch=trained.batch,
    )
    return Job(unlearn, how, (before,))


def target_shares(config: Forgetting, target: Target, kind: Kind, replicate: int) -> Iterator[Share]:
    """The target's shares of the parts; those of one replicate are nested, those of another drawn anew.

    Where models have a share of D_C each, it is drawn anew for every one of them: only those that differ in what was
    done to them afterwards have it in common.
    """
    draw: tuple[str, ...] = () if config.calibration_share == 1 else (kind, repr(float(target.query)))
    for name, part, share, of in (
        ("calibration", config.calibration, config.calibration_share * target.calibration, draw),
        ("query", config.query_part, target.query, ()),
        ("outside", config.outside, target.outside, ()),
    ):
        if share:
            assert part is not None
            yield Share(part, share, seeds.derive(config.seed, "share", name, *of, replicate) if share < 1 else 0)


def realised_share(config: Forgetting, share: float) -> float:
    """The share of D_Q's images that models of this share are trained on, over replicates.

    Where images come in groups, such as patients, whole groups are drawn, and it may be another than was asked for.
    """
    data = load(config.query.data)
    rows = config.query_part.rows(data)
    if len(np.unique(groups_of(data, rows))) == len(rows):
        return share
    images = len(rows)
    of = Target(query=share)
    drawn = [
        len(one.rows(data))
        for replicate in range(config.replicates)
        for one in target_shares(config, of, "partial", replicate)
    ]
    return sum(drawn) / len(drawn) / images


def named_targets(config: Forgetting) -> tuple[NamedTarget, ...]:
    """The targets in their order: those that are trained here, or external ones, by their files without the folders.

    Each has a name of its own, by which its numbers are known: of equal ones all but the first are numbered.
    """
    targets = (
        *(
            NamedTarget(str(target), "training", target.query, target.calibration, target.outside, target.unlearning)
            for target in config.targets
        ),
        *(NamedTarget(PurePath(file.path).name, "model") for file in config.given.models),
        *(NamedTarget(PurePath(file.path).name, "outputs") for file in config.given.outputs),
    )
    by_name: dict[str, NamedTarget] = {}
    for target in targets:
        names = itertools.chain((target.name,), (f"{target.name} ({number})" for number in itertools.count(2)))
        name = next(name for name in names if name not in by_name)
        by_name[name] = replace(target, name=name)
    return tuple(by_name.values())


def canonical_config(config: Forgetting) -> Forgetting:
    """The config with each part of the data written in one way, since its trainings and answers are keyed by it.

    A DatasetError where the data cannot serve, and a ValueError where a table of outputs cannot: before anything is
    trained.
    """
    check_data(config)
    check_tables(config.given, config.probes)
    parts = {
        name: part.plainly(load(part.data))
        for name in ("calibration", "outside")
        if (part := getattr(config, name)) is not None
    }
    control = config.query.control
    query = config.query.plainly(load(config.query.data), None if control is None else load(control.data))
    return replace(config, query=query, **parts)


def check_data(config: Forgetting) -> None:
    """A DatasetError where the data cannot serve: too few images, other shapes or classes, or images in common.

    No other set may hold an image of the query set or of the control set, nor one made of it: the first such images are
    named.
    """
    query = load(config.query.data)
    control = config.query.control
    for part in (*config.parts, *([] if control is None else [control])):
        images = load(part.data)
        part.rows(images)
        if images.shape != query.shape:
            shapes = [" x ".join(map(str, shape)) for shape in (images.shape, query.shape)]
            raise DatasetError(
                f"images of {part.data.name} are {shapes[0]}, those of the query set {config.query.data.name} "
                f"{shapes[1]}; all must be of one shape: add #28x28, or another height x width, and #grey or #rgb"
            )
        if images.classes > query.classes:
            raise DatasetError(
                f"{part.data.name} has {images.classes} classes, the query set {config.query.data.name} "
                f"{query.classes}; it must have no more"
            )
    if config.crop > min(query.shape[:2]):
        raise DatasetError(f"crop is {config.crop}; it must be at most {min(query.shape[:2])}, the side of the images")
    config.query_part.rows(query)
    others = {"calibration set": config.calibration, "set out of domain": config.outside}
    for name, other in others.items():
        if other is not None:
            check_disjoint(config.query.pool, other, f"the {name}")
    if control is not None:
        check_disjoint(config.query.pool, control, "the control set")
        for name, other in others.items():
            if other is not None:
                check_disjoint(control, other, f"the {name}", "the control set")


def check_disjoint(query: Part, other: Part, named: str, of: str = "the query set") -> None:
    """DatasetError, naming both parts, where the other shares an image with the set `of`, or one made from it."""
    common = common_images(query, other)
    if common:
        rows = ", ".join(f"{first} is {second}" for first, second in common[:MAX_LISTED])
        more = f", and {len(common) - MAX_LISTED:,} more" if len(common) > MAX_LISTED else ""
        raise DatasetError(
            f"{of} {query.data.name} and {named} {other.data.name} have {len(common):,} "
            f"image{'s' if len(common) > 1 else ''} in common: training image {rows}{more}; {named} must hold none of "
            f"{of}, nor any made of it: leave these out of it"
        )


@cache  # a plan is made more than once for a run
def common_images(query: Part, calibration: Part) -> tuple[tuple[int, int], ...]:
    """The training images (row of the one, row of the other) that both parts hold."""
    first, second = load(query.data), load(calibration.data)
    return tuple(overlap(first, query.rows(first), second, calibration.rows(second)))
