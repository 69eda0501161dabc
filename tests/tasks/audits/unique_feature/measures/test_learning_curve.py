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
# A rate that overshoots: the best epoch is not the last.
TWIN = replace(TRAINING, epochs=8, patience=8, learning_rate=0.02, seed=1)
CARRYING = replace(TWIN, burnt=(Burnt(CANARY, LETTER),))
EVALUATION = made_up.evaluation(CANARY)
COURSES = [LearningCurve(CARRYING, EVALUATION, "canary"), LearningCurve(TWIN, EVALUATION, "twin")]


def at(table: pa.Table, epoch: int) -> dict[str, object]:
    (row,) = [row for row in table.to_pylist() if row["epoch"] == epoch]
    return row


def scored(models: list[pa.Table]) -> dict[str, object]:
    tables = [score(EVALUATION, models), history(History(CANARY), models)]
    return canary_scores(NoSettings(), tables).to_pylist()[0]  # type: ignore[no-any-return]


def test_the_kept_epoch_has_the_scores_of_the_model_that_training_keeps() -> None:
    models = [train(training, ()) for training in (CARRYING, TWIN)]
    expected = scored(models)
    together = dict(learning_curve_many(COURSES, [(), ()]))
    for index, prefix in enumerate(("", "twin_")):
        table = together[index]
        assert isinstance(table, pa.Table)
        best = models[index].to_pylist()[0]["best_epoch"]
        assert best < 8
        assert [epoch == best for epoch in range(9)] == table["kept"].to_pylist()
        kept = at(table, best)
        for name in ("m", "m_w_probe", "average_d_u", "average_d_r", "validation_accuracy"):
            assert expected[prefix + name] == kept[name], name
        assert (CANARY, int(load(TWIN.data).train_labels[CANARY]), 1) == (kept["canary"], kept["label"], kept["seed"])
        assert ("canary", "twin")[index] == kept["model"]
        losses = [epoch["validation_loss"] for epoch in models[index].to_pylist()[0]["history"]]
        assert losses == table["validation_loss"].to_pylist()[1:]
        assert table.schema == LEARNING_CURVE
        assert table == learning_curve(COURSES[index], ())


def test_models_that_are_trained_in_one_stack_have_the_courses_they_have_alone() -> None:
    # The third enters when the first has ended, and ends alone.
    configs = [
        replace(COURSES[1], training=replace(TWIN, seed=seed, learning_rate=rate, epochs=4, patience=1))
        for seed, rate in ((1, 3e-3), (2, 1e-3), (3, 1e-3))
    ]
    alone = [learning_curve(config, ()) for config in configs]
    assert len({len(table) for table in alone}) > 1
    with use_context(ComputeContext(way="stack", members=2)):
        together = dict(learning_curve_many(configs, [()] * 3))
    assert alone == [together[index] for index in range(3)]


def test_a_twin_is_followed_for_as_many_epochs_as_its_canarys_model_and_keeps_the_same_one() -> None:
    model = learning_curve(replace(COURSES[0], training=replace(CARRYING, epochs=20, patience=2)), ())
    stopped, (kept,) = len(model) - 1, [row["epoch"] for row in model.to_pylist() if row["kept"]]
    assert stopped == kept + 2
    twin = LearningCurve(replace(TWIN, epochs=20, patience=0), EVALUATION, "twin")
    found = learning_curve(twin, [model])
    assert [epoch == kept for epoch in range(stopped + 1)] == found["kept"].to_pylist()
    alone = learning_curve(replace(twin, training=replace(twin.training, epochs=stopped)), ())
    assert alone.drop(["kept"]) == found.drop(["kept"])


def test_every_epoch_has_the_scores_of_a_training_that_ends_there() -> None:
    table = learning_curve(COURSES[1], ())
    for epoch in (1, 3):
        ended = train(replace(TWIN, epochs=epoch, patience=0), ())
        assert scored([ended, ended])["m"] == at(table, epoch)["m"]


