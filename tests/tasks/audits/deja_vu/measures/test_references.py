"""The corrected score and the gains of a given encoder and its references: counted by hand, and of drawn encoders."""

from __future__ import annotations

import pytest

from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.audits.deja_vu.measures.references import Comparing, rank_p, references, rows
from tasks.audits.deja_vu.measures.scores import SCORES, Scoring, scores
from tasks.contract.measure import Tables
from tests.tasks.audits.deja_vu import made_up
from tests.tasks.audits.deja_vu import simulated_encoders as simulated

FEW = Scoring(50, 50, 99, 0, given=True)


def test_the_corrected_score_of_few_pictures_is_that_counted_by_hand() -> None:
    found = scores(FEW, [inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)])])
    assert found.schema == SCORES
    by_way = {(row["way"], row["percent"]): row for row in found.to_pylist()}
    names = ("target_accuracy", "reference_accuracy", "score")
    # The encoder is the target on both sets. Of A, all: a1 and a2 right of 3; the reference a2 and a3.
    assert pytest.approx([by_way["A", 100][name] for name in names]) == (2 / 3, 2 / 3, 0.0)
    # Of B, all: the encoder has b2 right of 2, the reference both.
    assert tuple(by_way["B", 100][name] for name in names) == (0.5, 1.0, -0.5)
    assert pytest.approx([by_way["corrected", 100][name] for name in names]) == (2 / 3 - 0.5, 2 / 3 - 1, 0.5)
    assert {"corrected", "A", "B"} == {way for way, _ in by_way}
    with_p = [key for key, row in by_way.items() if row["p_value"] is not None]
    assert with_p == [("corrected", 50)]


def test_the_corrected_score_is_twice_the_mean_of_both_ways_and_p_the_same() -> None:
    found = [inferences(Voting((simulated.K,)), simulated.tables(3, memory=0.3))]
    given, both = (scores(Scoring(20, 50, 199, 7, given=given), found).to_pylist() for given in (True, False))
    corrected = [row for row in given if row["way"] == "corrected"]
    mean = [row for row in both if row["way"] == "both"]
    assert [2 * row["score"] for row in mean] == pytest.approx([row["score"] for row in corrected], abs=1e-9)
    assert [row["p_value"] for row in mean] == [row["p_value"] for row in corrected]
    of_a = [[row for row in each if row["way"] == "A"] for each in (given, both)]
    assert of_a[0] == of_a[1]


def test_gains_are_differences_of_accuracies_and_the_encoder_has_a_rank() -> None:
    found = references(Comparing(20, simulated.K, 199, 0), simulated.tables(1, "ABB", memory=0.4))
    assert found["model"].to_pylist() == ["target", "reference", "reference 2"]
    for row in found.to_pylist():
        assert row["gain"] == pytest.approx(row["accuracy_a"] - row["accuracy_b"])
        assert row["images"] == 300
    target, *others = found["gain"].to_pylist()
    assert target > max(others)
    told = list(rows(Tables([found]), simulated.ABOUT))
    assert tuple(told[0][name] for name in ("metric", "estimate", "n", "p_value")) == (
        "rank among references",
        1.0,
        3,
        1 / 3,
    )
    assert [row["metric"] for row in told[1:]] == ["accuracy gain"] * 3


@pytest.mark.parametrize(
    ("target", "others", "p"), [(0.5, [0.1, 0.2, 0.3], 0.25), (0.2, [0.1, 0.2, 0.3], 0.75), (0.0, [0.1], 1.0)]
)
def test_references_that_are_as_high_count_against_the_encoder(target: float, others: list[float], p: float) -> None:
    assert p == rank_p(target, others)


def test_one_reference_makes_no_rank_and_no_table_no_rows() -> None:
    found = references(Comparing(20, simulated.K, 99, 0), simulated.tables(1))
    assert {"accuracy gain"} == {row["metric"] for row in rows(Tables([found]), simulated.ABOUT)}
    assert list(rows(Tables([]), simulated.ABOUT)) == []
