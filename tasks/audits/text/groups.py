"""Settings that several questions share: texts, inserted secrets and ranking sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from tasks.audits.text.secrets.space import Repetitions, SecretSpace
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.catalog import load_texts
from tasks.datasets.copies import CopyCount, count_groups
from tasks.datasets.dataset import Dataset


@dataclass(frozen=True)
class Corpus(Ranged):
    """The tested texts, or the texts that secrets are inserted into."""

    data: Dataset = Dataset("facts")
    """The texts: records with a field `text` (records:FILE), or the contexts of a question set."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of texts, counted from the first; 0: all."""

    def count_copies(self) -> CopyCount:
        """Count the exact copies among the texts."""
        return count_groups(load_texts(self.data, self.examples), "texts")


@dataclass(frozen=True)
class Null(Ranged):
    """Setting for control runs, in which nothing can be memorised."""

    is_null: bool = False
    """Ours: whether this is a control run, which tests items that are absent from the training data."""


@dataclass(frozen=True)
class RankSizes(Null):
    """Number of ranked items, and of references for each."""

    secrets: Annotated[int, AtLeast(2)] = 24
    """Number of secrets per model pair, or maximum number of identifiers."""
    references: Annotated[int, AtLeast(19)] = 499
    """Number of random candidates of the same format that each item is ranked among; all candidates if the format has
    fewer.
    """


@dataclass(frozen=True)
class Inserted(Ranged):
    """Format of the secrets, and their repetition counts in the training data."""

    pattern: str = "Patient {number}: code {digits:6}."
    """Format of the secrets: {number} is the number of the secret, and {digits:N}, {letters:N} and {hex:N} are random
    characters.
    """
    repetitions: Repetitions = (1, 4, 16)
    """Numbers of occurrences in the training data; secrets take them in turn."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        SecretSpace(self.pattern)  # raises ValueError if the pattern is invalid
        yield from repetition_conflicts(self.repetitions)


def repetition_conflicts(repetitions: Repetitions) -> Iterator[str]:
    if not repetitions or min(repetitions) < 1:
        yield f"repetitions: expected numbers of at least 1, got {repetitions}. Give numbers such as repetitions=1,4."