def test_epoch_0_is_the_network_before_training() -> None:
    images = load(TWIN.data)
    network = architecture(TWIN, images)
    weights = network.initial(TWIN.seed)
    row = train(replace(TWIN, epochs=1), ()).to_pylist()[0]
    start = pa.Table.from_pylist([row | {"weights": weight_rows(weights)}], MODEL)
    expected, found = scored([start, start]), at(learning_curve(COURSES[0], ()), 0)
    assert (expected["m"], expected["m_w_probe"]) == (found["m"], found["m_w_probe"])
    said = torch.from_numpy(logits(network, [weights], images.test_images)[0])
    labels = torch.from_numpy(images.test_labels.copy())
    assert float(functional.cross_entropy(said, labels)) == pytest.approx(found["validation_loss"], rel=1e-5)
    assert float((said.argmax(1) == labels).double().mean()) == found["validation_accuracy"]


def test_a_canary_by_rank_has_the_course_of_its_row() -> None:
    ranked = made_up.evaluation(RankedImage("highest", 2))
    tables = [made_up.chosen(30, CANARY)]
    configs = [LearningCurve(TWIN, ranked, "canary", LETTER), LearningCurve(TWIN, ranked, "twin")]
    assert [learning_curve(config, ()) for config in COURSES] == [learning_curve(config, tables) for config in configs]
    with pytest.raises(ValueError, match="rank is 2; of the highest self-influence 1 images were chosen"):
        learning_curve(configs[1], [made_up.chosen(30)])


def test_a_training_that_cannot_go_on_ends_its_course_alone() -> None:
    wild = replace(COURSES[1], training=replace(TWIN, learning_rate=1e30))
    outside = LearningCurve(TWIN, made_up.evaluation(48), "twin")
    found = dict(learning_curve_many([wild, outside, COURSES[1]], [(), (), ()]))
    assert isinstance(found[0], TrainingError)
    assert str(found[1]) == "canary is 48; it must be one of the 48 rows that are trained on"
    assert learning_curve(COURSES[1], ()) == found[2]


def test_a_course_leaves_out_what_its_training_leaves_out() -> None:
    clean = replace(TRAINING, left_out=NearestImages(CANARY, 20), width=0.25)
    history = train(clean, ())["history"][0].as_py()
    losses = learning_curve(LearningCurve(clean, EVALUATION, "twin"), ())["validation_loss"].to_pylist()
    assert [epoch["validation_loss"] for epoch in history] == pytest.approx(losses[1:], rel=1e-6)
    assert (
        losses[1:] != learning_curve(LearningCurve(TRAINING, EVALUATION, "twin"), ())["validation_loss"].to_pylist()[1:]
    )


def test_outputs_that_are_not_finite_end_a_course() -> None:
    followed = TrackedModel(COURSES[0], CANARY, 3, Member(0, np.arange(3)))
    sound, broken = np.zeros((2, 10)), np.full((2, 10), np.nan)
    followed.record_scores(1, sound, sound, sound)
    assert (followed.points[1]["m"], followed.error) == (0.0, None)
    followed.record_scores(2, sound, broken, sound)
    assert "outputs are not finite numbers" in str(followed.error)


def test_courses_alike_in_all_but_seed_model_and_canary_share_a_call() -> None:
    ranked = LearningCurve(replace(TWIN, seed=8), made_up.evaluation(RankedImage("lowest", 1)), "canary", LETTER)
    assert batch_key(COURSES[0]) == batch_key(COURSES[1]) == batch_key(ranked)
    other = replace(COURSES[1], evaluation=replace(EVALUATION, seed=4))
    assert batch_key(COURSES[1]) != batch_key(other)
    with pytest.raises(ValueError, match="cannot share a call"):
        list(learning_curve_many([COURSES[1], other], [(), ()]))


