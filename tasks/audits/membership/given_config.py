"""The question about a given model: the source of its outputs, and its training images.

| the model                            | `question.source`                                                        |
|--------------------------------------|--------------------------------------------------------------------------|
| is a file that is evaluated here     | `AskedFile`: `given.model=model.pt`                                      |
| is private; its owner returns scores | `ReturnedTable`: `given.outputs=table.csv`                               |

| its training images                  | `question.records`                                                       |
|--------------------------------------|--------------------------------------------------------------------------|
| the first of a published data set    | `FirstImages`: `data=mnist examples=1000`                                |
| one of two data sets                 | `TwoSets`: `given.members=folder:a given.non_members=folder:b`           |
| images marked by a column of a list  | `MarkedImages`: `data=list:records.csv given.members=column:trained`     |
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
    """A model file that is evaluated here."""

    tag: ClassVar[str] = "file"

    model: ModelFile
    """Model file."""
    interface: Interface = Interface()
    """Input and output format of the model."""


@dataclass(frozen=True)
class TableInterface(Ranged):
    """Format of a table of outputs."""

    gives: Gives = "logits"
    """Kind of the numbers, one column per class: logits, probabilities, or their natural logarithms."""


@dataclass(frozen=True)
class ReturnedTable(Ranged):
    """A table of outputs that the owner of the model returns for the images of `engram probes`."""

    tag: ClassVar[str] = "table"

    outputs: File | None = None
    """Table of outputs; `engram probes` does not need it."""
    columns: tuple[str, ...] = ()
    """Names of the output columns, if they differ from the usual ones."""
    interface: TableInterface = TableInterface()
    """Format of the outputs."""


@dataclass(frozen=True)
class MemberColumn:
    """The column of a list that marks the training images of a model, as `column:NAME`."""

    prefix: ClassVar[str] = NAMING

    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("expected column:NAME, got an empty name")
        if set(self.name) & set(FORBIDDEN):
            raise ValueError(f"a column of members must not contain {' '.join(FORBIDDEN)}")

    @classmethod
    def parse(cls, text: str) -> MemberColumn:
        if not text.startswith(cls.prefix):
            raise ValueError("expected column:NAME")
        return cls(text.removeprefix(cls.prefix).strip())

    def __str__(self) -> str:
        return f"{self.prefix}{self.name}"

    def identity(self) -> str:
        """Return the text that enters a key."""
        return self.name


@dataclass(frozen=True)
class FirstImages(Ranged):
    """The first images of a published data set as members, and the images that follow as non-members."""

    tag: ClassVar[str] = "first"

    data: Dataset = Dataset("mnist")
    """Data set."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of members, from the first training image; the images that follow are non-members."""
    non_member_examples: Annotated[int, AtLeast(0)] = 0
    """Number of non-members; 0: `examples`."""

    @property
    def dataset(self) -> Dataset:
        """Data set of the members."""
        return self.data

    def conflicts(self) -> Iterator[str]:
        if is_users_own(self.data.name):
            yield (
                f"data is {self.data.name}, which does not show the training images of the given model. Set "
                "given.members to images that the model was trained on and given.non_members to images of the same "
                "source that it was not trained on, or given.members=column:NAME, a column that marks members"
            )


@dataclass(frozen=True)
class TwoSets(Ranged):
    """Two data sets from one source: members and non-members of the training data."""

    tag: ClassVar[str] = "sets"

    members: Dataset
    """Members: images that the model was trained on."""
    non_members: Dataset
    """Non-members: images of the same source that the model was not trained on."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of members, drawn at random within classes; 0: all."""
    non_member_examples: Annotated[int, AtLeast(0)] = 0
    """Number of non-members, drawn at random within classes; 0: the number of members, or all."""

    @property
    def dataset(self) -> Dataset:
        """Data set of the members."""
        return self.members


@dataclass(frozen=True)
class MarkedImages(Ranged):
    """One list, or Parquet files, with a column that marks the members."""

    tag: ClassVar[str] = "column"

    data: Dataset
    """List of images, as list:FILE or parquet:PATH, or a table, as table:FILE."""
    members: MemberColumn
    """Column that marks the members, as column:NAME; all other images are non-members."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of members, drawn at random within classes; 0: all."""
    non_member_examples: Annotated[int, AtLeast(0)] = 0
    """Number of non-members, drawn at random within classes; 0: the number of members, or all."""

    @property
    def dataset(self) -> Dataset:
        """Data set of the members."""
        return self.to_pin().members

    def to_pin(self) -> TwoSets:
        """Return the members and the non-members as two data sets, each with its own digest."""
        members, non_members = (
            Dataset(f"{self.data.name}#{Selection(self.members.name, is_member)}") for is_member in (True, False)
        )
        return TwoSets(
            members=members,
            non_members=non_members,
            examples=self.examples,
            non_member_examples=self.non_member_examples,
        )

    def conflicts(self) -> Iterator[str]:
        if not has_columns(self.data):
            yield (
                f"members is {self.members} and data is {self.data.name}; data must be list:FILE, parquet:PATH or "
                "table:FILE"
            )


Records = FirstImages | TwoSets | MarkedImages
Source = ReturnedTable | AskedFile


@dataclass(frozen=True)
class GivenModel(Ranged):
    """A third-party model, compared with models trained here: was it trained on the records?"""

    tag: ClassVar[str] = "given"

    source: Source = ReturnedTable()
    """Source of the outputs: a model file, or a table that the owner returns."""
    records: Records = FirstImages()
    """Members and non-members of the training data."""
    models: Annotated[
        int,
        ranges.ZeroOr(AtLeast(4)),
        ranges.ZeroOr(ranges.MultipleOf(2, "so that every record is in half of them")),
    ] = 64
    """Number of models trained here for comparison, with each record in half of them; 0: *not assessable*."""
    level: Annotated[float, ranges.Share(zero=False, one=False)] = 0.05
    """Significance level, and false discovery rate of the identified records."""
    draws: Annotated[int, AtLeast(99)] = 9999
    """Random halves of the models for the exact test, if there are more than 20,000 halves."""

    def conflicts(self) -> Iterator[str]:
        if self.models and self.level * (self.models + 1) < 1:
            yield (
                f"models is {self.models}; the smallest p-value is 1 of {self.models + 1}, above level "
                f"({self.level:g}): train more models"
            )
