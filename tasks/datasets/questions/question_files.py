"""Read and write question files in SQuAD v1.1 and DROP format. A data set has a training file and a validation file.

SQuAD v1.1: articles consist of paragraphs with questions, each of which has one or more gold answers.

{"version": "1.1", "data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
    {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}

DROP: passages with questions, whose answers are a number, a date, or one or several spans.

{PASSAGE_ID: {"passage": ..., "qa_pairs": [{"question": ..., "answer": ANSWER, "query_id": ...,
                                            "validated_answers": [ANSWER, ...]}]}}
ANSWER: {"number": "4", "date": {"day": "", "month": "", "year": ""}, "spans": []}

Rajpurkar, Zhang, Lopyrev & Liang 2016, "SQuAD: 100,000+ questions for machine comprehension of text"; Dua, Wang,
Dasigi, Stanovsky, Singh & Gardner 2019, "DROP: a reading comprehension benchmark requiring discrete reasoning over
paragraphs".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tasks.datasets.dataset import DatasetError, file_bytes
from tasks.datasets.images import Images
from tasks.datasets.questions.question import Answer, Question, QuestionSet, Scorer, context_id, shuffle_contexts
from tasks.datasets.source import Source, digest_of


@dataclass(frozen=True)
class JsonValue:
    """A JSON value, the file it is from, and the path of names and indices that leads to it."""

    value: Any
    path: Path
    keys: tuple[str | int, ...] = ()

    @property
    def location(self) -> str:
        """The file and the position in it, for example `train.json, data[0].paragraphs[2]`."""
        steps = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)
        return f"{self.path}, {steps.lstrip('.')}" if steps else str(self.path)

    def error(self, allowed: str) -> DatasetError:
        return DatasetError(f"{self.location} is {json.dumps(self.value):.80}; it must be {allowed}")

    def has(self, name: str) -> bool:
        """Return whether the value is an object that has this field with a value other than null."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def field(self, name: str) -> JsonValue:
        """Return a field of the object. Raises DatasetError if the value is not an object or lacks the field."""
        if not isinstance(self.value, dict):
            raise self.error(f"an object with the field {name}")
        if name not in self.value:
            field_names = ", ".join(self.value) or "none"
            raise DatasetError(f"{self.location} has no field {name}; its fields are {field_names:.80}")
        return JsonValue(self.value[name], self.path, (*self.keys, name))

    def fields(self) -> Iterator[tuple[str, JsonValue]]:
        if not isinstance(self.value, dict):
            raise self.error("an object")
        for name in self.value:
            yield name, self.field(name)

    def elements(self) -> list[JsonValue]:
        if not isinstance(self.value, list):
            raise self.error("a list")
        result = []
        for index, value in enumerate(self.value):
            result.append(JsonValue(value, self.path, (*self.keys, index)))
        return result

    def text(self, blank: bool = False) -> str:
        """Return the value as text. It may only be blank if `blank` is set."""
        if not isinstance(self.value, str) or not (blank or self.value.strip()):
            raise self.error("text" if blank else "text that is not blank")
        return self.value


def parse_json(path: Path, content: bytes) -> JsonValue:
    """Parse a file.

    Raises DatasetError if it is not UTF-8 encoded JSON, or if a name occurs twice in an object, in which case `json`
    would keep the last value.
    """
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=partial(_unique_fields, path))
        return JsonValue(value, path)
    except DatasetError:
        raise
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not text in UTF-8: {error}") from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON: {error}") from None


