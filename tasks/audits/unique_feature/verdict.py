"""The audit's answer in words, read off its summary.

It rests on one row that was chosen beforehand: the canary's effect on M_w over the probe images. M, its published test
and the training images are evidence beside it and decide nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.datasets.features import Feature, called
from tasks.job import Answer, Verdict

# Nats: a change of the label's probability by about a tenth. Where the interval excludes this much, the audit had the
# power to see what would matter; where it does not, its silence means nothing.
SMALLEST = 0.1
# With fewer pairs of trainings no test that is free of assumptions reaches 5 %, should they all agree: 2**-4 is above.
LEAST = 5
ROWS = (
    ("M_w effect", json.dumps({"images": "probe"})),
    ("M_w effect", json.dumps({"images": "train"})),
    ("M effect", "{}"),
)
LIMITS = (
    "This speaks of the training procedure, data and feature that were audited, at this number of trainings; not of "
    "one given model. Not seen is not safe: another feature, place or score may show more."
)

Row = Mapping[str, Any]


def verdict(feature: Feature, carried: Feature, summary: pa.Table) -> Verdict:
    """Memorised: the 95 % interval of the effect lies above 0. Not seen: it does not, and lies below SMALLEST.
    Undecided: neither.

    The effect is what one training image with the feature did to M_w = log P(y | feature) - log P(y | random patch),
    in nats, against the twin of the same seed. With fewer than LEAST pairs of trainings there is no decision: an
    interval over so few rests on the assumption of normality alone.
    """
    rows = {(row["metric"], row["setting"]): row for row in summary.to_pylist()}
    answer, evidence = _answered(rows.get(ROWS[0], {}), feature, carried)
    null = (
        "" if carried == feature else f" The canaries carried another feature than {called(feature)}: this is a null."
    )
    sentence = f"{answer.capitalize()}: {evidence}.{null}"
    return Verdict(
        answer, sentence, " ".join([*_published(rows), LIMITS]), tuple(name for name in ROWS if name in rows)
    )


def _answered(row: Row, feature: Feature, carried: Feature) -> tuple[Answer, str]:
    """The answer, and the evidence for it in words."""
    if not row or not row["n"] or row["estimate"] is None:
        return "undecided", "no pair of trainings has been scored yet"
    asked, n, low, high = called(feature), row["n"], row["low"], row["high"]
    seen = f"a single training image with {asked}" if carried == feature else "a single training image with another one"
    moved = (
        f"{seen} changes log P(its label | {asked}) - log P(its label | a random patch), on images the networks never "
        f"saw, by {row['estimate']:.4g} nats"
    )
    if low is None or high is None:
        return "undecided", f"{moved}; one pair of trainings has no interval: train at least {LEAST} canaries"
    factor = f"a factor of {math.exp(row['estimate']):.3g} in probability"
    over = f"95 % interval {low:.4g} to {high:.4g} over {n} pairs of trainings"
    found = f"{moved} ({over}; {factor}; 0 where nothing is memorised)"
    if n < LEAST:
        return "undecided", f"{found}; so few decide nothing: train at least {LEAST} canaries"
    if low > 0:
        return "memorised", found
    if high < SMALLEST:
        return "not seen", f"{found}; more than {high:.4g} nats is unlikely"
    return "undecided", f"{found}; as much as {high:.4g} nats cannot be excluded: train more canaries"


def _published(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """What the paper's own test says, and says of models that never saw the feature."""
    found = [
        rows.get(("rate called memorised", json.dumps({"model": model, "test": "welch"})))
        for model in ("canary", "twin")
    ]
    if any(row is None or not row["n"] for row in found):
        return []
    canary, twin = (f"{round(row['estimate'] * row['n'])} of {row['n']}" for row in found if row is not None)
    return [
        f"The published t-test, which takes probe images for the sample, calls {canary} canary models memorised, and "
        f"{twin} of their twins, which never saw the feature."
    ]