@pytest.mark.parametrize(
    ("training", "canary", "model", "carried", "message"),
    [
        (TWIN, CANARY, "other", None, "model is 'other'; it must be one of canary, twin"),
        (replace(TWIN, examples=50), CANARY, "twin", None, "evaluation.examples is 48; it must be the training's, 50"),
        (TWIN, CANARY, "canary", None, r"training burns features into rows \[\]; for this canary it must be \[7\]"),
        (CARRYING, CANARY, "twin", None, r"training burns features into rows \[7\]; for this twin it must be \[\]"),
        (TWIN, RankedImage("lowest", 1), "canary", None, "carried is none; it must be the feature of a canary"),
        (CARRYING, CANARY, "canary", LETTER, "carried is for a canary that is named by its rank"),
        (TWIN, RankedImage("lowest", 1), "twin", LETTER, "carried is for a canary that is named by its rank"),
    ],
)
def test_a_course_that_cannot_be_is_refused(
    training: Training, canary: int | RankedImage, model: str, carried: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LearningCurve(training, made_up.evaluation(canary), model, carried)  # type: ignore[arg-type]


def test_the_task_is_marked_as_one_that_shares_calls() -> None:
    mark = marks(learning_curve)
    assert (mark.name, mark.version, mark.gpus) == ("unique_feature.course", 2, 1.0)
    assert (learning_curve_many, batch_key) == (mark.many, mark.batch_key)


def test_m_during_training_is_given_before_it_after_an_epoch_and_where_it_was_kept() -> None:
    scores = {"canary": [0.0, 0.2, 0.6, 0.5], "twin": [0.0, 0.1, 0.1, 0.3]}
    tables = []
    for canary in (3, 4):
        table = [
            {"canary": canary, "seed": 1, "model": model, "epoch": epoch, "m": m + canary, "m_w_probe": m}
            | {"kept": epoch == 2}
            for model, values in scores.items()
            for epoch, m in enumerate(values)
        ]
        tables.append(pa.Table.from_pylist(table, LEARNING_CURVE))
    found = summary_rows(tables)
    kept = found["M_w", '{"epoch": "kept"}']
    assert pytest.approx([kept["estimate"], kept["null"], kept["n"]]) == [0.6, 0.1, 2]
    effect = found["M effect", '{"epoch": "first epoch"}']
    assert pytest.approx([effect["estimate"], effect["null"], effect["unit"]]) == [0.1, 0.0, "pair of trainings"]
    assert found["M_w", '{"epoch": "before training"}']["estimate"] == 0.0


def epochs(canary: int, model: str, m: list[float], kept: int) -> list[dict[str, Any]]:
    about = {"canary": canary, "seed": 1, "model": model}
    return [
        about | {"epoch": epoch, "m": value, "m_w_probe": value * 10, "kept": epoch == kept}
        for epoch, value in enumerate(m)
    ]


def test_each_model_has_its_own_kept_epoch_and_stands_beside_its_twin() -> None:
    course = [
        *epochs(1, "canary", [0.1, 0.2, 0.3], kept=2),
        *epochs(2, "twin", [0.0, 0.05, 0.4], kept=2),
        *epochs(1, "twin", [0.01, 0.02, 0.03], kept=0),
        *epochs(2, "canary", [0.2, 0.5, 0.6], kept=1),
    ]
    course += epochs(3, "canary", [9.0, 9.0], kept=1)  # its control model is missing
    found = by_name(rows(Tables([pa.Table.from_pylist(course, LEARNING_CURVE)]), None))
    for moment, canary, twin in (
        ("before training", [0.1, 0.2], [0.01, 0.0]),
        ("first epoch", [0.2, 0.5], [0.02, 0.05]),
        ("kept", [0.3, 0.5], [0.01, 0.4]),
    ):
        setting = f'{{"epoch": "{moment}"}}'
        for metric, size in (("M", 1), ("M_w", 10)):
            ours, theirs = [size * m for m in canary], [size * m for m in twin]
            expected = [*with_t(ours), "training", sum(theirs) / 2, None, None]
            assert expected == pytest.approx(found[metric, setting])
            effects = with_t([a - b for a, b in zip(ours, theirs, strict=True)])
            assert [*effects, "pair of trainings", 0.0, None, None] == pytest.approx(found[f"{metric} effect", setting])
    assert len(found) == 12
