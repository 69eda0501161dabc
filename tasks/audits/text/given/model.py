"""Scores of texts by a given language model: identifiers or planted secrets, with their references.

Either the audit evaluates the model, or the model's owner evaluates it and returns a table: every text is exported
under an opaque id in random order, a tenth of them twice (`tasks.external.blinding`), and returned with its
log-probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.continuations import score_secret_ends
from tasks.audits.text.given.table import handout_order, read_log_p
from tasks.audits.text.question import (
    AskedModel,
    Identifiers,
    OwnerQuestion,
    Planted,
    RankingModel,
    ReturnedTable,
    Scoring,
    TextComparison,
)
from tasks.audits.text.secrets.space import (
    Identifier,
    Repetitions,
    add_ends,
    candidates,
    control_p_value,
    draw_secrets,
    find_identifiers,
    score_table,
    secret_surroundings,
    space_of,
)
from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.ranges import Ranged
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load_texts
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.external.audit_inputs import FEWEST
from tasks.language_models.fine_tuning_config import Precision
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.token_operations import (
    SHARED,
    known,
    mean_tokens,
    reading_operations,
)
from tasks.numerics import seeds
from tasks.worker import hardware
from tasks.worker.files import File, FileError

IDENTIFIER_SCORES = pa.schema(
    [
        ("format", pa.string()),
        ("row", pa.int64()),  # index of the text with its first occurrence
        ("occurrences", pa.int64()),  # number of occurrences in all texts
        ("control", pa.float64()),  # p-value of the test of uniform randomness; the same in all rows
        ("log_p", pa.list_(pa.float64())),  # of the identifier in its context, then of each reference there, in nats
    ]
)


GUESSABLE = (
    "Warning: the seed determines the tested texts, so an owner can identify them by trying seeds. Set "
    "secret=$(openssl rand -hex 16) here and in the run, and keep it secret."
)
PLANTED = 1  # the side whose secrets are inserted into the training data
NOWHERE = -1  # a side that has no secrets


@dataclass(frozen=True)
class GivenLanguageModel(Ranged):
    """A given language model and the tested identifiers.

    At most `identifiers` of the identifiers in the texts are tested, drawn by `seed`. `outputs` is the table returned
    by the model's owner, if the audit does not evaluate the model.
    """

    data: Dataset
    model: LanguageModel
    formats: tuple[str, ...]
    identifiers: int
    references: int
    is_null: bool
    context: int
    examples: int
    seed: int
    length: int
    outputs: File | None = None
    precision: Precision = "float32"
    extraction: bool = False
    scoring: Scoring = "whole"

    answer_length: ClassVar[int] = 1  # the begin token


@dataclass(frozen=True)
class PlantedModel(Ranged):
    """A given language model whose training data contain secrets of `pattern`. A coin selected these secrets."""

    model: LanguageModel
    pattern: str
    secrets: int
    repetitions: Repetitions
    references: int
    is_null: bool
    draw: int
    seed: int
    length: int
    precision: Precision
    planted: bool = True  # False for the base, whose training data contain no secret
    outputs: File | None = None
    extraction: bool = False
    scoring: Scoring = "whole"

    answer_length: ClassVar[int] = 1  # the begin token


@dataclass(frozen=True)
class ComparedTexts(Ranged):
    """A given model and two sets of texts. `seed` is the seed of the blind control."""

    data: Dataset
    comparison_texts: Dataset
    model: LanguageModel
    examples: int
    length: int
    seed: int
    precision: Precision
    outputs: File | None = None

    answer_length: ClassVar[int] = 1  # the begin token


GivenQuestion = GivenLanguageModel | PlantedModel | ComparedTexts


def given_question(config: Text) -> GivenQuestion:
    """Return the texts that a given model or its owner scores. Raises ValueError for other questions."""
    match config.question:
        case Identifiers() as question:
            return _identifier_question(question, config.seed)
        case Planted() as question:
            return planted_question(question, config.seed)
        case TextComparison() as question:
            return compared_texts(question, config.seed)
    raise ValueError(
        f"question: expected identifiers, planted or comparison, got {config.question.tag}. The audit evaluates its "
        "own models for this question, so there are no texts to export."
    )


def _source_fields(source: AskedModel | ReturnedTable) -> dict[str, Any]:
    """Return the job fields that describe how texts are read. For a returned table, these are the defaults."""
    reading = AskedModel() if isinstance(source, ReturnedTable) else source
    return {
        "model": reading.model,
        "length": reading.length,
        "precision": reading.precision,
        "outputs": source.outputs if isinstance(source, ReturnedTable) else None,
    }


def _ranking_fields(source: RankingModel | ReturnedTable) -> dict[str, Any]:
    """Return the same fields, plus those for ranked candidates."""
    if isinstance(source, ReturnedTable):
        ranking = RankingModel()
    else:
        ranking = source
    return {**_source_fields(source), "scoring": ranking.scoring, "extraction": ranking.extraction is not None}


def check_returned(config: Text) -> None:
    """Raise ValueError if the returned table is invalid, before anything is computed.

    A table that was deleted after it was pinned is not checked, so that stored results remain readable.
    """
    if isinstance(config.question, OwnerQuestion) and config.outputs is not None:
        question = given_question(config)
        with suppress(FileError):
            read_log_p(config.outputs, handout_order(questions(question), question.seed))


def compared_texts(question: TextComparison, seed: int) -> ComparedTexts:
    return ComparedTexts(
        data=question.data,
        comparison_texts=question.comparison_texts,
        examples=question.examples,
        seed=question.derive_seed(seed, "blind control"),
        **_source_fields(question.source),
    )


def both_sets(config: ComparedTexts) -> tuple[Sequence[str], Sequence[str]]:
    """Return both sets without exact copies.

    Raises DatasetError if a set is too small, or if both sets contain the same text.
    """
    loaded = load_texts(config.data, config.examples), load_texts(config.comparison_texts)
    sets = tuple(tuple(dict.fromkeys(texts)) for texts in loaded)
    for data, texts in zip((config.data, config.comparison_texts), sets, strict=True):
        if len(texts) < FEWEST:
            raise DatasetError(f"{data.name}: expected at least {FEWEST} texts, got {len(texts)}. Give more texts.")
    shared_count = len(set(sets[0]) & set(sets[1]))
    if shared_count:
        raise DatasetError(
            f"comparison_texts: expected texts that are not in {config.data.name}, got {shared_count} that are. "
            "Remove them."
        )
    return sets[0], sets[1]


def planted_question(question: Planted, seed: int) -> PlantedModel:
    return PlantedModel(
        pattern=question.pattern,
        secrets=question.secrets,
        repetitions=question.repetitions,
        references=question.references,
        is_null=question.is_null,
        draw=question.derive_seed(seed, "secrets") if question.secret else seeds.derive(seed, "secrets", 0),
        seed=question.derive_seed(seed, "handed out"),
        **_ranking_fields(question.source),
    )


def planted_jobs(question: Planted, seed: int) -> tuple[Job, ...]:
    """Return the scoring jobs (SCORES) of the given model and, if it has one, of its base."""
    model = planted_question(question, seed)
    first = Job(score_planted, model)
    if question.base is None:
        return (first,)
    return first, Job(score_planted, replace(model, model=question.base, planted=False))


def identifier_jobs(question: Identifiers, seed: int) -> tuple[Job, ...]:
    """Return the scoring jobs of the given model and, if it has one, of its base.

    Raises DatasetError if the texts contain no identifier in these formats.
    """
    _required_identifiers(load_texts(question.data, question.examples), question.data, question.identifiers)
    model = _identifier_question(question, seed)
    first = Job(score_identifiers, model)
    if question.base is None:
        return (first,)
    return first, Job(score_identifiers, replace(model, model=question.base))


def _required_identifiers(texts: Sequence[str], data: Dataset, formats: tuple[str, ...]) -> list[Identifier]:
    """Find the identifiers with these formats in the texts of `data`. Raises DatasetError if there are none."""
    identifiers = find_identifiers(texts, formats)
    if not identifiers:
        raise DatasetError(
            f"identifiers: expected formats that occur in {data.name}, got {', '.join(formats)}. Give other formats."
        )
    return identifiers


def _identifier_question(question: Identifiers, seed: int) -> GivenLanguageModel:
    return GivenLanguageModel(
        data=question.data,
        formats=question.identifiers,
        identifiers=question.secrets,
        references=question.references,
        is_null=question.is_null,
        context=question.context,
        examples=question.examples,
        seed=question.derive_seed(seed, "identifiers"),
        **_ranking_fields(question.source),
    )


def _choose_identifiers(config: GivenLanguageModel, identifiers: list[Identifier]) -> list[Identifier]:
    """Draw the tested identifiers."""
    order = seeds.generator(config.seed, "choice").permutation(len(identifiers))[: config.identifiers]
    return [identifiers[index] for index in sorted(order.tolist())]


def candidate_texts(config: GivenLanguageModel, identifier: Identifier, text: str) -> list[str]:
    """Return the context with the identifier, and with each reference. A control run replaces the identifier."""
    space = space_of(identifier.format)
    chance = seeds.generator(config.seed, "references", identifier.format, identifier.random_characters)
    replacement_stream = seeds.generator(config.seed, "other", identifier.format, identifier.random_characters)
    if not config.is_null:
        first = identifier.random_characters
    else:
        first = space.draw(replacement_stream)
    before = _context_before(config, identifier, text)
    texts = []
    for candidate in candidates(space, first, config.references, chance):
        texts.append(before + space.write(0, candidate))
    return texts


def _context_before(config: GivenLanguageModel, identifier: Identifier, text: str) -> str:
    return text[max(0, identifier.start - config.context) : identifier.start]


def question_surroundings(config: GivenLanguageModel | PlantedModel) -> list[tuple[str, str]]:
    """Return the text before and after the random part, for each identifier or secret."""
    if isinstance(config, PlantedModel):
        return secret_surroundings(config)
    texts = load_texts(config.data, config.examples)
    around = []
    for identifier in _choose_identifiers(config, find_identifiers(texts, config.formats)):
        before, after = space_of(identifier.format).surroundings(0)
        around.append((_context_before(config, identifier, texts[identifier.row]) + before, after))
    return around


def questions(config: GivenQuestion) -> list[Sequence[str]]:
    """Return the texts to score for each identifier or secret: the item itself first, then its references.

    For compared texts, returns both sets, each as one question.
    """
    if isinstance(config, ComparedTexts):
        return list(both_sets(config))
    if isinstance(config, PlantedModel):
        return [(secret.text, *secret.references) for secret in draw_secrets(config)]
    texts = load_texts(config.data, config.examples)
    identifiers = _choose_identifiers(config, _required_identifiers(texts, config.data, config.formats))
    return [candidate_texts(config, identifier, texts[identifier.row]) for identifier in identifiers]


def planted_texts(config: GivenQuestion) -> pa.Table | None:
    """Return the secrets to insert into the training data, with repetition counts, or None for other questions."""
    if not isinstance(config, PlantedModel):
        return None
    planted = [secret for secret in draw_secrets(config) if secret.side == PLANTED]
    return pa.table(
        {
            "secret": [secret.number for secret in planted],
            "repetitions": [secret.repetitions for secret in planted],
            "text": [secret.training_text for secret in planted],
        }
    )


def work(config: GivenLanguageModel) -> Work:
    """Return the amount of work for scoring."""
    if config.outputs is not None:
        return Work()
    texts = load_texts(config.data, config.examples)
    shared = [text[: config.context] for text in texts]
    return scoring_work(config, shared, config.identifiers * (config.references + 1), SHARED)


def scoring_work(config: GivenQuestion, texts: Sequence[str], count: int, shared: float = 1.0) -> Work:
    """Return the work of scoring `count` texts like these, of which each reads one token in `shared` anew."""
    scoring = f"score {config.model.name}"
    tokens = mean_tokens(config.model, texts, config.length) / shared
    counted = reading_operations(config, tokens, config.precision)
    return Work({}, {scoring: count}, operations=known({scoring: counted}))


def _planted_work(config: PlantedModel) -> Work:
    """Return the amount of work for scoring."""
    if config.outputs is not None:
        return Work()
    texts = [secret.text for secret in draw_secrets(config)]
    return scoring_work(config, texts, config.secrets * (config.references + 1), SHARED)


@task(version=2, name="text.score_identifiers", gpus=1.0, work=work)
def score_identifiers(config: GivenLanguageModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Score each identifier and its references in context (IDENTIFIER_SCORES)."""
    all_identifiers = find_identifiers(load_texts(config.data, config.examples), config.formats)
    control = control_p_value(all_identifiers, config.formats, config.seed)
    scores, ends = _score_questions(config)
    identifiers = _choose_identifiers(config, all_identifiers)
    table = make_table(
        IDENTIFIER_SCORES,
        format=[identifier.format for identifier in identifiers],
        row=[identifier.row for identifier in identifiers],
        occurrences=[identifier.occurrences for identifier in identifiers],
        control=control,
        log_p=scores,
    )
    return add_ends(table, ends)


