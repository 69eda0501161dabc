"""Predictions: the answers that the owner of any question answering system sends, in SQuAD's or DROP's own format.

FOLDER/train.json                  to the training questions, on their contexts as they are
FOLDER/train-corrupted.json        on their corrupted contexts
FOLDER/validation.json             to the questions that were held out
FOLDER/validation-corrupted.json

or FILE.json                       to the questions of a blinded set (`handed_out`), alone in a folder or by its path

Each is an object {ID: ANSWER}. For SQuAD an answer is a text; for DROP, as its evaluation takes it and NumNet+ writes
it, a text or a list of texts, or an object with one of these as its `answer`.
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
    """A folder or a file of predictions, pinned once `digest`, that of the files, is set.

    Written `path` or `path@digest`. It is looked for at the path as it is given, else inside ENGRAM_DATA.
    """

    noun: ClassVar[str] = "predictions"

    path: str
    digest: str = ""

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("the folder of predictions is empty; it must be a path")

    @property
    def is_blinded(self) -> bool:
        """Whether they are those to a blinded set, by the ids that its questions were given: one file."""
        return PurePath(self.path).suffix == SUFFIX

    @classmethod
    def parse(cls, text: str) -> Predictions:
        file = File.parse(text)  # a path may hold an @ of its own
        return cls(file.path, file.digest)

    def __str__(self) -> str:
        return f"{self.path}@{self.digest}" if self.digest else self.path

    def named(self) -> Predictions:
        """The same without the folders it lies in."""
        return Predictions(PurePath(self.path).name, self.digest)

    def identity(self) -> str:
        """What a key sees: the content of the files, never the path."""
        if not self.digest:
            raise ValueError(f"predictions {self.path!r} have no digest yet; pin them before planning")
        return self.digest

    def pin(self, known: MutableMapping[str, str]) -> Predictions:
        """The same with the digest of the files; FileError where one is not there, or they are others.

        Of a folder with one file that is none of the four sets', the path is that file's.
        """
        places = [files.expand_home(self.path).absolute()]
        if "ENGRAM_DATA" in os.environ:
            places.append((Path(os.environ["ENGRAM_DATA"]) / self.path).absolute())
        found = next((place for place in places if (place.is_file() if self.is_blinded else place.is_dir())), None)
        if found is None:
            looked, what = " nor ".join(map(str, places)), "file" if self.is_blinded else "folder"
            must = (
                "be the file of predictions" if self.is_blinded else f"hold the predictions {', '.join(file_names())}"
            )
            raise FileError(f"there is no {what} {looked}; it must {must}")
        pinned = Predictions(str(_single_file(found)))
        digests = [files.pin(File(str(path)), known).digest for path in pinned.paths()]
        return Predictions(pinned.path, self._check_digest(digests))

    def paths(self) -> tuple[Path, ...]:
        path = files.expand_home(self.path)
        return (path,) if self.is_blinded else tuple(path / name for name in file_names())

    def contents(self) -> tuple[bytes, ...]:
        """The bytes of the files; FileError where one is not there, or they are not those that were pinned."""
        contents = tuple(files.read(File(str(path))) for path in self.paths())
        self._check_digest([hashlib.sha256(content).hexdigest() for content in contents])
        return contents

    def _check_digest(self, digests: Sequence[str]) -> str:
        """The digest of files with these digests; FileError where another one was pinned."""
        digest = digest_of(RULE, [each.encode() for each in digests])
        if self.digest not in ("", digest):
            raise FileError(
                f"predictions {self.path!r} are not those that were pinned: their content has digest {digest}, not "
                f"{self.digest}"
            )
        return digest


@dataclass(frozen=True)
class ReadAnswers:
    """The predictions for the questions of the data set that are asked."""

    data: Dataset
    given: Predictions
    selection: Selection = ALL_QUESTIONS


@task(version=1, name="question_answering.read_answers")
def read_answers(config: ReadAnswers, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - reads files, no tables
    """The answers (ANSWERS) of the files, as of an unknown epoch."""
    return answers_table(config.given, load_questions(config.data), config.selection)


def file_names() -> list[str]:
    """The files' names, in the order of SETS."""
    return [f"{name}{SUFFIX}" for name in SETS]


def _single_file(place: Path) -> Path:
    """The one file of predictions that a folder holds, where none is of the four sets; else the place itself."""
    held = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else []
    return held[0] if len(held) == 1 and held[0].name not in file_names() else place


def answers_table(given: Predictions, questions: QuestionSet, selection: Selection = ALL_QUESTIONS) -> pa.Table:
    """The answers (ANSWERS) to the questions that are asked, of which each has one on either kind of context.

    Answers to others of the same split are passed over. ValueError, in one line, for a file that is damaged, lacks
    answers, or has some to what is no question of its split.
    """
    asked = selection.select(questions)
    every: dict[Split, Sequence[Question]] = {"train": questions.train, "validation": questions.validation}
    rows: list[dict[str, Any]] = []
    for (split, corrupted), path, content in zip(SETS.values(), given.paths(), given.contents(), strict=True):
        sent = parse_predictions(path, content, questions.scorer)
        check_ids(path, sent, [question.id for question in asked[split]], {question.id for question in every[split]})
        rows += [
            {"split": split, "corrupted": corrupted, "id": each.id, "answer": list(sent[each.id])}
            for each in asked[split]
        ]
    return pa.Table.from_pylist(rows, ANSWERS)


def parse_predictions(path: Path, content: bytes, scorer: Scorer) -> dict[str, Answer]:
    """The answers of a file by id; DatasetError, naming the entry, for anything else."""
    return {id_: _parse_answer(value, scorer) for id_, value in parse_json(path, content).fields()}


def check_ids(path: Path, sent: Collection[str], asked: Sequence[str], known: Collection[str]) -> None:
    """DatasetError where one of the questions that are asked has no answer, or an answer is to none that is known."""
    missing = [id_ for id_ in asked if id_ not in sent]
    if missing:
        raise DatasetError(
            f"{path} has no answer to {len(missing)} of {len(asked)} questions, the first of them {missing[0]!r}; give "
            "an empty text where there is none"
        )
    unknown = [id_ for id_ in sent if id_ not in known]
    if unknown:
        raise DatasetError(
            f"{path} answers {len(unknown)} questions that are not of its set, the first of them {unknown[0]!r}"
        )


def _parse_answer(value: JsonValue, scorer: Scorer) -> Answer:
    """The spans of an answer, none where it is blank."""
    if scorer == "drop" and isinstance(value.value, dict):
        value = value.field("answer")
    if scorer == "drop" and isinstance(value.value, list):
        spans = tuple(span.text(blank=True) for span in value.elements())
    elif isinstance(value.value, str):
        spans = (value.value,)
    else:
        raise value.error("text, or a list of texts" if scorer == "drop" else "text")
    return spans if any(span.strip() for span in spans) else ()
