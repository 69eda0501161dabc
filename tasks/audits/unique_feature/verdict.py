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

from tasks.datasets.features import Feature
from tasks.job import Verdict

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
    row = rows.get(ROWS[0])
    answered = dict.fromkeys(("answer", "sentence"), "") if row is None else _answered(row, feature, carried)
    if not answered["answer"]:
        answered = {"answer": "undecided", "sentence": "Undecided: no pair of trainings has been scored yet."}
    there = tuple(each for each in ROWS if each in rows)
    return Verdict(limits=" ".join([*_published(rows), LIMITS]), rows=there, **answered)  # type: ignore[arg-type]


def _answered(row: Row, feature: Feature, carried: Feature) -> dict[str, str]:
    asked = _named(feature)
    seen = f"a single training image with {asked}" if carried == feature else "a single training image that was changed"
    other = "" if carried == feature else f" The canaries carried another feature than {asked}, so this is a null."
    n, low, high = row["n"], row["low"], row["high"]
    if not n or row["estimate"] is None:
        return {"answer": "", "sentence": ""}
    moved = (
        f"{seen} moves log P(label | {asked}) - log P(label | random patch), on images the networks never saw, by "
        f"{row['estimate']:.4g} nats, a factor of {math.exp(row['estimate']):.3g} in probability"
    )
    if low is None or high is None:
        said = f"Undecided: {moved}; one pair of trainings has no interval, so train at least {LEAST} canaries."
        return {"answer": "undecided", "sentence": said + other}
    found = f"{moved} (95 % interval {low:.4g} to {high:.4g}, {n} pairs of trainings; 0 where nothing is memorised)"
    if n < LEAST:
        said = f"Undecided: {found}; so few decide nothing, so train at least {LEAST} canaries."
        return {"answer": "undecided", "sentence": said + other}
    if low > 0:
        return {"answer": "memorised", "sentence": f"Memorised: {found}.{other}"}
    if high < SMALLEST:
        return {"answer": "not seen", "sentence": f"Not seen: {found}; more than {high:.4g} nats is unlikely.{other}"}
    said = f"Undecided: {found}; as much as {high:.4g} nats cannot be excluded, so train more canaries."
    return {"answer": "undecided", "sentence": said + other}


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


def _named(feature: Feature) -> str:
    return f"the letter {feature.text}" if feature.kind == "letter" else "the glyph"
