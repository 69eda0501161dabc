"""A language model as it is, asked how probable texts are: identifiers or planted secrets, each beside its references.

The model is asked here, or its owner asks it and returns a table: every text is handed out under an opaque id, in an
order that says nothing, a tenth of them twice (`tasks.external.blinding`), and comes back with its log probability.
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
    OtherTexts,
    OwnerQuestion,
    Planted,
    RankingModel,
    ReturnedTable,
    Scoring,
)
from tasks.audits.text.secrets.space import (
    Identifier,
    Repetitions,
    Told,
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
from tasks.numerics import seeds
from tasks.worker import hardware
from tasks.worker.files import File, FileError

IDENTIFIER_SCORES = pa.schema(
    [
        ("format", pa.string()),
        ("row", pa.int64()),  # of the text in which it stands first
        ("occurrences", pa.int64()),  # in all texts
        ("control", pa.float64()),  # p that those found are drawn evenly: the same in each row
        ("log_p", pa.list_(pa.float64())),  # of what stands before it and itself, and with each reference, in nats
    ]
)


GUESSABLE = (
    "Warning: which texts matter follows from the run's seed, and an owner who tries seeds can tell them apart: set "
    "secret=$(openssl rand -hex 16) here and in the run, and keep it."
)
PLANTED, NOWHERE = 1, -1  # the side of a coin whose secrets are put into the training data; none has the other


@dataclass(frozen=True)
class GivenLanguageModel(Ranged):
    """A language model and the identifiers that it is asked about: at most so many of those found, drawn by `seed`.

    With `outputs` it is the table that the model's owner returned.
    """

    data: Dataset
    model: LanguageModel
    formats: tuple[str, ...]
    identifiers: int
    references: int
    told: Told
    context: int
    examples: int
    seed: int
    length: int
    outputs: File | None = None
    precision: Precision = "float32"
    extraction: bool = False
    scoring: Scoring = "whole"

    answer_length: ClassVar[int] = 1  # the token before a text


@dataclass(frozen=True)
class PlantedModel(Ranged):
    """A language model into whose training data secrets of `pattern` were put beforehand, those of a coin."""

    model: LanguageModel
    pattern: str
    secrets: int
    repetitions: Repetitions
    references: int
    told: Told
    draw: int
    seed: int
    length: int
    precision: Precision
    planted: bool = True  # none of them in the base's training data
    outputs: File | None = None
    extraction: bool = False
    scoring: Scoring = "whole"

    answer_length: ClassVar[int] = 1  # the token before a text


@dataclass(frozen=True)
class ComparedTexts(Ranged):
    """A model as it is, and the two sets of texts that it is asked about; `seed` is of the blind control."""

    data: Dataset
    others: Dataset
    model: LanguageModel
    examples: int
    length: int
    seed: int
    precision: Precision
    outputs: File | None = None

    answer_length: ClassVar[int] = 1  # the token before a text


GivenQuestion = GivenLanguageModel | PlantedModel | ComparedTexts


def given_question(config: Text) -> GivenQuestion:
    """What a given model is asked, also by its owner; ValueError if nothing can be handed out."""
    match config.question:
        case Identifiers() as question:
            return _identifier_question(question, config.seed)
        case Planted() as question:
            return planted_question(question, config.seed)
        case OtherTexts() as question:
            return compared_texts(question, config.seed)
    raise ValueError(
        f"nothing is handed out with question={config.question.tag}; give question=identifiers, question=planted or "
        "question=others"
    )


def _source_fields(source: AskedModel | ReturnedTable) -> dict[str, Any]:
    """The fields of a job that say how texts are read; for a table, which its owner's model read, their defaults."""
    reading = AskedModel() if isinstance(source, ReturnedTable) else source
    return {
        "model": reading.model,
        "length": reading.length,
        "precision": reading.precision,
        "outputs": source.outputs if isinstance(source, ReturnedTable) else None,
    }


def _ranking_fields(source: RankingModel | ReturnedTable) -> dict[str, Any]:
    """The same of a question whose candidates are ranked, which a model may be asked to continue, too."""
    ranking = RankingModel() if isinstance(source, ReturnedTable) else source
    return {**_source_fields(source), "scoring": ranking.scoring, "extraction": ranking.extraction is not None}


