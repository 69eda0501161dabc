"""Can a model's loss distinguish members from other records, and could they be distinguished without the model?

    scores, notes = score_sets(*read_sets((member_images, member_labels), (other_images, other_labels)), model)
    evaluate(scores).auc

The attack uses the loss (Yeom et al. 2018). It is measured by the area under its curve and by its true-positive rate at
low false-positive rates, with thresholds that are set on one half of the non-members and applied to the other half. The
result describes the model only if both sets are samples of the same distribution. A blind control therefore tests the
records alone: classifiers, which never use the model, learn to distinguish the sets on one half of the records and
are evaluated on the other half, and vice versa. If the blind control distinguishes the sets, members that can be
recognised from the data can be recognised with any model, so the loss shows nothing. One classifier knows the labels
alone, whose frequencies the others use too little.

This attack is a quick check. Stronger evidence requires comparison models that were trained without each record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Estimate
from tasks.datasets.images import blocks
from tasks.external.audit_inputs import Records, RecordSet, check_distinct
from tasks.external.audited_model import Scores, ask_model
from tasks.numerics import seeds, statistics
from tasks.numerics.ranks import area_under_curve

Array = NDArray[Any]
Floats = NDArray[np.float64]

RATES = (0.001, 0.01, 0.1)  # nominal false-positive rates
BLIND_LEVEL = 0.05  # significance level of the blind control over all its tests
MOST_BLIND = 5_000  # records per set in the blind control
MOST_PIXELS = 1_024  # values per record in the blind control: every k-th value
COMPONENTS = 32  # principal components used by the linear classifier
TREES = 100
BATCH = 256
CLASSIFIERS = ("linear", "forest", "labels")
SCORES = pa.schema(
    [
        ("position", pa.int64()),  # in the user's set of members or of non-members
        ("member", pa.bool_()),
        ("label", pa.int64()),
        ("log_p", pa.float64()),  # of the label by the model, in nats
        ("correct", pa.bool_()),  # whether the model labels the record correctly; null if unknown
        ("sets_threshold", pa.bool_()),  # one half of the non-members, at random; null for members
        ("half", pa.int64()),  # half of the blind control that evaluates the record, 0 or 1; null outside its sample
        *((f"blind_{name}", pa.float64()) for name in CLASSIFIERS),  # P(member) without the model; null likewise
    ]
)


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
    non-members.
    """

    auc: Estimate
    rates: tuple[LowRate, ...]
    blind_auc: Estimate
    blind_p: float
    members: int
    nonmembers: int


def score_sets(
    inside: RecordSet, outside: RecordSet, model: Any, batch: int = BATCH, seed: int = 0
) -> tuple[pa.Table, tuple[str, ...]]:
    """Score both sets with a model and without it (SCORES), and describe how the records were converted.

    `model` is a torch module, which is put into evaluation mode, a function of a batch of images, or the path of a
    model file (`docs/external_models.md`). It returns logits (batch, classes): as a tensor or array, as `.logits`, or
    as the only output of this shape. Images are passed to the model unchanged or, if it does not accept them, scaled
    from [0, 255] to [0, 1] or with channels first.

    Raises ValueError if the model cannot be evaluated, or if the sets share a record.
    """
    if not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch is {batch!r}; expected a number of images of at least 1")
    scores, (inside, outside) = ask_model(model, (inside, outside), batch)
    check_distinct(inside, outside)
    return score_table(scores, (inside, outside), seed), (*inside.notes, *outside.notes)


