"""The answer about a given encoder: counted by hand, and how often it is right of encoders drawn at random."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.audits.deja_vu.measures.references import Comparing, rank_p, references, rows
from tasks.audits.deja_vu.measures.scores import SCORES, Scoring, scores
from tasks.audits.deja_vu.verdict import GIVEN, verdict
from tasks.measure import Tables
from tasks.schemas import SUMMARY
from tests.support.calibration import bounds
from tests.tasks.audits.deja_vu import made_up
from tests.tasks.audits.deja_vu import simulated_encoders as simulated

FEW = Scoring(50, 50, 99, 0, given=True)


def tables(seed: int, models: str = "AB", **settings: float) -> list[pa.Table]:
    """NEIGHBOURS of a given encoder with these settings, and of references of skill 1."""
    rng = np.random.default_rng(seed)
    pictures = simulated.drawn(rng, told=(0.05, 0.05))
    names = [model if at < 2 else f"B {at}" for at, model in enumerate(models)]
    found = [simulated.embedded(pictures, rng, **(settings if at == 0 else {})) for at in range(len(names))]
    return [simulated.neighbours(pictures, each, name) for each, name in zip(found, names, strict=True)]


def test_the_corrected_score_of_few_pictures_is_that_counted_by_hand() -> None:
    found = scores(FEW, [inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)])])
    assert SCORES == found.schema
    by_way = {(row["way"], row["percent"]): row for row in found.to_pylist()}
    names = ("target_accuracy", "reference_accuracy", "score")
    # The encoder is the target on both sets. Of A, all: a1 and a2 right of 3; the reference a2 and a3.
    assert (2 / 3, 2 / 3, 0.0) == pytest.approx([by_way["A", 100][name] for name in names])
    # Of B, all: the encoder has b2 right of 2, the reference both.
    assert (0.5, 1.0, -0.5) == tuple(by_way["B", 100][name] for name in names)
    assert (2 / 3 - 0.5, 2 / 3 - 1, 0.5) == pytest.approx([by_way["corrected", 100][name] for name in names])
    assert {"corrected", "A", "B"} == {way for way, _ in by_way}
    with_p = [key for key, row in by_way.items() if row["p_value"] is not None]
    assert [("corrected", 50)] == with_p


def test_the_corrected_score_is_twice_the_mean_of_both_ways_and_p_the_same() -> None:
    found = [inferences(Voting((simulated.K,)), tables(3, memory=0.3))]
    given, both = (scores(Scoring(20, 50, 199, 7, given=given), found).to_pylist() for given in (True, False))
    corrected = [row for row in given if row["way"] == "corrected"]
    mean = [row for row in both if row["way"] == "both"]
    assert [2 * row["score"] for row in mean] == pytest.approx([row["score"] for row in corrected], abs=1e-9)
    assert [row["p_value"] for row in mean] == [row["p_value"] for row in corrected]
    of_a = [[row for row in each if row["way"] == "A"] for each in (given, both)]
    assert of_a[0] == of_a[1]


def test_gains_are_differences_of_accuracies_and_the_encoder_has_a_rank() -> None:
    found = references(Comparing(20, simulated.K, 199, 0), tables(1, "ABB", memory=0.4))
    assert ["target", "reference", "reference 2"] == found["model"].to_pylist()
    for row in found.to_pylist():
        assert row["gain"] == pytest.approx(row["accuracy_a"] - row["accuracy_b"])
        assert 300 == row["pictures"]
    target, *others = found["gain"].to_pylist()
    assert target > max(others)
    told = list(rows(Tables([found]), simulated.ABOUT))
    assert ("rank among references", 1.0, 3, 1 / 3) == tuple(
        told[0][name] for name in ("metric", "estimate", "n", "p_value")
    )
    assert ["accuracy gain"] * 3 == [row["metric"] for row in told[1:]]


@pytest.mark.parametrize(
    ("target", "others", "p"), [(0.5, [0.1, 0.2, 0.3], 0.25), (0.2, [0.1, 0.2, 0.3], 0.75), (0.0, [0.1], 1.0)]
)
def test_references_that_are_as_high_count_against_the_encoder(target: float, others: list[float], p: float) -> None:
    assert p == rank_p(target, others)


def test_one_reference_makes_no_rank_and_no_table_no_rows() -> None:
    found = references(Comparing(20, simulated.K, 99, 0), tables(1))
    assert {"accuracy gain"} == {row["metric"] for row in rows(Tables([found]), simulated.ABOUT)}
    assert [] == list(rows(Tables([]), simulated.ABOUT))


def test_the_sentence_says_what_was_asked_of_which_model() -> None:
    summary = simulated.summed(tables(0, "ABB", memory=0.5))
    found = verdict(simulated.CONFIG, summary)
    score = summary.to_pylist()[0]
    assert "memorised" == found.answer
    assert found.sentence.startswith(
        "Memorised: shown a part of a picture without its object, the given encoder finds public pictures of the same "
        "object by majority, of the 20 % of pictures that its neighbours agree on most, in "
    )
    assert (
        f"the corrected deja vu score, is {score['estimate']:.3f} (95 % interval {score['low']:.3f} to "
        f"{score['high']:.3f}, p = {score['p_value']:.2g}, over 300 pictures; 0 where nothing is memorised). Of 100 "
        "encoders that keep nothing of single pictures, at most 2 or 3 would be called so."
    ) in found.sentence
    assert "it is number 1 of 3 models, the others references (p = 0.33)." in found.sentence
    assert GIVEN == found.limits
    assert "; the given reference, on neither, in" in found.sentence
    trained = replace(simulated.CONFIG, given=replace(simulated.GIVEN, reference=None))
    assert "; a reference that was trained here, on neither, in" in verdict(trained, summary).sentence


def test_sets_that_a_reference_tells_apart_are_not_judged() -> None:
    pictures = simulated.drawn(np.random.default_rng(0), told=(0.5, 0.0))
    rng = np.random.default_rng(1)
    found = simulated.judged(
        [simulated.neighbours(pictures, simulated.embedded(pictures, rng), model) for model in "AB"]
    )
    assert "not judged" == found.answer
    assert found.sentence.startswith("Not judged: shown a part of a picture")
    assert "0 where nothing is memorised). But the reference, too" in found.sentence
    assert "the reference, too, is right more often of one set than of the other (p = 0.005)" in found.sentence
    assert json.dumps({"model": "reference", "percent": 20}) == found.rows[1][1]


def test_without_any_picture_it_is_undecided() -> None:
    assert "undecided" == verdict(simulated.CONFIG, SUMMARY.empty_table()).answer


@pytest.mark.slow
def test_encoders_that_remember_nothing_are_seldom_called_memorised() -> None:
    # 400 of either kind are in docs/deja_vu.md.
    answers = simulated.counted(60, told=(0.05, 0.05))
    assert answers["memorised"] <= bounds(0.025, 60)[1]
    assert answers["not judged"] <= bounds(0.01, 60)[1]


@pytest.mark.slow
def test_encoders_that_remember_are_found_unless_noise_hides_it() -> None:
    assert simulated.counted(10, told=(0.05, 0.05), memory=0.4)["memorised"] >= 9
    assert simulated.counted(10, told=(0.05, 0.05), memory=0.2, noise=1.0)["memorised"] <= 1
