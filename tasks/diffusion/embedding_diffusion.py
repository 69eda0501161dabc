"""Diffusion models of public images, conditioned on an encoder's backbone embeddings, and their samples.

Samples show what information about an image its embedding, or the mean embedding of several images, contains. Bordes et
al. 2022, "High fidelity visualization of what your self-supervised representation knows about"; Meehan et al. 2023, "Do
SSL models have déjà vu?", section 5 and appendix A.2.4, train one model per encoder. Planning does not import torch;
computing does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.job import Inputs, Work, task
from tasks.contract.schemas import MODEL
from tasks.datasets.boxed.partition import TrainingImages, expect_sizes
from tasks.datasets.dataset import Dataset
from tasks.diffusion.described_steps import DenoisingStep
from tasks.diffusion.diffusion_config import Diffusion
from tasks.self_supervised.described_steps import EmbeddingStep
from tasks.self_supervised.pretraining_config import EncoderConfig, layer_features
from tasks.self_supervised.snapshots import weights_of
from tasks.worker import hardware

if TYPE_CHECKING:
    from tasks.datasets.boxed.pictures import BoxedPictures
    from tasks.diffusion.denoising import Scale, TrainedDiffusion
    from tasks.self_supervised.networks import Encoder

# One row: a trained diffusion model and its losses. No row for a link that is not the last.
DIFFUSION = pa.schema(
    [
        ("epochs", pa.int64()),
        ("train_loss", pa.list_(pa.float64())),  # per epoch: mean squared error of the predicted noise
        ("validation_loss", pa.list_(pa.float64())),  # of the moving averages, on held-out images
        ("mean", pa.large_binary()),  # of each embedding feature: little-endian float32
        ("deviation", pa.large_binary()),
        MODEL.field("weights"),  # moving averages
    ]
)


@dataclass(frozen=True)
class EmbeddingDiffusion:
    """A diffusion model of these images, conditioned on their backbone embeddings.

    Both networks see images as in evaluation, each at its own resolution. A chain link whose model is not `kept` leaves
    only its checkpoint.
    """

    images: TrainingImages
    encoder: EncoderConfig
    diffusion: Diffusion = field(default_factory=Diffusion)
    kept: bool = True

    @property
    def epochs(self) -> int:
        return self.diffusion.epochs


def up_to(config: EmbeddingDiffusion, before: int, end: int) -> EmbeddingDiffusion:  # noqa: ARG001
    """Return the link of a chain up to epoch `end`. Only the last model is kept.

    This is the `part` argument of `tasks.training.chains.chain`.
    """
    return replace(config, diffusion=replace(config.diffusion, epochs=end), kept=end == config.epochs)


def work(config: EmbeddingDiffusion) -> Work:
    """Return the work of embedding the images once and of training on them."""
    from tasks.datasets.catalog import load_with_boxes

    sizes = expect_sizes(load_with_boxes(config.images.data, config.images.correlation), config.images.partition)
    images = sizes.public if config.images.part == "X" else sizes.trained
    diffusion = config.diffusion
    training = f"train a U-Net at {diffusion.resolution}"
    embedding = f"embed with {config.encoder.backbone} at {config.encoder.resolution}"
    return Work(
        {training: float(images * diffusion.epochs)},
        {embedding: float(images)},
        operations={training: denoising_step(config), embedding: EmbeddingStep(config.encoder)},
    )


def denoising_step(config: EmbeddingDiffusion, is_sampling: bool = False) -> DenoisingStep:
    """Return the step of the training, or of drawing images."""
    diffusion = config.diffusion
    return DenoisingStep(
        diffusion.unet,
        diffusion.resolution,
        layer_features(config.encoder, 0),
        diffusion.batch // diffusion.accumulate,
        diffusion.precision,
        is_sampling,
    )


@task(version=1, name="diffusion.train", gpus=1.0, trains=1, work=work, spreads=True)
def train_diffusion(config: EmbeddingDiffusion, inputs: Inputs) -> pa.Table:
    """Train the diffusion model (DIFFUSION) for the encoder in the last row of a SNAPSHOTS table.

    A link of a chain resumes from a checkpoint and writes its own if requested (`tasks.worker.checkpoints`).
    """
    from tasks.datasets.boxed.crops import evaluation_pictures
    from tasks.datasets.boxed.partition import split_pictures
    from tasks.datasets.catalog import load_with_boxes
    from tasks.diffusion.denoising import fit_diffusion
    from tasks.self_supervised.networks import encoder

    (snapshots,) = inputs
    pictures = load_with_boxes(config.images.data, config.images.correlation)
    rows = split_pictures(pictures, config.images.partition).rows(config.images.part)
    weights = _last_weights(snapshots)
    vectors = embed_pictures(
        encoder(config.encoder, weights, hardware.device()), pictures, rows, config.encoder.resolution
    )
    pixels = evaluation_pictures(pictures, rows, config.diffusion.resolution)
    # A checkpoint belongs to one encoder, since other weights yield other vectors.
    images = replace(config.images, data=Dataset("", config.images.data.digest))  # independent of where the data is
    source = f"{images} seen by {config.encoder} {digest(weights)}"
    return _diffusion_table(fit_diffusion(config.diffusion, pixels, vectors, source), config.kept)


def _last_weights(snapshots: pa.Table) -> dict[str, NDArray[np.float32]]:
    """Return the weights in the last row of SNAPSHOTS. Raises ValueError if there are no rows."""
    if not len(snapshots):
        raise ValueError("a table of snapshots is empty; the training must keep its weights after its last epoch")
    return weights_of(snapshots, len(snapshots) - 1)


def digest(weights: dict[str, NDArray[np.float32]]) -> str:
    """Return the SHA-256 of weights by name."""
    from tasks.models.networks import weight_rows

    content = hashlib.sha256()
    for cell in weight_rows(weights):
        content.update(repr((cell["name"], cell["shape"])).encode() + cell["values"])
    return content.hexdigest()


def embed_pictures(
    model: Encoder, pictures: BoxedPictures, rows: NDArray[np.int64], resolution: int
) -> NDArray[np.float32]:
    """Return the backbone embeddings of these images as in evaluation, (rows, features)."""
    from tasks.datasets.boxed.crops import portions
    from tasks.self_supervised.networks import collect_embeddings

    return collect_embeddings(model.embed, [0], portions(pictures, rows, resolution), len(rows))[0]


# The table


def _diffusion_table(model: TrainedDiffusion, keeps_model: bool = True) -> pa.Table:
    """Return a trained model as a DIFFUSION table, which is empty unless the model is kept."""
    from tasks.models.networks import weight_rows

    values: dict[str, Any] = {
        "epochs": len(model.history),
        "train_loss": [epoch.train_loss for epoch in model.history],
        "validation_loss": [epoch.validation_loss for epoch in model.history],
        "mean": _pack_floats(model.scale.mean),
        "deviation": _pack_floats(model.scale.deviation),
        "weights": weight_rows(model.weights),
    }
    return pa.Table.from_pylist([values] if keeps_model else [], DIFFUSION)


def model_of(table: pa.Table) -> tuple[dict[str, NDArray[np.float32]], Scale]:
    """Return the weights and scale of the model in a DIFFUSION table. Raises ValueError if the table is empty."""
    from tasks.diffusion.denoising import Scale

    if not len(table):
        raise ValueError("a table of a diffusion model is empty; only the last link of its training has the model")
    mean = np.frombuffer(table["mean"][0].as_py(), "<f4")
    deviation = np.frombuffer(table["deviation"][0].as_py(), "<f4")
    return weights_of(table, 0), Scale(mean, deviation)


def _pack_floats(values: NDArray[np.float32]) -> bytes:
    return np.ascontiguousarray(values, "<f4").tobytes()


def draw(
    config: Diffusion, table: pa.Table, vectors: NDArray[np.float32], names: Sequence[str], steps: int, seed: int
) -> NDArray[np.uint8]:
    """Draw an image for each embedding (n, features), (n, side, side, 3), with the model in a DIFFUSION table.

    `names` determine the initial noise, and `steps` is the number of DDIM steps: see
    `tasks.diffusion.denoising.sample_images`.
    """
    from tasks.diffusion.denoising import sample_images

    weights, scale = model_of(table)
    return sample_images(config, weights, scale.standardise(vectors), names, steps, seed)


def drawn_from_neighbours(
    config: EmbeddingDiffusion,
    snapshots: pa.Table,
    diffusion: pa.Table,
    pictures: BoxedPictures,
    neighbours: NDArray[np.int64],
    names: Sequence[str],
    steps: int,
    seed: int,
) -> NDArray[np.uint8]:
    """Draw an image for each row of neighbours (n, k), which are row numbers of images: (n, side, side, 3).

    `snapshots` and `diffusion` contain the encoder and its diffusion model, and `steps` is the number of DDIM steps.
    The initial noise depends on the name, so it is the same for other models. Meehan et al. 2023, appendix A.2.4.
    """
    from tasks.self_supervised.networks import encoder

    model = encoder(config.encoder, _last_weights(snapshots), hardware.device())
    rows, places = np.unique(neighbours, return_inverse=True)
    vectors = embed_pictures(model, pictures, rows, config.encoder.resolution)
    return draw(config.diffusion, diffusion, mean_of(vectors, places.reshape(neighbours.shape)), names, steps, seed)


def mean_of(vectors: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the mean (n, features) of the vectors (m, features) that each row of numbers (n, k) selects."""
    return np.stack([vectors[numbers].mean(0, dtype=np.float64) for numbers in rows]).astype(np.float32)
