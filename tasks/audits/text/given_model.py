"""A language model as it is, asked about identifiers that stand in texts: how probable each and its references are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tasks.audits.text.config import Text, Told
from tasks.audits.text.documents import documents
from tasks.audits.text.identifiers import Identifier, control_p_value, find_identifiers, space_of
from tasks.audits.text.secret_space import candidates
from tasks.contract.job import Inputs, Job, task
from tasks.contract.ranges import Ranged
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.language_models.fine_tuning_config import Adaptation, Relation
from tasks.language_models.language_model import LanguageModel
from tasks.numerics import seeds
from tasks.training.recipe import Privacy
from tasks.worker import hardware
from tasks.worker.work import Work

IDENTIFIER_SCORES = pa.schema(
    [
        ("format", pa.string()),
        ("row", pa.int64()),  # of the text in which it stands first
        ("occurrences", pa.int64()),  # in all texts
        ("control", pa.float64()),  # p that those found are drawn evenly: the same in each row
        ("log_p", pa.list_(pa.float64())),  # of what stands before it and itself, and with each reference, in nats
    ]
)


@dataclass(frozen=True)
class GivenLanguageModel(Ranged):
    """A language model and the identifiers that it is asked about: at most so many of those found, drawn by `seed`."""

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

    # What a training would take: there is none, and no key knows of it.
    relation: ClassVar[Relation] = "kept"
    adaptation: ClassVar[Adaptation] = "full"
    rank: ClassVar[int] = 1
    epochs: ClassVar[int] = 1
    batch: ClassVar[int] = 1
    accumulate: ClassVar[int] = 1
    learning_rate: ClassVar[float] = 0.0
    dropout: ClassVar[float] = 0.0
    answer_length: ClassVar[int] = 1  # the token before a text
    privacy: ClassVar[Privacy | None] = None
    asked: ClassVar[tuple[int, ...]] = ()


def identifier_job(config: Text) -> Job:
    """The scores of the identifiers; DatasetError where the texts hold none of these formats."""
    asked = GivenLanguageModel(
        data=config.data,
        model=config.model,
        formats=config.identifiers,
        identifiers=config.secrets,
        references=config.references,
        told=config.told,
        context=config.context,
        examples=config.examples,
        seed=seeds.derive(config.seed, "identifiers"),
        length=config.length,
    )
    if not find_identifiers(documents(config.data, config.examples), config.identifiers):
        raise DatasetError(
            f"{config.data.name} has no identifier of the formats {', '.join(config.identifiers)}; name others "
            "(identifiers)"
        )
    return Job(score_identifiers, asked)


def choose_identifiers(config: GivenLanguageModel, found: list[Identifier]) -> list[Identifier]:
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
    before = text[max(0, identifier.start - config.context) : identifier.start]
    return [before + space.write(0, drawn) for drawn in candidates(space, first, config.references, chance)]


def work(config: GivenLanguageModel) -> Work:
    """What the questions compute."""
    return Work({}, {f"score {config.model.name}": config.identifiers * (config.references + 1)})


@task(version=1, name="text.score_identifiers", gpus=1.0, work=work)
def score_identifiers(config: GivenLanguageModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """log p of each identifier where it stands, and of its references there (IDENTIFIER_SCORES)."""
    from tasks.language_models.fine_tuning import check_installed

    check_installed()
    from tasks.language_models.pretrained import prepare_model, quiet
    from tasks.language_models.training import encode_texts, score_texts

    texts = documents(config.data, config.examples)
    found = find_identifiers(texts, config.formats)
    control = control_p_value(found, config.formats, config.seed)
    place, rows = hardware.device(), []
    with hardware.exactly(place):
        model = prepare_model(config, (), place)
        for identifier in choose_identifiers(config, found):
            asked = candidate_texts(config, identifier, texts[identifier.row])
            with quiet():
                longest = max(encode_texts(config, model, asked).lengths)
                if longest >= config.length:
                    raise ValueError(
                        f"context is {config.context} and length {config.length} tokens; give less context"
                    )
                scores = score_texts(config, model, asked).tolist()
            rows.append(
                {
                    "format": identifier.format,
                    "row": identifier.row,
                    "occurrences": identifier.occurrences,
                    "control": control,
                    "log_p": scores,
                }
            )
    return pa.Table.from_pylist(rows, IDENTIFIER_SCORES)
