import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature import PRESETS
from tasks.audits.unique_feature.feature_family import Relatives
from tasks.audits.unique_feature.measures.exact_ranks import (
    EXACT_RANKS,
    ExactRanks,
    exact_ranks,
    match_spread,
    plan,
    rank_jobs,
    reference_jobs,
    score_summary_rows,
)
from tasks.audits.unique_feature.slope_ranks import inked_cells
from tasks.audits.unique_feature.trainings import trainings
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, Glyph, Words
from tests.tasks.audits.unique_feature.made_up import LABEL, reads_the_letter

DIGITS, PHOTOS = pin(Dataset("digits")), pin(Dataset("photos"))
ALL_GLYPHS = 4_457_400


def asked(feature: Feature = Glyph(), drawn: bool = False, references: int = 0, **changes: object) -> ExactRanks:
    canary = int(np.flatnonzero(load(DIGITS).train_labels == LABEL)[0])
    kind = replace(Family(count=30), **changes)  # type: ignore[arg-type]
    return ExactRanks(DIGITS, canary, 0, Relatives(PHOTOS, "test", 20, feature, kind, seed=3), drawn, references)


@pytest.fixture(scope="module")
def letter() -> pa.Table:
    return exact_ranks(asked(references=1), [reads_the_letter(3.0), reads_the_letter(1.0), reads_the_letter(0.0)])


def of(table: pa.Table, score: str, feature: str) -> list[dict[str, object]]:
    return [row for row in table.to_pylist() if (row["score"], row["feature"]) == (score, feature)]


@pytest.mark.parametrize("score", ["pair", "references"])
def test_a_model_that_came_to_read_the_letter_puts_it_first_of_all_glyphs(letter: pa.Table, score: str) -> None:
    (row,) = of(letter, score, "canary")
    assert (1 / ALL_GLYPHS, ALL_GLYPHS, False, 14) == tuple(row[n] for n in ("p_value", "among", "drawn", "inked"))
    assert math.log2(ALL_GLYPHS) == pytest.approx(row["exposure"])
    assert (14, 14**2 / 25) == (row["hits"], row["hits_by_chance"])
    assert inked_cells(Glyph()).tolist() == row["ink"]
    assert (1 if score == "references" else None) == row["references"]


def test_the_others_are_drawn_glyphs_where_the_letter_was_chosen(letter: pa.Table) -> None:
    others = of(letter, "pair", "other")
    assert [True] * 26 == [row["drawn"] for row in others]
    assert all(row["p_value"] > 1 / ALL_GLYPHS for row in others)  # type: ignore[operator]
    assert {None} == {row["hits"] for row in others}


def test_the_others_are_the_letters_where_the_feature_was_drawn() -> None:
    glyph = Glyph(kind="random", seed=4)
    table = exact_ranks(asked(glyph, drawn=True), [reads_the_letter(3.0), reads_the_letter(1.0)])
    (row,) = of(table, "pair", "canary")
    assert row["drawn"]
    others = of(table, "pair", "other")
    assert [False] * 26 == [other["drawn"] for other in others]
    assert 1 / ALL_GLYPHS == others[0]["p_value"]  # the letter A
    assert {14, 9} <= {other["inked"] for other in others}  # each among those of its own ink


def test_which_glyph_was_drawn_bears_on_nothing_but_its_own_rank() -> None:
    models = [reads_the_letter(3.0), reads_the_letter(1.0)]
    one, two = (exact_ranks(asked(Glyph(kind="random", seed=s), True), models) for s in (4, 5))
    assert of(one, "pair", "canary")[0]["slopes"] == of(two, "pair", "canary")[0]["slopes"]
    assert of(one, "pair", "other") == of(two, "pair", "other")


def test_letters_and_words_are_ranked_among_the_members_of_their_family() -> None:
    models = [reads_the_letter(3.0), reads_the_letter(1.0)]
    letters = of(exact_ranks(asked(kind="letters", count=25), models), "pair", "canary")
    assert (26, 1 / 26) == (letters[0]["among"], letters[0]["p_value"])
    words = of(exact_ranks(asked(Words("JO", size=8)), models), "pair", "canary")
    assert 31 == words[0]["among"]
    assert [] == of(exact_ranks(asked(Words("JO", size=8)), models), "pair", "other")


