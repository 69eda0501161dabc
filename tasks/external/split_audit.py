"""Can a model's members be told from other records by its loss, and could they be told without the model?

    result = engram.audit(model, (member_images, member_labels), (other_images, other_labels))
    print(result)

The attack is the loss (Yeom et al. 2018): the area under its curve, and its true-positive rate at low false-positive
rates, whose thresholds are set on one half of the non-members and tried on the other. It says something of the model
only if both sets were drawn alike. So a blind control looks at the records alone: two classifiers, which never see the
model, learn on one half of them what distinguishes the sets, and are tried on the other half, both ways. Where they
tell the sets apart, nothing is judged: members that are told by the data are told by any model.

This is the quick look. Evidence is a split that was drawn at random before training, and models without each record to
compare with: `engram run membership`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tasks.contract.summaries import Estimate, p_in_words
from tasks.external.audit_inputs import check_distinct, read_sets
from tasks.external.audited_model import ask_model
from tasks.numerics import seeds, statistics
from tasks.numerics.ranks import area_under_curve

Array = NDArray[Any]
Floats = NDArray[np.float64]
Answer = Literal["distinguishable", "undecided", "not assessable"]

RATES = (0.001, 0.01, 0.1)  # nominal false-positive rates
BLIND_LEVEL = 0.05  # of the blind control, over all its tests together
MOST_BLIND = 5_000  # records of a set that the blind control looks at
MOST_PIXELS = 1_024  # of a record: every k-th value
COMPONENTS = 32  # of which the linear classifier learns
TREES = 100
BATCH = 256


@dataclass(frozen=True)
class LowRate:
    """The attack at a nominal false-positive rate, whose threshold other non-members set; Clopper-Pearson intervals."""

    nominal: float
    true_positive: Estimate
    false_positive: Estimate


@dataclass(frozen=True)
class SplitAudit:
    """What the loss tells of members, beside what the data tell of them without the model.

    `auc` and `blind_auc` are areas under the curve with 95 % intervals. `blind_p` is the p-value that the sets were
    drawn alike, as far as the blind control sees. `rates` lacks those for which there are too few non-members. `notes`
    say what was done to the records: how they were scaled and laid out, and how many were copies.
    """

    answer: Answer
    auc: Estimate
    rates: tuple[LowRate, ...]
    blind_auc: Estimate
    blind_p: float
    members: int
    nonmembers: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(_describe_lines(self))


def audit(model: Any, members: Any, nonmembers: Any, *, batch: int = BATCH, seed: int = 0) -> SplitAudit:
    """Whether a model's loss tells its members from other records, with a blind control of the two sets.

    `model` is a torch module, which is asked in evaluation mode, a function of a batch of images, or the path of a
    model's file (`docs/external_models.md`). It gives logits (batch, classes): as a tensor or array, as `.logits`,
    or as the only such output of several.

    `members` and `nonmembers` are (images, labels) as arrays, tensors or lists; a data set or data loader of such
    pairs; a table of pandas with a column `label`; or the folder or name of a data set, such as `folder:mine#64x64`.
    Images are given to the model as they are or, if it does not take them so, scaled from [0, 255] to [0, 1] or with
    their channels moved to the front; `notes` of the result say so. Copies within a set count once.

    `seed` draws the halves. Raises ValueError, in one line, for whatever cannot be read or asked.
    """
    if not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch is {batch!r}; it must be a number of images, at least 1")
    inside, outside = read_sets(members, nonmembers)
    (first, second), (inside, outside) = ask_model(model, (inside, outside), batch)
    check_distinct(inside.images, outside.images)
    auc = interval_of_area(area_under_curve(first, second), len(first), len(second))
    blind_auc, blind_p = blind_control((inside.images, inside.labels), (outside.images, outside.labels), seed)
    rates = tuple(low_rates(first, second, seed))
    notes = (*inside.notes, *outside.notes)
    found = answer(auc, blind_auc, blind_p)
    return SplitAudit(found, auc, rates, blind_auc, blind_p, len(first), len(second), notes)


def answer(auc: Estimate, blind_auc: Estimate, blind_p: float) -> Answer:
    """Not assessable where the data alone tell; told apart where the whole interval lies above what they might tell."""
    assert auc.low is not None
    assert blind_auc.high is not None
    if blind_p <= BLIND_LEVEL:
        return "not assessable"
    return "distinguishable" if auc.low > max(0.5, blind_auc.high) else "undecided"


def _describe_lines(result: SplitAudit) -> Iterator[str]:
    """The answer, the evidence and what would make it more, line by line."""
    blind = f"{_in_words(result.blind_auc)}, {p_in_words(result.blind_p)} that the sets were drawn alike"
    match result.answer:
        case "not assessable":
            yield "Not assessable: members can be distinguished from non-members without the model."
        case "distinguishable":
            yield "Distinguishable: the model's loss tells members from non-members, and the data alone do not."
        case _:
            yield "Undecided: the loss tells no more of members than the data alone might; other attacks may tell more."
    yield f"members {result.members:,}, non-members {result.nonmembers:,}"
    yield from result.notes
    yield f"loss attack, area under the curve  {_in_words(result.auc)}; .5 where nothing is told"
    for rate in result.rates:
        true, false = _in_percent(rate.true_positive), _in_percent(rate.false_positive)
        yield f"true-positive rate at {100 * rate.nominal:g} %        {true}; false-positive rate there {false}"
    yield f"blind control, without the model   {blind}"
    yield (
        "Evidence needs a split that was drawn at random before training, and models without each record to compare "
        "with: engram run membership"
    )


def _in_words(area: Estimate) -> str:
    return f"{area.value:.3f} [{area.low:.3f}, {area.high:.3f}]"


def _in_percent(share: Estimate) -> str:
    assert share.value is not None
    assert share.low is not None
    assert share.high is not None
    return f"{100 * share.value:.2g} % [{100 * share.low:.2g}, {100 * share.high:.2g}]"


Records = tuple[Array, NDArray[np.int64]]


def interval_of_area(area: float, positive: int, negative: int) -> Estimate:
    """The area under a curve with the 95 % score interval of Newcombe 2006, method 5; n counts all records.

    It holds all areas A that lie no further from the estimate than 1.96 sqrt(V(A)), where for N = (m + n) / 2

        V(A) = A (1 - A) / (m n) (1 + (N - 1) ((1 - A) / (2 - A) + A / (1 + A)))

    At A = 1/2 that is the variance of Mann and Whitney's U for m = n, and it does not vanish at an estimate of 0 or 1.
    """
    from scipy import optimize, stats

    half, pairs = (positive + negative) / 2, positive * negative
    z = float(stats.norm.ppf(0.975))

    def excess(at: float) -> float:
        variance = at * (1 - at) / pairs * (1 + (half - 1) * ((1 - at) / (2 - at) + at / (1 + at)))
        return (area - at) ** 2 - z**2 * variance

    inner = min(max(area, 1e-12), 1 - 1e-12)  # the variance vanishes at 0 and 1, where the interval does not end
    low = 0.0 if area <= 0 else float(optimize.brentq(excess, 0.0, inner))
    high = 1.0 if area >= 1 else float(optimize.brentq(excess, inner, 1.0))
    return Estimate(area, low, high, positive + negative)


def low_rates(members: Floats, nonmembers: Floats, seed: int) -> Iterator[LowRate]:
    """The attack at each of RATES for which half of the non-members suffice to set a threshold.

    Of h non-members the k-th highest score is the threshold, k = floor(rate (h + 1)): another non-member exceeds it
    with a probability of at most the rate.
    """
    order = seeds.generator(seed, "threshold").permutation(len(nonmembers))
    setting, trying = np.sort(nonmembers[order[::2]])[::-1], nonmembers[order[1::2]]
    for rate in RATES:
        place = math.floor(rate * (len(setting) + 1))
        if place:
            above = ((int((scores > setting[place - 1]).sum()), len(scores)) for scores in (members, trying))
            yield LowRate(rate, *(statistics.exact_proportion(*counts) for counts in above))


def blind_control(inside: Records, outside: Records, seed: int) -> tuple[Estimate, float]:
    """How well the sets are told apart without the model: `blind_areas` of some records of each."""
    stream = seeds.generator(seed, "blind control")
    drawn = [stream.permutation(len(labels))[:MOST_BLIND] for _, labels in (inside, outside)]
    features = _blind_features(
        np.concatenate([images[rows] for (images, _), rows in zip((inside, outside), drawn, strict=True)]),
        np.concatenate([labels[rows] for (_, labels), rows in zip((inside, outside), drawn, strict=True)]),
    )
    return blind_areas(features, len(drawn[0]), seed)


def blind_areas(features: Floats, members: int, seed: int) -> tuple[Estimate, float]:
    """The larger area under the curve of two classifiers of features, (records, n), and the p-value of none.

    The first `members` records are one set. Each classifier is tried on records that it did not learn from, so that
    Mann and Whitney's test of its scores is sound whatever it learnt; p is the smallest of four, times four
    (Bonferroni).
    """
    from scipy import stats

    others = len(features) - members
    member = np.arange(len(features)) < members
    place = np.concatenate([np.arange(members), np.arange(others)])
    areas, p_values = [], []
    for classifier in _blind_classifiers(seed, min(features.shape[1], len(features) // 2 - 1)):
        both = []
        for half in (0, 1):
            learn, trial = place % 2 == half, place % 2 != half
            classifier.fit(features[learn], member[learn])
            scores, side = classifier.predict_proba(features[trial])[:, 1], member[trial]
            both.append(area_under_curve(scores[side], scores[~side]))
            p_values.append(float(stats.mannwhitneyu(scores[side], scores[~side], alternative="greater").pvalue))
        areas.append(float(np.mean(both)))
    return interval_of_area(max(areas), members, others), min(1.0, len(p_values) * min(p_values))


def _blind_features(images: Array, labels: NDArray[np.int64]) -> Floats:
    """What the classifiers see of each record: its values, their mean, spread, ends and differences, and its label."""
    values = images.reshape(len(images), -1).astype(np.float64)
    moments = [values.mean(1), values.std(1), values.min(1), values.max(1), np.abs(np.diff(values, axis=1)).mean(1)]
    classes = np.unique(labels)
    return np.hstack(
        [values[:, :: math.ceil(values.shape[1] / MOST_PIXELS)], np.stack(moments, 1), labels[:, None] == classes]
    )


def _blind_classifiers(seed: int, most: int) -> Sequence[Any]:
    """One that adds up, of at most so many components, and one that finds corners."""
    from sklearn.decomposition import PCA
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    state = seeds.derive(seed, "classifiers") % 2**32
    components = PCA(min(COMPONENTS, most), random_state=state)
    linear = make_pipeline(StandardScaler(), components, LogisticRegression(max_iter=1000))
    return linear, RandomForestClassifier(TREES, min_samples_leaf=3, random_state=state)
