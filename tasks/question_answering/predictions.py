"""Predictions: answers that the owner of a question-answering system returns, in SQuAD or DROP format.

FOLDER/train.json                  answers to the training questions, on whole contexts
FOLDER/train-corrupted.json        the same on corrupted contexts
FOLDER/validation.json             answers to the held-out questions
FOLDER/validation-corrupted.json

or FILE.json                       answers to a set of `blinded_questions`: the only file of a folder, or its path

Each file is an object {ID: ANSWER}. For SQuAD, an answer is a text. For DROP, it is a text, a list of texts, or an
object whose `answer` is one of these, as in DROP's evaluation and NumNet+.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, ClassVar

import pyarrow as pa

from tasks.contract.job import Inputs, task
from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.questions.question import Answer, Question, QuestionSet, Scorer
from tasks.datasets.questions.question_files import JsonValue, parse_json
from tasks.datasets.source import digest_of
from tasks.question_answering.question_sets import ALL_QUESTIONS, ANSWERS, SETS, Selection, Split
from tasks.worker import files
from tasks.worker.files import File, FileError

RULE = "predictions 1"
SUFFIX = ".json"


@dataclass(frozen=True)
class Predictions:
    """A folder or file of predictions, written as `path` or `path@digest`, and pinned once the digest is set.

    The path is looked up as given, then inside ENGRAM_DATA.
    """

    noun: ClassVar[str] = "predictions"

    path: str
    digest: str = ""

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("expected the path of a folder or file of predictions, got an empty one")

    @property
    def is_blinded(self) -> bool:
        """Whether the predictions are for a blinded set, which is a single file."""
        return PurePath(self.path).suffix == SUFFIX

    @classmethod
    def parse(cls, text: str) -> Predictions:
        file = File.parse(text)  # the path may contain an @
        return cls(file.path, file.digest)

    def __str__(self) -> str:
        return f"{self.path}@{self.digest}" if self.digest else self.path

    def named(self) -> Predictions:
        """Return the predictions with only the last component of their path."""
        return Predictions(PurePath(self.path).name, self.digest)

    def identity(self) -> str:
        """Return the text that enters a key: the digest of the content, never the path."""
        if not self.digest:
            raise ValueError(f"predictions {self.path!r} have no digest yet; pin them before planning")
        return self.digest

    def pin(self, digests_by_file: MutableMapping[str, str]) -> Predictions:
        """Return the predictions with the digest of their files.

        Raises FileError if a file is missing or differs from a pinned one. If a folder contains only one file, and this
        is not one of the four sets, the path becomes that file.
        """
        places = [files.expand_home(self.path).absolute()]
        if "ENGRAM_DATA" in os.environ:
            places.append((Path(os.environ["ENGRAM_DATA"]) / self.path).absolute())
        pinned = Predictions(str(_single_file(self._find_path(places))))
        digests = [files.pin(File(str(path)), digests_by_file).digest for path in pinned.paths()]
        return Predictions(pinned.path, self._check_digest(digests))

    def _find_path(self, candidates: Sequence[Path]) -> Path:
        """Return the first existing path. Raises FileError if none exists."""
        for path in candidates:
            if self.is_blinded and path.is_file():
                return path
            if not self.is_blinded and path.is_dir():
                return path
        paths = " nor ".join(map(str, candidates))
        if self.is_blinded:
            raise FileError(f"there is no file {paths}; it must be the file of predictions")
        raise FileError(f"there is no folder {paths}; it must hold the predictions {', '.join(file_names())}")

    def paths(self) -> tuple[Path, ...]:
        path = files.expand_home(self.path)
        if self.is_blinded:
            return (path,)
        return tuple(path / name for name in file_names())

    def contents(self) -> tuple[bytes, ...]:
        """Read the files. Raises FileError if a file is missing or differs from the pinned one."""
        contents = tuple(files.read(File(str(path))) for path in self.paths())
        self._check_digest([hashlib.sha256(content).hexdigest() for content in contents])
        return contents

    def _check_digest(self, digests: Sequence[str]) -> str:
        """Combine the digests of the files. Raises FileError if the result differs from the pinned digest."""
        digest = digest_of(RULE, [file_digest.encode() for file_digest in digests])
        if self.digest not in ("", digest):
            raise FileError(
                f"predictions {self.path!r} are not those that were pinned: expected digest {self.digest}, got {digest}"
            )
        return digest


@dataclass(frozen=True)
class ReadAnswers:
    """The predictions for the selected questions of a data set."""

    data: Dataset
    given: Predictions
    selection: Selection = ALL_QUESTIONS


@task(version=1, name="question_answering.read_answers")
def read_answers(config: ReadAnswers, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Read the answers in the files (ANSWERS), without an epoch."""
    return answers_table(config.given, load_questions(config.data), config.selection)


