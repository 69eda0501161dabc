"""Can a model's loss distinguish members from other records, and could they be distinguished without the model?

    result = engram.audit(model, (member_images, member_labels), (other_images, other_labels))
    print(result)

The attack uses the loss (Yeom et al. 2018). It is measured by the area under its curve and by its true-positive rate at
low false-positive rates, with thresholds that are set on one half of the non-members and applied to the other half. The
result describes the model only if both sets are samples of the same distribution. A blind control therefore tests the
records alone: two classifiers, which never use the model, learn to distinguish the sets on one half of the records and
are evaluated on the other half, and vice versa. If the blind control distinguishes the sets, the answer is *not
assessable*: members that can be recognised from the data can be recognised with any model.

This audit is a quick check. Stronger evidence requires a random split before training and comparison models that were
trained without each record: `engram run membership`.
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
BLIND_LEVEL = 0.05  # significance level of the blind control over all its tests
MOST_BLIND = 5_000  # records per set in the blind control
MOST_PIXELS = 1_024  # values per record in the blind control: every k-th value
COMPONENTS = 32  # principal components used by the linear classifier
TREES = 100
BATCH = 256


@dataclass(frozen=True)
class LowRate:
    """The attack at a nominal false-positive rate, with a threshold set on other non-members and exact intervals."""

    nominal: float
    true_positive: Estimate
    false_positive: Estimate


@dataclass(frozen=True)
class SplitAudit:
    """The results of the loss attack and of the blind control, which does not use the model.

    `auc` and `blind_auc` are areas under the curve with 95 % intervals. `blind_p` is the p-value of the blind control
    for the hypothesis that both sets have the same distribution. `rates` omits rates that would require more
    non-members. `notes` describe how the records were converted: scale, layout and the number of copies.
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
    """Test whether a model's loss distinguishes its members from other records, with a blind control on the two sets.

    `model` is a torch module, which is put into evaluation mode, a function of a batch of images, or the path of a
    model file (`docs/external_models.md`). It returns logits (batch, classes): as a tensor or array, as `.logits`, or
    as the only output of this shape.

    `members` and `nonmembers` are (images, labels) as arrays, tensors or lists; a data set or data loader of such
    pairs; a pandas data frame with a column `label`; or the folder or name of a data set, such as `folder:mine#64x64`.
    Images are passed to the model unchanged or, if it does not accept them, scaled from [0, 255] to [0, 1] or with
    channels first; the result's `notes` report this. Copies within a set count once.

    `seed` determines the halves. Raises ValueError if the records cannot be read or the model cannot be evaluated.
    """
    if not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch is {batch!r}; expected a number of images of at least 1")
    inside, outside = read_sets(members, nonmembers)
    (first, second), (inside, outside) = ask_model(model, (inside, outside), batch)
    check_distinct(inside.images, outside.images)
    auc = interval_of_area(area_under_curve(first, second), len(first), len(second))
    blind_auc, blind_p = blind_control((inside.images, inside.labels), (outside.images, outside.labels), seed)
    rates = tuple(low_rates(first, second, seed))
    notes = (*inside.notes, *outside.notes)
    finding = answer(auc, blind_auc, blind_p)
    return SplitAudit(finding, auc, rates, blind_auc, blind_p, len(first), len(second), notes)


def answer(auc: Estimate, blind_auc: Estimate, blind_p: float) -> Answer:
    """Return the answer of the audit.

    It is *not assessable* if the blind control is significant, and *distinguishable* if the interval of the area is
    above that of the blind control.
    """
    assert auc.low is not None
    assert blind_auc.high is not None
    if blind_p <= BLIND_LEVEL:
        return "not assessable"
    if auc.low > max(0.5, blind_auc.high):
        return "distinguishable"
    return "undecided"


