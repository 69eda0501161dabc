"""Which training labels are memorised?

A network memorises the label of an image where it is right about it only because it was trained on it. Networks are
trained, each on a random share of the images, so that some of them were trained on an image and others were not.

    mem(i) = P[correct on i | trained on i] - P[correct on i | not trained on i]

Reading it. 0: training on the image makes no difference. 1: its label is told by networks that were trained on it and
by no other, as a wrong label is. The mean over images is the accuracy on images that a network was trained on less
that on the others, of which every training gives a value. The mem of one image is noisy where networks are few, so the
share of images whose mem is high has a null: the answers of each network beside the images of another one.

Source. Feldman & Zhang 2020, "What neural networks memorize and why", eq. 1 with the estimator by subsets of section
2.2; high is 0.25 there, too. The networks here, the intervals and the null are ours.

Cost. `models` trainings. `smoke` takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract import ranges
from tasks.contract.audit import Audit
from tasks.contract.job import Inputs, Job, Roots, task
from tasks.contract.measure import Measure, Tables, roots, summarise
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Row, row
from tasks.contract.verdict import Answer, Verdict
from tasks.datasets.catalog import load
from tasks.datasets.copies import distinct_rows
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Share
from tasks.models.catalog import Network
from tasks.numerics import seeds, statistics
from tasks.training.mixed import Mixture, logits, train

Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]
Array = NDArray[np.float64]
MATTERS = 0.01  # a mean of mem worth telling
SHIFTS = 20  # whose mean is the null of the share


@dataclass(frozen=True)
class LabelMemorization(Ranged):
    """How many networks are trained on which shares of which images."""

    data: Dataset = Dataset("mnist")
    """The images."""
    network: Network = Network("mlp1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""
    models: Annotated[int, AtLeast(2)] = 100
    """Networks that are trained."""
    share: Annotated[float, ranges.Share(zero=False, one=False)] = 0.7
    """Share of the images that each is trained on, at random."""
    examples: Annotated[int, AtLeast(0)] = 0
    """The first so many training images; 0: all."""
    epochs: Annotated[int, AtLeast(1)] = 20
    """Epochs of training."""
    high: Annotated[float, ranges.Share(zero=False, one=False)] = 0.25
    """From which mem on it is high."""
    unseen: bool = False
    """Ours: ask about the images that follow those, of which none was trained on: a null."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    def conflicts(self) -> Iterator[str]:
        if self.unseen and not self.examples:
            yield "unseen is on and examples is 0; some images must be left that are not trained on"


def plan(config: LabelMemorization) -> Roots:
    return roots(MEASURES, config, tuple(answer_jobs(config)), lambda read: Job(summary, High(config.high), read))


def answer_jobs(config: LabelMemorization) -> Iterator[Job]:
    """The answers of each network. Its seed follows from its number: the first ten of a hundred are those of ten."""
    images, trained = load(config.data), Part(config.data, 0, config.examples)
    about = replace(trained, first=config.examples) if config.unseen else trained
    about.rows(images)  # refused here where there are not so many
    for number in range(config.models):
        seed = seeds.derive(config.seed, "training", number)
        shares = (Share(trained, config.share, seed),)
        model = Mixture(shares, config.data, images.classes, config.network, seed=seed, epochs=config.epochs)
        yield Job(answers, Share(about, config.share, seed), (Job(train, model),))


ANSWERS = pa.schema([("row", pa.int64()), ("member", pa.bool_()), ("correct", pa.bool_())])


@task(version=2)
def answers(config: Share, inputs: Inputs) -> pa.Table:
    """Of each image whether it is in the share that the network was trained on, and whether the network is right.

    Exact copies are one image, in one share: the first is asked about.
    """
    from tasks.models.networks import (
        architecture_of,
        weights_of_model,  # torch, without which a plan is made
    )

    images = load(config.part.data)
    rows = distinct_rows(images, config.part.rows(images))
    scores = logits(architecture_of(inputs[0]), weights_of_model(inputs[0]), images.train_images[rows])
    correct = scores.argmax(axis=1) == images.train_labels[rows]
    return make_table(ANSWERS, row=rows, member=np.isin(rows, config.rows(images)), correct=correct)


def stacked(inputs: Inputs) -> tuple[Mask, Mask]:
    """Which images each network was trained on, and about which it is right, both (models, images)."""
    member, correct = (np.stack([table[name].to_numpy() for table in inputs]) for name in ("member", "correct"))
    return member, correct


def counts(member: Mask, correct: Mask) -> Counts:
    """(4, images): networks that were trained on it, how many of them are right; those that were not, as many."""
    return np.stack([member.sum(0), (member & correct).sum(0), (~member).sum(0), (~member & correct).sum(0)])


def memorization(counted: Counts) -> tuple[Array, Array]:
    """mem of each image with its standard error, both (images,); NaN where all networks, or none, were trained on it.

    The two rates are of different networks, so their binomial variances add. Feldman & Zhang 2020, eq. 1.
    """
    with np.errstate(invalid="ignore"):
        trained, held_out = counted[1] / counted[0], counted[3] / counted[2]
        variance = trained * (1 - trained) / counted[0] + held_out * (1 - held_out) / counted[2]
    return trained - held_out, np.sqrt(variance)


