"""The outputs of models for a feature and its family, and the rank of the feature in that family.

The family provides the null distribution for a single model: features of the same kind, ink and position that it was
not trained on. Arrays are indexed by model, by member of the family and by class: member 0 is the audited feature, and
L[m, f, y] is the mean over probe images of log P(y | x_f) of model m. If the feature was drawn at random from its
family, and no member was in the training data, all ranks are equally likely. The share of members with at least the
same score is therefore an exact p-value, for any model and any number of models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.config import ProbeSplit, UniqueFeature, are_all_counted
from tasks.audits.unique_feature.evaluation import Predictor, burn_each, burn_family, probe_images
from tasks.audits.unique_feature.given_models import Given
from tasks.audits.unique_feature.questions import Pairs, Panel
from tasks.audits.unique_feature.scores import Array, divergence, log_odds
from tasks.audits.unique_feature.unseen_images import TrainingImages
from tasks.contract.power import SMALLEST, Resolution
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Feature, Glyph, glyph_pixels, look_alikes
from tasks.datasets.features.kinds import CELLS, Patch
from tasks.datasets.images import Pixels
from tasks.datasets.picture_rows import Converted, Sliceable, hold
from tasks.numerics import seeds

LEVEL = 0.05  # largest p-value of a small rank, in every measure of the audit
FDR = 0.05  # false discovery rate of the canaries that are found individually
GLYPHS = "glyphs"  # setting key: number of all glyphs
OTHERS = "others"  # setting key: number of other features


@dataclass(frozen=True)
class Population:
    """The features among which a feature is ranked, including itself: all glyphs of its ink, or some of its kind."""

    size: int
    are_all_glyphs: bool = False

    @classmethod
    def from_setting(cls, setting: Mapping[str, Any]) -> Population:
        """Return the population stated in the setting of a summary row."""
        if GLYPHS in setting:
            return cls(setting[GLYPHS], True)
        return cls(setting[OTHERS] + 1)

    @property
    def setting(self) -> dict[str, int]:
        if self.are_all_glyphs:
            return {GLYPHS: self.size}
        return {OTHERS: self.size - 1}

    @property
    def last_called(self) -> int:
        """The largest rank with a p-value of at most LEVEL. 0 if even rank 1 has a larger one."""
        return math.floor(LEVEL * self.size + 1e-9)

    def resolution(self, canaries: int) -> Resolution:
        """Return whether one of `canaries` can be found at FDR, each by its rank in this population."""
        needed_others = math.ceil(canaries / FDR - 1e-9) - 1
        if self.are_all_glyphs:
            advice = "audit fewer canaries"
        else:
            advice = f"rank each among {needed_others} others (family.count)"
        return Resolution(1 / self.size, canaries, FDR, "canaries", advice)

    def fewest_called(self, canaries: int) -> int:
        """Return how many of `canaries` must rank first before one can be found at FDR."""
        return math.ceil(canaries / (FDR * self.size) - 1e-9)

    def describe(self) -> str:
        """Describe the population, such as `all 4,457,400 glyphs` or `201 features of its kind`."""
        if self.are_all_glyphs:
            return f"all {self.size:,} glyphs"
        return f"{self.size} features of its kind"


Cells = NDArray[np.bool_]

# A feature of the same family that the canary did not carry, which provides the null of the pair.
UNCARRIED = -1

MODEL = ("canary", "label", "seed", "model")  # columns that identify a model in a FAMILY table
FAMILY = pa.schema(
    [
        ("canary", pa.int64()),  # null for a single model
        ("label", pa.int32()),  # the canary's label; null if it is unknown
        ("seed", pa.int64()),
        ("model", pa.string()),  # canary, twin (control model) or given
        # 0: the audited feature; from 1: the others of its family; UNCARRIED: the pair's null, if it has one.
        ("member", pa.int32()),
        ("d", pa.float64()),  # mean over the probe images of KL(f(x_c) || f(x_f)), in nats
        ("log_p", pa.list_(pa.float64())),  # mean over the probe images of log P(class | x_f), for every class
        ("log_odds", pa.list_(pa.float64())),  # the same for log P / (1 - P)
    ]
)


@dataclass(frozen=True)
class Relatives:
    """The probe images, the feature and its family.

    `seed` draws the family, and `probes` is the number of images (0: all). `seen` are the training images, whose copies
    are left out.
    """

    probe: Dataset
    probe_split: ProbeSplit
    probes: int
    feature: Feature
    family: AskedFamily
    seed: int
    seen: TrainingImages | None = None


def relatives(
    config: UniqueFeature, feature: Feature, number: int = 0, seen_images: TrainingImages | None = None
) -> Relatives:
    """Return the family of a canary's audited feature. All canaries share it unless features are drawn."""
    question = config.question
    assert isinstance(question, Pairs | Panel | Given)  # other questions rank no feature
    path = (number,) if config.draws_features else ()
    seed = seeds.derive(config.seed, "family", *path)
    if isinstance(question, Given) and question.nonce:
        seed = config.derive_seed("family")
    family = question.family
    asked_family = AskedFamily(family.kind, family.count, family.names, family.look_alikes)
    return Relatives(config.probe, config.probe_split, question.probes, feature, asked_family, seed, seen_images)


