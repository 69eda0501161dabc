"""The effects of all models: which models are compared, at which precision, and on which images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.planning.identity import canonical
from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.exchangeability import effect, log_odds, p_values, scores
from tasks.audits.forgetting.held_share import agreement, calibration_agreements, likeness_check, share_curve
from tasks.audits.forgetting.model_effects import Decisions, ModelEffects, SingleAudit
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.trainings import ModelId
from tasks.numerics import seeds
from tests.tasks.audits.forgetting.made_up import Array, audit, table

# Three calibration models, two models of a target that holds half of D_Q, and two of a known share; 20 images and 20
# controls.
CONTROLS = 20
IS_CONTROL = np.arange(2 * CONTROLS) >= CONTROLS
REFERENCES, HALF, TENTH = audit(np.random.default_rng(3), (0.5, 0.1), replicates=3, images=CONTROLS)
HALF = HALF[:2]
TENTH = TENTH[:2]
WITH_CALIBRATION = NamedTarget("D_C + 0.5 D_Q", "training", 0.5, 1.0, 0.0)
CONFIG = Decisions((WITH_CALIBRATION,), (0.1,), permutations=19)


def answers(kind: str, number: int | None, values: Array, control: int, groups: Array | None) -> list[pa.Table]:
    result = []
    for index, confidence in enumerate(values):
        result.append(table(kind, number, index, confidence, groups, control=control))
    return result


def effects(
    config: Decisions = CONFIG,
    calibration: Array = REFERENCES,
    printed: float = 0.0,
    control: int = CONTROLS,
    groups: Array | None = None,
) -> ModelEffects:
    models = ("calibration", None, calibration), ("target", 0, HALF), ("partial", 0, TENTH)
    return ModelEffects(
        config,
        confidence_matrix(item for model_set in models for item in answers(*model_set, control, groups)),
        printed,
    )


def effect_against(confidence: Array, calibration: Array) -> float:
    return effect(scores(confidence, calibration), IS_CONTROL)


NULL = [effect_against(REFERENCES[at], np.delete(REFERENCES, at, axis=0)) for at in range(3)]


def test_calibration_models_are_compared_with_the_others() -> None:
    assert effects().null_effects == pytest.approx(NULL)
    assert len(effects(calibration=REFERENCES[:2]).null_effects) == 2
    assert effects(calibration=REFERENCES[:1]).null_effects == []


def test_ties_are_counted_among_hard_images() -> None:
    result = effects()
    labels = result.matrix.labels
    easy = log_odds(REFERENCES).mean(axis=0) > np.median(log_odds(REFERENCES).mean(axis=0))
    cases = (
        ([0.1 + 0.05 * label for label in labels], 1.0),  # a constant output gives each image the value of its class
        (np.where(easy, 1.0, HALF[0]), 0.0),  # float32 rounds easy images to 1
        (np.where(easy, HALF[0], 0.5), 1.0),
    )
    for values, share in cases:
        model = ModelId("target", 0, 0)
        answers = replace(result.matrix.models[model], confidence=np.array(values))
        matrix = replace(result.matrix, models={**result.matrix.models, model: answers})
        assert replace(result, matrix=matrix).tied_share([model]) == pytest.approx(share)


def test_needs_controls_and_calibration_models() -> None:
    assert effects().is_controlled
    assert not effects(calibration=REFERENCES[:0]).is_controlled
    assert not effects(control=0).is_controlled


def test_curve_leaves_out_the_evaluated_models() -> None:
    result = effects()
    half = [effect_against(values_of_model, REFERENCES) for values_of_model in HALF]
    tenth = [effect_against(values_of_model, REFERENCES) for values_of_model in TENTH]
    for left_out, expected in (
        (("target", 0), {0.0: NULL, 0.1: tenth}),
        (("partial", 0), {0.0: NULL, 0.5: half}),
        (("calibration", 1), {0.0: [NULL[0], NULL[2]], 0.1: tenth, 0.5: half}),
    ):
        curve = result.curve(left_out)
        by_hand = share_curve(expected)
        assert curve is not None
        assert by_hand is not None
        assert curve.shares.tolist() == by_hand.shares.tolist()
        assert curve.freedom == by_hand.freedom
        assert curve.fewest == by_hand.fewest
        assert curve.drawn_share == 1.0
        assert [*by_hand.means, by_hand.sigma] == pytest.approx([*curve.means, curve.sigma])
    drawn_curve = effects(replace(CONFIG, calibration_share=0.25)).curve(("target", 0))
    assert drawn_curve is not None
    assert drawn_curve.drawn_share == 0.25


@pytest.mark.parametrize(
    ("target", "groups", "is_known"),
    [
        (WITH_CALIBRATION, None, True),
        (WITH_CALIBRATION, np.arange(40) // 2, False),  # for patients, the drawn share need not be a half
        (replace(WITH_CALIBRATION, query=1.0), np.arange(40) // 2, True),
        (replace(WITH_CALIBRATION, query=0.0), None, False),
        (replace(WITH_CALIBRATION, calibration=0.5), None, False),
    ],
)
def test_known_share_requires_drawn_images(target: NamedTarget, groups: Array | None, is_known: bool) -> None:
    result = effects(replace(CONFIG, targets=(target,)), groups=groups).known_shares
    assert {("partial", 0): 0.1} | ({("target", 0): target.query} if is_known else {}) == result


@pytest.mark.parametrize(("printed", "decimals"), [(0.0, None), (1e-6, None), (1e-5, 5), (0.01, 2)])
def test_models_are_rounded_like_the_target(printed: float, decimals: int | None) -> None:
    result = effects(printed=printed)
    expected = REFERENCES if decimals is None else REFERENCES.round(decimals)
    assert expected.tolist() == result.printed_confidences(result.calibration).tolist()
    assert REFERENCES.tolist() == result.calibration_confidences.tolist()


def test_target_test_uses_the_mean_score() -> None:
    result = effects()
    tested = result.test_target(0, result.matrix.replicates("target", 0))
    item = [scores(values_of_model, REFERENCES) for values_of_model in HALF]
    assert np.mean([effect(values_of_model, IS_CONTROL) for values_of_model in item]) == pytest.approx(tested.effect)
    rng = seeds.generator(0, "permutations", 0)
    assert p_values(np.mean(item, axis=0), IS_CONTROL, 19, rng) == tested.p


def test_known_share_models_are_audited_without_themselves() -> None:
    result = effects()
    audits = [*result.single_audits()]
    assert [item.share for item in audits] == [0.0] * 3 + [0.1] * 2 + [0.5] * 2
    first, last = audits[0], audits[-1]
    for single, group, values_of_model, other_models in (
        (first, ("calibration", 0), REFERENCES[0], REFERENCES[1:]),
        (last, ("target", 0), HALF[1], REFERENCES),
    ):
        curve = result.curve(group)
        assert curve is not None
        of_images = scores(values_of_model, other_models)
        value = effect(of_images, IS_CONTROL)
        rng = seeds.generator(0, "permutations", *group, 1 if single is last else 0)
        p = p_values(of_images, IS_CONTROL, 19, rng).surer
        assert single == SingleAudit(
            single.share, pytest.approx(value), p, pytest.approx(curve.estimate_share(value, 1).high)
        )
    single_audits = [*effects(replace(CONFIG, partial=()), calibration=REFERENCES[:1]).single_audits()]
    # without a curve, any share may be held
    assert [(item.share, item.high) for item in single_audits] == [(0.5, 1.0)] * 2


def test_similarity_uses_equally_rounded_calibration_models() -> None:
    result = effects(replace(CONFIG, calibration_share=0.25), printed=0.1)
    accuracy, agreed = result.likeness_checks(result.matrix.replicates("target", 0))
    right = []
    for values_of_model in (HALF, REFERENCES):
        right.append((values_of_model[:, IS_CONTROL] > 0.5).mean(axis=1).tolist())
    assert likeness_check(*right, 0.25) == accuracy
    calibration = REFERENCES[:, IS_CONTROL]
    answers = []
    for values_of_model in HALF.round(1):
        answers.append(agreement(values_of_model[IS_CONTROL], calibration) or 0.0)
    assert likeness_check(answers, calibration_agreements(calibration, calibration.round(1)), 0.25) == agreed
    single = effects(calibration=REFERENCES[:1])
    assert single.likeness_checks(single.matrix.replicates("target", 0))[1].value is None


def test_model_without_classes_has_no_accuracy() -> None:
    result = effects()
    models = result.matrix.replicates("target", 0)
    silent = {}
    for model, answers in result.matrix.models.items():
        if model == models[1]:
            silent[model] = replace(answers, right=None)
    matrix = replace(result.matrix, models={**result.matrix.models, **silent})
    assert [
        None if answers is None else len(answers) // 2
        for answers in (
            values_of_model.accuracies(models) for values_of_model in (result, ModelEffects(CONFIG, matrix))
        )
    ] == [1, None]


def test_calibration_share_is_keyed_and_outputs_are_unbound() -> None:
    plain = Decisions((WITH_CALIBRATION,))
    assert canonical(replace(plain, calibration_share=0.5)) != canonical(plain)
    table = replace(WITH_CALIBRATION, source="outputs")
    assert not Decisions((WITH_CALIBRATION, WITH_CALIBRATION)).has_unbound_tables
    assert Decisions((WITH_CALIBRATION, table)).has_unbound_tables