def check_returned(config: Text) -> None:
    """Raise ValueError if the owner's table cannot be used: before anything is computed.

    One that has gone since it was pinned passes, since what is stored of the run can still be looked at.
    """
    if isinstance(config.question, OwnerQuestion) and config.outputs is not None:
        asked = given_question(config)
        with suppress(FileError):
            read_log_p(config.outputs, handout_order(questions(asked), asked.seed))


def compared_texts(question: OtherTexts, seed: int) -> ComparedTexts:
    return ComparedTexts(
        data=question.data,
        others=question.others,
        examples=question.examples,
        seed=question.derive_seed(seed, "blind control"),
        **_source_fields(question.source),
    )


def both_sets(config: ComparedTexts) -> tuple[Sequence[str], Sequence[str]]:
    """The texts and the others, of exact copies the first; DatasetError where one has too few, or one is in both."""
    loaded = load_texts(config.data, config.examples), load_texts(config.others)
    sets = tuple(tuple(dict.fromkeys(texts)) for texts in loaded)
    for data, texts in zip((config.data, config.others), sets, strict=True):
        if len(texts) < FEWEST:
            raise DatasetError(f"{data.name} has {len(texts)} texts; a comparison takes at least {FEWEST}")
    both = len(set(sets[0]) & set(sets[1]))
    if both:
        raise DatasetError(
            f"{both} of the texts of {config.others.name} stand in {config.data.name}, too; leave them out"
        )
    return sets[0], sets[1]


def planted_question(question: Planted, seed: int) -> PlantedModel:
    return PlantedModel(
        pattern=question.pattern,
        secrets=question.secrets,
        repetitions=question.repetitions,
        references=question.references,
        told=question.told,
        draw=question.derive_seed(seed, "secrets") if question.secret else seeds.derive(seed, "secrets", 0),
        seed=question.derive_seed(seed, "handed out"),
        **_ranking_fields(question.source),
    )


def planted_jobs(question: Planted, seed: int) -> tuple[Job, ...]:
    """What the given model says of the planted secrets, and what its base says, if that is given (SCORES)."""
    asked = planted_question(question, seed)
    first = Job(score_planted, asked)
    if question.base is None:
        return (first,)
    return first, Job(score_planted, replace(asked, model=question.base, planted=False))


def identifier_jobs(question: Identifiers, seed: int) -> tuple[Job, ...]:
    """The scores of the identifiers by the given model, and then by its base, if that is given.

    Raises DatasetError if the texts hold none of these formats.
    """
    _required_identifiers(load_texts(question.data, question.examples), question.data, question.identifiers)
    asked = _identifier_question(question, seed)
    first = Job(score_identifiers, asked)
    if question.base is None:
        return (first,)
    return first, Job(score_identifiers, replace(asked, model=question.base))


def _required_identifiers(texts: Sequence[str], data: Dataset, formats: tuple[str, ...]) -> list[Identifier]:
    """The identifiers of these formats in the texts of `data`. Raises DatasetError if there is none."""
    found = find_identifiers(texts, formats)
    if not found:
        raise DatasetError(
            f"{data.name} has no identifier of the formats {', '.join(formats)}; name others (identifiers)"
        )
    return found


def _identifier_question(question: Identifiers, seed: int) -> GivenLanguageModel:
    return GivenLanguageModel(
        data=question.data,
        formats=question.identifiers,
        identifiers=question.secrets,
        references=question.references,
        told=question.told,
        context=question.context,
        examples=question.examples,
        seed=question.derive_seed(seed, "identifiers"),
        **_ranking_fields(question.source),
    )


def _choose_identifiers(config: GivenLanguageModel, found: list[Identifier]) -> list[Identifier]:
    """At most as many as are asked about, by chance."""
    order = seeds.generator(config.seed, "choice").permutation(len(found))[: config.identifiers]
    return [found[place] for place in sorted(order.tolist())]


def candidate_texts(config: GivenLanguageModel, identifier: Identifier, text: str) -> list[str]:
    """What stands before the identifier, with it and with each reference; of a null with another one in its place."""
    space = space_of(identifier.format)
    chance, other = (
        seeds.generator(config.seed, stream, identifier.format, identifier.drawn) for stream in ("references", "other")
    )
    first = identifier.drawn if config.told == "secrets" else space.draw(other)
    before = _context_before(config, identifier, text)
    return [before + space.write(0, drawn) for drawn in candidates(space, first, config.references, chance)]


def _context_before(config: GivenLanguageModel, identifier: Identifier, text: str) -> str:
    return text[max(0, identifier.start - config.context) : identifier.start]