@task(version=2, name="text.score_planted", gpus=1.0, work=_planted_work)
def score_planted(config: PlantedModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Score the text of each secret and of its references with the given model (SCORES)."""
    scores, ends = _score_questions(config)
    return score_table(draw_secrets(config), scores, PLANTED if config.planted else NOWHERE, ends=ends)


def _score_questions(
    config: GivenLanguageModel | PlantedModel,
) -> tuple[list[list[float]], dict[str, list[float | None]] | None]:
    """Return log p of the candidates of each question, from the model or from a returned table.

    The second value contains the columns of continuations. It is None if the model does not continue the texts.
    """
    candidates_by_question = questions(config)
    if config.outputs is not None:
        log_p = iter(read_log_p(config.outputs, handout_order(candidates_by_question, config.seed)).log_p.tolist())
        return [[next(log_p) for _ in candidate_group] for candidate_group in candidates_by_question], None
    from tasks.language_models.fine_tuning import model_as_it_is
    from tasks.language_models.training import encode_texts, score_candidates, score_texts

    device = hardware.device()
    scores = list[list[float]]()
    score = score_candidates if config.scoring == "shared" else score_texts
    with hardware.exactly(device), model_as_it_is(config, device) as model:
        for candidate_group in candidates_by_question:
            if max(encode_texts(config, model, candidate_group).lengths) >= config.length:
                raise ValueError(
                    f"length: expected more than the tokens of every text, got {config.length}. Raise length, or lower "
                    "context."
                )
            scores.append(score(config, model, candidate_group).tolist())
        if not config.extraction:
            return scores, None
        return scores, score_secret_ends(config, model, candidates_by_question, question_surroundings(config))