def test_a_temperature_changes_nothing_where_one_model_is_asked() -> None:
    draws = np.random.default_rng(0)
    own, others = draws.normal(size=30), [draws.normal(size=30) for _ in range(3)]
    assert match_spread(own, others) == pytest.approx(match_spread(own / 2, others))
    assert np.mean([other.std() for other in others]) == pytest.approx(match_spread(own, others).std())
    assert [0.0, 0.0] == match_spread(np.zeros(2), others).tolist()


def test_models_that_do_not_differ_give_a_p_of_1() -> None:
    table = exact_ranks(asked(), [reads_the_letter(3.0), reads_the_letter(3.0)])
    assert {1.0} == {row["p_value"] for score in ("pair", "weight change") for row in of(table, score, "canary")}


def test_references_are_twins_of_other_seeds() -> None:
    config = replace(PRESETS["smoke"], data=DIGITS, probe=PHOTOS, canaries=6, measures=("ranks",))
    found = trainings(config)
    for pair in found.pairs:
        others = reference_jobs(found, pair)
        assert 4 == len(set(others))
        assert pair.twin not in others
    one_seed = trainings(replace(config, one_seed=True))
    assert {()} == {reference_jobs(one_seed, pair) for pair in one_seed.pairs}
    (job, *_) = rank_jobs(config, found)
    assert 4 == job.config.references == len(job.inputs) - 2


def test_the_summary_counts_detections_beside_false_alarms() -> None:
    def rank(canary: int, feature: str, p_value: float, **more: object) -> dict[str, object]:
        about = {"canary": canary, "seed": canary, "score": "pair", "feature": feature, "drawn": feature == "canary"}
        about |= {"among": ALL_GLYPHS}
        return dict.fromkeys(EXACT_RANKS.names) | about | {"p_value": p_value, "exposure": -math.log2(p_value)} | more

    read = {"hits": 12, "hits_by_chance": 7.84}
    table = [rank(0, "canary", 2**-10, **read), rank(1, "canary", 0.5, **read)]
    table += [rank(canary, "other", p) for canary in (0, 1) for p in (0.5, 0.5, 0.5, 0.01)]
    rows = {(row["metric"], row["setting"]): row for row in score_summary_rows(table)}
    drawn = {"score": "pair", "drawn": True}
    at = {level: json.dumps(drawn | {"level": level}, sort_keys=True) for level in (0.05, 0.001)}
    called = rows["rate of exact p at most", at[0.05]]
    assert (0.5, 2, 0.25, "pair of trainings") == tuple(called[n] for n in ("estimate", "n", "null", "unit"))
    assert 0.5 == rows["rate of exact p at most", at[0.001]]["estimate"]
    alarms = rows[
        "false alarms of exact p",
        json.dumps(drawn | {"level": 0.05, "queries": 8, "guaranteed by the draw": False}, sort_keys=True),
    ]
    assert (0.25, 2, 0.05) == (alarms["estimate"], alarms["n"], alarms["null"])
    bits = rows["exposure in bits", json.dumps(drawn, sort_keys=True)]
    assert (5.5, pytest.approx((3 - math.log2(0.01)) / 4)) == (bits["estimate"], bits["null"])
    assert (12, 7.84) == tuple(
        rows["pixels read out", json.dumps(drawn, sort_keys=True)][n] for n in ("estimate", "null")
    )


def test_a_level_that_a_rank_among_so_few_cannot_reach_is_left_out() -> None:
    names = dict.fromkeys(EXACT_RANKS.names) | {"canary": 1, "seed": 1, "score": "pair", "feature": "canary"}
    rows = score_summary_rows([names | {"drawn": True, "p_value": 1 / 201, "exposure": 7.65, "among": 201}])
    assert [0.05, 0.01] == [json.loads(row["setting"])["level"] for row in rows if "rate" in row["metric"]]


def test_canaries_that_share_a_seed_have_rates_and_no_intervals() -> None:
    names = dict.fromkeys(EXACT_RANKS.names) | {"score": "pair", "feature": "canary", "drawn": True, "among": 201}
    names |= {"p_value": 1 / 201, "exposure": 7.65}
    for seeds, has in (((1, 2), True), ((1, 1), False)):
        rows = score_summary_rows([names | {"canary": at, "seed": seed} for at, seed in enumerate(seeds)])
        assert {has} == {row["low"] is not None for row in rows if "rate" in row["metric"]}


def test_words_that_have_too_few_others_are_refused_before_any_training() -> None:
    words = Words("12")
    config = replace(PRESETS["smoke"], data=DIGITS, probe=PHOTOS, feature=words, measures=("scores", "ranks"))
    with pytest.raises(ValueError, match="count is 200; it must be at most"):
        plan(config, trainings(config))
