"""Answers of models fine-tuned by the audit, or of an externally trained system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tasks.audits.relational.config import Answers, Given, Trained
from tasks.contract.job import Job
from tasks.datasets.catalog import load_questions
from tasks.datasets.questions.question import Question, QuestionSet, redrawn
from tasks.external import blinded_questions
from tasks.external.blinded_questions import Blinding, ReadBlindedAnswers, read_blinded_answers
from tasks.language_models.fine_tuning import fine_tune
from tasks.language_models.fine_tuning_config import FineTuning, up_to
from tasks.numerics import seeds
from tasks.question_answering.predictions import ReadAnswers, answers_table, read_answers
from tasks.question_answering.question_sets import Split
from tasks.training.chains import chain
from tasks.worker.files import FileError


@dataclass(frozen=True)
class AnswersJob:
    """The answers (ANSWERS) of one model, from one link of its training or from the whole training.

    `is_last` is True if they include the answers after the last epoch.
    """

    replicate: int
    job: Job
    is_last: bool = True


@dataclass(frozen=True)
class Trainings:
    """The question, and all answers, by replicate and link."""

    question: Answers
    answers: tuple[AnswersJob, ...]


def trainings(question: Answers, seed: int) -> Trainings:
    """Plan the training runs and their answers. Raises ValueError if the data or the returned answers are unusable."""
    asked_questions(question, seed)
    match question.system:
        case Trained() as system:
            return Trainings(question, tuple(_answers_jobs(question, system, seed)))
        case Given() as system:
            return Trainings(question, (AnswersJob(0, read_predictions(question, system, seed)),))


def read_predictions(question: Answers, system: Given, seed: int) -> Job:
    """Plan the reading of returned answers, which are matched by blinded question or by data-set id.

    Raises ValueError if answers are missing. Files that were removed after they were pinned are not checked, so that
    stored results stay readable.
    """
    if system.predictions is None:
        raise ValueError(
            "predictions: expected a file of answers, got none. Hand out the questions with engram probes, then pass "
            "predictions=FILE."
        )
    if system.is_blinded:
        blinded = ReadBlindedAnswers(system.predictions, blind_questions(question, system, seed))
        with suppress(FileError):
            blinded_questions.unblind_answers(blinded)
        return Job(read_blinded_answers, blinded)
    with suppress(FileError):
        answers_table(system.predictions, load_questions(question.data), question.selection)
    return Job(read_answers, ReadAnswers(question.data, system.predictions, question.selection))


def load_parts(question: Answers, seed: int) -> QuestionSet:
    """Load the questions, split into training and held-out parts."""
    questions = load_questions(question.data)
    drawn_from = _split_seed(question.system, seed)
    if drawn_from is None:
        return questions
    return redrawn(questions, drawn_from)


AskedQuestions = Mapping[Split, Sequence[Question]]


def asked_questions(question: Answers, seed: int) -> AskedQuestions:
    """Return the selected questions of each part."""
    return question.selection.select(load_parts(question, seed))


def blind_questions(question: Answers, system: Given, seed: int) -> Blinding:
    """Return how the questions are blinded for the system's owner."""
    return Blinding(question.data, question.selection, question.corruption, system.order(seed))


def _split_seed(system: Trained | Given, seed: int) -> int | None:
    """Return the seed that assigns contexts to parts, or None to use the parts of the data set."""
    if isinstance(system, Trained) and system.split == "drawn":
        return seeds.derive(seed, "parts")
    return None


def _answers_jobs(question: Answers, system: Trained, seed: int) -> Iterator[AnswersJob]:
    """Yield the links of every replicate. Each link contributes the answers after its own epochs."""
    for replicate in range(system.replicates):
        tuning = fine_tuning_config(question, system, seed, replicate)
        for job in chain(fine_tune, tuning, system.tuning.link, part=up_to):
            yield AnswersJob(replicate, job, job.config.epochs == tuning.epochs)


def fine_tuning_config(question: Answers, system: Trained, seed: int, replicate: int) -> FineTuning:
    """Return the configuration of one fine-tuning run."""
    return FineTuning(
        data=question.data,
        model=system.reading.model,
        corruption=question.corruption,
        examples=question.examples,
        held_out=question.held_out,
        parts=_split_seed(system, seed),
        numeric=question.numeric,
        relation=system.relation,
        seed=seeds.derive(seed, "training", replicate),
        length=system.reading.length,
        answer_length=system.answer_length,
        recorded=system.recorded,
        **system.tuning.job_fields,
    )
