"""Model pairs: both models are fine-tuned on the same texts, and each secret is in the texts of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.continuations import score_secret_ends
from tasks.audits.text.programs import train_on_texts
from tasks.audits.text.question import Scoring, Secrets
from tasks.audits.text.secrets.space import Repetitions, Secret, draw_secrets, score_table, secret_surroundings
from tasks.audits.text.tuning import TextTuning
from tasks.contract.extras import Extra
from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.ranges import Ranged, Share
from tasks.datasets.catalog import load_texts
from tasks.datasets.dataset import Dataset
from tasks.language_models.fine_tuning_config import Adaptation, Relation, adaptation_extras
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.token_operations import (
    SHARED,
    known,
    mean_tokens,
    reading_operations,
    training_bytes,
    training_operations,
)
from tasks.numerics import seeds
from tasks.numerics.precision import Precision
from tasks.programs.config import Program, without_resources
from tasks.programs.data_writer import check_writable
from tasks.training.recipe import Privacy
from tasks.worker import hardware

if TYPE_CHECKING:
    from tasks.language_models.sequence_model import SequenceModel


@dataclass(frozen=True)
class PairModel(Ranged):
    """One model of a pair. The seed `draw` determines the secrets and their references for both sides, 0 and 1."""

    data: Dataset
    model: LanguageModel
    pattern: str
    secrets: int
    repetitions: Repetitions
    references: int
    is_null: bool
    pair: int
    side: int
    draw: int
    examples: int
    adaptation: Adaptation
    rank: int
    seed: int
    epochs: int
    batch: int
    accumulate: int
    learning_rate: float
    dropout: Annotated[float, Share(one=False)]
    length: int
    deduplicate: bool = False
    privacy: Privacy | None = None
    precision: Precision = "float32"
    checkpointing: bool = False
    extraction: bool = False
    scoring: Scoring = "whole"

    relation: ClassVar[Relation] = "kept"
    answer_length: ClassVar[int] = 1  # the begin token

    def extras(self) -> tuple[Extra, ...]:
        return adaptation_extras(self.adaptation)

    @property
    def asked(self) -> tuple[int, ...]:
        return (self.epochs,)


def secret_jobs(question: Secrets, seed: int) -> tuple[Job, ...]:
    """Return the scoring jobs of both models of each pair."""
    load_texts(question.data, question.examples)
    program = question.tuning
    if isinstance(program, Program):
        check_writable(program, "texts")
    models = []
    for pair in range(question.pairs):
        for side in range(2):
            models.append(pair_model(question, seed, pair, side))
    if isinstance(program, Program):
        by_program = [ProgramPairModel(without_resources(program), model) for model in models]
        return tuple(Job(score_secrets_by_program, model, resources=program.resources) for model in by_program)
    return tuple(Job(score_secrets, model) for model in models)


def pair_model(question: Secrets, seed: int, pair: int, side: int) -> PairModel:
    return PairModel(
        data=question.data,
        model=question.reading.model,
        pattern=question.pattern,
        secrets=question.secrets,
        repetitions=question.repetitions,
        references=question.references,
        is_null=question.is_null,
        pair=pair,
        side=side,
        draw=seeds.derive(seed, "secrets", pair),
        examples=question.examples,
        scoring=question.scoring,
        seed=seeds.derive(seed, "training", pair),
        extraction=question.extraction is not None,
        length=question.reading.length,
        **(TextTuning() if isinstance(question.tuning, Program) else question.tuning).job_fields,
    )


def training_texts(config: PairModel, secrets: Sequence[Secret]) -> list[str]:
    """Return the training texts: those of the data set, and the repeated secrets assigned to the model's side."""
    secret_texts = []
    for secret in secrets:
        if secret.side == config.side:
            for _ in range(secret.repetitions):
                secret_texts.append(secret.training_text)
    texts = [*load_texts(config.data, config.examples), *secret_texts]
    return list(dict.fromkeys(texts)) if config.deduplicate else texts


