"""Whether memory goes with self-influence: that of every training image, and the ends that canaries are chosen from.

`influence` lists all training images, `chosen` those of them that carry the feature, of the highest and of the lowest
self-influence (`self_influence`, `canary_selection`): one list and its ends. The summary has Pearson's correlation of
the canaries' self-influence with M and with what the canary did, and the effect at both ends. The twins' correlation
with M is the null: they never saw the feature.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", sections 3.1.1 and
3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.audits.unique_feature.canary_selection import CHOSEN
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.canary_scores import CANARY_SCORES
from tasks.audits.unique_feature.published import Numbers, Repeated
from tasks.audits.unique_feature.self_influence import INFLUENCE
from tasks.audits.unique_feature.trainings import Trainings
from tasks.audits.unique_feature.units import Units, column, effect, units
from tasks.job import Job
from tasks.measure import Measure, Tables
from tasks.statistics import correlation
from tasks.summaries import Row, row


def plan_all(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    """The self-influence of every training image, where canaries are chosen by it."""
    ranking = trainings.ranking if config.asks_for("scores", "influence") else None
    return () if ranking is None else (ranking.influence,)


def plan_chosen(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    """The canaries so chosen."""
    ranking = trainings.ranking if config.asks_for("scores", "influence") else None
    return () if ranking is None else (ranking.chosen,)


def rows(tables: Tables, about: Repeated) -> Iterator[Row]:
    scores, chosen = tables.one(CANARY_SCORES), tables.one(CHOSEN)
    if scores is not None and chosen is not None:
        yield from with_scores(units(scores.to_pylist()), chosen.to_pylist(), about.numbers)


def with_scores(canaries: Units, chosen: Sequence[Row], published: Numbers) -> Iterator[Row]:
    """Pearson's correlation of the canaries' self-influence with M and with what the canary did; both ends apart."""
    influence = {image["row"]: image["self_influence"] for image in chosen}
    there = [pair for pair in canaries.rows if pair["canary"] in influence]
    traced = [influence[pair["canary"]] for pair in there]
    twin = correlation(traced, column(there, "twin_m")).estimate.value
    for metric, name, null, number in (
        ("correlation of self-influence and M", "m", twin, published.correlation),
        ("correlation of self-influence and M effect", "m_effect", 0.0, None),
        ("correlation of self-influence and M_w effect", "m_w_probe_effect", 0.0, None),
    ):
        correlated = correlation(traced, column(there, name))
        yield row(metric, {}, correlated.estimate, "canary", null, correlated.p_value, number)
    end = {image["row"]: image["end"] for image in chosen}
    for which in ("highest", "lowest"):
        pairs = [pair for pair in there if end[pair["canary"]] == which]
        if pairs:
            yield effect("M_w effect", {"images": "probe", "self-influence": which}, pairs, "m_w_probe", canaries.pair)


ALL = Measure("influence", INFLUENCE, plan_all)
CHOSEN_ONES = Measure("chosen", CHOSEN, plan_chosen, rows)
