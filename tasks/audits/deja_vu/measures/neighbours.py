"""The crop of each attacked image, and the public images with the nearest embeddings.

A crop is a rectangle of the image that does not contain the object. An image whose rectangle is too small has no crop.
Neighbours are computed for each model and each set. Embeddings use the evaluation transform and are not normalised.
Neighbours are exact by Euclidean distance, with ties broken by id. Meehan et al. 2023, section 3 and appendices A.2.1
and A.2.3; the corner crop, appendix A.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.audits.deja_vu.attack import Attack, Crops, crops_of, handed_out
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.embedding_search import LayerMatches, LayerSearch, search_layers, search_memory
from tasks.audits.deja_vu.encoder_config import EncoderFile, EncoderTable, Given, ReferenceFile, ReferenceTable
from tasks.audits.deja_vu.trainings import MODELS, Trainings
from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.operations import BYTES, PRODUCT
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, row
from tasks.datasets.boxed.partition import expect_sizes
from tasks.datasets.catalog import load_with_boxes
from tasks.external.model_file import EncoderInterface, ModelFile
from tasks.numerics.statistics import proportion
from tasks.self_supervised.described_steps import EmbeddingStep
from tasks.self_supervised.pretraining_config import Pretraining, encoder_of_pretraining, layer_features
from tasks.worker.files import File

if TYPE_CHECKING:
    from tasks.datasets.boxed.pictures import BoxedPictures
    from tasks.self_supervised.networks import Embed


# One row per image of both sets that has boxes, or per image with a corner crop, sorted by set and id.
CROPS = pa.schema(
    [
        ("set", pa.string()),
        ("id", pa.string()),
        ("label", pa.int32()),
        ("left", pa.int32()),  # crop edge in pixels; null without a crop
        ("top", pa.int32()),
        ("right", pa.int32()),  # exclusive, like bottom
        ("bottom", pa.int32()),
    ]
)
SIDES = ("left", "top", "right", "bottom")


@task(version=1, name="deja_vu.crops")
def crops(config: Attack, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - crops depend on no table
    """Compute the crops of both sets (CROPS)."""
    pictures = load_with_boxes(config.data, config.correlation)
    attacked_crops = crops_of(config, pictures)
    windows = {
        row: [int(side) for side in window]
        for row, window in zip(attacked_crops.rows, attacked_crops.windows, strict=True)
    }
    return pa.Table.from_pylist(
        [
            {"set": name, "id": pictures.ids[index], "label": int(pictures.labels[index])}
            | dict(zip(SIDES, windows.get(index, [None] * 4), strict=True))
            for name, rows in attacked_crops.attacked.items()
            for index in rows
        ],
        CROPS,
    )


def _plan_crops(config: DejaVu, trainings: Trainings) -> Job:  # noqa: ARG001 - crops depend on no training
    return Job(crops, trainings.attack)


def _crop_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the row is the same for all runs
    """Yield the share of images without a crop."""
    table = tables.one(CROPS)
    if table is not None and table.num_rows:
        left_out = pc.sum(pc.is_null(table["left"])).as_py()
        yield row("left out", {}, proportion(left_out, table.num_rows), "image")


# One row per epoch, layer and image of both sets.
NEIGHBOURS = pa.schema(
    [
        ("epoch", pa.int64()),
        ("layer", pa.int32()),
        ("model", pa.string()),
        ("set", pa.string()),  # set of the image
        ("id", pa.string()),
        ("label", pa.int32()),
        ("neighbours", pa.list_(pa.int32())),  # data set rows, nearest first
        ("neighbour_labels", pa.list_(pa.int32())),
        # These columns describe the whole model and repeat in all rows of a layer
        # (`tasks.audits.deja_vu.embedding_facts`).
        ("tied", pa.float64()),  # share of equal pairs among crops, or among public images
        ("public_asked", pa.int64()),  # classified public images; null if there are none
        ("public_right", pa.int64()),
        ("public_commonest", pa.float64()),  # frequency of the most common label
    ]
)


@dataclass(frozen=True)
class AttackOf:
    """Attack on the snapshots of one training. `before` is the number of epochs before the first of them."""

    attack: Attack
    pretraining: Pretraining
    model: str
    layers: tuple[int, ...]
    k: int
    before: int = 0


def _memory(config: AttackOf) -> int:
    """Return the bytes of host memory that a search reserves."""
    return search_memory(config.attack, encoder_of_pretraining(config.pretraining), config.layers)


def work(config: AttackOf) -> Work:
    """Return the work of all snapshots of a training: embeddings of crops and public images, and their distances."""
    pictures = load_with_boxes(config.attack.data, config.attack.correlation)
    sizes = expect_sizes(pictures, config.attack.partition)
    crops = 2 * min(sizes.trained, config.attack.partition.attacked or sizes.trained)
    snapshots = len(config.pretraining.asked)
    encoder = encoder_of_pretraining(config.pretraining)
    embedding = f"embed with {encoder.backbone} at {encoder.resolution}"
    features = sum(layer_features(encoder, layer) for layer in config.layers)
    pairs = float(snapshots * crops * sizes.public)
    return Work(
        besides={embedding: snapshots * (crops + sizes.public), "compare features": pairs * features},
        operations={
            embedding: EmbeddingStep(encoder),
            # A distance takes a product of two rows, and is read twice to select the nearest.
            "compare features": {PRODUCT: 2.0, BYTES: 12.0 * len(config.layers) / max(1, features)},
        },
    )


@task(version=2, name="deja_vu.neighbours", gpus=1.0, work=work, memory=_memory)
def neighbours(config: AttackOf, inputs: Inputs) -> pa.Table:
    """Find the neighbours of the crops of both sets (NEIGHBOURS) for each snapshot (SNAPSHOTS)."""
    from tasks.self_supervised.networks import encoder
    from tasks.self_supervised.snapshots import epochs, weights_of
    from tasks.worker import hardware

    pictures = load_with_boxes(config.attack.data, config.attack.correlation)
    crops = crops_of(config.attack, pictures)
    device = hardware.device()
    tables = []
    with hardware.exactly(device):
        for row, epoch in enumerate(epochs(inputs[0])):
            embed = encoder(config.pretraining, weights_of(inputs[0], row), device).embed
            tables.append(
                _find_neighbours(
                    embed, pictures, crops, config, {"epoch": config.before + epoch, "model": config.model}
                )
            )
    return pa.concat_tables(tables)


def _find_neighbours(
    embed: Embed, pictures: BoxedPictures, crops: Crops, config: AttackOf, about: Mapping[str, Any]
) -> pa.Table:
    """Find the neighbours of all crops with the embeddings of `embed`."""
    tables = []
    for matches in search_layers(embed, config.layers, pictures, crops, config.k):
        tables.append(table(matches.layer, crops, matches.rows, pictures, {**about, **matches.facts}))
    return pa.concat_tables(tables)


def table(
    layer: int, crops: Crops, rows: NDArray[np.integer], pictures: BoxedPictures, about: Mapping[str, Any]
) -> pa.Table:
    """Build the NEIGHBOURS table of one layer. `rows` (crops, k) are rows of public images."""
    n, k = rows.shape
    ends = pa.array(np.arange(0, n * k + 1, k, dtype=np.int32))
    return make_table(
        NEIGHBOURS,
        **about,
        layer=layer,
        set=crops.sets,
        id=[pictures.ids[row] for row in crops.rows],
        label=pictures.labels[crops.rows],
        neighbours=pa.ListArray.from_arrays(ends, pa.array(rows.ravel().astype(np.int32))),
        neighbour_labels=pa.ListArray.from_arrays(ends, pa.array(pictures.labels[rows.ravel()].astype(np.int32))),
    )


GIVEN_FEATURES = 2048  # columns of a table of embeddings, as far as a plan knows


@dataclass(frozen=True)
class AttackOfGiven:
    """Attack on a third-party encoder, given by its file or by a table of its embeddings.

    `epoch` and `layer` label the output rows, so that they can be compared with encoders trained here.
    """

    attack: Attack
    encoder: ModelFile | None
    embeddings: File | None
    interface: EncoderInterface
    model: str
    epoch: int
    layer: int
    k: int
    repeated: int = 0


def _given_work(config: AttackOfGiven) -> Work:
    """Return the work of the distances. The encoder is a file, whose operations are not known."""
    pictures = load_with_boxes(config.attack.data, config.attack.correlation)
    sizes = expect_sizes(pictures, config.attack.partition)
    crops = 2 * min(sizes.trained, config.attack.partition.attacked or sizes.trained)
    unit = "compare images"
    if config.embeddings is None:
        return Work(besides={"embed with a given encoder": crops + sizes.public})
    return Work(
        besides={unit: float(crops * sizes.public)},
        operations={unit: {PRODUCT: 2.0 * GIVEN_FEATURES, BYTES: 12.0}},
    )


@task(version=2, name="deja_vu.given_neighbours", gpus=1.0, work=_given_work)
def given_neighbours(config: AttackOfGiven, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Find the neighbours of the crops of both sets (NEIGHBOURS) with a third-party encoder."""
    pictures = load_with_boxes(config.attack.data, config.attack.correlation)
    crops = crops_of(config.attack, pictures)
    if config.embeddings is not None:
        matches = _match_sent_embeddings(config, config.embeddings, crops, pictures)
    else:
        (matches,) = search_layers(_file_embedder(config, crops), [config.layer], pictures, crops, config.k)
    about = {"epoch": config.epoch, "model": config.model, **matches.facts}
    return table(config.layer, crops, matches.rows, pictures, about)


