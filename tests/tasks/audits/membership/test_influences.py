"""mem and infl against hand calculations and other formulas, skipped pairs, and their null."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.membership.measures.records import (
    ROWS_AT_ONCE,
    Strongest,
    adjust_cells,
    difference_of_sides,
    influences,
    strongest_pairs,
)
from tasks.audits.membership.trainings import ANSWERS, stack_answers
from tasks.datasets.mixtures import draw_balanced_members
from tasks.numerics.ranks import false_discovery_control
from tests.tasks.audits.membership.made_up import make_answers


def answers_of(member: np.ndarray, correct: np.ndarray) -> list[pa.Table]:
    rows = np.arange(member.shape[1]) + 5
    result = []
    for its, is_correct in zip(member, correct, strict=True):
        result.append(pa.table([rows, its, is_correct - 0.5, is_correct], schema=ANSWERS))
    return result


def test_strongest_pair_is_found() -> None:
    member = draw_balanced_members(40, 16, 3)
    correct = np.random.default_rng(4).random(member.shape) < 0.5
    correct[:, 7] = member[:, 2]  # correct on 7 if and only if trained on 2
    lines = influences(Strongest(3), answers_of(member, correct)).to_pylist()
    own_influences = lines[:40]
    pairs = lines[40:]
    assert [(row, row) for row in range(5, 45)] == [(line["row"], line["on"]) for line in own_influences]
    assert len(pairs) == 3
    strongest = pairs[0]
    assert tuple(strongest[name] for name in ("row", "on", "infl", "infl_high")) == (7, 12, 1.0, 1.0)
    assert strongest["p_value"] == pytest.approx(1 / 12_870)
    # Newcombe's method 10: Wilson's interval of 8 of 8 extends down by 1 - 8 / (8 + z^2), that of 0 of 8 up by the
    # same.
    margin = 1.959964**2 / (8 + 1.959964**2)
    assert strongest["infl_low"] == pytest.approx(1 - np.sqrt(2) * margin, abs=1e-6)


def test_mem_equals_table_of_records() -> None:
    tables = make_answers(16, 60, 2.0, 1)
    stacked = stack_answers(tables)
    mem, _ = difference_of_sides(stacked.correct.astype(np.float64), stacked.member)
    own_influences = influences(Strongest(1), tables).slice(0, 60)
    assert mem == pytest.approx(own_influences["infl"].to_numpy())
    right = stacked.correct.sum(axis=0)
    inside = (stacked.correct & stacked.member).sum(axis=0)
    by_scipy = []
    for hits, all_hits in zip(inside, right, strict=True):
        by_scipy.append(
            stats.fisher_exact([[hits, 8 - hits], [all_hits - hits, 8 - all_hits + hits]], "greater").pvalue
        )
    assert by_scipy == pytest.approx(own_influences["p_value"].to_numpy())
    assert false_discovery_control(by_scipy) == pytest.approx(own_influences["q_value"].to_numpy())


def test_pairs_with_equal_or_opposite_halves_are_skipped() -> None:
    records = ROWS_AT_ONCE + 44  # more than are compared at a time
    member = draw_balanced_members(records, 12, 5)
    correct = np.random.default_rng(6).random(member.shape) < 0.6
    common = member.T.astype(int) @ member.astype(int)
    first, second = np.nonzero((common > 0) & (common < 6))
    assert len(first) <= records * (records - 2)  # neither the record itself nor the one with the opposite half
    all_pairs = strongest_pairs(member, correct, len(first) + 1)
    assert sorted(zip(first, second, strict=True)) == sorted(zip(all_pairs.first, all_pairs.second, strict=True))
    assert (all_pairs.inside == (member[:, all_pairs.first] & correct[:, all_pairs.second]).sum(axis=0)).all()
    assert (np.diff(all_pairs.p_values) >= 0).all()
    assert false_discovery_control(all_pairs.p_values) == pytest.approx(all_pairs.q_values)
    first_pairs = strongest_pairs(member, correct, 50)
    assert all_pairs.p_values[:50] == pytest.approx(first_pairs.p_values)
    assert all_pairs.q_values[:50] == pytest.approx(first_pairs.q_values)
    assert pytest.approx(adjust_cells(np.array([0.01, 0.02, 0.03]), np.array([1, 0, 2]))[[0, 2]]) == [0.03, 0.03]


def test_p_values_are_valid_without_influence() -> None:
    small_p_values = 0
    intervals = 0
    pairs = 0
    for seed in range(10):
        tables = make_answers(32, 40, 0.0, 100 + seed)
        influence_table = influences(Strongest(40 * 40), tables)
        small_p_values += int((influence_table["p_value"].to_numpy() <= 0.05).sum())
        low, high = influence_table["infl_low"].to_numpy(), influence_table["infl_high"].to_numpy()
        intervals += int(((low <= 0) & (high >= 0)).sum())
        pairs += influence_table.num_rows
        assert (influence_table["q_value"].to_numpy() > 0.05).all()
    assert small_p_values / pairs <= 0.05
    assert intervals / pairs >= 0.95


def test_too_few_models_have_no_influences() -> None:
    assert influences(Strongest(3), make_answers(8, 40, 2.0, 1)[:3]).num_rows == 0
