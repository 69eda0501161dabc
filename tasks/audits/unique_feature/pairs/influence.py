"""Relation between memory and self-influence: all training images, and the ends from which canaries are chosen.

The table `influence` lists all training images, and `chosen` the images that carry the feature, which have the highest
and the lowest self-influence (`canary_selection`). The summary contains Pearson's correlation of the canaries'
self-influence with M, as in the paper, with a permutation p-value but without an interval: the two ends of a
distribution give no estimate of the correlation over all images. It also contains Spearman's correlation over these
ends, with a bootstrap interval within each end, and the effect at both ends. The null is the correlation with M of the
control models, which were trained without the feature.

The table `traced` shows the effect of the feature on the self-influence of the image that carries it: the images with
the highest and the lowest self-influence are traced again with the feature, in a training of the same seed. In the
paper, the feature raises the lowest value to about the highest. The published numbers have the magnitude of sums of
squared slopes without the learning rate, so they are compared with these.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", sections 3.1.1 and
3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.pairs.canary_scores import CANARY_SCORES
from tasks.audits.unique_feature.pairs.canary_selection import (
    CHOSEN,
    INFLUENCE,
    RankedImage,
    Tracing,
    canary_row,
    influence,
)
from tasks.audits.unique_feature.pairs.units import Units, column, effect_row, units
from tasks.audits.unique_feature.presets import PublishedCell, PublishedNumbers
from tasks.audits.unique_feature.questions import CanaryPairs, SelfInfluenceChoice
from tasks.audits.unique_feature.trainings import Ranking, Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.numerics import seeds
from tasks.numerics.statistics import correlation, rank_correlation

DRAWS = 2000


def _plan_all(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    """Plan the self-influence of every training image, if canaries are chosen by it."""
    ranking = trainings.ranking
    if ranking is not None and _is_shown(design):
        return (ranking.influence,)
    return ()


def _plan_chosen(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    """Plan the table of canaries chosen by self-influence."""
    ranking = trainings.ranking
    if ranking is not None and _is_shown(design):
        return (ranking.selection,)
    return ()


def _is_shown(design: Design) -> bool:
    """Return whether self-influence has its own tables: with scores, or if images are traced with the feature."""
    return design.asks_for("scores") or _is_traced_again(design)


def _is_traced_again(design: Design) -> bool:
    """Return whether the image at each end is traced again with the feature."""
    if isinstance(design.question, CanaryPairs):
        choice = design.question.choice
    else:
        choice = None
    return isinstance(choice, SelfInfluenceChoice) and choice.with_feature


def rows(tables: Tables, about: PublishedCell) -> Iterator[Row]:
    scores = tables.one(CANARY_SCORES)
    chosen_table = tables.one(CHOSEN)
    if scores is not None and chosen_table is not None:
        yield from correlation_rows(units(scores.to_pylist()), chosen_table.to_pylist(), about.numbers)


def correlation_rows(canaries: Units, chosen_table: Sequence[Row], published: PublishedNumbers) -> Iterator[Row]:
    """Yield correlations of the canaries' self-influence with M and with the effect, and the effect at both ends."""
    influence = {image["row"]: image["self_influence"] for image in chosen_table}
    present = [pair for pair in canaries.rows if pair["canary"] in influence]
    traced = [influence[pair["canary"]] for pair in present]
    end = {image["row"]: image["end"] for image in chosen_table}
    ends = [end[pair["canary"]] for pair in present]
    twin_m = column(present, "twin_m")
    twin = correlation(traced, twin_m).estimate.value
    twin_rank = rank_correlation(traced, twin_m).estimate.value
    for metric, name, null, rank_null, number in (
        ("M", "m", twin, twin_rank, published.correlation),
        ("M effect", "m_effect", 0.0, 0.0, None),
        ("M_w effect", "m_w_probe_effect", 0.0, 0.0, None),
    ):
        values = column(present, name)
        pearson = correlation(traced, values).estimate.value
        if pearson is None:
            p_value = None
        else:
            p_value = _permutation_p_value(traced, values)
        printed = f"correlation of self-influence and {metric}"
        yield row(printed, {"of": "both ends"}, alone(pearson, len(values)), "canary", null, p_value, number)
        spearman = spearman_estimate(traced, values, ends)
        if spearman.value is None:
            p_value = None
        else:
            p_value = _permutation_p_value(rankdata(traced), rankdata(values))
        yield row(f"rank {printed}", {"of": "both ends"}, spearman, "canary", rank_null, p_value)
    for side in ("highest", "lowest"):
        pairs = [pair for pair in present if end[pair["canary"]] == side]
        if pairs:
            yield effect_row(
                "M_w effect", {"images": "probe", "self-influence": side}, pairs, "m_w_probe", canaries.pair
            )