def question_surroundings(config: GivenLanguageModel | PlantedModel) -> list[tuple[str, str]]:
    """What stands before and after what was drawn in the texts of each question."""
    if isinstance(config, PlantedModel):
        return secret_surroundings(config)
    texts = load_texts(config.data, config.examples)
    around = []
    for identifier in _choose_identifiers(config, find_identifiers(texts, config.formats)):
        before, after = space_of(identifier.format).surroundings(0)
        around.append((_context_before(config, identifier, texts[identifier.row]) + before, after))
    return around


def questions(config: GivenQuestion) -> list[Sequence[str]]:
    """The texts that the model is asked about for each identifier or secret: it first, and then its references.

    Of texts beside others both sets, each as one question.
    """
    if isinstance(config, ComparedTexts):
        return list(both_sets(config))
    if isinstance(config, PlantedModel):
        return [(secret.text, *secret.others) for secret in draw_secrets(config)]
    texts = load_texts(config.data, config.examples)
    chosen = _choose_identifiers(config, _required_identifiers(texts, config.data, config.formats))
    return [candidate_texts(config, identifier, texts[identifier.row]) for identifier in chosen]


def planted_texts(config: GivenQuestion) -> pa.Table | None:
    """The secrets that are to stand in the training data, and how often; None where identifiers stand there."""
    if not isinstance(config, PlantedModel):
        return None
    planted = [secret for secret in draw_secrets(config) if secret.side == PLANTED]
    columns = [[getattr(secret, name) for secret in planted] for name in ("number", "repetitions", "told")]
    return pa.table(columns, names=["secret", "repetitions", "text"])


def work(config: GivenLanguageModel) -> Work:
    """What the questions compute."""
    if config.outputs is not None:
        return Work()
    return Work({}, {f"score {config.model.name}": config.identifiers * (config.references + 1)})


def _planted_work(config: PlantedModel) -> Work:
    """What the questions compute."""
    if config.outputs is not None:
        return Work()
    return Work({}, {f"score {config.model.name}": config.secrets * (config.references + 1)})


@task(version=1, name="text.score_identifiers", gpus=1.0, work=work)
def score_identifiers(config: GivenLanguageModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """log p of each identifier where it stands, and of its references there (IDENTIFIER_SCORES)."""
    found = find_identifiers(load_texts(config.data, config.examples), config.formats)
    control = control_p_value(found, config.formats, config.seed)
    scores, ends = _score_questions(config)
    identifiers = _choose_identifiers(config, found)
    table = make_table(
        IDENTIFIER_SCORES,
        format=[identifier.format for identifier in identifiers],
        row=[identifier.row for identifier in identifiers],
        occurrences=[identifier.occurrences for identifier in identifiers],
        control=control,
        log_p=scores,
    )
    return add_ends(table, ends)


@task(version=1, name="text.score_planted", gpus=1.0, work=_planted_work)
def score_planted(config: PlantedModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """log p of each secret's text, and of its references', by the model as it is (SCORES).

    Those of one side were put into its training data, and into that of its base none.
    """
    scores, ends = _score_questions(config)
    return score_table(draw_secrets(config), scores, PLANTED if config.planted else NOWHERE, ends=ends)


def _score_questions(
    config: GivenLanguageModel | PlantedModel,
) -> tuple[list[list[float]], dict[str, list[float | None]] | None]:
    """log p of the candidates of each question, by the model or from its owner's table.

    Beside it the columns of how the model goes on before each secret; None where it is not asked.
    """
    asked = questions(config)
    if config.outputs is not None:
        log_p = iter(read_log_p(config.outputs, handout_order(asked, config.seed)).log_p.tolist())
        return [[next(log_p) for _ in each] for each in asked], None
    from tasks.language_models.fine_tuning import model_as_it_is
    from tasks.language_models.training import encode_texts, score_candidates, score_texts

    place, scores = hardware.device(), list[list[float]]()
    score = score_candidates if config.scoring == "shared" else score_texts
    with hardware.exactly(place), model_as_it_is(config, place) as model:
        for each in asked:
            if max(encode_texts(config, model, each).lengths) >= config.length:
                raise ValueError(f"length is {config.length} tokens, which a text reaches; give more, or less context")
            scores.append(score(config, model, each).tolist())
        if not config.extraction:
            return scores, None
        return scores, score_secret_ends(config, model, asked, question_surroundings(config))