def work(config: PairModel) -> Work:
    """Return the amount of work for training and scoring."""
    text_epochs = len(load_texts(config.data, config.examples)) * config.epochs
    candidate_count = config.secrets * (config.references + 1)
    telling = f"tell {config.model.name}"
    scoring = f"score {config.model.name}"
    tokens = mean_tokens(config.model, load_texts(config.data, config.examples), config.length)
    return Work(
        {telling: text_epochs},
        {scoring: candidate_count},
        operations=known(
            {
                telling: training_operations(config, 0.0, tokens),
                scoring: reading_operations(config, tokens / SHARED, config.precision),
            }
        ),
        device_bytes=training_bytes(config, 0, config.length),
    )


def batch_key(config: PairModel) -> PairModel:
    """Return the settings shared by training runs that are computed in one call: all except pair, side and seeds."""
    return replace(config, pair=0, side=0, draw=0, seed=0)


@task(version=2, name="text.score_secrets", gpus=1.0, batch_key=batch_key, trains=1, work=work, spreads=True)
def score_secrets(config: PairModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - no input tables
    """Fine-tune the model and score the text of each secret and of its references (SCORES).

    If `extraction` is set, also score the secret as a continuation (`tasks.audits.text.continuations`).
    """
    from tasks.language_models.fine_tuning import fine_tuned_on

    device = hardware.device()
    secrets = draw_secrets(config)
    texts = training_texts(config, secrets)
    with hardware.exactly(device), fine_tuned_on(config, texts, device) as model:
        return ask_secrets(config, model, secrets)


@dataclass(frozen=True)
class ProgramPairModel(Ranged):
    """One model of a pair that a user's program trains.

    `model` determines the secrets, the texts and the seed, and how a returned model reads texts. Its other settings are
    not used.
    """

    program: Program
    model: PairModel


def _program_work(config: ProgramPairModel) -> Work:
    """Return the work: one training of this program, whose duration only a run can tell."""
    return Work({f"train with {config.program.name}": 1.0})


@task(version=1, name="text.score_secrets_by_program", trains=1, work=_program_work)
def score_secrets_by_program(config: ProgramPairModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - no input tables
    """Train with the program and score the text of each secret and of its references (SCORES)."""
    pair = config.model
    secrets = draw_secrets(pair)
    asked = [text for secret in secrets for text in (secret.text, *secret.references)]

    def read_model(model: LanguageModel) -> pa.Table:
        from tasks.language_models.fine_tuning import model_as_it_is

        asked_pair = replace(pair, model=model)
        device = hardware.device()
        with hardware.exactly(device), model_as_it_is(asked_pair, device) as opened:
            return ask_secrets(asked_pair, opened, secrets)

    def read_log_p(log_p: NDArray[np.float64]) -> pa.Table:
        values = iter(log_p.tolist())
        scores = [[next(values) for _ in range(1 + len(secret.references))] for secret in secrets]
        return score_table(secrets, scores, pair.side, pair.pair)

    return train_on_texts(config.program, pair.seed, training_texts(pair, secrets), asked, read_model, read_log_p)


def ask_secrets(config: PairModel, model: SequenceModel, secrets: Sequence[Secret]) -> pa.Table:
    """Score these secrets with the model (SCORES)."""
    from tasks.language_models.training import score_candidates, score_texts

    candidates_by_secret = [(secret.text, *secret.references) for secret in secrets]
    if config.scoring == "shared":
        scores = []
        for candidates in candidates_by_secret:
            scores.append(score_candidates(config, model, candidates).tolist())
    else:
        log_p = iter(
            score_texts(config, model, [text for candidates in candidates_by_secret for text in candidates]).tolist()
        )
        scores = [[next(log_p) for _ in candidates] for candidates in candidates_by_secret]
    ends = None
    if config.extraction:
        ends = score_secret_ends(config, model, candidates_by_secret, secret_surroundings(config))
    return score_table(secrets, scores, config.side, config.pair, ends)
