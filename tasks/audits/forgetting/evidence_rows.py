"""The evidence on a target as rows of the summary: written from its row of DECISIONS, and read back by the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks import statistics
from tasks.audits.forgetting.decision import Evidence
from tasks.audits.forgetting.likeness import UNKNOWN, LikenessCheck
from tasks.statistics import Estimate
from tasks.summaries import Row, row

HELD = "share of D_Q held"
SURER, LESS_SURE = "surer of D_Q than of control", "surer of control than of D_Q"  # the metrics with the p-values
CHECKS = ("accuracy", "agreement")
REPEATED = "repeated pictures with two answers"
HANDED_OUT = "pictures handed out"


def control_metric(check: str) -> str:
    """The metric of a check of likeness."""
    return f"{check} on the control set"


def share_row(target: Row) -> Row:
    """The share that the target holds."""
    held = Estimate(target["share"], target["share_low"], target["share_high"], target["models"])
    return row(HELD, {"target": target["name"]}, held, "training", 0.0)


def unanswered_row(name: str) -> Row:
    """The same of a target that nothing is known of, since no model of it answered."""
    return row(HELD, {"target": name}, Estimate(None, None, None, 0), "training", 0.0)


def side_rows(target: Row) -> Iterator[Row]:
    """The effect with the p-value of either side of the test; nothing without a control set."""
    setting = {"target": target["name"]}
    surer = Estimate(target["effect"], target["effect_low"], target["effect_high"], target["models"])
    if surer.value is not None:
        yield row(SURER, setting, surer, "training", 0.0, p_value=target["p_adjusted"])
        low, high = (None if end is None else -end for end in (surer.high, surer.low))
        less = Estimate(-surer.value, low, high, surer.n)
        yield row(LESS_SURE, setting, less, "training", 0.0, p_value=target["p_other"])


def likeness_rows(target: Row) -> Iterator[Row]:
    """How like the calibration models the target is on the control set; nothing without one."""
    if target["effect"] is None:
        return
    setting = {"target": target["name"]}
    for check in CHECKS:
        value, expected, p = (target[f"{check}{of}"] for of in ("", "_calibration", "_p"))
        found = Estimate(value, None, None, 0 if value is None else target["models"])
        yield row(control_metric(check), setting, found, "training", expected, p_value=p)
    if target["repeats"]:
        differ = statistics.proportion(target["disagreeing"], target["repeats"])
        yield row(REPEATED, setting, differ, "picture", 0.0)


def read_evidence(rows: Mapping[tuple[str, str], Mapping[str, Any]], share: Mapping[str, Any]) -> Evidence:
    """The evidence on the target of this row of HELD, from the summary's rows by metric and setting."""
    setting = share["setting"]
    held = None if share["estimate"] is None else Estimate(share["estimate"], share["low"], share["high"], share["n"])
    sides = (rows.get((metric, setting)) for metric in (SURER, LESS_SURE))
    p, other = (None if of is None else of["p_value"] for of in sides)
    checks = (rows.get((control_metric(check), setting)) for check in CHECKS)
    accuracy, agreement = (
        UNKNOWN if of is None else LikenessCheck(of["estimate"], of["null"], of["p_value"]) for of in checks
    )
    repeated = rows.get((REPEATED, setting))
    repeats = 0 if repeated is None else repeated["n"]
    disagreeing = 0 if repeated is None else round(repeated["estimate"] * repeats)
    return Evidence(p, held, accuracy, agreement, disagreeing, repeats, other)
