"""What models say of a feature and of the other features of its family: one row per model and member.

The family is the null that a single model has: features of the same kind, ink and place that it was not trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.choice import Ranked, row_of
from tasks.audits.unique_feature.evaluation import MODELS, Says, trained
from tasks.audits.unique_feature.scores import Array, divergence, log_odds
from tasks.audits.unique_feature.triples import Pixels, ProbeSplit, probe_images, relatives
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature
from tasks.job import Inputs, task

FAMILY = pa.schema(
    [
        ("canary", pa.int64()),  # null for a model that is asked alone
        ("label", pa.int32()),  # the canary's; null where it is not known
        ("seed", pa.int64()),
        ("model", pa.string()),  # canary, twin or given
        ("member", pa.int32()),  # 0: the feature asked about; 1 and more: the others of its family
        ("d", pa.float64()),  # mean over the probe images of KL(f(x_c) || f(x_f)), nats
        ("log_p", pa.list_(pa.float64())),  # mean over the probe images of log P(class | x_f), for every class
        ("log_odds", pa.list_(pa.float64())),  # and of log P / (1 - P)
    ]
)


@dataclass(frozen=True)
class Relatives:
    """The probe images, the feature and its family. `seed` draws the family; `probes` images are taken (0: all)."""

    probe: Dataset
    probe_split: ProbeSplit
    probes: int
    feature: Feature
    family: Family
    seed: int


@dataclass(frozen=True)
class PairAsked:
    """The canary, by its row or rank in the training images of `data`, whose model and twin are asked."""

    data: Dataset
    canary: int | Ranked
    relatives: Relatives


def batch_key(config: PairAsked) -> tuple[Dataset, Dataset, ProbeSplit, int, int]:
    """What scores must share to take about as long as one another."""
    asked = config.relatives
    return config.data, asked.probe, asked.probe_split, asked.probes, asked.family.count


@task(version=2, name="unique_feature.family", batch_key=batch_key)
def pair_family(config: PairAsked, inputs: Inputs) -> pa.Table:
    """The family's scores (FAMILY) of the canary's model and of its twin (the first two inputs)."""
    data = load(config.data)
    canary = row_of(config.canary, inputs)
    about = {"canary": canary, "label": int(data.train_labels[canary])}
    clean = clean_images(config.relatives, data.shape)
    pair = list(zip(MODELS, inputs, strict=False))
    said = answers(config.relatives, clean, [trained(table) for _, table in pair])
    rows = [
        about | {"seed": table["seed"][0].as_py(), "model": model} | row
        for (model, table), found in zip(pair, said, strict=True)
        for row in found
    ]
    return pa.Table.from_pylist(rows, FAMILY)


def clean_images(config: Relatives, shape: tuple[int, int, int]) -> Pixels:
    return probe_images(config.probe, config.probe_split, shape, config.probes)


def answers(config: Relatives, clean: Pixels, models: Sequence[Says]) -> list[list[dict[str, Any]]]:
    """For each model the rows of its family: member, d, log_p and log_odds. An image is drawn once for all models."""
    before = [says("clean", clean) for says in models]
    found: list[list[dict[str, Any]]] = [[] for _ in models]
    for member, name, images in named(clean, config):
        for rows, says, unchanged in zip(found, models, before, strict=True):
            log_p = says(name, images)
            d = float(divergence(unchanged, log_p).mean())
            means = {"log_p": log_p.mean(axis=0).tolist(), "log_odds": log_odds(log_p).mean(axis=0).tolist()}
            rows.append({"member": member, "d": d} | means)
    return found


def named(clean: Pixels, config: Relatives) -> Iterator[tuple[int, str, Pixels]]:
    """Each member's number, the name of its set of images, and the images."""
    for member, images in relatives(clean, config.feature, config.family, config.seed):
        yield member, f"family-{member:03d}" if member else "feature", images


@dataclass(frozen=True, eq=False)
class Said:
    """What one model says of the members of a family, the feature asked about first."""

    about: dict[str, Any]  # canary, label, seed, model
    d: Array  # (members,)
    log_p: Array  # (members, classes)
    log_odds: Array  # (members, classes)

    @property
    def label(self) -> Any:
        """The canary's label; None where it is not known."""
        return self.about["label"]


def by_model(table: pa.Table) -> Iterator[Said]:
    """Each model of a FAMILY table."""
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        rows.setdefault(tuple(row[name] for name in ("canary", "label", "seed", "model")), []).append(row)
    for (canary, label, seed, model), members in rows.items():
        members.sort(key=lambda row: row["member"])
        about = {"canary": canary, "label": label, "seed": seed, "model": model}
        yield Said(about, *(np.array([row[name] for row in members]) for name in ("d", "log_p", "log_odds")))
