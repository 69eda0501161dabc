from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn import functional

from tasks.audits.unique_feature.measures.divergences import score
from tasks.audits.unique_feature.measures.learning_curve import (
    LEARNING_CURVE,
    History,
    LearningCurve,
    TrackedModel,
    batch_key,
    history,
    learning_curve,
    learning_curve_many,
    rows,
)
from tasks.audits.unique_feature.pairs.canary_scores import canary_scores
from tasks.audits.unique_feature.pairs.canary_selection import RankedImage
from tasks.contract.job import NoSettings, marks
from tasks.contract.measure import Tables
from tasks.contract.schemas import MODEL
from tasks.datasets.catalog import load
from tasks.models.inference import logits
from tasks.models.networks import weight_rows
from tasks.training.classifier import Burnt, NearestImages, Training, architecture, train
from tasks.training.members import Member, TrainingError
from tasks.worker.compute_context import ComputeContext, use_context
from tests.tasks.audits.unique_feature import made_up
from tests.tasks.audits.unique_feature.made_up import LETTER, TRAINING, summary_rows
from tests.tasks.summary_rows import by_name, with_t

CANARY = 7
# A learning rate that overshoots: the best epoch is not the last.
TWIN = replace(TRAINING, epochs=8, patience=8, learning_rate=0.02, seed=1)
CARRYING = replace(TWIN, burnt=(Burnt(CANARY, LETTER),))
EVALUATION = made_up.evaluation(CANARY)
COURSES = [LearningCurve(CARRYING, EVALUATION, "canary"), LearningCurve(TWIN, EVALUATION, "twin")]


def row_at(table: pa.Table, epoch: int) -> dict[str, object]:
    (row,) = [row for row in table.to_pylist() if row["epoch"] == epoch]
    return row


def score_models(models: list[pa.Table]) -> dict[str, object]:
    tables = [score(EVALUATION, models), history(History(CANARY), models)]
    return canary_scores(NoSettings(), tables).to_pylist()[0]  # type: ignore[no-any-return]


def test_kept_epoch_has_the_kept_models_scores() -> None:
    models = [train(training, ()) for training in (CARRYING, TWIN)]
    expected = score_models(models)
    tables_by_index = dict(learning_curve_many(COURSES, [(), ()]))
    for index, prefix in enumerate(("", "twin_")):
        table = tables_by_index[index]
        assert isinstance(table, pa.Table)
        best = models[index].to_pylist()[0]["best_epoch"]
        assert best < 8
        assert [epoch == best for epoch in range(9)] == table["kept"].to_pylist()
        kept_row = row_at(table, best)
        for name in ("m", "m_w_probe", "average_d_u", "average_d_r", "validation_accuracy"):
            assert expected[prefix + name] == kept_row[name], name
        assert kept_row["canary"] == CANARY
        assert kept_row["label"] == int(load(TWIN.data).train_labels[CANARY])
        assert kept_row["seed"] == 1
        assert ("canary", "twin")[index] == kept_row["model"]
        losses = []
        for epoch in models[index].to_pylist()[0]["history"]:
            losses.append(epoch["validation_loss"])
        assert losses == table["validation_loss"].to_pylist()[1:]
        assert table.schema == LEARNING_CURVE
        assert table == learning_curve(COURSES[index], ())


def test_stacked_models_have_their_single_courses() -> None:
    # The third model enters when the first has ended, and finishes alone.
    configs = []
    for seed, rate in ((1, 3e-3), (2, 1e-3), (3, 1e-3)):
        configs.append(replace(COURSES[1], training=replace(TWIN, seed=seed, learning_rate=rate, epochs=4, patience=1)))
    single_tables = [learning_curve(config, ()) for config in configs]
    assert len({len(table) for table in single_tables}) > 1
    with use_context(ComputeContext(way="stack", members=2)):
        stacked_tables = dict(learning_curve_many(configs, [()] * 3))
    assert single_tables == [stacked_tables[index] for index in range(3)]


def test_twin_is_followed_for_its_canarys_epochs() -> None:
    model = learning_curve(replace(COURSES[0], training=replace(CARRYING, epochs=20, patience=2)), ())
    stopped, (kept_epoch,) = len(model) - 1, [row["epoch"] for row in model.to_pylist() if row["kept"]]
    assert stopped == kept_epoch + 2
    control_course = LearningCurve(replace(TWIN, epochs=20, patience=0), EVALUATION, "twin")
    control_table = learning_curve(control_course, [model])
    assert [epoch == kept_epoch for epoch in range(stopped + 1)] == control_table["kept"].to_pylist()
    table_without_input = learning_curve(
        replace(control_course, training=replace(control_course.training, epochs=stopped)), ()
    )
    assert table_without_input.drop(["kept"]) == control_table.drop(["kept"])


