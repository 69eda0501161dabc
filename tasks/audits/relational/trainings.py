"""The models that are fine-tuned and asked, or the predictions of one that was trained elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tasks.audits.relational.config import Relational
from tasks.contract.job import Job
from tasks.datasets.catalog import load_questions
from tasks.datasets.questions.question import Question, QuestionSet, redrawn
from tasks.external import blinded_questions
from tasks.external.blinded_questions import ReadBlindedAnswers, read_blinded_answers
from tasks.language_models.fine_tuning import fine_tune
from tasks.language_models.fine_tuning_config import FineTuning, up_to
from tasks.numerics import seeds
from tasks.question_answering.predictions import Predictions, ReadAnswers, answers_table, read_answers
from tasks.question_answering.question_sets import Split
from tasks.training.chains import chain
from tasks.worker.files import FileError


@dataclass(frozen=True)
class AnswersJob:
    """The answers (ANSWERS) of one model: a link of its training, or all of them."""

    replicate: int
    job: Job

    def ends_at(self, epoch: int | None) -> bool:
        """Whether these are the answers after this epoch; None: of a model whose training is not known."""
        return epoch is None or self.job.config.epochs == epoch


@dataclass(frozen=True)
class Trainings:
    """All answers, replicate by replicate, each link's in turn; none where no model is asked."""

    answers: tuple[AnswersJob, ...]


def trainings(config: Relational) -> Trainings:
    """What is trained and asked; ValueError, before anything is, where the data or the predictions cannot be used."""
    if not config.asks:
        return Trainings(())
    check_data(config)
    if config.given is not None:
        return Trainings((AnswersJob(0, predictions_job(config, config.given)),))
    return Trainings(tuple(answers_jobs(config)))


def check_data(config: Relational) -> None:
    """ValueError where there are not so many questions, or predictions lack some of those that are asked.

    Predictions that have gone since they were pinned pass, since what is stored of the run can still be looked at.
    """
    questions = load_parts(config)
    config.selection.select(questions)
    if config.given is not None:
        with suppress(FileError):
            if config.given.is_blinded:
                blinded_questions.unblind_answers(ReadBlindedAnswers(config.given, config.blinding))
            else:
                answers_table(config.given, questions, config.selection)


def load_parts(config: Relational) -> QuestionSet:
    """The questions in the parts in which they are trained on and held out."""
    questions, seed = load_questions(config.data), split_seed(config)
    return questions if seed is None else redrawn(questions, seed)


AskedQuestions = Mapping[Split, Sequence[Question]]


def asked_questions(config: Relational) -> AskedQuestions:
    """The questions that are asked, by part."""
    return config.selection.select(load_parts(config))


def predictions_job(config: Relational, given: Predictions) -> Job:
    """The answers that were sent, blinded or by the ids that questions have in the data."""
    if given.is_blinded:
        return Job(read_blinded_answers, ReadBlindedAnswers(given, config.blinding))
    return Job(read_answers, ReadAnswers(config.data, given, config.selection))


def split_seed(config: Relational) -> int | None:
    """The seed by which contexts are parted; None where they are as the data set has them."""
    return seeds.derive(config.seed, "parts") if config.split == "drawn" else None


def answers_jobs(config: Relational) -> Iterator[AnswersJob]:
    """The links of every replicate, each of which answers at its own epochs."""
    for replicate in range(config.replicates):
        for job in chain(fine_tune, fine_tuning_config(config, replicate), config.link, part=up_to):
            yield AnswersJob(replicate, job)


def fine_tuning_config(config: Relational, replicate: int) -> FineTuning:
    """One fine-tuning, up to its last epoch."""
    return FineTuning(
        data=config.data,
        model=config.model,
        corruption=config.corruption,
        examples=config.examples,
        held_out=config.held_out,
        parts=split_seed(config),
        numeric=config.numeric,
        relation=config.relation,
        adaptation=config.adaptation,
        rank=config.rank,
        seed=seeds.derive(config.seed, "training", replicate),
        epochs=config.epochs,
        batch=config.batch,
        accumulate=config.accumulate,
        learning_rate=config.learning_rate,
        dropout=config.dropout,
        length=config.length,
        answer_length=config.answer_length,
        recorded=config.recorded,
        privacy=config.privacy,
    )