def _file_embedder(config: AttackOfGiven, crops: Crops) -> Embed:
    """Return the function that embeds images with the encoder file."""
    from tasks.external.encoders import load_encoder

    assert config.encoder is not None
    model = load_encoder(config.encoder, (crops.resolution, crops.resolution, 3), config.interface)

    def embed(images: NDArray[np.uint8], layers: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        return {layer: model.embed(images) for layer in layers}

    return embed


def _match_sent_embeddings(config: AttackOfGiven, file: File, crops: Crops, pictures: BoxedPictures) -> LayerMatches:
    """Search the embeddings in the table that the encoder's owner returned."""
    from tasks.external.sent_table import read_embeddings

    embeddings = read_embeddings(file)
    export = handed_out(crops, pictures, config.repeated)
    search = LayerSearch(embeddings.select(export.public_ids), len(crops.rows), config.k)
    search.take(embeddings.select(export.crop_ids), 0)
    return search.finish(config.layer, pictures, crops)


def plan(config: DejaVu, trainings: Trainings) -> tuple[Job, ...]:
    """Plan the attacks on the given models, then those on the snapshots in their order."""
    jobs: list[Job] = []
    layers = config.asked_layers
    if isinstance(config.encoders, Given):
        jobs += given_jobs(config, config.encoders, trainings.attack)
        layers = layers[:1]
    for snapshots in trainings.snapshots:
        training = trainings.configs[snapshots.model]
        attacked = AttackOf(trainings.attack, training, snapshots.model, layers, max(config.k), snapshots.before)
        jobs.append(Job(neighbours, attacked, (snapshots.job,)))
    return tuple(jobs)


def given_jobs(config: DejaVu, external: Given, cropping: Attack) -> Iterator[Job]:
    """Yield the jobs that attack the given encoder as model A and the given reference as model B."""
    target, reference = MODELS
    match external.encoder:
        case EncoderFile(model=model, interface=interface):
            yield _attack_file(config, cropping, target, model, interface)
        case EncoderTable(embeddings=embeddings) if embeddings is not None:
            yield _attack_table(config, cropping, target, embeddings, external.repeated_images)
    match external.comparison:
        case ReferenceFile(reference=model, interface=interface):
            yield _attack_file(config, cropping, reference, model, interface)
        case ReferenceTable(reference_embeddings=embeddings):
            yield _attack_table(config, cropping, reference, embeddings, external.repeated_images)


def _attack_file(config: DejaVu, cropping: Attack, name: str, model: ModelFile, interface: EncoderInterface) -> Job:
    about = (name, config.training.last_epoch, config.asked_layers[0], max(config.k))
    return Job(given_neighbours, AttackOfGiven(cropping, model, None, interface, *about))


def _attack_table(config: DejaVu, cropping: Attack, name: str, embeddings: File, repeated: int) -> Job:
    about = (name, config.training.last_epoch, config.asked_layers[0], max(config.k), repeated)
    return Job(given_neighbours, AttackOfGiven(cropping, None, embeddings, EncoderInterface(), *about))


def last(attacks: Sequence[Job], model: str) -> Job:
    """Return the job that attacks the last snapshots of the model."""
    return [job for job in attacks if job.config.model == model][-1]


MEASURE = Measure("neighbours", NEIGHBOURS, plan)
CROPS_MEASURE = Measure("crops", CROPS, _plan_crops, _crop_rows)