def is_counted(family_config: Relatives) -> bool:
    """Return whether the feature is ranked among all of its kind instead of the members of its family."""
    return are_all_counted(family_config.feature, family_config.family)


def population_by_slopes(config: UniqueFeature) -> Population:
    """Return the population for ranks by slopes: all glyphs of the feature's ink, or the members of its family."""
    feature = config.asked_feature
    if isinstance(feature, Glyph) and config.family.kind == "alike":
        inked = inked_cells(feature)
        return Population(subset_count(len(inked), int(inked.sum())), are_all_glyphs=True)
    return Population(config.family.count + 1)


def inked_cells(glyph: Glyph) -> Cells:
    """Return the mask of the glyph's inked cells, row by row, shape (25,)."""
    step = glyph.size // CELLS
    return np.asarray(glyph_pixels(glyph)[::step, ::step].ravel() > 0)


def subset_count(cells: int, inked: int) -> int:
    """Return C(cells, inked): the number of glyphs with this amount of ink."""
    return math.comb(cells, inked)


def clean_images(config: Relatives, shape: tuple[int, int, int]) -> Sliceable:
    return probe_images(config.probe, config.probe_split, shape, config.probes, config.seen)


def family_rows(
    config: Relatives, clean: Sliceable, models: Sequence[Predictor], uncarried: Feature | None = None
) -> list[list[dict[str, Any]]]:
    """Return the rows of each model's family: member, d, log_p and log_odds. All models use the same images."""
    before = [predict("clean", clean) for predict in models]
    families: list[list[dict[str, Any]]] = [[] for _ in models]
    image_sets = member_image_sets(clean, config)
    if uncarried is not None:
        image_sets = chain(image_sets, [(UNCARRIED, "uncarried", burn_each(clean, uncarried))])
    for member, name, images in image_sets:
        for rows, predict, unchanged in zip(families, models, before, strict=True):
            log_p = predict(name, images)
            d = float(divergence(unchanged, log_p).mean())
            means = {"log_p": log_p.mean(axis=0).tolist(), "log_odds": log_odds(log_p).mean(axis=0).tolist()}
            rows.append({"member": member, "d": d} | means)
    return families


def member_image_sets(clean: Sliceable, config: Relatives) -> Iterator[tuple[int, str, Sliceable]]:
    """Yield each member's number, the name of its image set, and the images."""
    for member, images in burn_family(clean, config.feature, config.family, config.seed):
        yield member, set_name(member), images


def set_name(member: int) -> str:
    """Return the name of the image set with this member of the family. 0 is the feature itself."""
    return f"family-{member:03d}" if member else "feature"


def look_alike_image_sets(clean: Sliceable, config: Relatives) -> Iterator[tuple[int, int, str, Sliceable]]:
    """Yield the part and number (from 1) of each look-alike, the name of its image set, and the images."""
    if not config.family.look_alikes:
        return
    height, width, _ = clean.shape[1:]
    parts = look_alikes(config.feature, config.family, config.seed, (height, width))
    for part, patches in enumerate(parts, start=1):
        for number, patch in enumerate(patches, start=1):
            images = Converted(clean, partial(_burn_patch, patch), clean.shape[1:])
            yield part, number, f"look-alike-{part}-{number:03d}", hold(images)