def spearman_estimate(
    first: Sequence[float], second: Sequence[float], ends: Sequence[str], draws: int = DRAWS
) -> Estimate:
    """Return Spearman's rho with the 95 % percentile interval of bootstrap samples within each end.

    The value is None if there are fewer than 4 canaries.
    """
    value = rank_correlation(first, second).estimate.value
    n = len(first)
    if value is None:
        return Estimate(None, None, None, n)
    random = seeds.generator(0, "bootstrap of a rank correlation")
    a, b = np.array(first), np.array(second)
    groups = [np.flatnonzero(np.array(ends) == end) for end in dict.fromkeys(ends)]
    rows = np.concatenate([random.choice(group, (draws, len(group))) for group in groups], axis=1)
    rhos = _pearson_rows(rankdata(a[rows]), rankdata(b[rows]))
    low, high = np.nanquantile(rhos, (0.025, 0.975))
    return Estimate(value, float(low), float(high), n)


def _permutation_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Return the two-tailed p-value of Pearson's correlation by DRAWS permutations.

    It is (1 + number of permutations with a correlation as large) / (1 + DRAWS).
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    draws = seeds.generator(0, "permutations of a correlation")
    shuffled = draws.permuted(np.tile(a, (DRAWS, 1)), axis=1)
    larger = np.abs(_pearson_rows(np.concatenate([a[None], shuffled]), b))
    return float(np.mean(larger >= larger[0] - 1e-12))


def _pearson_rows(firsts: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Pearson's r for each row. Both arrays are (rows, n), or the second is (n,). NaN if one has no variance."""
    a = firsts - firsts.mean(axis=-1, keepdims=True)
    b = seconds - seconds.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a * b).sum(axis=-1) / np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1)))


def rankdata(values: ArrayLike) -> NDArray[np.float64]:
    """Return the ranks along the last axis. Ties get their mean rank."""
    from scipy import stats

    return np.asarray(stats.rankdata(values, axis=-1), dtype=np.float64)


# The change caused by the feature

TRACED = pa.schema(
    [
        ("end", pa.string()),  # highest or lowest, among all training images without the feature
        ("with_feature", pa.bool_()),
        *INFLUENCE,
        ("share_below", pa.float64()),  # share of the same model's training images that have less self-influence
    ]
)


@dataclass(frozen=True)
class InfluenceChange:
    """The image, named by its rank."""

    canary: RankedImage


@task(version=1, name="unique_feature.traced")
def influence_change(config: InfluenceChange, inputs: Inputs) -> pa.Table:
    """Compare the image's self-influence in the models trained without and with the feature (TRACED).

    The inputs are the chosen canaries, and the influences in the two models, which had the same seed.
    """
    chosen_row, before, after = inputs
    assert chosen_row.schema == CHOSEN
    canary = canary_row(config.canary, (chosen_row,))
    traced_twice = []
    for with_feature, table in ((False, before), (True, after)):
        values = table["self_influence"].to_numpy()
        (image,) = table.slice(_row_index(table, canary), 1).to_pylist()
        below = float((values < image["self_influence"]).mean())
        traced_twice.append({"end": config.canary.end, "with_feature": with_feature, "share_below": below} | image)
    return pa.Table.from_pylist(traced_twice, TRACED)


def _row_index(table: pa.Table, row: int) -> int:
    import pyarrow.compute as pc

    return int(pc.index(table["row"], row).as_py())


def _plan_traced(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    """Plan the image at each end, traced again with the feature."""
    ranking = trainings.ranking
    pairs = design.question
    if ranking is None or not isinstance(pairs, CanaryPairs) or not _is_traced_again(design):
        return ()
    ends = (RankedImage("highest", 1), RankedImage("lowest", 1))[: pairs.canaries]
    return tuple(_influence_change_job(design, ranking, end) for end in ends)


def _influence_change_job(design: Design, ranking: Ranking, end: RankedImage) -> Job:
    after = Job(influence, Tracing(ranking.training, end, design.carried_feature), (ranking.selection,))
    return Job(influence_change, InfluenceChange(end), (ranking.selection, ranking.influence, after))


def _traced_rows(tables: Tables, about: PublishedCell) -> Iterator[Row]:
    yield from influence_rows(tables.rows(TRACED), about.numbers)


def influence_rows(traced: Sequence[Row], published: PublishedNumbers) -> Iterator[Row]:
    """Yield the self-influence of one image without and with the feature, as TracInCP and without the learning rate."""
    numbers = {"highest": published.highest, "lowest": published.lowest}
    for image in traced:
        setting = {"image": image["end"], "feature": "with" if image["with_feature"] else "without"}
        printed = numbers[image["end"]]
        number = printed[int(image["with_feature"])] if printed else None
        yield row("self-influence", setting, alone(image["self_influence"]), "training")
        yield row("squared slopes", setting, alone(image["squared_slopes"]), "training", published=number)
        yield row("share of images with less self-influence", setting, alone(image["share_below"]), "training")


INFLUENCE_MEASURE = Measure("influence", INFLUENCE, _plan_all)
CHOSEN_MEASURE = Measure("chosen", CHOSEN, _plan_chosen, rows)
TRACED_MEASURE = Measure("traced", TRACED, _plan_traced, _traced_rows)
