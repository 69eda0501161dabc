"""The models that are fine-tuned and asked, or the answers of a system that was trained elsewhere."""

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
    """The answers (ANSWERS) of one model: a link of its training, or all of them.

    `is_last` is true if the model is asked after its last epoch.
    """

    replicate: int
    job: Job
    is_last: bool = True


@dataclass(frozen=True)
class Trainings:
    """What is asked, and all answers, replicate by replicate, the links of each in turn."""

    question: Answers
    answers: tuple[AnswersJob, ...]


def trainings(question: Answers, seed: int) -> Trainings:
    """What is trained and asked. Raises ValueError, before any work, if the data or given answers cannot be used."""
    asked_questions(question, seed)
    match question.system:
        case Trained() as system:
            return Trainings(question, tuple(_answers_jobs(question, system, seed)))
        case Given() as system:
            return Trainings(question, (AnswersJob(0, read_predictions(question, system, seed)),))


def read_predictions(question: Answers, system: Given, seed: int) -> Job:
    """The given answers, blinded or by the ids that questions have in the data.

    Raises ValueError if there are none yet, or if a question that is asked has none. Files that have been removed since
    they were pinned pass, since stored results of the run remain readable.
    """
    if system.given is None:
        raise ValueError("given is empty; hand out the questions with engram probes, then pass given=FILE")
    if system.is_blinded:
        blinded = ReadBlindedAnswers(system.given, blind_questions(question, system, seed))
        with suppress(FileError):
            blinded_questions.unblind_answers(blinded)
        return Job(read_blinded_answers, blinded)
    with suppress(FileError):
        answers_table(system.given, load_questions(question.data), question.selection)
    return Job(read_answers, ReadAnswers(question.data, system.given, question.selection))


def load_parts(question: Answers, seed: int) -> QuestionSet:
    """The questions in the parts in which they are trained on and held out."""
    questions, drawn_from = load_questions(question.data), _split_seed(question.system, seed)
    return questions if drawn_from is None else redrawn(questions, drawn_from)


AskedQuestions = Mapping[Split, Sequence[Question]]


def asked_questions(question: Answers, seed: int) -> AskedQuestions:
    """The questions that are asked, by part."""
    return question.selection.select(load_parts(question, seed))


def blind_questions(question: Answers, system: Given, seed: int) -> Blinding:
    """How the questions are handed out to an owner who answers them."""
    return Blinding(question.data, question.selection, question.corruption, system.order(seed))


def _split_seed(system: Trained | Given, seed: int) -> int | None:
    """The seed that assigns contexts to parts; None if the parts are those of the data set."""
    if isinstance(system, Trained) and system.split == "drawn":
        return seeds.derive(seed, "parts")
    return None


def _answers_jobs(question: Answers, system: Trained, seed: int) -> Iterator[AnswersJob]:
    """The links of every replicate, each of which answers after its own epochs."""
    for replicate in range(system.replicates):
        tuning = fine_tuning_config(question, system, seed, replicate)
        for job in chain(fine_tune, tuning, system.tuning.link, part=up_to):
            yield AnswersJob(replicate, job, job.config.epochs == tuning.epochs)


def fine_tuning_config(question: Answers, system: Trained, seed: int, replicate: int) -> FineTuning:
    """One fine-tuning, up to its last epoch."""
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
