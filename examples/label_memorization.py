"""Which training labels are memorised?

A network memorises the label of an image if it predicts the label correctly only because it was trained on the image.
Each network is trained on a random share of the images, so that for every image some networks were trained on it.

    mem(i) = P[correct on i | trained on i] - P[correct on i | not trained on i]

Interpretation. 0: training on the image makes no difference. 1: only networks trained on the image predict its label,
as for a wrong label. The mean over images is the difference in accuracy between images a network was trained on and
other images; every training gives one value. With few networks, the mem of one image is noisy, so the share of images
with high mem has a null value: the answers of each network are matched with the images of another network.

Source. Feldman & Zhang 2020, "What neural networks memorize and why", eq. 1 with the estimator by subsets of section
2.2, which also uses 0.25 as the limit of high mem. The networks, the intervals and the null value are ours.

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
from tasks.datasets.picture_rows import Selected
from tasks.models.catalog import Network
from tasks.numerics import seeds, statistics
from tasks.training.mixed import Mixture, logits, train

Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]
Array = NDArray[np.float64]
MATTERS = 0.01  # smallest relevant mean of mem
SHIFTS = 20  # number of shifts whose mean is the null value of the share


@dataclass(frozen=True)
class LabelMemorization(Ranged):
    """Configuration: images, networks, share of the images and training recipe."""

    data: Dataset = Dataset("mnist")
    """The images."""
    network: Network = Network("mlp1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""
    models: Annotated[int, AtLeast(2)] = 100
    """Number of networks."""
    share: Annotated[float, ranges.Share(zero=False, one=False)] = 0.7
    """Random share of the images that each network is trained on."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of training images; 0: all."""
    epochs: Annotated[int, AtLeast(1)] = 20
    """Epochs of training."""
    high: Annotated[float, ranges.Share(zero=False, one=False)] = 0.25
    """Lower limit of high mem."""
    unseen: bool = False
    """Ours: evaluate images that follow the training images, as a null."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: seed of all random numbers."""

    def conflicts(self) -> Iterator[str]:
        if self.unseen and not self.examples:
            yield "unseen is on and examples is 0; some images must remain for evaluation"


def plan(config: LabelMemorization) -> Roots:
    return roots(MEASURES, config, tuple(answer_jobs(config)), lambda read: Job(summary, High(config.high), read))


def answer_jobs(config: LabelMemorization) -> Iterator[Job]:
    """Yield the answers of each network. Seeds depend on the number, so ten networks are the first ten of a hundred."""
    images = load(config.data)
    trained = Part(config.data, 0, config.examples)
    about = replace(trained, first=config.examples) if config.unseen else trained
    about.rows(images)  # raises an error if there are too few images
    for number in range(config.models):
        seed = seeds.derive(config.seed, "training", number)
        shares = (Share(trained, config.share, seed),)
        model = Mixture(shares, config.data, images.classes, config.network, seed=seed, epochs=config.epochs)
        yield Job(answers, Share(about, config.share, seed), (Job(train, model),))


ANSWERS = pa.schema([("row", pa.int64()), ("member", pa.bool_()), ("correct", pa.bool_())])


@task(version=2)
def answers(config: Share, inputs: Inputs) -> pa.Table:
    """For each image, whether the network was trained on it, and whether the network classifies it correctly.

    Exact copies count as one image in one share; the first copy is evaluated.
    """
    from tasks.models.networks import (
        architecture_of,
        weights_of_model,  # imports torch, which planning does not need
    )

    images = load(config.part.data)
    rows = distinct_rows(images, config.part.rows(images))
    scores = logits(architecture_of(inputs[0]), weights_of_model(inputs[0]), Selected(images.train, rows))
    correct = scores.argmax(axis=1) == images.train.labels[rows]
    return make_table(ANSWERS, row=rows, member=np.isin(rows, config.rows(images)), correct=correct)


def stacked(inputs: Inputs) -> tuple[Mask, Mask]:
    """The images that each network was trained on, and the correctly classified ones; both (models, images)."""
    member, correct = (np.stack([table[name].to_numpy() for table in inputs]) for name in ("member", "correct"))
    return member, correct


def counts(member: Mask, correct: Mask) -> Counts:
    """Count trained, correct trained, held-out and correct held-out networks for each image: (4, images)."""
    return np.stack([member.sum(0), (member & correct).sum(0), (~member).sum(0), (~member & correct).sum(0)])