def test_epochs_have_scores_of_trainings_ending_there() -> None:
    table = learning_curve(COURSES[1], ())
    for epoch in (1, 3):
        ended = train(replace(TWIN, epochs=epoch, patience=0), ())
        assert score_models([ended, ended])["m"] == row_at(table, epoch)["m"]


def test_epoch_0_is_the_untrained_network() -> None:
    images = load(TWIN.data)
    network = architecture(TWIN, images)
    weights = network.initial(TWIN.seed)
    row = train(replace(TWIN, epochs=1), ()).to_pylist()[0]
    start = pa.Table.from_pylist([row | {"weights": weight_rows(weights)}], MODEL)
    expected = score_models([start, start])
    first_row = row_at(learning_curve(COURSES[0], ()), 0)
    assert expected["m"] == first_row["m"]
    assert expected["m_w_probe"] == first_row["m_w_probe"]
    outputs = torch.from_numpy(logits(network, [weights], images.test_images)[0])
    labels = torch.from_numpy(images.test_labels.copy())
    assert float(functional.cross_entropy(outputs, labels)) == pytest.approx(first_row["validation_loss"], rel=1e-5)
    assert float((outputs.argmax(1) == labels).double().mean()) == first_row["validation_accuracy"]


def test_canary_by_rank_has_its_rows_course() -> None:
    ranked = made_up.evaluation(RankedImage("highest", 2))
    tables = [made_up.chosen_rows(30, CANARY)]
    configs = [LearningCurve(TWIN, ranked, "canary", LETTER), LearningCurve(TWIN, ranked, "twin")]
    assert [learning_curve(config, ()) for config in COURSES] == [learning_curve(config, tables) for config in configs]
    with pytest.raises(ValueError, match="rank is 2; of the highest self-influence 1 images were chosen"):
        learning_curve(configs[1], [made_up.chosen_rows(30)])


def test_failed_training_ends_only_its_course() -> None:
    wild = replace(COURSES[1], training=replace(TWIN, learning_rate=1e30))
    outside = LearningCurve(TWIN, made_up.evaluation(48), "twin")
    results = dict(learning_curve_many([wild, outside, COURSES[1]], [(), (), ()]))
    assert isinstance(results[0], TrainingError)
    assert str(results[1]) == "canary is 48; it must be one of the 48 rows that are trained on"
    assert learning_curve(COURSES[1], ()) == results[2]


def test_course_leaves_out_the_same_images() -> None:
    clean = replace(TRAINING, left_out=NearestImages(CANARY, 20), width=0.25)
    history = train(clean, ())["history"][0].as_py()
    losses = learning_curve(LearningCurve(clean, EVALUATION, "twin"), ())["validation_loss"].to_pylist()
    assert [epoch["validation_loss"] for epoch in history] == pytest.approx(losses[1:], rel=1e-6)
    assert (
        losses[1:] != learning_curve(LearningCurve(TRAINING, EVALUATION, "twin"), ())["validation_loss"].to_pylist()[1:]
    )


def test_infinite_outputs_end_a_course() -> None:
    tracked = TrackedModel(COURSES[0], CANARY, 3, Member(0, np.arange(3)))
    finite_outputs = np.zeros((2, 10))
    nan_outputs = np.full((2, 10), np.nan)
    tracked.record_scores(1, finite_outputs, finite_outputs, finite_outputs)
    assert tracked.points[1]["m"] == 0.0
    assert tracked.error is None
    tracked.record_scores(2, finite_outputs, nan_outputs, finite_outputs)
    assert "outputs are not finite numbers" in str(tracked.error)


def test_courses_with_other_seeds_share_a_call() -> None:
    ranked = LearningCurve(replace(TWIN, seed=8), made_up.evaluation(RankedImage("lowest", 1)), "canary", LETTER)
    assert batch_key(COURSES[0]) == batch_key(COURSES[1]) == batch_key(ranked)
    other_evaluation = replace(COURSES[1], evaluation=replace(EVALUATION, seed=4))
    assert batch_key(COURSES[1]) != batch_key(other_evaluation)
    with pytest.raises(ValueError, match="cannot share a call"):
        list(learning_curve_many([COURSES[1], other_evaluation], [(), ()]))