def file_names() -> list[str]:
    """Return the file names, in the order of SETS."""
    return [f"{name}{SUFFIX}" for name in SETS]


def _single_file(path: Path) -> Path:
    """Return the only predictions file in a folder if it is not one of the four sets, otherwise the path itself."""
    if not path.is_dir():
        return path
    json_files = sorted(path.glob(f"*{SUFFIX}"))
    if len(json_files) == 1 and json_files[0].name not in file_names():
        return json_files[0]
    return path


def answers_table(predictions: Predictions, questions: QuestionSet, selection: Selection = ALL_QUESTIONS) -> pa.Table:
    """Read the answers (ANSWERS) to the selected questions, one per kind of context.

    Answers to other questions of the same split are ignored. Raises ValueError if a file is damaged, lacks answers, or
    answers unknown questions.
    """
    selected = selection.select(questions)
    all_questions: dict[Split, Sequence[Question]] = {"train": questions.train, "validation": questions.validation}
    rows: list[dict[str, Any]] = []
    for (split, corrupted), path, content in zip(
        SETS.values(), predictions.paths(), predictions.contents(), strict=True
    ):
        answers = parse_predictions(path, content, questions.scorer)
        check_ids(
            path,
            answers,
            [question.id for question in selected[split]],
            {question.id for question in all_questions[split]},
        )
        rows += [
            {"split": split, "corrupted": corrupted, "id": entry.id, "answer": list(answers[entry.id])}
            for entry in selected[split]
        ]
    return pa.Table.from_pylist(rows, ANSWERS)


def parse_predictions(path: Path, content: bytes, scorer: Scorer) -> dict[str, Answer]:
    """Parse the answers in a file, by id. Raises DatasetError, naming the entry, if one is invalid."""
    predictions = {}
    for id_, value in parse_json(path, content).fields():
        predictions[id_] = _parse_answer(value, scorer)
    return predictions


def check_ids(path: Path, answered: Collection[str], required: Sequence[str], existing: Collection[str]) -> None:
    """Raise DatasetError if a required question has no answer, or if an answer belongs to no existing question."""
    unanswered = [id_ for id_ in required if id_ not in answered]
    if unanswered:
        raise DatasetError(
            f"{path} has no answer to {len(unanswered)} of {len(required)} questions, the first of them "
            f"{unanswered[0]!r}; pass "
            "an empty text if there is no answer"
        )
    unknown = [id_ for id_ in answered if id_ not in existing]
    if unknown:
        raise DatasetError(
            f"{path} answers {len(unknown)} questions that are not of its set, the first of them {unknown[0]!r}"
        )


def _parse_answer(value: JsonValue, scorer: Scorer) -> Answer:
    """Return the spans of an answer. Empty if it is blank."""
    if scorer == "drop" and isinstance(value.value, dict):
        value = value.field("answer")
    if scorer == "drop" and isinstance(value.value, list):
        spans = tuple(span.text(blank=True) for span in value.elements())
    elif isinstance(value.value, str):
        spans = (value.value,)
    else:
        raise value.error("text, or a list of texts" if scorer == "drop" else "text")
    if not any(span.strip() for span in spans):
        return ()
    return spans
