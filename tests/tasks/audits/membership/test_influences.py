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
    return [pa.table([rows, its, said - 0.5, said], schema=ANSWERS) for its, said in zip(member, correct, strict=True)]


def test_strongest_pair_is_found() -> None:
    member = draw_balanced_members(40, 16, 3)
    correct = np.random.default_rng(4).random(member.shape) < 0.5
    correct[:, 7] = member[:, 2]  # right about 7 where, and only where, trained on 2
    found = influences(Strongest(3), answers_of(member, correct)).to_pylist()
    own, pairs = found[:40], found[40:]
    assert [(row, row) for row in range(5, 45)] == [(line["row"], line["on"]) for line in own]
    assert len(pairs) == 3
    strongest = pairs[0]
    assert tuple(strongest[name] for name in ("row", "on", "infl", "infl_high")) == (7, 12, 1.0, 1.0)
    assert pytest.approx(1 / 12_870) == strongest["p_value"]
    # Newcombe's method 10: Wilson's interval of 8 of 8 reaches down by 1 - 8 / (8 + z^2), that of 0 of 8 up by as much.
    reach = 1.959964**2 / (8 + 1.959964**2)
    assert pytest.approx(1 - np.sqrt(2) * reach, abs=1e-6) == strongest["infl_low"]


def test_mem_equals_table_of_records() -> None:
    tables = make_answers(16, 60, 2.0, 1)
    stacked = stack_answers(tables)
    mem, _ = difference_of_sides(stacked.correct.astype(np.float64), stacked.member)
    own = influences(Strongest(1), tables).slice(0, 60)
    assert mem == pytest.approx(own["infl"].to_numpy())
    right, inside = stacked.correct.sum(axis=0), (stacked.correct & stacked.member).sum(axis=0)
    by_scipy = [
        stats.fisher_exact([[hits, 8 - hits], [all_ - hits, 8 - all_ + hits]], "greater").pvalue
        for hits, all_ in zip(inside, right, strict=True)
    ]
    assert by_scipy == pytest.approx(own["p_value"].to_numpy())
    assert false_discovery_control(by_scipy) == pytest.approx(own["q_value"].to_numpy())


def test_pairs_with_equal_or_opposite_halves_are_skipped() -> None:
    records = ROWS_AT_ONCE + 44  # more than are compared at once
    member = draw_balanced_members(records, 12, 5)
    correct = np.random.default_rng(6).random(member.shape) < 0.6
    common = member.T.astype(int) @ member.astype(int)
    first, second = np.nonzero((common > 0) & (common < 6))
    assert len(first) <= records * (records - 2)  # neither itself nor the one whose half is opposite
    found = strongest_pairs(member, correct, len(first) + 1)
    assert sorted(zip(first, second, strict=True)) == sorted(zip(found.first, found.second, strict=True))
    assert (found.inside == (member[:, found.first] & correct[:, found.second]).sum(axis=0)).all()
    assert (np.diff(found.p_values) >= 0).all()
    assert false_discovery_control(found.p_values) == pytest.approx(found.q_values)
    few = strongest_pairs(member, correct, 50)
    assert found.p_values[:50] == pytest.approx(few.p_values)
    assert found.q_values[:50] == pytest.approx(few.q_values)
    assert pytest.approx(adjust_cells(np.array([0.01, 0.02, 0.03]), np.array([1, 0, 2]))[[0, 2]]) == [0.03, 0.03]


def test_p_values_are_valid_without_influence() -> None:
    small, intervals, pairs = 0, 0, 0
    for seed in range(10):
        tables = make_answers(32, 40, 0.0, 100 + seed)
        found = influences(Strongest(40 * 40), tables)
        small += int((found["p_value"].to_numpy() <= 0.05).sum())
        low, high = found["infl_low"].to_numpy(), found["infl_high"].to_numpy()
        intervals += int(((low <= 0) & (high >= 0)).sum())
        pairs += found.num_rows
        assert (found["q_value"].to_numpy() > 0.05).all()
    assert small / pairs <= 0.05
    assert intervals / pairs >= 0.95


def test_too_few_models_have_no_influences() -> None:
    assert influences(Strongest(3), make_answers(8, 40, 2.0, 1)[:3]).num_rows == 0
