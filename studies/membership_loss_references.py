"""How often does `engram audit --references` accuse a model that saw neither set, and recognise one that saw them all?

    python -m studies membership_loss_references [--tiny] [--seed 13000] [--pools 20] [--splits 20] [--out FILE]

A pool holds 400 random digits on photographs. An audit draws half of them as members, the other half as non-members.
Both sets have the same role in the reference models, so that all audits of a pool share its 16 references, which are
trained on random halves of the pool. A model that saw neither set is also shared: given the pool and the model, all
splits are equally likely, so that audits of one pool are independent. Each model that saw members is trained for one
audit. Non-members that are shifted as data of another source would be get their own references if the blind control
accepts them; otherwise the answer is "not assessable", whatever the references are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from studies.membership_loss_attack import (
    ANSWERS,
    DATA,
    add_noise,
    blur,
    darken,
    keep,
    move,
    select_classes,
    soften,
    unchanged,
)
from tasks.audits.membership.answer import verdict
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.loss_config import LossAttack
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.calibrated import calibrate
from tasks.audits.membership.reference_models import REFERENCE
from tasks.audits.membership.trainings import log_odds
from tasks.contract.job import NoSettings
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.datasets.mixtures import draw_balanced_members
from tasks.external.audit_inputs import RecordSet
from tasks.external.audited_model import Scores, score_labels
from tasks.external.outputs import log_softmax
from tasks.external.split_audit import BLIND_LEVEL, SCORES, evaluate, score_table
from tasks.numerics import seeds, statistics
from tasks.training.members import Member, Spec
from tasks.training.recipe import Recipe

Array = NDArray[Any]
PLAIN = "digits"
EACH = 200  # images per set
REFERENCES = 16
NETWORK = "mlp1"
RECIPE = Recipe(20, 32, 1e-3)
LONGER = Recipe(60, 32, 1e-3)
SHORTER = Recipe(5, 32, 1e-3)
OTHER = Recipe(20, 16, 3e-4, optimiser="rmsprop")


@dataclass(frozen=True, eq=False)
class Pool:
    """The records of several audits, and as many other images as a set has."""

    number: int
    records: RecordSet
    unrelated: RecordSet

    @cached_property
    def references(self) -> tuple[Array, Array]:
        """The log-odds of the pool's references and their halves, (references, records)."""
        return references_of(self.records, self.number)


@dataclass(frozen=True)
class Split:
    """The rows of the pool that are members and non-members, and the seed of the audit."""

    members: Array
    non_members: Array
    seed: int

    @property
    def rows(self) -> Array:
        return np.concatenate([self.members, self.non_members])


Shift = Callable[[RecordSet], RecordSet]
TrainingSet = Callable[[Pool, Split], RecordSet]


def all_members(pool: Pool, split: Split) -> RecordSet:
    return pool.records.select(split.members)


