"""Which estimator an auditor should use, and how many models it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.audits.unique_feature.detection import LEVEL
from tasks.statistics import Estimate, mcnemar_greater, proportion
from tasks.summaries import Row, row


def called(detection: Sequence[Row]) -> Iterator[Row]:
    """How often each test calls a model memorised at its own 5 %; null: how often where nothing was memorised."""
    for estimator in dict.fromkeys(each["estimator"] for each in detection):
        by_model = {
            model: {
                (e["canary"], e["seed"]): e["called"]
                for e in detection
                if (e["estimator"], e["model"]) == (estimator, model)
            }
            for model in ("canary", "twin")
        }
        both = [key for key in by_model["canary"] if key in by_model["twin"]]
        canary, twin = ([by_model[model][key] for key in both] for model in ("canary", "twin"))
        if both and None not in canary + twin:
            rate, null = proportion(sum(canary), len(both)), proportion(sum(twin), len(both))
            setting = {"estimator": estimator}
            yield row("rate called memorised", setting, rate, "training", null.value, mcnemar_greater(canary, twin))


def at_five_percent(curves: Sequence[Row]) -> Iterator[Row]:
    """The detection rate where at most 5 % of the models without the feature are called memorised."""
    for estimator in dict.fromkeys(each["estimator"] for each in curves):
        points = [e for e in curves if e["estimator"] == estimator and e["false_positive_rate"] <= LEVEL]
        best = max(points, key=lambda each: each["detection_rate"])
        estimate = Estimate(best["detection_rate"], best["low"], best["high"], best["n"])
        yield row("detection rate at 5 % false positives", {"estimator": estimator}, estimate, "training", LEVEL)


def by_number(panels: Sequence[Row]) -> Iterator[Row]:
    """The detection rate of panels of several models; null: that of as many models without the feature."""
    nulls = {(e["estimator"], e["models"]): e["detection_rate"] for e in panels if e["model"] == "twin"}
    for each in panels:
        if each["model"] == "canary":
            setting = {"estimator": each["estimator"], "models": each["models"]}
            estimate = Estimate(each["detection_rate"], each["low"], each["high"], each["n"])
            null = nulls.get((each["estimator"], each["models"]))
            yield row("detection rate by number of models", setting, estimate, "panel of models", null)
