"""Where a feature stands among others of its kind by a model's weighted slopes in the pixels of their place.

A glyph is ranked among all glyphs of its ink; so are the letters, each among those of its own. Words and pictures are
ranked among the members of their family, as are the letters of the family `letters`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.audits.unique_feature.feature_family import Relatives
from tasks.audits.unique_feature.pixel_slopes import Array, pixel_ink, strongest_pixels
from tasks.audits.unique_feature.ranks import rank_p_value
from tasks.audits.unique_feature.subset_ranks import Subsets, exposure, subset_count
from tasks.datasets.features import GLYPHS, Family, Feature, Glyph, Picture, draw_member, family, glyph_pixels
from tasks.datasets.features.kinds import CELLS
from tasks.datasets.images import Pixels
from tasks.summaries import Row

Cells = NDArray[np.bool_]

FITTED = 100  # glyphs, from the responses to which the slopes in their 25 cells are fitted
OTHERS = len(GLYPHS)  # glyphs that the canary did not carry, of which its models are asked too


@dataclass(frozen=True, eq=False)
class FeatureRegion:
    """Where features of a kind lie in images of `shape` (h, w, c).

    `where` are the pixels in which they differ, by their places in a flattened image. `added` (features, pixels) is
    what each adds there to the mean image, and `inked` (pixels,) is the ink that the training images have there.
    """

    shape: tuple[int, int, int]
    where: NDArray[np.int64]
    added: Array
    inked: Array

    def pixel_map(self, values: Array) -> Array:
        """Values of the pixels as an image without channels, 0 elsewhere: (h, w). Channels are added up."""
        whole = np.zeros(self.shape)
        whole.ravel()[self.where] = values
        return np.asarray(whole.sum(axis=2))

    @property
    def block(self) -> tuple[slice, slice]:
        """The rows and columns of an image in which the place lies."""
        rows, columns, _ = np.unravel_index(self.where, self.shape)
        return slice(int(rows.min()), int(rows.max()) + 1), slice(int(columns.min()), int(columns.max()) + 1)


def feature_region(clean: Pixels, sets: Sequence[Pixels], training: Pixels) -> FeatureRegion:
    """The place of the features that the `sets` of the `clean` images carry, one each."""
    added = np.stack([(images.mean(axis=0) - clean.mean(axis=0)).ravel() / 255 for images in sets])
    where = np.flatnonzero(np.ptp(added, axis=0) > 0)
    height, width, channels = clean.shape[1:]
    return FeatureRegion((height, width, channels), where, added[:, where], pixel_ink(training).ravel()[where])


def mean_standardised_slopes(slopes: Sequence[Array]) -> Array:
    """The mean slopes (pixels,) of several models, each in units of their standard deviation over the pixels."""
    spreads = [values.std() for values in slopes]
    return np.asarray(np.mean([of / spread if spread else of for of, spread in zip(slopes, spreads, strict=True)], 0))


def is_counted(asked: Relatives) -> bool:
    """Whether the feature is ranked among all of its kind, not among the members that its family has."""
    return isinstance(asked.feature, Glyph) and asked.family.kind == "alike"


def is_among_all(rank: Row) -> bool:
    """Whether a row that `rank_rows` gives is the rank of a glyph among all of its ink."""
    return rank["ink"] is not None and rank["among"] == subset_count(len(rank["ink"]), rank["inked"])


def slope_features(asked: Relatives, size: tuple[int, int]) -> list[Feature]:
    """The features whose responses give the slopes.

    Glyphs drawn without regard to the one asked about; where features are ranked among the members of their family,
    the feature and these members, which are all treated alike.
    """
    if is_counted(asked):
        own = seeds.derive(asked.seed, "fitted")
        return [draw_member(asked.feature, seeds.derive(own, number), Family(), size) for number in range(FITTED)]
    return [asked.feature, *family(asked.feature, asked.family, asked.seed, size)]


def rank_rows(asked: Relatives, was_drawn: bool, slopes: Array, here: FeatureRegion) -> Iterator[Row]:
    """What the weighted slopes (pixels,) say of the feature asked about, and then of features never carried."""
    if is_counted(asked):
        yield from rank_among_all(asked, was_drawn, here.pixel_map(slopes))
    else:
        yield rank_among_members(asked, was_drawn, slopes, here)


def rank_among_all(asked: Relatives, was_drawn: bool, field: Array) -> Iterator[Row]:
    """A glyph's rank among all of its ink; then those of others, which were drawn if it was not, else the letters.

    `field` holds the weighted slopes of all pixels, (h, w).
    """
    feature = asked.feature
    assert isinstance(feature, Glyph)
    values, inked = cell_sums(field, feature), inked_cells(feature)
    subsets, read = Subsets(values), strongest_pixels(values, int(inked.sum()))
    yield exact_rank(subsets, inked) | {
        "feature": "canary",
        "drawn": was_drawn,
        "hits": int((read & inked).sum()),
        "hits_by_chance": float(inked.sum() ** 2 / len(inked)),
        "height": CELLS,
        "width": CELLS,
        "ink": inked.tolist(),
        "slopes": values.tolist(),
    }
    for other in control_glyphs(asked, feature, was_drawn):
        yield exact_rank(subsets, inked_cells(other)) | {"feature": "other", "drawn": not was_drawn}


def exact_rank(subsets: Subsets, inked: Cells) -> Row:
    count = int(inked.sum())
    p_value = subsets.p_value(inked)
    return rank_columns(p_value, subset_count(len(inked), count), count)


def rank_columns(p_value: float, among: int, inked: int) -> Row:
    return {"p_value": p_value, "among": among, "exposure": exposure(p_value), "inked": inked}


def control_glyphs(asked: Relatives, feature: Glyph, was_drawn: bool) -> list[Glyph]:
    """Glyphs at the same place: the letters where the feature was drawn, else as many drawn ones.

    Drawn ones are found at any level as often as it says whatever models do: they check the counting alone.
    """
    if was_drawn:
        return [replace(feature, kind="letter", text=text, seed=0) for text in sorted(GLYPHS)]
    own = seeds.derive(asked.seed, "others")
    found = (draw_member(feature, seeds.derive(own, number)) for number in range(OTHERS))
    return [glyph for glyph in found if isinstance(glyph, Glyph)]


def rank_among_members(asked: Relatives, was_drawn: bool, slopes: Array, here: FeatureRegion) -> Row:
    """The rank of the feature, the first of `here.added`, among the members of its family."""
    scores = here.added @ slopes
    said = rank_columns(rank_p_value(scores), len(scores), 0) | {"feature": "canary", "drawn": was_drawn}
    if isinstance(asked.feature, Picture):
        return said  # dark or bright, it has no ink to be read out
    rows, columns = here.block
    marks = np.array([here.pixel_map(added)[rows, columns].ravel() for added in here.added])
    inks = marks > marks.max() / 2
    values = here.pixel_map(slopes)[rows, columns].ravel()
    count = int(inks[0].sum())
    hits = (inks & strongest_pixels(values, count)).sum(axis=1)
    return said | {
        "inked": count,
        "hits": int(hits[0]),
        "hits_by_chance": float(hits[1:].mean()),
        "height": rows.stop - rows.start,
        "width": columns.stop - columns.start,
        "ink": inks[0].tolist(),
        "slopes": values.tolist(),
    }


def inked_cells(glyph: Glyph) -> Cells:
    """Which of the glyph's cells have ink, row by row: (25,)."""
    step = glyph.size // CELLS
    return np.asarray(glyph_pixels(glyph)[::step, ::step].ravel() > 0)


def cell_sums(field: Array, glyph: Glyph) -> Array:
    """The sums of a field (h, w) over the pixels of each cell at the glyph's place: (25,)."""
    step = glyph.size // CELLS
    block = field[glyph.top : glyph.top + glyph.size, glyph.left : glyph.left + glyph.size]
    return np.asarray(block.reshape(CELLS, step, CELLS, step).sum(axis=(1, 3)).ravel())
