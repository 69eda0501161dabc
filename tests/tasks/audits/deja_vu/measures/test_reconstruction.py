"""Drawings of few images, by a briefly trained diffusion model and synthetic, and their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.errors import SpecError
from tasks.audits.deja_vu import PRESETS, DejaVu, tiny
from tasks.audits.deja_vu.config import About
from tasks.audits.deja_vu.encoder_config import Reconstruction, Trained
from tasks.audits.deja_vu.measures import neighbours
from tasks.audits.deja_vu.measures.reconstruction import (
    DRAWN,
    MEASURE,
    RECONSTRUCTION,
    DrawnBy,
    choose_neighbours,
    plan,
    plan_drawings,
    reconstruction,
)
from tasks.audits.deja_vu.trainings import trainings
from tasks.contract.job import NoSettings, marks
from tasks.contract.measure import Tables
from tasks.numerics.statistics import mcnemar_greater, paired_difference, proportion
from tests.support.plans import compute
from tests.support.settings import with_settings
from tests.tasks.audits.deja_vu.made_up import neighbours as made_up

SMOKE = PRESETS["smoke"]
assert isinstance(SMOKE, DejaVu)
CONFIG = with_settings(
    tiny(replace(SMOKE, encoders=Trained(probe=False, reconstruction=Reconstruction()), retrieval=None)),
    **{"training.epochs": 1, "training.link": 0},
)


def drawing_config(config: DejaVu, model: str = "A") -> DrawnBy:
    configs = [job.config for job in plan_drawings(config, trainings(config))]
    (config_of_model,) = (candidate for candidate in configs if candidate.model == model)
    assert isinstance(config_of_model, DrawnBy)
    return config_of_model


def test_images_are_drawn_only_on_request() -> None:
    config = with_settings(CONFIG, reconstruction=None)
    assert plan_drawings(config, trainings(config)) == ()
    assert plan(config, trainings(config)) == ()


def test_models_have_own_diffusion_but_one_classifier() -> None:
    first, second = plan_drawings(CONFIG, trainings(CONFIG))
    names = ["self_supervised.pretrain", "diffusion.train", "deja_vu.neighbours", "diffusion.classify_pixels"]
    for job in (first, second):
        assert names == [marks(source.function).name for source in job.inputs]
    assert first.inputs[3].config == second.inputs[3].config
    diffusions = [job.inputs[1].config for job in (first, second)]
    assert diffusions[0].diffusion.seed != diffusions[1].diffusion.seed
    assert {config.images.part for config in (*diffusions, first.inputs[3].config)} == {"X"}
    assert [first.config.seed] == [second.config.seed]


def test_same_last_epoch_images_are_drawn_for_both() -> None:
    images = [(f"a{number:02}", number % 3, (0, 1)) for number in range(40)]
    near = pa.concat_tables([made_up({("A", "A"): images}, epoch=4), made_up({("A", "A"): images})])
    config = replace(drawing_config(CONFIG), layer=3, pictures=6)
    chosen_images = choose_neighbours(near, config)
    assert chosen_images["epoch"].to_pylist() == [5] * 6
    ids = chosen_images["id"].to_pylist()
    assert sorted(set(ids)) == ids
    neighbours_by_b = made_up({("B", "A"): images[::-1]})
    assert ids == choose_neighbours(neighbours_by_b, replace(config, model="B"))["id"].to_pylist()
    assert ids != choose_neighbours(near, replace(config, seed=config.seed + 1))["id"].to_pylist()
    assert choose_neighbours(near, replace(config, pictures=0)).num_rows == 40
    assert choose_neighbours(near, replace(config, layer=2)).num_rows == 0


@pytest.mark.slow
def test_both_models_draw_the_same_images() -> None:
    done: dict[int, pa.Table] = {}
    planned_trainings = trainings(CONFIG)
    tables = [compute(job, done) for job in plan_drawings(CONFIG, planned_trainings)]
    assert [table.schema for table in tables] == [DRAWN, DRAWN]
    first, second = tables
    assert [first[name] for name in ("set", "id", "label", "image_label")] == [
        second[name] for name in ("set", "id", "label", "image_label")
    ]
    assert first["set"].to_pylist() == ["A"] * 4 + ["B"] * 4
    assert {len(drawing) for table in tables for drawing in table["drawing"].to_pylist()} == {8 * 8 * 3}
    assert first["drawing"] != second["drawing"]
    score_row = reconstruction(NoSettings(), tables).to_pylist()[0]
    assert score_row["images"] == 8
    right = []
    for table in (first, second):
        right.append(np.array(table["drawn_label"].to_pylist()) == np.array(first["label"].to_pylist()))
    target = np.concatenate([right[0][:4], right[1][4:]])
    reference = np.concatenate([right[1][:4], right[0][4:]])
    assert score_row["score"] == pytest.approx(target.mean() - reference.mean())
    # Each drawing starts from neighbours that the same model found.
    assert set(compute(neighbours.plan(CONFIG, planned_trainings)[0], {})["model"].to_pylist()) == {"A"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drawing.steps": 2000}, "drawing.steps is 2000; it must be at most diffusion.steps"),
        ({"drawing.neighbours": 9}, "drawing.neighbours is 9; it must be at most the largest k"),
        ({"given.embeddings": "a.parquet", "drawing.steps": 3}, "drawing.steps is not a field of encoders=given"),
    ],
)
def test_impossible_drawing_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        with_settings(CONFIG, **settings)


ABOUT = About(confident=20, layer=3, k=4, epoch=5)
Drawings = Mapping[tuple[str, str], Sequence[tuple[str, int, int]]]  # by (model, set): id, label, label of the drawing


def drawings(drawn_labels: Drawings) -> list[pa.Table]:
    """DRAWN of each model; the classifier names every image correctly except a3."""
    result = []
    for model in ("A", "B"):
        result.append(
            pa.Table.from_pylist(
                [
                    {"model": model, "set": name, "id": id_, "label": label, "drawn_label": drawn_label, "side": 1}
                    | {"image_label": label + (id_ == "a3"), "drawing": b"\0\1\2"}
                    for (drawn_by, name), images in drawn_labels.items()
                    for id_, label, drawn_label in images
                    if drawn_by == model
                ],
                DRAWN,
            )
        )
    return result


# Model A reconstructs a1, both models a2, neither a3; model B reconstructs b1, model A b2.
FEW: Drawings = {
    ("A", "A"): [("a1", 1, 1), ("a2", 2, 2), ("a3", 3, 0)],
    ("B", "A"): [("a2", 2, 2), ("a1", 1, 7), ("a3", 3, 4)],
    ("A", "B"): [("b1", 4, 5), ("b2", 5, 5)],
    ("B", "B"): [("b1", 4, 4), ("b2", 5, 9)],
}


def test_shares_of_both_ways_agree_with_hand_count() -> None:
    table = reconstruction(NoSettings(), drawings(FEW))
    assert table.schema == RECONSTRUCTION
    rows_by_way = {row["way"]: row for row in table.to_pylist()}
    assert list(rows_by_way) == ["both", "A", "B"]
    assert [row["images"] for row in rows_by_way.values()] == [5, 3, 2]
    assert [row["target"] for row in rows_by_way.values()] == [3 / 5, 2 / 3, 1 / 2]
    assert [row["reference"] for row in rows_by_way.values()] == [2 / 5, 1 / 3, 1 / 2]
    assert pytest.approx([row["score"] for row in rows_by_way.values()]) == [1 / 5, 1 / 3, 0]
    assert [row["image"] for row in rows_by_way.values()] == [4 / 5, 2 / 3, 1]
    # Of the five, only the target reconstructs a1 and b1, and only the reference b2: P[X >= 2] of 3.
    assert rows_by_way["both"]["p_value"] == 0.5
    target = [True, True, False, True, False]
    reference = [False, True, False, False, True]
    score = paired_difference(target, reference)
    share = proportion(2, 5)
    assert score.low == rows_by_way["both"]["score_low"]
    assert score.high == rows_by_way["both"]["score_high"]
    assert share.low == rows_by_way["both"]["reference_low"]
    assert share.high == rows_by_way["both"]["reference_high"]


def test_summary_has_the_rows_of_both_ways() -> None:
    rows = list(MEASURE.rows(Tables([reconstruction(NoSettings(), drawings(FEW))]), ABOUT) if MEASURE.rows else [])
    assert [row["metric"] for row in rows] == [
        "reconstruction score",
        "reconstruction accuracy",
        "reconstruction accuracy",
        "image accuracy",
    ]
    assert pytest.approx((rows[0]["estimate"], rows[0]["null"], rows[0]["p_value"], rows[0]["n"])) == (
        1 / 5,
        0.0,
        0.5,
        5,
    )
    assert rows[1]["setting"] == '{"epoch": 5, "layer": 3, "model": "target"}'
    assert list(MEASURE.rows(Tables([]), ABOUT) if MEASURE.rows else [0]) == []


def test_images_drawn_by_one_model_are_left_out() -> None:
    fewer = {}
    for key, images in FEW.items():
        fewer[key] = [image for image in images if key != ("B", "A") or image[0] != "a1"]
    rows = reconstruction(NoSettings(), drawings(fewer)).to_pylist()
    assert [(row["way"], row["images"], row["score"]) for row in rows] == [
        ("both", 4, 0.0),
        ("A", 2, 0.0),
        ("B", 2, 0.0),
    ]
    assert reconstruction(NoSettings(), []).num_rows == 0
    assert reconstruction(NoSettings(), drawings(FEW)[:1]).num_rows == 0


def test_uniformly_better_model_has_no_score() -> None:
    stream = np.random.default_rng(0)
    false_alarms = 0
    scores = []
    for _ in range(400):
        right = {}
        for model, share in (("A", 0.6), ("B", 0.3)):
            right[model] = stream.random((2, 60)) < share
        target = [*right["A"][0].tolist(), *right["B"][1].tolist()]
        reference = [*right["B"][0].tolist(), *right["A"][1].tolist()]
        p = mcnemar_greater(target, reference)
        assert p is not None
        false_alarms += p <= 0.05
        scores.append(np.mean(target) - np.mean(reference))
    assert abs(np.mean(scores)) < 0.01
    assert false_alarms <= 0.05 * 400 + 3 * (400 * 0.05 * 0.95) ** 0.5