def share_high(counted: Counts, high: float) -> float:
    """The share of images whose mem is high, of those where it is known; NaN where it never is."""
    mem, _ = memorization(counted)
    known = mem[~np.isnan(mem)]
    return float((known >= high).mean()) if known.size else np.nan


@dataclass(frozen=True)
class High:
    """From which mem on it is high."""

    high: float


SIDES = ("trained", "trained_correct", "held_out", "held_out_correct")  # numbers of networks
IMAGES = pa.schema(
    [
        ("row", pa.int64()),  # of the training split
        *((side, pa.int64()) for side in SIDES),
        ("mem", pa.float64()),  # null, like what follows, where all networks, or none, were trained on the image
        ("standard_error", pa.float64()),
        ("high", pa.bool_()),
    ]
)


@task(version=1, gathers=True)
def images(config: High, inputs: Inputs) -> pa.Table:
    counted = counts(*stacked(inputs))
    mem, error = memorization(counted)
    return make_table(
        IMAGES,
        row=inputs[0]["row"],
        **dict(zip(SIDES, counted, strict=True)),
        mem=nan_as_null(mem),
        standard_error=nan_as_null(error),
        high=pa.array(mem >= config.high, mask=np.isnan(mem)),
    )


def of_images(tables: Tables, about: High) -> Iterator[Row]:
    """The share of images whose mem is high; its interval is that of leaving out one training at a time."""
    for table, trained in zip(tables.select(IMAGES), tables.select(TRAININGS), strict=False):
        share = share_high(np.stack([table[side].to_numpy() for side in SIDES]), about.high)
        estimate = statistics.jackknife(share, trained["share_without"].to_numpy())
        null = statistics.mean(trained["share_shifted"].drop_null()).value
        yield row("share of high mem", {"from": about.high}, estimate, "training", null)


TRAININGS = pa.schema(
    [
        ("trained_accuracy", pa.float64()),
        ("held_out_accuracy", pa.float64()),
        ("share_without", pa.float64()),  # of high mem, by all other networks
        ("share_shifted", pa.float64()),  # of high mem, by the answers of networks so many rows further on
    ]
)


@task(version=1, gathers=True)
def trainings(config: High, inputs: Inputs) -> pa.Table:
    member, correct = stacked(inputs)
    counted, estimates = counts(member, correct), []
    for number, (its, right) in enumerate(zip(member, correct, strict=True)):
        without = share_high(counted - counts(its[None], right[None]), config.high)
        shifted = counts(np.roll(member, number, axis=0), correct)
        null = share_high(shifted, config.high) if 1 <= number <= SHIFTS else np.nan
        estimates.append((right[its].mean(), right[~its].mean(), without, null))
    columns = zip(TRAININGS.names, np.transpose(estimates), strict=True)
    return make_table(TRAININGS, **{name: nan_as_null(values) for name, values in columns})


def of_trainings(tables: Tables, about: High) -> Iterator[Row]:  # noqa: ARG001 - the mean knows nothing of high mem
    """The mean of mem, and the accuracies whose difference it is."""
    for table in tables.select(TRAININGS):
        trained, held_out = (table[f"{side}_accuracy"].to_numpy() for side in ("trained", "held_out"))
        p_value = statistics.paired_greater(trained, held_out).p_value
        yield row("mean mem", {}, statistics.mean(trained - held_out), "training", 0.0, p_value)
        for name, values in (("trained on", trained), ("held out", held_out)):
            yield row("accuracy", {"images": name}, statistics.mean(values), "training")


MEASURES = (
    Measure("trainings", TRAININGS, lambda config, jobs: Job(trainings, High(config.high), jobs), of_trainings),
    Measure("images", IMAGES, lambda config, jobs: Job(images, High(config.high), jobs), of_images),
)


@task(version=1, gathers=True)
def summary(config: High, inputs: Inputs) -> pa.Table:
    return summarise(MEASURES, inputs, config)


def verdict(config: LabelMemorization, table: pa.Table) -> Verdict:
    """Memorised: the interval of the mean lies above 0, as for 1 in 40 sets of networks that memorise nothing."""
    limits = "The mean says little of one image: its own mem and the standard error stand in the table `images`."
    mean = next((line for line in table.to_pylist() if line["metric"] == "mean mem"), None)
    if mean is None or mean["low"] is None:
        return Verdict("undecided", "Undecided: there are fewer than two networks to compare.", limits, ())
    answer: Answer = "memorised" if mean["low"] > 0 else "not detected" if mean["high"] < MATTERS else "undecided"
    sentence = (
        f"{answer.capitalize()}: {'being taken to be' if config.unseen else 'being'} trained on makes the label of an "
        f"image {mean['estimate']:.3g} more likely to be told (95 % interval {mean['low']:.3g} to "
        f"{mean['high']:.3g} over {mean['n']} trainings)."
    )
    return Verdict(answer, sentence, limits, (("mean mem", "{}"),))


def tiny(config: LabelMemorization) -> LabelMemorization:
    few = min(config.examples or 60, 60)
    return replace(config, data=Dataset("digits"), models=min(config.models, 6), examples=few, epochs=2)


SMOKE = LabelMemorization(Dataset("digits"), models=16, examples=200, epochs=10)
PRESETS = {"smoke": SMOKE, "null": replace(SMOKE, unseen=True), "mnist": LabelMemorization()}
AUDIT = Audit(LabelMemorization, plan, PRESETS, tiny, verdict, measures=MEASURES)
