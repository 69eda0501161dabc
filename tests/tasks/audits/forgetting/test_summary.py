"""What the tables say together, read off tables made by hand."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.forgetting.audited import Audited
from tasks.audits.forgetting.distances import DISTANCES
from tasks.audits.forgetting.examples import EXAMPLES
from tasks.audits.forgetting.fits import FITS, Fit, fit
from tasks.audits.forgetting.powers import POWER
from tasks.audits.forgetting.ratios import RATIOS
from tasks.audits.forgetting.summary import Summary, summary
from tasks.audits.forgetting.trainings import Model
from tasks.schemas import SUMMARY
from tasks.statistics import mean, proportion
from tasks.training.mixed import MIXED

Row = dict[str, Any]
HELD, CLEAN = "D_C + 0.1 D_Q", "D_C"


def ratio(name: str, score: str, ks: float, rho: float | None, **more: Any) -> Row:
    """A row of RATIOS; rho's interval is a tenth to either side."""
    row: Row = dict.fromkeys(RATIOS.names) | {"name": name, "score": score, "source": "training", "models": 3}
    row |= {"ks": ks, "ks_low": ks - 0.01, "ks_high": ks + 0.01, "ks_calibration": 0.5, "rho": rho, "images": 100}
    row |= {"low": rho and 0.9 * rho, "high": rho and 1.1 * rho, "rule_forgotten": 1, "rule_triples": 3}
    return row | more


