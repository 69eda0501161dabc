"""The answer in words, of inferences that were made up and went the whole way through the audit."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from tasks.audits.deja_vu.about import About
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.measures.categories import Nothing, categories
from tasks.audits.deja_vu.measures.scores import Scoring, scores
from tasks.audits.deja_vu.presets import QUICKSTART
from tasks.audits.deja_vu.summary import summary
from tasks.audits.deja_vu.verdict import ERROR, LIMITS, verdict
from tasks.schemas import SUMMARY
from tasks.verdict import Verdict
from tests.support.calibration import bounds
from tests.tasks.audits.deja_vu import made_up

CONFIG = replace(QUICKSTART, epochs=5, recorded=(), warmup=1, layers=(3,), k=(4,))
ABOUT = About(confident=20, layer=3, k=4, epoch=5)
SETTING = {"epoch": 5, "k": 4, "layer": 3, "percent": 20}


def summed(inferences: pa.Table, resamples: int = 200, partings: int = 199) -> pa.Table:
    tables = [scores(Scoring(20, resamples, partings, 0), [inferences]), categories(Nothing(), [inferences])]
    return summary(ABOUT, tables)


def judged(inferences: pa.Table, config: DejaVu = CONFIG, resamples: int = 200, partings: int = 199) -> Verdict:
    return verdict(config, summed(inferences, resamples, partings))


def test_memory_is_memorised_and_the_sentence_has_its_numbers() -> None:
    table = made_up.simulated(0, 200, 0.1, 0.4)
    found, (score, *_) = judged(table), summed(table).to_pylist()
    assert "memorised" == found.answer
    assert found.sentence.startswith(
        "Memorised: shown a part of a picture without its object, a model that was trained on it finds public pictures "
        "of the same object by majority, of the 20 % of pictures that its neighbours agree on most, in "
    )
    assert (
        f"the deja vu score, is {score['estimate']:.3f} (95 % interval {score['low']:.3f} to {score['high']:.3f}, "
        f"p = {score['p_value']:.2g}, over 400 pictures, both ways averaged; 0 where nothing is memorised). {ERROR}."
    ) in found.sentence
    assert (("deja vu score", json.dumps(SETTING)),) == found.rows
    assert LIMITS == found.limits


def test_no_memory_in_many_pictures_is_not_seen() -> None:
    found = judged(made_up.simulated(1, 5000, 0.02, 0.0), replace(CONFIG, negligible=0.05))
    assert "not seen" == found.answer
    assert "; 0.05 or more is unlikely." in found.sentence


def test_few_pictures_are_undecided_and_it_is_said_how_much_is_possible() -> None:
    table = made_up.simulated(2, 30, 0.2, 0.0)
    found, (score, *_) = judged(table), summed(table).to_pylist()
    assert "undecided" == found.answer
    assert f"as much as {score['high']:.2g} cannot be excluded: attack more pictures." in found.sentence


def test_backgrounds_that_tell_the_object_to_anyone_are_said_to_hide_memory() -> None:
    found = judged(made_up.simulated(3, 100, 0.9, 0.0))
    assert found.answer != "memorised"
    assert (
        "so that their backgrounds tell them; what is known anyway cannot be shown to be remembered." in found.sentence
    )


def test_a_null_and_a_corner_are_told() -> None:
    found = judged(made_up.simulated(4, 100, 0.1, 0.0), replace(CONFIG, trained="other", crop="corner"))
    assert "Neither model was trained on the pictures that are asked about: this is a null." in found.sentence
    assert "shown the lower left corner of a picture, a model" in found.sentence


def test_without_scores_it_is_undecided() -> None:
    found = verdict(CONFIG, SUMMARY.empty_table())
    assert ("undecided", ()) == (found.answer, found.rows)


@pytest.mark.slow
def test_pairs_that_remember_nothing_are_called_at_most_as_often_as_is_said() -> None:
    said = Counter(judged(made_up.simulated(seed, 100, 0.15, 0.0), resamples=60).answer for seed in range(400))
    assert said["memorised"] <= bounds(0.025, 400)[1], said


@pytest.mark.slow
def test_memory_of_a_fifth_of_the_pictures_is_found() -> None:
    said = Counter(judged(made_up.simulated(seed, 200, 0.1, 0.2), resamples=60).answer for seed in range(40))
    assert said["memorised"] >= 36, said
