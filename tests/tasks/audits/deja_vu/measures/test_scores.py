"""Scores and categories of few images, by hand, and of simulated images."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tasks.audits.deja_vu.config import About
from tasks.audits.deja_vu.measures.inferences import INFERENCES, Voting, cells, inferences
from tasks.audits.deja_vu.measures.scores import (
    KINDS,
    SCORES,
    Scoring,
    categories,
    cell_rows,
    rows,
    scores,
    share_rows,
)
from tasks.contract.job import NoSettings
from tasks.contract.measure import Tables
from tests.tasks.audits.deja_vu import made_up

ABOUT = About(confident=50, layer=3, k=4, epoch=5)


def score_table(table: pa.Table, resamples: int = 200, confident: int = 50) -> pa.Table:
    return scores(Scoring(confident, resamples, 99, 0), [table])


def test_scores_agree_with_hand_count() -> None:
    table = score_table(inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)]))
    assert table.schema == SCORES
    rows_by_way = {(row["way"], row["percent"]): row for row in table.to_pylist()}
    # A at 50 %: one image. The target is most confident of a1 (right), the reference of a2 (right).
    assert tuple(rows_by_way["A", 50][name] for name in ("target_accuracy", "reference_accuracy", "score")) == (
        1.0,
        1.0,
        0.0,
    )
    # A at 70 %: two. Target a1, a2 (right, right); reference a2, then a1 before the equally confident a3 (right,
    # wrong).
    assert tuple(rows_by_way["A", 70][name] for name in ("target_accuracy", "reference_accuracy", "score")) == (
        1.0,
        0.5,
        0.5,
    )
    assert [rows_by_way["A", 100][f"{name}_accuracy"] for name in ("target", "reference")] == [pytest.approx(2 / 3)] * 2
    # B: both are most confident of b2 (right); of all images, the reference has b1 wrong.
    assert rows_by_way["B", 50]["score"] == 0.0
    assert rows_by_way["B", 100]["score"] == 0.5
    assert rows_by_way["both", 70]["score"] == 0.25
    assert rows_by_way["both", 100]["score"] == 0.25
    assert tuple(rows_by_way[way, 50]["images"] for way in ("both", "A", "B")) == (5, 3, 2)
    with_p = []
    for row in table.to_pylist():
        if row["p_value"] is not None:
            with_p.append((row["way"], row["percent"]))
    assert with_p == [("both", 50)]


def test_swapping_target_and_reference_negates_the_score() -> None:
    table = made_up.simulate_inferences(3, 200, 0.3, 0.2)
    swapped = table.rename_columns(
        [
            name.replace("target", "x").replace("reference", "target").replace("x_", "reference_")
            for name in table.column_names
        ]
    ).select(INFERENCES.names)
    scores_of_target = score_table(table, 20)["score"].to_numpy()
    scores_of_reference = score_table(swapped, 20)["score"].to_numpy()
    assert scores_of_target == pytest.approx(-scores_of_reference, abs=1e-12)


@pytest.mark.slow
def test_the_interval_covers_the_score_of_the_population() -> None:
    # At 100 % the score is memory x (1 - chance) for any confidences.
    truth = 0.3 * (1 - 0.2)
    covered = 0
    for seed in range(200):
        (cell,) = cells(made_up.simulate_inferences(seed, 80, 0.2, 0.3))
        row = next(row for row in cell_rows(cell, Scoring(100, 100, 1, 0)) if row["percent"] == 100)
        assert row["way"] == "both"
        covered += row["score_low"] <= truth <= row["score_high"]
    assert covered >= 180


def test_the_summary_begins_with_the_decisive_score() -> None:
    tables = []
    for epoch in (2, 5):
        for layer in (0, 3):
            tables.append(made_up.neighbours(made_up.FEW, epoch, layer))
    table = score_table(inferences(Voting((4, 2)), [pa.concat_tables(tables)]))
    summary_rows = list(rows(Tables([table]), ABOUT))
    assert summary_rows[0]["metric"] == "deja vu score"
    assert json.loads(summary_rows[0]["setting"]) == {"epoch": 5, "k": 4, "layer": 3, "percent": 50}
    assert summary_rows[0]["n"] == 5
    assert summary_rows[0]["unit"] == "image"
    assert summary_rows[0]["null"] == 0.0
    names = []
    for row in summary_rows[8:]:
        names.append((row["metric"], json.loads(row["setting"]).get("percent")))
    assert names[:3] == [("deja vu score", 1), ("accuracy", 1), ("accuracy", 1)]
    assert len(summary_rows) == 8 + 2 * 3 + 2


def test_no_tables_give_no_rows() -> None:
    assert scores(Scoring(20, 10, 19, 0), []).num_rows == 0
    assert list(rows(Tables([]), ABOUT)) == []


def test_categories_follow_both_models_inferences() -> None:
    table = categories(NoSettings(), [inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)])])
    rows_by_way = {row["way"]: row for row in table.to_pylist()}
    # a1 memorised, a2 correlated, a3 misrepresented; b1 memorised, b2 correlated.
    shares = {way: [row[name] for name in KINDS] for way, row in rows_by_way.items()}
    assert shares == {"both": [0.4, 0.4, 0.2, 0], "A": [1 / 3, 1 / 3, 1 / 3, 0], "B": [0.5, 0.5, 0, 0]}
    assert tuple(rows_by_way[way]["images"] for way in ("both", "A", "B")) == (5, 3, 2)
    assert rows_by_way["both"]["p_value"] == 0.5  # at least two heads in three throws
    assert (0.0, 1.0) < (rows_by_way["both"]["memorised_low"], rows_by_way["both"]["memorised_high"]) < (0.4, 1.0)


def test_unnamed_images_are_unassociated_with_p_1() -> None:
    neighbour_labels = {}
    for model in "AB":
        for name in "AB":
            neighbour_labels[(model, name)] = [(f"{name}{number}", 1, (0, 0)) for number in range(4)]
    (row_of_both, *_) = categories(
        NoSettings(), [inferences(Voting((2,)), [made_up.neighbours(neighbour_labels)])]
    ).to_pylist()
    assert [row_of_both[name] for name in KINDS] == [0, 0, 0, 1]
    assert row_of_both["p_value"] == 1.0


def test_summary_has_the_decisive_shares() -> None:
    table = categories(NoSettings(), [inferences(Voting((4, 2)), [made_up.neighbours(made_up.FEW)])])
    rows_by_metric = {}
    for row in share_rows(Tables([table]), About(20, 3, 4, 5)):
        rows_by_metric[row["metric"]] = row
    assert list(rows_by_metric) == ["share memorised", "share misrepresented", "share correlated", "share unassociated"]
    assert rows_by_metric["share memorised"]["estimate"] == pytest.approx(0.4)
    assert rows_by_metric["share memorised"]["p_value"] == 0.5
    assert rows_by_metric["share correlated"]["p_value"] is None
    assert list(share_rows(Tables([table]), About(20, 3, 4, 6))) == []