def _unique_fields(path: Path, fields: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(fields)
    if len(unique) < len(fields):
        counts = Counter(name for name, _ in fields)
        repeated = [name for name, count in counts.items() if count > 1]
        raise DatasetError(
            f"{path} has more than one value for {repeated[0]!r}; {len(repeated)} names are repeated, but each must "
            "occur once"
        )
    return unique


SQUAD_VERSION = "1.1"


def read_squad(path: Path, content: bytes, answered: bool = True) -> list[Question]:
    """Read the questions in a file. Unless `answered` is set, gold answers may be missing.

    Raises DatasetError, naming the entry, if the file is damaged or has unanswerable questions, as in SQuAD 2.0.
    """
    return list(_squad_questions(parse_json(path, content), answered))


def write_squad(questions: Sequence[Question], answered: bool = True) -> bytes:
    """Write a file with one article per run of questions about the same context. Unless `answered`, `answers` is empty.

    Raises DatasetError for answers that the format does not support: several spans, or text outside the context.
    """
    articles = []
    for (title, context), group in groupby(questions, lambda question: (question.context_id, question.context)):
        entries = [_squad_entry(question, answered) for question in group]
        articles.append({"title": title, "paragraphs": [{"context": context, "qas": entries}]})
    return json.dumps({"data": articles, "version": SQUAD_VERSION}, ensure_ascii=False).encode()


def _squad_questions(document: JsonValue, answered: bool) -> Iterator[Question]:
    for article in document.field("data").elements():
        for paragraph in article.field("paragraphs").elements():
            context = paragraph.field("context").text()
            id_ = context_id(context)
            for entry in paragraph.field("qas").elements():
                golds = _squad_golds(entry.field("answers"), answered)
                yield Question(entry.field("id").text(), id_, context, entry.field("question").text(blank=True), golds)


def _squad_golds(answers: JsonValue, answered: bool) -> tuple[Answer, ...]:
    golds = tuple(dict.fromkeys((answer.field("text").text(),) for answer in answers.elements()))
    if answered and not golds:
        raise answers.error("a list of at least one answer: SQuAD v1.1 has no unanswerable questions")
    return golds


def _squad_entry(question: Question, answered: bool) -> dict[str, Any]:
    answers = []
    if answered:
        answers = [_squad_answer(question, gold) for gold in question.golds]
    return {"answers": answers, "question": question.question, "id": question.id}


def _squad_answer(question: Question, gold: Answer) -> dict[str, Any]:
    start = question.context.find(gold[0]) if len(gold) == 1 else -1
    if start < 0:
        raise DatasetError(
            f"question {question.id!r} has an answer that does not occur in its context, which SQuAD requires"
        )
    return {"answer_start": start, "text": gold[0]}


NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
DATE = ("day", "month", "year")


def read_drop(path: Path, content: bytes, answered: bool = True) -> list[Question]:
    """Read the questions in a file. Unless `answered` is set, gold answers may be missing.

    The gold answers are the answer and the validated answers, as text in the format of the official script (a date is
    "day month year"). Questions with only blank answers, of which DROP has a few, are skipped. Raises DatasetError,
    naming the entry, if the file is damaged.
    """
    return list(_drop_questions(parse_json(path, content), answered))


def write_drop(questions: Sequence[Question], answered: bool = True) -> bytes:
    """Write a file with one passage per run of questions about the same context.

    Unless `answered`, answers are blank.
    """
    passages: dict[str, Any] = {}
    for (id_, context), group in groupby(questions, lambda question: (question.context_id, question.context)):
        name = id_ if id_ not in passages else f"{id_}+{len(passages)}"
        passages[name] = {"passage": context, "qa_pairs": [_drop_pair(entry, answered) for entry in group]}
    return json.dumps(passages, ensure_ascii=False).encode()


def _drop_questions(document: JsonValue, answered: bool) -> Iterator[Question]:
    for name, passage in document.fields():
        context = passage.field("passage").text()
        for pair in passage.field("qa_pairs").elements():
            golds = _drop_golds(pair)
            if golds or not answered:
                id_ = pair.field("query_id").text()
                question = pair.field("question").text(blank=True)
                yield Question(id_, name, context, question, golds)


def _drop_golds(pair: JsonValue) -> tuple[Answer, ...]:
    """Return the answer and the validated answers, without repeats or blank answers."""
    more = []
    if pair.has("validated_answers"):
        more = pair.field("validated_answers").elements()
    golds = [_drop_gold(answer) for answer in (pair.field("answer"), *more)]
    return tuple(dict.fromkeys(gold for gold in golds if gold and gold[0]))


def _drop_gold(answer: JsonValue) -> Answer:
    """Return the spans of an answer: its number, else its spans, else its date. Empty if all are blank."""
    number = answer.field("number") if answer.has("number") else None
    if number is not None:
        is_number = isinstance(number.value, int | float) and not isinstance(number.value, bool)
        if is_number:
            text = str(number.value)
        else:
            text = number.text(blank=True).strip()
        if text:
            return (text,)
    spans = answer.field("spans").elements() if answer.has("spans") else []
    if spans:
        return tuple(span.text(blank=True).strip() for span in spans)
    if answer.has("date"):
        date = {}
        for name, part in answer.field("date").fields():
            if part.value is not None:
                date[name] = part.text(blank=True)
        return (" ".join(" ".join(date.get(part, "") for part in DATE).split()),)
    if not isinstance(answer.value, Mapping) or not {"number", "spans", "date"} & answer.value.keys():
        raise answer.error("an object with a number, spans or a date")
    return ()


def _drop_pair(question: Question, answered: bool) -> dict[str, Any]:
    if answered:
        answers = [_drop_answer(gold) for gold in question.golds]
    else:
        answers = [_drop_answer(())]
    return {
        "question": question.question,
        "answer": answers[0],
        "query_id": question.id,
        "validated_answers": answers[1:],
    }


def _drop_answer(gold: Answer) -> dict[str, Any]:
    number = ""
    if len(gold) == 1 and NUMBER.fullmatch(gold[0]):
        number = gold[0]
    return {"number": number, "date": dict.fromkeys(DATE, ""), "spans": [] if number else list(gold)}


@dataclass(frozen=True)
class Format:
    """The reader and writer of a file format, and the official names of both files."""

    rule: str
    train: str
    validation: str
    read: Callable[[Path, bytes], list[Question]]
    write: Callable[[Sequence[Question]], bytes]


FORMATS: Mapping[Scorer, Format] = {
    "squad": Format("squad v1.1 2", "train-v1.1.json", "dev-v1.1.json", read_squad, write_squad),
    "drop": Format("drop 2", "drop_dataset_train.json", "drop_dataset_dev.json", read_drop, write_drop),
}


@dataclass(frozen=True)
class QuestionFiles:
    """The bytes of both files, and their format."""

    form: Scorer
    paths: tuple[Path, Path]
    contents: tuple[bytes, bytes]

    def digest(self) -> str:
        return digest_of(FORMATS[self.form].rule, self.contents)

    def images(self) -> Images:
        raise DatasetError(f"{self.paths[0]} contains questions, not images")

    def questions(self) -> QuestionSet:
        """Read both files.

        Raises DatasetError if a file is damaged or empty, or if both contain the same id or context.
        """
        train, validation = (
            shuffle_contexts(_distinct_questions(path, FORMATS[self.form].read(path, content)))
            for path, content in zip(self.paths, self.contents, strict=True)
        )
        training_ids = {question.id for question in train}
        duplicate = next((question for question in validation if question.id in training_ids), None)
        if duplicate is not None:
            raise DatasetError(f"{' and '.join(map(str, self.paths))} both have the question {duplicate.id!r}")
        return QuestionSet(train, validation, self.form)


def question_source(form: Scorer, location: Path) -> Source | None:
    """Return the two files in a folder, by their official names, or `TRAIN.json,DEV.json`. None unless both exist.

    The second path is relative to the folder of the first.
    """
    paths = _locate_files(form, location)
    if not all(path.is_file() for path in paths):
        return None
    first, second = paths
    return Source(
        FORMATS[form].rule, paths, lambda: QuestionFiles(form, paths, (file_bytes(first), file_bytes(second)))
    )


def file_names(form: Scorer) -> str:
    """Return the official names of both files."""
    return f"{FORMATS[form].train} and {FORMATS[form].validation}"


def _locate_files(form: Scorer, location: Path) -> tuple[Path, Path]:
    if location.is_dir() or "," not in str(location):
        return location / FORMATS[form].train, location / FORMATS[form].validation
    train, validation = str(location).rsplit(",", 1)
    return Path(train), Path(train).parent / validation


def _distinct_questions(path: Path, questions: list[Question]) -> list[Question]:
    """Remove repeated questions. Raises DatasetError if different questions have the same id."""
    by_id: dict[str, Question] = {}
    for question in questions:
        if by_id.setdefault(question.id, question) != question:
            raise DatasetError(f"{path} has several questions with the id {question.id!r}; ids must differ")
    if not by_id:
        raise DatasetError(f"{path} has no questions")
    return list(by_id.values())
