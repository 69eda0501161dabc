"""Scores and categories of few images, by hand, and of simulated ones."""

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


def scored(table: pa.Table, resamples: int = 200, confident: int = 50) -> pa.Table:
    return scores(Scoring(confident, resamples, 99, 0), [table])


def test_scores_of_few_pictures_are_those_counted_by_hand() -> None:
    table = scored(inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)]))
    assert table.schema == SCORES
    found = {(row["way"], row["percent"]): row for row in table.to_pylist()}
    # A at 50 %: one image. The target is surest of a1 (right), the reference of a2 (right).
    assert tuple(found["A", 50][name] for name in ("target_accuracy", "reference_accuracy", "score")) == (1.0, 1.0, 0.0)
    # A at 70 %: two. Target a1, a2 (right, right); reference a2, then a1 before a3, equally sure (right, wrong).
    assert tuple(found["A", 70][name] for name in ("target_accuracy", "reference_accuracy", "score")) == (1.0, 0.5, 0.5)
    assert [pytest.approx(2 / 3)] * 2 == [found["A", 100][f"{name}_accuracy"] for name in ("target", "reference")]
    # B: both are surest of b2 (right); of all images the reference has b1 wrong.
    assert (found["B", 50]["score"], found["B", 100]["score"]) == (0.0, 0.5)
    assert (found["both", 70]["score"], found["both", 100]["score"]) == (0.25, 0.25)
    assert tuple(found[way, 50]["images"] for way in ("both", "A", "B")) == (5, 3, 2)
    with_p = [(row["way"], row["percent"]) for row in table.to_pylist() if row["p_value"] is not None]
    assert with_p == [("both", 50)]


def test_the_target_in_the_place_of_the_reference_turns_the_score_over() -> None:
    table = made_up.simulated(3, 200, 0.3, 0.2)
    turned = table.rename_columns(
        [
            name.replace("target", "x").replace("reference", "target").replace("x_", "reference_")
            for name in table.column_names
        ]
    ).select(INFERENCES.names)
    one, other = (scored(each, 20)["score"].to_numpy() for each in (table, turned))
    assert one == pytest.approx(-other, abs=1e-12)


@pytest.mark.slow
def test_the_interval_covers_the_score_of_the_population() -> None:
    # At 100 % the score is memory x (1 - chance), whatever the confidences are.
    truth, covered = 0.3 * (1 - 0.2), 0
    for seed in range(200):
        (cell,) = cells(made_up.simulated(seed, 80, 0.2, 0.3))
        row = next(row for row in cell_rows(cell, Scoring(100, 100, 1, 0)) if row["percent"] == 100)
        assert row["way"] == "both"
        covered += row["score_low"] <= truth <= row["score_high"]
    assert covered >= 180


def test_the_summary_begins_with_the_decisive_score() -> None:
    tables = [made_up.neighbours(made_up.FEW, epoch, layer) for epoch in (2, 5) for layer in (0, 3)]
    table = scored(inferences(Voting((4, 2)), [pa.concat_tables(tables)]))
    found = list(rows(Tables([table]), ABOUT))
    assert (
        found[0]["metric"], json.loads(found[0]["setting"]),
    ) == ("deja vu score", {"epoch": 5, "k": 4, "layer": 3, "percent": 50})  # fmt: skip
    assert (found[0]["n"], found[0]["unit"], found[0]["null"]) == (5, "image", 0.0)
    names = [(row["metric"], json.loads(row["setting"]).get("percent")) for row in found[8:]]
    assert names[:3] == [("deja vu score", 1), ("accuracy", 1), ("accuracy", 1)]
    assert len(found) == 8 + 2 * 3 + 2


def test_without_tables_there_is_nothing_to_say() -> None:
    assert scores(Scoring(20, 10, 19, 0), []).num_rows == 0
    assert list(rows(Tables([]), ABOUT)) == []


def test_pictures_are_of_the_category_that_the_two_models_say() -> None:
    table = categories(NoSettings(), [inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)])])
    found = {row["way"]: row for row in table.to_pylist()}
    # a1 memorised, a2 correlated, a3 misrepresented; b1 memorised, b2 correlated.
    shares = {way: [row[name] for name in KINDS] for way, row in found.items()}
    assert shares == {"both": [0.4, 0.4, 0.2, 0], "A": [1 / 3, 1 / 3, 1 / 3, 0], "B": [0.5, 0.5, 0, 0]}
    assert tuple(found[way]["images"] for way in ("both", "A", "B")) == (5, 3, 2)
    assert found["both"]["p_value"] == 0.5  # at least two heads of three throws
    assert (0.0, 1.0) < (found["both"]["memorised_low"], found["both"]["memorised_high"]) < (0.4, 1.0)


def test_pictures_that_no_model_names_are_unassociated_and_p_is_1() -> None:
    made = {(model, name): [(f"{name}{at}", 1, (0, 0)) for at in range(4)] for model in "AB" for name in "AB"}
    (both, *_) = categories(NoSettings(), [inferences(Voting((2,)), [made_up.neighbours(made)])]).to_pylist()
    assert ([both[name] for name in KINDS], both["p_value"]) == ([0, 0, 0, 1], 1.0)


def test_the_summary_has_the_shares_of_the_decisive_cell() -> None:
    table = categories(NoSettings(), [inferences(Voting((4, 2)), [made_up.neighbours(made_up.FEW)])])
    found = {row["metric"]: row for row in share_rows(Tables([table]), About(20, 3, 4, 5))}
    assert list(found) == ["share memorised", "share misrepresented", "share correlated", "share unassociated"]
    assert found["share memorised"]["estimate"] == pytest.approx(0.4)
    assert (found["share memorised"]["p_value"], found["share correlated"]["p_value"]) == (0.5, None)
    assert list(share_rows(Tables([table]), About(20, 3, 4, 6))) == []
