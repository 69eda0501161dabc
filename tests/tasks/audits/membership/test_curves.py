"""Rates at every threshold, by number of references and by record, on simulated models."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.membership.attacks import ATTACKS
from tasks.audits.membership.config import About
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import Matching, attacks
from tasks.audits.membership.measures.curves import calls, histograms, numbers_of_pairs, references, repeated_rate, roc
from tests.tasks.audits.membership.made_up import make_answers

TABLES = make_answers(8, 200, 3.0, 1)


def rows_of_attack(table: pa.Table, attack: str = "RMIA") -> pa.Table:
    return table.filter(np.asarray(table["attack"]) == attack)


def test_rates_increase_with_the_nominal_rate() -> None:
    curves = roc(Matching(0), TABLES)
    by_references = references(Matching(0), TABLES)
    table = attacks(Matching(0), TABLES)
    its = rows_of_attack(curves).filter(np.asarray(rows_of_attack(curves)["target"]) == 3)
    nominal = its["nominal"].to_numpy()
    tpr = its["tpr"].to_numpy()
    fpr = its["fpr"].to_numpy()
    assert len(nominal) > 8
    assert nominal.min() * 7 * 100 >= 1  # the models' scores of records that they were not trained on
    assert (np.diff(tpr) >= 0).all()
    assert (np.diff(fpr) >= 0).all()
    assert rows_of_attack(table)["TPR at 1 %"].to_numpy()[3] == tpr[np.isclose(nominal, 0.01)][0]
    full = rows_of_attack(by_references.filter(np.asarray(by_references["references"]) == 6))
    assert rows_of_attack(table)["auc"].to_pylist() == full["auc"].to_pylist()
    assert rows_of_attack(table)["TPR at 1 %"].to_pylist() == full["tpr"].to_pylist()
    assert set(by_references["references"].to_pylist()) == {2, 4, 6}
    assert list(numbers_of_pairs(3)) == [1, 2, 3]
    assert list(numbers_of_pairs(7)) == [1, 2, 4, 7]
    assert list(numbers_of_pairs(1)) == [1]


def test_repeated_rate_counts_records_called_by_all() -> None:
    alarms = np.array([4.0, 0.0, 0.0, 0.0])
    models = np.full(4, 4.0)
    assert repeated_rate(alarms, models) == 1.0
    assert repeated_rate(0 * alarms, models) is None
    independent = np.random.default_rng(0).binomial(8, 0.1, 50_000).astype(float)
    assert repeated_rate(independent, np.full(50_000, 8.0)) == pytest.approx(0.1, abs=0.01)


def test_calls_are_counted_by_record() -> None:
    call_counts = calls(Matching(0), TABLES)
    assert 200 * len(ATTACKS) == call_counts.num_rows
    assert {4} == set(call_counts["inside"].to_pylist()) == set(call_counts["outside"].to_pylist())
    table = rows_of_attack(attacks(Matching(0), TABLES))
    its = rows_of_attack(call_counts)
    for side, column in (("inside", "TPR at 1 %"), ("outside", "FPR at 1 %")):
        mean = its[f"called_{side}"].to_numpy().sum() / its[side].to_numpy().sum()
        assert mean == pytest.approx(table[column].to_numpy().mean())
    rows = summary(About(0.05), [attacks(Matching(0), TABLES), call_counts]).to_pylist()
    names = {row["metric"] for row in rows}
    assert names > {"precision", "repeated false-positive rate"}
    exact = table.to_pylist()[0]
    assert exact["TPR at 1 %_low"] <= exact["TPR at 1 %"] <= exact["TPR at 1 %_high"]


def test_four_models_are_enough_for_every_attack() -> None:
    for measure in (attacks, roc, references, calls, histograms):
        table = measure(Matching(0), make_answers(4, 40, 2.0, 1))
        assert table.num_rows
        assert all(np.isfinite(table[name].to_numpy()).all() for name in table.column_names if name != "attack")
    for measure in (roc, references, calls, histograms):
        assert not measure(Matching(0), TABLES[:3]).num_rows


def test_histograms_count_every_score_once() -> None:
    bin_counts = histograms(Matching(0), TABLES)
    for attack in ATTACKS:
        for inside in (True, False):
            its = rows_of_attack(bin_counts, attack)
            assert its.filter(np.asarray(its["member"]) == inside)["count"].to_numpy().sum() == 8 * 100
