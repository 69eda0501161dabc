"""The question about a given model: how its outputs are obtained, and how its training images are known.

| the model                           | `question.source`                                                    |
|-------------------------------------|----------------------------------------------------------------------|
| is a file, which is evaluated here  | `AskedFile`: `given.model=model.pt`                                  |
| is private, and a table is returned | `ReturnedTable`: `given.outputs=table.csv`                           |

| the images it was trained on        | `question.records`                                                   |
|-------------------------------------|----------------------------------------------------------------------|
| the first of a published data set   | `FirstImages`: `data=mnist examples=1000`                            |
| one of two data sets                | `TwoSets`: `given.members=folder:a given.others=folder:b`            |
| images marked by a column of a list | `MarkedImages`: `data=list:records.csv given.members=column:trained` |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from tasks.contract import ranges
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.stand_in import is_users_own
from tasks.datasets.dataset import Dataset
from tasks.datasets.selection import FORBIDDEN, NAMING, Selection, has_columns
from tasks.external.model_file import Gives, Interface, ModelFile
from tasks.worker.files import File


@dataclass(frozen=True)
class AskedFile(Ranged):
    """A model's file, which is evaluated here."""

    tag: ClassVar[str] = "file"

    model: ModelFile
    """The model's file."""
    interface: Interface = Interface()
    """Inputs and outputs of the model."""


@dataclass(frozen=True)
class TableInterface(Ranged):
    """The numbers in a table of outputs."""

    gives: Gives = "logits"
    """The kind of the numbers, one column per class: logits, probabilities, or their natural logarithms."""


@dataclass(frozen=True)
class ReturnedTable(Ranged):
    """A table of outputs, which the owner of the model returns for the images of `engram probes`."""

    tag: ClassVar[str] = "table"

    outputs: File | None = None
    """The table; none before it is returned, which is enough for `engram probes`."""
    columns: tuple[str, ...] = ()
    """Names of the table's columns of numbers, if these are not the usual ones."""
    interface: TableInterface = TableInterface()
    """The kind of the numbers."""


@dataclass(frozen=True)
class MemberColumn:
    """The column of a list that marks the images that a model was trained on. Written `column:NAME`."""

    prefix: ClassVar[str] = NAMING

    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("the name of a column of members is empty; write column:NAME")
        if set(self.name) & set(FORBIDDEN):
            raise ValueError(f"the name of a column of members must not contain {' '.join(FORBIDDEN)}")

    @classmethod
    def parse(cls, text: str) -> MemberColumn:
        if not text.startswith(cls.prefix):
            raise ValueError("it must be column:NAME")
        return cls(text.removeprefix(cls.prefix).strip())

    def __str__(self) -> str:
        return f"{self.prefix}{self.name}"

    def identity(self) -> str:
        """The text by which a key knows the column."""
        return self.name


@dataclass(frozen=True)
class FirstImages(Ranged):
    """The first images of a published data set, on which the model was trained, and the images that follow."""

    tag: ClassVar[str] = "first"

    data: Dataset = Dataset("mnist")
    """The data set."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of training images, from the first, on which the model was trained; some must follow."""
    controls: Annotated[int, AtLeast(0)] = 0
    """Number of images that follow and are compared; 0: `examples`."""

    @property
    def dataset(self) -> Dataset:
        """The data set of the images that the model was trained on."""
        return self.data

    def conflicts(self) -> Iterator[str]:
        if is_users_own(self.data.name):
            yield (
                f"data is {self.data.name}, which does not say what the given model was trained on: set given.members "
                "to the images that it was trained on, and given.others to images of the same source that it was not "
                "trained on; or to column:NAME, a column of a list that marks members"
            )


@dataclass(frozen=True)
class TwoSets(Ranged):
    """Two data sets: images on which the model was trained, and images of the same source on which it was not."""

    tag: ClassVar[str] = "sets"

    members: Dataset
    """Images on which the model was trained."""
    others: Dataset
    """Images of the same source on which it was not trained."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of records, at random from `members` within classes; 0: all."""
    controls: Annotated[int, AtLeast(0)] = 0
    """Number of `others` that are compared, at random within classes; 0: the number of records, or all."""

    @property
    def dataset(self) -> Dataset:
        """The data set of the images that the model was trained on."""
        return self.members


@dataclass(frozen=True)
class MarkedImages(Ranged):
    """One list, or Parquet files, of which a column marks the images on which the model was trained."""

    tag: ClassVar[str] = "column"

    data: Dataset
    """The list, as list:FILE or parquet:PATH."""
    members: MemberColumn
    """The column that marks the images on which the model was trained, as column:NAME; all others are compared."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of records, at random from the marked images within classes; 0: all."""
    controls: Annotated[int, AtLeast(0)] = 0
    """Number of others that are compared, at random within classes; 0: the number of records, or all."""

    @property
    def dataset(self) -> Dataset:
        """The images of the list that the model was trained on."""
        return self.to_pin().members

    def to_pin(self) -> TwoSets:
        """The marked images and the others as two data sets, each with its own digest once it is pinned."""
        members, others = (
            Dataset(f"{self.data.name}#{Selection(self.members.name, is_member)}") for is_member in (True, False)
        )
        return TwoSets(members=members, others=others, examples=self.examples, controls=self.controls)

    def conflicts(self) -> Iterator[str]:
        if not has_columns(self.data):
            yield (
                f"members is {self.members} and data is {self.data.name}; a column of members is one of list:FILE or "
                "parquet:PATH"
            )


Records = FirstImages | TwoSets | MarkedImages
Source = ReturnedTable | AskedFile


@dataclass(frozen=True)
class GivenModel(Ranged):
    """A third-party model, ranked among models trained here: was it trained on the records?"""

    tag: ClassVar[str] = "given"

    source: Source = ReturnedTable()
    """The model's file, or the table of outputs that its owner returns."""
    records: Records = FirstImages()
    """How the images that it was trained on are known."""
    models: Annotated[
        int,
        ranges.ZeroOr(AtLeast(4)),
        ranges.ZeroOr(ranges.MultipleOf(2, "so that every record is in half of them")),
    ] = 64
    """Number of models trained here for comparison, each record in half of the training sets; 0: nothing is judged."""
    level: Annotated[float, ranges.Share(zero=False, one=False)] = 0.05
    """At most this share of the records that are found may be false."""
    draws: Annotated[int, AtLeast(99)] = 9999
    """Sets of models that are drawn for the exact test of models trained here, if all are more than 20,000."""

    def conflicts(self) -> Iterator[str]:
        if self.models and self.level * (self.models + 1) < 1:
            yield (
                f"models is {self.models} and a model is given; its p-value among them is at least 1 of "
                f"{self.models + 1}, which is above level ({self.level:g}): train more models"
            )