def _burn_patch(patch: Patch, pixels: Pixels, _: slice) -> Pixels:
    return patch.burn_into(pixels)


@dataclass(frozen=True, eq=False)
class ModelFamily:
    """One model's outputs for the members of a family. The evaluated feature comes first.

    `null` contains the outputs with the uncarried feature in place of the audited one, or None if there is no such
    feature. Members that look like the uncarried feature are left out of `null`.
    """

    about: dict[str, Any]  # canary, label, seed and model
    d: Array  # (members,)
    log_p: Array  # (members, classes)
    log_odds: Array  # (members, classes)
    null: ModelFamily | None = None

    @property
    def label(self) -> Any:
        """The canary's label, or None if it is unknown."""
        return self.about["label"]


def model_families(table: pa.Table) -> Iterator[ModelFamily]:
    """Yield the outputs of each model in a FAMILY table.

    Columns are read as arrays. n canaries need families of at least n / FDR members, so that the number of rows grows
    with the square of n.
    """
    table = table.combine_chunks()
    members = table["member"].to_numpy()
    for rows in _rows_by_model(table):
        about = {name: table[name][int(rows[0])].as_py() for name in MODEL}
        indices = rows[np.argsort(members[rows], kind="stable")]
        is_uncarried = members[indices] == UNCARRIED
        carried = _family_of_rows(about, table, indices[~is_uncarried])
        if not is_uncarried.any():
            yield carried
            continue
        uncarried = _family_of_rows(about, table, indices[is_uncarried])
        differs = (carried.log_p != uncarried.log_p[0]).any(axis=1)
        others = indices[~is_uncarried][1:][differs[1:]]
        null = _family_of_rows(about, table, np.concatenate([indices[is_uncarried], others]))
        yield replace(carried, null=null)


def _rows_by_model(table: pa.Table) -> list[NDArray[np.int64]]:
    """Return the rows of each model in a FAMILY table, in order. Models are in order of first occurrence."""
    codes = np.zeros(table.num_rows, np.int64)
    for name in MODEL:
        for encoded in table[name].dictionary_encode(null_encoding="encode").chunks:  # one, or none without rows
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    groups = np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])
    return [groups[number] for number in np.argsort(first)] if len(codes) else []


def _family_of_rows(about: dict[str, Any], table: pa.Table, indices: NDArray[np.int64]) -> ModelFamily:
    """Return the outputs in these rows of a FAMILY table, in this order."""
    log_p = _stack_lists(table["log_p"], indices)
    return ModelFamily(about, table["d"].to_numpy()[indices], log_p, _stack_lists(table["log_odds"], indices))


def _stack_lists(column: pa.ChunkedArray, indices: NDArray[np.int64]) -> Array:
    """Return the lists in these rows as an array (rows, length). Raises ValueError if they have different lengths."""
    lists = column.combine_chunks().take(pa.array(indices))
    if len(set(lists.value_lengths().to_pylist())) > 1:
        raise ValueError("the outputs of one model have different numbers of classes")
    return np.asarray(lists.flatten().to_numpy(zero_copy_only=False).reshape(len(indices), -1))


def family_from_rows(
    about: dict[str, Any], rows: Sequence[dict[str, Any]], null: ModelFamily | None = None
) -> ModelFamily:
    d = np.array([row["d"] for row in rows])
    log_p = np.array([row["log_p"] for row in rows])
    log_odds = np.array([row["log_odds"] for row in rows])
    return ModelFamily(about, d, log_p, log_odds, null)


@dataclass(frozen=True, eq=False)
class FamilyPair:
    """The outputs of a canary model and its control model for the members of one family."""

    canary: ModelFamily
    twin: ModelFamily

    @property
    def training(self) -> tuple[int, int]:
        """The row of the canary, and the seed."""
        return self.canary.about["canary"], self.canary.about["seed"]

    @property
    def label(self) -> int:
        return int(self.canary.label)

    @property
    def difference(self) -> Array:
        return twin_difference(self.canary.log_p, self.twin.log_p, self.label)

    @property
    def unseen(self) -> Array | None:
        """The difference for a feature that the canary did not carry, or None if there is no such feature."""
        canary = self.canary.null
        twin = self.twin.null
        if canary is None or twin is None:
            return None
        return twin_difference(canary.log_p, twin.log_p, self.label)


