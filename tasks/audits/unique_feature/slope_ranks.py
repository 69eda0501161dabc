"""The rank of a feature among others of its kind, by a model's weighted slopes in their pixels.

A glyph, including a letter, is ranked among all glyphs with the same amount of ink. Words and pictures are ranked among
the members of their family, as are the letters of the family `letters`.

All glyphs are counted, not drawn: a glyph inks k of 25 cells, and a score that is a sum over the inked cells has C(25,
k) values, which are 4,457,400 for the letter A. If a glyph was drawn at random from them, each rank is equally likely
for any values of the cells. The share of glyphs with at least the same score is therefore an exact p-value, as small as
2.2e-7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.audits.unique_feature.config import Shape
from tasks.audits.unique_feature.population import (
    Cells,
    Relatives,
    clean_images,
    inked_cells,
    is_counted,
    look_alike_image_sets,
    subset_count,
)
from tasks.audits.unique_feature.slopes import Array, pixel_ink, strongest_pixels
from tasks.contract.grouping import group_by
from tasks.contract.summaries import Row
from tasks.datasets.catalog import load
from tasks.datasets.features import GLYPHS, Family, Feature, Glyph, Picture, burn, draw_member, family
from tasks.datasets.features.kinds import CELLS
from tasks.datasets.features.look_alikes import halves
from tasks.datasets.images import Pixels, Splits, as_shape
from tasks.datasets.picture_rows import Sliceable, gather
from tasks.numerics import seeds
from tasks.numerics.ranks import exposure, rank_p_value

FITTED = 100  # number of glyphs whose responses the slopes of their 25 cells are fitted to
LOOK_ALIKE = "look-alike"  # a row with the feature's rank among features that differ from it in one part only
OTHERS = len(GLYPHS)  # number of glyphs that the canary did not carry, on which its models are also evaluated


@dataclass(frozen=True, eq=False)
class FeatureRegion:
    """The pixels of one kind of feature in images of `shape` (h, w, c).

    `indices` are the pixels of a flattened image in which the features differ. `added` (features, pixels) is the
    difference of each feature from the mean image, and `inked` (pixels,) is the ink of the training images.
    """

    shape: tuple[int, int, int]
    indices: NDArray[np.int64]
    added: Array
    inked: Array

    def pixel_map(self, values: Array) -> Array:
        """Return the values as an image (h, w), summed over channels. All other pixels are 0."""
        image = np.zeros(self.shape)
        image.ravel()[self.indices] = values
        return np.asarray(image.sum(axis=2))

    @property
    def block(self) -> tuple[slice, slice]:
        """The rows and columns of the smallest block with all of these pixels."""
        rows, columns, _ = np.unravel_index(self.indices, self.shape)
        return slice(int(rows.min()), int(rows.max()) + 1), slice(int(columns.min()), int(columns.max()) + 1)


def feature_region(clean: Pixels, sets: Sequence[Pixels], training: Sliceable) -> FeatureRegion:
    """Return the pixels of the features in the image `sets`, which have one feature each."""
    added = np.stack([(images.mean(axis=0) - clean.mean(axis=0)).ravel() / 255 for images in sets])
    indices = np.flatnonzero(np.ptp(added, axis=0) > 0)
    height, width, channels = clean.shape[1:]
    return FeatureRegion((height, width, channels), indices, added[:, indices], pixel_ink(training).ravel()[indices])


def mean_standardised_slopes(slopes: Sequence[Array]) -> Array:
    """Return the mean slopes (pixels,) of several models, each in units of their standard deviation over the pixels."""
    spreads = [values.std() for values in slopes]
    return np.asarray(
        np.mean(
            [
                model_slopes / spread if spread else model_slopes
                for model_slopes, spread in zip(slopes, spreads, strict=True)
            ],
            0,
        )
    )


def is_among_all(rank: Row) -> bool:
    """Return whether a row from `rank_rows` is the rank of a glyph among all glyphs of its ink."""
    return rank["ink"] is not None and rank["among"] == subset_count(len(rank["ink"]), rank["inked"])


def slope_features(family_config: Relatives, size: tuple[int, int]) -> list[Feature]:
    """Return the features to whose responses the slopes are fitted.

    For a glyph, these are glyphs drawn independently of the audited one. For features that are ranked among the members
    of their family, these are the feature and the members, all of which are treated alike.
    """
    if is_counted(family_config):
        derived_seed = seeds.derive(family_config.seed, "fitted")
        features = []
        for number in range(FITTED):
            features.append(draw_member(family_config.feature, seeds.derive(derived_seed, number), Family(), size))
        return features
    return [family_config.feature, *family(family_config.feature, family_config.family, family_config.seed, size)]


def rank_rows(family_config: Relatives, was_drawn: bool, slopes: Array, region: FeatureRegion) -> Iterator[Row]:
    """Yield the ranks by weighted slopes (pixels,) of the audited feature and of features that were never carried."""
    if is_counted(family_config):
        yield from _rank_among_all(family_config, was_drawn, region.pixel_map(slopes))
    else:
        yield _rank_among_members(family_config, was_drawn, slopes, region)


def _rank_among_all(family_config: Relatives, was_drawn: bool, field: Array) -> Iterator[Row]:
    """Yield a glyph's rank among all glyphs of its ink, followed by the ranks of control glyphs.

    `field` contains the weighted slopes of all pixels, shape (h, w).
    """
    feature = family_config.feature
    assert isinstance(feature, Glyph)
    values = cell_sums(field, feature)
    inked = inked_cells(feature)
    subsets = Subsets(values)
    strongest = strongest_pixels(values, int(inked.sum()))
    yield exact_rank(subsets, inked) | {
        "feature": "canary",
        "drawn": was_drawn,
        "hits": int((strongest & inked).sum()),
        "hits_by_chance": float(inked.sum() ** 2 / len(inked)),
        "height": CELLS,
        "width": CELLS,
        "ink": inked.tolist(),
        "slopes": values.tolist(),
    }
    for control in _control_glyphs(family_config, feature, was_drawn):
        yield exact_rank(subsets, inked_cells(control)) | {"feature": "other", "drawn": not was_drawn}


def exact_rank(subsets: Subsets, inked: Cells) -> Row:
    count = int(inked.sum())
    p_value = subsets.p_value(inked)
    return _rank_columns(p_value, subset_count(len(inked), count), count)


def _rank_columns(p_value: float, among: int, inked: int) -> Row:
    return {"p_value": p_value, "among": among, "exposure": exposure(p_value), "inked": inked}


def _control_glyphs(family_config: Relatives, feature: Glyph, was_drawn: bool) -> list[Glyph]:
    """Return control glyphs at the same position: the letters if the feature was drawn, otherwise as many drawn glyphs.

    The false alarm rate of drawn glyphs equals the level for any model, so they check only the counting.
    """
    if was_drawn:
        return [replace(feature, kind="letter", text=text, seed=0) for text in GLYPHS]
    derived_seed = seeds.derive(family_config.seed, "others")
    drawn_glyphs = (draw_member(feature, seeds.derive(derived_seed, number)) for number in range(OTHERS))
    return [glyph for glyph in drawn_glyphs if isinstance(glyph, Glyph)]


def _rank_among_members(family_config: Relatives, was_drawn: bool, slopes: Array, region: FeatureRegion) -> Row:
    """Return the rank of the feature, the first of `region.added`, among the members of its family."""
    scores = region.added @ slopes
    row = _rank_columns(rank_p_value(scores), len(scores), 0) | {"feature": "canary", "drawn": was_drawn}
    if isinstance(family_config.feature, Picture):
        return row  # a picture has no ink that could be read out
    rows, columns = region.block
    marks = np.array([region.pixel_map(added)[rows, columns].ravel() for added in region.added])
    inks = marks > marks.max() / 2
    values = region.pixel_map(slopes)[rows, columns].ravel()
    count = int(inks[0].sum())
    hits = (inks & strongest_pixels(values, count)).sum(axis=1)
    return row | {
        "inked": count,
        "hits": int(hits[0]),
        "hits_by_chance": float(hits[1:].mean()),
        "height": rows.stop - rows.start,
        "width": columns.stop - columns.start,
        "ink": inks[0].tolist(),
        "slopes": values.tolist(),
    }


def rank_glyph_parts(glyph: Glyph, field: Array) -> Iterator[Row]:
    """Yield the rank of the glyph among all glyphs that differ from it in one half, for each half."""
    values = cell_sums(field, glyph)
    inked = inked_cells(glyph)
    for half in halves(inked[:, None]):
        yield exact_rank(Subsets(values[half]), inked[half]) | {"feature": LOOK_ALIKE, "drawn": False}


def cell_sums(field: Array, glyph: Glyph) -> Array:
    """Return the sums of a field (h, w) over the pixels of each cell of the glyph, shape (25,)."""
    step = glyph.size // CELLS
    block = field[glyph.top : glyph.top + glyph.size, glyph.left : glyph.left + glyph.size]
    return np.asarray(block.reshape(CELLS, step, CELLS, step).sum(axis=(1, 3)).ravel())


# Single models

FitSlopes = Callable[[Sequence[str]], tuple[Array, FeatureRegion]]


def rank_alone(family_config: Relatives, clean: Pixels, names: Sequence[str], fit_slopes: FitSlopes) -> Iterator[Row]:
    """Yield the ranks by slopes of the feature, of glyphs that no model carries, and among look-alikes of each part.

    `names` contains the names of `slope_sets`. `fit_slopes` takes some of these names and returns the slopes fitted to
    their sets, with their pixels.
    """
    parts_and_names = ((part, name) for part, name, _ in _slope_look_alikes(family_config, clean))
    by_part = group_by(parts_and_names, lambda pair: pair[0])
    look_alike_names = {name for pairs in by_part.values() for _, name in pairs}
    # the feature and its family, or drawn glyphs
    family_names = []
    for name in names:
        if name not in look_alike_names:
            family_names.append(name)
    slopes, region = fit_slopes(family_names)
    yield from rank_rows(family_config, False, slopes, region)
    if family_config.family.look_alikes and isinstance(family_config.feature, Glyph) and is_counted(family_config):
        yield from rank_glyph_parts(family_config.feature, region.pixel_map(slopes))
    # The fit treats the feature and each of its look-alikes alike.
    for pairs in by_part.values():
        slopes, region = fit_slopes([family_names[0], *(name for _, name in pairs), *family_names[1:]])
        scores = (region.added @ slopes)[: 1 + len(pairs)]
        yield _rank_columns(rank_p_value(scores), len(scores), 0) | {"feature": LOOK_ALIKE, "drawn": False}


# All glyphs with the same ink, by counting

ROUNDING = 1e-6  # times the sum of absolute values; sums that differ by less (float32 rounding) count as equal


class Subsets:
    """The sums of every choice of cells, stored as the sums of two halves: 2^12 and 2^13 for 25 cells.

    Horowitz & Sahni 1974, "Computing partitions with applications to the knapsack problem", section 3.
    """

    def __init__(self, values: Array) -> None:
        if len(values) > 40:
            raise ValueError(f"there are {len(values)} cells; the choices of more than 40 cannot be counted")
        self.values = values
        self._slack = ROUNDING * float(np.abs(self.values).sum())
        half = len(values) // 2
        self._first, self._second = sums_by_size(self.values[:half]), sums_by_size(self.values[half:])

    def count_at_least(self, inked: int, threshold: float) -> int:
        """Count the choices of `inked` cells with a sum of at least `threshold`, up to rounding."""
        count = 0
        for size, sums in enumerate(self._first):
            if 0 <= inked - size < len(self._second):
                second_sums = self._second[inked - size]
                places = np.searchsorted(second_sums, threshold - self._slack - sums, side="left")
                count += int((len(second_sums) - places).sum())
        return count

    def p_value(self, selection: NDArray[np.bool_]) -> float:
        """Return the share of choices of the same number of cells with at least the sum of this `selection`, shape
        (cells,).
        """
        inked = int(np.count_nonzero(selection))
        count = self.count_at_least(inked, float(self.values[selection].sum()))
        return count / subset_count(len(self.values), inked)


def sums_by_size(values: Array) -> list[Array]:
    """Return the sums of every choice of these values, ascending, by the number of chosen values, from none to all."""
    sums = np.zeros(1)
    sizes = np.zeros(1, np.int64)
    for value in values:
        sums = np.concatenate([sums, sums + value])
        sizes = np.concatenate([sizes, sizes + 1])
    return [np.sort(sums[sizes == size]) for size in range(len(values) + 1)]


# The images of a fit

IMAGES = 100  # number of images of a label; a response is the mean over them


def label_images(family_config: Relatives, data: Splits, examples: int, canary: int) -> Pixels:
    """Return the images to which slopes of a pair are fitted. `canary` is a row of the first `examples` (0: all).

    These are the first test images of the canary's label. If there are none, they are the label's training images
    without the canary, or else probe images.
    """
    label = data.train.labels[canary]
    rows = np.flatnonzero(data.test.labels == label)
    if family_config.seen is not None:
        seen = family_config.seen
        rows = rows[~seen.copies_in(seen.data, "test")[rows]]
    if len(rows):
        return data.test.pixels(rows[:IMAGES])
    rows = np.flatnonzero(data.train.labels[: examples or None] == label)
    rows = rows[rows != canary]
    if len(rows):
        return data.train.pixels(rows[:IMAGES])
    images: Pixels = clean_images(family_config, data.shape)[:IMAGES]
    return images


def probe_label_images(family_config: Relatives, shape: Shape, label: int) -> Pixels:
    """Return the first test images of the label in the probe set. Raises ValueError if it has none."""
    return as_shape(load(family_config.probe).test.pixels(probe_label_rows(family_config, label)), shape)


def probe_label_rows(family_config: Relatives, label: int) -> NDArray[np.int64]:
    """Return the rows of `probe_label_images`. Raises ValueError if there are none."""
    rows = np.flatnonzero(load(family_config.probe).test.labels == label)[:IMAGES]
    if not len(rows):
        raise ValueError(
            f"probe {family_config.probe.name} has no test image of label {label}; to compare with references, it must "
            "contain images like those of training, with the labels of the models' classes"
        )
    return rows


def slope_sets(family_config: Relatives, clean: Pixels) -> Iterator[tuple[str, Pixels]]:
    """Yield the set names and images, one set for each feature to which slopes are fitted."""
    for number, feature in enumerate(slope_features(family_config, clean.shape[1:3])):
        yield f"slopes-{number:03d}", burn(clean, feature)
    for _, name, images in _slope_look_alikes(family_config, clean):
        yield name, images


def _slope_look_alikes(family_config: Relatives, clean: Pixels) -> Iterator[tuple[int, str, Pixels]]:
    """Yield the part, set name and images of each look-alike. None for a glyph, whose look-alikes are counted."""
    if not is_counted(family_config):
        for part, _, name, images in look_alike_image_sets(clean, family_config):
            yield part, f"slopes-{name}", gather([images])