@pytest.mark.parametrize(
    ("training", "canary", "model", "carried", "message"),
    [
        (TWIN, CANARY, "other", None, "model is 'other'; it must be one of canary, twin"),
        (replace(TWIN, examples=50), CANARY, "twin", None, "evaluation.examples is 48; it must be the training's, 50"),
        (TWIN, CANARY, "canary", None, r"training burns features into rows \[\]; for this canary it must be \[7\]"),
        (CARRYING, CANARY, "twin", None, r"training burns features into rows \[7\]; for this twin it must be \[\]"),
        (TWIN, RankedImage("lowest", 1), "canary", None, "carried is none; it must be the feature of a canary"),
        (CARRYING, CANARY, "canary", LETTER, "carried is only for a canary that is named by its rank"),
        (TWIN, RankedImage("lowest", 1), "twin", LETTER, "carried is only for a canary that is named by its rank"),
    ],
)
def test_impossible_course_is_refused(
    training: Training, canary: int | RankedImage, model: str, carried: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LearningCurve(training, made_up.evaluation(canary), model, carried)  # type: ignore[arg-type]


def test_task_shares_calls() -> None:
    mark = marks(learning_curve)
    assert mark.name == "unique_feature.course"
    assert mark.version == 2
    assert mark.gpus == 1.0
    assert learning_curve_many == mark.many
    assert batch_key == mark.batch_key


def test_summary_has_m_before_during_and_after_training() -> None:
    scores = {"canary": [0.0, 0.2, 0.6, 0.5], "twin": [0.0, 0.1, 0.1, 0.3]}
    tables = []
    for canary in (3, 4):
        table = []
        for model, values in scores.items():
            for epoch, m in enumerate(values):
                table.append(
                    {"canary": canary, "seed": 1, "model": model, "epoch": epoch, "m": m + canary, "m_w_probe": m}
                    | {"kept": epoch == 2}
                )
        tables.append(pa.Table.from_pylist(table, LEARNING_CURVE))
    summary_by_name = summary_rows(tables)
    kept_row = summary_by_name["M_w", '{"epoch": "kept"}']
    assert pytest.approx([kept_row["estimate"], kept_row["null"], kept_row["n"]]) == [0.6, 0.1, 2]
    effect = summary_by_name["M effect", '{"epoch": "first epoch"}']
    assert pytest.approx([effect["estimate"], effect["null"], effect["unit"]]) == [0.1, 0.0, "pair of trainings"]
    assert summary_by_name["M_w", '{"epoch": "before training"}']["estimate"] == 0.0


def epochs(canary: int, model: str, m: list[float], kept_epoch: int) -> list[dict[str, Any]]:
    about = {"canary": canary, "seed": 1, "model": model}
    result = []
    for epoch, value in enumerate(m):
        result.append(about | {"epoch": epoch, "m": value, "m_w_probe": value * 10, "kept": epoch == kept_epoch})
    return result


def test_models_have_their_own_kept_epochs() -> None:
    course = [
        *epochs(1, "canary", [0.1, 0.2, 0.3], kept_epoch=2),
        *epochs(2, "twin", [0.0, 0.05, 0.4], kept_epoch=2),
        *epochs(1, "twin", [0.01, 0.02, 0.03], kept_epoch=0),
        *epochs(2, "canary", [0.2, 0.5, 0.6], kept_epoch=1),
    ]
    course += epochs(3, "canary", [9.0, 9.0], kept_epoch=1)  # its control model is missing
    summary_by_name = by_name(rows(Tables([pa.Table.from_pylist(course, LEARNING_CURVE)]), None))
    for moment, canary, control in (
        ("before training", [0.1, 0.2], [0.01, 0.0]),
        ("first epoch", [0.2, 0.5], [0.02, 0.05]),
        ("kept", [0.3, 0.5], [0.01, 0.4]),
    ):
        setting = f'{{"epoch": "{moment}"}}'
        for metric, size in (("M", 1), ("M_w", 10)):
            canary_scores_of_moment = [size * m for m in canary]
            control_scores = [size * m for m in control]
            expected = [*with_t(canary_scores_of_moment), "training", sum(control_scores) / 2, None, None]
            assert expected == pytest.approx(summary_by_name[metric, setting])
            effects = with_t([a - b for a, b in zip(canary_scores_of_moment, control_scores, strict=True)])
            assert summary_by_name[f"{metric} effect", setting] == pytest.approx(
                [*effects, "pair of trainings", 0.0, None, None]
            )
    assert len(summary_by_name) == 12