def family_pairs(tables: Iterable[pa.Table]) -> Iterator[FamilyPair]:
    """Yield the pair of each FAMILY table. Tables that lack one of the two models are skipped."""
    for table in tables:
        models = {model.about["model"]: model for model in model_families(table)}
        if set(models) == {"canary", "twin"}:
            yield FamilyPair(models["canary"], models["twin"])


def standardise(log_p: Array) -> Array:
    """Standardise each class over the family: (value - mean) / standard deviation. Arrays have shape (..., members,
    classes).

    All members, including the audited feature, contribute equally. A class with constant values becomes 0.
    """
    deviations = log_p - log_p.mean(axis=-2, keepdims=True)
    spread = deviations.std(axis=-2, keepdims=True)
    return np.asarray(np.divide(deviations, spread, out=np.zeros_like(deviations), where=spread > 0))


def reduce_effect(difference: Array) -> Array:
    """Return the members' differences (members,) with that of the feature reduced by the smallest relevant effect."""
    reduced = difference.copy()
    reduced[0] -= SMALLEST
    return reduced


def mean_standardised_scores(differences: Sequence[Array]) -> Array:
    """Return the members' scores (members,): the mean over pairs of their differences, standardised over the family."""
    return np.asarray(np.mean([standardise(difference[:, None])[:, 0] for difference in differences], axis=0))


def label_directed_scores(log_p: Array, label: int | None = None) -> Array:
    """Return the score of every member, shape (members,), for one or several models (models, members, classes).

    T(f) = mean over models of (L[m, f, y] - mean over f) / (standard deviation over f), for the canary's label y. If y
    is unknown, the score is the rank of T(f) in the label in which f ranks highest. Every member gets this choice, so
    it needs no correction.
    """
    scores = standardise(log_p).mean(axis=0)
    if label is None:
        return highest_standing(scores)[0]
    return np.asarray(scores[:, label])


def highest_standing(scores: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return the highest standing of each member over classes, and the class where it is reached. Both are (members,).

    Scores have shape (members, classes). Members are ordered by the number of members below them in a class, and ties
    by their scores. The scores themselves are not comparable between classes, because log P has a long tail on one
    side. If models assign most images to one class, the largest score over classes therefore belongs to members that
    favour other classes.
    """
    above = (scores[None] < scores[:, None]).sum(axis=1)  # (members, classes)
    count_below = above.max(axis=1)
    best_scores = np.where(above == count_below[:, None], scores, -np.inf)
    _, standing = np.unique(np.stack([count_below, best_scores.max(axis=1)], axis=1), axis=0, return_inverse=True)
    return standing.reshape(-1).astype(np.float64), best_scores.argmax(axis=1)


def push_scores(odds: Array, other_odds: Array) -> Array:
    """Return the excess of features over the family in the log odds of each class, in standard deviations of the
    family.

    `odds` contains the log odds of the features (features, classes), and `other_odds` those of the family's other
    members. Mean and deviation are computed over the other members only, so they do not depend on the evaluated
    feature. A class with constant values becomes 0.
    """
    deviations = odds - other_odds.mean(axis=0)
    spread = other_odds.std(axis=0)
    return np.asarray(np.divide(deviations, spread, out=np.zeros_like(deviations), where=spread > 0))


def favoured_label(log_p: Array, label: int | None = None) -> int:
    """Return the label that the audited feature favours most, or the known label if it is given."""
    if label is None:
        return int(highest_standing(standardise(log_p).mean(axis=0))[1][0])
    return label


def twin_difference(canary: Array, twin: Array, label: int) -> Array:
    """Return D(f) = L[f, y] of the canary model minus that of its control model, for every member, shape (members,)."""
    return np.asarray(canary[:, label] - twin[:, label])