def ratios(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist(list(rows), RATIOS)


RATIO = ratios(
    ratio(CLEAN, "published", 0.5, 1.0, right="right"),
    ratio(CLEAN, "one-sided", 0.45, 0.9, right="undecided"),
    ratio(HELD, "published", 0.2, 0.4, right="right"),
    ratio(HELD, "one-sided", 0.1, 0.2, right="right"),
)


def rows(*tables: pa.Table, config: Summary = Summary(())) -> dict[tuple[str, str], Row]:  # noqa: B008
    found = summary(config, tables)
    assert SUMMARY == found.schema
    listed = found.to_pylist()
    known = {(row["metric"], row["setting"]): row for row in listed}
    assert len(known) == len(listed)  # each is found by these two
    return known


def setting(**values: Any) -> str:
    return json.dumps(values, sort_keys=True)


def numbers(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("estimate", "low", "high", "n", "null", "published"))


def test_the_one_sided_rows_come_first() -> None:
    metrics = list(dict.fromkeys(metric for metric, _ in rows(RATIO)))
    counted = ["targets decided rightly", "targets undecided", "targets decided wrongly"]
    assert ["one-sided rho", "one-sided KS", *counted, "rho", "KS", "published rule says forgotten"] == metrics


def test_each_target_has_both_rhos_and_distances_with_their_intervals() -> None:
    found = rows(RATIO)
    held = setting(target=HELD)
    assert (0.2, 0.9 * 0.2, 1.1 * 0.2, 3, 1.0, None) == numbers(found["one-sided rho", held])
    assert (0.4, 0.9 * 0.4, 1.1 * 0.4, 3, 1.0, None) == numbers(found["rho", held])
    # Beside KS stands that of the calibration models, as models have it that saw none of the query set.
    assert pytest.approx((0.1, 0.09, 0.11, 3, 0.5)) == numbers(found["one-sided KS", held])[:5]
    assert pytest.approx((0.2, 0.19, 0.21, 3, 0.5)) == numbers(found["KS", held])[:5]


def test_the_papers_numbers_stand_beside_the_published_score_alone() -> None:
    found = rows(RATIO, config=Summary((), "table 1"))
    printed = {
        metric: [row["published"] for (name, _), row in found.items() if name == metric]
        for metric in ("rho", "KS", "one-sided rho", "one-sided KS")
    }
    none = [None, None]
    assert {"rho": [1.0, 0.094], "KS": [0.596, 0.056], "one-sided rho": none, "one-sided KS": none} == printed


def test_targets_are_counted_by_whether_they_are_decided_as_they_were_trained() -> None:
    found = rows(RATIO)
    for score, counts in {"one-sided": (1, 1, 0), "published": (2, 0, 0)}.items():
        for metric, count in zip(
            ("targets decided rightly", "targets undecided", "targets decided wrongly"), counts, strict=True
        ):
            expected = proportion(count, 2)
            row = found[metric, setting(score=score)]
            assert (expected.value, expected.low, expected.high, 2) == numbers(row)[:4]
            assert "target" == row["unit"]


def test_nothing_is_counted_of_targets_whose_training_nobody_knows() -> None:
    given = ratios(ratio("theirs.pt", "one-sided", 0.1, 0.2, source="model"))
    assert not [metric for metric, _ in rows(given) if metric.startswith("targets")]


def test_the_published_rule_is_a_share_of_the_triples() -> None:
    expected = proportion(1, 3)
    row = rows(RATIO)["published rule says forgotten", setting(target=HELD)]
    assert (expected.value, expected.low, expected.high, 3) == numbers(row)[:4]


def test_a_rho_that_is_undefined_is_null() -> None:
    found = rows(ratios(ratio(CLEAN, "one-sided", 0.0, None)))
    assert (None, None, None, 3, 1.0, None) == numbers(found["one-sided rho", setting(target=CLEAN)])


def test_a_target_that_no_model_answered_for_has_a_row_of_no_models() -> None:
    found = rows(RATIO, config=Summary((Audited(CLEAN, "training"), Audited("lost", "training"))))
    assert (None, None, None, 0, 1.0, None) == numbers(found["one-sided rho", setting(target="lost")])
    assert 0.9 == found["one-sided rho", setting(target=CLEAN)]["estimate"]


def test_a_table_has_its_own_separation_and_others_that_of_all() -> None:
    printed = ratio("said.csv", "one-sided", 0.1, 0.2, source="outputs", separation=-0.02)
    found = rows(ratios(printed, ratio("theirs.pt", "one-sided", 0.1, 0.2, source="model", separation=0.3)))
    assert [setting(score="one-sided", target="said.csv")] == [at for metric, at in found if metric == "separation"]
    assert -0.02 == found["separation", setting(score="one-sided", target="said.csv")]["estimate"]


def test_the_separation_is_the_nearest_calibration_model_beyond_the_farthest_query_model() -> None:
    def pair(model: str, replicate: int, ks: float, below: float) -> Row:
        about = {"query": 0, "model": model, "target": None, "replicate": replicate, "images": 100}
        return about | {"ks": ks, "below": below}

    pairs = [pair("query", 1, 0.1, 0.1), pair("query", 2, 0.1, 0.04)]
    pairs += [pair("calibration", 0, 0.5, 0.3), pair("calibration", 1, 0.7, 0.6), pair("target", 0, 0.9, 0.9)]
    found = rows(pa.Table.from_pylist(pairs, DISTANCES))
    assert pytest.approx((0.3 - 0.1, 4)) == tuple(
        found["separation", setting(score="one-sided")][name] for name in ("estimate", "n")
    )
    assert pytest.approx(0.5 - 0.1) == found["separation", setting(score="published")]["estimate"]
    for metric, kind, value in (
        ("KS to query models", "calibration", 0.6),
        ("KS to query models", "query", 0.1),
        ("one-sided KS to query models", "calibration", 0.45),
        ("one-sided KS to query models", "query", 0.07),
    ):
        row = found[metric, setting(models=kind)]
        assert pytest.approx((value, 2)) == (row["estimate"], row["n"])
    alone = rows(pa.Table.from_pylist(pairs[2:], DISTANCES))
    assert not [metric for metric, _ in alone if metric == "separation"]


def test_power_is_told_share_by_share_and_the_smallest_share_found() -> None:
    def power(share: float, score: str, detected: int, decision: str) -> Row:
        found = proportion(detected, 5)
        about: Row = {"share": share, "score": score, "models": 5, "detected": detected, "decision": decision}
        return about | {"power": found.value, "power_low": found.low, "power_high": found.high}

    table = pa.Table.from_pylist(
        [
            *(power(0.0, score, 0, "forgotten") for score in ("published", "one-sided")),
            power(0.1, "published", 1, "undecided"),
            power(0.1, "one-sided", 4, "not forgotten"),
            *(power(1.0, score, 5, "not forgotten") for score in ("published", "one-sided")),
        ],
        POWER,
    )
    found = rows(table)
    row = found["power", setting(score="one-sided", share=0.1)]
    expected = proportion(4, 5)
    assert (expected.value, expected.low, expected.high, 5) == numbers(row)[:4]
    smallest = [found["smallest share detected", setting(score=score)] for score in ("one-sided", "published")]
    assert [(0.1, 3), (1.0, 3)] == [(each["estimate"], each["n"]) for each in smallest]


def test_trainings_are_told_by_what_they_get_right_of_their_own_images() -> None:
    def training(model: str, accuracy: float) -> Row:
        return dict.fromkeys(FITS.names) | {"model": model, "replicate": 0, "train_accuracy": accuracy}

    fits = [training("query", 1.0), training("query", 0.98), training("target", 0.9)]
    found = rows(*(pa.Table.from_pylist([each], FITS) for each in fits))
    expected = mean([1.0, 0.98])
    query = found["train accuracy", setting(models="query")]
    assert (expected.value, expected.low, expected.high, 2) == numbers(query)[:4]
    assert (0.9, None, None, 1) == numbers(found["train accuracy", setting(models="target")])[:4]
    assert (0.9, None, None, 3) == numbers(found["lowest train accuracy", "{}"])[:4]


def test_images_are_counted_by_part_and_class() -> None:
    def example(part: str, label: int, name: str | None) -> Row:
        return {"part": part, "data": "hearts", "label": label, "name": name, "row": 3, "images": 12, "groups": 2}

    table = pa.Table.from_pylist([example("query", 4, "RV"), example("calibration", 4, None)], EXAMPLES)
    found = rows(table)
    assert [{"part": "query", "class": "RV"}, {"part": "calibration", "class": 4}] == [
        json.loads(at) for _, at in found
    ]
    assert [(12.0, 2)] * 2 == [(row["estimate"], row["n"]) for row in found.values()]


def test_how_well_a_training_learnt_is_read_off_its_last_epoch() -> None:
    epochs = [
        {"epoch": at, "train_loss": 1 / at, "validation_loss": 0.5, "validation_accuracy": 0.25 * at} for at in (1, 2)
    ]
    names = dict.fromkeys(MIXED.names)
    held = names | {"seed": 7, "examples": 60, "epochs": 2, "history": epochs, "train_accuracy": 0.9}
    found = fit(Fit(Model("target", 3, 1)), [pa.Table.from_pylist([held], MIXED)])
    expected = {"model": "target", "target": 3, "replicate": 1, "seed": 7, "examples": 60, "epochs": 2}
    expected |= {"train_loss": 0.5, "train_accuracy": 0.9, "validation_accuracy": 0.5}
    assert (FITS, [expected]) == (found.schema, found.to_pylist())
