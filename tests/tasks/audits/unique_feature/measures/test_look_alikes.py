"""The feature, a namesake, nothing and a levelled answer: who is said to know which, from pictures to the verdict."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.answer.panels import PARTLY
from tasks.audits.unique_feature.evaluation import Predictor
from tasks.audits.unique_feature.external_models import ExternalModels
from tasks.audits.unique_feature.measures.family import single_family_rows
from tasks.audits.unique_feature.measures.look_alikes import RANK, rank_rows
from tasks.audits.unique_feature.population import (
    family_from_rows,
    family_rows,
    look_alike_image_sets,
    relatives,
    shared_label,
)
from tasks.audits.unique_feature.scores import log_probabilities
from tasks.contract.schemas import SUMMARY
from tasks.datasets.features import Family, Feature, Glyph, Words, burn, draw_member, look_alikes
from tasks.datasets.features.kinds import Patch
from tasks.datasets.images import Pixels
from tasks.external.model_file import ModelFile

SHAPE = (24, 64, 1)
NAME = Words("LUIS LAU", size=9)
CLEAN = np.random.default_rng(0).integers(0, 60, (3, *SHAPE), dtype=np.uint8)
MEMBERS = 39


def remembering(shown: Patch | None, seed: int = 0) -> Predictor:
    """A linear model of two classes and random weights, which says class 1 where there is the shown ink alone."""
    weights = np.random.default_rng(seed).normal(0, 0.02, SHAPE)
    if shown is not None:
        ink = shown.burn_into(np.zeros((1, *SHAPE), np.uint8))[0] / 255
        weights += np.where(ink > 0, ink, -0.5)  # else all that is broad would please it

    def predict(_: str, images: Pixels) -> np.ndarray:
        logit = (images / 255 * weights).sum((1, 2, 3))
        return log_probabilities(np.stack([0 * logit, logit], 1))

    return predict


def answer(feature: Feature, predict: Predictor, seed: int = 0, label: int | None = None) -> str:
    given = ExternalModels(models=(ModelFile("model.pt"),), shape=SHAPE, label=label)
    about = UniqueFeature(
        feature=feature, given=given, family=Family(count=MEMBERS, look_alikes=MEMBERS), probes=3, seed=seed
    )
    asked = relatives(about, feature)
    (rows,) = family_rows(asked, CLEAN, [predict])
    family = family_from_rows({"canary": None, "label": label, "seed": 0, "model": "given"}, rows)
    said = [
        {"model": 0, "part": part, "look_alike": number, "log_p": predict(name, images).mean(axis=0).tolist()}
        for part, number, name, images in look_alike_image_sets(CLEAN, asked)
    ]
    found = [*single_family_rows([family]), *rank_rows([family], said)]
    summary = pa.Table.from_pylist([dict.fromkeys(SUMMARY.names) | row for row in found], SUMMARY)
    assert sum(row["metric"] == RANK for row in found) == 2
    return verdict(about, summary).answer


@pytest.mark.parametrize("label", [None, 1])
@pytest.mark.parametrize(
    ("shown", "expected"), [("LUIS LAU", "memorised"), ("LUIS MOE", PARTLY), ("NOAH LAU", "undecided")]
)
def test_a_name_is_told_from_namesakes(shown: str, expected: str, label: int | None) -> None:
    assert expected == answer(NAME, remembering(Words(shown, size=9).patch()), label=label)


def test_an_owner_who_answers_look_alikes_as_the_name_hides_which_it_is_and_is_not_cleared() -> None:
    predict = remembering(NAME.patch())
    same = burn(CLEAN, NAME)
    assert PARTLY == answer(NAME, lambda name, images: predict(name, same if name[:4] == "look" else images))


def other_half(glyph: Glyph, seed: int) -> Patch:
    """The glyph with one of its halves drawn anew."""
    return look_alikes(glyph, Family(look_alikes=1), seed, SHAPE[:2])[seed % 2][0]


@pytest.mark.parametrize(
    ("shown", "memorised", "partly"),
    [
        (lambda glyph, _: glyph.patch(), (40, 40), (0, 0)),
        (other_half, (0, 7), (20, 40)),
        (lambda _, seed: draw_member(Glyph(), 1000 + seed).patch(), (0, 4), (0, 8)),
        (lambda _glyph, _seed: None, (0, 4), (0, 7)),  # at 5 %, 8 of 40 come out in less than 1 of 1,000 cases
    ],
    ids=["the glyph", "one half differs", "an unrelated one", "none"],
)
def test_glyphs_are_told_from_those_that_differ_in_one_half(
    shown: Callable[[Glyph, int], Patch | None], memorised: tuple[int, int], partly: tuple[int, int]
) -> None:
    said: Counter[str] = Counter()
    for seed in range(40):
        glyph = draw_member(Glyph(), seed)
        assert isinstance(glyph, Glyph)
        said[answer(glyph, remembering(shown(glyph, seed), seed), seed)] += 1
    assert memorised[0] <= said["memorised"] <= memorised[1]
    assert partly[0] <= said[PARTLY] <= partly[1]


def test_the_label_is_the_one_towards_which_look_alikes_push_whichever_of_them_is_asked_about() -> None:
    family = np.random.default_rng(0).normal(size=(1, 30, 3))
    look_alikes = family[:, :10] + [0.0, 0.0, 5.0]
    assert [2, 2] == [shared_label(family, each) for each in (look_alikes, look_alikes[:, ::-1])]
    assert 0 == shared_label(np.zeros_like(family), look_alikes)  # no spread, nothing to compare
