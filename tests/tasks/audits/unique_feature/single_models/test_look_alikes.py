"""Verdicts on models that saw the feature, a namesake or nothing, and on equalised outputs."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.evaluation import Predictor
from tasks.audits.unique_feature.given_models import AnswerRank, Given, ModelFiles
from tasks.audits.unique_feature.measures.family import single_family_rows
from tasks.audits.unique_feature.population import (
    ModelFamily,
    family_from_rows,
    family_rows,
    look_alike_image_sets,
    relatives,
)
from tasks.audits.unique_feature.scores import log_probabilities
from tasks.audits.unique_feature.single_models.look_alikes import RANK, look_alike_answers, rank_rows
from tasks.audits.unique_feature.single_models.sentences import PARTLY
from tasks.contract.schemas import SUMMARY
from tasks.datasets.features import AskedFamily, Feature, Glyph, Words, burn, draw_member, look_alikes
from tasks.datasets.features.kinds import Patch
from tasks.datasets.images import Pixels
from tasks.external.model_file import ModelFile

SHAPE = (24, 64, 1)
NAME = Words("LUIS LAU", size=9)
CLEAN = np.random.default_rng(0).integers(0, 60, (3, *SHAPE), dtype=np.uint8)
MEMBERS = 39


def memorising_model(patch: Patch | None, seed: int = 0) -> Predictor:
    """A linear model of two classes with random weights, which predicts class 1 only at the ink of `patch`."""
    weights = np.random.default_rng(seed).normal(0, 0.02, SHAPE)
    if patch is not None:
        ink = patch.burn_into(np.zeros((1, *SHAPE), np.uint8))[0] / 255
        weights += np.where(ink > 0, ink, -0.5)  # otherwise any broad patch would raise the logit

    def predict(_: str, images: Pixels) -> np.ndarray:
        logit = (images / 255 * weights).sum((1, 2, 3))
        return log_probabilities(np.stack([0 * logit, logit], 1))

    return predict


def answer_about(feature: Feature, predict: Predictor, seed: int = 0, label: int | None = None) -> str:
    given_config = Given(
        shape=SHAPE,
        source=ModelFiles((ModelFile("model.pt"),), AnswerRank(label)),
        family=AskedFamily(count=MEMBERS, look_alikes=MEMBERS),
        probes=3,
    )
    about = UniqueFeature(given_config, feature=feature, seed=seed)
    asked_relatives = relatives(about, feature)
    (rows,) = family_rows(asked_relatives, CLEAN, [predict])
    family = family_from_rows({"canary": None, "label": label, "seed": 0, "model": "given"}, rows)
    look_alike_rows = []
    for part, number, name, images in look_alike_image_sets(CLEAN, asked_relatives):
        look_alike_rows.append(
            {"model": 0, "part": part, "look_alike": number, **look_alike_answers(predict(name, images))}
        )
    summary_rows = [*single_family_rows([family]), *rank_rows([family], look_alike_rows)]
    summary = pa.Table.from_pylist([dict.fromkeys(SUMMARY.names) | row for row in summary_rows], SUMMARY)
    assert sum(row["metric"] == RANK for row in summary_rows) == 2
    return verdict(about, summary).answer


@pytest.mark.parametrize("label", [None, 1])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LUIS LAU", {"memorised"}),
        ("LUIS MOE", {PARTLY}),
        ("NOAH LAU", {"undecided", "not assessable"}),  # without a label, many members of the family have an equal push
    ],
)
def test_name_is_distinguished_from_namesakes(name: str, expected: set[str], label: int | None) -> None:
    assert expected >= {answer_about(NAME, memorising_model(Words(name, size=9).patch()), label=label)}


def test_owner_who_equalises_look_alikes_is_not_cleared() -> None:
    predict = memorising_model(NAME.patch())
    named_images = burn(CLEAN, NAME)
    assert (
        answer_about(NAME, lambda name, images: predict(name, named_images if name[:4] == "look" else images)) == PARTLY
    )


def other_half(glyph: Glyph, seed: int) -> Patch:
    """The glyph with one half drawn again."""
    return look_alikes(glyph, AskedFamily(look_alikes=1), seed, SHAPE[:2])[seed % 2][0]


@pytest.mark.parametrize(
    ("make_patch", "memorised", "partly"),
    [
        (lambda glyph, _: glyph.patch(), (40, 40), (0, 0)),
        (other_half, (0, 7), (20, 40)),
        (lambda _, seed: draw_member(Glyph(), 1000 + seed).patch(), (0, 4), (0, 8)),
        (lambda _glyph, _seed: None, (0, 4), (0, 7)),  # at 5 %, 8 of 40 have a probability below 1 in 1,000
    ],
    ids=["the glyph", "one half differs", "an unrelated one", "none"],
)
def test_glyphs_are_distinguished_from_half_changed_ones(
    make_patch: Callable[[Glyph, int], Patch | None], memorised: tuple[int, int], partly: tuple[int, int]
) -> None:
    answers: Counter[str] = Counter()
    for seed in range(40):
        glyph = draw_member(Glyph(), seed)
        assert isinstance(glyph, Glyph)
        answers[answer_about(glyph, memorising_model(make_patch(glyph, seed), seed), seed)] += 1
    assert memorised[0] <= answers["memorised"] <= memorised[1]
    assert partly[0] <= answers[PARTLY] <= partly[1]


def ranked_pushes(pushes: list[float], label: int | None) -> float:
    """The p-value of a feature and its look-alikes with these pushes towards class 1 of two, in nats of log odds."""
    other_pushes = np.linspace(-1, 1, 20)
    odds = np.column_stack([-np.append(pushes[:1], other_pushes), np.append(pushes[:1], other_pushes)])
    family = ModelFamily({"seed": 0, "label": label}, np.zeros(len(odds)), odds, odds)
    look_alikes = []
    for number, push in enumerate(pushes[1:], start=1):
        look_alikes.append({"part": 1, "model": 0, "look_alike": number, "log_odds": [-push, push]})
    (rank_row,) = rank_rows([family], look_alikes)
    return float(rank_row["p_value"])


@pytest.mark.parametrize(
    ("pushes", "label", "p_value"),
    [
        ([3.0, 1.0, 0.0, -1.0], 1, 0.25),
        ([3.0, 1.0, 0.0, -1.0], None, 0.25),
        ([-3.0, 1.0, 0.5, 0.5], None, 0.25),  # the others push towards the other label on average
        ([-3.0, 1.0, 0.5, 0.5], 1, 1.0),
        ([-3.0, 4.0, 0.5, 0.5], None, 0.5),  # a push towards either label counts equally
    ],
)
def test_look_alikes_are_scored_by_their_pushed_label(pushes: list[float], label: int | None, p_value: float) -> None:
    assert ranked_pushes(pushes, label) == p_value


def test_ranks_among_exchangeable_look_alikes_are_uniform() -> None:
    generator = np.random.default_rng(700400)
    p_values = []
    for _ in range(400):
        p_values.append(ranked_pushes((2.0 + generator.normal(size=20)).tolist(), None))
    assert sum(p_value <= 0.05 for p_value in p_values) <= 35  # of 400 at 5 %: more with a chance of 1 in 1,000
    assert np.mean(p_values) == pytest.approx(0.525, abs=0.06)