def score_table(scores: tuple[Scores, Scores], sets: tuple[RecordSet, RecordSet], seed: int) -> pa.Table:
    """Score both sets without the model, and join these scores to the given ones of a model (SCORES)."""
    blind, samples = _blind_sample([(records.images, records.labels) for records in sets], seed)
    sets_threshold = np.zeros(len(sets[1].labels), dtype=bool)
    sets_threshold[seeds.generator(seed, "threshold").permutation(len(sets_threshold))[::2]] = True
    tables = []
    start = 0
    for is_member, model_scores, records, sample in zip((True, False), scores, sets, samples, strict=True):
        places = slice(start, start + len(sample))
        columns: dict[str, Array] = {"half": blind.half[places]}
        columns |= {f"blind_{name}": blind.scores[number, places] for number, name in enumerate(CLASSIFIERS)}
        start += len(sample)
        tables.append(
            make_table(
                SCORES,
                position=records.rows(),
                member=is_member,
                label=records.labels,
                log_p=model_scores.log_p,
                correct=model_scores.correct,
                sets_threshold=None if is_member else sets_threshold,
                **{name: _spread(values, sample, len(records.labels)) for name, values in columns.items()},
            )
        )
    return pa.concat_tables(tables)


def _spread(values: Array, rows: Array, count: int) -> pa.Array:
    """Return a column of `count` values, which is null outside these rows."""
    column = np.full(count, np.nan)
    column[rows] = values
    return nan_as_null(column).cast(pa.int64()) if values.dtype.kind == "i" else nan_as_null(column)


def evaluate(scores: pa.Table) -> SplitAudit:
    """Evaluate the loss attack and the blind control from SCORES.

    Raises ValueError if the scores lack one of the sets, or the sample of the blind control.
    """
    members, nonmembers = (
        scores.filter(np.asarray(scores["member"]) == is_member)["log_p"].to_numpy() for is_member in (True, False)
    )
    if not len(members) or not len(nonmembers):
        raise ValueError(f"expected scores of members and of non-members, got {len(members)} and {len(nonmembers)}")
    auc = interval_of_area(area_under_curve(members, nonmembers), len(members), len(nonmembers))
    sample = scores.filter(scores["half"].is_valid())
    blind = BlindScores(
        np.stack([sample[f"blind_{name}"].to_numpy() for name in CLASSIFIERS]), sample["half"].to_numpy()
    )
    blind_auc, blind_p = blind_result(blind, np.asarray(sample["member"]))
    sets_threshold = scores["sets_threshold"].drop_null().to_numpy()
    rates = tuple(low_rates(members, nonmembers[sets_threshold], nonmembers[~sets_threshold]))
    return SplitAudit(auc, rates, blind_auc, blind_p, len(members), len(nonmembers))


LabelledRecords = tuple[Records, NDArray[np.int64]]


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


def low_rates(members: Floats, threshold_scores: Floats, tested_nonmembers: Floats) -> Iterator[LowRate]:
    """Yield the attack at each of RATES for which there are enough non-members to set a threshold.

    The threshold is the k-th highest score of h non-members, k = floor(rate (h + 1)). Another non-member exceeds it
    with a probability of at most the rate.
    """
    threshold_scores = np.sort(threshold_scores)[::-1]
    for rate in RATES:
        rank = math.floor(rate * (len(threshold_scores) + 1))
        if rank:
            above = (
                (int((scores > threshold_scores[rank - 1]).sum()), len(scores))
                for scores in (members, tested_nonmembers)
            )
            yield LowRate(rate, *(statistics.exact_proportion(*counts) for counts in above))


@dataclass(frozen=True, eq=False)
class BlindScores:
    """P(member) by classifiers that never use the model, (classifiers, records).

    Each classifier is trained on one half of the records and scores the other, which `half` (records,) numbers.
    """

    scores: Floats
    half: NDArray[np.int64]


def blind_control(inside: LabelledRecords, outside: LabelledRecords, seed: int) -> tuple[Estimate, float]:
    """Test whether the sets can be distinguished without the model, on a sample of each: `blind_result`."""
    blind, samples = _blind_sample((inside, outside), seed)
    return blind_result(blind, np.arange(len(blind.half)) < len(samples[0]))


