"""The config of the audit, and what its summary is told of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

from tasks.contract import ranges
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import CanaryImages
from tasks.datasets.selection import FORBIDDEN, NAMING, Selection, has_columns
from tasks.external.model_file import Interface, ModelFile
from tasks.models.catalog import Network
from tasks.training.classifier import check_private
from tasks.training.recipe import Count, OptimiserName, Privacy, Rate, Recipe
from tasks.worker.files import File

TINY_RECORDS = 60


@dataclass(frozen=True)
class GivenModel(Ranged):
    """The model that the audit asks beside those that it trains; its file, or a table of what it says."""

    model: ModelFile | None = None
    """The model's file, which is asked here through `interface`."""
    outputs: File | None = None
    """A table of what a model that its owner keeps says of the pictures handed out."""
    interface: Interface = Interface()
    """Inputs and outputs of the model."""
    columns: tuple[str, ...] = ()
    """Names of the table's columns of numbers, where they have names of their own."""
    controls: Annotated[int, AtLeast(0)] = 0
    """Images on which the model was not trained: those that follow the records, or of `others`; 0: as many as there
    are records, or as `others` has."""
    members: Dataset | None = None
    """Images on which the model was trained, in place of `data`; the records are `examples` of them, at random within
    classes. Or `column:NAME`: the column of `data` that marks these images, all others being `others`."""
    others: Dataset | None = None
    """Images of the same source on which the model was not trained; `controls` of them, at random within classes."""

    def conflicts(self) -> Iterator[str]:
        if self.model is not None and self.outputs is not None:
            yield "model and outputs are both given; they are two ways to ask one model: give one"
        if self.columns and self.outputs is None:
            yield f"columns is {', '.join(self.columns)}; there is no table with such columns: give outputs"
        if set(self.column) & set(FORBIDDEN):
            yield f"members is {self.members}; the name of a column of members must not contain {' '.join(FORBIDDEN)}"
        if self.column:
            if self.others is not None:
                yield (
                    f"members is {self.members} and others is {self.others}; the column marks both sets: leave out "
                    "others"
                )
        elif (self.members is None) != (self.others is None):
            given, missing = ("members", "others") if self.others is None else ("others", "members")
            yield f"{given} is given and {missing} is not; both sets are needed: give {missing} as well"
        if self.interface != Interface() and not self.there:
            yield "interface says how to ask a model, and there is none; give model or outputs"

    @property
    def column(self) -> str:
        """The column of `data` that marks members; empty if `members` is a data set."""
        if self.members is None or not self.members.name.startswith(NAMING):
            return ""
        return self.members.name.removeprefix(NAMING).strip() or "NAME"

    def selected_from(self, data: Dataset) -> GivenModel:
        """The same with both sets as the rows of `data` that the column marks, if it names one of a list."""
        if not self.column or self.others is not None or set(self.column) & set(FORBIDDEN) or not has_columns(data):
            return self
        members, others = (Dataset(f"{data.name}#{Selection(self.column, is_member)}") for is_member in (True, False))
        return replace(self, members=members, others=others)

    @property
    def there(self) -> bool:
        """Whether a third-party model is audited."""
        return self.model is not None or self.outputs is not None


