"""What the canaries say together, in the schema that all audits share.

Every interval is over trainings, or pairs of trainings; none is over probe images.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tasks.audits.unique_feature.canaries import PREFIXES, TESTS
from tasks.job import Inputs, task
from tasks.schemas import SUMMARY
from tasks.statistics import Estimate, mcnemar_greater, mean, paired_greater, proportion, proportion_greater

LEVEL = 0.05  # at which the paper calls a test significant
TOP = 5  # canaries that Table 1 lists

Published = Literal["", "table 1, MNIST"]
Row = dict[str, Any]
Values = list[float]

# Hartley & Tsaftaris 2022, Table 1, MNIST and MLP-1: M_w, Average(P(y|x_u)), Average(P(y|x_r)) by rank of M_w.
TABLE_1_MNIST = ((0.11, 0.50, 0.44), (0.11, 0.52, 0.46), (0.11, 0.48, 0.43), (0.10, 0.42, 0.38), (0.10, 0.41, 0.37))


@dataclass(frozen=True)
class Summary:
    """The published table that the run repeats, if it repeats one: its numbers then stand beside ours."""

    published: Published = ""


@task(version=1, name="unique_feature.summary")
def summary(config: Summary, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, from the table of canary scores (the one input)."""
    pairs = inputs[0].to_pylist()
    rows = [
        *black_box(pairs),
        *called_memorised(pairs),
        *white_box(pairs),
        *accuracy(pairs),
        *(table_1(pairs) if config.published == "table 1, MNIST" else ()),
    ]
    return pa.Table.from_pylist(rows, SUMMARY)


def black_box(pairs: Sequence[Row]) -> Iterator[Row]:
    """M over all canaries, the effect of the canary on it, and M as published: over those canaries where M > 0.

    The last is positive for models that never saw the feature too; its null is what the twins give.
    """
    canary, twin = column(pairs, "m"), column(pairs, "twin_m")
    yield row("M", {"model": "canary"}, mean(canary), "training", null=mean(twin).value)
    yield row("M", {"model": "twin"}, mean(twin), "training")
    yield effect("M effect", {}, pairs, "m")
    above = {model: [m for m in values if m > 0] for model, values in (("canary", canary), ("twin", twin))}
    published = {model: mean(values) for model, values in above.items()}
    yield row("M where positive", {"model": "canary"}, published["canary"], "training", published["twin"].value)
    yield row("M where positive", {"model": "twin"}, published["twin"], "training")
    shares = {model: proportion(len(above[model]), len(pairs)) for model in PREFIXES}
    p_value = mcnemar_greater([m > 0 for m in canary], [m > 0 for m in twin])
    yield row("rate of positive M", {"model": "canary"}, shares["canary"], "training", shares["twin"].value, p_value)
    yield row("rate of positive M", {"model": "twin"}, shares["twin"], "training")


def called_memorised(pairs: Sequence[Row]) -> Iterator[Row]:
    """How often the published test calls the feature memorised, and how often where no model ever saw it.

    Were images the right sample, it would call LEVEL of the twins so; the p-value beside the twins' rate asks that.
    """
    for test in TESTS:
        called = {model: significant(pairs, f"{prefix}m_{test}_p") for model, prefix in PREFIXES.items()}
        rates = {model: proportion(sum(values), len(values)) for model, values in called.items()}
        p_value = mcnemar_greater(called["canary"], called["twin"])
        setting = {"model": "canary", "test": test}
        yield row("rate called memorised", setting, rates["canary"], "training", rates["twin"].value, p_value)
        p_value = proportion_greater(sum(called["twin"]), len(called["twin"]), LEVEL)
        yield row("rate called memorised", setting | {"model": "twin"}, rates["twin"], "training", LEVEL, p_value)


def white_box(pairs: Sequence[Row]) -> Iterator[Row]:
    """M_w, the effect of the canary on it, and the two probabilities, on the probe and on the training images."""
    for images in ("probe", "train"):
        setting = {"images": images}
        yield over_canaries("M_w", setting, pairs, f"m_w_{images}")
        yield effect("M_w effect", setting, pairs, f"m_w_{images}")
        yield over_canaries("P_u", setting, pairs, f"p_u_{images}")
        yield over_canaries("P_r", setting, pairs, f"p_r_{images}")


def accuracy(pairs: Sequence[Row]) -> Iterator[Row]:
    for model, prefix in PREFIXES.items():
        values = column(pairs, f"{prefix}validation_accuracy")
        yield row("validation accuracy", {"model": model}, mean(values), "training")


def table_1(pairs: Sequence[Row]) -> Iterator[Row]:
    """The five canaries with the largest M_w, as Table 1 lists them; null: the twin with the same rank among twins.

    Which images the paper averaged over is not clear (training images in section 2.2, the probe set in section B.1),
    so its numbers stand beside both.
    """
    for images in ("probe", "train"):
        ranked = {model: top(pairs, prefix, images) for model, prefix in PREFIXES.items()}
        for rank, (canary, twin) in enumerate(zip(ranked["canary"], ranked["twin"], strict=True), start=1):
            names = (("M_w", "m_w"), ("P_u", "p_u"), ("P_r", "p_r"))
            for (metric, name), published in zip(names, TABLE_1_MNIST[rank - 1], strict=True):
                estimate = Estimate(canary[f"{name}_{images}"], None, None, 1)
                null = twin[f"twin_{name}_{images}"]
                yield row(metric, {"images": images, "rank": rank}, estimate, "training", null, published=published)


def top(pairs: Sequence[Row], prefix: str, images: str) -> list[Row]:
    there = [pair for pair in pairs if pair[f"{prefix}m_w_{images}"] is not None]
    return sorted(there, key=lambda pair: -pair[f"{prefix}m_w_{images}"])[:TOP]


def over_canaries(metric: str, setting: Row, pairs: Sequence[Row], name: str) -> Row:
    """The mean over the canaries' models; null: the mean over their twins."""
    twins = mean(column(pairs, f"twin_{name}"))
    return row(metric, setting, mean(column(pairs, name)), "training", null=twins.value)


def effect(metric: str, setting: Row, pairs: Sequence[Row], name: str) -> Row:
    """The mean difference that the canary makes: its model minus the twin of the same seed.

    The t interval and the one-tailed p-value (greater than 0) are over pairs of trainings.
    """
    p_value = paired_greater(column(pairs, name), column(pairs, f"twin_{name}")).p_value
    return row(metric, setting, mean(column(pairs, f"{name}_effect")), "pair of trainings", 0.0, p_value)


def column(pairs: Sequence[Row], name: str) -> Values:
    return [pair[name] for pair in pairs if pair[name] is not None]


def significant(pairs: Sequence[Row], name: str) -> list[bool]:
    """Whether each test is significant; one that could not be made is not."""
    return [pair[name] is not None and pair[name] < LEVEL for pair in pairs]


def row(
    metric: str,
    setting: Row,
    estimate: Estimate,
    unit: str,
    null: float | None = None,
    p_value: float | None = None,
    published: float | None = None,
) -> Row:
    return {
        "metric": metric,
        "setting": json.dumps(setting, sort_keys=True),
        "estimate": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "unit": unit,
        "null": null,
        "p_value": p_value,
        "published": published,
    }
