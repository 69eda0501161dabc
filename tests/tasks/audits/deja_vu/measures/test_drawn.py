"""Which pictures are drawn, and drawings whole at tiny scale: by both models of the same pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.deja_vu import PRESETS, DejaVu, tiny
from tasks.audits.deja_vu.given_encoder import GivenEncoder
from tasks.audits.deja_vu.measures import drawn, neighbours, reconstruction
from tasks.audits.deja_vu.measures.drawn import DRAWN, DrawnBy, choose_neighbours
from tasks.audits.deja_vu.trainings import trainings
from tasks.files import File
from tasks.job import Job, marks
from tests.tasks.audits.deja_vu.made_up import neighbours as made_up

SMOKE = PRESETS["smoke"]
assert isinstance(SMOKE, DejaVu)
CONFIG = replace(tiny(SMOKE), measures=("scores", "reconstruction"), epochs=1, recorded=(), link=0)


def computed(job: Job, done: dict[int, pa.Table]) -> pa.Table:
    """The table of a job, after those below it."""
    if id(job) not in done:
        if job.after is not None:
            computed(job.after, done)
        done[id(job)] = job.function(job.config, [computed(each, done) for each in job.inputs])
    return done[id(job)]


def by(config: DejaVu, model: str = "A") -> DrawnBy:
    asked = [job.config for job in drawn.plan(config, trainings(config))]
    (found,) = (each for each in asked if each.model == model)
    assert isinstance(found, DrawnBy)
    return found


def test_nothing_is_drawn_unless_it_is_asked_for() -> None:
    config = replace(CONFIG, measures=("scores",))
    assert () == drawn.plan(config, trainings(config))
    assert () == reconstruction.plan(config, trainings(config))


def test_both_models_have_a_diffusion_model_each_and_one_classifier() -> None:
    first, second = drawn.plan(replace(CONFIG, link=0), trainings(CONFIG))
    names = ["self_supervised.pretrain", "diffusion.train", "deja_vu.neighbours", "diffusion.classify_pixels"]
    for job in (first, second):
        assert names == [marks(each.function).name for each in job.inputs]
    assert first.inputs[3].config == second.inputs[3].config
    diffusions = [job.inputs[1].config for job in (first, second)]
    assert diffusions[0].diffusion.seed != diffusions[1].diffusion.seed
    assert {"X"} == {config.images.part for config in (*diffusions, first.inputs[3].config)}
    assert [first.config.seed] == [second.config.seed]


def test_the_same_pictures_are_drawn_of_both_models_by_chance_after_the_last_epoch() -> None:
    pictures = [(f"a{at:02}", at % 3, (0, 1)) for at in range(40)]
    near = pa.concat_tables([made_up({("A", "A"): pictures}, epoch=4), made_up({("A", "A"): pictures})])
    config = replace(by(CONFIG), layer=3, pictures=6)
    found = choose_neighbours(near, config)
    assert [5] * 6 == found["epoch"].to_pylist()
    ids = found["id"].to_pylist()
    assert sorted(set(ids)) == ids
    other = made_up({("B", "A"): pictures[::-1]})
    assert ids == choose_neighbours(other, replace(config, model="B"))["id"].to_pylist()
    assert ids != choose_neighbours(near, replace(config, seed=config.seed + 1))["id"].to_pylist()
    assert 40 == choose_neighbours(near, replace(config, pictures=0)).num_rows
    assert 0 == choose_neighbours(near, replace(config, layer=2)).num_rows


@pytest.mark.slow
def test_drawings_of_both_models_are_of_the_same_pictures_and_make_a_score() -> None:
    done: dict[int, pa.Table] = {}
    planned = trainings(CONFIG)
    tables = [computed(job, done) for job in drawn.plan(CONFIG, planned)]
    assert [DRAWN, DRAWN] == [table.schema for table in tables]
    first, second = tables
    assert [first[name] for name in ("set", "id", "label", "picture_label")] == [
        second[name] for name in ("set", "id", "label", "picture_label")
    ]
    assert ["A"] * 4 + ["B"] * 4 == first["set"].to_pylist()
    assert {8 * 8 * 3} == {len(drawing) for table in tables for drawing in table["drawing"].to_pylist()}
    assert first["drawing"] != second["drawing"]
    both = reconstruction.reconstruction(reconstruction.Nothing(), tables).to_pylist()[0]
    assert 8 == both["pictures"]
    right = [
        np.array(table["drawn_label"].to_pylist()) == np.array(first["label"].to_pylist()) for table in (first, second)
    ]
    target = np.concatenate([right[0][:4], right[1][4:]])
    reference = np.concatenate([right[1][:4], right[0][4:]])
    assert both["score"] == pytest.approx(target.mean() - reference.mean())
    # What is drawn is drawn from neighbours that the same model found.
    assert {"A"} == set(computed(neighbours.plan(CONFIG, planned)[0], {})["model"].to_pylist())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drawing": replace(CONFIG.drawing, steps=2000)}, "drawing.steps is 2000; it must be at most diffusion.steps"),
        (
            {"given": GivenEncoder(embeddings=File("mine.parquet"))},
            "measures has reconstruction and an encoder is",
        ),
        ({"drawing": replace(CONFIG.drawing, neighbours=9)}, "drawing.neighbours is 9; it must be at most the larges"),
    ],
)
def test_drawings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **settings)  # type: ignore[arg-type]
