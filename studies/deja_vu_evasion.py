"""How does `deja_vu` judge owners who answer crops differently from whole images?

    python -m studies deja_vu_evasion [--tiny] [--seed 6000] [--out FILE]

The encoders are simulated. They know the objects in public images and in all or none of their training images, and add
individual random features to every image. Each owner's images are drawn from the embedded scenes. The audit's tasks
read and judge each table separately, with and without whole images among the crops. The reference table comes from
another simulated encoder that knows none of the images.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.deja_vu.answer import verdict
from tasks.audits.deja_vu.attack import attack, crops_of, handed_out
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.encoder_config import EncoderFile, EncoderTable, Given, ReferenceFile, ReferenceTable
from tasks.audits.deja_vu.measures import summary
from tasks.audits.deja_vu.measures.agreement import Repeats, agreement
from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.audits.deja_vu.measures.neighbours import given_jobs
from tasks.audits.deja_vu.measures.references import Comparing, references
from tasks.audits.deja_vu.measures.scores import Scoring, scores
from tasks.audits.deja_vu.presets import QUICKSTART
from tasks.datasets.catalog import load_with_boxes
from tasks.external.model_file import ModelFile
from tasks.numerics.statistics import exact_interval
from tasks.worker.files import File
from tests.tasks.audits.deja_vu.encoders import memorising_encoder, pixels_of

Rows = NDArray[np.float32]
ANSWERS = ("memorised", "not assessable", "undecided", "not detected")
INNOCENT = ("nothing changed", "noise")  # changes that are also made by owners who remember nothing
PARTINGS = 199
RESAMPLES = 200


@dataclass(frozen=True, eq=False)
class CropFolder:
    """An owner's and a clean encoder's embeddings of the crop folder, (n, d), and the mask of whole images."""

    owner: Rows
    clean: Rows
    is_whole: NDArray[np.bool_]
    chance: np.random.Generator

    @property
    def noise(self) -> Rows:
        return (self.owner.mean(0) + self.owner.std(0) * self.chance.normal(size=self.owner.shape)).astype(np.float32)


CHANGES: Mapping[str, Callable[[CropFolder], Rows]] = {
    "nothing changed": lambda folder: folder.owner,
    "noise": lambda folder: folder.noise,
    "one vector": lambda folder: np.broadcast_to(folder.owner.mean(0), folder.owner.shape),
    "a clean model": lambda folder: folder.clean,
    "noise for half": lambda folder: np.where(
        folder.chance.random((len(folder.owner), 1)) < 0.5, folder.noise, folder.owner
    ),
    "noise for recognised crops alone": lambda folder: np.where(folder.is_whole[:, None], folder.owner, folder.noise),
}


@dataclass(frozen=True)
class Size:
    """The audit, and the number of owners per row."""

    config: DejaVu
    owners: int


def size(tiny: bool, seed: int) -> Size:
    given_tables = Given(
        EncoderTable(File("sent.parquet"), 20 if tiny else 100), ReferenceTable(File("reference.parquet"))
    )
    per_class = 5 if tiny else 15
    config = replace(QUICKSTART, per_class=per_class, public=300, retrieval=None, encoders=given_tables, seed=seed)
    return Size(config, 2 if tiny else 20)


def judge(config: DejaVu, memory: bool, change: str, seed: int) -> tuple[str, str]:
    """Return the answers about one owner, without and with whole images among the crops."""
    config = replace(config, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        given_tables = write_tables(config, memory, change, seed, Path(folder))
        config = replace(config, encoders=given_tables)
        tables = []
        for job in given_jobs(config, given_tables, attack(config)):
            tables.append(job.function(job.config, ()))
        table, _ = given_tables.tables
        agreed = agreement(Repeats(attack(config), given_tables.repeated_images, table), ())
    k = config.k[0]
    about = About(config.confident_percent, config.asked_layers[0], k, config.training.last_epoch, given=True)
    scoring = Scoring(config.confident_percent, RESAMPLES, PARTINGS, seed, True)
    scored = scores(scoring, [inferences(Voting((k,)), tables)])
    measured = [scored, references(Comparing(config.confident_percent, k, PARTINGS, seed), tables)]
    files = Given(EncoderFile(ModelFile("a.pt")), ReferenceFile(ModelFile("b.pt")))
    as_a_file = replace(config, encoders=files)
    return (
        verdict(as_a_file, summary(about, measured)).answer,
        verdict(config, summary(about, [*measured, agreed])).answer,
    )


def write_tables(config: DejaVu, memory: bool, change: str, seed: int, folder: Path) -> Given:
    """Write the tables returned by the owner and by the reference."""
    pictures = load_with_boxes(config.data, config.correlation)
    order = handed_out(crops_of(attack(config), pictures), pictures, repeated_images(config))
    (_, crops), (_, public) = order.sets(pictures)
    pixel_sets = [np.concatenate([*item.pixels()]) for item in (crops, public)]
    encoders = []
    for index, sets in enumerate((("A",) if memory else (), (), ())):
        encoders.append(memorising_encoder(config, sets, seed + index))
    with torch.no_grad():
        embeddings_by_encoder = []
        for encoder in encoders:
            embeddings_by_encoder.append([encoder(pixels_of(pixels)).numpy() for pixels in pixel_sets])
    owner_embeddings, clean_embeddings, other_embeddings = embeddings_by_encoder
    is_whole = order.crop_order >= len(order.crop_order) - len(order.repeated)
    changed = CHANGES[change](
        CropFolder(owner_embeddings[0], clean_embeddings[0], is_whole, np.random.default_rng(seed))
    )
    ids = [f"{name}/{row:06d}.png" for name, image_set in order.sets(pictures) for row in range(image_set.count)]
    files = []
    for name, embeddings in (
        ("embeddings", [changed, owner_embeddings[1]]),
        ("reference_embeddings", other_embeddings),
    ):
        path = folder / f"{name}.parquet"
        pq.write_table(pa.table({"image": ids, "embedding": list(np.concatenate(embeddings))}), path)
        files.append(File(str(path)))
    return Given(EncoderTable(files[0], repeated_images(config)), ReferenceTable(files[1]))


def repeated_images(config: DejaVu) -> int:
    """Return the number of whole images among the crops."""
    if isinstance(config.encoders, Given):
        return config.encoders.repeated_images
    return 0


def counts(size: Size) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the answers about the owners in each row."""
    kinds = [*((True, change) for change in CHANGES), *((False, change) for change in INNOCENT)]
    for row, (memory, change) in enumerate(kinds):
        first = size.config.seed + 1000 * row
        owner = "remembers its images" if memory else "remembers nothing"
        yield f"{owner}; {change}", [judge(size.config, memory, change, first + index) for index in range(size.owners)]


def markdown(size: Size, results: Sequence[tuple[str, list[tuple[str, str]]]]) -> str:
    lines = [
        f"| owner; embeddings of the folder of crops | before: {', '.join(ANSWERS)} | now | not assessable now |",
        "|---|---|---|---|",
    ]
    for name, owners in results:
        before, after = (", ".join(str(Counter(item)[name]) for name in ANSWERS) for item in zip(*owners, strict=True))
        refused = sum(answer == "not assessable" for _, answer in owners)
        low, high = exact_interval(refused, len(owners))
        percent = f"{100 * refused / len(owners):.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
        lines.append(f"| {name} | {before} | {after} | {percent} |")
    config = size.config
    return "\n".join(lines) + (
        f"\n\n{10 * config.per_class} images in each set, {repeated_images(config)} whole images among the crops. "
        "Brackets: exact 95 % intervals (Clopper-Pearson).\n"
    )


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=6000, help="of the first owner; each has its own")
    options = parser.parse_args(arguments)
    study_size = size(options.tiny, options.seed)
    setting = measurement_facts("digits-on-photos", torch.device("cpu")) | {"seed": str(options.seed)}
    publish_counts(
        "Owners who answer crops otherwise", setting, markdown(study_size, list(counts(study_size))), options.out
    )
