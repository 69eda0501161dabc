"""What is found by the share of the query set trained on, from the formulas to the rows of the summary."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.forgetting.measures.power import POWER, Power, detections, power, smallest_detected
from tasks.audits.forgetting.measures.ratios import ratios
from tasks.statistics import proportion
from tests.tasks.audits.forgetting.made_up import tables
from tests.tasks.audits.forgetting.small_run import CALIBRATION, CONFIG, INPUTS, NULL, QUERY, REMEMBERED, by
from tests.tasks.audits.forgetting.summarised import Row, numbers, rows, setting


def test_detections_are_the_models_found_not_to_have_forgotten() -> None:
    assert 2 == detections(["forgotten", "not forgotten", "undecided", "not forgotten"])
    assert 0 == detections([])


def test_the_smallest_share_is_the_one_from_which_on_all_are_found() -> None:
    no, yes, unknown = "forgotten", "not forgotten", "undecided"
    assert 0.1 == smallest_detected({1.0: yes, 0.0: no, 0.1: yes, 0.5: yes, 0.01: unknown})
    assert 0.5 == smallest_detected({0.1: yes, 0.2: no, 0.5: yes})
    assert smallest_detected({0.1: yes, 0.5: no}) is None
    assert 0.1 == smallest_detected({0.0: yes, 0.1: yes})  # a false alarm is no share
    assert smallest_detected({}) is None


def test_the_power_counts_models_that_are_found_alone_beside_all_of_the_calibration_set() -> None:
    table = power(Power(CONFIG), INPUTS)
    assert POWER == table.schema
    assert ["published", "one-sided"] * 2 == table["score"].to_pylist()
    none, most = by("one-sided", table)
    assert (0.0, 3, 0, 0.0) == tuple(none[name] for name in ("share", "models", "detected", "power"))
    for each in (none, most):
        expected = proportion(each["detected"], 3)
        assert (expected.value, expected.low, expected.high) == (each["power"], each["power_low"], each["power_high"])
    assert (0.75, 3) == (most["share"], most["models"])
    alone = [
        by("one-sided", ratios(CONFIG, tables(QUERY, CALIBRATION, NULL[:0], REMEMBERED[[r]])))[0]["decision"]
        for r in range(3)
    ]
    assert alone.count("not forgotten") == most["detected"] == 3
    assert by("one-sided", ratios(CONFIG, INPUTS))[1]["high"] == most["high"]
    assert "not forgotten" == most["decision"]


def test_power_is_told_share_by_share_and_the_smallest_share_found() -> None:
    def at_share(share: float, score: str, detected: int, decision: str) -> Row:
        found = proportion(detected, 5)
        about: Row = {"share": share, "score": score, "models": 5, "detected": detected, "decision": decision}
        return about | {"power": found.value, "power_low": found.low, "power_high": found.high}

    table = pa.Table.from_pylist(
        [
            *(at_share(0.0, score, 0, "forgotten") for score in ("published", "one-sided")),
            at_share(0.1, "published", 1, "undecided"),
            at_share(0.1, "one-sided", 4, "not forgotten"),
            *(at_share(1.0, score, 5, "not forgotten") for score in ("published", "one-sided")),
        ],
        POWER,
    )
    found = rows(table)
    row = found["power", setting(score="one-sided", share=0.1)]
    expected = proportion(4, 5)
    assert (expected.value, expected.low, expected.high, 5) == numbers(row)[:4]
    smallest = [found["smallest share detected", setting(score=score)] for score in ("one-sided", "published")]
    assert [(0.1, 3), (1.0, 3)] == [(each["estimate"], each["n"]) for each in smallest]
