"""Self-influence beside memorisation, and what the feature does to it: section 3.3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.audits.unique_feature.estimates.effects import column, effect
from tasks.audits.unique_feature.estimates.units import Units
from tasks.audits.unique_feature.published import Numbers
from tasks.statistics import correlation
from tasks.summaries import Row, alone, row


def with_scores(of: Units, chosen: Sequence[Row], published: Numbers) -> Iterator[Row]:
    """Pearson's correlation of the canaries' self-influence with M and with what the canary did; both ends apart."""
    influence = {each["row"]: each["self_influence"] for each in chosen}
    there = [pair for pair in of.rows if pair["canary"] in influence]
    traced = [influence[pair["canary"]] for pair in there]
    twin = correlation(traced, column(there, "twin_m")).estimate.value
    for metric, name, null, number in (
        ("correlation of self-influence and M", "m", twin, published.correlation),
        ("correlation of self-influence and M effect", "m_effect", 0.0, None),
        ("correlation of self-influence and M_w effect", "m_w_probe_effect", 0.0, None),
    ):
        found = correlation(traced, column(there, name))
        yield row(metric, {}, found.estimate, "canary", null, found.p_value, number)
    end = {each["row"]: each["end"] for each in chosen}
    for which in ("highest", "lowest"):
        pairs = [pair for pair in there if end[pair["canary"]] == which]
        if pairs:
            yield effect("M_w effect", {"images": "probe", "self-influence": which}, pairs, "m_w_probe", of.pair)


def with_feature(traced: Sequence[Row], published: Numbers) -> Iterator[Row]:
    """Self-influence of one image without the feature and with it, as TracInCP and without its learning rate.

    The paper's numbers have the size of sums of squared slopes, so they stand beside those.
    """
    numbers = {"highest": published.highest, "lowest": published.lowest}
    for each in traced:
        setting = {"image": each["end"], "feature": "with" if each["with_feature"] else "without"}
        printed = numbers[each["end"]]
        number = printed[int(each["with_feature"])] if printed else None
        yield row("self-influence", setting, alone(each["self_influence"]), "training")
        yield row("squared slopes", setting, alone(each["squared_slopes"]), "training", published=number)
        yield row("share of images with less self-influence", setting, alone(each["share_below"]), "training")
