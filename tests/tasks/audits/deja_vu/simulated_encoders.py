"""Random encoders and the audit's answers about them; only the images are synthetic.

The embedding of an image is the direction of its class plus noise. The background of some crops reveals the class to
every encoder, with a strength that depends on the encoder. A memorising encoder also knows the classes of some of its
training images.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.deja_vu.answer import verdict
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.embedding_facts import EqualRows, describe_encoder
from tasks.audits.deja_vu.encoder_config import EncoderFile, Given, ReferenceFile
from tasks.audits.deja_vu.measures import summary
from tasks.audits.deja_vu.measures.encoders import encoders
from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.audits.deja_vu.measures.neighbours import NEIGHBOURS
from tasks.audits.deja_vu.measures.references import Comparing, references
from tasks.audits.deja_vu.measures.scores import Scoring, scores
from tasks.audits.deja_vu.presets import QUICKSTART
from tasks.contract.job import NoSettings
from tasks.contract.verdict import Verdict
from tasks.external.model_file import ModelFile
from tasks.numerics.nearest_neighbours import nearest
from tests.support.settings import with_settings

CLASSES = 10
WIDTH = 16
K = 20
GIVEN = Given(EncoderFile(ModelFile("encoder.pt")), ReferenceFile(ModelFile("reference.pt")))
CONFIG = with_settings(
    replace(QUICKSTART, encoders=GIVEN, layers=(3,), k=(K,), retrieval=None), epochs=5, warmup=1, link=0
)
ABOUT = About(confident=20, layer=3, k=K, epoch=5, given=True)
Rows = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Scenes:
    """A and B with `per_set` images each and 2 x `per_set` public images, whose backgrounds always reveal the class."""

    labels: NDArray[np.int64]  # of A, then of B
    public: NDArray[np.int64]
    is_revealing: NDArray[np.bool_]

    @property
    def in_a(self) -> NDArray[np.bool_]:
        return np.arange(len(self.labels)) < len(self.labels) // 2


def draw_scenes(
    rng: np.random.Generator, per_set: int = 150, revealing_shares: tuple[float, float] = (0.2, 0.2)
) -> Scenes:
    """`revealing_shares` are the shares of A and of B whose backgrounds reveal the class."""
    labels = np.tile(np.arange(per_set) % CLASSES, 2)
    shares = np.repeat(revealing_shares, per_set)
    return Scenes(labels, np.arange(2 * per_set) % CLASSES, rng.random(2 * per_set) < shares)


def embed(
    scenes: Scenes, rng: np.random.Generator, skill: float = 1.0, memory: float = 0.0, noise: float = 0.0
) -> tuple[Rows, Rows]:
    """The embeddings of the crops and of the public images.

    `skill` is how well the encoder separates classes, `memory` the share of A that it memorised, and `noise` the
    standard deviation of the noise that is added to every number afterwards.
    """
    is_memorised = scenes.in_a & (rng.random(len(scenes.labels)) < memory)
    strength = np.where(is_memorised, 1.0, np.where(scenes.is_revealing, skill, 0.0))
    directions = np.eye(CLASSES, WIDTH)
    crops = strength[:, None] * directions[scenes.labels]
    public = max(skill, 0.5) * directions[scenes.public]
    deviation = np.hypot(0.2, noise)
    return tuple(  # type: ignore[return-value]
        (rows + deviation * rng.normal(size=rows.shape)).astype(np.float32) for rows in (crops, public)
    )


def neighbours(scenes: Scenes, embeddings: tuple[Rows, Rows], model: str) -> pa.Table:
    """NEIGHBOURS by these embeddings."""
    crops, public = embeddings
    rows = nearest(crops, public, K).rows
    n = len(crops)
    names = np.where(scenes.in_a, "A", "B")
    columns = {
        "epoch": [ABOUT.epoch] * n,
        "layer": [ABOUT.layer] * n,
        "model": [model] * n,
        "set": names,
        "id": [f"{name}{number:04d}" for number, name in enumerate(names)],
        "label": scenes.labels.astype(np.int32),
        "neighbours": list(rows.astype(np.int32)),
        "neighbour_labels": list(scenes.public[rows].astype(np.int32)),
    }
    facts = embedding_facts(crops, public, scenes.public, K)
    columns |= {name: [value] * n for name, value in facts.items()}
    return pa.table(columns, NEIGHBOURS)


def embedding_facts(
    cropped: NDArray[np.float32], public: NDArray[np.float32], labels: NDArray[np.integer], k: int
) -> dict[str, float | int | None]:
    """The columns that describe the whole encoder."""
    equal_crops = EqualRows()
    equal_crops.add(cropped)
    return describe_encoder(equal_crops, public, labels, k)


def tables(seed: int, models: str = "AB", **settings: float) -> list[pa.Table]:
    """NEIGHBOURS of a given encoder with these settings, and of references of skill 1."""
    rng = np.random.default_rng(seed)
    scenes = draw_scenes(rng, revealing_shares=(0.05, 0.05))
    names = []
    for position, model in enumerate(models):
        names.append(model if position < 2 else f"B {position}")
    embeddings = []
    for position in range(len(names)):
        embeddings.append(embed(scenes, rng, **(settings if position == 0 else {})))
    result = []
    for model_embeddings, name in zip(embeddings, names, strict=True):
        result.append(neighbours(scenes, model_embeddings, name))
    return result


def unlike_tables() -> list[pa.Table]:
    """NEIGHBOURS of models without memory; backgrounds reveal half of the objects of A and none of B."""
    scenes = draw_scenes(np.random.default_rng(0), revealing_shares=(0.5, 0.0))
    rng = np.random.default_rng(1)
    return [neighbours(scenes, embed(scenes, rng), model) for model in "AB"]


def summary_of(tables: list[pa.Table], seed: int = 0, permutations: int = 399) -> pa.Table:
    """The summary of an audit with these NEIGHBOURS, the given encoder's first."""
    inference_table = inferences(Voting((K,)), tables)
    score = scores(Scoring(20, 100, permutations, seed, True), [inference_table])
    gains = references(Comparing(20, K, permutations, seed), tables)
    return summary(ABOUT, [score, gains, encoders(NoSettings(), tables)])


def verdict_of(tables: list[pa.Table], seed: int = 0, config: DejaVu = CONFIG) -> Verdict:
    return verdict(config, summary_of(tables, seed))


def answer_of_draw(
    seed: int, memory: float = 0.0, noise: float = 0.0, revealing_shares: tuple[float, float] = (0.2, 0.2)
) -> str:
    """The answer about one encoder and its reference, both drawn by the seed, with different skills."""
    rng = np.random.default_rng(seed)
    scenes = draw_scenes(rng, revealing_shares=revealing_shares)
    skills = rng.uniform(0.3, 1.5, 2)
    models = (embed(scenes, rng, skills[0], memory, noise), embed(scenes, rng, skills[1]))
    tables = []
    for embeddings, model in zip(models, "AB", strict=True):
        tables.append(neighbours(scenes, embeddings, model))
    return verdict_of(tables, seed).answer


def count_answers(count: int, **settings: float) -> Counter[str]:
    """The number of times that each answer is given for `count` encoders."""
    return Counter(answer_of_draw(seed, **settings) for seed in range(count))  # type: ignore[arg-type]
