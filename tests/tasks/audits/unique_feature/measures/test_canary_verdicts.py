"""Canaries judged one by one by the rank of the feature among the members of its family."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.canary_verdicts import (
    CANARY_VERDICTS,
    CanaryVerdicts,
    canary_verdicts,
    has_family,
    plan,
    rows,
)
from tasks.audits.unique_feature.measures.detection import family_rank_rows
from tasks.audits.unique_feature.trainings import trainings
from tasks.audits.unique_feature.verdict import SHARED
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph
from tasks.measure import Tables
from tests.tasks.audits.unique_feature.made_up import family, trained_family
from tests.tasks.summary_rows import by_name


def test_a_canary_has_the_rank_of_its_difference_and_the_shift_in_nats() -> None:
    twin = np.zeros((5, 2))
    models = [twin.copy(), twin.copy()]
    models[0][:, 1] = [0.5, 0.1, 0.2, 0.6, -0.1]
    models[1][:, 1] = [0.9, 0.1, 0.2, 0.3, -0.2]
    tables = [family(canary, {"canary": model, "twin": twin}, 1, canary) for canary, model in enumerate(models)]
    found = canary_verdicts(CanaryVerdicts(), tables[::-1])
    assert CANARY_VERDICTS == found.schema
    first, second = found.to_pylist()
    assert (1, 1, 1, 5, 1 / 5, 2 / 5) == tuple(
        first[name] for name in ("canary", "pairs", "rank", "members", "p_value", "adjusted_p")
    )
    assert (0, 2, 2 / 5, False) == tuple(second[name] for name in ("canary", "rank", "p_value", "called"))
    assert [0.9 - 0.1, 0.5 - 0.2] == pytest.approx([first["shift"], second["shift"]])


def test_the_seeds_of_a_canary_are_ranked_together_and_their_rank_is_the_detection_tables() -> None:
    alone = trained_family(3, 0.5)
    (one,) = canary_verdicts(CanaryVerdicts(), [alone]).to_pylist()
    words = {(word["estimator"], word["model"]): word for word in family_rank_rows(alone)}
    assert words["paired family rank", "canary"]["p_value"] == one["p_value"]
    tables = [trained_family(3, 0.35).set_column(2, "seed", pa.array([seed] * 84)) for seed in range(3)]
    (canary,) = canary_verdicts(CanaryVerdicts(), tables).to_pylist()
    assert 3 == canary["pairs"]
    assert 41 == canary["members"]


def test_a_pair_that_lost_a_model_and_no_pairs_have_no_verdict() -> None:
    alone = trained_family(1, 9.0).filter(pa.compute.field("model") == "canary")
    nothing = canary_verdicts(CanaryVerdicts(), [alone])
    assert 0 == nothing.num_rows
    assert [] == list(rows(Tables([nothing]), None))


def test_canaries_of_one_training_seed_have_no_interval_and_no_p_value() -> None:
    tables = [trained_family(canary, 9.0) for canary in range(3)]
    shared = [table.set_column(2, "seed", pa.array([7] * 84)) for table in tables]
    apart, together = (canary_verdicts(CanaryVerdicts(), each) for each in (tables, shared))
    assert [False, True] == [each["shared_seeds"][0].as_py() for each in (apart, together)]
    for (metric, setting), (_, low, high, *_, p_value, _) in by_name(rows(Tables([together]), None)).items():
        assert (True, None, None, None) == (json.loads(setting)[SHARED], low, high, p_value), metric
    assert all(p_value is not None for *_, p_value, _ in by_name(rows(Tables([apart]), None)).values())


def test_without_others_to_rank_it_among_no_canary_is_judged() -> None:
    config = UniqueFeature(Dataset("digits"), Dataset("photos"), canaries=2, family=Family("letters", count=25))
    assert has_family(config)
    assert 1 == len(plan(config, trainings(config)))
    glyph = replace(config, feature=Glyph(kind="random", seed=3))  # no letter has others
    assert not has_family(glyph)
    assert () == plan(glyph, trainings(glyph))
