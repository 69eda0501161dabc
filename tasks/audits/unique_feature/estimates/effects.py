"""What the canaries' models say beside their twins: the published scores, their tests, and what the canary did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.audits.unique_feature.canaries import PREFIXES, TESTS
from tasks.audits.unique_feature.estimates.power import needed
from tasks.audits.unique_feature.estimates.units import Units
from tasks.audits.unique_feature.published import Numbers
from tasks.statistics import mcnemar_greater, mean, paired_greater, proportion, proportion_greater
from tasks.summaries import Row, alone, row

Values = list[float]

LEVEL = 0.05  # at which the paper calls a test significant


def black_box(units: Units, published: Numbers) -> Iterator[Row]:
    """M over all canaries, the effect of the canary on it, and M as published: over those canaries where M > 0.

    The last is positive for models that never saw the feature too; its null is what the twins give.
    """
    canary, twin = column(units.rows, "m"), column(units.rows, "twin_m")
    yield row("M", {"model": "canary"}, mean(canary), units.model, null=mean(twin).value)
    yield row("M", {"model": "twin"}, mean(twin), units.model)
    yield effect("M effect", {}, units.rows, "m", units.pair)
    above = {model: [m for m in values if m > 0] for model, values in (("canary", canary), ("twin", twin))}
    found = {model: mean(values) for model, values in above.items()}
    yield row(
        "M where positive",
        {"model": "canary"},
        found["canary"],
        units.model,
        found["twin"].value,
        published=published.m_where_positive,
    )
    yield row("M where positive", {"model": "twin"}, found["twin"], units.model)
    shares = {model: proportion(len(above[model]), len(units.rows)) for model in PREFIXES}
    p_value = mcnemar_greater([m > 0 for m in canary], [m > 0 for m in twin])
    yield row("rate of positive M", {"model": "canary"}, shares["canary"], units.model, shares["twin"].value, p_value)
    yield row("rate of positive M", {"model": "twin"}, shares["twin"], units.model)


def called_memorised(units: Units) -> Iterator[Row]:
    """How often the published test calls the feature memorised, and how often where no model ever saw it.

    Were images the right sample, it would call LEVEL of the twins so; the p-value beside the twins' rate asks that.
    """
    for test in TESTS:
        called = {model: significant(units.pairs, f"{prefix}m_{test}_p") for model, prefix in PREFIXES.items()}
        rates = {model: proportion(sum(values), len(values)) for model, values in called.items()}
        p_value = mcnemar_greater(called["canary"], called["twin"])
        setting = {"model": "canary", "test": test}
        yield row("rate called memorised", setting, rates["canary"], "training", rates["twin"].value, p_value)
        p_value = proportion_greater(sum(called["twin"]), len(called["twin"]), LEVEL)
        yield row("rate called memorised", setting | {"model": "twin"}, rates["twin"], "training", LEVEL, p_value)


def white_box(units: Units) -> Iterator[Row]:
    """M_w, the effect of the canary on it, and the two probabilities, on the probe and on the training images."""
    for images in ("probe", "train"):
        setting = {"images": images}
        yield over_canaries("M_w", setting, units, f"m_w_{images}")
        yield effect("M_w effect", setting, units.rows, f"m_w_{images}", units.pair)
        yield over_canaries("P_u", setting, units, f"p_u_{images}")
        yield over_canaries("P_r", setting, units, f"p_r_{images}")


def accuracy(units: Units, published: Numbers) -> Iterator[Row]:
    for model, prefix in PREFIXES.items():
        values = column(units.rows, f"{prefix}validation_accuracy")
        yield row("validation accuracy", {"model": model}, mean(values), units.model, published=published.accuracy)


def power(units: Units) -> Iterator[Row]:
    """How many probe images the paired t-test needs, by the spread over the twins."""
    yield from needed(column(units.pairs, "twin_m_sd"), "training")


def tops(units: Units, published: Numbers) -> Iterator[Row]:
    """The canaries that the published tables list; null: the twin with the same rank among twins.

    Table 1: the largest M_w, with its probabilities. Which images the paper averaged over is not clear (training images
    in section 2.2, the probe set in section B.1), so its numbers stand beside both. Table 2: the largest M.
    """
    if published.m_w:
        for images in ("probe", "train"):
            names = {"M_w": f"m_w_{images}", "P_u": f"p_u_{images}", "P_r": f"p_r_{images}"}
            yield from ranked(units.rows, names, {"images": images}, published.m_w)
    if published.m:
        yield from ranked(units.rows, {"M": "m"}, {}, [(m,) for m in published.m])


def ranked(
    rows: Sequence[Row], names: dict[str, str], setting: Row, published: Sequence[Sequence[float]]
) -> Iterator[Row]:
    """The first of `names` by rank, and the others of the same canary, each beside its published number."""
    first = next(iter(names.values()))
    canaries, twins = (top(rows, f"{prefix}{first}", len(published)) for prefix in PREFIXES.values())
    for rank, (canary, twin, numbers) in enumerate(zip(canaries, twins, published, strict=False), start=1):
        for (metric, name), number in zip(names.items(), numbers, strict=True):
            setting_ = setting | {"rank": rank}
            yield row(metric, setting_, alone(canary[name]), "training", twin[f"twin_{name}"], published=number)


def top(rows: Sequence[Row], name: str, count: int) -> list[Row]:
    return sorted((row for row in rows if row[name] is not None), key=lambda row: -row[name])[:count]


def over_canaries(metric: str, setting: Row, units: Units, name: str) -> Row:
    """The mean over the canaries' models; null: the mean over their twins."""
    twins = mean(column(units.rows, f"twin_{name}"))
    return row(metric, setting, mean(column(units.rows, name)), units.model, null=twins.value)


def significant(pairs: Sequence[Row], name: str) -> list[bool]:
    """Whether each test is significant; one that could not be made is not."""
    return [pair[name] is not None and pair[name] < LEVEL for pair in pairs]


def column(pairs: Sequence[Row], name: str) -> Values:
    return [pair[name] for pair in pairs if pair[name] is not None]


def effect(metric: str, setting: Mapping[str, Any], pairs: Sequence[Row], name: str, unit: str) -> Row:
    """The mean difference that the canary makes: its model minus the twin of the same seed.

    The t interval and the one-tailed p-value (greater than 0) are over the units.
    """
    p_value = paired_greater(column(pairs, name), column(pairs, f"twin_{name}")).p_value
    return row(metric, setting, mean(column(pairs, f"{name}_effect")), unit, 0.0, p_value)