def half_of_members(pool: Pool, split: Split) -> RecordSet:
    return pool.records.select(split.members[: len(split.members) // 2])


def copies_of_non_members(pool: Pool, split: Split) -> RecordSet:
    """Return the non-members, moved by one pixel."""
    return move(pool.records.select(split.non_members))


def unrelated_images(pool: Pool, split: Split) -> RecordSet:
    return pool.unrelated


def plain_digits(pool: Pool, split: Split) -> RecordSet:
    """Return digits without a photograph behind them: other data of the domain."""
    images = load(pin(Dataset(PLAIN)))
    rows = seeds.generator(pool.number, "plain digits").permutation(len(images.train_labels))
    rows = rows[: len(pool.unrelated.labels)]
    return RecordSet(images.train_images[rows], images.train_labels[rows])


@dataclass(frozen=True)
class Case:
    """What the examined model is trained on and how, the non-members, and a change of the outputs."""

    name: str
    training_set: TrainingSet
    is_null: bool = False  # whether all audits of a pool share the model
    recipe: Recipe = RECIPE
    shift: Shift = keep
    change: Callable[[Array, np.random.Generator], Array] = unchanged
    share_of_runs: float = 0.25


CASES = (
    Case("null: trained on other images of the source", unrelated_images, is_null=True, share_of_runs=1),
    Case("null: trained on other data of the domain", plain_digits, is_null=True, share_of_runs=1),
    Case("null: trained on other images, three times the epochs", unrelated_images, is_null=True, recipe=LONGER),
    Case("look-alike: trained on near copies of the non-members", copies_of_non_members),
    Case("look-alike: non-members darker by a tenth", unrelated_images, shift=darken),
    Case("look-alike: non-members moved by one pixel", unrelated_images, shift=move),
    Case("look-alike: non-members blurred", unrelated_images, shift=blur),
    Case("look-alike: three classes missing", unrelated_images, shift=select_classes),
    Case("trained on all members", all_members),
    Case("trained on all members, three times the epochs", all_members, recipe=LONGER),
    Case("trained on all members, other optimiser and batches", all_members, recipe=OTHER),
    Case("trained on half of the members", half_of_members),
    Case("trained on all members, non-members darker", all_members, shift=darken),
    Case("cheat: outputs with noise", all_members, change=add_noise),
    Case("cheat: outputs softened", all_members, change=soften),
    Case("trained on all members, a quarter of the epochs", all_members, recipe=SHORTER),
)


@dataclass
class Count:
    """Answers of the audits of a case without and with references, and the members found in each.

    `false_shares` holds the share of the found members that the model did not see.
    """

    alone: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    found: list[int] = field(default_factory=list)
    false_shares: list[float] = field(default_factory=list)


def as_images(records: RecordSet) -> Images:
    return Images(records.images, records.labels, records.images[:1], records.labels[:1], 10)


def train(records: RecordSet, rows: Sequence[Array], recipe: Recipe, model_seeds: Sequence[int]) -> list[Any]:
    """Train a network on each of these sets of rows, and return the weights."""
    from tasks.models.networks import Architecture
    from tasks.training.cross_entropy import CrossEntropy
    from tasks.training.trainer import train_by_index

    images = as_images(records)
    spec = Spec(CrossEntropy(Architecture(NETWORK, images.shape, images.classes)), recipe, images)
    members = {
        number: Member(seed, chosen) for number, (seed, chosen) in enumerate(zip(model_seeds, rows, strict=True))
    }
    outcomes = dict(train_by_index(spec, members))
    weights = []
    for number in members:
        outcome = outcomes[number]
        if isinstance(outcome, Exception):
            raise outcome
        weights.append(outcome.weights)
    return weights


def evaluate_models(weights: Sequence[Any], records: RecordSet) -> Array:
    """Return the logits (models, records, classes)."""
    from tasks.models.inference import logits
    from tasks.models.networks import Architecture

    images = as_images(records)
    return logits(Architecture(NETWORK, images.shape, images.classes), weights, records.images).astype(np.float64)


def references_of(records: RecordSet, seed: int, models: int = REFERENCES) -> tuple[Array, Array]:
    """Train references on random halves of the records. Return their log-odds and halves, (references, records)."""
    inside = draw_balanced_members(len(records.labels), models, seeds.derive(seed, "reference design"))
    model_seeds = [seeds.derive(seed, "reference", number) for number in range(models)]
    weights = train(records, [np.flatnonzero(half) for half in inside], RECIPE, model_seeds)
    phi = np.stack([log_odds(outputs, records.labels) for outputs in evaluate_models(weights, records)])
    return phi, inside


@cache
def draw_pool(number: int, each: int) -> Pool:
    """Draw a pool."""
    images = load(pin(Dataset(DATA)))
    order = seeds.generator(number, "pool").permutation(len(images.train_labels))
    records, unrelated = (
        RecordSet(images.train_images[rows], images.train_labels[rows])
        for rows in (order[: 2 * each], order[2 * each : 3 * each])
    )
    return Pool(number, records, unrelated)


def draw_split(pool: Pool, number: int) -> Split:
    seed = seeds.derive(pool.number, "split", number)
    order = seeds.generator(seed, "sets").permutation(len(pool.records.labels))
    half = len(order) // 2
    return Split(order[:half], order[half:], seed)


@cache
def null_model(case: Case, pool_number: int, each: int) -> Any:
    """Train the model that all audits of a pool share."""
    pool = draw_pool(pool_number, each)
    records = case.training_set(pool, draw_split(pool, 0))
    seed = seeds.derive(pool_number, case.name)
    return train(records, [np.arange(len(records.labels))], case.recipe, [seed])[0]


def model_of(case: Case, pool: Pool, split: Split) -> Any:
    if case.is_null:
        return null_model(case, pool.number, len(split.members))
    records = case.training_set(pool, split)
    return train(records, [np.arange(len(records.labels))], case.recipe, [seeds.derive(split.seed, case.name)])[0]


BLIND: dict[tuple[int, int, Shift], pa.Table] = {}  # by pool, seed of the split, and shift


def blind_table(pool: Pool, split: Split, shift: Shift) -> pa.Table:
    """Return the scores of both sets without a model (SCORES), which all cases share."""
    key = pool.number, split.seed, shift
    if key not in BLIND:
        sets = (pool.records.select(split.members), shift(pool.records.select(split.non_members)))
        unknown = [Scores(np.full(len(records.labels), np.nan), None) for records in sets]
        BLIND[key] = score_table((unknown[0], unknown[1]), sets, split.seed)
    return BLIND[key]


def score(case: Case, pool: Pool, split: Split, non_members: RecordSet) -> pa.Table:
    """Return the scores of both sets (SCORES)."""
    weights = model_of(case, pool, split)
    stream = seeds.generator(split.seed, "changes")
    scores = []
    for records in (pool.records.select(split.members), non_members):
        outputs = case.change(evaluate_models([weights], records)[0], stream)
        scores.append(score_labels(log_softmax(outputs), records.labels))
    columns = {"log_p": pa.array(np.concatenate([part.log_p for part in scores]))}
    columns["correct"] = pa.array(np.concatenate([part.correct for part in scores]))
    table = blind_table(pool, split, case.shift)
    for name, values in columns.items():
        table = table.set_column(SCORES.get_field_index(name), name, values)
    return table


def compare_with_references(case: Case, pool: Pool, split: Split, non_members: RecordSet, scores: pa.Table) -> pa.Table:
    """Return the scores compared with references (CALIBRATED)."""
    if case.shift is keep:
        phi, inside = (values[:, split.rows] for values in pool.references)
    else:
        members = pool.records.select(split.members)
        records = RecordSet(
            np.concatenate([members.images, non_members.images]), np.concatenate([members.labels, non_members.labels])
        )
        phi, inside = references_of(records, split.seed)
    tables = [
        make_table(REFERENCE, inside=half, log_odds=odds, correct=odds > 0)
        for odds, half in zip(phi, inside, strict=True)
    ]
    return calibrate(NoSettings(), [scores, *tables])


def audit(case: Case, pool: Pool, number: int, count: Count) -> None:
    """Run an audit without and with references, and count its answers."""
    split = draw_split(pool, number)
    non_members = case.shift(pool.records.select(split.non_members))
    scores = score(case, pool, split, non_members)
    count.alone[verdict(Membership(LossAttack()), summary(About(), [scores])).answer] += 1
    if evaluate(scores).blind_p <= BLIND_LEVEL:  # decides before the references
        count.compared["not assessable"] += 1
        return
    calibrated = compare_with_references(case, pool, split, non_members, scores)
    config = Membership(LossAttack(references=REFERENCES))
    count.compared[verdict(config, summary(About(), [calibrated, scores])).answer] += 1
    found = np.flatnonzero(np.asarray(calibrated["found"].fill_null(False)))
    count.found.append(len(found))
    count.false_shares.append(float((~was_seen(case, split)[found]).mean()) if len(found) else 0.0)


def was_seen(case: Case, split: Split) -> NDArray[np.bool_]:
    """Return whether the model was trained on each member."""
    seen = {all_members: len(split.members), half_of_members: len(split.members) // 2}
    return np.arange(len(split.members)) < seen.get(case.training_set, 0)


def count_case(case: Case, first: int, pools: int, splits: int, each: int = EACH) -> Count:
    """Run `splits` audits in each of `pools` pools, the first of which has this number."""
    count = Count()
    for number in range(first, first + pools):
        pool = draw_pool(number, each)
        for split in range(splits):
            audit(case, pool, split, count)
    return count


def markdown(counted: Sequence[tuple[Case, Count]]) -> Iterator[str]:
    """Yield the lines of a table with the answers, and exact 95 % intervals of *distinguishable* with references."""
    yield (
        f"| model and sets, {EACH} images each | audits | alone: {' / '.join(ANSWERS)} | {REFERENCES} references: "
        f"{' / '.join(ANSWERS)} | distinguishable, 95 % interval | audits with members found | mean members found | "
        "mean share of false ones |"
    )
    yield "|---" * 8 + "|"
    for case, count in counted:
        runs = count.compared.total()
        share = statistics.exact_proportion(count.compared["distinguishable"], runs)
        interval = f"{100 * (share.low or 0):.1f} to {100 * (share.high or 0):.1f} %"
        answers = (" / ".join(str(answers[name]) for name in ANSWERS) for answers in (count.alone, count.compared))
        found = np.array(count.found or [0])
        false = 100 * float(np.mean(count.false_shares or [0.0]))
        yield (
            f"| {case.name} | {runs} | {' | '.join(answers)} | {interval} | {(found > 0).sum()} | {found.mean():.1f} | "
            f"{false:.1f} % |"
        )


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=13000, help="of the first pool")
    parser.add_argument("--pools", type=int, default=20)
    parser.add_argument("--splits", type=int, default=20, help="per pool, for the nulls; fewer for other cases")
    options = parser.parse_args(arguments)
    setting: dict[str, Any] = measurement_facts(DATA, torch.device("cpu"))
    start = time.process_time()
    counted = []
    for case in CASES:
        if options.tiny:
            count = count_case(case, options.seed, 1, 1, each=60)
        else:
            splits = max(1, round(case.share_of_runs * options.splits))
            count = count_case(case, options.seed, options.pools, splits)
        counted.append((case, count))
        print(*markdown(counted[-1:]), sep="\n", flush=True)
    setting["seed"] = options.seed
    setting["cost"] = f"{(time.process_time() - start) / 60:.0f} minutes of processor time"
    table = "\n".join(markdown(counted)) + "\n"
    publish_counts("Error rates of the loss attack with reference models", setting, table, options.out)
