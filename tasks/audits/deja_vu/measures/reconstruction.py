"""The share of reconstructions, drawn from a background's neighbours, that show the removed object.

A diffusion model is trained on public images, conditioned on the audited model's backbone embedding. It draws a
reconstruction from the mean embedding of the public images nearest to the crop. Both models' reconstructions of an
image start from the same noise. Meehan et al. 2023, section 5 and appendix A.2.4.

    score = share of the target's reconstructions that show the true object - share of the reference's

The score is computed over the images of both sets, paired by image, and is 0 without memorisation. A classifier trained
only on public images and their labels names the object in a reconstruction, independently of both models. Its accuracy
on the original images is also reported, since it bounds what can be detected. The images are drawn at random.

The interval is Newcombe's for paired proportions; p is McNemar's exact one-sided p-value. If one model draws better
regardless of its training data, this advantage cancels, because each model is the target for one set and the reference
for the other. The classifier, the random choice of images and the count are ours: the paper shows reconstructions of
chosen images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.measures import neighbours
from tasks.audits.deja_vu.measures.inferences import OTHER, SETS
from tasks.audits.deja_vu.measures.scores import BOTH, estimate
from tasks.audits.deja_vu.trainings import MODELS, Trainings
from tasks.contract.job import Inputs, Job, NoSettings, Work, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, interval_columns, interval_fields, row
from tasks.datasets.boxed.partition import expect_sizes
from tasks.datasets.catalog import load_with_boxes
from tasks.diffusion.diffusion_config import diffusion_config
from tasks.diffusion.embedding_diffusion import EmbeddingDiffusion, denoising_step, train_diffusion, up_to
from tasks.diffusion.pixel_classifier import PixelTraining, train_pixel_classifier
from tasks.numerics import seeds
from tasks.numerics.statistics import mcnemar_greater, paired_difference, proportion
from tasks.self_supervised.pretraining_config import encoder_of_pretraining
from tasks.training.chains import chain

# One row per model and reconstructed image, sorted by set and id.
DRAWN = pa.schema(
    [
        ("model", pa.string()),
        ("set", pa.string()),  # set of the image
        ("id", pa.string()),
        ("label", pa.int32()),
        ("drawn_label", pa.int32()),  # the classifier's label for the reconstruction
        ("image_label", pa.int32()),  # the classifier's label for the original image
        ("side", pa.int32()),  # side of the reconstruction, in pixels
        ("drawing", pa.large_binary()),  # pixels, uint8 (side, side, 3)
    ]
)


@dataclass(frozen=True)
class DrawnBy:
    """Reconstructions of images from the embeddings of `model`, with neighbours found at `layer`.

    `pictures` images per set (0: all) are reconstructed from `neighbours` neighbours in `steps` sampling steps. `seed`
    determines images and noise, which are the same for both models.
    """

    diffusion: EmbeddingDiffusion
    model: str
    layer: int
    pictures: int
    neighbours: int
    steps: int
    seed: int


def work(config: DrawnBy) -> Work:
    """Return the work of all sampling steps of both sets."""
    sizes = expect_sizes(
        load_with_boxes(config.diffusion.images.data, config.diffusion.images.correlation),
        config.diffusion.images.partition,
    )
    unit = f"denoise with a U-Net at {config.diffusion.diffusion.resolution}"
    drawings = 2 * (config.pictures or sizes.trained)
    return Work(
        besides={unit: float(drawings * config.steps)},
        operations={unit: denoising_step(config.diffusion, is_sampling=True)},
    )


@task(version=1, name="deja_vu.draw", gpus=1.0, work=work)
def draw(config: DrawnBy, inputs: Inputs) -> pa.Table:
    """Draw the reconstructions (DRAWN) from the last SNAPSHOTS, their DIFFUSION, NEIGHBOURS and PIXEL_CLASSIFIER."""
    from tasks.datasets.boxed.crops import evaluation_pictures
    from tasks.diffusion.embedding_diffusion import drawn_from_neighbours
    from tasks.diffusion.pixel_classifier import classify

    snapshots, diffusion, near, classifier = inputs
    about = config.diffusion
    images = config.diffusion.images
    pictures = load_with_boxes(images.data, images.correlation)
    selected_crops = choose_neighbours(near, config)
    if not selected_crops.num_rows:
        return DRAWN.empty_table()
    rows = np.array(
        [neighbours[: config.neighbours] for neighbours in selected_crops["neighbours"].to_pylist()], np.int64
    )
    names = []
    for name, id_ in zip(selected_crops["set"].to_pylist(), selected_crops["id"].to_pylist(), strict=True):
        names.append(f"{name} {id_}")
    drawings = drawn_from_neighbours(
        about, snapshots, diffusion, pictures, rows, names, config.steps, seeds.derive(config.seed, "drawings")
    )
    rows_by_id = {id_: row for row, id_ in enumerate(pictures.ids)}
    own_rows = np.array([rows_by_id[id_] for id_ in selected_crops["id"].to_pylist()], np.int64)
    side = about.diffusion.resolution
    return make_table(
        DRAWN,
        model=config.model,
        **{name: selected_crops[name] for name in ("set", "id", "label")},
        drawn_label=classify(classifier, drawings),
        image_label=classify(classifier, evaluation_pictures(pictures, own_rows, side)),
        side=side,
        drawing=[drawing.tobytes() for drawing in drawings],
    )


def choose_neighbours(near: pa.Table, config: DrawnBy) -> pa.Table:
    """Choose the NEIGHBOURS rows to reconstruct: last epoch, sampled at random from the sorted ids of each set."""
    last = pc.max(near["epoch"])
    decisive = near.filter((pc.field("layer") == config.layer) & (pc.field("epoch") == last))
    parts = []
    for name in sorted(pc.unique(decisive["set"]).to_pylist()):
        of_set = decisive.filter(pc.field("set") == name).sort_by("id")
        order = seeds.generator(config.seed, "pictures", name).permutation(of_set.num_rows)
        parts.append(of_set.take(np.sort(order[: config.pictures or None])))
    return pa.concat_tables(parts) if parts else decisive


def plan_drawings(config: DejaVu, trainings: Trainings) -> Sequence[Job]:
    """Plan the reconstructions by each model. Empty if none are requested or no models are trained here."""
    if config.reconstruction is None:
        return ()
    attacks = neighbours.plan(config, trainings)
    public = replace(trainings.configs[MODELS[0]].images, part="X")
    drawing = config.reconstruction.drawing
    settings = config.reconstruction.diffusion
    seed = seeds.derive(config.seed, "drawing")
    pixels = PixelTraining(
        public, settings.resolution, drawing.classifier, seeds.derive(config.seed, "pixel classifier")
    )
    classifier = Job(train_pixel_classifier, pixels)
    jobs = []
    for model in MODELS:
        last = trainings.last(model)
        about = EmbeddingDiffusion(
            public,
            encoder_of_pretraining(trainings.configs[model]),
            diffusion_config(settings, seeds.derive(config.seed, "diffusion", model)),
        )
        diffusion = chain(train_diffusion, about, drawing.link, (last.job,), up_to)[-1]
        drawing_config = DrawnBy(
            about, model, config.asked_layers[0], drawing.images, drawing.neighbours, drawing.steps, seed
        )
        inputs = (last.job, diffusion, neighbours.last(attacks, model), classifier)
        jobs.append(Job(draw, drawing_config, inputs))
    return jobs


NAMES = ("target", "reference", "score", "image")

# One row per direction.
RECONSTRUCTION = pa.schema(
    [
        ("way", pa.string()),  # the reconstructed set; both: all images
        # The share of reconstructions that show the true object for each model, the difference of the two, and the
        # classifier's accuracy on the original images.
        *interval_fields(*NAMES),
        ("p_value", pa.float64()),  # one-sided, for no difference
        ("images", pa.int64()),
    ]
)


@dataclass(frozen=True, eq=False)
class Shown:
    """Masks (n,) of correctly named objects in both models' reconstructions and in the original images."""

    target: NDArray[np.bool_]
    reference: NDArray[np.bool_]
    image: NDArray[np.bool_]


