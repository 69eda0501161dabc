"""The question about the loss of a given model: the model, its members and its non-members.

| the model                        | `question.source`                                        |
|----------------------------------|----------------------------------------------------------|
| is a file that is evaluated here | `ModelAndSets`: `loss.model=model.pt loss.members=...`   |
| returned a table of outputs      | `OutputsAndSets`: `loss.outputs=table.csv loss.members=...` |
| was evaluated by `engram.audit`  | `Recording`: `loss.recording=scores.parquet`             |
| is trained here, as an example   | `TrainedExample`: `question=loss data=digits-on-photos`  |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from tasks.contract import ranges
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.dataset import Dataset
from tasks.external.model_file import Interface, ModelFile
from tasks.worker.files import File


@dataclass(frozen=True)
class ModelAndSets(Ranged):
    """A model file that is evaluated here on two data sets."""

    tag: ClassVar[str] = "file"

    model: ModelFile
    """Model file."""
    members: Dataset
    """Members: images that the model was trained on."""
    non_members: Dataset
    """Non-members: images of the same source that the model was not trained on."""
    interface: Interface = Interface()
    """Input and output format of the model."""


@dataclass(frozen=True)
class OutputsAndSets(Ranged):
    """A table of a model's outputs for two data sets."""

    tag: ClassVar[str] = "table"

    outputs: File
    """Table with the losses or the outputs for all images (.csv or .parquet)."""
    members: Dataset
    """Members: images that the model was trained on."""
    non_members: Dataset
    """Non-members: images of the same source that the model was not trained on."""


@dataclass(frozen=True)
class Recording(Ranged):
    """Scores of a model in memory, as recorded by `engram.audit`."""

    tag: ClassVar[str] = "recording"

    recording: File
    """Parquet file with the scores of both sets."""
    images: File | None = None
    """Parquet file with the images of both sets, which only references need."""


@dataclass(frozen=True)
class TrainedExample(Ranged):
    """A model that is trained here, as an example: its members are random training images of a data set."""

    tag: ClassVar[str] = "example"

    data: Dataset = Dataset("digits-on-photos")
    """Data set."""
    examples: Annotated[int, AtLeast(20)] = 400
    """Number of members, and of non-members."""
    is_null: bool = False
    """Ours: whether the model is trained on other images than the members, as a control run in which nothing can be
    memorised."""


LossSource = TrainedExample | ModelAndSets | OutputsAndSets | Recording


@dataclass(frozen=True)
class LossAttack(Ranged):
    """The loss of one model: does it distinguish members from non-members?"""

    tag: ClassVar[str] = "loss"

    source: LossSource = TrainedExample()
    """The model and the two sets."""
    references: Annotated[
        int,
        ranges.ZeroOr(AtLeast(4)),
        ranges.ZeroOr(ranges.MultipleOf(2, "so that every record is in half of them")),
    ] = 0
    """Number of reference models trained here, each on a random half of both sets together; 0: none."""

    def conflicts(self) -> Iterator[str]:
        if self.references and isinstance(self.source, Recording) and self.source.images is None:
            yield (
                f"references is {self.references}, but {self.source.recording.path} is a recording without images; "
                "pass loss.images=FILE"
            )
