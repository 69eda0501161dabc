"""How does `membership` judge trained third-party models, and tables that their owners change?

    python -m studies membership_given_models [--tiny] [--seed 35201] [--owners 24] [--models 64] [--data NAME]
                                              [--out FILE]

The reference models use the settings of the preset `quickstart`, and each is trained on half of the first 400 images.
An innocent owner trains on half of 400 other images, the other owners on part of the records. A model file is evaluated
unchanged. A table is written by the owner and read by the audit. An owner who alters a table does so once per image, or
afresh for each occurrence of an image. Answers follow the audit's rule, and intervals are Clopper-Pearson intervals.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.membership.answer import verdict
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.given import SCORES, ask_given, handout_order, pictures, question_about
from tasks.audits.membership.given_config import AskedFile, FirstImages, GivenModel, ReturnedTable, Source
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.given import Ranking, kinship, ranks
from tasks.audits.membership.presets import QUICKSTART
from tasks.audits.membership.trainings import answers, log_odds, trainings
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Labels
from tasks.datasets.mixtures import BalancedHalf, Part, Share
from tasks.external.model_file import ModelFile
from tasks.models.networks import architecture_of, weights_of_model
from tasks.numerics import seeds
from tasks.numerics.statistics import exact_interval
from tasks.training.mixed import Mixture, logits, train_many
from tasks.worker.files import File

ANSWERS = ("memorised", "not detected", "undecided", "not assessable")
TOGETHER = 16  # models trained in one stack
Logits = NDArray[np.float64]
Alter = Callable[[Logits, np.random.Generator], Logits]


@dataclass(frozen=True, eq=False)
class Owner:
    """A kind of owner: its training data, and the settings that differ from the reference models'."""

    name: str
    # Arguments: records, other records, number of owners, owner number.
    shares: Callable[[Part, Part, int, int], tuple[BalancedHalf | Share, ...]]
    settings: Mapping[str, Any]


def half_of(records: bool) -> Callable[[Part, Part, int, int], tuple[BalancedHalf | Share, ...]]:
    def shares(
        audited_records: Part, other_records: Part, owners: int, number: int
    ) -> tuple[BalancedHalf | Share, ...]:
        return (BalancedHalf(audited_records if records else other_records, owners, number, 7),)

    return shares


def fifth_of_records(records: Part, other_records: Part, _: int, number: int) -> tuple[BalancedHalf | Share, ...]:
    """Return a fifth of the records, plus other records up to half the number of records."""
    return Share(records, 0.2, number), Share(other_records, 0.3, number)


INNOCENT = Owner("innocent", half_of(False), {})
TRAINED = Owner("trained on half", half_of(True), {})
LONGER = {"epochs": 2 * QUICKSTART.training.epochs}
OWNERS = (
    INNOCENT,
    Owner("innocent, twice the epochs", half_of(False), LONGER),
    TRAINED,
    Owner("trained on half, twice the epochs", half_of(True), LONGER),
    Owner("trained on a fifth", fifth_of_records, {}),
)


def noise(scores: Logits, stream: np.random.Generator) -> Logits:
    return scores + stream.normal(size=scores.shape)


@dataclass(frozen=True)
class Change:
    """An owner's change to the logits and the format of the table.

    With `afresh`, the logits are altered anew at each occurrence of an image.
    """

    name: str
    alter: Alter = lambda scores, _: scores
    afresh: bool = False
    decimals: int | None = None
    labels: bool = False


CHANGES = (
    Change("unchanged"),
    Change("noise of 1 nat by image", noise),
    Change("noise of 1 nat, afresh", noise, afresh=True),
    Change("logits halved", lambda scores, _: scores / 2),
    Change("logits doubled", lambda scores, _: 2 * scores),
    Change("two decimals", decimals=2),
    Change("one decimal", decimals=1),
    Change("labels alone", labels=True),
)


def train(configs: Sequence[Mixture]) -> list[pa.Table]:
    models: list[pa.Table] = []
    for first in range(0, len(configs), TOGETHER):
        part = configs[first : first + TOGETHER]
        tables = dict(train_many(part, [()] * len(part)))
        for index in range(len(part)):
            model = tables[index]
            if isinstance(model, Exception):
                raise model
            models.append(model)
        print(f"{len(models)} of {len(configs)} models", file=sys.stderr, flush=True)
    return models


@dataclass(frozen=True, eq=False)
class References:
    """The reference models' answers for the records and the images that follow, and the training of the first model."""

    config: Membership
    tables: Sequence[pa.Table]
    training: Mixture

    def answer(self, source: Source, scores: pa.Table) -> str:
        """Return the audit's answer about a model with these scores."""
        question = given_model(self.config)
        ranking = Ranking(question.level, question.records.examples)
        tables = [scores, *self.tables]
        rows = summary(About(question.level), [ranks(ranking, tables), kinship(ranking, tables)])
        return verdict(replace(self.config, question=replace(question, source=source)), rows).answer


def given_model(config: Membership) -> GivenModel:
    assert isinstance(config.question, GivenModel)
    return config.question


def train_references(config: Membership) -> References:
    jobs = trainings(config)
    configs = [job.inputs[0].config for job in jobs]
    models = train(configs)
    halves = [job.config for job in jobs]
    unseen = question_about(config).unseen
    tables = []
    for half, model in zip(halves, models, strict=True):
        tables.append(answers(half, (model,)))
    tables += [answers(replace(half, part=unseen), (model,)) for half, model in zip(halves, models, strict=True)]
    return References(config, tables, configs[0])


