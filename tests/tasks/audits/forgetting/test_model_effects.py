"""What is read off the effects of all models: who is compared with whom, at which precision, and on which images."""

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

# Three calibration models, of two models a target that holds half of D_Q and one of a known share; 20 images and as
# many controls.
CONTROLS = 20
IS_CONTROL = np.arange(2 * CONTROLS) >= CONTROLS
KNOWN, HALF, TENTH = audit(np.random.default_rng(3), (0.5, 0.1), replicates=3, images=CONTROLS)
HALF, TENTH = HALF[:2], TENTH[:2]
BESIDE_ALL = NamedTarget("D_C + 0.5 D_Q", "training", 0.5, 1.0, 0.0)
CONFIG = Decisions((BESIDE_ALL,), (0.1,), permutations=19)


def answers(kind: str, number: int | None, values: Array, control: int, groups: Array | None) -> list[pa.Table]:
    return [table(kind, number, index, confidence, groups, control=control) for index, confidence in enumerate(values)]


def effects(
    config: Decisions = CONFIG,
    calibration: Array = KNOWN,
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


def effect_beside(confidence: Array, calibration: Array) -> float:
    return effect(scores(confidence, calibration), IS_CONTROL)


NULL = [effect_beside(KNOWN[at], np.delete(KNOWN, at, axis=0)) for at in range(3)]


def test_calibration_models_are_each_compared_with_the_others_and_a_single_one_with_none() -> None:
    assert pytest.approx(effects().null_effects) == NULL
    assert len(effects(calibration=KNOWN[:2]).null_effects) == 2
    assert effects(calibration=KNOWN[:1]).null_effects == []


def test_ties_are_counted_within_classes_among_the_images_that_models_find_hard() -> None:
    result = effects()
    labels = result.matrix.labels
    easy = log_odds(KNOWN).mean(axis=0) > np.median(log_odds(KNOWN).mean(axis=0))
    made_up = (
        ([0.1 + 0.05 * label for label in labels], 1.0),  # a constant output says of each image its class's number
        (np.where(easy, 1.0, HALF[0]), 0.0),  # float32 says 1 of the easy ones
        (np.where(easy, HALF[0], 0.5), 1.0),
    )
    for values, share in made_up:
        model = ModelId("target", 0, 0)
        answers = replace(result.matrix.models[model], confidence=np.array(values))
        matrix = replace(result.matrix, models={**result.matrix.models, model: answers})
        assert replace(result, matrix=matrix).tied_share([model]) == pytest.approx(share)


def test_there_is_a_test_where_there_are_controls_and_models_that_never_saw_d_q() -> None:
    assert [item.is_controlled for item in (effects(), effects(calibration=KNOWN[:0]), effects(control=0))] == [
        True,
        False,
        False,
    ]


def test_the_curve_leaves_out_the_models_that_are_read_off_it() -> None:
    result = effects()
    half, tenth = ([effect_beside(values_of_model, KNOWN) for values_of_model in values] for values in (HALF, TENTH))
    for without, expected in (
        (("target", 0), {0.0: NULL, 0.1: tenth}),
        (("partial", 0), {0.0: NULL, 0.5: half}),
        (("calibration", 1), {0.0: [NULL[0], NULL[2]], 0.1: tenth, 0.5: half}),
    ):
        curve, by_hand = result.curve(without), share_curve(expected)
        assert curve is not None
        assert by_hand is not None
        assert (curve.shares.tolist(), curve.freedom, curve.fewest, curve.drawn_share) == (
            by_hand.shares.tolist(),
            by_hand.freedom,
            by_hand.fewest,
            1.0,
        )
        assert [*by_hand.means, by_hand.sigma] == pytest.approx([*curve.means, curve.sigma])
    drawn_curve = effects(replace(CONFIG, calibration_share=0.25)).curve(("target", 0))
    assert drawn_curve is not None
    assert drawn_curve.drawn_share == 0.25


@pytest.mark.parametrize(
    ("target", "groups", "is_known"),
    [
        (BESIDE_ALL, None, True),
        (BESIDE_ALL, np.arange(40) // 2, False),  # of patients the share that was drawn need not be a half
        (replace(BESIDE_ALL, query=1.0), np.arange(40) // 2, True),
        (replace(BESIDE_ALL, query=0.0), None, False),
        (replace(BESIDE_ALL, calibration=0.5), None, False),
    ],
)
def test_a_target_is_of_a_known_share_where_that_share_of_its_images_was_drawn(
    target: NamedTarget, groups: Array | None, is_known: bool
) -> None:
    result = effects(replace(CONFIG, targets=(target,)), groups=groups).known_shares
    assert {("partial", 0): 0.1} | ({("target", 0): target.query} if is_known else {}) == result


@pytest.mark.parametrize(("printed", "decimals"), [(0.0, None), (1e-6, None), (1e-5, 5), (0.01, 2)])
def test_models_are_rounded_as_the_target_is_up_to_the_sixth_decimal(printed: float, decimals: int | None) -> None:
    result = effects(printed=printed)
    expected = KNOWN if decimals is None else KNOWN.round(decimals)
    assert expected.tolist() == result.printed_confidences(result.calibration).tolist()
    assert KNOWN.tolist() == result.calibration_confidences.tolist()


def test_a_target_is_tested_by_the_mean_of_its_models_scores() -> None:
    result = effects()
    tested = result.test_target(0, result.matrix.replicates("target", 0))
    item = [scores(values_of_model, KNOWN) for values_of_model in HALF]
    assert np.mean([effect(values_of_model, IS_CONTROL) for values_of_model in item]) == pytest.approx(tested.effect)
    chance = seeds.generator(0, "permutations", 0)
    assert p_values(np.mean(item, axis=0), IS_CONTROL, 19, chance) == tested.p


def test_models_of_known_shares_are_audited_without_themselves() -> None:
    result = effects()
    audits = [*result.single_audits()]
    assert [item.share for item in audits] == [0.0] * 3 + [0.1] * 2 + [0.5] * 2
    first, last = audits[0], audits[-1]
    for single, group, values_of_model, other_models in (
        (first, ("calibration", 0), KNOWN[0], KNOWN[1:]),
        (last, ("target", 0), HALF[1], KNOWN),
    ):
        curve = result.curve(group)
        assert curve is not None
        of_images = scores(values_of_model, other_models)
        value = effect(of_images, IS_CONTROL)
        chance = seeds.generator(0, "permutations", *group, 1 if single is last else 0)
        p = p_values(of_images, IS_CONTROL, 19, chance).surer
        assert single == SingleAudit(
            single.share, pytest.approx(value), p, pytest.approx(curve.estimate_share(value, 1).high)
        )
    alone = [*effects(replace(CONFIG, partial=()), calibration=KNOWN[:1]).single_audits()]
    assert [(item.share, item.high) for item in alone] == [(0.5, 1.0)] * 2  # no curve: any share may be held


def test_likeness_is_that_of_the_controls_to_calibration_models_that_are_rounded_as_the_target_is() -> None:
    result = effects(replace(CONFIG, calibration_share=0.25), printed=0.1)
    accuracy, agreed = result.likeness_checks(result.matrix.replicates("target", 0))
    right = [(values_of_model[:, IS_CONTROL] > 0.5).mean(axis=1).tolist() for values_of_model in (HALF, KNOWN)]
    assert likeness_check(*right, 0.25) == accuracy
    calibration = KNOWN[:, IS_CONTROL]
    answers = [agreement(values_of_model[IS_CONTROL], calibration) or 0.0 for values_of_model in HALF.round(1)]
    assert likeness_check(answers, calibration_agreements(calibration, calibration.round(1)), 0.25) == agreed
    single = effects(calibration=KNOWN[:1])
    assert None is single.likeness_checks(single.matrix.replicates("target", 0))[1].value


def test_a_model_that_does_not_say_the_classes_has_no_accuracy() -> None:
    result = effects()
    models = result.matrix.replicates("target", 0)
    silent = {
        model: replace(answers, right=None) for model, answers in result.matrix.models.items() if model == models[1]
    }
    matrix = replace(result.matrix, models={**result.matrix.models, **silent})
    assert [
        None if answers is None else len(answers) // 2
        for answers in (
            values_of_model.accuracies(models) for values_of_model in (result, ModelEffects(CONFIG, matrix))
        )
    ] == [1, None]


def test_calibration_share_is_in_key_and_lone_outputs_are_unbound() -> None:
    plain = Decisions((BESIDE_ALL,))
    assert canonical(replace(plain, calibration_share=0.5)) != canonical(plain)
    table = replace(BESIDE_ALL, source="outputs")
    assert [Decisions((BESIDE_ALL, target)).has_unbound_tables for target in (BESIDE_ALL, table)] == [False, True]
