"""A set of questions in two files, one for training and one for validation, in the format of SQuAD or DROP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.datasets.content import Source, digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images
from tasks.datasets.questions import drop, squad
from tasks.datasets.questions.question import Question, QuestionSet, Scorer
from tasks.files import regular_bytes


class Format(Protocol):
    """A module that reads and writes files of one format, with the official names of both files."""

    RULE: str
    TRAIN: str
    VALIDATION: str

    def read(self, path: Path, content: bytes, answered: bool = True) -> list[Question]: ...

    def write_questions(self, questions: Sequence[Question], answered: bool = True) -> bytes: ...


FORMATS: Mapping[Scorer, Format] = {"squad": squad, "drop": drop}


@dataclass(frozen=True)
class QuestionFiles:
    """The bytes of both files, and how they are read."""

    form: Scorer
    paths: tuple[Path, Path]
    contents: tuple[bytes, bytes]

    def digest(self) -> str:
        return digest_of(FORMATS[self.form].RULE, self.contents)

    def images(self) -> Images:
        raise DatasetError(f"{self.paths[0]} holds questions and no images")

    def questions(self) -> QuestionSet:
        """The questions of both files; DatasetError where one is damaged or empty, or both have an id or a context."""
        train, validation = (
            different(path, FORMATS[self.form].read(path, content))
            for path, content in zip(self.paths, self.contents, strict=True)
        )
        taken = {question.id for question in train}
        both = next((question for question in validation if question.id in taken), None)
        if both is not None:
            raise DatasetError(f"{' and '.join(map(str, self.paths))} both have the question {both.id!r}")
        return QuestionSet(train, validation, self.form)


def source(form: Scorer, place: Path) -> Source | None:
    """The two files in a folder, by their official names, or `TRAIN.json,DEV.json`; None unless both are there.

    The second is looked for beside the first unless its path is absolute.
    """
    paths = locate_files(form, place)
    if not all(path.is_file() for path in paths):
        return None
    first, second = paths
    return Source(FORMATS[form].RULE, paths, lambda: QuestionFiles(form, paths, (bytes_of(first), bytes_of(second))))


def names(form: Scorer) -> str:
    """The official names of both files."""
    return f"{FORMATS[form].TRAIN} and {FORMATS[form].VALIDATION}"


def locate_files(form: Scorer, place: Path) -> tuple[Path, Path]:
    if place.is_dir() or "," not in str(place):
        return place / FORMATS[form].TRAIN, place / FORMATS[form].VALIDATION
    train, validation = str(place).rsplit(",", 1)
    return Path(train), Path(train).parent / validation


def bytes_of(path: Path) -> bytes:
    try:
        return regular_bytes(path)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None


def different(path: Path, questions: list[Question]) -> list[Question]:
    """The questions, of which one that is there twice counts once; DatasetError where two differ but for their id."""
    by_id: dict[str, Question] = {}
    for question in questions:
        if by_id.setdefault(question.id, question) != question:
            raise DatasetError(f"{path} has several questions with the id {question.id!r}; ids must differ")
    if not by_id:
        raise DatasetError(f"{path} has no questions")
    return list(by_id.values())
