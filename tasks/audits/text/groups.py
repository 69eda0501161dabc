"""Groups of settings that several questions share: the texts, the inserted secrets and the sizes of rankings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from tasks.audits.text.secrets.space import Repetitions, SecretSpace, Told
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.catalog import load_texts
from tasks.datasets.copies import CopyCount, count_groups
from tasks.datasets.dataset import Dataset


@dataclass(frozen=True)
class Corpus(Ranged):
    """The texts that a question is about, or that secrets are inserted into."""

    data: Dataset = Dataset("facts")
    """The texts: records with a field `text` (records:FILE), or the contexts of a set of questions."""
    examples: Annotated[int, AtLeast(0)] = 0
    """The number of texts, from the first; 0: all."""

    def count_copies(self) -> CopyCount:
        """Count the exact copies among the texts that the question is about."""
        return count_groups(load_texts(self.data, self.examples), "texts")


@dataclass(frozen=True)
class Null(Ranged):
    """Whether a run is a null."""

    told: Told = "secrets"
    """Ours: others makes the run a null: other secrets or documents replace those in the training data, and other
    identifiers those that are ranked."""

    @property
    def is_null(self) -> bool:
        return self.told == "others"


@dataclass(frozen=True)
class RankSizes(Null):
    """How many things are ranked, and among how many others."""

    secrets: Annotated[int, AtLeast(2)] = 24
    """Secrets of a pair of models, or at most this number of identifiers."""
    references: Annotated[int, AtLeast(19)] = 499
    """Others of the space among which each is ranked: all if the space has fewer."""


@dataclass(frozen=True)
class Inserted(Ranged):
    """The secrets of a format, and how often each occurs in the training data."""

    pattern: str = "Patient {number}: code {digits:6}."
    """The format of the secrets: {number} is the secret's own number, and {digits:N}, {letters:N} and {hex:N} are
    drawn."""
    repetitions: Repetitions = (1, 4, 16)
    """How often a secret occurs in the training data, in turn."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        SecretSpace(self.pattern)  # ValueError for a pattern that cannot be drawn from
        yield from repetition_conflicts(self.repetitions)


def repetition_conflicts(repetitions: Repetitions) -> Iterator[str]:
    if not repetitions or min(repetitions) < 1:
        yield f"repetitions is {repetitions}; there must be one at least, and each must be at least 1"