def owner_logits(references: References, owner: Owner, owners: int, seed: int) -> list[Logits]:
    """Return the logits of the owners' models for the records and the images that follow."""
    config, examples = references.config, given_model(references.config).records.examples
    records = Part(config.data, 0, examples)
    other_records = Part(config.data, 2 * examples, examples)
    trained_models = []
    for number in range(owners):
        trained_models.append(
            replace(
                references.training,
                shares=owner.shares(records, other_records, owners, number),
                seed=seeds.derive(seed, owner.name, number),
                **owner.settings,
            )
        )
    images = pictures(question_about(config))[1]
    result = []
    for model in train(trained_models):
        result.append(logits(architecture_of(model), weights_of_model(model), images).astype(np.float64))
    return result


def file_scores(config: Membership, scores: Logits) -> pa.Table:
    """Return the scores (SCORES) of a model file."""
    rows, _, labels = pictures(question_about(config))
    return make_table(
        SCORES,
        row=rows,
        record=rows < given_model(config).records.examples,
        score=log_odds(scores, labels),
        again=None,
        kind="log-odds",
        resolution=0.0,
        right=scores.argmax(axis=1) == labels,
    )


def table_scores(config: Membership, scores: Logits, change: Change, seed: int, folder: Path) -> pa.Table:
    """Return the scores (SCORES) that the audit reads from an owner's table."""
    questions = question_about(config)
    order = handout_order(questions)
    stream = np.random.default_rng(seed)
    if change.afresh:
        places = change.alter(scores[order.order], stream)
    else:
        places = change.alter(scores, stream)[order.order]
    probabilities = np.exp(places - np.logaddexp.reduce(places, axis=1)[:, None])
    ids = [order.id_of(order.name, index) for index in range(len(order.order))]
    path = folder / "outputs.csv"
    labels = pictures(questions)[2][order.order]
    path.write_text("\n".join(table_lines(ids, probabilities, labels, change)) + "\n")
    return ask_given(replace(questions, source=ReturnedTable(File(str(path)).pin({}))), ())


def table_lines(ids: Sequence[str], probabilities: Logits, labels: Labels, change: Change) -> Iterator[str]:
    """Yield the lines of the table: all probabilities, rounded probabilities of the true labels, or labels only."""
    if change.labels:
        yield "image,predicted"
        yield from (f"{name},{label}" for name, label in zip(ids, probabilities.argmax(axis=1), strict=True))
    elif change.decimals is not None:
        yield "image,confidence"
        confidences = np.take_along_axis(probabilities, labels[:, None].astype(np.int64), axis=1)[:, 0]
        yield from (f"{name},{value:.{change.decimals}f}" for name, value in zip(ids, confidences, strict=True))
    else:
        yield "image," + ",".join(f"p{number}" for number in range(probabilities.shape[1]))
        for name, row in zip(ids, probabilities, strict=True):
            yield f"{name},{','.join(f'{value:.9g}' for value in row)}"


def count_answers(config: Membership, owners: int, seed: int) -> Iterator[tuple[str, Counter[str]]]:
    """Count the answers for each kind of owner and table."""
    references = train_references(config)
    models = {owner: owner_logits(references, owner, owners, seed) for owner in OWNERS}
    file = AskedFile(ModelFile("model.pt"))
    for owner, owner_models in models.items():
        yield (
            f"file: {owner.name}",
            Counter(references.answer(file, file_scores(config, item)) for item in owner_models),
        )
    with TemporaryDirectory() as folder:
        table = ReturnedTable(File("outputs.csv"))
        for owner in (INNOCENT, TRAINED):
            for change in CHANGES:
                scores = partial(table_scores, config, change=change, folder=Path(folder))
                verdicts = (scores(item, seed=seed + number) for number, item in enumerate(models[owner]))
                yield (
                    f"table: {owner.name}, {change.name}",
                    Counter(references.answer(table, item) for item in verdicts),
                )


def markdown(counted: Sequence[tuple[str, Counter[str]]]) -> Iterator[str]:
    yield f"| given model | {' | '.join(ANSWERS)} | memorised, 95 % interval |"
    yield "|---" * (2 + len(ANSWERS)) + "|"
    for name, results in counted:
        low, high = (100 * end for end in exact_interval(results["memorised"], results.total()))
        numbers = " | ".join(str(results[answer]) for answer in ANSWERS)
        yield f"| {name} | {numbers} | {low:.0f} to {high:.0f} % |"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument(
        "--seed", type=int, default=35201, help="of the owners; the seed of the references is one larger"
    )
    parser.add_argument("--owners", type=int, default=24, help="of each kind")
    parser.add_argument("--models", type=int, default=64, help="references")
    parser.add_argument("--data", default=str(QUICKSTART.data.name))
    options = parser.parse_args(arguments)
    question = GivenModel(records=FirstImages(pin(Dataset(options.data)), 400), models=options.models)
    training = QUICKSTART.training
    if options.tiny:
        question = GivenModel(records=FirstImages(pin(Dataset("digits")), 60), models=20)
        training = replace(training, epochs=1)
        options.owners = 2
    config = Membership(question, training, options.seed + 1)
    start = time.process_time()
    counted = list(count_answers(config, options.owners, options.seed))
    setting = measurement_facts(config.data.name, torch.device("cpu"))
    setting["trainings"] = (
        f"{question.models} references and {options.owners} of each kind, {training.network} on half of "
        f"{question.records.examples} images, {training.epochs} epochs"
    )
    setting["seeds"] = f"{options.seed} and {options.seed + 1}"
    setting["cost"] = f"{time.process_time() - start:.0f} s of a core"
    publish_counts("Answers about given models", setting, "\n".join(markdown(counted)) + "\n", options.out)
