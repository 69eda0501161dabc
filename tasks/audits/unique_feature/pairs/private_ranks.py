"""Compare the share of canaries found with the share that differential privacy allows.

    share of canaries with p <= alpha  <=  min(e^epsilon alpha + delta, 1 - e^-epsilon (1 - delta - alpha))

p is the p-value of the canary's drawn feature by one model (`exact_ranks`, the score `references`): a test of whether
the model was trained on this feature. The guarantee of a single model bounds the expected share of canaries that this
test finds.

Why epsilon, and not more. The guarantee compares training runs with and without one training image, under Poisson
sampling. A canary is a changed image, so its model and a model of the unchanged data are two such steps apart. Tests
that distinguish these two are bounded only by (2 epsilon, (1 + e^epsilon) delta), because two steps allow e^epsilon
(e^epsilon P + delta) + delta for an event of probability P (group privacy). A rank, however, does not require the
unchanged image. Without the image, which is one step away, the model is independent of a drawn feature, and p is at
most alpha in a share alpha of the draws. This is the false positive rate in the bound.

Limits. A control model shares the noise of its canary model, but the guarantee assumes that the noise is secret. It
therefore does not bound results of pairs (the effect, the scores `pair` and `weight change`). Nor does it bound the
rank of a feature that a person chose, because its false positive rate is unknown.

Interpretation. The expected share is at most the bound. If the entire interval of the share is above the bound, the
guarantee is violated (p-value of the bound's row). Conversely, the shares give a lower bound on epsilon (confidence
95 %, all levels together), which the summary compares with the epsilon reported by the accountant. The largest bound
that this number of models can give shows how much of the guarantee the audit could test.

Source. Power: Wasserman & Zhou 2010; Kairouz, Oh & Viswanath 2015 (`tasks.training.recipe`). An epsilon from attacks:
Jagielski, Ullman & Oprea 2020, "Auditing differentially private machine learning". All limits are exact (Clopper and
Pearson).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS, LEVELS, pair_rank_job
from tasks.audits.unique_feature.pairs.units import first_trainings, share_seeds
from tasks.audits.unique_feature.trainings import Pair, Trainings
from tasks.contract.epsilon_rows import CONFIDENCE, LEVEL, Bound, Spent, epsilon_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.numerics.epsilon import MANY_RUNS
from tasks.numerics.statistics import exact_proportion, proportion_greater
from tasks.programs.config import StatedPrivacy
from tasks.training.recipe import Privacy

ONE_MODEL = "share found by one model"  # share of drawn features, at each level
ALLOWED = "largest share that privacy allows"

PRIVATE_RANKS = pa.schema(
    [
        ("canary", pa.int64()),  # row in the training images
        ("seed", pa.int64()),
        ("epsilon", pa.float64()),  # guaranteed for each model
        ("delta", pa.float64()),
        ("spent", pa.float64()),  # epsilon spent by the canary model
        ("p_value", pa.float64()),  # of the drawn feature by this model; null if no exact rank is measured
        ("among", pa.int64()),  # number of features, including this one
    ]
)


@dataclass(frozen=True)
class PrivateRank:
    """The canary of a pair whose models were trained with this guarantee."""

    canary: int
    privacy: Privacy | StatedPrivacy


@task(version=1, name="unique_feature.private_rank")
def private_rank(config: PrivateRank, inputs: Inputs) -> pa.Table:
    """Report the epsilon that the canary model spent, and its rank of the drawn feature (PRIVATE_RANKS), in one row.

    The inputs are the canary model and, if ranks are measured, their table.
    """
    model, *rank_tables = inputs
    drawn_ranks = []
    for rank in Tables(rank_tables).rows(EXACT_RANKS):
        if (rank["score"], rank["feature"]) == ("references", "canary") and rank["drawn"]:
            drawn_ranks.append(rank)
    return make_table(
        PRIVATE_RANKS,
        canary=config.canary,
        seed=model["seed"][0].as_py(),
        epsilon=config.privacy.epsilon,
        delta=config.privacy.delta,
        spent=max(model["epsilons"][0].as_py()),
        p_value=drawn_ranks[0]["p_value"] if drawn_ranks else None,
        among=drawn_ranks[0]["among"] if drawn_ranks else None,
    )


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if design.privacy is None:
        return ()
    return tuple(_private_rank_job(design, design.privacy, trainings, pair) for pair in trainings.pairs)


def _private_rank_job(design: Design, privacy: Privacy | StatedPrivacy, trainings: Trainings, pair: Pair) -> Job:
    assert isinstance(pair.canary.image, int)
    ranks = (pair_rank_job(design, trainings, pair),) if design.asks_for("ranks") else ()
    return Job(private_rank, PrivateRank(pair.canary.image, privacy), (pair.model, *ranks))


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    private_rows = tables.rows(PRIVATE_RANKS)
    if not private_rows:
        return
    promised = Privacy(private_rows[0]["epsilon"], private_rows[0]["delta"])
    shared = share_seeds((row["canary"], row["seed"]) for row in private_rows)
    ranked = first_trainings(row for row in private_rows if row["p_value"] is not None)
    smallest_population = min((rank["among"] for rank in ranked), default=0)
    levels = [level for level in LEVELS if smallest_population * level >= 1]
    yield from bounded_share_rows(ranked, promised, shared, levels)
    bounds = rank_bounds(ranked, promised.delta, levels) if levels and not shared else ()
    spent = Spent(max(row["spent"] for row in private_rows), len(private_rows))
    yield from epsilon_rows(bounds, spent, promised.delta)


def rank_bounds(ranked: Sequence[Row], delta: float, levels: Sequence[float]) -> Iterator[Bound]:
    """Yield lower bounds on epsilon from the models that reveal their feature, and the bounds if all models did.

    The confidence covers all levels together. The false positive rate is the level, because the feature was drawn.
    """
    n = len(ranked)
    alpha = LEVEL / len(levels)
    for name, bound in MANY_RUNS.items():
        achieved_bounds = []
        largest_bounds = []
        for level in levels:
            found_count = _count_found(ranked, level)
            achieved_bounds.append(bound((found_count, n), level, delta, alpha))
            largest_bounds.append(bound((n, n), level, delta, alpha))
        achieved_bound = max(achieved_bounds)
        largest_bound = max(largest_bounds)
        yield Bound(name, achieved_bound, n, "training", most=largest_bound)


def bounded_share_rows(
    ranked: Sequence[Row], promised: Privacy, shared: bool, levels: Sequence[float]
) -> Iterator[Row]:
    """Yield the found share and the largest allowed share at each level.

    If canaries share training seeds, they are not an independent sample, and there is neither interval nor test.
    """
    for level in levels:
        setting = {"delta": promised.delta, "epsilon": promised.epsilon, "level": level}
        n = len(ranked)
        found_count = _count_found(ranked, level)
        share = exact_proportion(found_count, n, CONFIDENCE)
        bound = promised.power(level)
        if shared:
            excess_p = None
        else:
            excess_p = proportion_greater(found_count, n, bound)
        share_row = row(ONE_MODEL, setting, share, "training", level)
        yield share_row | {"low": None, "high": None} if shared else share_row
        yield row(ALLOWED, setting, alone(bound, n), "training", level, excess_p)


def _count_found(ranked: Sequence[Row], level: float) -> int:
    return sum(rank["p_value"] <= level for rank in ranked)


MEASURE = Measure("private_ranks", PRIVATE_RANKS, plan, rows)
