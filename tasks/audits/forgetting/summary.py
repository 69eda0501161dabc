"""What the tables say together, in the schema that all audits share, the answer's rows first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tasks import statistics
from tasks.audits.forgetting.audited import Audited
from tasks.audits.forgetting.distance import Score
from tasks.audits.forgetting.distances import DISTANCES
from tasks.audits.forgetting.examples import EXAMPLES
from tasks.audits.forgetting.fits import FITS
from tasks.audits.forgetting.power import smallest_detected
from tasks.audits.forgetting.powers import POWER
from tasks.audits.forgetting.published import numbers
from tasks.audits.forgetting.ratios import RATIOS
from tasks.job import Inputs, task
from tasks.schemas import SUMMARY
from tasks.statistics import Estimate
from tasks.summaries import Row, alone, row

SIDED_FIRST: tuple[Score, ...] = ("one-sided", "published")  # the answer rests on the first
PREFIX = {"one-sided": "one-sided ", "published": ""}
RIGHTS = {"right": "targets decided rightly", "undecided": "targets undecided", "wrong": "targets decided wrongly"}


@dataclass(frozen=True)
class Summary:
    """What the tables do not say of the run: which targets there should be, and the paper's table that it repeats."""

    audited: tuple[Audited, ...]
    published: str = ""


@task(version=1, name="forgetting.summary", gathers=True)
def summary(config: Summary, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, from whichever tables there are; each is known by its schema."""
    return pa.Table.from_pylist(list(rows(config, inputs)), SUMMARY)


def rows(config: Summary, inputs: Inputs) -> Iterator[Row]:
    found = {
        name: [each for table in inputs if table.schema.equals(schema) for each in table.to_pylist()]
        for name, schema in {"ratios": RATIOS, "distances": DISTANCES, "power": POWER, "fits": FITS}.items()
    }
    yield from of_ratios(found["ratios"], config)
    yield from of_distances(found["distances"])
    yield from of_power(found["power"])
    yield from of_fits(found["fits"])
    for table in inputs:
        if table.schema.equals(EXAMPLES):
            yield from of_examples(table.to_pylist())


def of_ratios(found: list[Row], config: Summary) -> Iterator[Row]:
    """rho of each target and both of its distances, how many are decided how, and what the published rule says.

    A target that nothing is known of, since no model of it answered, has a row without a value. One known by a table
    has its own separation, at the precision of the table.
    """
    published = numbers(config.published)
    answered = {each["name"] for each in found}
    for score in SIDED_FIRST:
        prefix, scored = PREFIX[score], [each for each in found if each["score"] == score]
        for each in scored:
            theirs = published.get(each["name"]) if score == "published" else None
            rho = Estimate(each["rho"], each["low"], each["high"], each["models"])
            yield row(f"{prefix}rho", {"target": each["name"]}, rho, "training", 1.0, published=theirs and theirs.rho)
        for target in config.audited:
            if target.name not in answered:
                yield row(f"{prefix}rho", {"target": target.name}, Estimate(None, None, None, 0), "training", 1.0)
        for each in scored:
            theirs = published.get(each["name"]) if score == "published" else None
            ks = Estimate(each["ks"], each["ks_low"], each["ks_high"], each["models"])
            null = each["ks_calibration"]
            yield row(f"{prefix}KS", {"target": each["name"]}, ks, "training", null, published=theirs and theirs.ks)
        known = [each["right"] for each in scored if each["right"] is not None]
        for right, metric in RIGHTS.items():
            if known:
                setting = {"score": score}
                yield row(metric, setting, statistics.proportion(known.count(right), len(known)), "target")
        for each in (each for each in scored if each["source"] == "outputs"):
            setting = {"score": score, "target": each["name"]}
            yield row("separation", setting, alone(each["separation"]), "pair of trainings", 0.0)
    for each in (each for each in found if each["score"] == "published"):
        rule = statistics.proportion(each["rule_forgotten"], each["rule_triples"])
        yield row("published rule says forgotten", {"target": each["name"]}, rule, "triple of trainings")


def of_distances(found: list[Row]) -> Iterator[Row]:
    """How far calibration models are from query models, and these from one another: what the audit can tell apart."""
    for score, column in (("one-sided", "below"), ("published", "ks")):
        apart = {kind: [each[column] for each in found if each["model"] == kind] for kind in ("calibration", "query")}
        for kind, values in apart.items():
            if values:
                mean = alone(sum(values) / len(values), len(values))
                yield row(f"{PREFIX[score]}KS to query models", {"models": kind}, mean, "pair of trainings")
        if apart["calibration"] and apart["query"]:
            least = alone(min(apart["calibration"]) - max(apart["query"]), sum(map(len, apart.values())))
            yield row("separation", {"score": score}, least, "pair of trainings", 0.0)


def of_power(found: list[Row]) -> Iterator[Row]:
    """Power at each share of the query set, and the smallest share from which on all are found."""
    for each in found:
        power = Estimate(each["power"], each["power_low"], each["power_high"], each["models"])
        yield row("power", {"score": each["score"], "share": each["share"]}, power, "training")
    for score in SIDED_FIRST:
        decisions = {each["share"]: each["decision"] for each in found if each["score"] == score}
        if decisions:
            smallest = alone(smallest_detected(decisions), len(decisions))
            yield row("smallest share detected", {"score": score}, smallest, "share of the query set")


def of_fits(found: list[Row]) -> Iterator[Row]:
    """Training accuracy, whose lowest is what the result is warned of."""
    for kind in ("query", "calibration", "target"):
        values = [each["train_accuracy"] for each in found if each["model"] == kind]
        if values:
            yield row("train accuracy", {"models": kind}, statistics.mean(values), "training")
    if found:
        least = min(each["train_accuracy"] for each in found)
        yield row("lowest train accuracy", {}, alone(least, len(found)), "training")


def of_examples(found: list[Row]) -> Iterator[Row]:
    """How many images there are of each class in each part, and in how many groups."""
    for each in found:
        setting = {"part": each["part"], "class": each["name"] or each["label"]}
        yield row("images", setting, alone(float(each["images"]), each["groups"]), "group")
