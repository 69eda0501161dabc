"""Data of a run, loaded and checked once, before anything is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tasks.audits.forgetting.classifier import Classifier
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.query_set import ProbeSet, QuerySet
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError, is_numbered
from tasks.datasets.images import PictureSet
from tasks.datasets.mixtures import CombinedShares, Part, Remainder, Share, overlap
from tasks.programs.config import Program
from tasks.programs.row_training import check_held

MAX_LISTED = 5  # overlapping images listed in an error


@dataclass(frozen=True, eq=False)
class DataSets:
    """Parts of the data in their canonical form, so that equal parts have equal keys.

    `images` is the data set of D_Q, and `seed` is the seed of the run.
    """

    query: QuerySet
    query_part: Part | Remainder
    probes: ProbeSet
    calibration: Part
    outside: Part | None
    images: PictureSet
    seed: int

    @property
    def scored_rows(self) -> Part | CombinedShares:
        """The rows of D_Q and the control set, which a program scores."""
        if self.query.named_control is None:
            return self.query.pool
        return CombinedShares((Share(self.query.pool), Share(self.query.named_control)))

    @property
    def shown(self) -> Mapping[str, Part | Remainder]:
        """Parts that models are trained on, by name."""
        parts: dict[str, Part | Remainder] = {"query": self.query_part, "calibration": self.calibration}
        if self.outside is None:
            return parts
        return parts | {"outside": self.outside}


def load_data_sets(config: Forgetting) -> DataSets:
    """Load the data and check that they are usable.

    Raises DatasetError if there are too few images, if their shapes or classes differ from the query set, or if two
    sets share an image or the source of an image. The message lists the first shared images.
    """
    query, control, outside = config.query, config.query.named_control, config.outside
    parts = [query.pool, config.calibration, *([] if outside is None else [outside])]
    loaded = {part: load(part.data) for part in (*parts, *([] if control is None else [control]))}
    images = loaded[query.pool]
    _check_source(config, [part.data for part in loaded])
    for part, part_images in loaded.items():
        _check_part(part, part_images, query.data.name, images)
    crop = 0
    if isinstance(config.question, Scores) and isinstance(config.question.training, Classifier):
        crop = config.question.training.crop
    if crop > min(images.shape[:2]):
        raise DatasetError(f"crop is {crop}; it must be at most {min(images.shape[:2])}, the side of the images")
    query.query_part(config.seed).rows(images)
    _check_disjoint_parts(query.pool, control, {"calibration set": config.calibration, "set out of domain": outside})
    query = query.plainly(images, None if control is None else loaded[control])
    return DataSets(
        query=query,
        query_part=query.query_part(config.seed),
        probes=query.probes(config.seed),
        calibration=config.calibration.plainly(loaded[config.calibration]),
        outside=None if outside is None else outside.plainly(loaded[outside]),
        images=images,
        seed=config.seed,
    )


def _check_source(config: Forgetting, sets: Sequence[Dataset]) -> None:
    """Raise DatasetError if a program gets rows of several data sets, or Engram needs images that only a program has.

    A program knows its records by number, so all parts must be parts of one data set.
    """
    question = config.question
    if isinstance(question, Scores) and isinstance(question.training, Program):
        others = [data.named().name for data in sets if data != config.query.data]
        if others:
            raise DatasetError(
                f"training is {question.training.tag}, so that all parts must be rows of one data set, "
                f"{config.query.data.named().name}, and not of {', '.join(others)}: set calibration.data, "
                "calibration.first and targets, such as targets=D_C,D_C+D_Q"
            )
        if config.given is None:
            return
        for data in filter(is_numbered, sets):
            raise DatasetError(f"a given model needs images, and {data.name} has only row numbers")
    for data in sets:
        check_held(data)


def _check_part(part: Part, part_images: PictureSet, query: str, images: PictureSet) -> None:
    """Raise DatasetError if the part has too few images, images of a different shape, or more classes."""
    part.rows(part_images)
    if part_images.shape != images.shape:
        shapes = [" x ".join(map(str, shape)) for shape in (part_images.shape, images.shape)]
        raise DatasetError(
            f"images of {part.data.name} are {shapes[0]}, images of the query set {query} are {shapes[1]}; all must "
            "have one shape: add #28x28, or another height x width, and #grey or #rgb"
        )
    if part_images.classes > images.classes:
        raise DatasetError(
            f"{part.data.name} has {part_images.classes} classes, the query set {query} {images.classes}; it must "
            "have no more"
        )


def _check_disjoint_parts(pool: Part, control: Part | None, named_parts: Mapping[str, Part | None]) -> None:
    """Raise DatasetError if one of the other parts shares an image with the query set or the control set."""
    for name, part in named_parts.items():
        if part is not None:
            _check_disjoint(pool, part, f"the {name}")
    if control is None:
        return
    _check_disjoint(pool, control, "the control set")
    for name, part in named_parts.items():
        if part is not None:
            _check_disjoint(control, part, f"the {name}", "the control set")


def _check_disjoint(query: Part, part: Part, part_name: str, set_name: str = "the query set") -> None:
    """Raise DatasetError if `part` shares an image, or the source of an image, with `query`."""
    common = common_images(query, part)
    if common:
        rows = ", ".join(f"{first} is {second}" for first, second in common[:MAX_LISTED])
        more = ""
        if len(common) > MAX_LISTED:
            more = f", and {len(common) - MAX_LISTED:,} more"
        raise DatasetError(
            f"{set_name} {query.data.name} and {part_name} {part.data.name} have {len(common):,} "
            f"image{'s' if len(common) > 1 else ''} in common: training image {rows}{more}; {part_name} must not "
            f"contain images of {set_name} or images derived from them: leave these out"
        )


@cache  # a run is planned more than once
def common_images(query: Part, calibration: Part) -> tuple[tuple[int, int], ...]:
    """Return the training images (row in one, row in the other) that both parts contain."""
    first, second = load(query.data), load(calibration.data)
    return tuple(overlap(first, query.rows(first), second, calibration.rows(second)))