@task(version=2, name="deja_vu.reconstruction", gathers=True)
def reconstruction(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute the shares of correct reconstructions (RECONSTRUCTION) from both models' reconstructions (DRAWN)."""
    drawings = pa.concat_tables(inputs) if inputs else DRAWN.empty_table()
    ways = {name: _shown_pictures(drawings, name) for name in SETS}
    all_pictures = Shown(
        *(np.concatenate([getattr(way, name) for way in ways.values()]) for name in NAMES if name != "score")
    )
    rows = []
    for name, way in {BOTH: all_pictures, **ways}.items():
        if len(way.target):
            rows.append({"way": name, **score_pictures(way)})
    return pa.Table.from_pylist(rows, RECONSTRUCTION)


def _shown_pictures(drawings: pa.Table, name: str) -> Shown:
    """Return the masks for the images of one set that both models reconstructed, sorted by id."""
    of_set = drawings.filter(pc.field("set") == name)
    target = of_set.filter(pc.field("model") == name).sort_by("id")
    reference = of_set.filter(pc.field("model") == OTHER[name]).sort_by("id")
    target = target.filter(pc.is_in(target["id"], reference["id"]))
    reference = reference.filter(pc.is_in(reference["id"], target["id"]))
    return Shown(right(target, "drawn_label"), right(reference, "drawn_label"), right(target, "image_label"))


def right(rows: pa.Table, name: str) -> NDArray[np.bool_]:
    return np.asarray(rows[name].to_numpy() == rows["label"].to_numpy(), np.bool_)


def score_pictures(way: Shown) -> dict[str, Any]:
    """Compute the shares, their difference and its p-value. Requires at least one image."""
    n = len(way.target)
    target = way.target.tolist()
    reference = way.reference.tolist()
    estimates = {
        "target": proportion(sum(target), n),
        "reference": proportion(sum(reference), n),
        "score": paired_difference(target, reference),
        "image": proportion(int(way.image.sum()), n),
    }
    columns: dict[str, Any] = {"images": n, "p_value": mcnemar_greater(target, reference)}
    for name, interval in estimates.items():
        columns |= interval_columns(name, interval)
    return columns


def plan(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    jobs = plan_drawings(config, trainings)
    return Job(reconstruction, NoSettings(), tuple(jobs)) if jobs else ()


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the score over both directions and the shares it is computed from."""
    table = tables.one(RECONSTRUCTION)
    for score_row in [] if table is None else table.to_pylist():
        if score_row["way"] != BOTH:
            continue
        setting = {"epoch": about.epoch, "layer": about.layer}
        yield row("reconstruction score", setting, estimate(score_row, "score"), "image", 0.0, score_row["p_value"])
        for model in ("target", "reference"):
            yield row("reconstruction accuracy", {**setting, "model": model}, estimate(score_row, model), "image")
        yield row("image accuracy", {}, estimate(score_row, "image"), "image")


MEASURE = Measure("reconstruction", RECONSTRUCTION, plan, rows)
DRAWN_MEASURE = Measure("drawn", DRAWN, plan_drawings)