def memorization(counted: Counts) -> tuple[Array, Array]:
    """Estimate mem and its standard error, both (images,); NaN if all networks, or none, were trained on the image.

    The two rates come from different networks, so their binomial variances add. Feldman & Zhang 2020, eq. 1.
    """
    with np.errstate(invalid="ignore"):
        trained = counted[1] / counted[0]
        held_out = counted[3] / counted[2]
        variance = trained * (1 - trained) / counted[0] + held_out * (1 - held_out) / counted[2]
    return trained - held_out, np.sqrt(variance)


def share_high(counted: Counts, high: float) -> float:
    """The share of images with high mem among images with known mem; NaN without such images."""
    mem, _ = memorization(counted)
    known = mem[~np.isnan(mem)]
    return float((known >= high).mean()) if known.size else np.nan


@dataclass(frozen=True)
class High:
    """The lower limit of high mem."""

    high: float


SIDES = ("trained", "trained_correct", "held_out", "held_out_correct")  # numbers of networks
IMAGES = pa.schema(
    [
        ("row", pa.int64()),  # of the training split
        *((side, pa.int64()) for side in SIDES),
        ("mem", pa.float64()),  # this and the next two are null if all networks, or none, were trained on the image
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
    """Yield the share of images with high mem; its interval is a jackknife over trainings."""
    for table, trained in zip(tables.select(IMAGES), tables.select(TRAININGS), strict=False):
        share = share_high(np.stack([table[side].to_numpy() for side in SIDES]), about.high)
        estimate = statistics.jackknife(share, trained["share_without"].to_numpy())
        null = statistics.mean(trained["share_shifted"].drop_null()).value
        yield row("share of high mem", {"from": about.high}, estimate, "training", null)


TRAININGS = pa.schema(
    [
        ("trained_accuracy", pa.float64()),
        ("held_out_accuracy", pa.float64()),
        ("share_without", pa.float64()),  # share of high mem without this network
        ("share_shifted", pa.float64()),  # share of high mem, answers shifted by this number of networks
    ]
)


@task(version=1, gathers=True)
def trainings(config: High, inputs: Inputs) -> pa.Table:
    member, correct = stacked(inputs)
    counted = counts(member, correct)
    estimates = []
    for number, (its, right) in enumerate(zip(member, correct, strict=True)):
        without = share_high(counted - counts(its[None], right[None]), config.high)
        shifted = counts(np.roll(member, number, axis=0), correct)
        null = share_high(shifted, config.high) if 1 <= number <= SHIFTS else np.nan
        estimates.append((right[its].mean(), right[~its].mean(), without, null))
    columns = zip(TRAININGS.names, np.transpose(estimates), strict=True)
    return make_table(TRAININGS, **{name: nan_as_null(values) for name, values in columns})


def of_trainings(tables: Tables, about: High) -> Iterator[Row]:  # noqa: ARG001 - the mean does not depend on high mem
    """Yield the mean of mem, and the two accuracies of which it is the difference."""
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
    """Memorised: the interval of the mean is above 0, as for 1 in 40 sets of networks without memorisation."""
    limits = "The mean does not describe single images: the table `images` has mem and standard error of each image."
    mean = next((line for line in table.to_pylist() if line["metric"] == "mean mem"), None)
    if mean is None or mean["low"] is None:
        return Verdict("undecided", "Undecided: there are fewer than two networks to compare.", limits, ())
    answer: Answer = "undecided"
    if mean["low"] > 0:
        answer = "memorised"
    elif mean["high"] < MATTERS:
        answer = "not detected"
    sentence = (
        f"{answer.capitalize()}: {'supposed ' if config.unseen else ''}training on an image changes the accuracy of "
        f"its label by {mean['estimate']:.3g} (95 % interval {mean['low']:.3g} to {mean['high']:.3g} over {mean['n']} "
        "trainings)."
    )
    return Verdict(answer, sentence, limits, (("mean mem", "{}"),))


def tiny(config: LabelMemorization) -> LabelMemorization:
    few = min(config.examples or 60, 60)
    return replace(config, data=Dataset("digits"), models=min(config.models, 6), examples=few, epochs=2)


SMOKE = LabelMemorization(Dataset("digits"), models=16, examples=200, epochs=10)
PRESETS = {"smoke": SMOKE, "null": replace(SMOKE, unseen=True), "mnist": LabelMemorization()}
AUDIT = Audit(LabelMemorization, plan, PRESETS, tiny, verdict, measures=MEASURES)
