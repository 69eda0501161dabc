"""What models say of a feature and of the other features of its family, as `family` and `single_family` tabulate it.

The family is the null that a single model has: features of the same kind, ink and place that it was not trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tasks import seeds
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import Predictor
from tasks.audits.unique_feature.probe_images import Pixels, ProbeSplit, burn_family, probe_images
from tasks.audits.unique_feature.scores import Array, divergence, log_odds
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, burn

# A feature of the same family that the canary did not carry, asked about in its place: the null of the pair.
UNCARRIED = -1

FAMILY = pa.schema(
    [
        ("canary", pa.int64()),  # null for a model that is asked alone
        ("label", pa.int32()),  # the canary's; null where it is not known
        ("seed", pa.int64()),
        ("model", pa.string()),  # canary, twin or given
        # 0: the feature asked about; 1 and more: the others of its family; UNCARRIED: the pair's null, if it has one.
        ("member", pa.int32()),
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


def relatives(config: UniqueFeature, asked: Feature, number: int = 0) -> Relatives:
    """The family of what a canary's models are asked about; of a feature that is not drawn it is the same for all."""
    path = (number,) if config.drawn else ()
    seed = seeds.derive(config.seed, "family", *path)
    return Relatives(config.probe, config.probe_split, config.probes, asked, config.family, seed)


def clean_images(config: Relatives, shape: tuple[int, int, int]) -> Pixels:
    return probe_images(config.probe, config.probe_split, shape, config.probes)


def family_rows(
    config: Relatives, clean: Pixels, models: Sequence[Predictor], uncarried: Feature | None = None
) -> list[list[dict[str, Any]]]:
    """For each model the rows of its family: member, d, log_p and log_odds. An image is drawn once for all models."""
    before = [predict("clean", clean) for predict in models]
    families: list[list[dict[str, Any]]] = [[] for _ in models]
    asked = member_image_sets(clean, config)
    if uncarried is not None:
        asked = chain(asked, [(UNCARRIED, "uncarried", burn(clean, uncarried))])
    for member, name, images in asked:
        for rows, predict, unchanged in zip(families, models, before, strict=True):
            log_p = predict(name, images)
            d = float(divergence(unchanged, log_p).mean())
            means = {"log_p": log_p.mean(axis=0).tolist(), "log_odds": log_odds(log_p).mean(axis=0).tolist()}
            rows.append({"member": member, "d": d} | means)
    return families


def member_image_sets(clean: Pixels, config: Relatives) -> Iterator[tuple[int, str, Pixels]]:
    """Each member's number, the name of its set of images, and the images."""
    for member, images in burn_family(clean, config.feature, config.family, config.seed):
        yield member, set_name(member), images


def set_name(member: int) -> str:
    """The name of the set of images with this member of the family; 0 is the feature itself."""
    return f"family-{member:03d}" if member else "feature"


@dataclass(frozen=True, eq=False)
class ModelFamily:
    """One model's outputs for the members of a family, the evaluated feature first.

    `null` are those where the uncarried feature is evaluated in its place; None where there is none. Others that look
    like that feature are left out of them.
    """

    about: dict[str, Any]  # canary, label, seed, model
    d: Array  # (members,)
    log_p: Array  # (members, classes)
    log_odds: Array  # (members, classes)
    null: ModelFamily | None = None

    @property
    def label(self) -> Any:
        """The canary's label; None where it is not known."""
        return self.about["label"]


def model_families(table: pa.Table) -> Iterator[ModelFamily]:
    """Each model of a FAMILY table."""
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        rows.setdefault(tuple(row[name] for name in ("canary", "label", "seed", "model")), []).append(row)
    for (canary, label, seed, model), members in rows.items():
        members.sort(key=lambda row: row["member"])
        about = {"canary": canary, "label": label, "seed": seed, "model": model}
        uncarried = [row for row in members if row["member"] == UNCARRIED]
        asked = [row for row in members if row["member"] != UNCARRIED]
        null = None
        if uncarried:
            others = [row for row in asked[1:] if row["log_p"] != uncarried[0]["log_p"]]
            null = family_from_rows(about, [*uncarried, *others])
        yield family_from_rows(about, asked, null)


def family_from_rows(
    about: dict[str, Any], rows: Sequence[dict[str, Any]], null: ModelFamily | None = None
) -> ModelFamily:
    d, log_p, log_odds = (np.array([row[name] for row in rows]) for name in ("d", "log_p", "log_odds"))
    return ModelFamily(about, d, log_p, log_odds, null)
