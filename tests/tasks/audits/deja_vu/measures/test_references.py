"""The corrected score and the gains of a given encoder and its references: by hand and for simulated encoders."""

from __future__ import annotations

import pytest

from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.audits.deja_vu.measures.references import Comparing, rank_p, references, rows
from tasks.audits.deja_vu.measures.scores import SCORES, Scoring, scores
from tasks.contract.measure import Tables
from tests.tasks.audits.deja_vu import made_up
from tests.tasks.audits.deja_vu import simulated_encoders as simulated

FEW = Scoring(50, 50, 99, 0, given=True)


def test_corrected_score_agrees_with_hand_count() -> None:
    table = scores(FEW, [inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)])])
    assert table.schema == SCORES
    by_way = {(row["way"], row["percent"]): row for row in table.to_pylist()}
    names = ("target_accuracy", "reference_accuracy", "score")
    # The encoder is the target on both sets. On A, the encoder has a1 and a2 right of 3, the reference a2 and a3.
    assert pytest.approx([by_way["A", 100][name] for name in names]) == (2 / 3, 2 / 3, 0.0)
    # On B, the encoder has b2 right of 2, the reference both.
    assert tuple(by_way["B", 100][name] for name in names) == (0.5, 1.0, -0.5)
    assert pytest.approx([by_way["corrected", 100][name] for name in names]) == (2 / 3 - 0.5, 2 / 3 - 1, 0.5)
    assert {way for way, _ in by_way} == {"corrected", "A", "B"}
    with_p = [key for key, row in by_way.items() if row["p_value"] is not None]
    assert with_p == [("corrected", 50)]


def test_corrected_score_is_twice_the_mean_score() -> None:
    tables = [inferences(Voting((simulated.K,)), simulated.tables(3, memory=0.3))]
    given_rows = scores(Scoring(20, 50, 199, 7, given=True), tables).to_pylist()
    trained_rows = scores(Scoring(20, 50, 199, 7, given=False), tables).to_pylist()
    corrected = [row for row in given_rows if row["way"] == "corrected"]
    mean = [row for row in trained_rows if row["way"] == "both"]
    assert [2 * row["score"] for row in mean] == pytest.approx([row["score"] for row in corrected], abs=1e-9)
    assert [row["p_value"] for row in mean] == [row["p_value"] for row in corrected]
    of_a = []
    for score_rows in (given_rows, trained_rows):
        of_a.append([row for row in score_rows if row["way"] == "A"])
    assert of_a[0] == of_a[1]


def test_gains_are_accuracy_differences_and_have_a_rank() -> None:
    gains = references(Comparing(20, simulated.K, 199, 0), simulated.tables(1, "ABB", memory=0.4))
    assert gains["model"].to_pylist() == ["target", "reference", "reference 2"]
    for row in gains.to_pylist():
        assert row["gain"] == pytest.approx(row["accuracy_a"] - row["accuracy_b"])
        assert row["images"] == 300
    target, *reference_gains = gains["gain"].to_pylist()
    assert target > max(reference_gains)
    summary_rows = list(rows(Tables([gains]), simulated.ABOUT))
    assert tuple(summary_rows[0][name] for name in ("metric", "estimate", "n", "p_value")) == (
        "rank among references",
        1.0,
        3,
        1 / 3,
    )
    assert [row["metric"] for row in summary_rows[1:]] == ["accuracy gain"] * 3


@pytest.mark.parametrize(
    ("target", "reference_gains", "p"), [(0.5, [0.1, 0.2, 0.3], 0.25), (0.2, [0.1, 0.2, 0.3], 0.75), (0.0, [0.1], 1.0)]
)
def test_p_counts_references_with_gains_as_high(target: float, reference_gains: list[float], p: float) -> None:
    assert p == rank_p(target, reference_gains)


def test_one_reference_gives_no_rank() -> None:
    gains = references(Comparing(20, simulated.K, 99, 0), simulated.tables(1))
    assert {row["metric"] for row in rows(Tables([gains]), simulated.ABOUT)} == {"accuracy gain"}
    assert list(rows(Tables([]), simulated.ABOUT)) == []