def _blind_sample(sets: Sequence[LabelledRecords], seed: int) -> tuple[BlindScores, list[NDArray[np.int64]]]:
    """Score a sample of each set without the model. Also return the sampled rows of each set."""
    stream = seeds.generator(seed, "blind control")
    samples = [stream.permutation(len(labels))[:MOST_BLIND] for _, labels in sets]
    labels = np.concatenate([labels[rows] for (_, labels), rows in zip(sets, samples, strict=True)])
    values = []
    for (images, _), rows in zip(sets, samples, strict=True):
        values += [_describe_values(images[block]) for block in blocks(rows, images.shape[1:])]
    features = np.hstack([np.concatenate(values), labels[:, None] == np.unique(labels)])
    return blind_scores(features, len(samples[0]), seed, len(np.unique(labels))), samples


def blind_areas(features: Floats, members: int, seed: int) -> tuple[Estimate, float]:
    """Return the largest area under the curve of classifiers of features (records, n), and its p-value.

    The first `members` records form one set.
    """
    return blind_result(blind_scores(features, members, seed), np.arange(len(features)) < members)


def blind_scores(features: Floats, members: int, seed: int, classes: int = 0) -> BlindScores:
    """Score each record by classifiers of features (records, n) that were trained on the other half of both sets.

    The first `members` records form one set. The last `classes` features mark the labels; without any, no classifier
    knows the labels alone.
    """
    nonmembers = len(features) - members
    is_first_set = np.arange(len(features)) < members
    half_of = np.concatenate([np.arange(members), np.arange(nonmembers)]) % 2
    classifiers = _blind_classifiers(seed, min(features.shape[1], len(features) // 2 - 1), classes)
    scores = np.empty((len(classifiers), len(features)))
    for number, classifier in enumerate(classifiers):
        for half in (0, 1):
            is_test = half_of == half
            classifier.fit(features[~is_test], is_first_set[~is_test])
            scores[number, is_test] = classifier.predict_proba(features[is_test])[:, 1]
    return BlindScores(scores, half_of)


def blind_result(blind: BlindScores, is_member: NDArray[np.bool_]) -> tuple[Estimate, float]:
    """Return the largest area under the curve over the classifiers, and its p-value.

    No classifier scores records that it was trained on, so Mann and Whitney's test of its scores is valid. The p-value
    is the smallest over classifiers and halves, times their number (Bonferroni).
    """
    from scipy import stats

    areas = []
    p_values = []
    for scores in blind.scores:
        half_areas = []
        for half in (1, 0):
            inside = scores[(blind.half == half) & is_member]
            outside = scores[(blind.half == half) & ~is_member]
            half_areas.append(area_under_curve(inside, outside))
            p_values.append(float(stats.mannwhitneyu(inside, outside, alternative="greater").pvalue))
        areas.append(float(np.mean(half_areas)))
    members = int(is_member.sum())
    area = interval_of_area(max(areas), members, len(is_member) - members)
    return area, min(1.0, len(p_values) * min(p_values))


def _describe_values(images: Array) -> Floats:
    """Return features of each record: its values, their mean, spread, extremes and differences."""
    values = images.reshape(len(images), -1).astype(np.float64)
    moments = [values.mean(1), values.std(1), values.min(1), values.max(1), np.abs(np.diff(values, axis=1)).mean(1)]
    return np.hstack([values[:, :: math.ceil(values.shape[1] / MOST_PIXELS)], np.stack(moments, 1)])


def _blind_classifiers(seed: int, max_components: int, classes: int) -> Sequence[Any]:
    """Return a linear classifier with at most `max_components` components, a random forest, and one of the labels."""
    from sklearn.decomposition import PCA
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    state = seeds.derive(seed, "classifiers") % 2**32
    components = PCA(min(COMPONENTS, max_components), random_state=state)
    linear = make_pipeline(StandardScaler(), components, LogisticRegression(max_iter=1000))
    forest = RandomForestClassifier(TREES, min_samples_leaf=3, random_state=state)
    if not classes:
        return linear, forest
    labels = make_pipeline(FunctionTransformer(_select_last, kw_args={"count": classes}), LogisticRegression())
    return linear, forest, labels


def _select_last(features: Floats, count: int) -> Floats:
    return features[:, -count:]
