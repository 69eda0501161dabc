"""Encoders that are drawn at random, and the audit's answer about them: everything but images is the audit's own.

An image's embedding is its class's direction and noise. Of some crops the background tells the class to every encoder;
how much of it, is the encoder's own. One that remembers tells the classes of some of its training images, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.deja_vu.answer import verdict
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.embedding_facts import embedding_facts
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

CLASSES, WIDTH, K = 10, 16, 20
GIVEN = Given(EncoderFile(ModelFile("encoder.pt")), ReferenceFile(ModelFile("reference.pt")))
CONFIG = with_settings(
    replace(QUICKSTART, encoders=GIVEN, layers=(3,), k=(K,), retrieval=None), epochs=5, warmup=1, link=0
)
ABOUT = About(confident=20, layer=3, k=K, epoch=5, given=True)
Rows = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Pictures:
    """A and B, `per_set` images each, and twice as many public ones; whose backgrounds tell their class to anyone."""

    labels: NDArray[np.int64]  # A's, then B's
    public: NDArray[np.int64]
    told: NDArray[np.bool_]

    @property
    def in_a(self) -> NDArray[np.bool_]:
        return np.arange(len(self.labels)) < len(self.labels) // 2


def drawn(rng: np.random.Generator, per_set: int = 150, told: tuple[float, float] = (0.2, 0.2)) -> Pictures:
    """`told` are the shares of A and of B that are told by their backgrounds."""
    labels = np.tile(np.arange(per_set) % CLASSES, 2)
    shares = np.repeat(told, per_set)
    return Pictures(labels, np.arange(2 * per_set) % CLASSES, rng.random(2 * per_set) < shares)


def embedded(
    pictures: Pictures, rng: np.random.Generator, skill: float = 1.0, memory: float = 0.0, noise: float = 0.0
) -> tuple[Rows, Rows]:
    """The embeddings of the crops and of the public images.

    `skill` is how well the encoder tells classes apart, `memory` the share of A that it remembers, `noise` the standard
    deviation that is added to every number in the end.
    """
    known = pictures.in_a & (rng.random(len(pictures.labels)) < memory)
    strength = np.where(known, 1.0, np.where(pictures.told, skill, 0.0))
    directions = np.eye(CLASSES, WIDTH)
    crops = strength[:, None] * directions[pictures.labels]
    public = max(skill, 0.5) * directions[pictures.public]
    deviation = np.hypot(0.2, noise)
    return tuple(  # type: ignore[return-value]
        (rows + deviation * rng.normal(size=rows.shape)).astype(np.float32) for rows in (crops, public)
    )


def neighbours(pictures: Pictures, embeddings: tuple[Rows, Rows], model: str) -> pa.Table:
    """NEIGHBOURS by these embeddings."""
    crops, public = embeddings
    rows = nearest(crops, public, K).rows
    n = len(crops)
    names = np.where(pictures.in_a, "A", "B")
    columns = {
        "epoch": [ABOUT.epoch] * n,
        "layer": [ABOUT.layer] * n,
        "model": [model] * n,
        "set": names,
        "id": [f"{name}{at:04d}" for at, name in enumerate(names)],
        "label": pictures.labels.astype(np.int32),
        "neighbours": list(rows.astype(np.int32)),
        "neighbour_labels": list(pictures.public[rows].astype(np.int32)),
    }
    facts = embedding_facts(crops, public, pictures.public, K)
    columns |= {name: [value] * n for name, value in facts.items()}
    return pa.table(columns, NEIGHBOURS)


def tables(seed: int, models: str = "AB", **settings: float) -> list[pa.Table]:
    """NEIGHBOURS of a given encoder with these settings, and of references of skill 1."""
    rng = np.random.default_rng(seed)
    pictures = drawn(rng, told=(0.05, 0.05))
    names = [model if at < 2 else f"B {at}" for at, model in enumerate(models)]
    found = [embedded(pictures, rng, **(settings if at == 0 else {})) for at in range(len(names))]
    return [neighbours(pictures, each, name) for each, name in zip(found, names, strict=True)]


def unlike_tables() -> list[pa.Table]:
    """NEIGHBOURS of models that remember nothing; backgrounds tell half of the objects of A and none of B."""
    pictures, rng = drawn(np.random.default_rng(0), told=(0.5, 0.0)), np.random.default_rng(1)
    return [neighbours(pictures, embedded(pictures, rng), model) for model in "AB"]


def summed(tables: list[pa.Table], seed: int = 0, partings: int = 399) -> pa.Table:
    """The summary of an audit with these NEIGHBOURS, the given encoder's first."""
    found = inferences(Voting((K,)), tables)
    score = scores(Scoring(20, 100, partings, seed, True), [found])
    gains = references(Comparing(20, K, partings, seed), tables)
    return summary(ABOUT, [score, gains, encoders(NoSettings(), tables)])


def judged(tables: list[pa.Table], seed: int = 0, config: DejaVu = CONFIG) -> Verdict:
    return verdict(config, summed(tables, seed))


def answer(seed: int, memory: float = 0.0, noise: float = 0.0, told: tuple[float, float] = (0.2, 0.2)) -> str:
    """The answer about one encoder and its reference, both drawn by the seed, of different skills."""
    rng = np.random.default_rng(seed)
    pictures = drawn(rng, told=told)
    skills = rng.uniform(0.3, 1.5, 2)
    models = (embedded(pictures, rng, skills[0], memory, noise), embedded(pictures, rng, skills[1]))
    tables = [neighbours(pictures, found, model) for found, model in zip(models, "AB", strict=True)]
    return judged(tables, seed).answer


def counted(count: int, **settings: float) -> Counter[str]:
    """How often each answer is given of so many encoders."""
    return Counter(answer(seed, **settings) for seed in range(count))  # type: ignore[arg-type]