@dataclass(frozen=True)
class Membership(Ranged):
    """How many models are trained on halves of which records, how, and how they are compared.

    The defaults train as Carlini et al. train shadow models on MNIST-sized data, but for the network.
    """

    data: Dataset = Dataset("mnist")
    """The images: each of the first `examples` training images is a record."""
    network: Network = Network("cnn1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""
    models: Annotated[int, AtLeast(0)] = 16
    """Models, an even number from 4 on; every record is in exactly half of them. With canaries: any number from 1 on;
    0 where a model is given: none."""
    examples: Annotated[int, AtLeast(0)] = 0
    """The first so many training images; 0: all."""
    epochs: Count = 20
    """Epochs of training."""
    batch: Count = 128
    """Images in a minibatch."""
    optimiser: OptimiserName = "adam"
    """The optimiser."""
    learning_rate: Rate = 1e-3
    """The learning rate."""
    augmentation: bool = False
    """Whether images are shifted and turned in training; models are asked about them as they are."""
    level: Annotated[float, ranges.Share(zero=False, one=False)] = 0.05
    """Ours: at most this share of the records that are found may be false."""
    draws: Annotated[int, AtLeast(99)] = 9999
    """Ours: sets of models that are drawn for the exact test if all of them are more than 20,000. For records that few
    of these sets reach, as many more are drawn as one record needs to be found among all."""
    negligible: Annotated[float, ranges.Share(zero=False)] = field(default=0.01, metadata={ANSWER_ONLY: True})
    """Ours: an area under the curve this far above a half is negligible."""
    unseen: bool = False
    """Ours: ask about as many images that follow, on which no model was trained: a null."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""
    canaries: Annotated[int, AtLeast(0)] = 0
    """Ours: records that a fair coin puts into the training data of each model, beside all others. 0: halves."""
    mislabelled: bool = False
    """Ours: whether canaries have a wrong label, which is remembered sooner than a right one."""
    canary_images: CanaryImages = "own"
    """Ours: the image of a canary: its record's own, noise like no record, or its own with a glyph drawn for it."""
    privacy: Privacy | None = None
    """Ours: train with differential privacy (mlp1 and cnn1); none: without."""

    influences: Annotated[int, AtLeast(0)] = 0
    """Ours: so many pairs of records are listed of which one helps models most to be right about the other; 0: none."""
    shifts: Annotated[int, AtLeast(0)] = 0
    """Ours: another attack asks for labels of copies of each record, too, shifted by so many pixels; 0: it does not."""

    given: GivenModel = GivenModel()
    """Ours: a third-party model, which is ranked among those that are trained here."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", self.given.selected_from(self.data))
        if self.given.members is not None and not self.given.column:
            object.__setattr__(self, "data", self.given.members)
        super().__post_init__()

    def conflicts(self) -> Iterator[str]:
        if self.models < (1 if self.canaries else 4) and (self.models or not self.given.there):
            least = 1 if self.canaries else 4
            yield f"models is {self.models}; it must be at least {least}, or 0 where a model is given"
        if self.given.there and self.canaries:
            yield "a model is given and there are canaries; canaries are for models which are all trained here"
        if self.models % 2 and not self.canaries:
            yield f"models is {self.models}; it must be even, so that every record is in half of them"
        if self.canaries and self.unseen:
            yield "canaries are given and unseen is on; canaries that are left out are the null already"
        if self.canaries > self.examples > 0:
            yield f"canaries is {self.canaries}; it must be at most examples, which is {self.examples}"
        for name in ("influences", "shifts"):
            if getattr(self, name) and (self.canaries or not self.models):
                yield f"{name} is {getattr(self, name)}; it is for models trained here, each on half of the records"
        if self.mislabelled and not self.canaries:
            yield "mislabelled is on and canaries is 0; only canaries are mislabelled"
        if self.canary_images != "own" and not self.canaries:
            yield f"canary_images is {self.canary_images} and canaries is 0; say how many canaries there are"
        if self.privacy is not None:
            check_private(
                self.network, False, Recipe(self.epochs, self.batch, self.learning_rate, 0, (), self.optimiser)
            )
        if self.unseen and not self.examples:
            yield "unseen is on and examples is 0; some images must be left that are not trained on"
        if self.given.column and not has_columns(self.data):
            yield (
                f"given.members is column:{self.given.column} and data is {self.data.name}; a column of members is one "
                "of list:FILE or parquet:PATH"
            )
        elif self.given.there and self.given.others is None:
            if is_own(self.data):
                yield say_members(self.data)
            elif not self.examples:
                yield "a model is given and examples is 0; some images must be left that it was not trained on"
        if self.given.there and self.unseen:
            yield "a model is given and unseen is on; unseen is for models which are all trained here"
        if self.given.there and self.models and self.level * (self.models + 1) < 1:
            yield (
                f"models is {self.models} and a model is given; its p-value among them is at least 1 of "
                f"{self.models + 1}, which is above level ({self.level:g}): train more models"
            )


def is_own(data: Dataset) -> bool:
    """Whether it is a data set of the user's, of which the order of rows says nothing."""
    return ":" in data.name


def say_members(data: Dataset) -> str:
    """What to set for a given model, instead of `data`."""
    return (
        f"data is {data.name}, which does not say what the given model was trained on: set given.members to the images "
        "that it was trained on, and given.others to images of the same source that it was not trained on; or to "
        "column:NAME, a column of a list that marks members"
    )


@dataclass(frozen=True)
class About:
    """What the summary is told of a run."""

    level: float
    copies: CopyCount = CopyCount()
    """The exact copies among the records."""
    chance: float | None = None
    """The accuracy of the best constant answer about the records; with canaries, about the validation images."""


def tiny(config: Membership) -> Membership:
    """The config's shape on embedded data, in seconds."""
    few = min(config.examples or TINY_RECORDS, TINY_RECORDS)
    config = replace(config, canaries=min(config.canaries, few // 2))
    config = replace(config, given=replace(config.given, members=None, others=None, controls=0))
    models = config.models if config.given.there else min(config.models, 8)
    return replace(
        config, data=Dataset("digits"), network=Network("mlp1"), models=models, examples=few, epochs=2,
        batch=min(config.batch, 32), draws=min(config.draws, 99),
    )  # fmt: skip
