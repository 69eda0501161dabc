"""What each model's neighbours of a crop draw, and what a classifier of pixels says that this shows.

A drawing is made by a diffusion model of public pictures that is conditioned on the model's backbone embedding, from
the mean embedding of the public pictures nearest to the crop. Both models' drawings of a picture begin as the same
noise. Meehan et al. 2023, section 5 and appendix A.2.4.

The classifier is trained on public pictures and their labels alone, apart from both models. Which pictures are drawn is
left to chance, not chosen by what a model says of them. Both are ours: the paper shows drawings of chosen pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks import seeds
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.measures import neighbours
from tasks.audits.deja_vu.trainings import MODELS, Trainings
from tasks.datasets.catalog import load_with_boxes
from tasks.diffusion.embedding_diffusion import EmbeddingDiffusion, train_diffusion, up_to
from tasks.diffusion.pixel_classifier import PixelTraining, train_pixel_classifier
from tasks.job import Inputs, Job, task
from tasks.measure import Measure
from tasks.self_supervised.encoder_config import encoder_of_pretraining
from tasks.training.chains import chain

# One row for each model and picture that is drawn; sorted by set and id.
DRAWN = pa.schema(
    [
        ("model", pa.string()),
        ("set", pa.string()),  # that the picture is of
        ("id", pa.string()),
        ("label", pa.int32()),
        ("drawn_label", pa.int32()),  # that the classifier says of the drawing
        ("picture_label", pa.int32()),  # that it says of the picture itself
        ("side", pa.int32()),  # of the drawing, in pixels
        ("drawing", pa.large_binary()),  # uint8 (side, side, 3)
    ]
)


@dataclass(frozen=True)
class DrawnBy:
    """Which drawings are made: by the diffusion model of the embeddings of `model`, whose neighbours at `layer` decide.

    Of each set so many `pictures` are drawn (0: all), from so many `neighbours`, in so many `steps`. The pictures and
    the noise are chosen by the `seed`, alike for both models.
    """

    diffusion: EmbeddingDiffusion
    model: str
    layer: int
    pictures: int
    neighbours: int
    steps: int
    seed: int


@task(version=1, name="deja_vu.draw", gpus=1.0)
def draw(config: DrawnBy, inputs: Inputs) -> pa.Table:
    """The drawings (DRAWN) by the last SNAPSHOTS, their DIFFUSION, NEIGHBOURS and the PIXEL_CLASSIFIER."""
    from tasks.datasets.boxed.crops import evaluation_pictures
    from tasks.diffusion.neighbour_drawings import drawn_from_neighbours
    from tasks.diffusion.pixel_classifier import classify

    snapshots, diffusion, near, classifier = inputs
    about, images = config.diffusion, config.diffusion.images
    pictures = load_with_boxes(images.data, images.correlation)
    found = choose_neighbours(near, config)
    if not found.num_rows:
        return DRAWN.empty_table()
    rows = np.array([each[: config.neighbours] for each in found["neighbours"].to_pylist()], np.int64)
    names = [f"{name} {id_}" for name, id_ in zip(found["set"].to_pylist(), found["id"].to_pylist(), strict=True)]
    drawings = drawn_from_neighbours(
        about, snapshots, diffusion, pictures, rows, names, config.steps, seeds.derive(config.seed, "drawings")
    )
    places = {id_: row for row, id_ in enumerate(pictures.ids)}
    own = np.array([places[id_] for id_ in found["id"].to_pylist()], np.int64)
    side = about.diffusion.resolution
    columns = {
        "model": pa.repeat(pa.scalar(config.model), len(own)),
        **{name: found[name] for name in ("set", "id", "label")},
        "drawn_label": pa.array(classify(classifier, drawings).astype(np.int32)),
        "picture_label": pa.array(classify(classifier, evaluation_pictures(pictures, own, side)).astype(np.int32)),
        "side": pa.repeat(pa.scalar(side, pa.int32()), len(own)),
        "drawing": pa.array([drawing.tobytes() for drawing in drawings], pa.large_binary()),
    }
    return pa.table(columns, DRAWN)


def choose_neighbours(near: pa.Table, config: DrawnBy) -> pa.Table:
    """The rows of NEIGHBOURS whose pictures are drawn, after the last epoch: by chance, from each set's sorted ids."""
    last = pc.max(near["epoch"])
    decisive = near.filter((pc.field("layer") == config.layer) & (pc.field("epoch") == last))
    parts = []
    for name in sorted(pc.unique(decisive["set"]).to_pylist()):
        of_set = decisive.filter(pc.field("set") == name).sort_by("id")
        order = seeds.generator(config.seed, "pictures", name).permutation(of_set.num_rows)
        parts.append(of_set.take(np.sort(order[: config.pictures or None])))
    return pa.concat_tables(parts) if parts else decisive


def plan(config: DejaVu, trainings: Trainings) -> Sequence[Job]:
    """The drawings by each model; none unless reconstructions are asked for, of models that are trained here."""
    if "reconstruction" not in config.measures or config.given.there:
        return ()
    public = replace(trainings.configs[MODELS[0]].images, part="X")
    drawing, seed = config.drawing, seeds.derive(config.seed, "drawing")
    pixels = PixelTraining(
        public, config.diffusion.resolution, drawing.classifier, seeds.derive(config.seed, "pixel classifier")
    )
    classifier = Job(train_pixel_classifier, pixels)
    jobs = []
    for model in MODELS:
        last = trainings.last(model)
        about = EmbeddingDiffusion(
            public,
            encoder_of_pretraining(trainings.configs[model]),
            replace(config.diffusion, seed=seeds.derive(config.seed, "diffusion", model)),
        )
        diffusion = chain(train_diffusion, about, drawing.link, (last.job,), up_to)[-1]
        asked = DrawnBy(about, model, config.asked_layers[0], drawing.pictures, drawing.neighbours, drawing.steps, seed)
        inputs = (last.job, diffusion, neighbours.last(config, trainings, model), classifier)
        jobs.append(Job(draw, asked, inputs))
    return jobs


MEASURE = Measure("drawn", DRAWN, plan)
