"""The canaries: which training images carry a feature, drawn at random or chosen by their self-influence.

By self-influence they are the training images that pull hardest and least at a network's weights. Which rows those are
is known once a network without canaries has been trained. So that a plan knows beforehand what will be computed, its
jobs name a canary by its rank (`RankedImage`), and the table of the
chosen ones, among their inputs, says which row that is.

Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", sections 3.1.1 and A.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks import seeds
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.datasets.catalog import load
from tasks.datasets.features import Feature, draw_member
from tasks.job import Inputs, task
from tasks.ranges import check_minimums, one_of
from tasks.training import classifier
from tasks.training.chains import up_to
from tasks.training.classifier import Burnt, Training

End = Literal["highest", "lowest"]

CHOSEN = pa.schema(
    [
        ("end", pa.string()),  # highest or lowest self-influence
        ("rank", pa.int32()),  # from 1, the most extreme
        ("row", pa.int64()),  # of the training images
        ("label", pa.int32()),
        ("self_influence", pa.float64()),
        ("squared_slopes", pa.float64()),
    ]
)


@dataclass(frozen=True)
class RankedImage:
    """A training image by its rank, from 1, among those of the highest or lowest self-influence."""

    end: End
    rank: int

    def __post_init__(self) -> None:
        one_of(self, "end", End)
        check_minimums(self, {"rank": 1})


def canary_row(canary: int | RankedImage, inputs: Inputs) -> int:
    """The canary's row of the training images: a number as it is, a rank by the CHOSEN table among the inputs.

    ValueError where there is no such table, or it does not reach to that rank.
    """
    if not isinstance(canary, RankedImage):
        return canary
    tables = [table for table in inputs if table.schema == CHOSEN]
    if not tables:
        raise ValueError(f"the canary is the {canary.end} by rank {canary.rank}, but no input says which were chosen")
    there = [row for row in tables[0].select(["end", "rank", "row"]).to_pylist() if row["end"] == canary.end]
    rows: dict[int, int] = {row["rank"]: row["row"] for row in there}
    if canary.rank not in rows:
        raise ValueError(f"rank is {canary.rank}; of the {canary.end} self-influence {len(rows)} images were chosen")
    return rows[canary.rank]


@dataclass(frozen=True)
class Canary:
    """One canary: which training image, what it carries, and what its models are asked about."""

    number: int
    image: int | RankedImage
    carried: Feature
    asked: Feature


def canaries(config: UniqueFeature) -> list[Canary]:
    """The canaries, in an order in which fewer are the first of more where they are drawn at random."""
    images: list[int | RankedImage]
    if config.choice == "self-influence":
        highest = (config.canaries + 1) // 2
        images = [RankedImage("highest", rank) for rank in range(1, highest + 1)]
        images += [RankedImage("lowest", rank) for rank in range(1, config.canaries - highest + 1)]
    else:
        rows = config.examples or len(load(config.trained_on).train_images)
        order = seeds.generator(config.seed, *stream_path(config, "canaries")).permutation(rows)
        images = [int(row) for row in order[: config.canaries]]
    selected = []
    for number, image in enumerate(images):
        own = own_feature(config, number) if config.drawn else None
        selected.append(Canary(number, image, own or config.carried, own or config.feature))
    return selected


def stream_path(config: UniqueFeature, *path: str | int) -> tuple[str | int, ...]:
    """The path of a stream of random numbers: canaries with features of their own are other images, of other seeds.

    So those of a run with one feature and of a run with drawn ones are independent samples.
    """
    return ("drawn", *path) if config.drawn else path


def own_feature(config: UniqueFeature, number: int) -> Feature:
    """A member of the feature's family, drawn for this canary, as its family's other members will be."""
    return draw_member(config.feature, seeds.derive(config.seed, "feature", number), config.family, config.shape[:2])


# By self-influence


@dataclass(frozen=True)
class CanaryChoice:
    """How many canaries: half of them of the highest self-influence (one more where odd), half of the lowest."""

    count: int

    def __post_init__(self) -> None:
        check_minimums(self, {"count": 1})


@task(version=1, name="unique_feature.chosen")
def choose_canaries(config: CanaryChoice, inputs: Inputs) -> pa.Table:
    """The chosen training images (CHOSEN), the highest first, from the table of every image's INFLUENCE (the input).

    Of equal values the first row goes first, at both ends; no image is chosen twice.
    """
    (influence,) = inputs
    if config.count > influence.num_rows:
        most = influence.num_rows
        raise ValueError(f"count is {config.count}; it must be at most {most}, the training images there are")
    lowest = config.count // 2
    values, rows = (influence[name].to_numpy() for name in ("self_influence", "row"))
    ranked = zip(get_args(End), extreme_indices(values, rows, config.count - lowest, lowest), strict=True)
    rows_of_ends = [
        {"end": end, "rank": rank} | influence.slice(place, 1).select(CHOSEN.names[2:]).to_pylist()[0]
        for end, places in ranked
        for rank, place in enumerate(places, 1)
    ]
    return pa.Table.from_pylist(rows_of_ends, CHOSEN)


def extreme_indices(
    values: NDArray[np.float64], rows: NDArray[np.int64], highest: int, lowest: int
) -> tuple[list[int], list[int]]:
    """Where the so many highest values lie, the highest first, and the lowest of the rest, the lowest first.

    Of equal values the smaller row goes first.
    """
    falling: list[int] = np.lexsort((rows, -values)).tolist()
    rising: list[int] = np.lexsort((rows, values)).tolist()
    first = set(falling[:highest])
    return falling[:highest], [place for place in rising if place not in first][:lowest]


# Training


@dataclass(frozen=True)
class RankedTraining:
    """`training` with `feature` burnt into the training image of that rank, and into no other."""

    training: Training
    canary: RankedImage
    feature: Feature

    def __post_init__(self) -> None:
        check_no_features(self.training)

    @property
    def epochs(self) -> int:
        return self.training.epochs


def check_no_features(training: Training) -> None:
    """ValueError where a training to which a canary is added carries features already."""
    if training.burnt:
        rows = ", ".join(str(burnt.row) for burnt in training.burnt)
        raise ValueError(f"training burns a feature into row {rows}; it must burn none beside the canary's")


def link(config: RankedTraining, before: int, end: int) -> RankedTraining:
    """The training up to epoch `end`."""
    return replace(config, training=up_to(config.training, before, end))


def batch_key(config: RankedTraining) -> Training:
    """What trainings must share to be computed together: what those of canaries named by row must."""
    return classifier.batch_key(config.training)


def resolve_canary(config: RankedTraining, inputs: Inputs) -> Training:
    """The training with the canary's row in place of its rank."""
    return replace(config.training, burnt=(Burnt(canary_row(config.canary, inputs), config.feature),))


def train_many(
    configs: Sequence[RankedTraining], inputs: Sequence[Inputs]
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Each training's MODEL table, or the exception that ended it alone, as it ends. All must be alike."""
    trainings: dict[int, Training] = {}
    for index, (config, tables) in enumerate(zip(configs, inputs, strict=True)):
        try:
            trainings[index] = resolve_canary(config, tables)
        except ValueError as error:
            yield index, error
    if trainings:
        yield from classifier.train_jobs(trainings)


@task(version=2, name="unique_feature.train_ranked", gpus=1.0, many=train_many, batch_key=batch_key, trains=1)
def train_with_canary(config: RankedTraining, inputs: Inputs) -> pa.Table:
    """The network trained with the canary of that rank (MODEL): what `classifier.train` gives for its row.

    The input is the table of the chosen canaries. A new version of that task is a new one of this.
    """
    ((_, outcome),) = train_many([config], [inputs])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