def _describe_lines(result: SplitAudit) -> Iterator[str]:
    """Yield the lines of the report: answer, evidence and next step."""
    p_value = p_in_words(result.blind_p)
    blind = f"{_in_words(result.blind_auc)}, {p_value} for the hypothesis that both sets have the same distribution"
    match result.answer:
        case "not assessable":
            yield "Not assessable: members can be distinguished from non-members without the model."
        case "distinguishable":
            yield "Distinguishable: the model's loss separates members from non-members, but the data alone do not."
        case _:
            yield "Undecided: the loss separates members no better than the data alone might. Try other attacks."
    yield f"members {result.members:,}, non-members {result.nonmembers:,}"
    yield from result.notes
    yield f"loss attack, area under the curve  {_in_words(result.auc)}; .5 without any leak"
    for rate in result.rates:
        true = _in_percent(rate.true_positive)
        false = _in_percent(rate.false_positive)
        yield f"true-positive rate at {100 * rate.nominal:g} %        {true}; measured false-positive rate {false}"
    yield f"blind control, without the model   {blind}"
    yield (
        "Stronger evidence requires a random split before training and comparison models without each record: "
        "engram run membership"
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
    """Return the area under a curve with the 95 % score interval of Newcombe 2006, method 5. n counts all records.

    The interval contains all areas A within 1.96 sqrt(V(A)) of the estimate, where for N = (m + n) / 2

        V(A) = A (1 - A) / (m n) (1 + (N - 1) ((1 - A) / (2 - A) + A / (1 + A)))

    At A = 1/2, this is the variance of Mann and Whitney's U for m = n. The interval has a positive width at estimates
    of 0 and 1.
    """
    from scipy import optimize, stats

    half = (positive + negative) / 2
    pairs = positive * negative
    z = float(stats.norm.ppf(0.975))

    def excess(trial_area: float) -> float:
        variance = (
            trial_area
            * (1 - trial_area)
            / pairs
            * (1 + (half - 1) * ((1 - trial_area) / (2 - trial_area) + trial_area / (1 + trial_area)))
        )
        return (area - trial_area) ** 2 - z**2 * variance

    inner = min(max(area, 1e-12), 1 - 1e-12)  # the variance is 0 at 0 and 1, which are not limits of the interval
    low = 0.0 if area <= 0 else float(optimize.brentq(excess, 0.0, inner))
    high = 1.0 if area >= 1 else float(optimize.brentq(excess, inner, 1.0))
    return Estimate(area, low, high, positive + negative)


def low_rates(members: Floats, nonmembers: Floats, seed: int) -> Iterator[LowRate]:
    """Yield the attack at each of RATES for which half of the non-members suffice to set a threshold.

    The threshold is the k-th highest score of h non-members, k = floor(rate (h + 1)). Another non-member exceeds it
    with a probability of at most the rate.
    """
    order = seeds.generator(seed, "threshold").permutation(len(nonmembers))
    threshold_scores = np.sort(nonmembers[order[::2]])[::-1]
    tested_nonmembers = nonmembers[order[1::2]]
    for rate in RATES:
        rank = math.floor(rate * (len(threshold_scores) + 1))
        if rank:
            above = (
                (int((scores > threshold_scores[rank - 1]).sum()), len(scores))
                for scores in (members, tested_nonmembers)
            )
            yield LowRate(rate, *(statistics.exact_proportion(*counts) for counts in above))


def blind_control(inside: Records, outside: Records, seed: int) -> tuple[Estimate, float]:
    """Test whether the sets can be distinguished without the model: `blind_areas` on a sample of each."""
    stream = seeds.generator(seed, "blind control")
    samples = [stream.permutation(len(labels))[:MOST_BLIND] for _, labels in (inside, outside)]
    features = _blind_features(
        np.concatenate([images[rows] for (images, _), rows in zip((inside, outside), samples, strict=True)]),
        np.concatenate([labels[rows] for (_, labels), rows in zip((inside, outside), samples, strict=True)]),
    )
    return blind_areas(features, len(samples[0]), seed)


def blind_areas(features: Floats, members: int, seed: int) -> tuple[Estimate, float]:
    """Return the larger area under the curve of two classifiers of features (records, n), and its p-value.

    The first `members` records form one set. Each classifier is evaluated on records that it was not trained on, so
    Mann and Whitney's test of its scores is valid. The p-value is the smallest of four, times four (Bonferroni).
    """
    from scipy import stats

    nonmembers = len(features) - members
    is_first_set = np.arange(len(features)) < members
    position = np.concatenate([np.arange(members), np.arange(nonmembers)])
    areas = []
    p_values = []
    for classifier in _blind_classifiers(seed, min(features.shape[1], len(features) // 2 - 1)):
        half_areas = []
        for half in (0, 1):
            is_training = position % 2 == half
            is_test = position % 2 != half
            classifier.fit(features[is_training], is_first_set[is_training])
            scores = classifier.predict_proba(features[is_test])[:, 1]
            is_member = is_first_set[is_test]
            half_areas.append(area_under_curve(scores[is_member], scores[~is_member]))
            p_values.append(
                float(stats.mannwhitneyu(scores[is_member], scores[~is_member], alternative="greater").pvalue)
            )
        areas.append(float(np.mean(half_areas)))
    return interval_of_area(max(areas), members, nonmembers), min(1.0, len(p_values) * min(p_values))


def _blind_features(images: Array, labels: NDArray[np.int64]) -> Floats:
    """Return each record's features: its values, their mean, spread, extremes and differences, and its label."""
    values = images.reshape(len(images), -1).astype(np.float64)
    moments = [values.mean(1), values.std(1), values.min(1), values.max(1), np.abs(np.diff(values, axis=1)).mean(1)]
    classes = np.unique(labels)
    return np.hstack(
        [values[:, :: math.ceil(values.shape[1] / MOST_PIXELS)], np.stack(moments, 1), labels[:, None] == classes]
    )


def _blind_classifiers(seed: int, max_components: int) -> Sequence[Any]:
    """Return a linear classifier with at most `max_components` components, and a random forest."""
    from sklearn.decomposition import PCA
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    state = seeds.derive(seed, "classifiers") % 2**32
    components = PCA(min(COMPONENTS, max_components), random_state=state)
    linear = make_pipeline(StandardScaler(), components, LogisticRegression(max_iter=1000))
    return linear, RandomForestClassifier(TREES, min_samples_leaf=3, random_state=state)
